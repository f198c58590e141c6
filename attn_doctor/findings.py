"""Findings: what the rules conclude from facts. Plain values without behaviour."""

from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, Struct

from attn_doctor.facts import Facts

#: Rules whose problems precede all others, in this order. The installer fails while metadata are
#: damaged; where another torch is imported, all that is said of packages beside torch is about that
#: one. A torch that cannot be imported computes nothing, not even wrong results.
FIRST = (
    "python/metadata-damaged",
    "python/torch-in-pythonpath",
    "torch/broken-install",
    "torch/import-fails",
    "torch/libraries-missing",
    "torch/windows-runtime",
)


def precedence(rule: str) -> int:
    """Return the place of a rule in `FIRST`; all others follow."""
    return FIRST.index(rule) if rule in FIRST else len(FIRST)


class Verdict(str, Enum):
    """The result of one rule for one subject."""

    PROBLEM = "problem"
    OK = "ok"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


class Severity(str, Enum):
    """How bad a problem is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error."""
        return ("info", "warning", "error").index(self.value)


class Because(Struct, frozen=True, kw_only=True):
    """One condition with the value seen and the value wanted, as text for a reader."""

    fact: str
    seen: str
    """`unknown` if the fact could not be read."""
    wanted: str
    """Empty for a line that only limits where the rule applies."""
    truth: bool | None
    """True, false, or None: unknown."""
    gap: str = ""
    """Why the fact is unknown."""

    def in_words(self) -> str:
        """`torch.cuda is 12.4, wanted 13.0`, `triton is not installed`."""
        package, _, what = self.fact.rpartition(".")
        if what == "installed" and self.seen in ("yes", "no"):
            return f"{package.replace('_', '-')} is {'not ' * (self.seen == 'no')}installed"
        # "is library-mismatch, wanted not library-mismatch" would say nothing twice.
        differs = self.wanted not in ("", f"not {self.seen}")
        return f"{self.fact} is {self.seen or 'empty'}" + f", wanted {self.wanted}" * differs


class Safety(str, Enum):
    """Who may apply a fix."""

    AUTO = "auto"
    """Harmless, and undone without a trace."""
    ASK = "ask"
    """After a question."""
    MANUAL = "manual"
    """A person only."""


class Fix(Struct, frozen=True, kw_only=True):
    """A remedy with its commands filled in for this machine."""

    title: str
    safety: Safety
    rule: str = ""
    """The rule that gives it; empty for a fix that code gives."""
    remedy: int = 0
    """Its number among all remedies of the rule, counted from 1; 0 without a rule."""
    run: tuple[tuple[str, ...], ...] = ()
    """argv lists; leading `NAME=value` elements set the environment of that command."""
    exports: dict[str, str] = {}
    """Environment variables to set for later commands; an empty value means unset."""
    manual: str = ""
    """Instructions for a person, where no command exists."""
    code: str = ""
    """Lines to copy unchanged, such as Python for a training script."""
    needs: str = ""
    """Requirements: minutes, memory, tools."""
    clears: tuple[str, ...] = ()
    """Kinds of caches that become stale."""
    done: tuple[Any, ...] = ()
    """Conditions that hold once it worked (`rulebook.conditions.Condition`, above this module)."""


class SourceLocation(Struct, frozen=True):
    """A line of a file of the user, which a finding is about."""

    file: str
    """Relative to the working directory if it is below it."""
    line: int = 1
    """Counted from 1."""


class Advisory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a known fault does that gives no error, as the table `[advisory]` of a rule has it."""

    effect: Annotated[str, Meta(min_length=1)]
    """What is wrong, in a few words, such as `NaN in the gradient of the queries`."""
    calls: tuple[str, ...] = ()
    """Conditions on the call (`call.…`), all of which hold where it is wrong; none: every call."""
    sometimes: bool = False
    """Of these calls only some are wrong, by what no condition can say (`where` does)."""
    where: str = ""
    """These calls in words, with what no condition can say, such as the size of the scores."""
    fixed: str = ""
    """The release without the fault; empty while there is none."""
    reproducer: str = ""
    """A program of at most 15 lines that shows the fault; empty if it needs more."""
    shows: str = ""
    """A pattern that the program's output holds where the fault is; empty if it does not say."""
    probe: str = ""
    """The probe of `audit` of more than one call that shows the fault, by its name."""
    seen: tuple[str, ...] = ()
    """What it gave where we ran it: day, GPU, versions, result."""
    reported: tuple[str, ...] = ()
    """What others saw, with the thread."""


class Finding(Struct, frozen=True, kw_only=True):
    """One rule's verdict on one subject."""

    rule: str
    verdict: Verdict
    severity: Severity
    cause: str
    title: str
    subject: str = ""
    """The element that was examined, such as `GPU 1 (NVIDIA H200)`; empty for the whole machine."""
    why: str = ""
    because: tuple[Because, ...] = ()
    context: tuple[Because, ...] = ()
    """The lines that limit where the rule applies."""
    fixes: tuple[Fix, ...] = ()
    backends: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    caused_by: str = ""
    """The rule whose problem explains this one; empty for a root cause."""
    suppressed: str = ""
    """Why a problem does not count: the policy accepts it, or a baseline holds it."""
    advisory: Advisory | None = None
    """The fault that gives wrong results without an error, if the rule is about one."""
    location: SourceLocation | None = None
    """The line of a file that is at fault; None for a problem of the machine."""


#: The rule id of a finding about a backend that must be ready: this, and the backend's name.
REQUIRED = "required/"


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Facts and all findings about them, problems first, root causes before consequences."""

    facts: Facts
    findings: tuple[Finding, ...]
    rules: int
    """Number of rules that were evaluated."""
    seconds: float = 0.0

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that are problems and count, worst first."""
        return tuple(
            one for one in self.findings if one.verdict is Verdict.PROBLEM and not one.suppressed
        )

    @property
    def unready(self) -> bool:
        """A backend that must be ready is not, and no policy accepts that."""
        return any(one.rule.startswith(REQUIRED) for one in self.problems)

    @property
    def suppressed(self) -> tuple[Finding, ...]:
        """Problems that do not count, each with its reason."""
        return tuple(one for one in self.findings if one.suppressed)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """Findings whose facts are unknown."""
        return tuple(one for one in self.findings if one.verdict is Verdict.UNKNOWN)
