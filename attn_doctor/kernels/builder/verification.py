"""Verifies kernels that were built before, or on a machine without their GPU, in new processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.plan import BuildRequest, PlannedBuild, workers
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.kernels.builder.scheduler import Scheduler
from attn_doctor.pool.pool import Pool
from attn_doctor.record import store
from attn_doctor.record.manifest import Entry
from attn_doctor.record.spec import KernelSpec


def pool_of(
    request: BuildRequest, devices: Iterable[str], specs: Iterable[KernelSpec] = ()
) -> Pool:
    """The processes in which jobs for these devices run; they import the blocks of `specs`."""
    cuda = any(device != "cpu" for device in devices)
    classes = [presets.recipe(spec.block).get("class", "") for spec in specs if spec.block]
    modules = [name.replace(":", ".") for name in dict.fromkeys(filter(None, classes))]
    return Pool(request.python, request.environ, request.logs, cuda=cuda, modules=modules)


def recorded_result(entry: Entry) -> dict[str, Any]:
    """What is recorded of an entry, in the form in which the building process answered."""
    build = entry.build
    result: dict[str, Any] = {"mask_source": entry.mask_source}
    if build is not None:
        result |= {"keys": build.keys, "seconds": build.seconds, "files": build.files}
        result["limits"] = build.limits
    return result


def verify_entries(
    request: BuildRequest, keys: Iterable[str], watcher: Watcher | None = None
) -> dict[str, Entry]:
    """Verify entries of the manifest in new processes, without building or writing anything.

    Returns manifest key → the entry as it is now: state `built`, or what is wrong. Raises
    `PoolError` if the interpreter cannot import torch.
    """
    manifest = store.load(request.folder) or store.empty()
    recorded: list[tuple[PlannedBuild, dict[str, Any]]] = []
    for name in keys:
        entry = manifest.entries[name]
        device = entry.device_slot.partition(" ")[0]
        kernel = PlannedBuild(spec=entry.spec, device=device, key=name, state="again")
        recorded.append((kernel, recorded_result(entry)))
    if not recorded:
        return {}
    watcher = watcher or Watcher()
    request.logs.mkdir(parents=True, exist_ok=True)
    verified: dict[str, Entry] = {}
    jobs, _ = workers(request.facts, recorded[0][0].device, request.jobs)
    devices = [kernel.device for kernel, _ in recorded]
    with pool_of(request, devices, [kernel.spec for kernel, _ in recorded]) as pool:
        scheduler = Scheduler(
            pool, min(jobs, len(recorded)), request.limit, sys_path=request.sys_path
        )
        scheduler.add_verifications(recorded)
        for happened in scheduler.run():
            for step in happened:
                if isinstance(step, Step):
                    watcher.step(step)
                    if step.entry is not None:
                        verified[step.kernel.key] = step.entry
            watcher.tick()
    return verified
