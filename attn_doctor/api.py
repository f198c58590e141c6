"""The public functions: what `check`, `backends` and `explain` find, as values for programs.

They examine what the command line examines, print nothing, and return frozen results. A result
shows itself in a notebook (`_repr_html_`), in a terminal with rich, and as text with `str()`. By
default they examine the interpreter that runs them; nothing of it is imported or run. What cannot
be read or is not known raises `AttnDoctorError`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from attn_doctor import diagnosis as diagnoses
from attn_doctor.backends.attention_call import MASKS, PHASES, AttentionCall
from attn_doctor.backends.catalogue import find_name, load
from attn_doctor.backends.matrix import framework_of, matrix
from attn_doctor.backends.readiness import Answer, Matrix, Readiness
from attn_doctor.diagnosis import CheckRequest
from attn_doctor.errors import AttnDoctorError
from attn_doctor.examination import facts_of
from attn_doctor.explain.explanation import Explanation, Guess, RankedCause
from attn_doctor.facts import Facts
from attn_doctor.findings import REQUIRED, Diagnosis, Finding, Severity
from attn_doctor.host.local import LocalHost
from attn_doctor.render.edge import safe
from attn_doctor.render.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

T = TypeVar("T")
Phase = Literal["training", "inference"]
Mask = Literal["none", "varlen", "bool", "float"]


class BackendNotReady(AttnDoctorError):  # noqa: N818 (says what is the case)
    """A backend that a program needs does not work here for its attention calls."""


class _Shown(Struct, frozen=True):
    """A result that is shown in a terminal, as wide as that is."""

    page: Callable[[Terminal], str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        page = self.page(Terminal(width=options.max_width, colour=True))
        yield Text.from_ansi(safe(page, styled=True).rstrip("\n"))


class _Result(Struct, frozen=True, kw_only=True):
    """How each result shows itself."""

    def page(self, terminal: Terminal) -> str:
        """The result as the command line shows it."""
        raise NotImplementedError

    def html(self) -> str:
        """The result as one HTML file. Names of users, hosts and projects are replaced."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from attn_doctor.render.html.page import fragment

        return fragment(safe(self.html()))

    def __str__(self) -> str:
        return safe(self.page(Terminal()))

    def __rich__(self) -> _Shown:
        return _Shown(self.page)


class CheckResult(_Result, frozen=True, kw_only=True):
    """What `check` found."""

    checked: diagnoses.CheckResult

    @property
    def facts(self) -> Facts:
        """What was read of the machine and the environment; `docs/facts.md` lists it."""
        return self.checked.diagnosis.facts

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The problems, worst first."""
        return self.checked.diagnosis.problems

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The rules that could not be evaluated."""
        return self.checked.diagnosis.unknown

    @property
    def ok(self) -> bool:
        """No error was found; the command line would exit with 0."""
        return all(one.severity is not Severity.ERROR for one in self.problems)

    def page(self, terminal: Terminal) -> str:
        """The result as the command line shows it."""
        from attn_doctor.render.findings.text import text

        return text(self.checked.diagnosis, terminal, backends=self.checked.backends)

    def html(self) -> str:
        """The result as one HTML file. Names of users, hosts and projects are replaced."""
        from attn_doctor.render.findings.html import html

        shown = _disclosed(self.checked)
        return html(shown.diagnosis, shown.backends)

    def __repr__(self) -> str:
        from attn_doctor.render.grouping import tally

        return f"<attn_doctor check: {tally(self.checked.diagnosis)}>"


class BackendsResult(_Result, frozen=True, kw_only=True):
    """The backends of a framework, each with its state for each attention call."""

    matrix: Matrix
    facts: Facts

    def answer(self, name: str, for_: Phase = "inference", mask: Mask = "none") -> Answer:
        """The state of one backend for one of the evaluated calls, with its reasons.

        Raises `AttnDoctorError` for a name that the framework does not have, and for a call that
        was not evaluated.
        """
        row = self.matrix.row(find_name(name, self.matrix.framework, load()).name)
        for call, answer in zip(self.matrix.calls, row.answers, strict=True):
            if (call.phase, call.mask) == (for_, mask):
                return answer
        raise AttnDoctorError(f"{for_} with mask {mask!r} was not evaluated; pass it to backends()")

    def ready(self, for_: Phase = "inference", mask: Mask = "none") -> tuple[str, ...]:
        """The names that are ready for a call, as the framework spells them."""
        names = [row.name for row in self.matrix.rows]
        return tuple(one for one in names if self.answer(one, for_, mask).state is Readiness.READY)

    def page(self, terminal: Terminal) -> str:
        """The result as the command line shows it."""
        from attn_doctor.render.backends.text import text

        return text(self.matrix, self.facts, terminal)

    def html(self) -> str:
        """The result as one HTML file. Names of users, hosts and projects are replaced."""
        from attn_doctor.render.backends.html import html

        shown = _disclosed(self)
        return html(shown.matrix, shown.facts)

    def __repr__(self) -> str:
        names = [one.name for one in self.matrix.recommended if one.name]
        best = f"use {names[0]}" if names else "none is ready"
        return f"<attn_doctor backends of {self.matrix.title}: {best}>"


class ExplainResult(_Result, frozen=True, kw_only=True):
    """The causes of the failures in a log."""

    explanation: Explanation

    @property
    def cause(self) -> RankedCause | None:
        """The most likely cause; None if no rule knows it."""
        return next(iter(self.explanation.matches), None)

    @property
    def causes(self) -> tuple[RankedCause, ...]:
        """All causes, the most likely first."""
        return self.explanation.matches

    @property
    def guess(self) -> Guess | None:
        """The component that failed, if no rule knows the cause."""
        return self.explanation.guess

    def page(self, terminal: Terminal) -> str:
        """The result as the command line shows it."""
        from attn_doctor.render.explanation.text import text

        return text(self.explanation, terminal)

    def html(self) -> str:
        """The result as one HTML file. Names of users, hosts and projects are replaced."""
        from attn_doctor.render.explanation.html import html

        return html(_disclosed(self.explanation))

    def __repr__(self) -> str:
        found = self.cause or self.guess
        return f"<attn_doctor explain: {found.title if found else 'no cause found'}>"


def check(
    *,
    python: str | os.PathLike[str] = "",
    facts: str | os.PathLike[str] = "",
    pretend: Sequence[str] = (),
    framework: str = "",
    rules: Sequence[str | os.PathLike[str]] = (),
) -> CheckResult:
    """Examine this machine and a Python environment, as `attn-doctor check` does.

    `python`: an interpreter or environment; by default the one that runs this. `facts`: the file of
    a snapshot instead. `pretend`: parts of another machine, such as `gpu=rtx4090`. `framework`:
    whose names of backends are used. `rules`: folders of your own rules. A policy and the
    configuration of a trainer are not read.
    """
    return CheckResult(
        checked=diagnoses.diagnose(
            CheckRequest(
                facts=partial(_facts, python, facts, pretend),
                rules=tuple(Path(one) for one in rules),
                calls=_calls("", ("none",)),
                framework=framework,
                configs=(),
            )
        )
    )


def backends(
    *names: str,
    for_: Phase | Literal[""] = "",
    masks: Sequence[Mask] = ("none", "bool"),
    python: str | os.PathLike[str] = "",
    facts: str | os.PathLike[str] = "",
    pretend: Sequence[str] = (),
    framework: str = "",
) -> BackendsResult:
    """Evaluate the backends of a framework, as `attn-doctor backends` does.

    `names`: only these backends; by default all. `for_`: only training or inference; by default
    both. `masks`: the kinds of masks. The others are as for `check`.
    """
    calls = _calls(for_, masks)
    found = _diagnosis(python, facts, pretend)
    chosen = framework_of(found.facts, framework)
    only = tuple(dict.fromkeys(find_name(name, chosen, load()).backend for name in names))
    table = matrix(found.facts, found.findings, calls, chosen, only)
    return BackendsResult(matrix=table, facts=found.facts)


def explain(
    text: str,
    *,
    machine: bool = True,
    python: str | os.PathLike[str] = "",
    facts: str | os.PathLike[str] = "",
) -> ExplainResult:
    """Find the cause of a failure in its log, as `attn-doctor explain` does.

    `text`: the log or the error message itself. `machine`: check the cause on this machine too,
    which is examined only if a cause is found. The others are as for `check`.
    """
    from attn_doctor.explain import engine
    from attn_doctor.install.offered import offered_for_log
    from attn_doctor.rulebook import library

    examined = partial(_facts, python, facts, ()) if machine else None
    found = engine.explain((), library.load(()), examined, texts=(text,))
    return ExplainResult(explanation=offered_for_log(found))


def assert_backend(
    name: str,
    *,
    for_: Phase = "inference",
    mask: Mask = "none",
    python: str | os.PathLike[str] = "",
    facts: str | os.PathLike[str] = "",
    pretend: Sequence[str] = (),
    framework: str = "",
) -> None:
    """Raise `BackendNotReady` unless a backend is ready, as `attn-doctor check --require` exits.

    The message has the reason and the commands of the first fix. The arguments are as for
    `backends`. Raises `AttnDoctorError` for a name that the framework does not have.
    """
    calls = _calls(for_, (mask,))
    request = CheckRequest(
        facts=partial(_facts, python, facts, pretend),
        calls=calls,
        framework=framework,
        require=(name,),
        required_calls=calls,
        configs=(),
    )
    found = diagnoses.diagnose(request).diagnosis
    unready = [one for one in found.problems if one.rule.startswith(REQUIRED)]
    if unready:
        from attn_doctor.render.findings.plain import details, headline

        lines = (headline(unready[0]), *details(unready[0], found, 1).splitlines())
        raise BackendNotReady(*map(safe, lines))


def _disclosed(result: T) -> T:
    """A result without names of this machine and its users."""
    from attn_doctor.anonymize import anonymous, disclosed

    return disclosed(result, anonymous(LocalHost()))


def _facts(
    python: str | os.PathLike[str], snapshot: str | os.PathLike[str], pretend: Sequence[str]
) -> Facts:
    """The facts of a snapshot, else of this machine and an interpreter, by default our own."""
    if snapshot and python:
        raise AttnDoctorError("facts= names a snapshot: python= has no meaning with it")
    return facts_of(LocalHost, os.fspath(snapshot), os.fspath(python) or sys.executable, pretend)


def _diagnosis(
    python: str | os.PathLike[str], snapshot: str | os.PathLike[str], pretend: Sequence[str]
) -> Diagnosis:
    return diagnoses.diagnosis_of(_facts(python, snapshot, pretend))


def _calls(phase: str, masks: Sequence[str]) -> tuple[AttentionCall, ...]:
    """A call of each kind, of the usual size. Raises `AttnDoctorError` for an unknown kind."""
    for word, name, known in (
        *((phase, "for_", PHASES) for _ in range(bool(phase))),
        *((mask, "mask", MASKS) for mask in masks),
    ):
        if word not in known:
            raise AttnDoctorError(f"{name}={word!r} is not known; choose from {', '.join(known)}")
    return tuple(
        AttentionCall(phase=one, mask=mask, assumed=("head_dim", "seq_len"))
        for one in ((phase,) if phase else PHASES)
        for mask in masks
    )
