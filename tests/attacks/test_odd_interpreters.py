"""What an examined interpreter says of itself may be anything: it is used, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.errors import ExaminationError
from attn_doctor.examination import examine
from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost
from attn_doctor.probes.interpreter import Description, choose
from tests.attacks.means import ROOT, Attack

_MACHINE = ROOT / "tests" / "machines" / "h200-torch-2.11-cu130" / "host.json"
_ANSWERS: dict[str, Any] = json.loads(_MACHINE.read_bytes())
_QUESTION = next(name for name in _ANSWERS if name.startswith("inside "))
_PATH = _QUESTION.partition(" ")[2]
_USED = Description.__struct_fields__
_DESCRIPTION: dict[str, Any] = _ANSWERS[_QUESTION]["answer"]
_VALUES: tuple[Any, ...] = (None, 7, [[]], {"a": 1}, "a\0b", "\x1b[31m\n", "", "\ud800", True)


def _odd() -> Iterator[tuple[str, object]]:
    for name in _DESCRIPTION:
        yield f"without {name}", {k: v for k, v in _DESCRIPTION.items() if k != name}
        for value in _VALUES:
            yield f"{name} {value!r}", {**_DESCRIPTION, name: value}
    yield "nothing", {}
    yield "an error of another type", {"error": [1], "kind": "too-old"}
    yield "output of another type", {"outcome": "done", "out": [1], "err": 5}
    yield "an outcome of another type", {"outcome": 5}


def _refused(question: Callable[[Host], object], answer: object) -> str:
    """Why the answer is refused; empty if it is used."""
    host = RecordedHost({**_ANSWERS, _QUESTION: {"answer": answer}})
    try:
        question(host)
    except ExaminationError as error:
        return str(error)
    return ""


def test_an_odd_description_is_refused_in_one_sentence() -> None:
    for name, answer in _odd():
        said = _refused(lambda host: choose(host, _PATH), answer)
        assert "\n" not in said, name
        assert not said or _PATH in said, name
        wrong = name.endswith((" [[]]", " {'a': 1}")) and name.split()[0] in _USED
        assert said or not wrong, name


@pytest.mark.attack
def test_an_odd_description_gives_facts_or_a_sentence() -> None:
    for _, answer in _odd():
        _refused(lambda host: examine(host, _PATH), answer)


#: What a script in the place of Python does.
_SCRIPTS = {
    "endless output": "yes",
    "much output": "yes '{\"site_packages\": 1}' | head -c 300000000",
    "endless errors": "yes >&2",
    "hangs": "sleep 1000",
    "hangs with a child": "sleep 1000 & sleep 1000",
    "a child that stays": "(setsid sleep 5 &) ; echo x",
    "ends": "exit 7",
    "is killed": "kill -9 $$",
    "stops": "kill -STOP $$",
    "NUL": "printf '\\0\\0\\0'",
    "noise": "head -c 10000 /dev/urandom",
    "closes its output": "exec >&- 2>&-; sleep 1",
    "escapes": "printf '\\033]0;evil\\007::error::x\\n'",
    "nesting": "head -c 200000 /dev/zero | tr '\\0' '['",
    "digits": "printf '{\"site_packages\": 1'; head -c 9999 /dev/zero | tr '\\0' 0; echo '}'",
    "ignores signals": "trap '' TERM INT HUP; while :; do sleep 1; done",
}


@pytest.mark.attack
@pytest.mark.parametrize(
    "command",
    [
        *("check", "backends", "report -o -", "fix plan", "describe-gpu"),
        *("install flash -n", "fix cuda-home", "audit", "build-kernels --preset flux1@512x512"),
    ],
)
@pytest.mark.parametrize("name", _SCRIPTS)
def test_a_script_in_the_place_of_python(
    doctor: Attack, tmp_path: Path, name: str, command: str
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{_SCRIPTS[name]}\n")
    python.chmod(0o755)
    ran = doctor(*command.split(), "--python", str(python), cwd=tmp_path, seconds=60).answered(2)
    assert "\x1b]" not in ran.stdout + ran.stderr
    assert not [line for line in ran.stderr.splitlines() if line.startswith("::")]
