"""Machines that are not here, for tests of installations."""

from __future__ import annotations

from typing import Any

import msgspec

from attn_doctor.derived import derive
from attn_doctor.facts import Facts, Package, Python, System, Torch
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library


def machine(*words: str, **system: Any) -> Facts:
    """A Linux machine without torch and other packages, with what `--pretend` takes."""
    values = {"os": "linux", "arch": "x86_64", "musl": False, "glibc": "2.39", **system}
    packages: dict[str, Any] = {
        one.name: type(one.default)(installed=False)
        for one in msgspec.structs.fields(Facts)
        if isinstance(one.default, Package)
    }
    facts = Facts(
        **packages,
        system=System(**values),
        python=Python(version="3.12.3", free_threaded=False, path="/venv/bin/python"),
        torch=Torch(installed=False),
    )
    return derive(pretend(facts, words, library.tables()), library.tables())
