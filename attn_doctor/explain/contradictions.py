"""Statements of one log that cannot hold in one environment: two of them are in use, or mixed.

`log_machine` has facts with two values. Here are pairs of lines that no single fact holds, such as
a package that pip has and the build does not find.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from attn_doctor.explain.normalize import NormalizedLog


class _Pair(NamedTuple):
    """Two patterns whose matches contradict each other, and a sentence with their lines.

    Groups of one name must be equal in both matches if `same`, and differ if `other`.
    """

    one: str
    two: str
    sentence: str
    same: str = ""
    other: str = ""


#: The named groups of a match with their texts.
_Groups = tuple[tuple[str, str], ...]
_PACKAGE = r"(?P<package>torch|triton|flash[-_]attn|sageattention|xformers)"
#: pip prints the folder in which it found a package, tracebacks the folders of their frames.
_SATISFIED = rf"(?m)^Requirement already satisfied: {_PACKAGE}\b"
_PAIRS = (
    _Pair(
        rf"(?m)(?:^Requirement already satisfied: {_PACKAGE}\b(?!-)"
        rf"|^Successfully installed (?:\S+ ){{0,80}}?(?P<name>torch|triton|xformers)-\d)",
        r"ModuleNotFoundError: No module named '(?P<package>torch|triton|xformers|sageattention)'",
        "pip has {package} (line {one}), and a process does not find it (line {two}): it is"
        " isolated, or another Python.",
        same="package",
    ),
    _Pair(
        r"Cuda compilation tools, release (?P<nvcc>[\d.]+)",
        r"nvidia-smi: (?:command )?not found|NVIDIA-SMI has failed"
        r"|couldn.t communicate with the NVIDIA",
        "nvcc of CUDA {nvcc} is there (line {one}), and nvidia-smi does not find the driver"
        " (line {two}): kernels can be compiled there, but not run.",
    ),
    _Pair(
        r"NVIDIA-SMI \d[\d.]+ +Driver Version: [\d.]+ +CUDA Version: (?P<cuda>[\d.]+)",
        r"nvcc: (?:command )?not found|nvcc was not found|CUDA_HOME environment variable is not set"
        r"|[Cc]annot find CUDA_HOME",
        "nvidia-smi names CUDA {cuda} (line {one}), and nvcc is not found (line {two}): that CUDA"
        " is what the driver can run, not an installed toolkit.",
    ),
    _Pair(
        rf"{_SATISFIED}[^\n]{{0,80}}? in \S{{1,200}}python(?P<python>3\.\d+)[/\\]\S{{0,40}}pack",
        r'File "(?!/usr/lib/)[^"\n]{1,200}python(?P<python>3\.\d+)[/\\](?:site|dist)-packages[/\\]',
        "pip has {package} in the folder of Python {python} (line {one}), and the program runs with"
        " another Python (line {two}).",
        other="python",
    ),
)


def contradictions(logs: Sequence[NormalizedLog]) -> tuple[str, ...]:
    """A sentence for each pair of statements that contradict each other, with their lines."""
    return tuple(filter(None, (_sentence(pair, logs) for pair in _PAIRS)))


def _sentence(pair: _Pair, logs: Sequence[NormalizedLog]) -> str:
    firsts = _matches(pair.one, logs)
    for second, line in _matches(pair.two, logs).items() if firsts else ():
        for first, number in firsts.items():
            if _contradict(pair, dict(first), dict(second)):
                return pair.sentence.format(one=number, two=line, **dict(first))
    return ""


def _contradict(pair: _Pair, first: dict[str, str], second: dict[str, str]) -> bool:
    if pair.same and first[pair.same] != second[pair.same]:
        return False
    return not pair.other or first[pair.other] != second[pair.other]


def _matches(pattern: str, logs: Sequence[NormalizedLog]) -> dict[_Groups, int]:
    """The named groups of the matches, each once, and the number of the first line with them."""
    found: dict[_Groups, int] = {}
    for log in logs:
        for match in _compiled(pattern).finditer(log.text):
            groups = {name: value for name, value in match.groupdict().items() if value}
            if "name" in groups:
                groups["package"] = groups.pop("name")
            number = log.lines[log.index_at(match.start())].number
            found.setdefault(tuple(sorted(groups.items())), number)
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
