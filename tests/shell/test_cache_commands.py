"""Commands in messages: complete, and quoted as a shell wants them."""

from __future__ import annotations

from pathlib import Path

from attn_doctor.facts import Facts, Python
from attn_doctor.shell.cache_commands import (
    asked_for,
    build,
    command,
    verify,
)

NAMED = Facts(python=Python(path="/my env/bin/python", chosen="--python"))
ACTIVE = Facts(python=Python(path="/venv/bin/python", chosen="VIRTUAL_ENV is set"))


def test_an_environment_is_named_only_if_it_was() -> None:
    assert asked_for(NAMED) == ("--python", "/my env/bin/python")
    assert asked_for(ACTIVE) == ()
    assert command("cache", "why", facts=NAMED) == (
        "attn-doctor cache why --python '/my env/bin/python'"
    )


def test_folders_and_programs_are_quoted() -> None:
    assert verify(Path("/opt/my kernels")) == "attn-doctor cache verify '/opt/my kernels'"
    assert verify("/k", ACTIVE, ["python", "a b.py"]) == (
        "attn-doctor cache verify /k -- python 'a b.py'"
    )
    assert build("/k", NAMED, "--target", "h200", program=["x"]) == (
        "attn-doctor build-kernels --cache-dir /k --target h200 --python '/my env/bin/python' -- x"
    )
