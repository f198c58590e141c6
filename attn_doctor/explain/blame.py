"""The component to which a failure belongs, by its frames, its message and the lines around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attn_doctor.explain.components import Component, component_table
from attn_doctor.explain.failures import Failure
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.messages import KnownMessage, owner_of_source
from attn_doctor.rulebook.frames import Frame, passes_on

#: Innermost frames that show what kind of work failed.
_CLOSE = 2

#: Frames of TileLang and TVM, which name the parts of a kernel, not its work.
_GENERATED = re.compile(r"^<unknown>$|(?:^|/)(?:tilelang|tvm_ffi)/")
#: A file of a model or a program with its attention, which calls a component.
_CALLER = re.compile(r"(?i)(?:attn|attention)[^/]*$")
#: An option of a command, which does not say what failed.
_OPTION = re.compile(r"(?<!\S)--[\w-]+")
#: A line with a setting or a release, which does not say so either.
_SETTING = re.compile(
    r"(?m)^(?:\w+: )?[\w.-]+ *(?:=|: )=? *(?:v?\d[\w.+-]*|\w+ not found|N/A|true|false|none)\s*$",
    re.IGNORECASE,
)
#: What an installer says of a package while nothing is wrong with it.
_INSTALLER = re.compile(
    r"\s*(?:Collecting|Obtaining|Downloading|Using cached|Attempting uninstall|Found existing"
    r"|Installing collected|(?:Unins|Ins)talling|Successfully) "
)
#: The command that compiles the module with which Triton starts a kernel; it names that kernel.
_COMPILE = re.compile(r"Command '?\[.*\b(?:main|cuda_utils|hip_utils|__triton_launcher)\.c\b.*")
#: A module that cannot be loaded fails in whatever file imports it.
_IMPORT = re.compile(r"No module named|DLL load failed|undefined symbol")
#: The symbol for which it cannot be loaded, which names one of its functions.
_SYMBOL = re.compile(r"undefined symbol: \S+")
#: A class of attention that fails in the package of its framework.
_CLASS = re.compile(r"\b\w*Attention\w*(?:\.\w+\(\)|' object\b)")
#: torch's list of what an operator runs on, which is not what failed.
_BACKENDS = re.compile(r"(?s)is only available for these backends: .*")
#: A file that a message names.
_FILE = re.compile(r"'([^'\n]*/[^'\n]*)'")
#: A file with sources that a message names, as a compiler or a check of C++ does.
_SOURCE = re.compile(r"[\w./\\+-]{3,300}\.(?:cuh?|hip|cpp|cc|hp?p?|py)\b")


def is_unrelated(failure: Failure) -> bool:
    """The failure is not about attention. One about a file of the component it is in may be."""
    table = component_table()
    inner = failure.frames[-1] if failure.frames else None
    call = f"{inner.function} {inner.code}" if inner is not None else ""
    owners = [one for one in table.component if inner is not None and one.owns(inner.path)]
    if any(one.owns(path) for one in owners for path in _FILE.findall(failure.message)):
        return False
    other = log_signals().unrelated.search(failure.message)
    return other is not None or table.is_unrelated(failure.message, call)


def innermost(failure: Failure) -> str:
    """The message and the frames next to it, without the kernel for which Triton compiles."""
    frames = [frame for frame in failure.frames if not _GENERATED.search(frame.path)]
    close = () if _IMPORT.search(failure.message) else frames[-_CLOSE:]
    parts = (f"{frame.path} {frame.function} {frame.code}" for frame in close)
    said = _SYMBOL.sub("", _COMPILE.sub("", failure.message))
    return "\n".join((said, *parts))


def component_of(
    failure: Failure, known: KnownMessage | None
) -> tuple[Component | None, Frame | None]:
    """The component by the frames, by the message, then one that counts if no other does.

    `known`: the entry of the message in the index of messages.
    """
    table = component_table()
    failure = failure._replace(message=_BACKENDS.sub("", failure.message))
    parts = (f"{frame.path} {frame.function} {frame.code}" for frame in failure.frames)
    text = "\n".join((failure.message, failure.near, *parts))
    attention = re.search(table.attention, text) is not None
    kind = table.kind_of(failure.message).id
    able = [
        one
        for one in table.component
        if (attention or not one.attention) and (not one.kinds or kind in one.kinds)
    ]
    first = [one for one in able if not one.fallback]
    named = [one for one in first if one.is_named_in(failure.message)]
    platform = [one for one in first if one.before and one.is_named_in(text)]
    if (inmost := _inmost(failure, first)) is not None:
        one, frame = inmost
        return next((other for other in platform if one.id in other.before), one), frame
    inner = failure.frames[-1] if failure.frames else None
    owners = [component_of_file(path) for path in _SOURCE.findall(failure.message)]
    for owner in (*owners, _framework(failure, first)):
        if owner in first:
            return owner, inner
    if known is not None and known.names_its_component:
        return next(one for one in table.component if one.id == known.component), inner
    indirect = kind in ("died", "cut") or failure.traced
    outer = failure.frames if indirect else _of_setup(failure) if kind == "build" else ()
    if late := _further_up(outer, first):
        return late
    # A program compiles other kernels too; the frames around it would name attention.
    passed_on = [passes_on(frame.path) for frame in failure.frames]
    called = passed_on[-1:] == [True] and not all(passed_on)
    other = kind == "compile" and called and not attention
    last = [one for one in able if one.fallback and not other]
    named += [one for one in last if one.is_named_in(failure.message)]
    if named:
        return named[0], inner
    for one in last:
        if any(one.owns(frame.path) for frame in failure.frames[-3:]):
            return one, inner
    return None, None


def _framework(failure: Failure, components: Sequence[Component]) -> Component | None:
    """The framework in whose innermost frame a class with attention fails."""
    if not failure.frames or not _CLASS.search(failure.message):
        return None
    path = f"/{failure.frames[-1].path}"
    return next((one for one in components if f"/{one.id}/" in path), None)


def component_of_file(path: str) -> Component | None:
    """The component that a file belongs to, by its path, or by the index of messages."""
    path, table = path.replace("\\", "/"), component_table()
    owner = next((one for one in table.component if one.owns(path)), None)
    owner = owner or next((one for one in table.component if one.is_named_in(path)), None)
    known = "" if owner is not None else owner_of_source(path)
    return owner or next((one for one in table.component if one.id == known), None)


def _inmost(failure: Failure, components: Sequence[Component]) -> tuple[Component, Frame] | None:
    """The component of the innermost frame that does not only pass a call on."""
    for frame in reversed(failure.frames):
        for one in components:
            called = one.is_called_by(frame.code) or one.is_called_by(f"{frame.function}(")
            if one.owns(frame.path) or called:
                return one, frame
            if frame.native and one.is_named_in(frame.path.rsplit("/", 1)[-1]):
                return one, frame
        passed_on = passes_on(frame.path) or _CALLER.search(frame.path)
        if not frame.native and not passed_on:
            return None
    return None


def _of_setup(failure: Failure) -> tuple[Frame, ...]:
    """The frames of the script that builds a package."""
    return tuple(frame for frame in failure.frames if frame.path.endswith("setup.py"))


def _further_up(
    frames: Sequence[Frame], components: Sequence[Component]
) -> tuple[Component, Frame] | None:
    """The component that an outer frame names.

    A GPU reports a failure at a later call, torch's tracer one of the program that it traces, and
    a log that was cut does not say which call failed.
    """
    for frame in reversed(frames):
        text = f"{frame.path} {frame.function} {frame.code}"
        named = next((one for one in components if one.is_named_in(text)), None)
        if named is not None:
            return named, frame
    return None


def component_beside(failure: Failure) -> Component | None:
    """The component that the nearest line around a failure without frames names."""
    text = f"{failure.message}\n{failure.near}"
    attention = re.search(component_table().attention, text) is not None
    for line in _SETTING.sub("", _OPTION.sub("", failure.near)).split("\n"):
        if _INSTALLER.match(line) or log_signals().listed.search(line):
            continue
        reports = re.search(r"\berror\b", line) is not None
        for one in component_table().component:
            # A compiler is at fault only on a line with an error.
            able = (attention or not one.attention) and (reports or not one.fallback)
            if able and one.is_named_in(line):
                return one
    return None
