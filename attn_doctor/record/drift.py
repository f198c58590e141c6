"""Which components of the build environment changed since a build, and what each change does.

The effects were read in the sources of torch 2.5 to 2.15, and measured: which keys hold what. A
component that is unknown on either side is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from attn_doctor.record.manifest import BuildEnvironment

#: What a change does: kernels are compiled again, a small part is, or nothing changes.
Effect = Literal["rebuild", "partly", "none"]
REBUILD: Effect = "rebuild"
PARTLY: Effect = "partly"
NONE: Effect = "none"


class ChangedComponent(Struct, frozen=True, kw_only=True):
    """One component that differs."""

    component: str
    """As in `BuildEnvironment`; for a variable or setting its name."""
    was: str
    now: str
    effect: Effect
    sentence: str


def changed_components(
    was: BuildEnvironment, now: BuildEnvironment
) -> tuple[ChangedComponent, ...]:
    """Every component that is known on both sides and differs, those that need a rebuild first."""
    cpu = was.device == "cpu"
    found = [
        _component(name, getattr(was, name), getattr(now, name), cpu=cpu)
        for name in _EFFECTS
        if _differs(name, getattr(was, name), getattr(now, name))
    ]
    found += _variables(was.environment, now.environment, cpu=cpu)
    if was.settings and now.settings:
        found += _settings(was.settings, now.settings)
    order = (REBUILD, PARTLY, NONE)
    return tuple(sorted(found, key=lambda change: order.index(change.effect)))


def stale_reason(found: Iterable[ChangedComponent]) -> str:
    """Why kernels are stale, in one line; empty if they are not.

    If torch itself changed, what comes with it (its CUDA, its sources, Triton) is only named.
    """
    causes = [one for one in found if one.effect == REBUILD]
    if not causes or causes[0].component != "torch":
        return "; ".join(one.sentence for one in causes)
    rest = [_SHORT[one.component] for one in causes[1:] if one.component in _SHORT]
    also = f" ({' and '.join(rest)} changed too)" if rest else ""
    others = [
        one.sentence
        for one in causes[1:]
        if one.component not in (*_SHORT, "torch_cuda", "torch_key", "triton_key", *_DIGESTS)
    ]
    return "; ".join([causes[0].sentence + also, *others])


#: Components that are named in a word beside torch, and digests that another torch always changes.
_SHORT = {"triton": "Triton", "python": "Python"}
_DIGESTS = ("inductor", "functorch")


# Components

#: Component → what its change does to kernels for a GPU, and to those for the processor.
_EFFECTS: dict[str, tuple[Effect, Effect]] = {
    "torch": (REBUILD, REBUILD),
    "torch_cuda": (REBUILD, REBUILD),
    "torch_key": (REBUILD, REBUILD),
    "triton": (REBUILD, REBUILD),
    "triton_key": (REBUILD, REBUILD),
    "device": (REBUILD, NONE),
    "sm": (REBUILD, NONE),
    "cpu": (NONE, REBUILD),
    # The graph cache hits and hands out the kernels of the old one.
    "ptxas": (NONE, NONE),
    # torch's and Triton's keys hash their extension modules; each minor release has others.
    "python": (REBUILD, REBUILD),
    "driver": (NONE, NONE),
    "cc": (NONE, NONE),
    "cxx": (NONE, PARTLY),
}
_WORDS = {
    "torch": "built for torch {was}, this is {now}",
    "torch_cuda": "built for a torch with CUDA {was}, this one has {now}",
    "torch_key": "torch's own sources have changed since it was built",
    "triton": "built by Triton {was}, this is {now}",
    "triton_key": "Triton's own files have changed since it was built",
    "device": "built on {was}, the GPU here is {now}",
    "sm": "built for sm_{was}, the GPU here is sm_{now}",
    "cpu": "built for a processor with {was}, this one has {now}",
    "ptxas": "compiled by ptxas {was}, now it is {now}; the cached kernels are still used",
    "python": "built with Python {was}, this is {now}",
    "driver": "built with driver {was}, this is {now}; compiled kernels stay valid",
    "cc": "the C compiler was {was}, now it is {now}; the cached kernels are still used",
    "cxx": "the C++ compiler was {was}, now it is {now}",
}


#: The same where one side has none; by whether the earlier side has one.
_ABSENT = {
    ("triton", False): "built without Triton, this is Triton {now}",
    ("triton", True): "built by Triton {was}, which is not installed now",
    ("torch_cuda", False): "built for a torch without CUDA, this one has {now}",
    ("torch_cuda", True): "built for a torch with CUDA {was}, this one has none",
}


def _component(name: str, was: object, now: object, *, cpu: bool) -> ChangedComponent:
    before, today = str(was), str(now)
    words = _WORDS[name] if before and today else _ABSENT.get((name, bool(before)), _WORDS[name])
    return ChangedComponent(
        component=name,
        was=before,
        now=today,
        effect=_EFFECTS[name][cpu],
        sentence=words.format(was=before or "none", now=today or "none"),
    )


def _differs(name: str, was: object, now: object) -> bool:
    if was is None or now is None:
        return False
    if name == "python":
        # A patch release changes neither the names of extension modules nor their headers' folder.
        return str(was).split(".")[:2] != str(now).split(".")[:2]
    if name == "triton":
        # triton-windows counts its builds as 3.5.0.post21, and calls itself 3.5.0.
        return re.split(r"\.post|\+", str(was))[0] != re.split(r"\.post|\+", str(now))[0]
    return was != now


#: Variables whose change the caches do not notice; kernels for a GPU know no threads. Not CXX: its
#: text is Inductor's setting `cpp.cxx` and so in every graph's key, also where nothing is C++.
_UNNOTICED = re.compile(r"TRITON_|DISABLE_PTXAS_OPT|NVIDIA_TF32_OVERRIDE|CC$")
#: What torch takes where a variable is not set, and puts into its keys all the same.
_DEFAULTS = {"CXX": "g++"}
#: Switches that decide whether caches and compilers are used at all; no key holds them.
_SWITCHES = re.compile(
    r"TORCHINDUCTOR_(?:FX_GRAPH_(?:REMOTE_)?CACHE|AUTOGRAD_(?:REMOTE_)?CACHE|FORCE_DISABLE_CACHES"
    r"|AUTOTUNE_REMOTE_CACHE|WORKER_START|COMPILE_THREADS|REDIS_URL|CACHE_DIR)$"
    r"|TORCH_COMPILE_(?:DISABLE|DEBUG|FORCE_DISABLE_CACHES|JOB_ID)$|TORCHDYNAMO_|TORCH_CACHING_PRECOMPILE$"
    r"|ENABLE_AOT_AUTOGRAD_CACHE$|TRITON_(?:CACHE_DIR|HOME|ALWAYS_COMPILE|INTERPRET)$"
)
_THREADS = re.compile(r"(?:OMP|MKL)_NUM_THREADS|ATEN_CPU_CAPABILITY")


def _variables(
    was: Mapping[str, str], now: Mapping[str, str], *, cpu: bool
) -> list[ChangedComponent]:
    found = []
    for name in sorted({*was, *now}):
        before, after = was.get(name, ""), now.get(name, "")
        # On macOS the default is another; there are no kernels for its GPUs.
        default = "" if cpu else _DEFAULTS.get(name, "")
        if (before or default) == (after or default) or _SWITCHES.match(name):
            continue
        unnoticed = _UNNOTICED.match(name) or (not cpu and _THREADS.match(name))
        text = f"{name} was {before or 'not set'}, now it is {after or 'not set'}"
        found.append(
            ChangedComponent(
                component=name,
                was=before,
                now=after,
                effect=NONE if unnoticed else REBUILD,
                sentence=f"{text}; the cached kernels are still used" if unnoticed else text,
            )
        )
    return found


def _settings(was: Mapping[str, str], now: Mapping[str, str]) -> list[ChangedComponent]:
    titles = {"inductor": "Inductor's", "functorch": "AOTAutograd's"}
    return [
        ChangedComponent(
            component=name,
            was=was.get(name, ""),
            now=now.get(name, ""),
            effect=REBUILD,
            sentence=f"{titles.get(name, name.replace('_', ' '))} settings are not those it was"
            " built with",
        )
        for name in sorted({*was, *now})
        if was.get(name) and now.get(name) and was[name] != now[name]
    ]
