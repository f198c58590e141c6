"""Where a command fits, in plain words, such as "Do this only on Linux".

The conditions of a fix name facts of attn-doctor (`system.os == "linux"`). A reader of a log does
not know them. A fact without words here keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.texts import phrase

#: Values that are names.
_WORDS = {
    "linux": "Linux", "windows": "Windows", "macos": "macOS", "cuda": "CUDA", "rocm": "ROCm",
    "cpu": "CPU", "mps": "MPS", "xpu": "XPU", "pypi": "PyPI",
    "amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel",
    "ubuntu": "Ubuntu", "debian": "Debian", "fedora": "Fedora", "rhel": "RHEL", "centos": "CentOS",
    "rocky": "Rocky Linux", "almalinux": "AlmaLinux", "amzn": "Amazon Linux", "ol": "Oracle Linux",
    "nixos": "NixOS",
}  # fmt: skip
#: What it means that a fact is empty, and that it is not; or yes and no.
_EITHER = {
    "build.compatible_toolkit": ("no CUDA toolkit fits torch", "a CUDA toolkit fits torch"),
    "build.nvcc": ("no nvcc is found", "nvcc is found"),
    "cc.source": ("no C compiler is found", "a C compiler is found"),
    "system.container": ("it runs outside a container", "it runs in a container"),
    "incomplete.version": ("its version is unknown", "its version is known"),
    "python.pythonpath_kept": ("PYTHONPATH names nothing else", "PYTHONPATH names other folders"),
    "torch.from_pypi": ("torch does not come from PyPI", "torch comes from PyPI"),
    "torch.from_pythonpath": ("torch is not on PYTHONPATH", "torch is on PYTHONPATH"),
    "torch.index_for_driver": ("no torch fits GPU and driver", "a torch fits GPU and driver"),
    "torch.local": ("torch's version has no + in it", "torch's version has a + in it"),
    "python.shadowing_here": (
        "no such file is in the working directory",
        "such a file is in the working directory",
    ),
}
_EMPTY: tuple[object, ...] = ("", [], ())
#: What it means that a fact has a value, and that it has not.
_STATES = {
    ("cc.source", "CC (missing)"): ("CC names a missing compiler", "CC names no missing compiler"),
    ("driver.best_sm", 0): ("CUDA sees no GPU", "CUDA sees a GPU"),
    ("driver.state", "ok"): ("the driver works", "the driver does not work"),
    ("extension.package", "hub"): ("it is a kernel of the Hub", "it is not a kernel of the Hub"),
    ("system.container", "lxc"): ("it runs in LXC", "it does not run in LXC"),
    ("torch.build", "cuda"): ("torch is a CUDA build", "torch is not a CUDA build"),
    ("torch.build", "rocm"): ("torch is a ROCm build", "torch is not a ROCm build"),
}
#: Facts that only the tables answer. Their conditions choose a command; a reader cannot tell.
_OF_TABLES = re.compile(
    r"(?:\w+\.again|extension\.re(?:build|quirement)|(?:torch|xformers)\.index"
    r"|torch\.(?:newest_(?:index|release)|natten_wheel))"
)
#: What a fact is called in a sentence.
_NAMES = {
    "build.cuda_major": "the CUDA release of the toolkit",
    "driver.best_sm": "the compute capability of the best GPU",
    "driver.state": "the state of the driver",
    "driver.version": "the driver's version",
    "driver.vendor": "the maker of the GPU",
    "extension.package": "the extension's package",
    "gpu.sm": "the compute capability of the GPU",
    "gpus.count": "the number of GPUs",
    "gpu.min_nvcc": "the oldest nvcc for the GPU",
    "library.source": "the place of the library",
    "python.base_prefix": "Python's folder",
    "python.environment": "the kind of Python environment",
    "system.arch": "the processor",
    "system.distribution": "the system",
    "system.distribution_version": "its version",
    "torch.cuda": "the CUDA version of torch",
    "torch.cuda_major": "the major CUDA version of torch",
    "torch.missing_libraries": "the list of missing libraries",
}
#: Facts whose value is a compute capability, ×10.
_SM_FACTS = ("driver.best_sm", "gpu.sm")
#: The GPUs of NVIDIA up to a generation. A list that begins with these has a shorter name.
_SMS = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
_FIRST = 3
#: How an operator reads.
_ORDERS = {"<": "is below", "<=": "is at most", ">": "is above", ">=": "is at least"}
#: The lists of facts that a rule can go through, in a sentence.
_LISTS = {
    "pci": "GPUs on the PCI bus",
    "gpus": "GPUs",
    "extensions": "compiled extensions",
    "shadowing_libraries": "libraries that hide others",
    "unmet_requirements": "unmet requirements",
    "incomplete_packages": "incomplete packages",
    "damaged_metadata": "damaged packages",
    "manifests": "kernels built ahead of time",
}


def where_it_fits(conditions: Sequence[Condition]) -> str:
    """A sentence that says where a command fits; empty if a reader cannot tell."""
    conditions = [one for one in conditions if not _OF_TABLES.fullmatch(one.fact)]
    if not conditions:
        return ""
    systems = [one for one in conditions if one.fact == "system.os" and one.op in ("==", "in")]
    if len(systems) == len(conditions) == 1:
        return f"Do this only on {_values(systems[0])}."
    shorter = (part for one in conditions for part in _shortened(one))
    return f"Do this only if {' and '.join(_merged(dict.fromkeys(map(clause, shorter))))}."


def there_are_no(elements: str) -> str:
    """A sentence part that says that a list of facts is empty."""
    return f"there are no {_LISTS.get(elements, elements.replace('_', ' '))}"


def _shortened(one: Condition) -> Iterator[Condition]:
    """The condition; "at least 80" and the rest for a list of all GPUs before that, and others."""
    values = one.value if isinstance(one.value, (list, tuple)) else ()
    run = next((at for at, sm in enumerate(_SMS) if sm not in values), 0)
    rest = [value for value in values if value not in _SMS[:run]]
    named = one.fact in _SM_FACTS and run >= _FIRST
    if not named or (one.op == "in" and rest):
        yield one
        return
    yield replace(one, op="<" if one.op == "in" else ">=", value=_SMS[run])
    if rest:
        yield replace(one, value=rest)


def _merged(clauses: Iterable[str]) -> list[str]:
    """The clauses; "is at least 80" and "is not 87" of the same thing are one."""
    merged: list[str] = []
    for clause in clauses:
        subject, _, values = clause.partition(" is not ")
        if values and merged and merged[-1].startswith(f"{subject} is at least "):
            merged[-1] += f", but not {values}"
        else:
            merged.append(clause)
    return merged


def clause(one: Condition) -> str:
    """A condition in words, as a part of a sentence."""
    equal = one.op == "=="
    if one.op in ("==", "!=") and one.value in _EMPTY and not one.other:
        if one.fact.startswith("env."):
            return f"{one.fact[4:]} is {'not ' * equal}set"
        if one.fact in _EITHER:
            return _EITHER[one.fact][not equal]
    if isinstance(one.value, bool) and one.op in ("==", "!="):
        package, _, what = one.fact.partition(".")
        if what == "installed":
            return f"{package.replace('_', '-')} is {'not ' * (one.value is not equal)}installed"
        if one.fact in _EITHER:
            return _EITHER[one.fact][one.value is equal]
    if one.fact == "torch.build" and one.op in ("==", "in"):
        return f"torch is a {_values(one)} build"
    if one.fact == "system.wsl" and one.op in ("==", "!=", ">"):
        return f"it is WSL {one.value}" if one.value else f"it is {'not ' * equal}WSL"
    return _state(one) or _compared(one)


def _state(one: Condition) -> str:
    if one.op not in ("==", "!=") or isinstance(one.value, (list, tuple)):
        return ""
    words = _STATES.get((one.fact, one.value))
    return words[one.op == "!="] if words else ""


def _compared(one: Condition) -> str:
    name = "the system" if one.fact == "system.os" else _NAMES.get(one.fact)
    package, _, what = one.fact.partition(".")
    if package == "env":
        name = what
    if name is None and what == "version":
        name = f"the version of {package.replace('_', '-')}"
    if name is None or one.other:
        return phrase(one)
    if one.op in ("==", "in"):
        return f"{name} is {_values(one)}"
    if one.op in ("!=", "not in"):
        return f"{name} is not {_values(one)}"
    if one.op in ("satisfies", "contains"):
        return f"{name} {'fits' if one.op == 'satisfies' else 'contains'} {one.value}"
    if one.op in _ORDERS:
        return f"{name} {_ORDERS[one.op]} {_values(one)}"
    return phrase(one)


def _values(one: Condition) -> str:
    values = one.value if isinstance(one.value, (list, tuple)) else [one.value]
    if one.fact in _SM_FACTS:
        values = [f"{sm // 10}.{sm % 10}" for sm in values if isinstance(sm, int)]
    # That a fact is known says nothing to a reader.
    words = [_WORDS.get(str(value), str(value)) for value in values if value != ""]
    words = words or ["unknown"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
