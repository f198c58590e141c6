"""`build-kernels --target … --dry-run --fit`: whether specs fit a GPU's shared memory."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_doctor.cli.build_kernels.request import How
    from attn_doctor.kernels.builder.spec_requests import SpecArgs


def fitted(given: SpecArgs | None, how: How) -> int:
    """Compile the specs for each target, keep nothing, and tell which fit. Returns the exit code.

    Raises `AttnDoctorError` if no spec was written out, and `DeviceError` if this environment can
    compile for no GPU of another machine.
    """
    from attn_doctor.cli.build_kernels.request import examined
    from attn_doctor.cli.build_kernels.run import paper_of
    from attn_doctor.cli.signals import Signals, TerminatedError
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.kernels.builder.fit import fit
    from attn_doctor.kernels.builder.software_differences import able
    from attn_doctor.kernels.builder.spec_requests import requested_specs
    from attn_doctor.kernels.gpus.known import find
    from attn_doctor.render.build_kernels.fits import fit_json, fit_text

    words = [word.strip() for text in how.targets for word in text.split(",") if word.strip()]
    found = [find(word) for word in words]
    if given is None:
        raise AttnDoctorError(
            "--fit needs specs: --preset NAME, --spec FILE, or --heads and others"
        )
    wishes = requested_specs(given)
    facts = examined(how)
    able(facts)
    told = []
    try:
        with Signals():
            for descriptor in found:
                fits = fit(
                    descriptor,
                    wishes.specs,
                    facts,
                    os.environ,
                    sys_path=wishes.sys_path,
                    limit=how.timeout or 600.0,
                    jobs=how.jobs,
                    tell=_say,
                )
                told.append((descriptor, fits))
    except TerminatedError as error:
        return error.code
    code = int(any(one.fits is not True for _, fits in told for one in fits))
    if how.as_json:
        sys.stdout.write(fit_json(told, code))
    else:
        texts = [fit_text(fits, descriptor, paper_of(sys.stdout)) for descriptor, fits in told]
        sys.stdout.write("\n".join(texts))
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
