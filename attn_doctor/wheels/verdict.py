"""Says whether the libraries of a wheel load with a torch."""

from __future__ import annotations

import posixpath
import re
from typing import Literal

from msgspec import Struct

from attn_doctor.binaries.demangle import readable
from attn_doctor.binaries.symbols import gnu_hash
from attn_doctor.wheels.reading import Library, WheelReading
from attn_doctor.wheels.torch_symbols import TorchSymbols

#: Libraries of CUDA whose number is that of CUDA itself.
_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d+)")
Loads = Literal["yes", "no", "unknown"]


class WheelVerdict(Struct, frozen=True, kw_only=True):
    """Whether a wheel loads with one torch."""

    loads: Loads
    symbols: int = 0
    """Number of symbols of torch that it needs."""
    missing: tuple[str, ...] = ()
    """Those that this torch lacks, mangled."""
    reason: str = ""
    """Why it does not load, or why this is unknown; empty if it loads."""
    faulty: tuple[str, ...] = ()
    """Its libraries that do not load."""

    @property
    def text(self) -> str:
        """The verdict in a few words."""
        if self.loads == "yes" and not self.symbols:
            return "loads: none of its libraries needs a symbol of torch"
        if self.loads == "yes":
            return f"loads: this torch has all {self.symbols} symbols that it needs"
        return f"does not load: {self.reason}" if self.loads == "no" else f"unknown: {self.reason}"


def compare(wheel: WheelReading, torch: TorchSymbols) -> WheelVerdict:
    """Compare a wheel with a torch.

    Libraries that do not belong to torch, CUDA or the wheel are not looked for.
    """
    packed = {posixpath.basename(one.path) for one in wheel.libraries}
    own = frozenset[int]().union(*(one.exported for one in wheel.libraries))
    lacking, doubtful = set[str](), set[str]()
    faulty: dict[str, str] = {}
    for one in wheel.libraries:
        answers = {name: torch.defines(name) for name in one.torch_symbols or ()}
        not_own = [name for name in answers if gnu_hash(name.encode()) | 1 not in own]
        missing = [name for name in not_own if answers[name] is False]
        doubtful |= {name for name in not_own if answers[name] is None}
        lacking |= {*missing}
        if reason := _library_fault(one, torch, packed) or _lacks(missing, torch):
            faulty[one.path] = reason
    symbols = len({name for one in wheel.libraries for name in one.torch_symbols or ()})
    unread = [f"{one.path} was not read: {one.unread}" for one in wheel.libraries if one.unread]
    if doubtful:
        unread.append(f"the tables do not list {len(doubtful)} of the symbols that it needs")
    loads: Loads = "no" if faulty else "unknown" if unread else "yes"
    return WheelVerdict(
        loads=loads,
        symbols=symbols,
        missing=tuple(sorted(lacking)),
        reason=next(iter((*faulty.values(), *unread)), ""),
        faulty=tuple(faulty),
    )


def _lacks(missing: list[str], torch: TorchSymbols) -> str:
    if not missing:
        return ""
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    plain = readable(missing[0])
    meaning = f" ({plain})" if plain != missing[0] else ""
    return f"torch {torch.torch} lacks `{missing[0]}`{others}{meaning}"


def _library_fault(one: Library, torch: TorchSymbols, packed: set[str]) -> str:
    if "libtorch_cuda.so" in one.needed and not torch.has_cuda:
        return f"it needs a torch that was built for CUDA; torch {torch.torch} was not"
    for name in one.needed:
        match = _CUDA.fullmatch(name)
        other = match and torch.cuda and match[1] != torch.cuda.partition(".")[0]
        if other and name not in packed:
            return f"it needs {name}, and torch {torch.torch} was built for CUDA {torch.cuda}"
    return ""
