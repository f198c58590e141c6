"""Extract facts about the machine that wrote a log: versions, GPU, operating system, variables.

Logs are full of statements: pip's last line, wheel names, `collect_env`, `nvidia-smi`, paths in
tracebacks, and the messages themselves. A statement about an installed version counts more than a
command that requests one, and a later statement more than an earlier one. A fact without a
statement stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from attn_doctor.derived.releases import find, series
from attn_doctor.env_vars import VARIABLES
from attn_doctor.facts import Facts
from attn_doctor.gpu_names import capability
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
    """One fact that a log states, the reliability of that statement, and its place."""

    fact: str
    value: Any
    confidence: Confidence
    offset: int = 0
    """Where it is in the text that was searched."""
    line: int = 0
    """Number of its line in the log; 0 if only the text was given."""


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
    r"\d{1,9}\.\d{1,9}(?:\.\d{1,9})?(?!\d)(?:[-.]?(?:a|b|rc|dev|post)\d{0,12}){0,3}"
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
    _Form("driver version", r"(?i)Nvidia driver version {0,30}: (?P<driver__version>[\d.]{5,20})"),
    # Cuda compilation tools, release 10.1, V10.1.243
    _Form("cuda compilation", r"release (?P<build__version>\d+\.\d+), V\d"),
    _Form("cuda runtime version", r"CUDA runtime version {0,30}: (?P<build__version>\d+\.\d+)"),
    _Form("detected cuda version", r"detected CUDA version \((?P<build__version>\d+\.\d+)\)"),
    _Form("to compile", r"used to compile\s+PyTorch \((?P<torch__cuda>\d+\.\d+)\)"),
    _Form("cuda used to build", r"CUDA used to build PyTorch {0,30}: (?P<torch__cuda>\d+\.\d+)"),
    _Form("rocm used to build", r"ROCM used to build PyTorch {0,30}: (?P<torch__hip>\d+\.\d+)"),
    # Python version: 3.12.3 (main, Feb  4 2025, ...), Python 3.12.3 on a line of its own
    _Form(
        "python",
        r"(?im)^[- ]{0,4}python(?: version)? {0,30}:? (?P<python__version>3\.\d+(?:\.\d+)?)\b"
        r"(?! \(you have)",
    ),
    # "Python  3.10.11 (you have 3.10.6)": xformers was built for the first.
    _Form("(you have 3.", r"(?m)^ *Python +3\.\S+ \(you have (?P<python__version>3\.\d+\.\d+)\)"),
    _Form("python3.", r"[/\\]python(?P<python__version>3\.\d+)(?=[/\\ ])", Confidence.INFERRED),
    # pip 24.0 from /venv/lib/python3.12/site-packages/pip (python 3.12)
    _Form(
        "pip ",
        r"(?m)^pip (?P<python__pip>\d+(?:\.\d+)+) from [^\n]{1,300}"
        r"\(python (?P<python__version>3\.\d+)\)",
    ),
    # Using Python 3.12.3 environment at: .venv
    _Form("environment at:", r"Using (?:C?)Python (?P<python__version>3\.\d+\.\d+) environment"),
    # ** Python executable: C:\ComfyUI\python_embeded\python.exe
    _Form(
        "python executable:", r"(?i)python executable: (?P<python__path>(?:/|[a-z]:\\)[^\n]{1,300})"
    ),
    # ** Python version: 3.12.7 (tags/v3.12.7:0b05ead, ...)
    _Form("python version:", r"\*\* Python version: (?P<python__version>3\.\d+\.\d+)"),
    # Unsloth: Torch: 2.6.0+cu124. CUDA: 12.0. CUDA Toolkit: 12.4. Triton: 3.2.0
    _Form(
        "cuda toolkit:",
        rf"Torch: {_TORCH}\. CUDA: (?P<gpu__compute_capability>\d+\.\d)\. CUDA Toolkit: "
        rf"[\d.]{{2,8}}\. Triton: (?P<triton__version>{_VERSION})",
    ),
    # ldd (Ubuntu GLIBC 2.35-0ubuntu3) 2.35; Libc version {0,30}: glibc-2.35
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
    # sglang and vLLM: "PyTorch: 2.6.0+cu124"
    _Form("pytorch: ", rf"(?m)^\W{{0,4}}PyTorch: {_TORCH}"),
    _Form(
        "torch version", rf"(?i)\b(?:py)?torch version\b(?: \(GPU\?\))?\s{{0,30}}[:=]+ ?{_TORCH}"
    ),
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
    # "Make sure you GPUs with compute capability 8.9." says what is wanted.
    r"|(?<!GPUs with )[Cc]ompute [Cc]apability:? (\d{1,2})\.(\d)\b(?! (?:or|and) )"
)
_GPU = (
    r"(?:NVIDIA |GeForce |Tesla |(?=Quadro )|GPU \d: )"
    r"((?:GeForce |Quadro )?(?:RTX|GTX) (?:A|PRO )?\d{3,4}(?: (?:Ti|SUPER|Super|Ada|D|Laptop))*"
    r"|[TPVKM]\d{1,3}\b|[AHBL]\d{2,3}[SG]?\b(?:[- ](?:SXM\d?|PCIe|PCIE)?[- ]?\d{0,3}GB)?"
    r"|RTX \d{4}|GH200|GB\d{2,3}\b|DGX Spark|(?:Jetson (?:AGX )?)?(?:Orin|Thor)\b|TITAN \w+)"
)
# RTX 5090: messages name such a card only if it is present.
_CARD = r"\b((?:RTX|GTX) ?\d{3,4}(?: ?(?:Ti|SUPER|Super|D)\b)?)(?! ?\w*series|\+|xx)"
#: Machines that exist with Linux on aarch64 only, in lower case.
_ARM = r"\bjetson\b|\bdgx spark\b|\bgh200\b|\bnvidia gb10\b"
#: Marks of an operating system, in lower case.
_SYSTEMS = {
    "windows": (
        r"win[_-]amd64|\.dll\b|\.pyd\b|\\site-packages\\|\\appdata\\|python_embeded|\b[a-z]:[\\/]\w"
        r"|dll load failed while importing|\[winerror \d|fatal error c1\d{3}: "
    ),
    # WSL shows the folders of Windows' users below /mnt/c.
    "macos": (
        r"/private/var/|macosx|/appleinternal/|device=mps\b|(?<![a-z]:)(?<!/mnt/[a-z])/users/|darwin"
    ),
    "linux": (
        r"linux_x86_64|x86_64-linux|manylinux|aarch64-linux|linux-gnu"
        r"|/(?:usr/lib/|home/|lib/x86_64|mnt/[a-z]/|(?<![\w.]/)root/|dist-packages/|opt/conda/)"
        rf"|{_ARM}"
    ),
}
#: `Platform: Windows`, `platform: Linux-5.15.0-x86_64`, `OS: Ubuntu 22.04.4 LTS (x86_64)`
_PLATFORM = (
    r"(?m)\bplatform {0,30}: (windows|linux|macos|darwin)"
    r"|^os {0,30}: (microsoft windows|windows|macos|ubuntu|debian|red hat|fedora|arch|rocky|alma"
    r"|centos)"
)
_PLATFORMS = {"windows": ("microsoft", "windows"), "macos": ("macos", "darwin")}
#: `OS: Ubuntu 22.04.4 LTS (x86_64)`, `OS: Debian GNU/Linux 12 (bookworm) (x86_64)`
_OS = (
    r"(?m)^OS {0,30}: (?P<name>(?P<word>[A-Z][a-zA-Z]+)[^\n(]{1,60}?)(?: \([\w .]{1,30}\))?"
    r" \((?P<arch>x86_64|aarch64|arm64)\)"
)
#: The ID of /etc/os-release, by the first word of the name in lower case.
_DISTRIBUTIONS = {
    **{
        name: name
        for name in ("ubuntu", "debian", "fedora", "rocky", "almalinux", "centos", "arch")
    },
    "red": "rhel",
    "amazon": "amzn",
    "oracle": "ol",
}
#: `Python platform: Linux-6.8.0-60-generic-x86_64-with-glibc2.39`. The kernel of WSL has its name.
_KERNEL = r"\bplatform {0,30}: linux-\d[\w.+~]{1,30}(?!\S{0,60}microsoft)-\S"
#: The prompt of a shell in a container, whose host has an id for a name.
_CONTAINER = r"(?m)^\(?\w{0,30}\)? ?root@[0-9a-f]{12}:"
#: What only uv prints.
_UV = (
    r"(?m)^\$? ?uv (?:pip|sync|add|run) |^Using (?:C?)Python [\d.]+ environment at: "
    r"|^ *× Failed to build `"
)
_VARIABLE = r"(?m)(?:^|(?<!\bSet)\s|\$env:)([A-Z][A-Z0-9_]{1,40}) ?= ?[\"']?([^\s\"';&]{1,200})"


def statements(text: str) -> Iterator[Statement]:
    """The statements in a stretch of normalized text, in its order."""
    lowered = text.lower()
    for form in _FORMS:
        if form.need in lowered:
            for match in _compiled(form.pattern).finditer(text):
                for group, value in match.groupdict().items():
                    if value:
                        fact = group.replace("__", ".")
                        yield Statement(fact, value, form.confidence, match.start())
    yield from _packages(text)
    yield from _gpus(text, lowered)
    yield from _system(lowered)
    yield from _distribution(text)
    yield from _interpreter(text, lowered)
    for match in _compiled(_VARIABLE).finditer(text):
        if match[1] in VARIABLES:
            yield Statement(f"env.{match[1]}", match[2], Confidence.REQUESTED, match.start(1))


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _packages(text: str) -> Iterator[Statement]:
    offset = 0
    for line in text.split("\n"):
        if any(mark in line for mark in ("-", "=", "ersion", ".")):
            for statement in _in_line(line):
                yield statement._replace(offset=offset)
        offset += len(line) + 1
    if "Name: " in text:
        for match in _compiled(_SHOWN).finditer(text):
            for statement in _versions([(match[1], match[2])], Confidence.REPORTED):
                yield statement._replace(offset=match.start())


def _in_line(line: str) -> Iterator[Statement]:
    if "Successfully installed" in line:
        yield from _versions(_compiled(_INSTALLED).findall(line), Confidence.REPORTED)
    elif "already satisfied" in line:
        yield from _versions(_compiled(_SATISFIED).findall(line), Confidence.REPORTED)
    else:
        yield from _on_line(line)


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
            number = int("".join(filter(None, match.groups())))
            yield Statement("gpu.sm", number, Confidence.REPORTED, match.start())
    if any(word in lowered for word in ("nvidia ", "geforce ", "tesla ", "quadro ", "gpu ")):
        for match in _compiled(_GPU).finditer(text):
            yield Statement("gpu.name", match[1], Confidence.INFERRED, match.start(1))
    if "tx" in lowered:
        for match in _compiled(_CARD).finditer(text):
            name = f"GeForce {_spaced(match[1])}"
            yield Statement("gpu.name", name, Confidence.REQUESTED, match.start(1))


def _spaced(name: str) -> str:
    """`RTX4070Ti` as NVIDIA writes it."""
    return re.sub(r"(?<=\d)(?=[TSD])", " ", re.sub(r"(?<=X)(?=\d)", " ", name))


def _distribution(text: str) -> Iterator[Statement]:
    for match in _compiled(_OS).finditer(text):
        facts = {"distribution_name": match["name"], "arch": match["arch"]}
        if id := _DISTRIBUTIONS.get(match["word"].lower()):
            facts["distribution"] = id
            # Ubuntu names the point release too: 22.04.4
            version = re.search(r"\d+(?:\.\d+)?", match["name"])
            facts |= {"distribution_version": version[0]} if version else {}
        for name, value in facts.items():
            yield Statement(f"system.{name}", value, Confidence.REPORTED, match.start())


def _system(lowered: str) -> Iterator[Statement]:
    found = {os: list(_compiled(marks).finditer(lowered)) for os, marks in _SYSTEMS.items()}
    best = max(found, key=lambda os: len(found[os]))
    if found[best]:
        yield Statement("system.os", best, Confidence.INFERRED, found[best][0].start())
    if arm := _compiled(_ARM).search(lowered):
        yield Statement("system.arch", "aarch64", Confidence.INFERRED, arm.start())
    for match in _compiled(_PLATFORM).finditer(lowered):
        named = match[1] or match[2]
        os = next((os for os, names in _PLATFORMS.items() if named.startswith(names)), "linux")
        yield Statement("system.os", os, Confidence.REPORTED, match.start())
    if (at := max(lowered.find("/usr/lib/wsl/"), lowered.find("wsl2"))) >= 0:
        yield Statement("system.os", "linux", Confidence.REPORTED, at)
        yield Statement("system.wsl", 2, Confidence.INFERRED, at)
    elif kernel := _compiled(_KERNEL).search(lowered):
        yield Statement("system.wsl", 0, Confidence.INFERRED, kernel.start())
    if prompt := _compiled(_CONTAINER).search(lowered):
        yield Statement("system.container", "docker", Confidence.INFERRED, prompt.start())
    if "/hip/" in lowered and (at := lowered.find("triggered internally")) >= 0:
        yield Statement("torch.build", "rocm", Confidence.REPORTED, at)
        yield Statement("driver.vendor", "amd", Confidence.INFERRED, at)


#: The environment of a path below its packages: `/home/me/.venv`, `C:\\ComfyUI\\python_embeded`.
_ENVIRONMENT = (
    r"(?m)(?:^|[\s\"'(])(?:(?P<posix>/[\w./+@-]{1,200}?)/lib(?:64)?/python3\.\d+/site-packages/"
    r"|(?P<windows>[A-Za-z]:\\[^\n\"'<>|*?]{1,200}?)\\[Ll]ib\\site-packages\\)"
)
#: Paths that are not an environment: of a build in isolation, or with a part removed.
_NO_ENVIRONMENT = re.compile(
    r"build-env|\.cache/|/tmp/|\.\.|/(?:path|to|user|username|x{3,})/|\*|^/usr(?:/local)?$",
    re.IGNORECASE,
)

#: The kind of an environment, by its folder. One of conda may be called venv.
_KINDS = (
    ("embeddable", re.compile(r"(?i)[/\\]python_embedd?ed$")),
    (
        "conda",
        re.compile(
            r"(?i)[/\\][\w.-]*(?:conda|miniforge|mambaforge|micromamba)\d?(?:[/\\]envs[/\\][^/\\]+)?$"
        ),
    ),
    ("venv", re.compile(r"(?i)[/\\]\.?venv$")),
)


def _interpreter(text: str, lowered: str) -> Iterator[Statement]:
    """The interpreter whose packages the paths of a traceback are in, and its installer."""
    if "site-packages" in lowered:
        for match in _compiled(_ENVIRONMENT).finditer(text):
            prefix = match["posix"] or match["windows"]
            if _NO_ENVIRONMENT.search(prefix):
                continue
            if match["posix"]:
                path = f"{prefix}/bin/python"
            else:
                folder = prefix.replace("/", "\\").rsplit("\\", 1)[-1].lower()
                virtual = "venv" in folder or folder == "env"
                path = prefix + ("\\Scripts" if virtual else "") + "\\python.exe"
            yield Statement("python.prefix", prefix, Confidence.INFERRED, match.start())
            yield Statement("python.path", path, Confidence.INFERRED, match.start())
            kind = next((kind for kind, folder in _KINDS if folder.search(prefix)), None)
            if kind is not None:
                yield Statement("python.environment", kind, Confidence.INFERRED, match.start())
    for match in _compiled(_UV).finditer(text):
        yield Statement("python.uv", "uv", Confidence.INFERRED, match.start())


# From statements to facts


#: Facts of which one environment has one value.
_SINGLE = ("system.os", "python.version", "torch.version")


class Conflict(NamedTuple):
    """Two reports in one log that do not fit each other."""

    fact: str
    first: Statement
    second: Statement


class Stated(NamedTuple):
    """What a log states about the machine that wrote it."""

    facts: Facts = Facts()
    by_name: Mapping[str, Statement] = {}
    """The most reliable statement of each fact; facts that follow from others have none."""
    names: frozenset[str] = frozenset()
    """All facts that are known."""
    conflicts: tuple[Conflict, ...] = ()
    """Facts that the log reports with two values."""


def facts_from(found: Iterable[Statement]) -> Stated:
    """The facts of some statements."""
    stated: dict[str, Statement] = {}
    conflicts: dict[str, Conflict] = {}
    for statement in found:
        known = stated.get(statement.fact)
        if known is not None and _contradict(known, statement):
            conflicts.setdefault(statement.fact, Conflict(statement.fact, known, statement))
        if known is None or statement.confidence >= known.confidence:
            stated[statement.fact] = statement
    values = {
        name: _cuda(statement.value) if name.endswith(".built_cuda") else statement.value
        for name, statement in stated.items()
    }
    _complete_torch(values)
    _complete_python(values)
    gpu = _gpu(values)
    try:
        # Not strict: the groups of a rule's pattern give text for numbers as well.
        facts = msgspec.convert(_nested(values, gpu), Facts, strict=False)
    except msgspec.ValidationError:
        # Such a group matched a text that is not a value of its fact.
        own = [entry for entry in stated.values() if entry.confidence < Confidence.DIRECT]
        return facts_from(own) if len(own) < len(stated) else Stated()
    names = frozenset((*values, *(f"gpu.{name}" for name in gpu)))
    return Stated(facts, stated, names, tuple(conflicts.values()))


def _contradict(known: Statement, other: Statement) -> bool:
    """Both are reports, and none of the two versions is a shorter form of the other."""
    if known.fact not in _SINGLE or min(known.confidence, other.confidence) < Confidence.REPORTED:
        return False
    one, two = (f"{str(value).partition('+')[0]}." for value in (known.value, other.value))
    return not one.startswith(two) and not two.startswith(one)


def _complete_python(values: dict[str, Any]) -> None:
    """Leave out what another system's path says, and add what uv alone implies."""
    path = values.get("python.path", "")
    os = values.get("system.os")
    if path and os and ("\\" in path) != (os == "windows"):
        for name in ("python.path", "python.prefix", "python.environment"):
            values.pop(name, None)
    if "python.path" in values:
        # Commands for it name it, whatever is active where they are typed.
        values["python.selection_reason"] = "the log"
    if "python.uv" in values and "python.pip" not in values:
        values["python.pip"] = ""


def _nested(values: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """The values as `Facts` nests them."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        nested.setdefault(head, {})[rest] = value
    if values.get("system.os") in ("windows", "macos"):
        # As the probe has it: these systems have no distributions.
        nested["system"].setdefault("distribution", values["system.os"])
    if gpu:
        nested["gpus"] = [{"index": 0, "visible": True, **gpu}]
        nested.setdefault("driver", {}).setdefault("vendor", "nvidia")
    elif values.get("system.os") == "macos":
        # Macs with NVIDIA GPUs are older than any torch that attention kernels run on.
        nested.setdefault("driver", {}).setdefault("vendor", "apple")
        nested["gpus"] = []
    return nested


def _gpu(values: dict[str, Any]) -> dict[str, Any]:
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
    elif "name" in gpu and (sm := capability(gpu["name"], library.tables())):
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
        _complete_build(values, local)
    if "torch.hip" in values or values.get("torch.build") == "rocm":
        values["torch.build"] = "rocm"
        values.pop("torch.cuda", None)
    elif "torch.cuda" in values:
        values["torch.build"] = "cuda"
        if local and not _on_pypi(values):
            values.setdefault("torch.from_pypi", False)
    elif values.get("system.os") == "macos":
        # PyPI has one build for macOS, and no index has another.
        values.setdefault("torch.build", "mps")


def _complete_build(values: dict[str, Any], local: str) -> None:
    """Add the platform that the local part of torch's version names."""
    if local.startswith("cu") and local[2:].isdigit():
        values.setdefault("torch.cuda", f"{local[2:-1]}.{local[-1]}")
    elif local.startswith("rocm"):
        values.setdefault("torch.hip", local.removeprefix("rocm"))
    elif local == "xpu":
        values["torch.build"] = "xpu"
        values.setdefault("driver.vendor", "intel")
    elif local == "cpu":
        values["torch.build"] = "cpu"
        values.pop("torch.cuda", None)


def _on_pypi(values: Mapping[str, Any]) -> bool:
    """Whether PyPI may have this CUDA build: it has one for Linux, and none for Windows."""
    if values.get("system.os") == "windows":
        return False
    row = find(library.tables()["torch"], series(values["torch.version"]))
    cuda = values["torch.cuda"]
    return row is None or cuda in (row["pypi"], row.get("pypi_aarch64", row["pypi"]))
