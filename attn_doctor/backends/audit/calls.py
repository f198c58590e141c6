"""Runs calls in a process of their own, and says how each of them ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from attn_doctor.backends.audit.outcome import Kind
from attn_doctor.backends.audit.plan import task
from attn_doctor.backends.live import verdicts
from attn_doctor.backends.live.interpreter import Interpreter
from attn_doctor.backends.live.outcome import Failure
from attn_doctor.backends.live.plan import Attempt, Limits
from attn_doctor.pool.task import Ending, Outcome
from attn_doctor.worker.audit.case import Case

#: The worker writes its stack and ends where one call takes too long.
_TOO_LONG = "Timeout ("
#: Errors of a GPU that say what a call does not allow: memory that does not begin at a multiple of
#: 16 bytes, and work that a CUDA graph cannot hold. The process is lost, but no result is wrong.
_NOT_ALLOWED = ("misaligned address", "during capture", "stream is capturing")


class Answer(Struct, frozen=True, kw_only=True):
    """How one call ended."""

    number: int
    """In the list of calls."""
    kind: Kind | None = None
    """None: no fault."""
    sentence: str = ""
    result: str = ""
    """`out`, `dq`, `dk`, `dv`, or empty."""
    figure: str = ""
    allowed: float = 0.0
    place: tuple[int, ...] = ()
    refusal: str = ""
    """Why it was not run; empty if it was."""
    forward_only: str = ""
    """Why there was no backward in a training call; empty otherwise."""
    held: bool = True
    """float64 gives the exact result with certainty."""

    @property
    def sign(self) -> tuple[str, str]:
        """What two faults have in common that may be one."""
        return (self.kind.value if self.kind else "", self.result)


class Runner(Struct, frozen=True, kw_only=True):
    """Runs the calls of one backend."""

    attempt: Attempt
    interpreter: Interpreter
    device: str
    memory_mib: int
    table: Mapping[str, Any]
    seconds: float = 900.0
    """For one process."""
    each: float = 0.0
    """For one call; 0: as usual."""
    share: float = Limits().share
    """Of the free memory of the GPU."""

    def run(
        self,
        cases: Sequence[Case],
        scripts: Sequence[str] = (),
        *,
        groups: Sequence[int] = (),
        sign: tuple[str, str] | None = None,
    ) -> tuple[list[Answer], Outcome]:
        """Run calls in one process, up to one that ends it.

        `groups`: a number for each call; those of a group of which one was wrong are left out. With
        `sign`, only one that is wrong in this way counts.
        """
        job = task(self.attempt, cases, scripts, self.device, self.table, self.each)
        job |= {"share": self.share, "groups": [*groups], "sign": sign}
        ended = self.interpreter.run(job, self.seconds, self.memory_mib)
        return list(_answers(ended)), ended

    def last(self, cases: Sequence[Case]) -> Answer | None:
        """How the last of these calls ends in a fresh process; None if it was not reached."""
        found, _ = self.run(cases)
        return next((one for one in found if one.number == len(cases) - 1), None)


def _answers(ended: Outcome) -> list[Answer]:
    found = [_answer(event) for event in ended.of("compared")]
    begun = [event["number"] for event in ended.of("case")]
    if ended.ending is not Ending.DONE and begun and begun[-1] not in {one.number for one in found}:
        found.append(_death(begun[-1], ended))
    return found


def _answer(event: Mapping[str, Any]) -> Answer:
    number = int(event["number"])
    if "failed" in event:
        message = str(event.get("message", ""))
        first = next((line for line in message.splitlines() if line.strip()), "")
        words = f"{event['failed']}: {first[:160]}"
        if event.get("lost") and not any(sign in words for sign in _NOT_ALLOWED):
            return Answer(number=number, kind=Kind.CRASHED, sentence=words)
        return Answer(number=number, refusal=words)
    forward = str(event.get("forward_only", ""))[:200]
    if not event["wrong"]:
        return Answer(number=number, forward_only=forward)
    kind = Kind.NOT_FINITE if event["figure"] == "finite" else Kind.WRONG
    return Answer(
        number=number,
        kind=kind,
        sentence=str(event["wrong"]),
        result=str(event["result"]),
        figure=str(event["figure"]),
        allowed=float(event.get("allowed") or 0.0),
        place=tuple(event.get("place") or ()),
        forward_only=forward,
        held=bool(event.get("held", True)),
    )


def _death(number: int, ended: Outcome) -> Answer:
    failure = failure_of(ended)
    kind = Kind.CRASHED
    words = failure.message if failure is not None else "its process ended without a message"
    if ended.timed_out or _TOO_LONG in ended.output():
        kind, words = Kind.HUNG, "the call did not end within its time"
    elif ended.ending is Ending.OUT_OF_MEMORY:
        return Answer(number=number, refusal=f"MemoryError: {words}")
    return Answer(number=number, kind=kind, sentence=words)


def failure_of(ended: Outcome) -> Failure | None:
    """How a job failed as a whole; None if it did not."""
    return verdicts.failure_of(ended, lambda _: None)
