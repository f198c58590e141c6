"""A package `xformers` with one of the wrong attentions, called by the real worker of an audit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attn_doctor.backends.audit import plan
from attn_doctor.backends.audit.calls import Answer, Runner
from attn_doctor.backends.live.interpreter import Interpreter, environment, scratch
from attn_doctor.backends.live.plan import Limits
from attn_doctor.facts import Facts, Python
from attn_doctor.rulebook import library
from attn_doctor.worker.audit.case import described
from tests.worker.proof import run_faults


def write(folder: Path, fault: str = "") -> Path:
    """Write the package into a folder; the fault's name is in the file whose path is returned."""
    package, name = folder / "xformers", folder / "fault"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "ops.py").write_text(
        run_faults.OPS.format(here=str(run_faults.HERE), name=str(name))
    )
    name.write_text(fault)
    return name


@contextmanager
def auditing(
    python: str, folder: Path, patch: Callable[[str, str], object], device: str = "cpu"
) -> Iterator[tuple[Path, Runner]]:
    """The file for the fault's name, and what calls the package."""
    name = write(folder)
    patch("PYTHONPATH", str(folder))
    facts = Facts(python=Python(path=python))
    (attempt,) = plan.attempts(("xformers",), {"xformers": True}, library.tables()["live"])
    with scratch() as room:
        env = environment(facts, room, Limits())
        with Interpreter(python, ("torch", "torch._dynamo"), room, env, 300.0) as interpreter:
            yield (
                name,
                Runner(
                    attempt=attempt, interpreter=interpreter, device=device, memory_mib=60000,
                    table=library.tables()["live"],
                ),
            )  # fmt: skip


def first_wrong(runner: Runner, options: plan.Options) -> tuple[str, Answer] | None:
    """The first call of a whole audit that is wrong, in words; None if all are right."""
    for part in plan.parts(runner.attempt, options, runner.device):
        answers, _ = runner.run(part.cases, part.scripts, groups=[0] * len(part.cases))
        for answer in answers:
            if answer.kind is not None and answer.held:
                number = answer.number
                cases = part.cases
                if number >= len(cases):
                    return part.title, answer
                return f"{part.probes[number]}: {described(cases[number])}", answer
    return None


def faults(python: str) -> list[str]:
    """The names of all faults."""
    return [name for name in run_faults.faults(python) if name]


if __name__ == "__main__":
    import sys
    import tempfile

    seeds = range(int(sys.argv[2]))
    with (
        tempfile.TemporaryDirectory() as folder,
        auditing(sys.argv[1], Path(folder), os.environ.__setitem__) as (file, found),
    ):
        missed = 0
        for fault in ["", *faults(sys.argv[1])]:
            file.write_text(fault)
            for seed in seeds:
                seen = first_wrong(found, plan.Options(seed=1000 * seed))
                ok = (seen is None) == (fault == "")
                missed += not ok
                where, answer = seen or ("", None)
                sentence = answer.sentence[:60] if answer else ""
                print("ok  " if ok else "MISS", fault or "(right)", "|", where, "|", sentence)
        print(f"{missed} missed")
