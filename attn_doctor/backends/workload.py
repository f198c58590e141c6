"""What is wanted of attention and where it would run: facts beside the machine's own.

`wish.…` is what the user asks for, `use.…` is what follows for a framework on this machine. The
catalogue's conditions name them like any other fact, so a reason says value seen and value wanted.
Nothing here looks at the machine.
"""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts import Facts

PHASES = ("inference", "training")
MASKS = ("none", "varlen", "bool", "float")
DTYPES = ("bf16", "fp16", "fp32")

#: Tokens for which memory was measured; 16384 tokens took 80.4 GB, as the square of it says.
_MEASURED_SEQ = 4608
#: Values that turn the checks of Diffusers and Finetrainers on, as each compares them.
_ON = ("1", "ON", "YES", "TRUE")


class Wish(Struct, frozen=True, kw_only=True):
    """One kind of attention call."""

    phase: str = "inference"
    """`inference` or `training`, which needs gradients."""
    mask: str = "none"
    """`none`; `varlen`, boolean over the keys with the valid ones first; `bool`, boolean over the
    keys with padding anywhere; `float`, added to the scores."""
    causal: bool = False
    """Queries see only keys up to their own place (`is_causal`)."""
    gqa: bool = False
    """Fewer heads of keys and values than of queries."""
    dtype: str = "bf16"
    """`bf16`, `fp16` or `fp32`."""
    head_dim: int = 128
    """Size of a head."""
    seq: int = 4608
    """Tokens; the default is an image of 1024×1024 in Flux."""
    mask_elements: int = 0
    """Elements of a mask that has a row for each query; 0 for one over the keys alone, and where
    that or its size is not known."""
    compiled: bool = False
    """The model runs under `torch.compile`, or FlexAttention itself does."""

    @property
    def masked(self) -> bool:
        """There is a mask."""
        return self.mask != "none"

    @property
    def head_dim_by_8(self) -> bool:
        """The size of a head is a multiple of 8."""
        return self.head_dim % 8 == 0

    @property
    def unfused_mib(self) -> int:
        """Memory of unfused FlexAttention, by what 24 heads took on an H200: it is the scores."""
        measured = 13312 if self.phase == "training" else 6433
        return round(measured * (self.seq / _MEASURED_SEQ) ** 2)

    @property
    def math_mib(self) -> int:
        """The same of the math kernel, forward."""
        return round(4617 * (self.seq / _MEASURED_SEQ) ** 2)


class Use(Struct, frozen=True, kw_only=True):
    """Where the call would run."""

    framework: str = "diffusers"
    """`diffusers`, `finetrainers` or `simpletuner`."""
    title: str = "Diffusers"
    """As its makers write it."""
    version: str | None = None
    """Its version; the newest known one where it is not installed."""
    diffusers: str | None = None
    """Version of the Diffusers whose dispatcher is called; empty for Finetrainers, which has its
    own."""
    device: str | None = None
    """What torch computes on here: `cuda`, `rocm`, `xpu`, `mps` or `cpu`."""
    nvidia: bool | None = None
    """That is an NVIDIA GPU."""
    unusable_gpu: bool | None = None
    """There is a GPU that this torch cannot use."""
    checks: bool | None = None
    """The framework's checks of tensors are on."""
    memory_mib: int | None = None
    """Memory of the largest GPU that CUDA shows; None where none is used or it is not known."""
    hub: tuple[str, ...] | None = None
    """Kernels of the Hugging Face Hub in the cache that load here and have code for this GPU."""


#: What each of these facts means, with its kind, as the condition language needs it.
SENTENCES: dict[str, tuple[str, str]] = {
    "wish.phase": ("text", "`inference` or `training`."),
    "wish.mask": ("text", "`none`, `varlen`, `bool` or `float`."),
    "wish.masked": ("boolean", "There is a mask."),
    "wish.causal": ("boolean", "`is_causal` is set."),
    "wish.gqa": ("boolean", "Fewer heads of keys and values than of queries."),
    "wish.dtype": ("text", "`bf16`, `fp16` or `fp32`."),
    "wish.head_dim": ("number", "Size of a head."),
    "wish.head_dim_by_8": ("boolean", "The size of a head is a multiple of 8."),
    "wish.seq": ("number", "Tokens."),
    "wish.mask_elements": ("number", "Elements of a mask with a row for each query, else 0."),
    "wish.unfused_mib": ("number", "Memory of unfused FlexAttention with 24 heads, in MiB."),
    "wish.math_mib": ("number", "Memory of the math kernel with 24 heads, in MiB."),
    "wish.compiled": ("boolean", "The call runs under `torch.compile`."),
    "use.framework": ("text", "`diffusers`, `finetrainers` or `simpletuner`."),
    "use.title": ("text", "The framework's name as its makers write it."),
    "use.version": ("version", "Version of the framework."),
    "use.diffusers": ("version", "Version of the Diffusers that dispatches; empty if none does."),
    "use.device": ("text", "`cuda`, `rocm`, `xpu`, `mps` or `cpu`."),
    "use.nvidia": ("boolean", "torch computes on an NVIDIA GPU here."),
    "use.unusable_gpu": ("boolean", "There is a GPU that this torch cannot use."),
    "use.checks": ("boolean", "The framework's checks of tensors are on."),
    "use.memory_mib": ("number", "Memory of the largest GPU that CUDA shows, in MiB."),
    "use.hub": ("list", "Kernels of the Hugging Face Hub in the cache that run here."),
}

#: Builds of torch and the vendor whose GPUs they compute on.
_VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "mps": "apple"}


def use_of(facts: Facts, framework: str, title: str, newest: dict[str, str]) -> Use:
    """Where a call of `framework` would run. `newest`: last known version of each framework."""
    version = _version(facts, framework, newest)
    if framework == "diffusers":
        diffusers: str | None = version
    elif framework == "simpletuner":
        diffusers = _version(facts, "diffusers", newest)
    else:
        diffusers = ""
    device = _device(facts)
    return Use(
        framework=framework,
        title=title,
        version=version,
        diffusers=diffusers,
        device=device,
        nvidia=None if device in (None, "rocm", "xpu") else device == "cuda",
        unusable_gpu=_unusable_gpu(facts, device),
        checks=_checks(facts, framework, diffusers),
        memory_mib=_memory(facts) if device == "cuda" else None,
        hub=_hub(facts),
    )


def _version(facts: Facts, framework: str, newest: dict[str, str]) -> str | None:
    package = getattr(facts, framework)
    if package.installed is False:
        return newest[framework]
    found: str | None = package.version
    return found


def _device(facts: Facts) -> str | None:
    """CUDA needs a torch built for it, a driver that answers and a visible GPU; likewise others."""
    build = facts.torch.build
    if facts.torch.installed is False or build == "cpu":
        return "cpu"
    if build is None:
        return None
    if build == "cuda":
        if facts.driver.state not in (None, "ok"):
            return "cpu"
        sm = facts.driver.best_sm
        return None if sm is None else "cuda" if sm else "cpu"
    vendor = facts.driver.vendor
    if vendor is None:
        return None
    return build if vendor == _VENDORS.get(build) else "cpu"


def _unusable_gpu(facts: Facts, device: str | None) -> bool | None:
    if device not in (None, "cpu"):
        return False
    if device is None or facts.driver.vendor is None:
        return None
    return bool(facts.gpus) or facts.driver.vendor != ""


def _checks(facts: Facts, framework: str, diffusers: str | None) -> bool | None:
    if framework == "finetrainers":
        return facts.env.get("FINETRAINERS_ATTN_CHECKS", "") in _ON
    value = facts.env.get("DIFFUSERS_ATTN_CHECKS", "")
    if value.upper() not in _ON:
        return False
    # Diffusers 0.35 compares the word as it stands, later ones in capitals.
    if diffusers is None:
        return True if value in _ON else None
    return value in _ON or not diffusers.startswith("0.35.")


def _memory(facts: Facts) -> int | None:
    sizes = [gpu.memory_total_mib for gpu in facts.gpus or () if gpu.visible is not False]
    return max((size for size in sizes if size is not None), default=None)


def _hub(facts: Facts) -> tuple[str, ...] | None:
    """Repositories of which a module in the cache loads and has code for the GPU here."""
    if facts.extensions is None:
        return None
    sound = (
        one.name
        for one in facts.extensions
        if one.package == "hub" and one.name and one.loads and one.gpu_code in ("yes", "ptx", "")
    )
    # kernels-community/flash-attn2/_flash_attn2_cuda
    return tuple(dict.fromkeys("/".join(name.split("/")[:2]) for name in sound))
