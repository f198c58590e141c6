"""What a log says of the machine that wrote it: versions, GPU, operating system.

Logs are full of it: pip's last line, wheel names, `collect_env`, `nvidia-smi`, paths in tracebacks,
and the messages themselves. What is told becomes facts, with which rules judge; what is not told
stays unknown. A statement about what is there counts more than a command that asks for it, and a
later statement more than an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from attn_doctor.facts import Facts
from attn_doctor.variables import VARIABLES

__all__ = ["Statement", "facts_from", "statements"]

#: Distributions by the name of their facts.
_PACKAGES = {
    "torch": "torch", "triton": "triton", "triton-windows": "triton", "pytorch-triton": "triton",
    "flash-attn": "flash_attn", "flash-attn-3": "flash_attn_3", "flash-attn-4": "flash_attn_4",
    "sageattention": "sageattention", "sageattn3": "sageattn3", "xformers": "xformers",
    "diffusers": "diffusers", "transformers": "transformers", "accelerate": "accelerate",
    "kernels": "kernels", "torchao": "torchao", "bitsandbytes": "bitsandbytes",
    "torchvision": "torchvision", "torchaudio": "torchaudio", "simpletuner": "simpletuner",
    "finetrainers": "finetrainers",
}  # fmt: skip
_VERSION = r"\d+\.\d+(?:\.\d+)?(?:[-.]?(?:a|b|rc|dev|post)\d{0,12}){0,3}(?:\+[a-z0-9]+(?:[._][a-z0-9]+){0,6})?"
_NAME = r"(?:torch(?:vision|audio|ao)?|triton(?:-windows)?|pytorch-triton|flash[-_]attn(?:[-_][34])?|sageattention|sageattn3|xformers|diffusers|transformers|accelerate|kernels|bitsandbytes|simpletuner|finetrainers)"

#: How far a statement is to be believed: a wish, a trace, a report.
_WISH, _TRACE, _REPORT = 1, 2, 3


class _Form(NamedTuple):
    """One way to state facts. Each named group tells the fact whose name it spells with `__`."""

    needs: tuple[str, ...]
    """Texts of which a log that states it so contains one, in lower case."""
    pattern: str
    strength: int


_FORMS = (
    # NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2
    _Form(
        ("driver version:",),
        r"Driver Version: (?P<driver__version>[\d.]{5,20}) +CUDA Version: (?P<driver__cuda_max>[\d.]{3,6})",
        _REPORT,
    ),
    _Form(
        ("driver version:",),
        r"(?i)Nvidia driver version: (?P<driver__version>[\d.]{5,20})",
        _REPORT,
    ),
    # Cuda compilation tools, release 10.1, V10.1.243
    _Form(("cuda compilation",), r"release (?P<build__version>\d+\.\d+), V\d", _REPORT),
    _Form(
        ("cuda runtime version",), r"CUDA runtime version: (?P<build__version>\d+\.\d+)", _REPORT
    ),
    _Form(
        ("detected cuda version",),
        r"detected CUDA version \((?P<build__version>\d+\.\d+)\)",
        _REPORT,
    ),
    _Form(("to compile",), r"used to compile\s+PyTorch \((?P<torch__cuda>\d+\.\d+)\)", _REPORT),
    _Form(
        ("cuda used to build",), r"CUDA used to build PyTorch: (?P<torch__cuda>\d+\.\d+)", _REPORT
    ),
    _Form(
        ("rocm used to build",), r"ROCM used to build PyTorch: (?P<torch__hip>\d+\.\d+)", _REPORT
    ),
    # Python version: 3.12.3 (main, Feb  4 2025, ...), Python 3.12.3 on a line of its own
    _Form(
        ("python",),
        rf"(?im)^[- ]{{0,4}}python(?: version)?:? (?P<python__version>3\.\d+(?:\.\d+)?)\b",
        _REPORT,
    ),
    _Form(("python3.",), r"[/\\]python(?P<python__version>3\.\d+)[/\\]", _TRACE),
    # Ubuntu 22.04: ldd (Ubuntu GLIBC 2.35-0ubuntu3) 2.35; Libc version: glibc-2.35
    _Form(
        ("glibc",),
        r"(?:with-glibc|Libc version: glibc-|ldd \(\S+ GLIBC )(?P<system__glibc>2\.\d+)",
        _REPORT,
    ),
    # PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)
    _Form(
        ("(you have ",),
        rf"PyTorch (?P<xformers__built_torch>{_VERSION}) with CUDA (?:(?P<xformers__built_cuda>\d+)|None) \(you have (?P<torch__version>{_VERSION})\)",
        _REPORT,
    ),
    # xformers 0.0.27 requires torch==2.3.1, but you have torch 2.4.0 which is incompatible.
    _Form(("but you have torch",), rf"but you have torch (?P<torch__version>{_VERSION})", _REPORT),
    # >>> torch.__version__
    # '2.7.1+cu126'
    _Form(
        ("torch.__version__",),
        rf"torch\.__version__\)?\s*[=:]{{0,2}}\s*'?(?P<torch__version>{_VERSION})",
        _REPORT,
    ),
    _Form(
        ("torch version",),
        rf"(?i)\b(?:py)?torch version\b(?: \(GPU\?\))?\s?[:=]+ ?(?P<torch__version>{_VERSION})",
        _REPORT,
    ),
    # A wheel's name tells what it was built for.
    _Form(
        ("flash_attn-",),
        r"flash_attn-[\d.a-z]+\+cu(?P<flash_attn__built_cuda>\d+)torch(?P<flash_attn__built_torch>\d+\.\d+)cxx11abi",
        _TRACE,
    ),
)
# Successfully installed flash-attn-2.8.3 torch-2.6.0
_INSTALLED = re.compile(rf"(?<![\w-])({_NAME})-({_VERSION})(?=\s|$)", re.IGNORECASE)
# [pip3] torch==2.4.0+cu121
_FROZEN = re.compile(
    rf"^ *(?:\[(?:pip3?|conda)\] )?({_NAME})(?:==| +)({_VERSION})\b *(?:\S+ *)?$", re.IGNORECASE
)
_ASKED = re.compile(rf"(?<![\w-])({_NAME})==({_VERSION})", re.IGNORECASE)
# Requirement already satisfied: torch in ...\site-packages (2.1.0+cu121)
_SATISFIED = re.compile(
    rf"already satisfied: ({_NAME})\b.{{0,400}}\(({_VERSION})\) *$", re.IGNORECASE
)
# Using cached flash_attn-2.8.3.tar.gz, torch-2.4.1-cp311-cp311-win_amd64.whl
_FILE = re.compile(rf"(?<![\w-])({_NAME})-({_VERSION})(?:-(?:cp|py)\d|\.tar\.gz)", re.IGNORECASE)
# xFormers version: 0.0.28
_STATED = re.compile(rf"\b({_NAME}) version\s?[:=] ?({_VERSION}|not installed)", re.IGNORECASE)
# Name: torch
# Version: 2.4.0+cu121
_SHOWN = re.compile(
    rf"^Name: ({_NAME})\n.{{0,40}}Version: ({_VERSION})", re.IGNORECASE | re.MULTILINE
)
_FOLDER = re.compile(rf"(?:site|dist)-packages[/\\]+({_NAME.replace('-', '_')})[/\\]")

# NVIDIA GeForce RTX 5090 with CUDA capability sm_120
_CAPABILITY = re.compile(
    r"with CUDA capability sm_(\d+)|your GPU has capability \((\d+), (\d+)\)"
    r"|of (?:cuda|CUDA) capability (\d+)\.(\d+)|Unsupported CUDA architecture: sm_?(\d+)"
    r"|Value 'sm_(\d+)a?' is not defined|for 'sm_(\d+)a?'"
)
_GPU = re.compile(
    r"(?:NVIDIA |GeForce |Tesla |Quadro |GPU \d: )"
    r"((?:GeForce )?(?:RTX|GTX) (?:A|PRO )?\d{3,4}(?: (?:Ti|SUPER|Super|Ada|D|Laptop))*|[TPVKM]\d{1,3}\b|[AHBL]\d{2,3}[SG]?\b(?:[- ](?:SXM\d?|PCIe|PCIE)?[- ]?\d{0,3}GB)?|RTX \d{4}|GH200|GB\d00|TITAN \w+)"
)
# RTX 5090: no message names one of these unless it is there.
_CARD = re.compile(r"\b((?:RTX|GTX) ?\d{3,4}(?: ?(?:Ti|SUPER|Super|D)\b)?)(?! ?\w*series|\+|xx)")
_WINDOWS = (
    "win_amd64",
    "win-amd64",
    ".dll",
    ".pyd",
    "\\site-packages\\",
    "\\appdata\\",
    "python_embeded",
    "c:\\",
)
_MACOS = ("/private/var/", "macosx", "/users/", "darwin")
_LINUX = (
    "linux_x86_64",
    "x86_64-linux",
    "manylinux",
    "/usr/lib/",
    "/home/",
    "/lib/x86_64",
    "aarch64-linux",
    "linux-gnu",
)
_ENV = re.compile(
    r"(?:^|\s|\$env:)([A-Z][A-Z0-9_]{1,40}) ?= ?[\"']?([^\s\"';&]{1,200})", re.MULTILINE
)


class Statement(NamedTuple):
    """One fact that a log states, and how far it is to be believed."""

    fact: str
    value: Any
    strength: int


def statements(text: str, lowered: str) -> Iterator[Statement]:
    """What a stretch of clean text states, in its order. `lowered`: the same in lower case."""
    for form in _FORMS:
        if any(need in lowered for need in form.needs):
            for match in _compiled(form.pattern).finditer(text):
                for group, value in match.groupdict().items():
                    if value:
                        yield Statement(group.replace("__", "."), value, form.strength)
    yield from _packages(text)
    yield from _gpus(text, lowered)
    yield from _system(lowered)
    for name, value in _ENV.findall(text):
        if name in VARIABLES:
            yield Statement(f"env.{name}", value, _WISH)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _packages(text: str) -> Iterator[Statement]:
    for line in text.split("\n"):
        if "-" not in line and "=" not in line and "ersion" not in line and "." not in line:
            continue
        if "Successfully installed" in line:
            yield from _versions(_INSTALLED.findall(line), _REPORT)
            continue
        if "already satisfied" in line:
            yield from _versions(_SATISFIED.findall(line), _REPORT)
            continue
        yield from _versions(_FILE.findall(line), _WISH)
        frozen = _FROZEN.findall(line)
        yield from _versions(frozen, _REPORT) if frozen else _versions(_ASKED.findall(line), _WISH)
        yield from _versions(_STATED.findall(line), _REPORT)
        for name in _FOLDER.findall(line):
            yield Statement(f"{_field(name)}.installed", True, _TRACE)
    if "Name: " in text:
        yield from _versions(_SHOWN.findall(text), _REPORT)


def _versions(found: Iterable[tuple[str, str]], strength: int) -> Iterator[Statement]:
    for name, version in found:
        field = _field(name)
        if version.lower() == "not installed":
            yield Statement(f"{field}.installed", False, strength)
            continue
        yield Statement(f"{field}.version", version, strength)
        if strength > _WISH:
            yield Statement(f"{field}.installed", True, strength)


def _field(name: str) -> str:
    return _PACKAGES[name.lower().replace("_", "-")]


def _gpus(text: str, lowered: str) -> Iterator[Statement]:
    if "sm_" in lowered or "capability" in lowered or "architecture: sm" in lowered:
        for match in _CAPABILITY.finditer(text):
            yield Statement("gpu.sm", int("".join(filter(None, match.groups()))), _REPORT)
    if any(word in lowered for word in ("nvidia ", "geforce ", "tesla ", "quadro ", "gpu ")):
        for name in _GPU.findall(text):
            yield Statement("gpu.name", name, _TRACE)
    if "tx" in lowered:
        for name in _CARD.findall(text):
            yield Statement("gpu.name", f"GeForce {_spaced(name)}", _WISH)


def _spaced(name: str) -> str:
    """`RTX4070Ti` as NVIDIA writes it."""
    return re.sub(r"(?<=\d)(?=[TSD])", " ", re.sub(r"(?<=X)(?=\d)", " ", name))


def _system(lowered: str) -> Iterator[Statement]:
    counts = {
        "windows": sum(lowered.count(mark) for mark in _WINDOWS),
        "macos": sum(lowered.count(mark) for mark in _MACOS),
        "linux": sum(lowered.count(mark) for mark in _LINUX),
    }
    best = max(counts, key=lambda os: counts[os])
    if counts[best]:
        yield Statement("system.os", best, _TRACE)
    if "/usr/lib/wsl/" in lowered or "wsl2" in lowered:
        yield Statement("system.os", "linux", _REPORT)
        yield Statement("system.wsl", 2, _TRACE)
    if "/hip/" in lowered and "triggered internally" in lowered:
        yield Statement("torch.build", "rocm", _REPORT)
        yield Statement("driver.vendor", "amd", _TRACE)


def facts_from(
    found: Iterable[Statement], tables: Callable[[], Mapping[str, Any]]
) -> tuple[Facts, set[str]]:
    """What was stated as facts, and the names of those that a log really states."""
    told: dict[str, Statement] = {}
    for one in found:
        known = told.get(one.fact)
        if known is None or one.strength >= known.strength:
            told[one.fact] = one
    values = {
        name: _cuda(one.value) if name.endswith(".built_cuda") else one.value
        for name, one in told.items()
    }
    _complete_torch(values)
    gpu: dict[str, Any] = {
        name.removeprefix("gpu."): values.pop(name)
        for name in ("gpu.name", "gpu.sm", "gpu.compute_capability")
        if name in values
    }
    if "compute_capability" in gpu:
        gpu.setdefault("sm", gpu["compute_capability"].replace(".", ""))
    if "sm" in gpu:
        gpu["sm"] = int(re.sub(r"\D", "", str(gpu["sm"])) or 0)
    if "name" in gpu and "sm" not in gpu and (sm := _capability(gpu["name"], tables())):
        gpu["sm"] = sm
    if values.get("system.os") == "macos" and not gpu:
        # Macs with NVIDIA GPUs are older than any torch that attention kernels run on.
        values.setdefault("driver.vendor", "apple")
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        nested.setdefault(head, {})[rest] = value
    if gpu:
        if "sm" in gpu:
            gpu["compute_capability"] = f"{gpu['sm'] // 10}.{gpu['sm'] % 10}"
        nested["gpus"] = [{"index": 0, "visible": True, **gpu}]
        nested.setdefault("driver", {}).setdefault("vendor", "nvidia")
    if values.get("driver.vendor") == "apple":
        nested["gpus"] = []
    try:
        # Not strict: the groups of a rule's pattern give text for numbers as well.
        facts = msgspec.convert(nested, Facts, strict=False)
    except msgspec.ValidationError:
        # Such a group caught something that is no value of its fact.
        own = [one for one in told.values() if one.strength <= _REPORT]
        return facts_from(own, tables) if len(own) < len(told) else (Facts(), set())
    return facts, {*values, *(f"gpu.{name}" for name in gpu)}


def _cuda(digits: str) -> str:
    """`118` of a wheel's name is 11.8, `1201` of xformers' is 12.1."""
    if len(digits) == 4:
        return f"{digits[:2]}.{int(digits[2:])}"
    return f"{digits[:2]}.{digits[2]}" if len(digits) == 3 else digits


def _complete_torch(values: dict[str, Any]) -> None:
    """What the version of torch says of its build: `2.4.1+cu121`, `+cpu`, `+rocm6.2`."""
    version = values.get("torch.version", "")
    local = version.partition("+")[2]
    if version:
        values.setdefault("torch.installed", True)
    if local:
        values["torch.local"] = local
    if local.startswith("cu") and local[2:].isdigit():
        digits = local[2:]
        values.setdefault("torch.cuda", f"{digits[:-1]}.{digits[-1]}")
    elif local.startswith("rocm"):
        values.setdefault("torch.hip", local.removeprefix("rocm"))
    elif local == "cpu":
        values["torch.build"] = "cpu"
        values.pop("torch.cuda", None)
    if "torch.hip" in values or values.get("torch.build") == "rocm":
        values["torch.build"] = "rocm"
        values.pop("torch.cuda", None)
    elif "torch.cuda" in values:
        values["torch.build"] = "cuda"


def _capability(name: str, tables: Mapping[str, Any]) -> int | None:
    """Compute capability ×10 of a GPU by its product name, if the table of devices knows it."""
    wanted = _plain(name)
    close: set[int] = set()
    for chip in tables.get("pci-nvidia", {}).get("chips", {}).values():
        for line in chip["ids"].splitlines():
            product = _plain(line[5:])
            if product and (product == wanted or f"{product} ".startswith(f"{wanted} ")):
                close.add(chip["sm"])
    return close.pop() if len(close) == 1 else None


def _plain(name: str) -> str:
    name = name.lower().replace("-", " ").removeprefix("nvidia ")
    for brand in ("geforce ", "tesla ", "quadro "):
        name = name.removeprefix(brand)
    return re.sub(r" laptop.*| gpu$", "", name).strip()
