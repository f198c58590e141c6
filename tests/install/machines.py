"""Machines that are not here, for tests of installations."""

from __future__ import annotations

from typing import Any

from attn_doctor.derived import derive
from attn_doctor.facts import Facts, Python, System, Torch
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library


def machine(*words: str, **system: Any) -> Facts:
    """A Linux machine without torch, with what `--pretend` takes."""
    values = {"os": "linux", "arch": "x86_64", "musl": False, "glibc": "2.39", **system}
    facts = Facts(
        system=System(**values),
        python=Python(version="3.12.3", free_threaded=False, path="/venv/bin/python"),
        torch=Torch(installed=False),
    )
    return derive(pretend(facts, words, library.tables()), library.tables())
