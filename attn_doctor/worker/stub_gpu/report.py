"""Writes the report of a guarded process, and reads a folder of such reports.

A process writes `guard-<pid>.json` as soon as its guard stands, and again whenever there is news.
The library itself leaves `used-<pid>` when a process uses the stub GPU; one that has no report
beside it ran without the guard. The standard library is enough on both sides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from attn_doctor.worker.files import DATA, read_text, write_atomic

#: The folder that reports go to.
FOLDER = "ATTN_DOCTOR_STUB_GPU_REPORT"
_GUARD, _USED = "guard-", "used-"
_WHAT = {"read": "the GPU's memory was read", "timing": "a time was measured on the GPU"}


class Refused(NamedTuple):
    """Something that must not be built."""

    kind: str
    """"read", "timing", "launched", "settings", "folding", "autotune", "padding", "version"."""
    sentence: str
    file: str
    line: int
    text: str


class Read(NamedTuple):
    """A line that read memory which no kernel has written, or measured a time."""

    kind: str
    function: str
    what: str
    file: str
    line: int
    place: str
    """The line as users see it, with the library that read for it."""


class Verdict(NamedTuple):
    """The result of all reports of a program."""

    refused: tuple[str, ...]
    """Sentences; if there is one, the program's kernels must not be kept."""
    notes: tuple[str, ...]
    """Sentences on what does no harm, such as a loss that is printed."""
    processes: int
    """Processes that were guarded."""
    launches: int


def write(folder: str, content: Mapping[str, Any]) -> None:
    """Write the report of this process. Raises `OSError`."""
    path = os.path.join(folder, f"{_GUARD}{os.getpid()}.json")
    text = json.dumps({"schema": 1, "pid": os.getpid(), **content})
    write_atomic(path, text.encode(), durable=False)


def read(folder: str) -> Verdict:
    """Read the reports in `folder`. A folder that cannot be read counts as a refusal."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        return Verdict((f"no report of the program: {error}",), (), 0, 0)
    refused: list[str] = []
    notes: dict[str, int] = {}
    guarded, launches = set(), 0
    for name in names:
        if not (name.startswith(_GUARD) and name.endswith(".json")):
            continue
        guarded.add(name[len(_GUARD) : -len(".json")])
        try:
            found = json.loads(read_text(os.path.join(folder, name), DATA))
            refused += [one["sentence"] for one in found["refused"]]
            lines = [(one["file"], one["line"]) for one in found["refused"]]
            for one in found["reads"]:
                what = _WHAT[one["kind"]]
                if (one["file"], one["line"]) not in lines:
                    notes[f"{one['place']}: {what}, with nothing compiled after it"] = 1
            for function in found["unknown"]:
                notes[f"{function} was answered without a GPU"] = 1
            for note, times in found["notes"].items():
                notes[note] = notes.get(note, 0) + times
            launches += found["launches"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            refused.append(f"{name}: {type(error).__name__}: {error}")
    used = {name[len(_USED) :] for name in names if name.startswith(_USED)}
    refused += [
        f"process {pid} used the stub GPU and nothing watched it: it ran Python without its "
        "startup files (-S, -I or -E), another interpreter, or no Python at all"
        for pid in sorted(used - guarded, key=int)
    ]
    if not guarded and not refused:
        refused.append("no process of the program was watched: it ran no Python of its own")
    return Verdict(
        tuple(dict.fromkeys(refused)),
        tuple(note if times == 1 else f"{note} ({times} times)" for note, times in notes.items()),
        len(guarded),
        launches,
    )
