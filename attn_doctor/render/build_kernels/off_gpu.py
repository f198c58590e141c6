"""What is said of a build for GPUs of other machines: the stub GPU, what is not known, what next.

An unverified kernel must never read like a verified one: nothing ran on a GPU here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attn_doctor.kernels.builder.target import Target
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands


def names(targets: Sequence[Target]) -> str:
    """`NVIDIA H200` or `NVIDIA H200 and NVIDIA A100`."""
    found = [target.name for target in targets]
    return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))


def headings(targets: Sequence[Target], terminal: Terminal) -> Iterator[str]:
    """What the kernels are for, and that no such GPU is here."""
    for target in targets:
        count = len(target.devices)
        also = f", {target.devices[0]} to {target.devices[-1]}" if count > 1 else ""
        words = f"for {target.title}{also}, on a stub GPU: kernels compile here but do not run"
        yield from (terminal.style(line, "dim") for line in terminal.wrap(clean(words), 2))


def next_steps(
    folder: str, targets: Sequence[Target], terminal: Terminal, *, exported: bool
) -> list[str]:
    """How the kernels get where the GPU is, and what has to be done there first."""
    there, place = names(targets), commands.word(folder)
    lines = terminal.wrap(
        "Unverified: a second process reused every kernel, but their numbers were never computed.",
        0,
    )
    if exported:
        words = f"Next: take the file to the {there}; the import verifies every kernel."
        return lines + terminal.wrap(words, 0)
    words = (
        f"Next: copy this folder to the same path on the {there}, where training can write to it,"
        " in an image (--docker) or as one file (--output FILE). There, verify the kernels, then"
        " train with both variables:"
    )
    lines += terminal.wrap(clean(words), 0)
    # A command is never wrapped: it is there to be copied.
    lines.append(f"  attn-doctor cache verify --cache-dir {place}")
    lines.append(f"  export {' '.join(variables(place))}")
    return lines


def variables(place: str) -> tuple[str, ...]:
    """What training sets; without the second, a C compiler is needed there once."""
    return (f"TORCHINDUCTOR_CACHE_DIR={place}", f"TRITON_HOME={place}")


def plain(targets: Sequence[Target]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "name": target.name,
            "id": target.descriptor.id,
            "sm": target.sm,
            "devices": list(target.devices),
            "given": target.word,
        }
        for target in targets
    ]
