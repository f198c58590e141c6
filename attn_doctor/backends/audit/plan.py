"""Plan an audit: for each backend a list of parts, each some calls that run in one process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.live.plan import NAMES, Attempt, Limits, Workload, job, score_bytes
from attn_doctor.worker.audit import probes, scripts
from attn_doctor.worker.audit.case import Case

#: Calls of one process. Starting one takes as long as a hundred calls; a compiled kernel takes long
#: itself, and torch keeps few of them. Lengths share a kernel, so a process makes all of a probe.
_PART, _COMPILED_PART, _COMPILED_LENGTHS = 128, 12, 43


class Part(Struct, frozen=True, kw_only=True):
    """Calls for one process."""

    probes: tuple[str, ...] = ()
    """The probe of each of `cases`."""
    cases: tuple[Case, ...] = ()
    scripts: tuple[str, ...] = ()
    """Called after `cases`."""
    alone: bool = False
    """It needs most of the memory of a GPU."""

    @property
    def size(self) -> int:
        """How many calls it has."""
        return len(self.cases) + len(self.scripts)

    @property
    def title(self) -> str:
        """The names of its probes."""
        scripts = ("several calls",) if self.scripts else ()
        return ", ".join(dict.fromkeys((*self.probes, *scripts)))


class Options(Struct, frozen=True, kw_only=True):
    """What to audit."""

    names: tuple[str, ...] = ()
    """Canonical names of backends; none: all that are installed."""
    phases: tuple[str, ...] = ("inference", "training")
    dtype: str = "bfloat16"
    seed: int = 0
    device: str = ""
    minutes: float = 10.0
    """After that no further part is begun."""
    progress_file: str = ""
    """Where progress is kept; empty: nowhere."""


def attempts(
    names: Iterable[str], found: Mapping[str, bool], table: Mapping[str, Any]
) -> list[Attempt]:
    """The backends that can be run, by the library itself; `found` says which modules are there."""
    planned = []
    for name in names:
        module = NAMES[name]
        if not found.get(module) or (module == "kernels" and not found.get("diffusers")):
            continue
        routes: tuple[str, ...] = ("diffusers",) if module == "kernels" else ("direct",)
        routes += ("compiled",) if name == "flex" else ()
        planned += [
            Attempt(name=name, route=route, score_bytes=score_bytes(name, route, Workload(), table))
            for route in routes
        ]
    return planned


def parts(attempt: Attempt, options: Options, device: str) -> list[Part]:
    """What one backend is called with, the cheap and telling calls first."""
    planned: list[Part] = []
    training = "training" in options.phases
    for probe in probes.PROBES:
        cases = probes.cases(
            probe, name=attempt.name, route=attempt.route, device=device, phases=options.phases,
            dtype=options.dtype, seed=options.seed,
        )  # fmt: skip
        first = probe is probes.PROBES[0]
        most = _PART
        if attempt.route == "compiled":
            most = _COMPILED_LENGTHS if probe.tiled else _COMPILED_PART
        for case in cases:
            if not planned or not _fits(planned[-1], most, alone=probe.alone):
                planned.append(Part(alone=probe.alone))
            part = planned[-1]
            planned[-1] = replace(
                part, probes=(*part.probes, probe.name), cases=(*part.cases, case)
            )
        if first:
            names = tuple(
                name
                for name, script in scripts.SCRIPTS.items()
                if scripts.applies(script, attempt.name, attempt.route, device, training=training)
            )
            if planned:
                planned[-1] = replace(planned[-1], scripts=names)
            elif names:
                planned.append(Part(scripts=names))
    return planned


def _fits(part: Part, most: int, *, alone: bool) -> bool:
    """Whether one more call may follow those of a part."""
    return part.size < most and not part.scripts and alone == part.alone


def digest(planned: Sequence[Part]) -> str:
    """Changes with the calls, so that progress with other calls is not taken for this one."""
    text = json.dumps([[one.probes, one.cases, one.scripts] for one in planned])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def task(
    attempt: Attempt,
    cases: Sequence[Case],
    names: Sequence[str],
    device: str,
    table: Mapping[str, Any],
    each: float = 0.0,
) -> dict[str, Any]:
    """What the worker is to do. `each`: seconds that one call may take; 0: as usual."""
    made = job(attempt, Workload(), Limits(), device, table)
    return {
        **{
            key: made[key]
            for key in ("name", "route", "device", "share", "rounding", "score_bytes")
        },
        "action": "audit",
        "cases": [case._asdict() for case in cases],
        "scripts": list(names),
        "each": each or (300.0 if attempt.route == "compiled" else 120.0),
    }
