"""What carries a log must not change what is found in it.

Containers, schedulers and chat programs put something before each line, wrap lines, or encode them
otherwise. Every fortieth of the posted failures is read through each of these carriers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule
from tests.explain.posted_logs import CASES

_CASES = [case for case in CASES[::80] if "missed" not in case]

Carrier = Callable[[str], str]


def _before(prefix: str) -> Carrier:
    return lambda log: "".join(f"{prefix}{line}\n" for line in log.rstrip("\n").split("\n"))


def _records(log: str) -> str:
    return "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n"
        for line in log.rstrip("\n").split("\n")
    )


CARRIERS: dict[str, Carrier] = {
    "docker's time": _before("2025-03-04T10:11:12.123456789Z "),
    "a container runtime's line": _before("2025-03-04T10:11:12.123456789+00:00 stderr F "),
    "a container's log file": _records,
    "docker compose": _before("trainer-1  | "),
    "docker compose with a name": _before("comfyui-nvidia-12.8  | "),
    "docker build": _before("#12 33.417 "),
    "docker build without numbers": _before("255.9 "),
    "kubectl with a prefix": _before("[pod/train-7d9f8b-x2k/trainer] "),
    "journald": _before("Mar 04 10:11:12 node7 python[8123]: "),
    "journald in ISO": _before("2025-03-04T10:11:12+0100 node7 python[8123]: "),
    "Python's logging": _before("2025-03-04 10:11:12,123 - train.main - ERROR - "),
    "logging in brackets": _before("2025-03-04 10:11:12,123 [ERROR] train.main: "),
    "loguru": _before("2025-03-04 10:11:12.123 | ERROR    | train:main:88 - "),
    "a server": _before("(EngineCore_DP0 pid=71) ERROR 03-04 10:11:12 [core.py:700] "),
    "a rank": _before("[rank3]: "),
    "a trainer": _before("[trainer0]:"),
    "a worker": _before("worker-1: "),
    "stern": _before("train-7d9f8b6c5d-x2k4p trainer "),
    "Python without a format": _before("INFO:server.docker_utils: "),
    "grep -n": lambda log: "".join(
        f"{number}:{line}\n" for number, line in enumerate(log.rstrip("\n").split("\n"), 1)
    ),
    "Airflow": _before("[2025-03-04, 10:11:12 UTC] {subprocess.py:93} INFO - "),
    "two launchers": _before("[default3]:[rank3]: "),
    "GitHub Actions": _before("2025-03-04T10:11:12.1234567Z ##[error]"),
    "a quoted mail": _before("> > "),
    "a cell of a table": lambda log: f"| error | {log.rstrip().replace(chr(10), '<br>')} |\n",
    "code in a cell": lambda log: f"| error | `{log.rstrip().replace(chr(10), '`<br />`')}` |\n",
    "colours": lambda log: "".join(f"\x1b[31m{line}\x1b[0m\n" for line in log.split("\n")),
    "colours without escape": lambda log: "".join(f"[31m{one}[0m\n" for one in log.split("\n")),
    "Windows' line ends": lambda log: log.replace("\n", "\r\n"),
    "hard blanks": lambda log: log.replace(" ", "\u00a0"),
    "a web page's source": lambda log: (
        log.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
    ),
}


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return library.load()


@pytest.mark.parametrize(
    "carrier",
    [pytest.param(one, marks=[pytest.mark.thorough] * (at % 3)) for at, one in enumerate(CARRIERS)],
)
def test_the_cause_is_found_through_a_carrier(
    carrier: str, rules: tuple[Rule, ...], tmp_path: Path
) -> None:
    log = tmp_path / "carried.log"
    wrong = []
    for case in _CASES:
        log.write_bytes(CARRIERS[carrier](case["log"]).encode())
        found = explain([str(log)], rules)
        causes = [match.cause for match in found.matches[:1]] or ["none"]
        if causes != [case["cause"]]:
            wrong.append((case["id"], case["cause"], causes))
    assert not wrong
