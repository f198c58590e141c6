"""The calls that a backend is examined with: one table, an entry for each kind of fault.

No entry has a tolerance of its own: what a call must not exceed follows from its dtype, its length
and its numbers (`worker/proof/exact.py`), so that a call that nothing can be said of is not wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from attn_doctor.worker.audit.case import Case
from attn_doctor.worker.audit.lines import GRADIENTS, LAYOUTS, MASKS, VALUES
from attn_doctor.worker.audit.ways import WAYS


class Probe(NamedTuple):
    """Calls that show one kind of fault."""

    name: str
    cases: Callable[[], Iterable[Case]]
    """In inference and training, as each matters."""
    why: str
    tolerance: str = "rounding"
    """What decides that a result is wrong."""
    compiled: bool = True
    """Also for a backend that is compiled for each shape, mask and layout."""
    tiled: bool = False
    """About the tiles of a fused kernel: an unfused one gets one call of `_UNTILED`, and one that
    is compiled for each length one of `_COMPILED`."""
    alone: bool = False
    """The calls need most of the memory of a GPU."""
    device: str = ""
    """The only kind of device that it is for; empty: all."""


_BOTH = (False, True)
#: They have no factor in common with tiles, so that the calls have many residues of lengths.
_UNTILED, _COMPILED = 9, 5


def _ordinary() -> Iterator[Case]:
    for values in VALUES:
        for training in _BOTH:
            yield Case(length=192, heads=2, kv_heads=2, batch=2, values=values, training=training)


def _lengths() -> Iterator[Case]:
    for length in range(128, 256):
        yield Case(length=length, training=True, level=-200)


def _plain_lengths() -> Iterator[Case]:
    for length in range(1, 130):
        yield Case(length=length, training=length % 2 == 0)


def _key_lengths() -> Iterator[Case]:
    for keys in range(128, 256, 3):
        yield Case(length=130, keys=keys, training=True, level=-120)
    for length, keys in ((1, 1000), (7, 300), (300, 7), (64, 1), (257, 128), (128, 257)):
        yield Case(length=length, keys=keys, training=True)


def _tiles() -> Iterator[Case]:
    for tile in (64, 128, 192, 256, 320, 384, 512, 640, 1024):
        for length in (tile - 1, tile, tile + 1):
            yield Case(length=length, training=True, values="rising")
            yield Case(length=length, causal=True, training=True)


def _levels() -> Iterator[Case]:
    for length in (192, 200, 256):
        for level in (-300, -220, -150, -100, -89, -60, 0, 60, 89, 100, 150, 220, 300):
            yield Case(length=length, training=True, level=level)
    for level in (-300, -89, 89, 300):
        yield Case(length=192, training=True, level=level, causal=True)


def _masks() -> Iterator[Case]:
    for mask in MASKS:
        for length in (192, 130):
            for training in _BOTH:
                yield Case(
                    length=length, heads=2, kv_heads=2, batch=2, mask=mask, training=training
                )


def _uneven_masks() -> Iterator[Case]:
    for mask in MASKS:
        yield Case(length=100, keys=157, heads=2, kv_heads=2, batch=2, mask=mask, training=True)


def _heads() -> Iterator[Case]:
    for kv_heads in range(1, 9):
        for group in (1, 2, 3):
            yield Case(length=160, heads=kv_heads * group, kv_heads=kv_heads, training=True)
        yield Case(length=1, keys=333, heads=kv_heads * 4, kv_heads=kv_heads)
        yield Case(
            length=160, heads=kv_heads * 2, kv_heads=kv_heads, training=True, causal=True, batch=2
        )


def _sizes() -> Iterator[Case]:
    for size in (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 112, 128, 136, 160, 192, 200, 256):
        for training in _BOTH:
            yield Case(length=160, size=size, heads=2, kv_heads=2, training=training)
    for size in (1, 2, 3, 12, 65, 100, 127, 129, 250, 512):
        yield Case(length=96, size=size, training=True)


def _layouts() -> Iterator[Case]:
    for layout in LAYOUTS:
        for training in _BOTH:
            batch = 1 if layout == "odd stride of a single sample" else 2
            yield Case(
                length=160, heads=2, kv_heads=2, batch=batch, layout=layout, training=training
            )
    for layout in LAYOUTS:
        batch = 1 if layout == "odd stride of a single sample" else 2
        yield Case(
            length=160, heads=4, kv_heads=2, batch=batch, layout=layout, training=True,
            mask="padding at the end",
        )  # fmt: skip


def _gradients() -> Iterator[Case]:
    for layout in ("heads first", "tokens first"):
        for gradient in GRADIENTS:
            yield Case(
                length=160, heads=2, kv_heads=2, batch=2, gradient=gradient, layout=layout,
                training=True,
            )  # fmt: skip
    # A single sample, as cuDNN's fault was seen with: the second call has the sizes of the first.
    for length, heads in ((256, 2), (2304, 4)):
        for gradient in ("plain", "sizes before tokens"):
            yield Case(
                length=length, size=128, heads=heads, kv_heads=heads, gradient=gradient,
                layout="tokens first", training=True,
            )  # fmt: skip


def _repeated() -> Iterator[Case]:
    """The same sizes and memory layout again and again, with other numbers."""
    for seed in range(6):
        values = ("normal", "with a mean", "large")[seed % 3]
        case = Case(
            length=200, heads=2, kv_heads=2, batch=2, values=values, seed=seed,
            training=seed % 2 == 1,
        )  # fmt: skip
        yield case
        yield case._replace(mask="hole")


def _dtypes() -> Iterator[Case]:
    for dtype in ("float16", "float32"):
        for values in VALUES:
            yield Case(length=192, heads=2, kv_heads=2, values=values, dtype=dtype, training=True)
        for level in (-200, 200):
            yield Case(length=192, level=level, dtype=dtype, training=True)
        for mask in ("hole", "a row without keys", "float"):
            yield Case(length=130, mask=mask, dtype=dtype, training=True)
        for layout in ("slices of one projection", "one element off", "sizes before tokens"):
            yield Case(length=130, layout=layout, dtype=dtype, training=True)


def _ways() -> Iterator[Case]:
    for how, way in WAYS.items():
        if how == "call":
            continue
        for dtype in ("bfloat16", "float32"):
            training = how != "CUDA graph"
            yield Case(length=256, heads=2, kv_heads=2, how=how, dtype=dtype, training=training)
        if not way.same_heads:
            yield Case(length=200, heads=4, kv_heads=2, how=how, mask="hole", training=training)


def _long() -> Iterator[Case]:
    for length in (1536, 2049, 4160):
        yield Case(length=length, training=True, level=-200)
    yield Case(length=3000, heads=2, kv_heads=1, causal=True, training=True)
    yield Case(length=2500, mask="rows", training=True)


def _huge() -> Iterator[Case]:
    """More than 2**31 scores, and masks of more than 2**31 and 2**32 elements."""
    yield Case(length=46400)
    yield Case(length=46400, causal=True)
    yield Case(length=16400, heads=8, kv_heads=8)
    yield Case(length=46400, mask="causal as a mask")
    yield Case(length=66000, mask="causal as a mask")


#: Cheap and telling ones come first: the time may end.
PROBES = (
    Probe("ordinary calls", _ordinary, "wrong everywhere, or with large scores and equal weights"),
    Probe(
        "lengths from 128 to 255 with scores near -200", _lengths,
        "every length over a multiple of 128 with a strongly negative log-sum-exp: cuDNN 9.19 gives"
        " NaN gradients for 64", tiled=True,
    ),
    Probe(
        "log-sum-exp from -300 to 300", _levels,
        "exp() overflows above 88 and is zero below -88 where a maximum is not taken away",
    ),
    Probe("masks", _masks, "which keys are hidden, and rows for which all are"),
    Probe(
        "masks with more keys than queries", _uneven_masks, "a mask that is read with other strides"
    ),
    Probe("memory layouts", _layouts, "inputs that are read with strides of another tensor"),
    Probe("layouts of the gradient", _gradients, "gradients that are read as contiguous"),
    Probe("the same sizes again", _repeated, "results, masks and buffers of an earlier call"),
    Probe("heads of keys from 1 to 8", _heads, "groups of queries, and their summed gradients"),
    Probe("lengths from 1 to 129", _plain_lengths, "partial tiles", tiled=True),
    Probe(
        "numbers of keys", _key_lengths, "partial tiles of keys, more or fewer keys than queries",
        tiled=True,
    ),
    Probe("beside tiles", _tiles, "lengths one below, at and above multiples of tiles", tiled=True),
    Probe("sizes of heads", _sizes, "padded heads, and instructions for 8 or 16 elements"),
    Probe("other dtypes", _dtypes, "code for float16 and float32"),
    Probe("ways to call", _ways, "compiled, in a graph, checkpointed, on two streams"),
    Probe("long sequences", _long, "sums over many tiles"),
    Probe(
        "more than 2**31 scores", _huge, "32-bit offsets", compiled=False, device="cuda", alone=True
    ),
)  # fmt: skip


_EVERY_LENGTH = next(probe for probe in PROBES if probe.tiled)


def cases(
    probe: Probe,
    *,
    route: str,
    device: str,
    phases: Iterable[str],
    dtype: str,
    seed: int = 0,
    name: str = "",
) -> list[Case]:
    """The calls of a probe for one backend; `dtype` takes the place of bfloat16."""
    wanted = {phase == "training" for phase in phases}
    if (route == "compiled" and not probe.compiled) or not device.startswith(probe.device):
        return []
    found = []
    for case in probe.cases():
        if case.training not in wanted and not (False in wanted and case.training):
            continue
        one = case if case.training in wanted else case._replace(training=False)
        if not device.startswith(WAYS[one.how].device) or (
            route == "compiled" and one.how == "compiled"
        ):
            continue
        own = dtype if one.dtype == "bfloat16" else one.dtype
        found.append(one._replace(dtype=own, seed=one.seed + seed))
    every = list(dict.fromkeys(found))
    if route == "compiled" and probe is not PROBES[0]:
        # Compiling takes seconds, and a call in training compares its output too.
        both = set(every)
        every = [one for one in every if one.training or one._replace(training=True) not in both]
        # The first of the tiled probes has every length over a multiple of 128.
        return every[::_COMPILED] if probe.tiled and probe is not _EVERY_LENGTH else every
    unfused = name == "_native_math" or (name == "flex" and route == "direct")
    return every[::_UNTILED] if probe.tiled and unfused else every
