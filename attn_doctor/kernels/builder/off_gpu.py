"""Compiling for this machine's own GPU without a context on it.

The driver makes contexts one after another, a quarter of a second each on an H200, and every
process that compiles or verifies needs one: with sixteen at once that took longer than compiling.
Compilers need a GPU's properties, not the GPU. So many kernels are compiled on a stub GPU with the
properties of this machine's, and only the verifications, on the GPU itself, make contexts. What
fails there is built again on the GPU.

Whether torch will time something while it compiles is unknown beforehand. A stub GPU refuses that,
and the kernel is then built on the GPU as well.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from attn_doctor import processes, worker
from attn_doctor.errors import AttnDoctorError
from attn_doctor.json_files import JsonError, decode
from attn_doctor.kernels.builder.plan import BuildRequest, Plan, PlannedBuild
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.record.spec import MASKS, KernelSpec

#: With at least this many kernels and processes at once, one more import of torch saves time.
MANY = 6
#: Seconds for the driver to answer; a healthy one takes less than one.
_PATIENCE = 20.0


def suits(spec: KernelSpec) -> bool:
    """Whether it is compiled without computing or timing, and by our code and torch's alone."""
    return not spec.block and not spec.mode and spec.mask in MASKS


def worth(request: BuildRequest, plan: Plan) -> bool:
    """Whether enough of the plan would be compiled at once, on GPUs, with memory to spare."""
    on_gpus = request.target is None and "cpu" not in request.devices
    wanted = [item for item in plan.todo if _wanted(item)]
    return on_gpus and plan.limit != "memory" and min(plan.jobs, len(wanted)) >= MANY


def _wanted(item: PlannedBuild) -> bool:
    return item.state != "unverified" and suits(item.spec)


def environment(request: BuildRequest) -> dict[str, str]:
    """The variables of processes that compile for the GPUs of this machine without using them.

    Raises `AttnDoctorError` or `DeviceError` with the reason why that is impossible, such as a
    missing compiler, or GPUs of two kinds.
    """
    from attn_doctor.kernels.builder import software_differences
    from attn_doctor.kernels.gpus import stub

    software_differences.check_able(request.facts)
    # The compiler takes a second the first time, and the driver a moment every time.
    with ThreadPoolExecutor(1) as beside:
        library: Future[Path] = beside.submit(stub.make, request.facts)
        gpus = _gpus(request)
        if any(gpu != gpus[0] for gpu in gpus):
            raise AttnDoctorError("the GPUs of this machine are of several kinds")
        return stub.environment(library.result(), gpus[0], len(gpus), request.environ)


def _gpus(request: BuildRequest) -> list[Descriptor]:
    """The GPUs that a process with the request's variables may see, at least one."""
    ended = processes.run(
        worker.command(request.python, "cuda_driver"), _PATIENCE, env=request.environ
    )
    try:
        gpus = decode(ended.out.strip().rpartition("\n")[2], list[_Gpu])
        found = [gpu.descriptor() for gpu in gpus]
    except (JsonError, KeyError) as error:
        raise AttnDoctorError(f"the driver did not describe its GPUs: {ended.status}") from error
    if not found:
        raise AttnDoctorError("the driver shows no GPU")
    return found


class _Gpu(Struct, frozen=True):
    """A GPU as `worker/cuda_driver.py` describes it."""

    name: str
    total_memory: int
    driver_cuda: int | None
    attributes: dict[str, int]

    def descriptor(self) -> Descriptor:
        """The GPU as torch would describe it."""
        return Descriptor(
            name=self.name,
            major=self.attributes["75"],
            minor=self.attributes["76"],
            total_memory=self.total_memory,
            driver_cuda=self.driver_cuda,
            attributes=self.attributes,
        ).completed()
