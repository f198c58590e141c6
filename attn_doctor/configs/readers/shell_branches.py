"""The branches of a shell script: which of them are open on a line, and under which condition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations

from msgspec import Struct

#: What opens and closes branches, where a command begins.
_OPENS = re.compile(
    r"(?:^|[;&|]\s*|\b(?:then|do|else)\s+)(if|case|for|while|until|select)\s+([^;]{0,2000})"
)
_CLOSES = re.compile(r"(?:^|;\s*)(?:fi|esac|done)\b")
#: What closes one branch before another opens on the same line.
_FIRST = re.compile(r"(?:fi|esac|done)\s*;")
_ELSE = re.compile(r"^(?:elif\s+([^;]{1,2000})|else\b)")
#: `sglang)` of a `case`
_LABEL = re.compile(r"^\(?([^()$;]{1,200})\)")
_HERE = re.compile(r"(?<!<)<<-?\s*[\"']?(\w{1,100})")
#: What runs the text between `<<EOF` and `EOF` as commands, or keeps it as a script.
_RUNS = re.compile(r"(?:^|[\s/])(?:ba|z)?sh\b|\bssh\b|\.(?:sh|slurm|sbatch|bat)\b")
#: Characters of a condition that is shown as written.
_SHOWN = 80
#: Branches inside each other that are distinguished. Those of scripts are ten deep at most.
_DEEPEST = 40

#: The branches around a line: the line that opened each, and which of its parts it is.
Arms = tuple[tuple[int, int], ...]


class _Open(Struct):
    line: int
    kind: str
    about: str
    """What `case` looks at."""
    part: int = 0
    """0 for what follows `if`, 1 for the first `elif` or `else`, and so on."""
    condition: str = ""
    tests: int = 0
    """Conditions before an `else`."""


class Branches:
    """Follows a script from line to line."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self.whole: dict[int, int] = {}
        """Branches of which one part always runs: the line that opens each, and the parts."""
        self._ends = ""
        """The line with which a text between `<<EOF` and `EOF` ends."""
        self._runs = False
        self._number = 0
        self.in_text = False
        """The line belongs to a text that no shell runs."""

    @property
    def inside(self) -> bool:
        """The line may not run."""
        return bool(self._open)

    def enter(self, line: str, number: int) -> int:
        """Take a line before its words; how many branches end behind it.

        Nothing opens or closes in the text of a file that the script writes.
        """
        self.in_text = bool(self._ends) and not self._runs
        if self._ends:
            self._ends = "" if line.strip() == self._ends else self._ends
            return 0
        here = _HERE.search(line)
        # A text of several lines that `$(` takes may hold its own end.
        whole = here is not None and any(one.strip() == here[1] for one in line.split("\n"))
        self._ends = here[1] if here is not None and not whole else ""
        self._runs = bool(_RUNS.search(line))
        self._number = number
        first = _FIRST.match(line)
        if first is not None:
            self.leave(1)
            line = line[first.end() :].lstrip()
        self._part(line, number)
        for kind, rest in _OPENS.findall(line):
            one = _Open(number, kind, rest.strip())
            if kind == "if":
                one.condition, one.tests = _holds(rest, number), 1
            self._open.append(one)
        return len(_CLOSES.findall(line))

    def leave(self, closed: int) -> None:
        """`closed` branches end."""
        del self._open[max(0, len(self._open) - closed) :]

    def arms(self) -> Arms:
        """The branches around this line."""
        return tuple((one.line, one.part) for one in self._open[:_DEEPEST])

    def condition(self) -> str:
        """The condition under which this line is reached, in words; empty if it always is."""
        found = [one.condition for one in self._open[:_DEEPEST] if one.condition]
        return " and ".join(found) if len(found) < 3 else f"line {self._number} is reached"

    def _part(self, line: str, number: int) -> None:
        """`elif`, `else` and the labels of a `case` begin another part."""
        top = self._open[-1] if self._open else None
        if top is None:
            return
        if top.kind == "case":
            label = _LABEL.match(line)
            if label is not None:
                top.part += 1
                if label[1].strip() == "*":  # the last one, for everything else
                    self.whole[top.line] = top.part
                subject = top.about.removesuffix(" in").strip("\"' ")
                top.condition = f"`{subject}` is {label[1].strip()}"
            return
        otherwise = _ELSE.match(line)
        if otherwise is None:
            return
        top.part += 1
        if not otherwise[1]:
            self.whole[top.line] = top.part + 1
        if otherwise[1]:
            top.condition = _holds(otherwise[1], number)
            top.tests += 1
        elif top.tests == 1 and top.condition.endswith(" holds"):
            top.condition = f"{top.condition.removesuffix(' holds')} is false"
        else:
            top.condition = f"the `else` in line {number} is reached"


def exclude(one: Arms, other: Arms) -> bool:
    """Two lines are in different parts of the same branch, so that only one of them runs."""
    parts = dict(one)
    return any(line in parts and parts[line] != part for line, part in other)


def possible(runs: Mapping[int, bool], arms: Mapping[int, Arms], whole: Mapping[int, int]) -> bool:
    """Lines may run together as `runs` says. `arms`: their branches; `whole`: as of `Branches`."""
    taken = [arms[line] for line, does in runs.items() if does]
    if any(exclude(one, other) for one, other in combinations(taken, 2)):
        return False
    for opened, parts in whole.items():
        first = {one[0] for one in arms.values() if one and one[0][0] == opened}
        if len(first) == parts and not any(one and one[0][0] == opened for one in taken):
            return False
    return True


def _holds(condition: str, number: int) -> str:
    text = " ".join(condition.replace("`", "").split()).removesuffix(" then")
    if not text or text == "true" or len(text) > _SHOWN:
        return f"the condition in line {number} holds"
    label = re.fullmatch(r"goto (\w{1,100})", text)
    return f"`goto {label[1]}` leads there" if label else f"`{text}` holds"
