"""A symptom where it was seen: on which line, in what standing, and how much it says."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from attn_doctor.explain.match import Hit
from attn_doctor.explain.tracebacks import Course, Kind, Place
from attn_doctor.rulebook.patterns import plain_length

#: Messages with many reasons: whatever else was found is likelier to be the root.
_GENERAL = re.compile(
    r"No available kernel|No operator found for|PassManager::run failed|backend='inductor' raised"
    r"|Cannot find a working triton installation|No module named|no kernel image is available"
    r"|is not available|Building wheel for"
)
#: Failures that no attention kernel is to blame for; what was said before them is not the reason.
UNRELATED = re.compile(
    r"out of memory|OutOfMemory|DataLoader worker|NCCL (?:error|timeout)|Watchdog caught collective"
    r"|KeyboardInterrupt|SyntaxError|IndentationError|No space left on device|size mismatch for"
    r"|Error\(s\) in loading state_dict|HeaderTooLarge|ConnectionError|Connection (?:refused|reset)"
    r"|HTTPError|RepositoryNotFoundError|GatedRepoError|ReadTimeout|FileNotFoundError|KeyError"
    r"|JSONDecodeError"
)
#: Notes that say of themselves that the run goes on.
HARMLESS = re.compile(
    r"some optimizations will not be enabled|Torch was not compiled with (?:flash|memory efficient)"
    r"|Could not load sageattention: |sageattention package is not installed"
    r"|[Ff]alling back to (?:the )?(?:manual|eager) attention"
    r"|does not support `output_attentions=True`"
)
#: Lines that count failures and find none, and tests that did as they should.
PASSED = re.compile(
    r"(?i:\b(?:no|0|zero|without any) (?:\w+ )?"
    r"(?:NaNs?|OOMs?|failed|failures?|crash(?:es)?|black|noise)\b"
    r"|\b\d+ passed\b|\bchecks? passed\b)|\b(?:PASSED|SKIPPED|XFAIL|XPASS)\b"
)
#: Lines that speak of a failure and tell of none: what was mended, what is optional, what an
#: option does, what a picture shall show.
BENIGN = re.compile(
    r"(?i)\bfix(?:ed|es) (?:an?|the|some|in)\b|\b(?:changelog|release notes?|readme)\b"
    r"|\(optional\)|\bis optional\b|\bis recommended\b|\bbest performance\b|\bonly (?:if|for)\b"
    r"|\bthis is fine\b|(?::| is|version \S{1,20}) ok\b"
    r"|\b(?:prompt|caption)s?[\"']? ?[:=]|^\s*(?:usage: |help: |--?[a-z][\w-]{1,40} {2,}\w)"
)
#: Lines with which a run ends though they are no exceptions.
_FATAL = re.compile(
    r"Watchdog caught collective|CUDA out of memory|!!! Exception during processing !!!"
    r"|No space left on device"
)
#: What is said so many lines before a failure may be its reason: kernels say why they refuse.
_NEAR, _FAR = 12, 1_000_000
#: Lines of a traceback between a `raise` and its message.
_MESSAGE = 60
#: Characters of a line that are shown.
_EXCERPT = 160
#: A symptom with so much plain text says all that a symptom can say.
_FULL = 45


class Sighting(Struct, frozen=True, kw_only=True):
    """A symptom of a rule on one line of a log."""

    rule: str
    symptom: int
    file: str
    line: int
    rank: str
    excerpt: str
    place: Place
    final: bool
    """It belongs to the last failure of its process."""
    before: int
    """So many lines before the last failure that it does not belong to; 0 if none follows."""
    general: bool
    """Its line tells that something failed, and not why."""
    says: float
    """How much the symptom says, from 0 to 1: the plain text that it demands."""
    groups: dict[str, str] = {}

    @property
    def worth(self) -> float:
        """What seeing it adds to a rule's weight: the root of the last failure most."""
        return 0.25 * self.says + self._standing() - 0.2 * self.general

    def _standing(self) -> float:
        kind, near = self.place.kind, self.before <= _NEAR
        if kind is Kind.NOISE:
            return -0.12
        if kind in (Kind.EXCEPTION, Kind.MESSAGE):
            root = 0.2 if self.place.link == 0 else 0.02 if self.place.direct else 0.08
            return root if self.final else root - 0.1
        last, close, far = {
            Kind.ERROR: (0.14, 0.1, 0.02),
            Kind.WARNING: (0.05, 0.0, -0.1),
            Kind.SAID: (0.08, 0.03, -0.05),
        }[kind]
        return last if not self.before else close if near else far


class Ending(Struct, frozen=True):
    """How a log ends: the message of its last failure, if it ends in one."""

    file: str
    text: str = ""
    first: int = 0
    last: int = 0


def ending(file: str, course: Course) -> Ending:
    """The exception in which a page ends, or a line after it that tells of another end."""
    found = course.ending()
    fatal = next(
        (
            line
            for line, place in zip(reversed(course.lines), reversed(course.places), strict=True)
            if place.kind not in (Kind.NOISE, Kind.WARNING) and _FATAL.search(line.text)
        ),
        None,
    )
    if fatal is not None and fatal.number > max((line.number for line in found), default=0):
        return Ending(file, fatal.text, fatal.number, fatal.number)
    if not found:
        return Ending(file)
    numbers = [line.number for line in found]
    return Ending(file, "\n".join(line.text for line in found), min(numbers), max(numbers))


def sighting(hit: Hit, pattern: str, course: Course, *, file: str, last: bool) -> Sighting:
    """Where a hit stands. `last`: its page is the end of the log."""
    index = _deciding(hit, course)
    line = course.lines[index]
    return Sighting(
        rule=hit.rule,
        symptom=hit.symptom,
        file=file,
        line=line.number,
        rank=line.rank,
        excerpt=_excerpt(line.text, hit.text),
        place=course.places[index],
        final=last and course.final(index),
        before=course.before(index) if last else _FAR,
        general=_GENERAL.search(line.text) is not None,
        says=min(1.0, min(_plain(pattern), len(hit.text)) / _FULL),
        groups=hit.groups,
    )


@lru_cache(maxsize=1024)
def _plain(pattern: str) -> int:
    return plain_length(pattern)


def _deciding(hit: Hit, course: Course) -> int:
    """Index of the line that counts: the nearest to the reason, of those the hit covers.

    A traceback shows the `raise` with the words of the message; the message itself is meant.
    """
    places, lines = course.places, course.lines
    index = max(hit.lines, key=lambda one: (places[one].kind, one))
    if places[index].kind is not Kind.NOISE:
        return index
    words = re.split(r"[\"'(]", hit.text.rsplit("\n", 1)[-1])[-1].strip()
    for later in range(index + 1, min(index + _MESSAGE, len(lines))):
        if places[later].kind >= Kind.MESSAGE and words and words in lines[later].text:
            return later if places[later].failure == places[index].failure else index
    return index


def _excerpt(text: str, matched: str) -> str:
    """The line, trimmed around what matched."""
    text = text.strip()
    if len(text) <= _EXCERPT:
        return text
    part = next((one for one in matched.split("\n") if one.strip() and one.strip() in text), "")
    start = max(0, text.find(part.strip()) - 40) if part else 0
    end = min(len(text), start + _EXCERPT)
    start = max(0, end - _EXCERPT)
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")
