"""The output of `cache why`: the components that changed, then the effect on each kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import span
from attn_doctor.render.json_text import result
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

if TYPE_CHECKING:
    from attn_doctor.kernels.verify.why import DeviceKernels, Factor, Reason

_EFFECTS = {
    "rebuild": "compiled again",
    "partly": "partly compiled again",
    "none": "changes nothing",
}
_KINDS = {"fxgraph": "graph", "aotautograd": "forward and backward"}


def why_text(
    folder: str,
    places: Iterable[DeviceKernels],
    terminal: Terminal,
    remarks: Sequence[str] = (),
) -> str:
    """For each device: the components that differ, the kernels that are not reused, the fix."""
    notes = [f"! {remark}" for remark in remarks]
    lines = (line for place in places for line in _place(folder, place))
    return terminal.page(map(clean, [*notes, *lines]))


def _place(folder: str, place: DeviceKernels) -> Iterator[str]:
    yield f"{folder}, built for {place.device_slot}"
    for change in place.changed:
        mark = "✗" if change.effect == "rebuild" else "!" if change.effect == "partly" else "·"
        absent = "unset" if change.component.isupper() else "none"
        values = f"{change.was or absent} → {change.now or absent}"
        effect = _EFFECTS.get(change.effect, change.effect)
        yield f"  {mark} {change.component}: {values} ({effect})"
    for name in place.unverified:
        yield f"  ! {name} is reused on its GPU, and is not verified there yet"
    if place.unverified:
        yield f"  verify there: {place.verify_command}"
    warmups = {command: why for command, why in place.warmups.items() if why}
    if place.missing or warmups:
        yield from _missing(place, warmups)
        return
    counts = [plural(len(place.items), "kernel")] if place.items else []
    counts += [plural(len(place.warmups), "warm-up")] if place.warmups else []
    yield f"  ✓ {' and '.join(counts)}: reused; no relevant component changed"


def _missing(place: DeviceKernels, warmups: Mapping[str, str]) -> Iterator[str]:
    """What is not reused, the time that costs, and the fix."""
    named = {one.sentence for one in place.changed}
    for item in place.missing:
        why = "" if item.why in named else f": {item.why}"
        words = "was not built" if item.key in place.failed else "is compiled again"
        yield f"  ✗ {item.spec.title} {words}{why}"
    for command, why in warmups.items():
        yield f"  ✗ {command} compiles again" + ("" if why in named else f": {why}")
    if place.seconds:
        yield f"  This takes about {span(place.seconds)} in each process that needs all of them."
    yield from _fix(place)


def _fix(place: DeviceKernels) -> Iterator[str]:
    """Restore a variable that changed, or build again."""
    for change in place.changed:
        if change.effect != "none" and change.component.isupper():
            value = f"{change.component}={commands.word(change.was)}"
            yield f"  undo:  {f'export {value}' if change.was else f'unset {change.component}'}"
    for command in place.build:
        yield f"  build: {command}"


def why_json(folder: str, places: Iterable[DeviceKernels], code: int) -> str:
    """The same as JSON."""
    data = [
        {
            "device_slot": place.device_slot,
            "changed": place.changed,
            "kernels": [
                {
                    "title": item.spec.title,
                    "reused": not item.todo or item.state == "unverified",
                    "why": item.why,
                }
                for item in place.items
            ],
            "warmups": place.warmups,
            "unverified": place.unverified,
            "seconds": place.seconds,
            "build": place.build,
        }
        for place in places
    ]
    return result(folder=folder, exit_code=code, devices=data)


def program_text(folder: str, hits: int, missed: Sequence[Reason], terminal: Terminal) -> str:
    """The hits and misses of a program, with the components that differ."""
    return terminal.page(map(clean, _program(folder, hits, missed)))


def _program(folder: str, hits: int, missed: Sequence[Reason]) -> Iterator[str]:
    if not hits and not missed:
        yield "The program compiled nothing with torch.compile, so no cache was used."
        return
    found = f"{plural(hits, 'lookup')} found in {folder}"
    yield found + (f", {len(missed)} missed:" if missed else ": everything is reused.")
    for miss in missed:
        yield f"✗ {_KINDS.get(miss.kind, miss.kind)} {miss.key[:12]}"
        if miss.bypassed:
            yield f"  torch did not use its cache: {miss.bypassed}"
        elif not miss.nearest:
            yield "  nothing comparable was built"
        else:
            yield f"  nearest: {miss.nearest}"
            yield from _factors(miss.factors)


def _factors(factors: Sequence[Factor]) -> Iterator[str]:
    for one in factors[:6]:
        means = f" ({one.means})" if one.means else ""
        yield f"  differs: {one.name}{means}: {one.was} → {one.now}"
    if len(factors) > 6:
        yield f"  … and {len(factors) - 6} more"
    if not factors:
        yield "  its components are equal: the entry is missing, or in another cache folder"


def program_json(folder: str, hits: int, missed: Sequence[Reason], code: int) -> str:
    """The same as JSON."""
    return result(folder=folder, exit_code=code, hits=hits, missed=missed)
