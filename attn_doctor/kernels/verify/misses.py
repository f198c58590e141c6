"""A miss in words: the component that differs, its value here and there, and what to do about it.

Two witnesses are heard: the record of what a kernel was built in, held against this machine, and
the parts of torch's keys, which the builder saved and a proof compares (`cache_keys.py`).
Where neither tells, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from attn_doctor.record.drift import REBUILD, ChangedComponent, changed_components
from attn_doctor.record.manifest import BuildEnvironment

_AGAIN = (
    "or build again: `attn-doctor build-kernels` on the GPU itself, or with --target and the"
    " descriptor that `attn-doctor describe-gpu` writes here"
)
_WHEELS = (
    "install the wheels it was built with, or build again with those of this environment (the same"
    " image is the surest way)"
)
_OTHER_GPU = (
    "build for this GPU too (`build-kernels --target` takes several names, with commas); Triton's"
    " kernels serve every GPU of the same compute capability"
)
_CODE = "build again with the program and the files that run here"
#: What the settings of torch are called outside of it.
_SETTINGS = {"cpp.cxx": "CXX"}
#: Parts of a message as `worker/kernels/cache_keys.py` writes them: `name: was → now`.
_DIFFERS = re.compile(r"; differs: (?P<parts>.*)\Z", re.DOTALL)
_PART = re.compile(r"(?P<name>[^:]+): (?P<was>.*?) → (?P<now>.*)", re.DOTALL)
_SETTING = re.compile(r"(?:inductor|functorch|dynamo)_config\[(?P<name>[\w.]+)\]")
_NAME = re.compile(r"'?name'?: '(?P<name>[^']*)'")


class Miss(Struct, frozen=True, kw_only=True):
    """One reason why something is not reused."""

    what: str
    """As in `cpp.cxx: g++ here, /opt/gcc/bin/g++ there`."""
    fix: str
    """What makes it hit again, as a sentence without its full stop."""


def misses(
    message: str, was: BuildEnvironment | None = None, now: BuildEnvironment | None = None
) -> tuple[Miss, ...]:
    """What a proof's message and the surroundings tell of a miss, each reason once.

    `was` is what the kernel was built in, `now` what is here; of digests nothing is said where the
    key's own parts say more.
    """
    found = [*_of_keys(message)]
    changes = changed_components(was, now) if was is not None and now is not None else ()
    named = {one.what.partition(":")[0] for one in found}
    aliases = {"CXX": "cpp.cxx", "device": "GPU"}
    found += [
        _of_move(one)
        for one in changes
        if one.effect == REBUILD and aliases.get(one.component) not in named
    ]
    return tuple({one.what: one for one in found}.values())


def _of_keys(message: str) -> Iterator[Miss]:
    differs = _DIFFERS.search(message)
    for text in differs["parts"].split("; ") if differs else ():
        part = _PART.fullmatch(text)
        # A digest of what the other parts tell one by one.
        if part is not None and part["name"] != "system_info[hash]":
            yield of_factor(part["name"], part["was"], part["now"])


def of_factor(name: str, was: str, now: str) -> Miss:
    """The same of one part of a key, under torch's name for it."""
    setting = _SETTING.fullmatch(name)
    if setting is not None:
        return _of_setting(setting["name"], _plain(was), _plain(now))
    if name.startswith(("system_info", "GPU, Triton or CUDA")):
        names = [_NAME.search(text) for text in (was, now)]
        if names[0] and names[1] and names[0]["name"] != names[1]["name"]:
            return _pair("GPU", names[0]["name"], names[1]["name"], _OTHER_GPU)
        return _pair("CUDA or Triton", was, now, _WHEELS)
    if name in ("torch_version", "torch's own code"):
        return Miss(what="torch's own files: not those it was built with", fix=_WHEELS)
    return _pair(name, was, now, _CODE)


def _of_setting(name: str, was: str, now: str) -> Miss:
    variable = _SETTINGS.get(name) or f"TORCHINDUCTOR_{name.upper().replace('.', '_')}"
    if name in _SETTINGS:
        return _pair(name, was, now, f"{_back(variable, was)}, {_AGAIN}")
    fix = f"set it in the program as it was there ({variable}, where torch reads that), {_AGAIN}"
    return _pair(f"Inductor's setting {name}", was, now, fix)


def _of_move(one: ChangedComponent) -> Miss:
    name = one.component
    if name in ("torch", "torch_cuda", "triton", "python"):
        return _pair(name, one.was, one.now, _WHEELS)
    if name in ("torch_key", "triton_key"):
        return Miss(what=f"{name}: another one here and there", fix=_WHEELS)
    if name in ("device", "sm"):
        return _pair("GPU" if name == "device" else "sm", one.was, one.now, _OTHER_GPU)
    if name.isupper():
        return _pair(name, one.was or "not set", one.now or "not set",
                     f"{_back(name, one.was)}, {_AGAIN}")  # fmt: skip
    return Miss(what=one.sentence, fix=_AGAIN.removeprefix("or "))


def _back(variable: str, was: str) -> str:
    """How to have a variable as it was; `g++` is what torch takes where CXX is not set."""
    unset = not was or (variable == "CXX" and was == "g++")
    return f"unset {variable}" if unset else f"set {variable}={was}"


def _pair(name: str, was: str, now: str, fix: str) -> Miss:
    return Miss(what=f"{name}: {now or 'none'} here, {was or 'none'} there", fix=fix)


def _plain(value: str) -> str:
    """`g++` of `(None, 'g++')`, as Inductor keeps its compilers; anything else as it is."""
    found = re.fullmatch(r"[(\[]None, '(.*)'[)\]]", value)
    return found[1] if found else value


def short(message: str) -> str:
    """A proof's message without the parts that `misses` tells in words."""
    return _DIFFERS.sub("", message)


def told(found: Iterable[Miss]) -> str:
    """All reasons in one line."""
    return "; ".join(one.what for one in found)
