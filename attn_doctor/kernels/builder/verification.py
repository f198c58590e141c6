"""Proving what was built at another time, or on a machine without its GPU, in fresh processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attn_doctor.kernels.builder import items
from attn_doctor.kernels.builder.items import PlannedBuild
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.scheduler import Course
from attn_doctor.kernels.builder.watcher import Watcher
from attn_doctor.pool.pool import Pool
from attn_doctor.record import store
from attn_doctor.record.manifest import Entry


def pool_of(request: BuildRequest, devices: Iterable[str]) -> Pool:
    """The processes in which jobs for these devices run."""
    cuda = any(device != "cpu" for device in devices)
    return Pool(request.python, request.environ, request.logs, cuda=cuda)


def claim(entry: Entry) -> dict[str, Any]:
    """What is recorded of an entry, in the words of the process that built it."""
    build = entry.build
    told: dict[str, Any] = {"mask_source": entry.mask_source}
    if build is not None:
        told |= {"keys": build.keys, "seconds": build.seconds, "files": build.files}
        told["limits"] = build.limits
    return told


def prove(
    request: BuildRequest, keys: Iterable[str], watcher: Watcher | None = None
) -> dict[str, Entry]:
    """Prove entries of the manifest in fresh processes, without building or writing anything.

    Returns manifest key → the entry as it is found now: state `built`, or what is wrong.
    Raises `PoolError` if the interpreter cannot import torch.
    """
    manifest = store.load(request.folder) or store.empty()
    found: dict[str, Entry] = {}
    wanted: list[tuple[PlannedBuild, dict[str, Any]]] = []
    for name in keys:
        entry = manifest.entries[name]
        device = entry.device_slot.partition(" ")[0]
        item = PlannedBuild(spec=entry.spec, device=device, key=name, state="again")
        wanted.append((item, claim(entry)))
    if not wanted:
        return {}
    watcher = watcher or Watcher()
    request.logs.mkdir(parents=True, exist_ok=True)

    def finished(item: PlannedBuild, entry: Entry, _: bool) -> None:
        found[item.key] = entry

    jobs, _ = items.workers(request.facts, wanted[0][0].device, request.jobs)
    with pool_of(request, [item.device for item, _ in wanted]) as pool:
        course = Course(
            pool,
            min(jobs, len(wanted)),
            request.limit,
            sys_path=request.sys_path,
            tell=watcher.step,
            tick=watcher.tick,
        )
        course.prove(wanted, finished)
    return found
