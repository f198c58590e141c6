"""A diagnosis made by hand, with one of everything a renderer has to show."""

from __future__ import annotations

from attn_doctor.facts import Driver, Facts, Gpu, Package, Program, Python, System, Torch, Triton
from attn_doctor.findings import Because, Diagnosis, Finding, Fix, Safety, Severity, Verdict

ABSENT = Package(installed=False)
FACTS = Facts(
    system=System(
        os="linux",
        distribution="debian",
        distribution_name="Debian GNU/Linux 12 (bookworm)",
        distribution_version="12",
        arch="x86_64",
        cpus=16,
        ram_total_mib=131072,
        wsl=0,
        container="docker",
    ),
    python=Python(
        path="/srv/venv/bin/python",
        version="3.12.3",
        environment="venv",
        selection_reason="VIRTUAL_ENV is set",
        pip="24.0",
        headers="/usr/include/python3.12/Python.h",
    ),
    driver=Driver(state="ok", version="550.54.14", cuda_max="12.4", vendor="nvidia"),
    gpus=(
        Gpu(index=0, name="NVIDIA H100", sm=90, memory_total_mib=81559, memory_free_mib=80000),
        Gpu(index=1, name="NVIDIA H100", sm=90, memory_total_mib=81559, memory_free_mib=1024),
    ),
    toolkits=(),
    cc=Program(path="/usr/bin/gcc", version="12.2.0", family="gcc"),
    cxx=Program(path="", family=""),
    ninja=Program(path=""),
    torch=Torch(installed=True, version="2.11.0+cu130", build="cuda", cuda="13.0"),
    triton=Triton(installed=True, version="3.6.0"),
    xformers=Package(installed=True, version="0.0.35", distribution="xformers"),
    flash_attn=ABSENT,
    flash_attn_3=ABSENT,
    flash_attn_4=ABSENT,
    sageattention=ABSENT,
    sageattn3=ABSENT,
    kernels=ABSENT,
    diffusers=ABSENT,
    transformers=ABSENT,
    accelerate=ABSENT,
    torchvision=ABSENT,
    torchaudio=ABSENT,
    torchao=ABSENT,
    bitsandbytes=ABSENT,
    simpletuner=ABSENT,
    finetrainers=ABSENT,
)

OLD_DRIVER = Finding(
    rule="driver/too-old-for-torch",
    verdict=Verdict.PROBLEM,
    severity=Severity.ERROR,
    cause="driver-too-old",
    title="Driver 550.54.14 cannot run a torch built for CUDA 13.0",
    why="CUDA 13 needs driver 580 or newer. Until then torch finds no GPU.",
    because=(Because(fact="driver.version", seen="550.54.14", wanted="≥ 580.65.06", truth=True),),
    context=(Because(fact="torch.build", seen="cuda", wanted="", truth=True),),
    fixes=(
        Fix(
            title="Install a torch that this driver can run",
            safety=Safety.ASK,
            run=(("pip", "install", "torch==2.11.0", "--index-url", "https://example.org/cu126"),),
            needs="3 GB of download",
        ),
        Fix(title="Upgrade the driver", safety=Safety.MANUAL, manual="Ask the administrator."),
    ),
    evidence=("https://example.org/driver",),
)
CONSEQUENCE = Finding(
    rule="xformers/cuda-major",
    verdict=Verdict.PROBLEM,
    severity=Severity.ERROR,
    cause="xformers-torch-mismatch",
    title="xformers was built for another CUDA",
    caused_by="driver/too-old-for-torch",
)


def _no_permission(gpu: int) -> Finding:
    return Finding(
        rule="gpu/memory-low",
        verdict=Verdict.PROBLEM,
        severity=Severity.WARNING,
        cause="driver-too-old",
        title="Little memory is free",
        subject=f"GPU {gpu}",
        why="Other processes hold it.",
        fixes=(
            Fix(
                title="Unset it",
                safety=Safety.AUTO,
                exports={"CUDA_HOME": "", "CC": "/usr/bin/gcc 12"},
            ),
        ),
    )


UNKNOWN = Finding(
    rule="caches/network",
    verdict=Verdict.UNKNOWN,
    severity=Severity.WARNING,
    cause="jit-cache-bad-filesystem",
    title="A cache lies on another machine",
    because=(
        Because(
            fact="cache.network",
            seen="unknown",
            wanted="no",
            truth=None,
            gap="the cache probe did not answer within 4 s",
        ),
    ),
)
NOTE = Finding(
    rule="toolkit/none",
    verdict=Verdict.PROBLEM,
    severity=Severity.INFO,
    cause="nvcc-missing",
    title="There is no nvcc, and FlexAttention needs none",
    why="A sentence that is shown only on demand.",
)

DIAGNOSIS = Diagnosis(
    facts=FACTS,
    findings=(OLD_DRIVER, CONSEQUENCE, _no_permission(0), _no_permission(1), NOTE, UNKNOWN),
    rules=42,
    seconds=0.123,
)
HEALTHY = Diagnosis(facts=FACTS, findings=(), rules=42, seconds=0.1)
