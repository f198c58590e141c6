"""Whether kernels fit another GPU, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attn_doctor.kernels.builder.fit import Fit, Tried
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.render.grouping import plural
from attn_doctor.render.json_text import result
from attn_doctor.render.terminal import Terminal, clean


def fit_text(fits: Sequence[Fit], descriptor: Descriptor, terminal: Terminal) -> str:
    """One paragraph a kernel: whether it fits, by which numbers, and what does."""
    limit = descriptor.shared_memory_per_block_optin or 0
    head = f"{descriptor.name}, SM {descriptor.major}.{descriptor.minor}"
    words = f"a block may take {limit} bytes of shared memory ({limit // 1024} KiB)"
    lines = [f"{terminal.style(head, 'bold')}: {words}"]
    for one in fits:
        lines += ["", *_kernel(one, descriptor, terminal)]
    unknown = sum(one.fits is None for one in fits)
    good = sum(one.fits is True for one in fits)
    words = f"{good} of {plural(len(fits), 'kernel')} {'fits' if 1 in (good, len(fits)) else 'fit'}"
    words += f"; {unknown} unknown" if unknown else ""
    lines += ["", terminal.style(words, "bold")]
    lines += terminal.wrap("Compiled for this GPU; no kernel was run, and no file was kept.", 0)
    return terminal.page(lines)


def _kernel(one: Fit, descriptor: Descriptor, terminal: Terminal) -> Iterator[str]:
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}
    mark, colour = marks[one.fits]
    yield f"{terminal.style(mark, 'bold', colour)} {clean(one.spec.title)}"
    if one.first.why:
        yield from terminal.wrap(clean(one.first.why), 4)
    if one.fits is not False or one.first.needed is None:
        return
    yield from terminal.wrap(f"{_over(one.first)}; the {descriptor.name} has {one.first.limit}", 4)
    if one.remedy is not None:
        yield "    fits with"
        yield f"      kernel_options={_python({**one.spec.kernel_options, **one.remedy})}"
        yield "    or, here"
        yield "      " + " ".join(f"--option {name}={value}" for name, value in one.remedy.items())
    elif one.spec.block:
        yield from terminal.wrap(
            "The model passes no kernel_options of its own: use a smaller dtype or another GPU.",
            4,
        )
    else:
        yield from terminal.wrap("Nothing smaller that was tried fits either.", 4)
    before: Mapping[str, Any] = {}
    for tried in one.smaller:
        added = {name: value for name, value in tried.options.items() if name not in before}
        words = ", ".join(f"{name}={value}" for name, value in (added or tried.options).items())
        words = f"also {words}" if before else f"tried {words}"
        result = "fits" if tried.fits else _over(tried) if tried.fits is False else tried.why
        yield from (
            terminal.style(line, "dim") for line in terminal.wrap(clean(f"{words}: {result}"), 4)
        )
        before = tried.options


def _over(tried: Tried) -> str:
    kernel = f"the {tried.kernel} kernel" if tried.kernel else "it"
    return f"{kernel} needs {tried.needed} bytes of shared memory a block"


def _python(options: Mapping[str, Any]) -> str:
    parts = (f"{json.dumps(name)}: {value!r}" for name, value in options.items())
    return "{" + ", ".join(parts) + "}"


def fit_json(found: Sequence[tuple[Descriptor, Sequence[Fit]]], code: int) -> str:
    """The same for one GPU or several with every number; `fits` is null where it is unknown."""
    return result(exit_code=code, targets=[_plain(descriptor, fits) for descriptor, fits in found])


def _plain(descriptor: Descriptor, fits: Sequence[Fit]) -> dict[str, Any]:
    return {
        "target": descriptor.id,
        "name": descriptor.name,
        "sm": descriptor.sm,
        "shared_memory_per_block_optin": descriptor.shared_memory_per_block_optin,
        "kernels": [
            {
                "id": one.spec.id,
                "title": one.spec.title,
                "spec": one.spec,
                "fits": one.fits,
                "remedy": one.remedy,
                "tried": (one.first, *one.smaller),
            }
            for one in fits
        ],
    }
