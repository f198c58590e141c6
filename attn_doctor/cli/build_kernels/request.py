"""From the options of `build-kernels` to what is to be built, where, and for which devices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.builder.spec_requests import SpecArgs
    from attn_doctor.kernels.builder.target import Target

#: Tells the guard, which refuses what only a timing could decide (`stub_gpu/timed_choices.py`).
UNPADDED = "ATTN_DOCTOR_UNPADDED"


class How(NamedTuple):
    """How to build, as it was given."""

    python: str
    device: str
    cache_dir: str
    jobs: int | None
    timeout: float | None
    force: bool
    targets: tuple[str, ...]
    devices: int | None
    artifact: Path | None
    dry_run: bool
    check: bool
    fit: bool
    prove: bool
    unpadded: bool
    as_json: bool
    verbose: bool

    def guarded(self, environ: dict[str, str]) -> dict[str, str]:
        """`environ` with what the guard of a stub GPU is to let pass."""
        return {**environ, UNPADDED: "1"} if self.unpadded else environ


class Wanted(NamedTuple):
    """What is to be built: one request for this machine, or one for each target."""

    requests: tuple[BuildRequest, ...]
    notes: tuple[str, ...]


def examined(how: How) -> Facts:
    """The facts of the environment that builds."""
    from attn_doctor.diagnosis import examine
    from attn_doctor.host.local import LocalHost

    return examine(LocalHost(), how.python)


def targets(how: How) -> list[Target]:
    """The GPUs of `--target`. Raises `AttnDoctorError` for what names none."""
    from attn_doctor.kernels.builder.target import targets_of

    return targets_of(how.targets, how.devices or 1, os.environ)


def asked(given: SpecArgs | None, how: How) -> Wanted:
    """All that was asked for; None: what the folder's record names.

    Raises `AttnDoctorError` for a slip in what was written, and `DeviceError` if it cannot be built
    in this environment.
    """
    from attn_doctor.kernels.builder.devices import cache_folder, children_environment, owner_remark
    from attn_doctor.kernels.builder.spec_requests import requested_specs

    # What was written is read first: a slip in it matters on any machine.
    if given is not None:
        requested_specs(given)
    wanted = targets(how) if how.targets else []
    facts = examined(how)
    folder = cache_folder(facts, how.cache_dir)
    environ, remark = children_environment(os.environ, str(folder))
    notes = [one for one in (remark, owner_remark(folder)) if one]
    if how.targets:
        notes += remarks(wanted, folder, how)
    requests = []
    for target in wanted or (None,):
        request, said = _request(given, how, facts, folder, target)
        requests.append(request)
        notes += said
    made = tuple(_with(request, how.guarded(environ), how) for request in requests)
    return Wanted(made, tuple(dict.fromkeys(notes)))


def remarks(wanted: list[Target], folder: Path, how: How) -> list[str]:
    """What a user should know before kernels are built for another machine."""
    from attn_doctor.kernels.builder.target import folder_remark, variables_remark
    from attn_doctor.kernels.gpus.known import name_remark

    told = [folder_remark(folder, how.cache_dir)]
    told += [variables_remark(one, os.environ) for one in wanted]
    told += [name_remark(one.word, one.descriptor) for one in wanted]
    return [one for one in told if one]


def _request(
    given: SpecArgs | None, how: How, facts: Facts, folder: Path, target: Target | None
) -> tuple[BuildRequest, list[str]]:
    """The request for this machine, or for one target; and remarks on it."""
    import msgspec

    from attn_doctor.kernels.builder.devices import compilable, devices
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.builder.spec_requests import requested_specs

    named: tuple[str, ...] | None = None
    if target is not None:
        from attn_doctor.kernels.builder.software_differences import check

        check(facts, target)
        facts, named = target.there(facts), target.devices
    if given is None:
        from attn_doctor.kernels.builder.rebuild_request import recorded

        known = recorded(facts, folder, how.device, target)
        return BuildRequest(
            specs=known.specs, devices=known.devices, facts=facts, folder=folder, environ={},
            sys_path=(*known.sys_path, os.getcwd()), only=known.keys, target=target,
        ), list(known.notes)  # fmt: skip
    named = named or devices(facts, how.device)
    compilable(facts, folder, named[0])
    wishes = requested_specs(msgspec.structs.replace(given, device=named[0]))
    return BuildRequest(
        specs=wishes.specs, devices=named, facts=facts, folder=folder, environ={},
        sys_path=wishes.sys_path, target=target,
    ), list(wishes.notes)  # fmt: skip


def _with(request: BuildRequest, environ: dict[str, str], how: How) -> BuildRequest:
    from msgspec.structs import replace

    return replace(
        request, environ=environ, jobs=how.jobs, limit=how.timeout or 600.0, force=how.force
    )
