"""Makes tensors and masks for one spec, with the sizes and strides of a trainer's.

Contents are random but the same in every process; sizes, strides and what requires a gradient
decide cache keys, contents do not.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from typing import Any, NamedTuple

from attn_doctor.worker.files import TEXT, read_bytes

#: Tokens of one document in the mask "document".
DOCUMENTS = 4


class Call(NamedTuple):
    """The arguments of one call: tensors (batch, heads, length, head_dim), and masks."""

    query: Any
    key: Any
    value: Any
    block_mask: Any
    score_mod: Any
    mask_mod: Any
    """The function of the block mask, for the reference; None: nothing is masked."""


class UserMask(NamedTuple):
    """A user's mask function, or a function that makes one for given lengths."""

    function: Any
    makes: bool
    source: str
    """SHA-256 of the file that defines it."""


def own_mask(name: str) -> UserMask:
    """The user's `module:function`. Raises `ValueError` with a sentence if it cannot be used."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's own file does while it is imported
        missing = isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]
        where = "; it is looked for beside the spec file, here, and in the environment"
        message = f"mask {name}: {type(error).__name__}: {error}{where if missing else ''}"
        raise ValueError(message) from error
    if not callable(found):
        raise ValueError(f"mask {name}: {attribute} is not a function")
    try:
        names = list(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        names = []
    makes = bool(names) and set(names) <= {"batch", "heads", "length", "kv_length", "device"}
    if not makes and len(names) != 4:
        raise ValueError(
            f"mask {name}: takes ({', '.join(names)}); a mask takes (batch, head, q_index, "
            "kv_index); a function that makes one takes any of batch, heads, length, kv_length, "
            "device by these names"
        )
    return UserMask(found, makes, _digest(found))


def _digest(found: Any) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(found))
        return hashlib.sha256(read_bytes(path or "", TEXT)).hexdigest()
    except (OSError, TypeError):
        return ""


def make(torch: Any, spec: dict[str, Any], length: int, device: str, user: Any = None) -> Call:
    """One call of a spec (as JSON data) at a query length; with gradients in training."""
    torch.manual_seed(length)
    query, key, value = _tensors(torch, spec, length, device)
    mask_mod, score_mod = _mods(torch, spec, length, device, query, user)
    block_mask = None
    if mask_mod is not None:
        block_mask = _block_mask(spec, mask_mod, length, device)
    return Call(query, key, value, block_mask, score_mod, mask_mod)


def adjusting(torch: Any, call: Call) -> Any:
    """Changes scores in float64 as the score function and the mask of a call do."""

    def adjust(scores: Any, batch: int, head: int, rows: Any) -> Any:
        b, h = (torch.full((), one, device=scores.device) for one in (batch, head))
        kv = torch.arange(scores.shape[1], device=scores.device)[None, :]
        if call.score_mod is not None:
            scores = call.score_mod(scores, b, h, rows[:, None], kv)
        if call.mask_mod is not None:
            scores = scores.masked_fill(~call.mask_mod(b, h, rows[:, None], kv), float("-inf"))
        return scores

    return adjust


def _kv_length(spec: dict[str, Any], length: int) -> int:
    return int(spec.get("kv_length") or length)


def _tensors(torch: Any, spec: dict[str, Any], length: int, device: str) -> tuple[Any, Any, Any]:
    batch, heads = spec.get("batch", 1), spec["heads"]
    kv_heads = spec.get("kv_heads") or heads
    size = spec["head_dim"]
    value_size = spec.get("value_dim") or size
    kv_length = _kv_length(spec, length)
    training = spec.get("phase", "training") == "training"
    dtype = getattr(torch, spec.get("dtype", "bfloat16"))

    def leaf(*shape: int) -> Any:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=training)

    layout = spec.get("layout", "bhsd")
    if layout == "bhsd":
        return (
            leaf(batch, heads, length, size),
            leaf(batch, kv_heads, kv_length, size),
            leaf(batch, kv_heads, kv_length, value_size),
        )
    if layout == "bshd":
        return (
            leaf(batch, length, heads, size).permute(0, 2, 1, 3),
            leaf(batch, kv_length, kv_heads, size).permute(0, 2, 1, 3),
            leaf(batch, kv_length, kv_heads, value_size).permute(0, 2, 1, 3),
        )
    # One projection for all; with cross-attention one for the keys and values.
    counts = [(heads, size), (kv_heads, size), (kv_heads, value_size)]
    width = spec.get("fused_width") or 0
    if spec.get("kv_length"):
        key, value = _slices(leaf, batch, kv_length, counts[1:], width)
        query = leaf(batch, length, heads, size).permute(0, 2, 1, 3)
    else:
        query, key, value = _slices(leaf, batch, length, counts, width)
    if layout == "fused-v":
        query = leaf(batch, length, heads, size).permute(0, 2, 1, 3)
        key = leaf(batch, kv_length, kv_heads, size).permute(0, 2, 1, 3)
    return query, key, value


def _slices(
    leaf: Any, batch: int, length: int, counts: list[tuple[int, int]], width: int
) -> list[Any]:
    """Views of one projection, whose rows are at least `width` elements long."""
    widths = [heads * size for heads, size in counts]
    row = leaf(batch, length, max(width, sum(widths)))
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return [
        row[..., start : start + heads * size].unflatten(-1, (heads, size)).permute(0, 2, 1, 3)
        for start, (heads, size) in zip(starts, counts)  # noqa: B905 - Python 3.9 has no strict
    ]


def _mods(
    torch: Any, spec: dict[str, Any], length: int, device: str, query: Any, user: Any
) -> tuple[Any, Any]:
    """The mask function and the score function of a spec; None if it has none."""
    kind, kv_length = spec.get("mask", "none"), _kv_length(spec, length)
    batch, heads = spec.get("batch", 1), spec["heads"]
    if kind == "none":
        return None, None
    if kind == "causal":
        return _causal, None
    if kind == "sliding-window":
        return _window(spec["window"]), None
    if kind == "document":
        longer = max(length, kv_length)
        return _documents(_document_ids(torch, longer, device)), None
    if kind in ("bool", "float"):
        shape = (batch, heads, length, kv_length)
        return _tensor_mask(torch, kind, shape, bool(spec.get("mask_rows")), query)
    if not user.makes:
        return user.function, None
    given = {
        "batch": batch,
        "heads": heads,
        "length": length,
        "kv_length": kv_length,
        "device": device,
    }
    wanted = inspect.signature(user.function).parameters
    return user.function(**{name: given[name] for name in wanted}), None


def _tensor_mask(
    torch: Any, kind: str, shape: tuple[int, int, int, int], by_row: bool, query: Any
) -> tuple[Any, Any]:
    """A mask that is a tensor. It differs by sample, and where it may by head and by row."""
    batch, heads, length, kv_length = shape
    rows = length if by_row else 1
    hidden = torch.zeros(batch, 1, rows, kv_length, device=query.device, dtype=torch.bool)
    for item in range(batch):
        # Never a whole tile.
        hidden[item, ..., kv_length - kv_length // 4 - 3 * item - 1 :] = True
    if kind == "float":
        bias = torch.randn(batch, heads, rows, kv_length, device=query.device, dtype=query.dtype)
        return None, _float(bias.masked_fill_(hidden, -10000.0).expand(shape))
    if by_row:
        hidden[:, :, ::5, : kv_length // 3] = True
        hidden[:, :, rows // 2] = True  # this row sees nothing
    return _bool((~hidden).expand(shape)), None


def _block_mask(spec: dict[str, Any], mask_mod: Any, length: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    batch: int | None = None
    heads: int | None = None
    if spec.get("per_head"):
        batch, heads = spec.get("batch", 1), spec["heads"]
    elif spec.get("mask") == "bool":
        batch = spec.get("batch", 1)  # as diffusers does
    return create_block_mask(
        mask_mod, batch, heads, length, _kv_length(spec, length), device=device
    )


def _causal(batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:  # noqa: ARG001
    return q_idx >= kv_idx


def _window(window: int) -> Any:
    def sliding_window(batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:  # noqa: ARG001
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)

    return sliding_window


def _document_ids(torch: Any, length: int, device: str) -> Any:
    """The document number of each token, as attention-gym makes them: int32, one dimension."""
    # Of different lengths, so that they do not end where tiles do.
    ends = torch.tensor([length * part // 16 - 1 for part in range(4, 16, 16 // DOCUMENTS)])
    places = torch.arange(length, dtype=torch.int32)
    return torch.bucketize(places, ends, out_int32=True).to(device)


def _documents(document_id: Any) -> Any:
    def same_document(batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:  # noqa: ARG001
        return document_id[q_idx] == document_id[kv_idx]

    return same_document


def _bool(attn_mask: Any) -> Any:
    # The names are those of diffusers: they enter the key of the AOTAutograd cache.
    def mask_mod(batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
        return attn_mask[batch_idx, head_idx, q_idx, kv_idx]

    return mask_mod


def _float(attn_mask: Any) -> Any:
    def score_mod(score: Any, batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + attn_mask[batch_idx, head_idx, q_idx, kv_idx]

    return score_mod
