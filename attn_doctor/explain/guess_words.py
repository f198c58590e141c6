"""A guess in words: its title, the place, the values that a message names, and what to try."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attn_doctor.explain.components import Component, Kind, component_table
from attn_doctor.explain.explanation import Guess
from attn_doctor.explain.failures import Failure
from attn_doctor.explain.messages import KnownMessage
from attn_doctor.explain.symptom_match import excerpt
from attn_doctor.explain.wanted import wanted_in_words
from attn_doctor.findings import Fix, Safety
from attn_doctor.rulebook.frames import Frame

#: How messages write the value that was found and the one that was wanted.
_GOT = (
    r",? (?:but |and )?(?:got|found|received|you have)"
    r" (?P<seen>\([^)\n]{0,80}\)|(?:\(\)|(?! which )[^;\n(]){1,80})"
)
_WANTED = r"(?P<wanted>[^;\n]{1,100}?)"
_VALUES = tuple(
    map(
        re.compile,
        (
            rf"(?:[Ee]xpected|[Rr]equires?) {_WANTED}{_GOT}",
            r"takes (?P<wanted>[^(\n]{1,60}) but (?P<seen>[^\n]{1,100}?) (?:was|were) given",
            rf"(?:must|needs? to|expected to|should) (?:be|have) {_WANTED}{_GOT}",
            rf"[Oo]nly supports? {_WANTED}{_GOT}",
            r"\b(?:must|needs? to|expected to|should) (?:be|have) (?P<wanted>[^;\n]{1,120})",
            r"[Oo]nly supports? (?P<wanted>[^;\n]{1,120})",
            r"(?:does not|doesn't) support (?P<seen>[^;\n]{1,100})",
        ),
    )
)
_RANGE = re.compile(
    r"(?P<name>[A-Za-z][\w-]{1,40})(?: version)? ?"
    r"(?P<range>[<>=!~]=? ?\d[\w.+]{0,20}(?: ?, ?[<>=!~]=? ?\d[\w.+]{0,20}){0,3})"
)
#: What messages call a package, and the name by which it is installed.
_PACKAGES = {
    "flash-attention": "flash-attn", "flash-attn": "flash-attn", "pytorch": "torch",
    "torch": "torch", "triton": "triton", "transformers": "transformers", "xformers": "xformers",
    "diffusers": "diffusers", "sageattention": "sageattention", "kernels": "kernels",
    "accelerate": "accelerate", "flashinfer-python": "flashinfer-python",
}  # fmt: skip


def in_words(
    name: str,
    failure: Failure,
    component: Component,
    frame: Frame | None,
    known: KnownMessage | None = None,
    package: str = "",
) -> Guess:
    """The guess that a failure is one of this component. `package`: what was built."""
    message = failure.message
    if known is not None and known.component != component.id:
        known = None
    kind = component_table().kind_of(message)
    seen, wanted = _values(message)
    condition = _condition(frame) or (known.condition if known is not None else "")
    wanted = wanted or wanted_in_words(condition)
    title = kind.title.format(name=package or component.name)
    return Guess(
        component=component.id,
        name=component.name,
        kind=kind.id,
        file=name,
        line=failure.line.number,
        excerpt=excerpt(failure.line.text, failure.line.text.strip()),
        rank=failure.line.rank,
        # A name such as xformers keeps its first letter; an article gets a capital one.
        title=re.sub(r"^(?:a|the)\b", lambda match: match[0].capitalize(), title),
        frame=_place(frame),
        source=_source(known),
        condition=condition,
        seen=seen,
        wanted=wanted,
        fixes=tuple(_fixes(kind, message)),
    )


def _place(frame: Frame | None) -> str:
    if frame is None:
        return ""
    if frame.native:
        return frame.path
    return f"{frame.path}, line {frame.line}" + (f", in {frame.function}" if frame.function else "")


def _source(known: KnownMessage | None) -> str:
    """Where the sources of the component have the message."""
    if known is None:
        return ""
    function = f" ({known.function})" if known.function else ""
    releases = known.first if known.first == known.last else f"{known.first} to {known.last}"
    return f"{known.file}{function}, release {releases}"


def _condition(frame: Frame | None) -> str:
    """The condition under which an `assert` that the traceback shows fails."""
    code = frame.code if frame is not None else ""
    if not code.startswith("assert "):
        return ""
    asserted = re.split(r""", f?["'(]""", code.removeprefix("assert "))[0].strip(" (,")
    return f"not ({asserted})"


def _values(message: str) -> tuple[str, str]:
    """The value that was found and the one that was wanted, as the message writes them."""
    for pattern in _VALUES:
        if match := pattern.search(message):
            groups = match.groupdict()
            seen = (groups.get("seen") or "").strip(" .,:")
            # torch's own checks say that a condition is false, without the values.
            return "" if seen == "false" else seen, (groups.get("wanted") or "").strip(" .,:")
    return "", ""


def _fixes(kind: Kind, message: str) -> Iterator[Fix]:
    if kind.id in ("version", "platform") and (match := _RANGE.search(message)):
        package = _PACKAGES.get(match["name"].lower().replace("_", "-"))
        if package:
            wanted = f"{package}{match['range'].replace(' ', '')}"
            yield Fix(
                title=f"Install {package} within the range of the message",
                safety=Safety.MANUAL,
                run=(("pip", "install", wanted),),
            )
    for advice in kind.advice:
        yield Fix(title=advice.rstrip("."), safety=Safety.MANUAL)
