"""The machine that wrote a log, and whether it is this one.

What the log states counts first. This machine's facts are used only if they contradict none of it:
a verdict or a command for another environment would be wrong there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from attn_doctor.explain.explanation import LogFact
from attn_doctor.explain.extract import Confidence, Stated
from attn_doctor.explain.fact_words import label
from attn_doctor.facts import PACKAGES, Facts
from attn_doctor.rulebook.conditions import show
from attn_doctor.rulebook.evaluate import FactLookup

#: Facts in which two environments differ, whatever the reliability of the statement.
_IDENTITY = ("system.os", "system.arch", "python.version", "torch.version")
#: Facts that change on one machine as well; only a report of them counts.
_REPORTED = ("triton.version", *(f"{package}.version" for package in PACKAGES))
#: The part of an interpreter's path behind its environment.
_PROGRAM = re.compile(r"(?:[/\\](?:bin|Scripts))?[/\\][^/\\]*$")
_FLASH, _XFORMERS, _CUDA = "flash-attn, built for", "xformers, built for", "torch for CUDA {}"
#: Two facts that belong together, how a sentence names each, and the parts of the versions that
#: must be equal: the minor release of torch, the major one of CUDA.
_PAIRS = (
    ("flash_attn.built_torch", f"{_FLASH} torch {{}}", "torch.version", "torch {}", 2),
    ("xformers.built_torch", f"{_XFORMERS} torch {{}}", "torch.version", "torch {}", 2),
    ("flash_attn.built_cuda", f"{_FLASH} CUDA {{}}", "torch.cuda", _CUDA, 1),
    ("xformers.built_cuda", f"{_XFORMERS} CUDA {{}}", "torch.cuda", _CUDA, 1),
    ("build.version", "nvcc of CUDA {}", "torch.cuda", _CUDA, 1),
)


#: Facts that a log does not state in these words.
_OURS = (".from_pypi", ".installed", ".local", ".selection_reason")


def log_facts(stated: Stated, machine: Facts | None) -> tuple[LogFact, ...]:
    """The facts of the log with their lines, and this machine's value where it differs."""
    facts = stated.facts
    lookup = FactLookup(facts, "gpu", facts.gpus[0] if facts.gpus else None, partial=True)
    here = {} if machine is None else dict(_differing(stated, lookup, machine))
    return tuple(
        LogFact(name, show(value), here.get(name, ""), _line(name, stated))
        for name in sorted(stated.names)
        if (value := lookup(name)) is not None and not name.endswith(_OURS)
    )


def conflicts(stated: Stated) -> tuple[str, ...]:
    """Facts that the log reports with two values, or that do not fit each other, as sentences."""
    return (*_two_values(stated), *_unequal_pairs(stated))


def _two_values(stated: Stated) -> Iterator[str]:
    for fact, *found in stated.conflicts:
        first, second = sorted(found, key=lambda statement: statement.line)
        yield (
            f"The log reports two values of {label(fact)}: {first.value} (line {first.line}) and"
            f" {second.value} (line {second.line})."
        )


def _unequal_pairs(stated: Stated) -> Iterator[str]:
    """The pairs of versions of which the log states both, and which differ."""
    lookup = FactLookup(stated.facts, "gpu", None, partial=True)
    for one, words, other, others, parts in _PAIRS:
        values = str(lookup(one) or ""), str(lookup(other) or "")
        lines = _line(one, stated), _line(other, stated) or _line("torch.version", stated)
        versions = [value.partition("+")[0].split(".")[:parts] for value in values]
        if all(values) and all(lines) and versions[0] != versions[1]:
            yield (
                f"The log names {words.format(values[0])} (line {lines[0]}), and"
                f" {others.format(values[1])} (line {lines[1]})."
            )


def _line(name: str, stated: Stated) -> int:
    statement = stated.by_name.get(name)
    return 0 if statement is None else statement.line


def _differing(stated: Stated, there: FactLookup, machine: Facts) -> Iterator[tuple[str, str]]:
    """This machine's values of facts that the log states otherwise."""
    here = FactLookup(machine)
    environment, own = _environment(there), machine.python.path
    if environment and own and not _is_examined(environment, machine):
        yield "python.path", own
    for name in (*_IDENTITY, *_REPORTED):
        if name in _REPORTED and _confidence(name, stated) < Confidence.REPORTED:
            continue
        value, own = there(name), here(name)
        if value not in (None, "") and own not in (None, "") and not _agree(value, own):
            yield name, str(own)
    sm = there("gpu.sm") if _confidence("gpu", stated) >= Confidence.INFERRED else None
    if sm and machine.gpus and all(gpu.sm not in (None, sm) for gpu in machine.gpus):
        yield "gpu.sm", str(machine.gpus[0].sm)


def _environment(there: FactLookup) -> str:
    """The folder of the log's Python environment; empty if it is unknown."""
    prefix, path = there("python.prefix"), str(there("python.path") or "")
    return str(prefix) if prefix else _PROGRAM.sub("", path)


def _is_examined(environment: str, machine: Facts) -> bool:
    """The folder of an environment is that of the one examined, or holds its packages."""
    python = machine.python
    if python.prefix is None:
        return True
    folder = _comparable(environment)
    prefixes = (_comparable(one) for one in (python.prefix, python.base_prefix) if one)
    packages = map(_comparable, python.site_packages or ())
    return folder in prefixes or any(one.startswith(f"{folder}/") for one in packages)


def _comparable(folder: str) -> str:
    """A path in one spelling; Windows does not tell capital letters apart."""
    return folder.replace("\\", "/").rstrip("/").lower()


def _confidence(start: str, stated: Stated) -> int:
    """The highest reliability of the statements about facts that begin so; 0 without one."""
    found = (one.confidence for name, one in stated.by_name.items() if name.startswith(start))
    return max(found, default=0)


def _agree(there: Any, here: Any) -> bool:
    """The values are equal, or one of the versions is a shorter form of the other."""
    one, other = str(there), str(here)
    return one == other or other.startswith((f"{one}.", f"{one}+"))
