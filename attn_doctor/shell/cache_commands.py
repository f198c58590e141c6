"""The commands that messages about caches give: complete, so that they work as they are printed.

A command names the folder and, where the user named one, the interpreter. Without those it would
speak of another cache, or of another environment.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from attn_doctor.facts import Facts


def asked_for(facts: Facts) -> tuple[str, ...]:
    """`--python PATH`, where this environment is examined because somebody said so."""
    python = facts.python
    return ("--python", python.path) if python.chosen == "--python" and python.path else ()


def command(*words: str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """`attn-doctor …` as it is typed, with the environment and the program that it runs."""
    python = asked_for(facts) if facts is not None else ()
    after = ("--", *program) if program else ()
    return shlex.join(["attn-doctor", *words, *python, *after])


def build(
    folder: Path | str, facts: Facts | None = None, *more: str, program: Sequence[str] = ()
) -> str:
    """What builds again all that the record of `folder` names, or what `program` compiles."""
    words = ("build-kernels", "--cache-dir", str(folder), *more)
    return command(*words, facts=facts, program=program)


def verify(folder: Path | str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """What proves the kernels of `folder`, or those that `program` compiles."""
    return command("cache", "verify", str(folder), facts=facts, program=program)


def why(folder: Path | str, facts: Facts | None = None, program: Sequence[str] = ()) -> str:
    """What names the components of keys that `program` looks for and `folder` does not have."""
    words = ("cache", "why", "--cache-dir", str(folder))
    return command(*words, facts=facts, program=program)
