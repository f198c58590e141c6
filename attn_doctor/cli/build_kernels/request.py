"""From the options of `build-kernels` to what is to be built, where, and for which devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from attn_doctor.cli.build_kernels.options import BuildOptions
from attn_doctor.cli.this_machine import this_machine
from attn_doctor.examination import examine
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.devices import (
    cache_folder,
    children_environment,
    compilable,
    devices,
)
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.rebuild_request import recorded
from attn_doctor.kernels.builder.software_differences import check
from attn_doctor.kernels.builder.spec_requests import requested_specs
from attn_doctor.kernels.builder.target import Target, target_remarks

#: Allows the guard of a stub GPU to pass what only a timing could decide
#: (`stub_gpu/timed_choices.py`).
UNPADDED = "ATTN_DOCTOR_UNPADDED"
#: Seconds that building one spec may take.
_LIMIT = 600.0


class Requests(NamedTuple):
    """What is to be built: one request for this machine, or one for each target."""

    requests: tuple[BuildRequest, ...]
    notes: tuple[str, ...]


class Workplace(NamedTuple):
    """The environment and folder in which kernels are built."""

    facts: Facts
    folder: Path
    environ: dict[str, str]
    notes: list[str]


def examined(options: BuildOptions) -> Facts:
    """The facts of the environment that builds."""
    return examine(this_machine(), options.python)


def workplace(options: BuildOptions, facts: Facts, targets: Sequence[Target]) -> Workplace:
    """Where to build, and what the user should know of it.

    Raises `AttnDoctorError` if the folder is unknown, and `DeviceError` if a variable prevents
    building.
    """
    folder = cache_folder(facts, options.cache_dir)
    own = bool(options.cache_dir or options.artifact or targets)
    environ, notes = children_environment(os.environ, str(folder), own=own)
    if options.unpadded:
        environ[UNPADDED] = "1"
    notes += [*target_remarks(targets, folder, options.cache_dir, os.environ)]
    return Workplace(facts, folder, environ, [note for note in notes if note])


def requests_of(options: BuildOptions) -> Requests:
    """All that was asked for.

    Raises `AttnDoctorError` for a mistake in the options, and `DeviceError` if it cannot be built
    in this environment.
    """
    # The options are read before the machine is examined: a mistake in them is one anywhere.
    specs = requested_specs(options.specs) if options.specs is not None else None
    targets = options.targets
    place = workplace(options, examined(options), targets)
    notes = place.notes
    requests = []
    for target in targets or (None,):
        facts = place.facts
        if target is not None:
            check(facts, target)
            facts = target.there(facts)
        request = BuildRequest(
            specs=(),
            devices=(),
            facts=facts,
            folder=place.folder,
            environ=place.environ,
            jobs=options.jobs,
            limit=options.timeout or _LIMIT,
            force=options.force,
            target=target,
        )
        if specs is None:
            request, remarks = recorded(request, options.device)
        else:
            named = target.devices if target is not None else devices(facts, options.device)
            compilable(facts, place.folder, named[0])
            remarks = specs.notes
            request = replace(request, specs=specs.specs, devices=named, sys_path=specs.sys_path)
        requests.append(request)
        notes += remarks
    return Requests(tuple(requests), tuple(dict.fromkeys(notes)))
