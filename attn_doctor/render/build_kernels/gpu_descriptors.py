"""GPUs that are not here: a descriptor as a file that a person can read, and the list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from attn_doctor.kernels.gpus.descriptor import ATTRIBUTES, Descriptor
from attn_doctor.render.json_text import json_text
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

#: NVIDIA's own table of what every GPU of a compute capability has, which descriptors cite.
CAPABILITIES = (
    "https://github.com/NVIDIA/cccl/blob/004ad1986064aaa82892ed00d0dbda88b90fa6e6/"
    "libcudacxx/include/cuda/__device/arch_traits.h"
)
_REMARKS = {
    "total_memory": "bytes",
    "L2_cache_size": "bytes",
    "regs_per_multiprocessor": "of 32 bits",
    "shared_memory_per_block": "bytes, without asking",
    "shared_memory_per_block_optin": "bytes, asked for: what a kernel may take",
    "shared_memory_per_multiprocessor": "bytes",
    "clock_rate": "kHz",
    "memory_clock_rate": "kHz",
    "memory_bus_width": "bits",
}
#: Width of the column of names in the list of GPUs; a longer name has a line of its own.
_COLUMN = 24
_TABLES = {
    "software": "Kernels must be built with the same: other releases have other keys.",
    "settings": "Digests of Inductor's and functorch's settings, which are in the keys.",
    "environment": "Variables that enter keys, as they were set here.",
    "attributes": "Everything else that the driver reports: number of CUdevice_attribute = value.",
    "seen": "Where each value was seen.",
}


def usage(file: str) -> str:
    """The command that builds for the GPU of a descriptor's file, on another machine."""
    name = commands.word(re.split(r"[/\\]", file)[-1])
    return f"attn-doctor build-kernels --target {name} --cache-dir DIR --preset NAME"


def descriptor_toml(found: Descriptor, file: str = "") -> str:
    """A descriptor as TOML with comments; `file`: the name it will have, for the command in it."""
    name = file or f"{found.id}.toml"
    capability = f"{found.major}.{found.minor}"
    lines = [
        f"# {clean(found.name)}, compute capability {capability}.",
        "# With this file kernels are built on a machine that has no such GPU.",
        "",
        f"schema = {found.schema}",
        f"name   = {_text(found.name)}  # in every key, exactly so",
        f"major  = {found.major}",
        f"minor  = {found.minor}",
        "",
    ]
    lines += _numbers(found)
    lines += [""]
    for field in ("driver", "driver_cuda", "source", "probed"):
        value = getattr(found, field)
        if value not in ("", None):
            lines.append(f"{field} = {_value(value)}")
    for field, remark in _TABLES.items():
        values: Mapping[str, Any] = getattr(found, field)
        if values:
            lines += ["", f"# {remark}", f"[{field}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    lines += ["", "# On the machine that builds:", f"#   {usage(name)}"]
    return "\n".join(lines) + "\n"


def _numbers(found: Descriptor) -> Iterator[str]:
    """Torch's properties in columns; what is missing stands there as a comment."""
    names = [name for name in ("total_memory", *ATTRIBUTES) if name not in ("major", "minor")]
    width = max(map(len, names))
    for name in names:
        value = getattr(found, name)
        remark = f"  # {_REMARKS[name]}" if name in _REMARKS else ""
        yield f"# {name}: unknown" if value is None else f"{name:<{width}} = {value}{remark}"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else _text(name)


def _value(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    return _text(str(value))


def _text(value: str) -> str:
    # TOML's basic strings are JSON's, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def descriptor_json(found: Descriptor) -> str:
    """A descriptor as JSON, which `--target` reads as well."""
    return json_text(found)


def written_text(found: Descriptor, file: str, terminal: Terminal) -> str:
    """What is said after a descriptor was written to a file."""
    lines = [f"{clean(found.name)}, compute capability {found.major}.{found.minor}: {file}"]
    lines += [f"  {name} is unknown" for name in found.missing]
    lines += ["Copy it to the machine that builds, with the same torch, Triton and Python:"]
    lines += [f"  {usage(file)}"]
    return terminal.page(lines)


def listing_text(
    found: Sequence[Descriptor], terminal: Terminal | None = None, *, verbose: bool = False
) -> str:
    """The table of known GPUs; `verbose`: with where their values come from."""
    terminal = terminal or Terminal()
    width = max((len(one.id) for one in found if len(one.id) <= _COLUMN), default=0)
    head = f"{'--target':<{width}}   SM  SMs  shared memory  name"
    lines = [terminal.style(head, "bold")]
    for gpu in found:
        count = "?" if gpu.multi_processor_count is None else str(gpu.multi_processor_count)
        optin = gpu.shared_memory_per_block_optin
        shared = "?" if optin is None else f"{optin // 1024} KiB"
        remark = "" if gpu.complete else " *"
        id = gpu.id
        if len(id) > width:
            lines.append(id)
            id = ""
        lines.append(f"{id:<{width}}  {gpu.sm:>3}  {count:>3}  {shared:>13}  {gpu.name}{remark}")
    some = [one for one in found if not one.complete]
    count = f"{len(found)} GPUs. For any other, run `attn-doctor describe-gpu -o gpu.toml` where it"
    words = [f"{count} is, and give --target that file."]
    if some:
        words.append(
            "* --fit only: not all was found that the generated code depends on, but whether a"
            " kernel's tiles fit can be shown."
        )
    words.append("Shared memory is that of one block.")
    for text in words:
        lines += ["", *terminal.wrap(text, 0)]
    if not verbose:
        return terminal.page(lines)
    lines += ["", "Sources:", f"  {CAPABILITIES} (what a compute capability fixes)"]
    for source, names in _sources(found).items():
        lines += [f"  {source}", *terminal.wrap(f"({', '.join(names)})", 4)]
    return terminal.page(lines)


def _sources(found: Sequence[Descriptor]) -> dict[str, list[str]]:
    """The GPUs by where their own values were seen, without those of a compute capability."""
    sources: dict[str, list[str]] = {}
    for gpu in found:
        own = [source for source in gpu.seen if source != CAPABILITIES]
        for source in own or filter(None, [gpu.source]):
            sources.setdefault(source, []).append(gpu.id)
    return sources


def listing_json(found: Sequence[Descriptor]) -> str:
    """The same with every value."""
    rows = [
        {
            "target": one.id,
            "sm": one.sm,
            "builds": one.complete,
            "missing": one.missing,
            **msgspec.to_builtins(one),
        }
        for one in found
    ]
    return json_text(rows)
