"""Facts of a log in a user's words: `torch` for `torch.version`, `Windows` for `windows`."""

from __future__ import annotations

from collections.abc import Mapping

#: What stands before a value.
_LABELS: Mapping[str, str] = {
    "gpu.compute_capability": "compute capability",
    "gpu.name": "GPU",
    "gpu.sm": "GPU of architecture",
    "python.path": "interpreter",
    "python.prefix": "environment",
    "python.version": "Python",
    "system.arch": "processor",
    "system.os": "operating system",
    "driver.version": "NVIDIA driver",
    "driver.cuda_max": "newest CUDA of the driver",
    "torch.cuda": "torch for CUDA",
    "torch.hip": "torch for ROCm",
    "build.version": "nvcc of CUDA",
}
_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}


def label(fact: str) -> str:
    """What a fact is: `torch` for `torch.version`, `torch build` for `torch.build`."""
    component, _, field = fact.partition(".")
    package = component.replace("_", "-")
    other = package if field == "version" else f"{package} {field.replace('_', ' ')}".strip()
    return _LABELS.get(fact, other)


def value(fact: str, text: str) -> str:
    """A value as a user writes it."""
    if fact == "gpu.sm":
        return f"sm_{text}"
    return _SYSTEMS.get(text, text) if fact == "system.os" else text
