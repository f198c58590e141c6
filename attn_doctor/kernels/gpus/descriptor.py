"""Describes a GPU for a builder that does not have it: properties, and keys of its machine.

Neither the number of multiprocessors nor the size of a register file is in torch's or Triton's
cache keys, but both are in the generated source and drive its heuristics: a false value would give
kernels under right keys that the GPU's own build would not have made. So nothing is filled in from
the compute capability alone; what was not read from a GPU is None. It cannot know whether a number
was read from a GPU that its owner had changed, such as by a lower power limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

SCHEMA = 1

#: torch's properties, with the number of the CUdevice_attribute that holds the same value.
#: Source: the enumeration CUdevice_attribute in CUDA 13.0's cuda.h.
ATTRIBUTES = {
    "major": 75,
    "minor": 76,
    "multi_processor_count": 16,
    "L2_cache_size": 38,
    "regs_per_multiprocessor": 82,
    "max_threads_per_multi_processor": 39,
    "max_threads_per_block": 1,
    "warp_size": 10,
    "shared_memory_per_block": 8,
    "shared_memory_per_block_optin": 97,
    "shared_memory_per_multiprocessor": 81,
    "clock_rate": 13,
    "memory_clock_rate": 36,
    "memory_bus_width": 37,
}
#: Properties that Inductor or Triton reads while it generates code or chooses among tiles; without
#: one of them nothing may be built. The clocks and the bus drive estimates of time only.
NEEDED = (
    "multi_processor_count",
    "total_memory",
    "L2_cache_size",
    "regs_per_multiprocessor",
    "max_threads_per_multi_processor",
    "max_threads_per_block",
    "warp_size",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor",
)


class Descriptor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model of GPU, as torch and the driver describe it. None: unknown."""

    schema: int = SCHEMA
    name: str
    """Exactly as torch gives it, such as "NVIDIA H200": it is in the keys."""
    major: int
    minor: int
    multi_processor_count: int | None = None
    total_memory: int | None = None
    """Bytes."""
    L2_cache_size: int | None = None
    """Bytes."""
    regs_per_multiprocessor: int | None = None
    """32-bit registers."""
    max_threads_per_multi_processor: int | None = None
    max_threads_per_block: int | None = None
    warp_size: int | None = None
    shared_memory_per_block: int | None = None
    """Bytes that a kernel gets without a request."""
    shared_memory_per_block_optin: int | None = None
    """Bytes that a kernel can request; the limit of Triton's kernels."""
    shared_memory_per_multiprocessor: int | None = None
    """Bytes."""
    clock_rate: int | None = None
    """kHz."""
    memory_clock_rate: int | None = None
    """kHz."""
    memory_bus_width: int | None = None
    """Bits."""
    attributes: dict[str, int] = {}
    """CUdevice_attribute's number → value, as the driver answered."""
    driver: str = ""
    """Such as "580.159.04"; in no key."""
    driver_cuda: int | None = None
    """The CUDA that the driver serves, such as 13000 for 13.0."""
    environment: dict[str, str] = {}
    """Variables that enter keys and were set where the GPU is."""
    settings: dict[str, str] = {}
    """Digests of Inductor's and functorch's settings there."""
    software: dict[str, str] = {}
    """What has to be the same for the keys to be: torch, torch_git, torch_cuda, torch_key, triton,
    triton_key, ptxas, python, abi, machine, cc, cxx. Empty: a table's, which goes with any."""
    source: str = ""
    """What read these values: a command, or pages for all of them."""
    seen: dict[str, tuple[str, ...]] = {}
    """Where values of several origins were seen: address → names of fields."""
    probed: str = ""
    """The day, ISO 8601."""

    @property
    def sm(self) -> int:
        """Compute capability times ten, such as 90."""
        return self.major * 10 + self.minor

    @property
    def id(self) -> str:
        """The word for `--target`, such as `h200`."""
        return identifier(self.name)

    @property
    def missing(self) -> tuple[str, ...]:
        """Unknown properties without which nothing may be built."""
        return tuple(name for name in NEEDED if getattr(self, name) is None)

    @property
    def complete(self) -> bool:
        """Kernels can be built for it."""
        return not self.missing

    @property
    def own(self) -> bool:
        """It also describes one machine's software, not only a GPU."""
        return bool(self.software)

    def alone(self) -> Descriptor:
        """The GPU without its machine, as the table holds it."""
        return msgspec.structs.replace(self, environment={}, settings={}, software={})

    def faults(self) -> list[str]:
        """Contradictions in the description, as sentences; empty if there are none."""
        found = []
        if self.schema != SCHEMA:
            found.append(f"schema is {self.schema}; this attn-doctor reads {SCHEMA}")
        if not self.name.strip():
            found.append("name is empty")
        if not 3 <= self.major <= 20 or not 0 <= self.minor <= 9:
            found.append(f"{self.major}.{self.minor} is not a compute capability")
        for name in (*NEEDED, "clock_rate", "memory_clock_rate", "memory_bus_width"):
            value = getattr(self, name)
            # CUDA 13 does not report the clocks of some GPUs: they are 0 then.
            if value is not None and (value < 0 or (value == 0 and name in NEEDED)):
                found.append(f"{name} is {value}")
        for name, number in ATTRIBUTES.items():
            given, value = self.attributes.get(str(number)), getattr(self, name)
            if given and value and given != value:
                found.append(f"{name} is {value}, but attribute {number}, the same, is {given}")
        found += [
            f"attributes: {one} is not a number" for one in self.attributes if not one.isdigit()
        ]
        return found

    def completed(self) -> Descriptor:
        """Return the descriptor with missing properties filled from the attributes."""
        taken: dict[str, Any] = {
            name: self.attributes[str(number)]
            for name, number in ATTRIBUTES.items()
            if getattr(self, name) is None and str(number) in self.attributes
        }
        return msgspec.structs.replace(self, **taken) if taken else self

    def values(self) -> Mapping[str, int]:
        """The known properties of torch, by name."""
        names = ("major", "minor", "total_memory", *ATTRIBUTES)
        return {
            name: value
            for name in dict.fromkeys(names)
            if (value := getattr(self, name)) is not None
        }


def identifier(name: str) -> str:
    """A GPU's name as one word: "NVIDIA GeForce RTX 4090" gives rtx4090."""
    text = re.sub(r"\b(nvidia|geforce|tesla)\b", " ", name.lower())
    text = re.sub(r"\b(rtx|gtx) +(?=\d)", r"\1", text)
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
