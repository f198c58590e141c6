"""What running the backends showed: values only, nothing here prints or decides."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from attn_doctor.findings import Fix


class Verdict(str, Enum):
    """What running a backend showed."""

    VERIFIED = "verified"
    """It ran, and its numbers are right."""
    SLOW = "slow"
    """Verified, but unfused, or several times slower than the fastest."""
    WRONG = "wrong"
    """It ran without an error message, and its numbers are wrong or missing."""
    FAILED = "failed"
    """It reported that it cannot do this."""
    CRASHED = "crashed"
    """Its process died."""
    HUNG = "hung"
    """It did not end within the time limit."""
    OUT_OF_MEMORY = "out of memory"
    """It needed more memory than is free or allowed."""
    ABSENT = "absent"
    """What it needs is not installed."""
    NOT_RUN = "not run"
    """It was not tried, for the reason in the sentence."""

    @property
    def works(self) -> bool:
        """The right numbers came out."""
        return self in (Verdict.VERIFIED, Verdict.SLOW)

    @property
    def conclusive(self) -> bool:
        """It is about the backend itself, not about the circumstances of this run."""
        return self not in (Verdict.NOT_RUN, Verdict.OUT_OF_MEMORY, Verdict.HUNG)


class Cause(Struct, frozen=True, kw_only=True):
    """The cause of a failure, according to the rulebook."""

    rule: str
    title: str
    why: str
    verdict: str
    """As in `explain`: `confirmed by this machine` and the like."""
    fixes: tuple[Fix, ...] = ()


class Failure(Struct, frozen=True, kw_only=True):
    """Why a backend did not work."""

    stage: str
    """What it was doing: `import`, `device`, `forward`, `backward`, `reference`, `timing`."""
    message: str
    """The error message, or how the process ended."""
    type: str = ""
    """The exception's type; empty if there was none."""
    text: str = ""
    """The last lines that it printed."""
    cause: Cause | None = None
    """None if no rule knows the text."""


class Shape(Struct, frozen=True, kw_only=True):
    """Sizes of one problem."""

    name: str
    """`small`, `realistic`, or `uneven`: with more keys than queries."""
    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    kv_length: int = 0
    """Keys; 0: as many as queries."""
    fused: bool = False
    """Queries, keys and values are slices of larger tensors."""
    model: str = ""
    """A model in which such a size occurs."""

    @property
    def title(self) -> str:
        """Such as `1×24×4608×128`; key heads and lengths behind the query's where they differ."""
        heads = f"{self.heads}" + (f"/{self.kv_heads}" if self.kv_heads != self.heads else "")
        length = f"{self.length}" + (f"←{self.kv_length}" if self.kv_length else "")
        return f"{self.batch}×{heads}×{length}×{self.head_dim}"


class Compared(Struct, frozen=True, kw_only=True):
    """How much of the results of a backend was compared with float64."""

    calls: int
    """Each with other inputs."""
    heads: int
    rows: int
    """Rows of the output, in all calls."""
    share: float
    """Of all rows of these calls. Gradients of keys and values are compared in all rows."""


class Figures(Struct, frozen=True, kw_only=True):
    """The measurements of one shape."""

    shape: Shape
    errors: dict[str, float | None]
    """Relative error against float64 of `out`, and of `dq`, `dk`, `dv` where there is a backward
    pass, in the call that came closest to what is allowed; None: not a finite number."""
    allowed: dict[str, float | None]
    """The largest error that its roundings explain."""
    worst: dict[str, float | None]
    """The error of the worst single row."""
    compared: Compared
    milliseconds: float | None = None
    """Median time: forward, in training forward and backward. None: not measured."""
    tflops: float | None = None
    peak_mib: float | None = None
    """Memory taken beside the inputs; None: not counted on this device."""
    ratio: float | None = None
    """Time over that of the fastest backend that works."""
    wrong: str = ""
    """Why the result is wrong, with figures; empty if it is right."""
    warnings: tuple[str, ...] = ()


class PhaseResult(Struct, frozen=True, kw_only=True):
    """What one backend did in one phase."""

    verdict: Verdict
    sentence: str
    """The reason, in one sentence."""
    figures: tuple[Figures, ...] = ()
    failure: Failure | None = None


class LiveResult(Struct, frozen=True, kw_only=True):
    """The result of one backend on one route."""

    name: str
    """As diffusers calls it."""
    route: str
    """`diffusers`: through its dispatcher, as users' names mean it; `direct`: the library itself;
    `compiled`: FlexAttention under `torch.compile`."""
    decisive: str
    """The phase that decides: `inference` or `training`."""
    outcomes: dict[str, PhaseResult]
    """By phase."""
    version: str = ""
    """Of the package that was called."""
    beside: bool = False
    """This is the library itself, and diffusers was called as well."""
    seconds: float = 0.0

    @property
    def outcome(self) -> PhaseResult:
        """The result in the decisive phase."""
        return self.outcomes[self.decisive]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the decisive phase."""
        return self.outcome.verdict

    @property
    def title(self) -> str:
        """Name and, if users do not reach it that way, the route."""
        if self.route == "compiled":
            return f"{self.name} (compiled)"
        return f"{self.name} (library)" if self.beside else self.name


class Imported(Struct, frozen=True, kw_only=True):
    """The import of one package in a process of its own."""

    module: str
    verdict: Verdict
    sentence: str
    version: str = ""
    seconds: float = 0.0
    failure: Failure | None = None


class Device(Struct, frozen=True, kw_only=True):
    """The device that was measured."""

    device: str
    """As torch calls it: `cuda:0` or `cpu`."""
    name: str = ""
    free_mib: int | None = None
    total_mib: int | None = None
    note: str = ""
    """Why it is not the GPU, or what may disturb the figures."""
    failure: Failure | None = None
    """Why the GPU cannot be used."""


class LiveReport(Struct, frozen=True, kw_only=True):
    """The results of a whole run."""

    python: str
    torch: str
    device: Device
    dtype: str
    imports: tuple[Imported, ...]
    results: tuple[LiveResult, ...]
    failure: Failure | None = None
    """Why nothing could be run at all, for example because torch does not import."""
    left_behind: tuple[int, ...] = ()
    """Processes that could not be killed."""
    seconds: float = 0.0

    def of(self, name: str) -> LiveResult | None:
        """The result that a user's name means: through diffusers where that was run."""
        own = [
            result for result in self.results if result.name == name and result.route != "compiled"
        ]
        through = [result for result in own if result.route == "diffusers"]
        return next(iter(through + own), None)
