"""What to compile: one FlexAttention call, with everything that decides which kernel serves it.

torch's cache keys hold the traced graph with every static size and stride, so a kernel that was
built for contiguous tensors is not reused for permuted ones of the same shape. Each field here is
one of those that were seen to move a key.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

#: Masks that the builder knows; any other mask is the user's own, as `module:function`.
MASKS = ("none", "causal", "document", "sliding-window", "bool", "float")
DTYPES = ("bfloat16", "float16", "float32")
LAYOUTS = ("bhsd", "bshd", "fused-qkv", "fused-v")

Option = bool | int | float | str


class KernelSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One kernel to build. Lengths are in tokens, sizes in elements."""

    heads: int
    """Query heads."""
    head_dim: int
    """Elements of each query and key head."""
    lengths: tuple[int, ...]
    """Query lengths, in the order in which the program will see them: the first gives a static
    kernel, a second one a dynamic kernel that serves the later ones (unless `dynamic` says
    otherwise)."""
    kv_heads: int | None = None
    """Key and value heads (grouped-query attention); None: as many as query heads."""
    kv_length: int | None = None
    """Key and value length of cross-attention; None: the query length."""
    value_dim: int | None = None
    """Elements of each value head; None: `head_dim`."""
    batch: int = 1
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    mask: str = "none"
    """One of `MASKS`, or the user's mask function as `module:function`."""
    window: int | None = None
    """Tokens that a sliding window looks back; only with mask "sliding-window"."""
    phase: Literal["training", "inference"] = "training"
    """Training compiles forward and backward with gradients; inference the forward kernel under
    `no_grad`, which is a different one."""
    layout: Literal["bhsd", "bshd", "fused-qkv", "fused-v"] = "bhsd"
    """Memory behind the logical (batch, heads, length, head_dim): contiguous; a permuted view of
    (batch, length, heads, head_dim), as diffusers makes it; slices of one fused projection; or such
    a slice for the values only, where queries and keys were normalised and are `bshd` again."""
    fused_width: int | None = None
    """Elements that a fused projection gives per token; None: queries, keys and values alone."""
    mask_rows: bool = False
    """A bool or float mask differs by query row, as (batch, 1, length, kv_length); otherwise it is
    one row for all, as (batch, 1, 1, kv_length)."""
    scale: float | None = None
    """Softmax scale given by the caller; None: 1/sqrt(head_dim), not given."""
    dynamic: bool | None = None
    """`torch.compile(dynamic=…)`; None is its default."""
    mode: str | None = None
    """`torch.compile(mode=…)`; None is its default."""
    kernel_options: dict[str, Option] = {}
    """Passed to `flex_attention` unchanged."""
    per_head: bool = False
    """The block mask has rows for each batch and head, as diffusers makes causal ones; otherwise
    one set of rows serves them all, as `create_block_mask(mask, None, None, …)` makes it."""
    block: str = ""
    """Family whose real transformer block from diffusers is compiled around the attention; empty:
    the attention alone. A block under `torch.compile` has cache keys of its own."""
    sizes: dict[str, int] = {}
    """Sizes that a block takes besides, such as latent frames, height and width."""
    preset: str = ""
    """Where the spec comes from, such as "flux1"; not part of what is built."""

    @property
    def id(self) -> str:
        """Twelve hex digits that name what is built, the same on every machine."""
        # By value: `omit_defaults` looks whether it is the very same object, which a text from
        # another process is not.
        built = {
            field.name: value
            for field in msgspec.structs.fields(self)
            if field.name != "preset" and (value := getattr(self, field.name)) != _default(field)
        }
        return hashlib.sha256(msgspec.json.encode(built, order="sorted")).hexdigest()[:12]

    @property
    def title(self) -> str:
        """The spec in one line, such as `24×128 bf16 causal 4608 training bshd`.

        Two specs that differ, in more than a block's sizes, differ in their titles.
        """
        short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[self.dtype]
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        length = "+".join(map(str, self.lengths)) + (f"←{self.kv_length}" if self.kv_length else "")
        words = [f"block {self.block}"] if self.block else []
        size = f"{self.head_dim}/{self.value_dim}" if self.value_dim else f"{self.head_dim}"
        words += [f"{heads}×{size}", short, self.mask, length, self.phase, self.layout]
        extras = [f"batch {self.batch}"] if self.batch != 1 else []
        named = (
            ("window", self.window),
            ("rows", self.mask_rows or None),
            ("per-head", self.per_head or None),
            ("width", self.fused_width),
            ("scale", self.scale),
            ("dynamic", self.dynamic),
            ("mode", self.mode),
        )
        extras += [
            name if value is True and name != "dynamic" else f"{name}={value}"
            for name, value in named
            if value is not None
        ]
        extras += [f"{name}={value}" for name, value in self.kernel_options.items()]
        return " ".join(words + extras)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
