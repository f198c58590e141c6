"""Gets the descriptor of a GPU of this machine from the examined interpreter.

Only torch knows the name and the numbers that enter its keys and its code, so torch is imported, in
a process of its own. Nothing is compiled, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attn_doctor import processes, worker
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.json_files import JsonError, decode
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.gpus.descriptor import Descriptor

#: Seconds for importing torch and its compiler, from a slow disk.
_PATIENCE = 180.0


def described(facts: Facts, device: str, environ: Mapping[str, str]) -> Descriptor:
    """The GPU that torch calls `device`, such as `cuda:0`, with its machine's software.

    Raises `DeviceError` with one sentence if torch or the GPU is missing.
    """
    place = facts.python.path or ""
    if facts.torch.installed is False:
        raise DeviceError(f"torch is not installed in {place}, and it has to describe the GPU")
    ended = processes.run(worker.command(place, "describe_gpu", device), _PATIENCE, env=environ)
    answer = _answer(ended.out)
    if answer is None:
        last = ended.err.strip().rpartition("\n")[2]
        raise DeviceError(f"{place} did not answer: {last or ended.status}")
    if "failure" in answer:
        why = str(answer["failure"]).partition(". ")[0].rstrip(".")
        raise DeviceError(f"no GPU to describe: {why}")
    try:
        found = msgspec.convert(answer, Descriptor)
    except msgspec.ValidationError as error:
        raise AttnDoctorError(f"{place} described {device} in an unknown form: {error}") from None
    faults = found.faults()
    if faults:
        raise DeviceError(f"{device} is described with contradictions: {'; '.join(faults)}")
    return found.completed()


def _answer(text: str) -> dict[str, Any] | None:
    try:
        found = decode(text.strip().rpartition("\n")[2])
    except JsonError:
        return None
    return found if isinstance(found, dict) else None
