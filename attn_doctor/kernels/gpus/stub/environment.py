"""The environment variables of a process that runs on the stub GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.gpus.descriptor import ATTRIBUTES, Descriptor
from attn_doctor.worker import env_vars

#: Path of the library, set in a process that runs on the stub GPU.
LIBRARY = "ATTN_DOCTOR_STUB_GPU"
TARGET = "ATTN_DOCTOR_STUB_GPU_TARGET"
#: They choose among the GPUs of this machine, which the child does not see.
_OF_THIS_MACHINE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


def environment(
    library: Path,
    descriptor: Descriptor,
    devices: int,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Return all variables for a child on `devices` stub GPUs, made from `environ`.

    Those that enter keys have the values of the GPU's machine, as far as the descriptor names its
    machine; only CC stays a compiler that is here. Raises `AttnDoctorError` if the descriptor lacks
    what kernels are built by.
    """
    if descriptor.missing:
        raise AttnDoctorError(
            f"{descriptor.name}: nothing can be built, because no one has read"
            f" {', '.join(descriptor.missing)} of it; `attn-doctor describe-gpu` on a machine that"
            " has one prints a file for --target"
        )
    folder = str(library.parent)
    made = {name: value for name, value in environ.items() if name not in _OF_THIS_MACHINE}
    if descriptor.own:  # else nothing is known of the variables there
        for name in env_vars.kept(environ, ()):
            del made[name]
    made |= descriptor.environment
    made.pop("CC", None)
    if shutil.which(environ.get("CC", ""), path=environ.get("PATH")):
        made["CC"] = environ["CC"]
    made[LIBRARY] = str(library)
    made[TARGET] = _target(descriptor, devices)
    made["LD_PRELOAD"] = _before(
        [str(library), str(library.parent / "libnvidia-ml.so.1")], environ.get("LD_PRELOAD", "")
    )
    made["LD_LIBRARY_PATH"] = _before([folder], environ.get("LD_LIBRARY_PATH", ""))
    made["TRITON_LIBCUDA_PATH"] = folder
    return made


def _before(first: list[str], rest: str) -> str:
    return os.pathsep.join([*first, *([rest] if rest else [])])


def _target(descriptor: Descriptor, devices: int) -> str:
    """Write the descriptor in the form that target.c reads."""
    numbers = {int(number): value for number, value in descriptor.attributes.items()}
    for name, number in ATTRIBUTES.items():
        value = getattr(descriptor, name)
        if value is not None:
            numbers[number] = value
    head = {"devices": devices, "driver": descriptor.driver_cuda or 0}
    head["memory"] = descriptor.total_memory or 0
    pairs = [f"{key}={value}" for key, value in (*head.items(), *sorted(numbers.items()))]
    return ";".join([*pairs, f"name={descriptor.name}"])
