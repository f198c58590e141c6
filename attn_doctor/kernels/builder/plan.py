"""What one call of build-kernels is asked for, and what it would do. Nothing is run or changed.

A plan made before torch is imported goes by the facts alone; a build makes it again with what torch
itself tells of its surroundings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder import items as plan
from attn_doctor.kernels.builder.items import PlannedBuild
from attn_doctor.kernels.builder.refusals import refusal
from attn_doctor.kernels.builder.target import Target
from attn_doctor.kernels.caches.deletion import ClearedFile, existing
from attn_doctor.record.environment import environment_from_facts, slot_name, slot_of
from attn_doctor.record.lock import FOLDER
from attn_doctor.record.manifest import BuildEnvironment, Manifest
from attn_doctor.record.spec import KernelSpec

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.stale import Stale


class BuildRequest(Struct, frozen=True, kw_only=True):
    """What is wanted."""

    specs: tuple[KernelSpec, ...]
    devices: tuple[str, ...]
    facts: Facts
    folder: Path
    """The cache folder."""
    environ: dict[str, str]
    """Environment of the building processes."""
    sys_path: tuple[str, ...] = ()
    """Where the user's own masks are looked for."""
    only: frozenset[str] | None = None
    """Keys of manifest entries to which it is limited; None: every spec for every device."""
    jobs: int | None = None
    limit: float = 600.0
    """Seconds that building one spec may take, and proving it again."""
    force: bool = False
    target: Target | None = None
    """The GPU of another machine to build for, in place of one that is here; `facts` and `environ`
    are then those of its stub GPU."""

    @property
    def python(self) -> str:
        """The examined interpreter."""
        return self.facts.python.path or ""

    @property
    def logs(self) -> Path:
        """Where the children print to."""
        return self.folder / FOLDER / "logs"

    def environment_of(self, device: str, was: BuildEnvironment | None = None) -> BuildEnvironment:
        """Today's surroundings as far as the facts tell, those of the target if there is one."""
        target = self.target
        if target is not None:
            return target.told(environment_from_facts(self.facts, device, target.environment, was))
        return environment_from_facts(self.facts, device, self.environ, was)


class Plan(Struct, frozen=True, kw_only=True):
    """What a build would do."""

    items: tuple[PlannedBuild, ...]
    cleared: tuple[ClearedFile, ...]
    """Files that would be removed first."""
    jobs: int
    limit: str
    moved: tuple[str, ...] = ()
    """What has changed since the stale entries were built, as sentences."""
    unknown: tuple[str, ...] = ()
    """Devices whose GPU only torch can name: their entries are looked up while building."""
    targets: tuple[Target, ...] = ()
    """GPUs of other machines that it would build for, in place of one that is here."""

    @property
    def todo(self) -> tuple[PlannedBuild, ...]:
        """What has to be built, in the order of building."""
        return tuple(plan.longest_first(item for item in self.items if item.todo))

    @property
    def seconds(self) -> float:
        """How long building will take, roughly, torch's import and the proofs included."""
        todo = [item for item in self.todo if not item.refused]
        if not todo:
            return 0.0
        work = sum(item.seconds * 1.3 for item in todo)
        return 3.0 + max(work / self.jobs, *(item.seconds * 1.3 for item in todo))


def plan_build(
    request: BuildRequest,
    manifest: Manifest,
    surroundings: Mapping[str, BuildEnvironment] | None = None,
    names: Mapping[str, str] | None = None,
) -> Plan:
    """What building `request` would do. Changes and runs nothing.

    `surroundings` by device, and `names` of their GPUs, are what torch itself told, where it was
    asked; without them the facts have to do.
    """
    from attn_doctor.kernels.caches import stale as drift

    items: list[PlannedBuild] = []
    cleared: dict[str, ClearedFile] = {}
    moved: list[str] = []
    unknown: list[str] = []
    for device in request.devices:
        name = (names or {}).get(device)
        place = slot_name(device, name) if name else slot_of(request.facts, device)
        if place is None:
            unknown.append(device)
            place = slot_name(device, "")
        was = manifest.environments.get(place)
        now = (surroundings or {}).get(device)
        now = now or request.environment_of(device, was)
        stale = drift.stale(manifest, place, now, str(request.folder), jiterator=jiterator(request))
        if request.target is not None:
            leave_alone(manifest, place, stale, request.folder)
        moved += [one.sentence for one in stale.moved if one.sentence not in moved]
        cleared |= {file.path: file for file in stale.files}
        found = plan.items(
            request.specs,
            device,
            place,
            manifest,
            request.folder,
            stale=stale.specs,
            sys_path=request.sys_path,
            force=request.force,
            stub_gpu=request.target is not None,
        )
        items += [
            _judged(item, request.facts.torch.version or "", now.sm)
            for item in found
            if request.only is None or item.key in request.only
        ]
    for path, old in superseded(request.folder, manifest, items):
        cleared.setdefault(path, old)
    jobs, limit = plan.workers(request.facts, request.devices[0], request.jobs)
    todo = sum(item.todo and not item.refused for item in items)
    if request.jobs is None and todo and todo < jobs:
        jobs, limit = todo, "specs"
    return Plan(
        items=tuple(items),
        cleared=tuple(cleared.values()),
        jobs=jobs,
        limit=limit,
        moved=tuple(moved) if cleared or any(item.state == "stale" for item in items) else (),
        unknown=tuple(unknown),
        targets=(request.target,) if request.target is not None else (),
    )


def _judged(item: PlannedBuild, torch: str, sm: int | None) -> PlannedBuild:
    """The item with what torch will say to it, if that is known to be no."""
    if not item.todo or item.state == "unverified":
        return item
    return replace(item, refused=refusal(item.spec, torch, item.device, sm))


#: States whose files go for another reason, or only once a proof has failed.
_OWN_WAY = ("stale", "unverified")


def leave_alone(manifest: Manifest, place: str, found: Stale, folder: Path) -> None:
    """Raise `AttnDoctorError` if what was verified on the GPU itself would be cleared from afar."""
    verified = [key for key in found.specs if manifest.entries[key].state == "built"]
    ran = [key for key in found.warmups if not manifest.warmups[key].unverified]
    why = [found.specs[key] for key in verified] + [found.warmups[key] for key in ran]
    if why:
        raise AttnDoctorError(
            f"{folder} holds kernels that were made on a real {place}: {why[0]}. They are"
            " not cleared from here: name another --cache-dir"
        )


def joined(plans: Sequence[Plan]) -> Plan:
    """Plans of several targets as one."""
    first = plans[0]
    return Plan(
        items=tuple(item for one in plans for item in one.items),
        cleared=tuple({each.path: each for one in plans for each in one.cleared}.values()),
        jobs=max(one.jobs for one in plans),
        limit=first.limit,
        moved=tuple(dict.fromkeys(text for one in plans for text in one.moved)),
        unknown=tuple(dict.fromkeys(device for one in plans for device in one.unknown)),
        targets=tuple(target for one in plans for target in one.targets),
    )


def superseded(
    folder: Path, manifest: Manifest, items: Iterable[PlannedBuild]
) -> Iterable[tuple[str, ClearedFile]]:
    """Files of entries that will be built anew, unless another entry that stays has them too."""
    anew = {item.key: item for item in items if item.todo and item.state not in _OWN_WAY}
    stays: set[str] = set()
    for name, entry in manifest.entries.items():
        if name not in anew and entry.build is not None:
            stays |= entry.build.files.keys()
    for warmup in manifest.warmups.values():
        stays |= warmup.files.keys()
    for name, item in anew.items():
        found = manifest.entries.get(name)
        if found is None or found.build is None:
            continue
        files = sorted(found.build.files.keys() - stays)
        for one in existing(folder, files, f"{item.spec.title}: {item.why}"):
            yield one.path, one


def jiterator(request: BuildRequest) -> str:
    """The folder of torch's run-time compiled elementwise kernels; empty if none is ours to clear.

    Those of this machine are no affair of a GPU elsewhere.
    """
    if request.target is not None:
        return ""
    found = [cache.path for cache in request.facts.caches or () if cache.kind == "jiterator"]
    return (found[0] or "") if found else ""
