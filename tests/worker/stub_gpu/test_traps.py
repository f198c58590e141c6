"""Every way in which a stub GPU could get a wrong kernel into the cache, tried with a real torch.

Each trap runs in a fork of one process. Without the guard they all pass silently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.worker.stub_gpu import report

from .conftest import PROGRAMS, Run

pytestmark = [pytest.mark.cuda_torch, pytest.mark.slow]

TRAPS = PROGRAMS / "traps.py"
#: Trap → the kind of its refusal. Where `traps.py` marks a line with its name, it is reported.
REFUSED = {
    "branch": "read",
    "tracing": "read",
    "broken_graph": "read",
    "swallowed": "read",
    "lying": "read",
    "timed": "timing",
    "profiled": "timing",
    "launched": "launched",
    "padded": "padding",
    "autotuned": "settings",
    "frozen": "settings",
    "descended": "settings",
    "shared": "settings",
    "moved": "settings",
    "folded_otherwise": "folding",
}
#: Trap → what it answers; None: looked at further down.
PASSES = {
    "folded": None,
    "printed": True,
    "printed_between": None,
    "branch_without_compiling": True,
    "known": 3,
    "chosen": None,
    "chosen_again": None,
    "unpadded": True,
    "unpadded_by_word": True,
    "aligned": True,
    "attention_of_cudnn": [
        [1, 2, 64, 64],
        [1, 2, 64, 64],
        "ScaledDotProductCudnnAttentionBackward0",
    ],
    "convolution": True,
    "recorded": [64],
    "trained": True,
}


def line(trap: str) -> int | None:
    """The line of `traps.py` that is marked with the name of a trap."""
    for number, text in enumerate(TRAPS.read_text("utf-8").splitlines(), 1):
        if text.endswith(f"# <- {trap}"):
            return number
    return None


def sprung(run: Run, folder: Path, *names: str) -> dict[str, dict[str, Any]]:
    """Run traps; the result of each, with its report."""
    ended, _ = run(str(TRAPS), str(folder), *names)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(ended.stdout)
    for name, one in found.items():
        one["verdict"] = report.read(str(folder / name))
        (path,) = (folder / name).glob("guard-*.json")
        one["report"] = json.loads(path.read_text("utf-8"))
        one["stderr"] = ended.stderr
    return found


def test_what_must_not_be_built_is_refused_with_its_line(run: Run, tmp_path: Path) -> None:
    found = sprung(run, tmp_path, *REFUSED)
    wrong = {}
    for name, kind in REFUSED.items():
        one = found[name]
        refused = one["report"]["refused"]
        expected = line("branch" if name == "swallowed" else name)
        if [each["kind"] for each in refused] != [kind]:
            wrong[name] = refused or f"not refused; {one['error']}"
        elif expected and (refused[0]["file"], refused[0]["line"]) != (str(TRAPS), expected):
            wrong[name] = refused[0]["sentence"]
        elif not one["verdict"].refused:
            wrong[name] = "the outside does not see it"
        elif name in ("swallowed", "lying") and one["kept"]:
            wrong[name] = f"kept {one['kept']}"
        elif name not in ("swallowed", "lying") and "Refused" not in one["error"]:
            # Where the library fails the call that reads, torch raises its own type.
            wrong[name] = f"raised {one['error']!r}"
    assert wrong == {}
    assert "1003×1003 by 1003×1003" in found["padded"]["verdict"].refused[0]


def test_what_is_right_passes(run: Run, tmp_path: Path) -> None:
    found = sprung(run, tmp_path, *PASSES)
    wrong = {
        name: (one["error"] or one["answer"], one["verdict"].refused)
        for name, one in found.items()
        if one["error"]
        or one["verdict"].refused
        or (PASSES[name] is not None and one["answer"] != PASSES[name])
        or any("best_config" in path for path in one["kept"])
    }
    assert wrong == {}, found["folded"]["stderr"][-3000:]

    # FlexAttention's own block mask, "every block", and a constant of the test's.
    values = {name: value for name, value, _ in found["folded"]["answer"] if value}
    assert {device for _, _, device in found["folded"]["answer"]} == {"cpu"}
    assert values["aten.scalar_tensor.default"] == 1
    assert values["aten.mul.Tensor"] == 6.0
    assert values["aten.add.Tensor"] == 7.0

    # A training loop may print its loss; the line is reported.
    for name in ("printed", "printed_between"):
        (note,) = [one for one in found[name]["verdict"].notes if "memory was read" in one]
        assert note.startswith(f"{TRAPS}:{line(name)} ")

    assert any("1005×1005" in note for note in found["unpadded_by_word"]["verdict"].notes)

    # The entry holds all configurations, so that the target can time them itself.
    first, again = found["chosen"]["answer"], found["chosen_again"]["answer"]
    assert (first["hit"], again["hit"]) == (0, 1)
    assert first["launchers"] == again["launchers"]
    assert max(launchers for launchers, _ in again["launchers"]) > 1
