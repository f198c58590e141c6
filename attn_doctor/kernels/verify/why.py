"""Says why a built kernel is not reused: which components of its keys differ.

There are two sources. The record beside the cache holds the build environment of each kernel, which
is compared with the present one. And a program that misses can be run once while torch records the
components of each key that it looks up; they are compared with the keys of what was built. The
builder saves those key components too, and a verification compares them (`cache_keys.py`).
Where neither source shows a difference, nothing is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.plan import (
    BuildRequest,
    PlannedBuild,
    mask_folders,
    missing,
    plan_build,
)
from attn_doctor.kernels.caches import stale_builds
from attn_doctor.kernels.gpus.descriptor import identifier
from attn_doctor.record.drift import REBUILD, ChangedComponent, changed_components
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.manifest import BuildEnvironment, EntryState, Manifest, Warmup
from attn_doctor.record.trace import Lookup
from attn_doctor.shell import commands

# [4s7voeeazqklzc76dzhfujwqguqd4zrigkv25iv46w3bnvwz6hj] example_inputs[0]: TensorMetadata(dtype=…)
_COMPONENT = re.compile(r"\[(?P<digest>[^\]]*)\] (?P<name>[^:]+): ?(?P<value>.*)", re.DOTALL)
#: Words of torch's keys → those of a user.
_WORDS = {
    "gm": "the traced graph (mask, score function, or the code around attention)",
    "example_inputs": "an input",
    "fx_kwargs": "how torch.compile was called",
    "inductor_config": "an Inductor setting",
    "torch_version": "torch's sources",
    "system_info": "the GPU, CUDA or Triton",
    "deterministic_algorithms_settings": "torch.use_deterministic_algorithms",
    "cuda_matmul_settings": "the precision of matrix products (TF32)",
    "default_cuda_device_index": "the index of the GPU",
    "default_dtype": "torch.set_default_dtype",
    "grad_enabled": "whether gradients are on",
}
#: Characters of a value that are shown.
_SHOWN = 70


class Factor(Struct, frozen=True, kw_only=True):
    """One component of a key that differs."""

    name: str
    """As torch calls it, such as `example_inputs[0]`."""
    means: str
    """What it is, in words; empty if torch's name is all there is."""
    was: str
    now: str


class Reason(Struct, frozen=True, kw_only=True):
    """Why one graph of a program was not found."""

    kind: str
    """`fxgraph` or `aotautograd`"""
    key: str
    nearest: str
    """The kernel whose key is most alike; empty if nothing comparable was built."""
    factors: tuple[Factor, ...]
    bypassed: str = ""
    """Why torch did not use its cache at all."""


class DeviceKernels(Struct, frozen=True, kw_only=True):
    """The kernels that were built for one device slot."""

    device_slot: str
    items: tuple[PlannedBuild, ...]
    """Each kernel with its present state and the reason."""
    warmups: dict[str, str]
    """Command line of each warm-up → why it would compile again; empty if it is reused."""
    changed: tuple[ChangedComponent, ...]
    """Every component that differs, also those without effect."""
    seconds: float
    """Expected time of building the missing kernels again, from their first build."""
    programs: tuple[str, ...] = ()
    """Command lines of warm-ups that would be reused and were not verified on their GPU."""
    failed: frozenset[str] = frozenset()
    """Keys of items whose last build failed, so that their build time is unknown."""
    build: tuple[str, ...] = ()
    """Commands that rebuild what would not be reused."""
    verify_command: str = ""
    """The command that verifies what would be reused; to run on the GPU of the slot."""

    @property
    def missing(self) -> tuple[PlannedBuild, ...]:
        """Kernels that would be compiled again."""
        return tuple(item for item in self.items if item.todo and item.state != "unverified")

    @property
    def misses(self) -> tuple[str, ...]:
        """A sentence for each kernel and warm-up that would not be reused."""
        kernels = [f"{item.spec.title} ({self.device_slot}): {item.why}" for item in self.missing]
        programs = [f"{command}: {why}" for command, why in self.warmups.items() if why]
        return (*kernels, *programs)

    @property
    def unverified(self) -> tuple[str, ...]:
        """Kernels and warm-ups that would be reused, but are not verified."""
        waiting = [item.spec.title for item in self.items if item.state == "unverified"]
        return (*waiting, *self.programs)


def kernels_by_device(
    manifest: Manifest, facts: Facts, folder: Path, environ: Mapping[str, str]
) -> list[DeviceKernels]:
    """Compare the record of `folder` with this machine, for each device slot."""
    recorded = [one.device_slot for one in manifest.entries.values()]
    recorded += [one.device_slot for one in manifest.warmups.values()]
    return [_place(place, manifest, facts, folder, environ) for place in dict.fromkeys(recorded)]


def _place(
    place: str, manifest: Manifest, facts: Facts, folder: Path, environ: Mapping[str, str]
) -> DeviceKernels:
    device, _, name = place.partition(" ")
    was = manifest.environments.get(place)
    entries = {key: one for key, one in manifest.entries.items() if one.device_slot == place}
    warmups = {key: one for key, one in manifest.warmups.items() if one.device_slot == place}
    request = BuildRequest(
        specs=tuple(one.spec for one in entries.values()),
        devices=(device,),
        facts=facts,
        folder=folder,
        environ=dict(environ),
        sys_path=(*mask_folders(entries.values()), str(Path.cwd())),
    )
    items = plan_build(request, manifest, names={device: name} if name else None).kernels
    now = environment_from_facts(facts, device, environ, was)
    stale = stale_builds.stale(manifest, place, now, str(folder)).warmups
    gone = {key: stale.get(key) or _gone(folder, one) or one.fault for key, one in warmups.items()}
    failed = frozenset(key for key, one in entries.items() if one.state == "failed")
    missed = [item for item in items if item.todo and item.state != "unverified"]
    lost = [one for key, one in warmups.items() if gone[key]]
    states = {entries[item.key].state for item in missed}
    return DeviceKernels(
        device_slot=place,
        items=items,
        warmups={" ".join(one.argv): gone[key] for key, one in warmups.items()},
        changed=changed_components(was, now) if was else (),
        seconds=sum(item.seconds for item in missed if item.key not in failed),
        programs=tuple(
            " ".join(one.argv)
            for key, one in warmups.items()
            if one.unverified and key not in stale
        ),
        failed=failed,
        build=(
            *([_kernels(folder, facts, name, states)] if missed else ()),
            *(_program(folder, facts, one, name) for one in lost),
        ),
        # The path of an environment means nothing on another machine.
        verify_command=commands.verify(folder, None if _target(facts, name) else facts),
    )


def _kernels(folder: Path, facts: Facts, name: str, states: set[EntryState]) -> str:
    """Return the command that rebuilds kernels: on their GPU, or without it as before."""
    target = _target(facts, name) if states == {"unverified"} else ()
    return commands.build(folder, facts, *target)


def _program(folder: Path, facts: Facts, warmup: Warmup, name: str) -> str:
    """Return the command that runs a program again, in its folder."""
    target = _target(facts, name) if warmup.unverified else ()
    again = commands.build(folder, facts, *target, program=warmup.argv)
    there = _is_here(warmup.folder)
    return again if there else f"cd {commands.word(warmup.folder)} && {again}"


def _is_here(folder: str) -> bool:
    try:
        return os.path.realpath(folder) == os.path.realpath(os.curdir)
    except ValueError:  # a record may hold a NUL
        return False


def _target(facts: Facts, name: str) -> tuple[str, ...]:
    """`--target NAME` for a GPU that this machine does not have."""
    here = {gpu.name for gpu in facts.gpus or () if gpu.visible is not False}
    return ("--target", identifier(name)) if name and name not in here else ()


def _gone(folder: Path, warmup: Warmup) -> str:
    gone = missing(folder, warmup.files)
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    return f"{gone[0]}{more} is missing or has another size" if gone else ""


def reasons(ran: Iterable[Lookup], known: Mapping[str, list[Lookup]]) -> list[Reason]:
    """Return the reason of each miss, in the order of the lookups.

    torch records no components of the joint keys for forward and backward; they are left out if
    the graphs in them are explained.
    """
    found = [_reason(one, known) for one in ran if one.what != "hit"]
    explained = [one for one in found if one.nearest or one.bypassed]
    return explained or found


def _reason(missed: Lookup, known: Mapping[str, list[Lookup]]) -> Reason:
    now = _components(missed)
    best: tuple[int, str, dict[str, tuple[str, str]]] | None = None
    for title, keys in known.items():
        for key in keys:
            if key.kind != missed.kind or not key.components:
                continue
            was = _components(key)
            distance = len(_differing(was, now))
            if best is None or distance < best[0]:
                best = (distance, title, was)
    if best is None or not now:
        return Reason(
            kind=missed.kind, key=missed.key, nearest="", factors=(), bypassed=missed.reason
        )
    _, title, was = best
    factors = [_factor(name, was.get(name), now.get(name)) for name in _differing(was, now)]
    return Reason(
        kind=missed.kind,
        key=missed.key,
        nearest=title,
        factors=_together(factors),
        bypassed=missed.reason,
    )


def _together(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """Inputs that differ alike, such as q, k and v, as one factor."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in factors:
        alike.setdefault((one.means, one.was, one.now), []).append(one.name)
    return tuple(
        Factor(name=", ".join(names), means=means, was=was, now=now)
        for (means, was, now), names in alike.items()
    )


def _components(one: Lookup) -> dict[str, tuple[str, str]]:
    matches = map(_COMPONENT.match, one.components)
    return {found["name"]: (found["digest"], found["value"]) for found in matches if found}


def _differing(was: Mapping[str, tuple[str, str]], now: Mapping[str, tuple[str, str]]) -> list[str]:
    names = dict.fromkeys([*now, *was])
    return [name for name in names if _digest(was, name) != _digest(now, name)]


def _digest(components: Mapping[str, tuple[str, str]], name: str) -> str:
    found = components.get(name)
    return found[0] if found else ""


def _factor(name: str, was: tuple[str, str] | None, now: tuple[str, str] | None) -> Factor:
    means = _WORDS.get(re.split(r"[\[.]", name)[0], "")
    if was is None or now is None:
        return Factor(
            name=name,
            means=means,
            was=_short(was[1]) if was else "not there",
            now=_short(now[1]) if now else "not there",
        )
    old, new = _apart(was[1], now[1])
    return Factor(name=name, means=means, was=old, now=new)


def _apart(was: str, now: str) -> tuple[str, str]:
    """What differs between two values: fields of a tensor's description, else a line of a text."""
    old, new = _fields(was), _fields(now)
    if old and new:
        names = [name for name in new if old.get(name) != new[name]]
        if names:
            return (
                ", ".join(f"{name}={old.get(name, '?')}" for name in names),
                ", ".join(f"{name}={new[name]}" for name in names),
            )
    for one, other in zip(was.splitlines(), now.splitlines(), strict=False):
        if one != other:
            return _short(one.strip()), _short(other.strip())
    return _short(was), _short(now)


def _fields(value: str) -> dict[str, str]:
    """`TensorMetadata(dtype=torch.float32, shape=torch.Size([2, 4]), …)` by its fields."""
    if not value.startswith("TensorMetadata("):
        return {}
    pairs = re.findall(r"(\w+)=((?:torch\.Size\()?[\[(][^\])]*[\])]+|[^,()]+)", value[15:])
    return {name: text.removeprefix("torch.") for name, text in pairs}


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# Misses in words

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
#: Environment variables of torch's settings.
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
    """Return the reasons of a miss, from a verification's message and the build environments.

    `was` is the build environment of the kernel, `now` the present one. Digests are left out if
    other parts of the key say more. Each reason is returned once.
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
        # A digest of the other parts.
        if part is not None and part["name"] != "system_info[hash]":
            yield of_factor(part["name"], part["was"], part["now"])


def of_factor(name: str, was: str, now: str) -> Miss:
    """Explain one differing part of a key, by torch's name for it."""
    setting = _SETTING.fullmatch(name)
    if setting is not None:
        return _of_setting(setting["name"], _plain(was), _plain(now))
    if name.startswith(("system_info", "GPU, Triton or CUDA")):
        names = [_NAME.search(text) for text in (was, now)]
        if names[0] and names[1] and names[0]["name"] != names[1]["name"]:
            return _pair("GPU", names[0]["name"], names[1]["name"], _OTHER_GPU)
        return _pair("CUDA or Triton", was, now, _WHEELS)
    if name in ("torch_version", "torch's own code"):
        return Miss(what="torch's own files: not those of the build", fix=_WHEELS)
    return _pair(name, was, now, _CODE)


def _of_setting(name: str, was: str, now: str) -> Miss:
    variable = _SETTINGS.get(name) or f"TORCHINDUCTOR_{name.upper().replace('.', '_')}"
    if name in _SETTINGS:
        return _pair(name, was, now, f"{_back(variable, was)}, {_AGAIN}")
    fix = f"set it in the program as in the build ({variable}, where torch reads that), {_AGAIN}"
    return _pair(f"Inductor's setting {name}", was, now, fix)


def _of_move(one: ChangedComponent) -> Miss:
    name = one.component
    if name in ("torch", "torch_cuda", "triton", "python"):
        return _pair(name, one.was, one.now, _WHEELS)
    if name in ("torch_key", "triton_key"):
        return Miss(what=f"{name}: different here and there", fix=_WHEELS)
    if name in ("device", "sm"):
        return _pair("GPU" if name == "device" else "sm", one.was, one.now, _OTHER_GPU)
    if name.isupper():
        return _pair(name, one.was or "not set", one.now or "not set",
                     f"{_back(name, one.was)}, {_AGAIN}")  # fmt: skip
    return Miss(what=one.sentence, fix=_AGAIN.removeprefix("or "))


def _back(variable: str, was: str) -> str:
    """How to restore a variable; without CXX torch uses `g++`."""
    unset = not was or (variable == "CXX" and was == "g++")
    return f"unset {variable}" if unset else f"set {variable}={was}"


def _pair(name: str, was: str, now: str, fix: str) -> Miss:
    return Miss(what=f"{name}: {now or 'none'} here, {was or 'none'} there", fix=fix)


def _plain(value: str) -> str:
    """`g++` of `(None, 'g++')`, as Inductor keeps its compilers; any other value unchanged."""
    found = re.fullmatch(r"[(\[]None, '(.*)'[)\]]", value)
    return found[1] if found else value


def short(message: str) -> str:
    """A verification's message without the parts that `misses` explains."""
    return _DIFFERS.sub("", message)
