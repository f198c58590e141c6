"""The attention call that is asked for and the context it runs in: facts beside the machine's own.

`call.…` is what the user asks for, `context.…` is what follows for a framework on this machine. The
catalogue's conditions name them like any other fact. Nothing here looks at the machine.
"""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.backends.framework_source import package_of
from attn_doctor.facts import Facts

PHASES = ("inference", "training")
MASKS = ("none", "varlen", "bool", "float")
DTYPES = ("bf16", "fp16", "fp32")

#: Tokens for which memory was measured; 16384 tokens took 80.4 GB, as the square predicts.
_MEASURED_SEQ_LEN = 4608
#: Values that turn the checks of Diffusers and Finetrainers on, as each compares them.
_ON = ("1", "ON", "YES", "TRUE")


class AttentionCall(Struct, frozen=True, kw_only=True):
    """One kind of attention call."""

    phase: str = "inference"
    """`inference` or `training`, which needs gradients."""
    mask: str = "none"
    """`none`; `varlen`, boolean over the keys with the valid ones first; `bool`, boolean over the
    keys with padding anywhere; `float`, added to the scores."""
    causal: bool = False
    """Queries see only keys up to their own position (`is_causal`)."""
    gqa: bool = False
    """Fewer heads of keys and values than of queries."""
    dtype: str = "bf16"
    """`bf16`, `fp16` or `fp32`."""
    head_dim: int = 128
    """Size of a head."""
    seq_len: int = 4608
    """Tokens; the default is an image of 1024×1024 in Flux."""
    mask_elements: int = 0
    """Elements of a mask that has a row for each query; 0 for a mask over the keys alone, and where
    that or its size is unknown."""
    compiled: bool = False
    """The model runs under `torch.compile`, or FlexAttention itself does."""
    kv_heads: int | None = None
    """Heads of keys and values; None if unknown."""
    assumed: tuple[str, ...] = ()
    """Sizes that the user did not state, such as `seq_len`."""

    @property
    def past_128(self) -> int:
        """Tokens beyond a multiple of 128."""
        return self.seq_len % 128

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
        """MiB of unfused FlexAttention, scaled from 24 heads on an H200: the scores take it."""
        measured = 13312 if self.phase == "training" else 6433
        return round(measured * (self.seq_len / _MEASURED_SEQ_LEN) ** 2)

    @property
    def math_mib(self) -> int:
        """MiB of the math kernel in the forward pass, scaled in the same way."""
        return round(4617 * (self.seq_len / _MEASURED_SEQ_LEN) ** 2)


class Context(Struct, frozen=True, kw_only=True):
    """The framework and the device that a call would use."""

    framework: str = "diffusers"
    """`diffusers`, `finetrainers`, `simpletuner`, `transformers` or `comfyui`."""
    title: str = "Diffusers"
    """The framework's name as its makers write it."""
    version: str | None = None
    """Its version; the newest known one if it is not installed."""
    diffusers: str | None = None
    """Version of the Diffusers whose dispatcher is called; empty for frameworks with a dispatcher
    of their own."""
    device: str | None = None
    """The device type that torch uses here: `cuda`, `rocm`, `xpu`, `mps` or `cpu`."""
    nvidia: bool | None = None
    """torch computes on an NVIDIA GPU here."""
    unusable_gpu: bool | None = None
    """The machine has a GPU that this torch cannot use."""
    checks: bool | None = None
    """The framework's checks of tensors are on."""
    memory_mib: int | None = None
    """Memory of the largest GPU that CUDA shows; None if there is none or it is unknown."""
    hub: tuple[str, ...] | None = None
    """Kernels of the Hugging Face Hub in the cache that load here and have code for this GPU."""


#: Kind of each value, as the condition language needs it.
KINDS: dict[str, tuple[str, ...]] = {
    "text": (
        "call.phase", "call.mask", "call.dtype", "context.framework", "context.title",
        "context.device",
    ),
    "number": (
        "call.head_dim", "call.seq_len", "call.mask_elements", "call.unfused_mib",
        "call.math_mib", "call.kv_heads", "call.past_128", "context.memory_mib",
    ),
    "boolean": (
        "call.masked", "call.causal", "call.gqa", "call.head_dim_by_8", "call.compiled",
        "context.nvidia", "context.unusable_gpu", "context.checks",
    ),
    "version": ("context.version", "context.diffusers"),
    "list": ("call.assumed", "context.hub"),
}  # fmt: skip

#: Builds of torch and the vendor whose GPUs they compute on.
_VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "mps": "apple"}


def context_of(facts: Facts, framework: str, title: str, newest: dict[str, str]) -> Context:
    """Context of a call of `framework`. `newest`: the last known version of each framework."""
    version = _version(facts, framework, newest)
    if framework == "diffusers":
        diffusers: str | None = version
    elif framework == "simpletuner":
        diffusers = _version(facts, "diffusers", newest)
    else:
        diffusers = ""
    device = _device(facts)
    return Context(
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
    package = package_of(facts, framework)
    if package.installed is False:
        return newest[framework]
    found: str | None = package.version
    return found


def _device(facts: Facts) -> str | None:
    """Device type of torch: its build, a driver that answers, and a visible GPU decide it."""
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
    # Diffusers 0.35 compares the word unchanged, later releases in capitals.
    if diffusers is None:
        return True if value in _ON else None
    return value in _ON or not diffusers.startswith("0.35.")


def _memory(facts: Facts) -> int | None:
    sizes = [gpu.memory_total_mib for gpu in facts.gpus or () if gpu.visible is not False]
    return max((size for size in sizes if size is not None), default=None)


def _hub(facts: Facts) -> tuple[str, ...] | None:
    """Hub repositories with a cached module that loads and has code for the GPU here."""
    if facts.extensions is None:
        return None
    usable = (
        one.name
        for one in facts.extensions
        if one.package == "hub" and one.name and one.loads and one.gpu_code in ("yes", "ptx", "")
    )
    # kernels-community/flash-attn2/_flash_attn2_cuda
    return tuple(dict.fromkeys("/".join(name.split("/")[:2]) for name in usable))
