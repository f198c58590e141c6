"""`build-kernels --target … --dry-run --fit`: whether specs fit a GPU's shared memory."""

from __future__ import annotations

import os
import sys

from attn_doctor.cli.build_kernels.options import BuildOptions
from attn_doctor.cli.build_kernels.request import examined
from attn_doctor.cli.build_kernels.run import terminal_of
from attn_doctor.cli.signals import Signals, TerminatedError
from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.fit import fit
from attn_doctor.kernels.builder.software_differences import check_able
from attn_doctor.kernels.builder.spec_requests import requested_specs
from attn_doctor.kernels.gpus.known import find
from attn_doctor.render.build_kernels.fits import fit_json, fit_text


def fitted(options: BuildOptions) -> int:
    """Compile the specs for each target, keep nothing, and show which fit. Returns the exit code.

    Raises `AttnDoctorError` if no spec was named, and `DeviceError` if this environment cannot
    compile for a GPU of another machine.
    """
    words = [
        word.strip() for text in options.target or () for word in text.split(",") if word.strip()
    ]
    descriptors = [find(word) for word in words]
    if options.specs is None:
        raise AttnDoctorError(
            "--fit needs specs: --preset NAME, --spec FILE, or --heads and others"
        )
    specs = requested_specs(options.specs)
    facts = examined(options)
    check_able(facts)
    results = []
    try:
        with Signals():
            for descriptor in descriptors:
                fits = fit(
                    descriptor,
                    specs.specs,
                    facts,
                    os.environ,
                    sys_path=specs.sys_path,
                    limit=options.timeout or 600.0,
                    jobs=options.jobs,
                    progress=_say,
                )
                results.append((descriptor, fits))
    except TerminatedError as error:
        return error.code
    code = int(any(one.fits is not True for _, fits in results for one in fits))
    if options.as_json:
        sys.stdout.write(fit_json(results, code))
    else:
        terminal = terminal_of(sys.stdout)
        texts = [fit_text(fits, descriptor, terminal) for descriptor, fits in results]
        sys.stdout.write("\n".join(texts))
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
