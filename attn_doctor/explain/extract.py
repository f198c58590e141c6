"""Extract facts about the machine that wrote a log: versions, GPU, operating system, variables.

Logs are full of statements: pip's last line, wheel names, `collect_env`, `nvidia-smi`, paths in
tracebacks, and the messages themselves. A statement about an installed version counts more than a
command that requests one, and a later statement more than an earlier one. A fact without a
statement stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from attn_doctor.env_vars import VARIABLES
from attn_doctor.facts import Facts
from attn_doctor.rulebook import library


class Confidence(IntEnum):
    """The reliability of a statement."""

    REQUESTED = 1
    """A command that asks for a version, or a product that is only mentioned."""
    INFERRED = 2
    """Derived from a path or a file name."""
    REPORTED = 3
    """Reported by a program."""
    DIRECT = 4
    """Part of the message of the failure itself."""


class Statement(NamedTuple):
    """One fact that a log states, and the reliability of that statement."""

    fact: str
    value: Any
    confidence: Confidence


class _Form(NamedTuple):
    """One way to state facts. A named group is the name of its fact, with `__` for a dot."""

    need: str
    """A text, in lower case, that every log with such a statement contains."""
    pattern: str
    confidence: Confidence = Confidence.REPORTED


#: Distributions whose facts have a different name.
_FIELDS = {"triton_windows": "triton", "pytorch_triton": "triton"}
_NAME = (
    r"(?:torch(?:vision|audio|ao)?|triton(?:-windows)?|pytorch-triton|flash[-_]attn(?:[-_][34])?"
    r"|sageattention|sageattn3|xformers|diffusers|transformers|accelerate|kernels|bitsandbytes"
    r"|simpletuner|finetrainers)"
)
_VERSION = (
    r"\d+\.\d+(?:\.\d+)?(?:[-.]?(?:a|b|rc|dev|post)\d{0,12}){0,3}"
    r"(?:\+[a-z0-9]+(?:[._][a-z0-9]+){0,6})?"
)
_TORCH = rf"(?P<torch__version>{_VERSION})"

_FORMS = (
    # NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2
    _Form(
        "driver version:",
        r"Driver Version: (?P<driver__version>[\d.]{5,20}) +"
        r"CUDA Version: (?P<driver__cuda_max>[\d.]{3,6})",
    ),
    _Form("driver version:", r"(?i)Nvidia driver version: (?P<driver__version>[\d.]{5,20})"),
    # Cuda compilation tools, release 10.1, V10.1.243
    _Form("cuda compilation", r"release (?P<build__version>\d+\.\d+), V\d"),
    _Form("cuda runtime version", r"CUDA runtime version: (?P<build__version>\d+\.\d+)"),
    _Form("detected cuda version", r"detected CUDA version \((?P<build__version>\d+\.\d+)\)"),
    _Form("to compile", r"used to compile\s+PyTorch \((?P<torch__cuda>\d+\.\d+)\)"),
    _Form("cuda used to build", r"CUDA used to build PyTorch: (?P<torch__cuda>\d+\.\d+)"),
    _Form("rocm used to build", r"ROCM used to build PyTorch: (?P<torch__hip>\d+\.\d+)"),
    # Python version: 3.12.3 (main, Feb  4 2025, ...), Python 3.12.3 on a line of its own
    _Form(
        "python",
        r"(?im)^[- ]{0,4}python(?: version)?:? (?P<python__version>3\.\d+(?:\.\d+)?)\b",
    ),
    _Form("python3.", r"[/\\]python(?P<python__version>3\.\d+)[/\\]", Confidence.INFERRED),
    # ldd (Ubuntu GLIBC 2.35-0ubuntu3) 2.35; Libc version: glibc-2.35
    _Form(
        "glibc",
        r"(?:with-glibc|Libc version: glibc-|ldd \(\S+ GLIBC )(?P<system__glibc>2\.\d+)",
    ),
    # PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)
    _Form(
        "(you have ",
        rf"PyTorch (?P<xformers__built_torch>{_VERSION}) with CUDA"
        rf" (?:(?P<xformers__built_cuda>\d+)|None) \(you have {_TORCH}\)",
    ),
    # xformers 0.0.27 requires torch==2.3.1, but you have torch 2.4.0 which is incompatible.
    _Form("but you have torch", rf"but you have torch {_TORCH}"),
    # >>> torch.__version__
    # '2.7.1+cu126'
    _Form("torch.__version__", rf"torch\.__version__\)?\s*[=:]{{0,2}}\s*'?{_TORCH}"),
    _Form("torch version", rf"(?i)\b(?:py)?torch version\b(?: \(GPU\?\))?\s?[:=]+ ?{_TORCH}"),
    # The name of a wheel says for which versions it was built.
    _Form(
        "flash_attn-",
        r"flash_attn-[\d.a-z]+\+cu(?P<flash_attn__built_cuda>\d+)"
        r"torch(?P<flash_attn__built_torch>\d+\.\d+)cxx11abi",
        Confidence.INFERRED,
    ),
)
# Successfully installed flash-attn-2.8.3 torch-2.6.0
_INSTALLED = rf"(?i)(?<![\w-])({_NAME})-({_VERSION})(?=\s|$)"
# [pip3] torch==2.4.0+cu121
_FROZEN = rf"(?i)^ *(?:\[(?:pip3?|conda)\] )?({_NAME})(?:==| +)({_VERSION})\b *(?:\S+ *)?$"
_ASKED = rf"(?i)(?<![\w-])({_NAME})==({_VERSION})"
# Requirement already satisfied: torch in ...\site-packages (2.1.0+cu121)
_SATISFIED = rf"(?i)already satisfied: ({_NAME})\b.{{0,400}}\(({_VERSION})\) *$"
# Using cached flash_attn-2.8.3.tar.gz, torch-2.4.1-cp311-cp311-win_amd64.whl
_FILE = rf"(?i)(?<![\w-])({_NAME})-({_VERSION})(?:-(?:cp|py)\d|\.tar\.gz)"
# xFormers version: 0.0.28
_STATED = rf"(?i)\b({_NAME}) version\s?[:=] ?({_VERSION}|not installed)"
# Name: torch
# Version: 2.4.0+cu121
_SHOWN = rf"(?im)^Name: ({_NAME})\n.{{0,40}}Version: ({_VERSION})"
_FOLDER = rf"(?:site|dist)-packages[/\\]+({_NAME.replace('-', '_')})[/\\]"

# NVIDIA GeForce RTX 5090 with CUDA capability sm_120
_CAPABILITY = (
    r"with CUDA capability sm_(\d+)|your GPU has capability \((\d+), (\d+)\)"
    r"|of (?:cuda|CUDA) capability (\d+)\.(\d+)|Unsupported CUDA architecture: sm_?(\d+)"
    r"|Value 'sm_(\d+)a?' is not defined|for 'sm_(\d+)a?'"
)
_GPU = (
    r"(?:NVIDIA |GeForce |Tesla |Quadro |GPU \d: )"
    r"((?:GeForce )?(?:RTX|GTX) (?:A|PRO )?\d{3,4}(?: (?:Ti|SUPER|Super|Ada|D|Laptop))*"
    r"|[TPVKM]\d{1,3}\b|[AHBL]\d{2,3}[SG]?\b(?:[- ](?:SXM\d?|PCIe|PCIE)?[- ]?\d{0,3}GB)?"
    r"|RTX \d{4}|GH200|GB\d00|TITAN \w+)"
)
# RTX 5090: messages name such a card only if it is present.
_CARD = r"\b((?:RTX|GTX) ?\d{3,4}(?: ?(?:Ti|SUPER|Super|D)\b)?)(?! ?\w*series|\+|xx)"
#: Marks of an operating system, in lower case.
_SYSTEMS = {
    "windows": (
        r"win[_-]amd64|\.dll\b|\.pyd\b|\\site-packages\\|\\appdata\\|python_embeded|\b[a-z]:[\\/]\w"
    ),
    # WSL shows the folders of Windows' users below /mnt/c.
    "macos": r"/private/var/|macosx|(?<![a-z]:)(?<!/mnt/[a-z])/users/|darwin",
    "linux": (
        r"linux_x86_64|x86_64-linux|manylinux|/usr/lib/|/home/|/lib/x86_64|aarch64-linux|linux-gnu"
        r"|/mnt/[a-z]/"
    ),
}
_VARIABLE = r"(?m)(?:^|\s|\$env:)([A-Z][A-Z0-9_]{1,40}) ?= ?[\"']?([^\s\"';&]{1,200})"


def statements(text: str) -> Iterator[Statement]:
    """The statements in a stretch of normalized text, in its order."""
    lowered = text.lower()
    for form in _FORMS:
        if form.need in lowered:
            for match in _compiled(form.pattern).finditer(text):
                for group, value in match.groupdict().items():
                    if value:
                        yield Statement(group.replace("__", "."), value, form.confidence)
    yield from _packages(text)
    yield from _gpus(text, lowered)
    yield from _system(lowered)
    for name, value in _compiled(_VARIABLE).findall(text):
        if name in VARIABLES:
            yield Statement(f"env.{name}", value, Confidence.REQUESTED)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _packages(text: str) -> Iterator[Statement]:
    for line in text.split("\n"):
        if not any(mark in line for mark in ("-", "=", "ersion", ".")):
            continue
        if "Successfully installed" in line:
            yield from _versions(_compiled(_INSTALLED).findall(line), Confidence.REPORTED)
        elif "already satisfied" in line:
            yield from _versions(_compiled(_SATISFIED).findall(line), Confidence.REPORTED)
        else:
            yield from _on_line(line)
    if "Name: " in text:
        yield from _versions(_compiled(_SHOWN).findall(text), Confidence.REPORTED)


def _on_line(line: str) -> Iterator[Statement]:
    yield from _versions(_compiled(_FILE).findall(line), Confidence.REQUESTED)
    frozen = _compiled(_FROZEN).findall(line)
    yield from _versions(
        frozen or _compiled(_ASKED).findall(line),
        Confidence.REPORTED if frozen else Confidence.REQUESTED,
    )
    yield from _versions(_compiled(_STATED).findall(line), Confidence.REPORTED)
    for name in _compiled(_FOLDER).findall(line):
        yield Statement(f"{_field(name)}.installed", True, Confidence.INFERRED)


def _versions(found: Iterable[tuple[str, str]], confidence: Confidence) -> Iterator[Statement]:
    for name, version in found:
        field = _field(name)
        if version.lower() == "not installed":
            yield Statement(f"{field}.installed", False, confidence)
            continue
        yield Statement(f"{field}.version", version, confidence)
        if confidence > Confidence.REQUESTED:
            yield Statement(f"{field}.installed", True, confidence)


def _field(name: str) -> str:
    field = name.lower().replace("-", "_")
    return _FIELDS.get(field, field)


def _gpus(text: str, lowered: str) -> Iterator[Statement]:
    if any(word in lowered for word in ("sm_", "capability", "architecture: sm")):
        for match in _compiled(_CAPABILITY).finditer(text):
            yield Statement(
                "gpu.sm", int("".join(filter(None, match.groups()))), Confidence.REPORTED
            )
    if any(word in lowered for word in ("nvidia ", "geforce ", "tesla ", "quadro ", "gpu ")):
        for name in _compiled(_GPU).findall(text):
            yield Statement("gpu.name", name, Confidence.INFERRED)
    if "tx" in lowered:
        for name in _compiled(_CARD).findall(text):
            yield Statement("gpu.name", f"GeForce {_spaced(name)}", Confidence.REQUESTED)


def _spaced(name: str) -> str:
    """`RTX4070Ti` as NVIDIA writes it."""
    return re.sub(r"(?<=\d)(?=[TSD])", " ", re.sub(r"(?<=X)(?=\d)", " ", name))


def _system(lowered: str) -> Iterator[Statement]:
    counts = {os: len(_compiled(marks).findall(lowered)) for os, marks in _SYSTEMS.items()}
    best = max(counts, key=lambda os: counts[os])
    if counts[best]:
        yield Statement("system.os", best, Confidence.INFERRED)
    if "/usr/lib/wsl/" in lowered or "wsl2" in lowered:
        yield Statement("system.os", "linux", Confidence.REPORTED)
        yield Statement("system.wsl", 2, Confidence.INFERRED)
    if "/hip/" in lowered and "triggered internally" in lowered:
        yield Statement("torch.build", "rocm", Confidence.REPORTED)
        yield Statement("driver.vendor", "amd", Confidence.INFERRED)


# From statements to facts


def facts_from(
    found: Iterable[Statement], tables: Callable[[], Mapping[str, Any]] = library.tables
) -> tuple[Facts, set[str]]:
    """The facts of some statements, and the names of those that were stated.

    `tables` is called only to look up a GPU by its name.
    """
    stated: dict[str, Statement] = {}
    for statement in found:
        known = stated.get(statement.fact)
        if known is None or statement.confidence >= known.confidence:
            stated[statement.fact] = statement
    values = {
        name: _cuda(statement.value) if name.endswith(".built_cuda") else statement.value
        for name, statement in stated.items()
    }
    _complete_torch(values)
    gpu = _gpu(values, tables)
    try:
        # Not strict: the groups of a rule's pattern give text for numbers as well.
        facts = msgspec.convert(_nested(values, gpu), Facts, strict=False)
    except msgspec.ValidationError:
        # Such a group matched a text that is not a value of its fact.
        own = [entry for entry in stated.values() if entry.confidence < Confidence.DIRECT]
        return facts_from(own, tables) if len(own) < len(stated) else (Facts(), set())
    return facts, {*values, *(f"gpu.{name}" for name in gpu)}


def _nested(values: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """The values as `Facts` nests them."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        nested.setdefault(head, {})[rest] = value
    if gpu:
        nested["gpus"] = [{"index": 0, "visible": True, **gpu}]
        nested.setdefault("driver", {}).setdefault("vendor", "nvidia")
    elif values.get("system.os") == "macos":
        # Macs with NVIDIA GPUs are older than any torch that attention kernels run on.
        nested.setdefault("driver", {}).setdefault("vendor", "apple")
        nested["gpus"] = []
    return nested


def _gpu(values: dict[str, Any], tables: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The GPU that the log mentions. Removes its facts from `values`."""
    gpu: dict[str, Any] = {
        name: values.pop(f"gpu.{name}")
        for name in ("name", "sm", "compute_capability")
        if f"gpu.{name}" in values
    }
    if "sm" not in gpu and "compute_capability" in gpu:
        gpu["sm"] = gpu["compute_capability"]
    if "sm" in gpu:
        gpu["sm"] = int(re.sub(r"\D", "", str(gpu["sm"])) or 0)
    elif "name" in gpu and (sm := _capability(gpu["name"], tables())):
        gpu["sm"] = sm
    if gpu.get("sm"):
        gpu["compute_capability"] = f"{gpu['sm'] // 10}.{gpu['sm'] % 10}"
    return gpu


def _cuda(digits: str) -> str:
    """`118` of a wheel's name is 11.8, `1201` of xformers' is 12.1."""
    if len(digits) == 4 and digits.isdigit():
        return f"{digits[:2]}.{int(digits[2:])}"
    return f"{digits[:2]}.{digits[2]}" if len(digits) == 3 else digits


def _complete_torch(values: dict[str, Any]) -> None:
    """Add what torch's version says about its build: `2.4.1+cu121`, `+cpu`, `+rocm6.2`."""
    version = values.get("torch.version", "")
    local = version.partition("+")[2]
    if version:
        values.setdefault("torch.installed", True)
    if local:
        values["torch.local"] = local
    if local.startswith("cu") and local[2:].isdigit():
        values.setdefault("torch.cuda", f"{local[2:-1]}.{local[-1]}")
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
    """Compute capability ×10 of a GPU by its product name, if the table of devices has it."""
    wanted = _plain(name)
    close: set[int] = set()
    for chip in tables["pci-nvidia"]["chips"].values():
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
