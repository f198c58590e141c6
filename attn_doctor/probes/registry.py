"""The list of all probes. Their order does not matter."""

from __future__ import annotations

from attn_doctor.probes import nvidia
from attn_doctor.probes.installed import (
    extensions,
    files,
    libraries,
    metadata,
    packages,
    torch,
    triton,
)
from attn_doctor.probes.machine import caches, directories, environment, manifests, pci, system
from attn_doctor.probes.running import Probe
from attn_doctor.probes.toolchain import compilers, toolkits

PROBES: tuple[Probe, ...] = (
    nvidia.PROBE,
    Probe("compiler", ("cc", "cxx", "cl", "ninja", "cmake"), compilers.read),
    Probe("cache", ("caches",), caches.read),
    Probe("manifest", ("manifests",), manifests.read),
    Probe("system", ("system",), system.read),
    Probe("directory", ("directories",), directories.read),
    Probe("PCI", ("pci",), pci.read),
    Probe("toolkit", ("toolkits", "build"), toolkits.read),
    Probe("torch", ("torch",), torch.read),
    Probe("triton", ("triton",), triton.read),
    Probe("library", ("cuda_wheels", "shadowing_libraries"), libraries.read),
    Probe("extension", ("extensions",), extensions.read),
    Probe("package", (*packages.FIELDS, "unmet_requirements"), packages.read),
    Probe("metadata", ("damaged_metadata", "duplicates"), metadata.read),
    Probe("file", files.FIELDS, files.read),
    Probe("environment", ("env",), environment.read),
)
