"""Compares kernels that were built ahead of time with this machine.

Changes that facts do not show (torch's own digests of its sources and settings) are not compared:
`cache verify --require-hit` finds them by running the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from attn_doctor.derived.releases import Tables
from attn_doctor.env_vars import VARIABLES
from attn_doctor.facts import BuiltKernels, Facts
from attn_doctor.facts.kinds import DriverChange

if TYPE_CHECKING:
    from attn_doctor.record.manifest import BuildEnvironment


def manifests(facts: Facts, _: Tables) -> tuple[BuiltKernels, ...] | None:
    """Return the manifests with facts derived from this machine."""
    if not facts.manifests:
        return facts.manifests
    here = [_device_present(one, facts) for one in facts.manifests]
    # If several kinds of GPU share one folder, GPUs of other machines do not count as drift.
    settled = any(
        known and one.device_slot != "cpu" for one, known in zip(facts.manifests, here, strict=True)
    )
    found = [
        _derived(one, known, facts, settled=settled)
        for one, known in zip(facts.manifests, here, strict=True)
    ]
    return tuple(
        msgspec.structs.replace(one, awaiting_gpu=_awaiting_gpu(found, number, facts))
        for number, one in enumerate(found)
    )


def _awaiting_gpu(records: Sequence[BuiltKernels], number: int, facts: Facts) -> int | None:
    """Count unverified kernels for a GPU that this machine does not have, at its first entry."""
    one = records[number]
    if one.error or one.device_present is None or facts.gpus is None:
        return None
    if one.device_present or one.device in [
        gpu.name for gpu in facts.gpus if gpu.visible is not False
    ]:
        return 0  # the other machine has more GPUs of this name
    alike = [other for other in records if (other.folder, other.device) == (one.folder, one.device)]
    if alike[0] is not one:
        return 0
    counts = [other.unverified for other in alike if not other.device_present and not other.error]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _device_present(record: BuiltKernels, facts: Facts) -> bool | None:
    """Whether this machine has the device of the build."""
    if record.device_slot is None:
        return None
    if record.device_slot == "cpu":
        return True
    if facts.gpus is None:
        return None
    names = [gpu.name for gpu in facts.gpus if gpu.visible is not False]
    device, _, name = record.device_slot.partition(" ")
    if int(device.partition(":")[2] or 0) >= len(names):
        return False
    return True if name in names else None if None in names else False


def _derived(
    record: BuiltKernels, here: bool | None, facts: Facts, *, settled: bool
) -> BuiltKernels:
    if record.error or here is None:
        return msgspec.structs.replace(record, device_present=here)
    # Kernels for another machine's GPU that never ran on it do not count as drift here.
    foreign = not here and bool(record.unverified) and not record.built
    if not here and (settled or foreign or not facts.gpus):
        return msgspec.structs.replace(
            record, device_present=False, drift="", harmless_drift="", stale=0, driver_change=""
        )
    from attn_doctor.record.drift import changed_components, stale_reason

    was, now = _was(record), _now(record, facts, here=here)
    found = changed_components(was, now)
    drift = stale_reason(found)
    return msgspec.structs.replace(
        record,
        device_present=here,
        drift=drift,
        harmless_drift="; ".join(one.sentence for one in found if one.effect != "rebuild"),
        stale=(record.built or 0) + (record.warmups or 0) if drift else 0,
        driver_change=_driver_change(record.driver, now.driver),
    )


def _was(record: BuiltKernels) -> BuildEnvironment:
    from attn_doctor.record.manifest import BuildEnvironment

    same = {
        name: getattr(record, name)
        for name in ("torch", "torch_cuda", "triton", "ptxas", "python", "device", "sm")
    }
    pairs = (one.partition("=") for one in record.environment or ())
    return BuildEnvironment(
        **same,
        driver=record.driver,
        cc=record.cc,
        cxx=record.cxx,
        # Variables that are not among the facts cannot be compared.
        environment={name: value for name, _, value in pairs if name in VARIABLES},
    )


def _now(record: BuiltKernels, facts: Facts, *, here: bool) -> BuildEnvironment:
    from attn_doctor.record.environment import environment_from_facts

    device = (record.device_slot or "").partition(" ")[0]
    now = environment_from_facts(facts, device, facts.env, _was(record))
    if here:
        return now
    # None of the GPUs is that of the build, so the first one represents all.
    first = next((gpu for gpu in facts.gpus or () if gpu.visible is not False), None)
    if first is None:
        return now
    return msgspec.structs.replace(now, device=first.name, sm=first.sm)


def _driver_change(was: str | None, now: str | None) -> DriverChange | None:
    """Return `newer`, `older` or empty text: the current driver compared with the build's."""
    if was is None or now is None:
        return None
    try:
        before, today = ([int(part) for part in one.split(".")] for one in (was, now))
    except ValueError:
        return "" if was == now else None
    return "newer" if today > before else "older" if today < before else ""
