"""Kinds of facts that differ from their Python type."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

#: A version as text, compared by PEP 440. As text, `2.10` does not become 2.1 in JSON.
Version = Annotated[str, Meta(extra={"kind": "version"})]

# Facts with a fixed set of values. Their meaning stands under the fields that use them.

Purpose = Literal["home", "tmp", "cache"]
PythonEnvironment = Literal["venv", "conda", "system", "embeddable"]
PciVendor = Literal["nvidia", "amd", "intel", "other"]
GpuVendor = Literal["nvidia", "amd", "intel", "apple", ""]
DriverState = Literal[
    "ok", "no-driver", "no-device", "no-gpu", "no-permission", "library-mismatch", "no-library",
    "container-without-runtime", "wsl-stub", "not-answering", "gpu-lost", "error",
]  # fmt: skip
Mig = Literal["enabled", "disabled", "unsupported"]
TorchBuild = Literal["cuda", "rocm", "xpu", "cpu", "mps"]
#: Code for a GPU: machine code, PTX that the driver compiles, or none; empty if it does not apply.
GpuCode = Literal["yes", "ptx", "no", ""]
Origin = Literal["index", "url", "vcs", "local", "editable", "conda", "system"]
ExtensionMismatch = Literal["torch", "cxx-abi", "libraries", "unchecked", ""]
ArchsSource = Literal["file", "table", ""]
#: Caches of compiled code, each with a folder of its own.
CacheFolder = Literal["inductor", "triton", "extensions", "jiterator", "driver", "cute", "hub"]
#: Those that are facts; `fxgraph` and `aotautograd` are folders in Inductor's.
CacheKind = Literal[CacheFolder, "fxgraph", "aotautograd"]
#: What a release that is newer than the tables is evaluated by.
Basis = Literal["source", "known", "unknown"]
PrebuiltWheel = Literal["yes", "no"]
DriverChange = Literal["newer", "older", ""]
DuplicatePlace = Literal["folder", "pythonpath", "path-file", "user", "environments"]
