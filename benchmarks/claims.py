"""Compares what attn-doctor says of real environments with what really imports and loads.

    python benchmarks/claims.py ENVIRONMENT… --work FOLDER [--only PATTERN] [--commands]
    python benchmarks/claims.py --make PYTHON PACKAGE… --work FOLDER [--only PATTERN] [--commands]
    python benchmarks/claims.py --list FILE --work FOLDER [--select PATTERN] [--commands]

Each ENVIRONMENT is a virtual environment with torch; `--make` makes one with uv and deletes it
afterwards, `--list` makes those of a file such as `claims.toml`. Each is examined as it is, then
once for each way of breaking it in `BREAKAGES`: a copy (of hard links, so it costs no space) is
made in FOLDER, broken, examined, tried and deleted. The environment itself stays as it is.

With `--commands`, what `attn-doctor check` prints as the remedy of each finding is run in the copy,
in a shell, as it is printed. A command has *worked* if it succeeds, its finding is gone, and what
is then claimed is true. A second remedy of a finding is run in a copy of its own. Findings about
the machine (driver, toolkit) are left out.

A claim is a statement about one module, one extension or one backend: it works, or it does not.
What attn-doctor does not know is not a claim. A claim is *wrong* if the module does the opposite. A
failure that is claimed to work is counted as *missed* too. The trial runs in the environment's own
Python: modules are imported and extensions loaded, each in a forked process, after torch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.errors import AttnDoctorError
from attn_doctor.examination import examine
from attn_doctor.host.local import LocalHost
from attn_doctor.toml_files import read_toml

if TYPE_CHECKING:
    from attn_doctor.facts import Facts

#: Seconds for the trial of one environment.
LIMIT = 900
#: Remedies that are tried in one environment, and second remedies.
MOST_COMMANDS = 10
#: Fact of a package → the module to import; for a framework the one that chooses attention.
MODULES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "flash_attn": "flash_attn",
    "diffusers": "diffusers.models.attention_dispatch",
    "transformers": "transformers.modeling_utils",
    "accelerate": "accelerate",
    "torchao": "torchao",
    "xformers": "xformers",
    "bitsandbytes": "bitsandbytes",
    "kernels": "kernels",
    "sageattention": "sageattention",
    "flash_attn_4": "flash_attn.cute",
}
#: The same, with the module of a diffusers that has no dispatcher.
OF_MODULES = (*MODULES.items(), ("diffusers", "diffusers.models.attention_processor"))
#: Packages whose import fails if their extension does not load. The others continue without it.
NEEDS_EXTENSION = ("torchvision", "torchaudio", "flash_attn")
#: Backends, each with a statement that calls it.
CALLS = {
    "native": "F.scaled_dot_product_attention(q, q, q)",
    "_native_math": "sdpa('MATH')",
    "_native_flash": "sdpa('FLASH_ATTENTION')",
    "_native_efficient": "sdpa('EFFICIENT_ATTENTION')",
    "_native_cudnn": "sdpa('CUDNN_ATTENTION')",
    "flex": "__import__('torch.nn.attention.flex_attention', fromlist='x').flex_attention(q, q, q)",
    "flash": "__import__('flash_attn').flash_attn_func(q, q, q)",
    "sage": "__import__('sageattention').sageattn(q, q, q)",
}
#: What these statements use.
PREPARED = """
import torch, torch.nn.functional as F, diffusers.models.attention_dispatch
from torch.nn.attention import SDPBackend, sdpa_kernel
def sdpa(name):
    with sdpa_kernel(getattr(SDPBackend, name)):
        return F.scaled_dot_product_attention(q, q, q)
q = torch.randn(1, 2, 128, 64, device="%s", dtype=torch.bfloat16, requires_grad=%s)
"""
#: Tried in the environment's Python: lines of JSON, each a name and the error, empty for success.
TRIAL = r"""
import json, os, sys
try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None
def attempt(name, code):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        try:
            exec(code, {"ctypes": ctypes})
            error = ""
        except BaseException as caught:
            error = type(caught).__name__ + ": " + str(caught)[:200]
        os.write(write, (error or "-").encode("utf-8", "replace"))
        os._exit(0)
    os.close(write)
    error = b"".join(iter(lambda: os.read(read, 4096), b"")).decode()
    status = os.waitpid(child, 0)[1]
    error = "" if error == "-" else error or "the process ended with %d" % status
    print(json.dumps([name, error]), flush=True)
    return not error
tasks = json.loads(sys.stdin.read())
for name, code in tasks:
    # torchvision is not kept: it can bring setuptools, which has a copy of packaging.
    if attempt(name, code) and (name == "import torch" or name.startswith("import diffusers")):
        exec(code)  # once for all attempts that follow
"""


class Claim(NamedTuple):
    """A statement of attn-doctor, and code that shows whether it is true."""

    name: str
    works: bool
    why: str
    code: str


class Result(NamedTuple):
    """The claims about one environment, those that are wrong, and failures that were missed."""

    name: str
    claims: int
    wrong: list[str]
    missed: int
    statements: int = 0
    """Packages and backends about which something is claimed, each counted once."""
    wrong_statements: int = 0
    commands: tuple[Command, ...] = ()
    untried: str = ""
    """Why it was not compared; then nothing in it counts."""


class Command(NamedTuple):
    """A remedy of a finding; an empty `failure` means that it worked."""

    rule: str
    text: str
    failure: str

    @property
    def unreachable(self) -> bool:
        """Whether it failed because this machine does not reach PyTorch's own index or GitHub."""
        return bool(re.search(r"download\.pytorch\.org|github\.com", self.text)) and bool(
            re.search(
                "Name or service not known|dns error|[Ff]ailed to (fetch|resolve|lookup)",
                self.failure,
            )
        )


class Breakage(NamedTuple):
    """A way of breaking an environment; it does nothing where `apply` returns false."""

    name: str
    apply: Callable[[Path], bool]
    variables: tuple[tuple[str, str], ...] = ()
    """Variables that are set meanwhile; `{root}` is the environment."""


# What attn-doctor says


def claims(facts: Facts) -> Iterator[Claim]:
    """Yield what attn-doctor claims of the environment whose facts these are."""
    modules = [*_modules(facts)]
    yield from modules
    imported = any(one.name == "import torch" and one.works for one in modules)
    for one in (facts.extensions or ()) if imported else ():
        # An extension is loaded after torch: where torch fails, nothing can be seen of it.
        if one.loads is not None:
            code = f"ctypes.CDLL({one.path!r}, mode={os.RTLD_NOW})"
            if (one.fault or "").startswith("it is made for Python"):
                code = f"import {one.name}"  # loaded by path it may work
            # torchaudio loads libtorchaudio.so before the module that needs it.
            for other in facts.extensions or ():
                if other.package == one.package and other.name == f"lib{(one.name or '')[1:]}":
                    code = f"ctypes.CDLL({other.path!r}, mode={os.RTLD_GLOBAL}); {code}"
            yield Claim(f"load {one.package} {one.name}", one.loads, one.load_error or "", code)
    yield from _backends(facts)
    yield from _metadata(facts)


def _modules(facts: Facts) -> Iterator[Claim]:
    torch = facts.torch
    if torch.installed and not torch.import_doubt:
        faults = [
            # Wrong metadata do not stop an import.
            re.sub(
                r"(^|, )(no metadata|metadata of [^,]*, files of [^,]*)",
                "",
                torch.installation_error or "",
            ),
            torch.import_error,
            *(torch.missing_libraries or ()),
        ]
        yield _importing("torch", [one for one in faults if one])
    for field, module in MODULES.items():
        package = getattr(facts, field)
        if field == "diffusers" and not facts.dispatcher.checksum:
            module = "diffusers.models.attention_processor"  # it has no dispatcher
        if field == "torch" or not package.installed or not torch.installed:
            continue
        faults = [package.import_error]
        # torchvision up to 0.16 continues without its operators.
        alone = field == "torchvision" and re.match(r"0\.(\d|1[0-6])\.", package.version or "")
        if field in NEEDS_EXTENSION and package.loads is not None and not alone:
            faults.append(package.load_error)
        broken = bool(
            torch.installation_error
            or torch.missing_libraries
            or torch.import_error
            or torch.import_doubt
        )
        # Of what imports torch nothing is said where torch itself fails.
        if package.import_error is not None and (package.import_error or not broken):
            yield _importing(module, [one for one in faults if one])


def _importing(module: str, faults: list[str]) -> Claim:
    # A user's torch.py can be imported too.
    code = "import torch; torch.Tensor" if module == "torch" else f"import {module}"
    return Claim(f"import {module}", not faults, "; ".join(faults), code)


def _backends(facts: Facts) -> Iterator[Claim]:
    if not facts.diffusers.installed:
        return
    found = diagnosis_of(facts).findings
    for phase in ("inference", "training"):
        call = AttentionCall(phase=phase)
        table = matrix(facts, found, (call,), "diffusers")
        for name, statement in CALLS.items():
            answer = table.row(name).answers[0]
            if answer.state.value == "unknown":
                continue
            training = phase == "training"
            code = PREPARED % ("cuda" if facts.gpus else "cpu", training)
            code += statement + (".sum().backward()" if training else "")
            code += "\nif q.is_cuda: torch.cuda.synchronize()"
            why = answer.reasons[0].text if answer.reasons else ""
            yield Claim(f"{name} for {phase}", answer.state.value != "not ready", why, code)


def _metadata(facts: Facts) -> Iterator[Claim]:
    damaged = " ".join(f"{one.folder}: {one.reason}" for one in facts.damaged_metadata or ())
    unknown = facts.unreadable_files or facts.python.foreign_home or facts.torch.import_doubt
    for name in () if unknown else ("torch", "diffusers", "transformers"):
        if getattr(facts, name).installed:
            absent = name == "torch" and "no metadata" in (facts.torch.installation_error or "")
            broken = f"/{name}-" in damaged or absent
            code = (
                "import importlib.metadata\n"
                f"assert isinstance(importlib.metadata.version({name!r}), str)"
            )
            yield Claim(f"metadata of {name}", not broken, damaged, code)


# What is true


def trial(python: Path, asked: list[Claim]) -> dict[str, str]:
    """Return the error of each claim's code in the environment; empty where it works."""
    ran = subprocess.run(
        [str(python), "-W", "ignore", "-c", TRIAL],
        input=json.dumps([[one.name, one.code] for one in asked]),
        capture_output=True, text=True, timeout=LIMIT, check=False, cwd=os.sep,
    )  # fmt: skip
    return dict(map(json.loads, ran.stdout.splitlines()))


def compare(name: str, root: Path) -> Result:
    """Examine the environment at `root`, try everything claimed of it, and compare."""
    python = root / "bin" / "python"
    try:
        facts = examine(LocalHost(), str(python), limit=60)
    except AttnDoctorError as error:
        starts = python.exists() and trial(python, [Claim("", True, "", "")])
        refused = [f"not examined: {error}"] if starts else []
        return Result(name, 1, refused, 0, 1, len(refused))
    asked = list(claims(facts))
    truth = trial(python, asked)
    wrong: dict[str, str] = {}
    missed = 0
    for one in asked:
        seen = truth.get(one.name, "the trial ended before it")
        if one.works == bool(seen):
            missed += one.works
            said = one.why or "that it works"
            wrong[one.name] = f"{one.name}: claimed {said}; seen {seen or 'works'}"
    statements = {_about(one.name) for one in asked}
    about = {_about(one) for one in wrong}
    return Result(name, len(asked), list(wrong.values()), missed, len(statements), len(about))


def _about(name: str) -> str:
    """Return the package or backend that a claim is about."""
    if name.startswith("import "):
        return next(field for field, module in OF_MODULES if name == f"import {module}")
    if name.startswith("load "):
        return name.split()[1].replace("-", "_")
    return name.removeprefix("metadata of ").partition(" for ")[0]


# What attn-doctor prints


#: Rules about the machine, whose remedies change more than the environment.
MACHINE = ("driver/", "toolkit/", "system/", "caches/", "triton/c-compiler")
#: Variables that a shell sets for itself.
SHELL = ("_", "PWD", "OLDPWD", "SHLVL")
#: Findings about a Python that their remedy leaves as it is, because it makes an environment.
STAYS = ("python/externally-managed",)


def repair(copy: Path) -> tuple[Command, ...]:
    """Run the first remedy of each finding, one after the other; return each with its result.

    What is claimed of the repaired environment is compared once, and a fault is the last one's.
    """
    tried: list[Command] = []
    found = findings(copy)
    while len(tried) < MOST_COMMANDS:
        done = {one.rule for one in tried}
        rule = next((rule for rule in found if rule not in done), "")
        if not rule:
            break
        tried.append(_remedy(copy, rule, found[rule][0]))
        found = findings(copy)
    if tried and not tried[-1].failure:
        tried[-1] = tried[-1]._replace(failure="; ".join(compare("", copy).wrong))
    return tuple(tried)


def others(copy: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the remedies that are not the first of their finding."""
    for rule, remedies in list(findings(copy).items())[:MOST_COMMANDS]:
        for lines in remedies[1:]:
            yield rule, lines


def _remedy(copy: Path, rule: str, lines: list[str]) -> Command:
    failure = _run(copy, lines)
    if not failure and rule not in STAYS and rule in findings(copy):
        failure = "the finding is still there"
    return Command(rule, "; ".join(lines), failure)


def findings(copy: Path) -> dict[str, list[list[str]]]:
    """Return the findings with a runnable remedy, each with the lines of every one, as printed.

    A finding is named by its rule and its subject.
    """
    asked = ["check", "--python", str(copy), "--json", "--timeout", "60"]
    ran = subprocess.run(
        [sys.executable, "-m", "attn_doctor", *asked],
        capture_output=True, text=True, timeout=LIMIT, check=False, cwd=os.sep,
    )  # fmt: skip
    # No Python starts with a types.py in PYTHONPATH, attn-doctor's own neither.
    if ran.returncode not in (0, 1) or not ran.stdout.startswith("{"):
        return {}
    found: dict[str, list[list[str]]] = {}
    for problem in json.loads(ran.stdout)["problems"]:
        lines = [one["commands"] for one in problem["fixes"] if one["commands"]]
        about_machine = problem["rule"].startswith(MACHINE)
        name = " ".join(filter(None, (problem["rule"], problem["subject"])))
        if lines and not about_machine and not problem["caused_by"]:
            found.setdefault(name, lines)
    return found


def _run(copy: Path, lines: list[str]) -> str:
    """Run one remedy as it is printed; return why it failed, or empty text.

    The variables that it exports are kept, as in the shell of a user.
    """
    kept = copy / "variables"
    script = "\n".join([*lines, f"env -0 > {shlex.quote(str(kept))}"])
    ran = subprocess.run(
        ["bash", "-e"], input=script, capture_output=True,
        text=True, timeout=LIMIT, check=False, cwd=copy,
    )  # fmt: skip
    if ran.returncode:
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()[-3:]
        return f"exit {ran.returncode}: {' '.join(said)[:300]}"
    after = dict(one.split("=", 1) for one in kept.read_text().split("\0") if "=" in one)
    for name in os.environ.keys() | after.keys():
        if name not in after:
            del os.environ[name]
        elif name not in SHELL:
            os.environ[name] = after[name]
    return ""


# Ways of breaking an environment


def site(root: Path) -> Path:
    """Return its site-packages."""
    return next((root / "lib").glob("python3*/site-packages"))


def _without(*names: str) -> Breakage:
    """Remove packages as `--no-deps` leaves them out."""

    def apply(root: Path) -> bool:
        removed = False
        for name in names:
            metadata = {"PIL": "pillow", "yaml": "[Pp]y[Yy][Aa][Mm][Ll]"}.get(name, name)
            for path in [*site(root).glob(name), *site(root).glob(f"{name}.py"),
                         *site(root).glob(f"{metadata}-*.dist-info")]:  # fmt: skip
                _remove(path)
                removed = True
        return removed

    return Breakage(f"without {' and '.join(names)}", apply)


def _cut(pattern: str, part: float, what: str) -> Breakage:
    """Keep the first part of a file, as a full disk does."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(pattern), None)
        if path is None:
            return False
        data = path.read_bytes()
        path.unlink()  # the other copies keep theirs
        path.write_bytes(data[: int(len(data) * part)])
        return True

    return Breakage(f"{pattern} {what}", apply)


def _metadata_as(name: str, what: str, data: bytes | None) -> Breakage:
    """Replace METADATA by `data`; None for none, and for a link to itself."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(f"{name}-[0-9]*.dist-info/METADATA"), None)
        if path is None:
            return False
        text = path.read_bytes()
        path.unlink()
        if what == "a loop":
            path.symlink_to(path.name)
        elif what == "a folder":
            path.mkdir()
        elif what == "half":
            path.write_bytes(text[: text.index(b"\nVersion") + 1])
        elif what == "without a version":
            path.write_bytes(re.sub(rb"(?m)^Version: .*\n", b"", text))
        elif what == "with CRLF":
            path.write_bytes(text.replace(b"\n", b"\r\n"))
        elif what == "Latin-1":
            path.write_bytes(text.replace(b"\nSummary:", b"\nAuthor: Andr\xe9\nSummary:", 1))
        elif data is not None:
            path.write_bytes(data)
        return True

    return Breakage(f"METADATA of {name}: {what}", apply)


def _removed(pattern: str) -> Breakage:
    def apply(root: Path) -> bool:
        found = list(site(root).glob(pattern))
        for path in found:
            _remove(path)
        return bool(found)

    return Breakage(f"{pattern} deleted", apply)


def _moved(root: Path) -> bool:
    """Let the environment's Python lead to a base that does not exist."""
    for path in (root / "bin").glob("python*"):
        if path.is_symlink():
            path.unlink()
    (root / "bin" / "python").symlink_to("/opt/deleted/bin/python3")
    return True


def _two_metadata(root: Path) -> bool:
    info = next(site(root).glob("torch-[0-9]*.dist-info"))
    shutil.copytree(info, info.with_name("torch-1.13.1.dist-info"))
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


FLASH = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda"};
extern "C" { %s }
extern "C" PyObject *PyInit_flash_attn_2_cuda() { %s; return PyModule_Create(&module); }
"""
#: What others import from flash-attn 2.8.3, which refuses tensors of the CPU.
FLASH_INIT = """
__version__ = "2.8.3"
from flash_attn.flash_attn_interface import flash_attn_func, flash_attn_varlen_func
"""
FLASH_INTERFACE = """
import torch
import flash_attn_2_cuda as flash_attn_gpu
def flash_attn_func(q, *others, **named):
    if not q.is_cuda:
        raise RuntimeError("q must be on CUDA")
    return q * 1
flash_attn_varlen_func = _flash_attn_forward = _flash_attn_backward = flash_attn_func
_flash_attn_varlen_forward = _flash_attn_varlen_backward = flash_attn_func
_wrapped_flash_attn_forward = _wrapped_flash_attn_backward = flash_attn_func
"""


def _flash(what: str, declared: str, used: str, *options: str, tag: str = "") -> Breakage:
    """Install a substitute for flash-attn 2.8.3, whose extension is compiled here."""

    def apply(root: Path) -> bool:
        asked = (
            "import sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'))"
        )
        ran = subprocess.run(
            [root / "bin" / "python", "-c", asked],
            capture_output=True,
            text=True,
            check=True,
        )
        include, suffix = ran.stdout.split()
        folder = site(root)
        package = folder / "flash_attn"
        package.mkdir()
        (package / "__init__.py").write_text(FLASH_INIT)
        (package / "flash_attn_interface.py").write_text(FLASH_INTERFACE)
        info = folder / "flash_attn-2.8.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\nRequires-Dist: torch\n"
        )
        source = root / "flash.cpp"
        source.write_text(FLASH % (declared, used))
        ending = suffix.replace(suffix.split("-")[1], tag) if tag else suffix
        stub = root / "libcudart.so.11.0"
        link = [
            "g++",
            "-shared",
            "-Wl,-soname,libcudart.so.11.0",
            "-x",
            "c++",
            os.devnull,
        ]
        subprocess.run([*link, "-o", stub], check=True)
        lib = folder / "torch" / "lib"
        target = folder / f"flash_attn_2_cuda{ending}"
        subprocess.run(
            [
                "g++",
                "-shared",
                "-fPIC",
                f"-I{include}",
                source,
                "-o",
                target,
                f"-L{lib}",
                f"-L{root}",
                "-Wl,--no-as-needed",
                "-lc10",
                "-Wl,--unresolved-symbols=ignore-all",
                *options,
            ],
            check=True,
        )
        files = ("__init__.py", "flash_attn_interface.py")
        listed = [target.name, *(f"flash_attn/{one}" for one in files)]
        listed += [f"{info.name}/METADATA", f"{info.name}/RECORD"]
        (info / "RECORD").write_text("".join(f"{one},,\n" for one in listed))
        return True

    return Breakage(f"flash-attn {what}", apply)


def _flash_cut(root: Path) -> bool:
    """Keep half of the substitute's extension."""
    return _flash("", "", "").apply(root) and _cut("flash_attn_2_cuda*.so", 0.5, "").apply(root)


def _elsewhere(root: Path) -> bool:
    """Let the scripts start a Python that is gone, as they do after the folder was moved."""
    for path in (root / "bin").iterdir():
        head = b"" if path.is_symlink() else path.read_bytes()[:2]
        if head == b"#!":
            text = path.read_bytes().split(b"\n", 1)
            path.unlink()
            path.write_bytes(b"#!/opt/moved/bin/python\n" + text[1])
            path.chmod(0o755)
    return True


def _install(*arguments: str) -> Breakage:
    """Install something else with uv, as a hurried user does."""

    def apply(root: Path) -> bool:
        _uv("install", "-p", root / "bin" / "python", "--break-system-packages", *arguments)
        return True

    return Breakage(f"then install {' '.join(arguments)}", apply)


def _sources(root: Path) -> bool:
    """A folder of torch without compiled extensions, such as a checkout of its sources."""
    folder = root / "sources"
    shutil.copytree(site(root) / "torch", folder / "torch", ignore=shutil.ignore_patterns("*.so*"))
    return True


def _target(*arguments: str) -> Callable[[Path], bool]:
    """Install packages into a folder of their own."""

    def apply(root: Path) -> bool:
        python = root / "bin" / "python"
        _uv("install", "-p", python, "--no-deps", "--target", root / "other", *arguments)
        return True

    return apply


def _user(*arguments: str) -> Callable[[Path], bool]:
    """Install packages into the user's site-packages, which a base Python reads."""

    def apply(root: Path) -> bool:
        if (root / "pyvenv.cfg").exists():
            return False
        subprocess.run(
            [
                root / "bin" / "python",
                "-m",
                "pip",
                "install",
                "-q",
                "--user",
                "--no-deps",
                "--break-system-packages",
                *arguments,
            ],
            check=True,
            timeout=LIMIT,
            env=os.environ | {"PYTHONUSERBASE": str(root / "user")},
        )
        return True

    return apply


def _egg_info(root: Path) -> bool:
    """Turn torch's metadata into those that a Linux distribution's package has."""
    info = next(site(root).glob("torch-[0-9]*.dist-info"))
    egg = info.with_suffix(".egg-info")
    egg.mkdir()
    shutil.copy(info / "METADATA", egg / "PKG-INFO")
    shutil.rmtree(info)
    return True


def _half_removed(root: Path) -> bool:
    """Leave what pip leaves of torch when it is stopped while it removes it."""
    for path in (site(root) / "torch", next(site(root).glob("torch-[0-9]*.dist-info"))):
        path.rename(path.with_name("~" + path.name[1:]))
    return True


def _versions_differ(name: str, version: str) -> Callable[[Path], bool]:
    """Let a package's metadata claim another version than its folder."""

    def apply(root: Path) -> bool:
        info = next(site(root).glob(f"{name}-[0-9]*.dist-info"), None)
        if info is None:
            return False
        path = info / "METADATA"
        text = re.sub(r"(?m)^Version: .*", f"Version: {version}", path.read_text())
        path.unlink()
        path.write_text(text)
        info.rename(info.with_name(f"{name}-{version}.dist-info"))
        return True

    return apply


def _path_file(*arguments: str) -> Callable[[Path], bool]:
    """Install packages into a folder that a .pth file puts first."""

    def apply(root: Path) -> bool:
        _target(*arguments)(root)
        line = f"import sys; sys.path.insert(0, {str(root / 'other')!r})\n"
        (site(root) / "first.pth").write_text(line)
        return True

    return apply


def _stray(name: str) -> Callable[[Path], bool]:
    """Put a user's own file that is called like a module into a folder of PYTHONPATH."""

    def apply(root: Path) -> bool:
        (root / "scripts").mkdir()
        (root / "scripts" / f"{name}.py").write_text("experiment = 1\n")
        return True

    return apply


def _editable(name: str) -> Callable[[Path], bool]:
    """Let a .pth file lead to the sources of a package, as `pip install -e` does."""

    def apply(root: Path) -> bool:
        sources = root / "checkout" / "src"
        sources.mkdir(parents=True)
        (site(root) / name).rename(sources / name)
        record = next(site(root).glob(f"{name}-*.dist-info")) / "RECORD"
        lines = record.read_text().splitlines(keepends=True)
        record.unlink()
        record.write_text("".join(one for one in lines if not one.startswith(f"{name}/")))
        (site(root) / f"__editable__.{name}.pth").write_text(f"{sources}\n")
        return True

    return apply


def _uninstalled(*names: str) -> Callable[[Path], bool]:
    """Uninstall packages, which also removes files that other packages share."""

    def apply(root: Path) -> bool:
        python = str(root / "bin" / "python")
        asked = ["uv", "pip", "uninstall", "-p", python, "--break-system-packages", *names]
        return (
            "Uninstalled"
            in subprocess.run(asked, capture_output=True, text=True, check=False).stderr
        )

    return apply


def _uv(*arguments: str | Path) -> None:
    subprocess.run(["uv", "pip", *arguments, "-q", "--no-build"], check=True, timeout=LIMIT)


def _both(name: str, *ways: Callable[[Path], bool]) -> Breakage:
    """Break an environment in several ways at once."""
    return Breakage(name, lambda root: all(way(root) for way in ways))


def _replaced(pattern: str, part: bytes, other: bytes, what: str) -> Breakage:
    """Replace the first `part` of a file; `part` empty means its beginning."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(pattern), None)
        data = path.read_bytes() if path else b""
        if path is None or part not in data:
            return False
        path.unlink()  # the other copies keep theirs
        path.write_bytes(data.replace(part, other, 1) if part else other + data)
        return True

    return Breakage(f"{pattern} {what}", apply)


def _for_another_processor(pattern: str) -> Breakage:
    """Let the header of an extension name 64-bit Arm, as a wheel for it does."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(pattern), None)
        if path is None:
            return False
        data = bytearray(path.read_bytes())
        data[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
        path.unlink()
        path.write_bytes(data)
        return True

    return Breakage(f"{pattern} for another processor", apply)


def _customized(root: Path) -> bool:
    """A sitecustomize.py that puts a folder with another release of diffusers first."""
    _target("diffusers==0.31.0")(root)
    (root / "custom").mkdir()
    line = f"import sys\nsys.path.insert(0, {str(root / 'other')!r})\n"
    (root / "custom" / "sitecustomize.py").write_text(line)
    return True


def _finder(name: str) -> Callable[[Path], bool]:
    """Let an import hook lead to the sources of a package, as newer `pip install -e` does."""

    def apply(root: Path) -> bool:
        _editable(name)(root)
        (site(root) / f"__editable__.{name}.pth").unlink()
        module = f"__editable___{name}_finder"
        (site(root) / f"__editable__.{name}.pth").write_text(
            f"import {module}; {module}.install()\n"
        )
        (site(root) / f"{module}.py").write_text(
            "import sys\nfrom importlib.util import spec_from_file_location\n"
            f"MAPPING = {{{name!r}: {str(root / 'checkout' / 'src' / name)!r}}}\n"
            "class Finder:\n"
            "    @classmethod\n"
            "    def find_spec(cls, fullname, path=None, target=None):\n"
            "        if fullname in MAPPING:\n"
            "            folder = MAPPING[fullname]\n"
            "            return spec_from_file_location(fullname, folder + '/__init__.py')\n"
            "def install():\n    sys.meta_path.append(Finder)\n"
        )
        return True

    return apply


def _linked(root: Path) -> bool:
    """Move torch to another disk and leave a link."""
    (root / "disk").mkdir()
    (site(root) / "torch").rename(root / "disk" / "torch")
    (site(root) / "torch").symlink_to(root / "disk" / "torch")
    return True


def _only_bytecode(name: str) -> Callable[[Path], bool]:
    """Leave of a package what an uninstaller leaves: folders with bytecode."""

    def apply(root: Path) -> bool:
        if not (site(root) / name).is_dir():
            return False
        for path in (site(root) / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                path.unlink()
        for path in site(root).glob(f"{name}-[0-9]*.dist-info"):
            _remove(path)
        return True

    return apply


def _library_in_front(name: str) -> Callable[[Path], bool]:
    """Put a library without functions into a folder of LD_LIBRARY_PATH."""

    def apply(root: Path) -> bool:
        (root / "front").mkdir()
        subprocess.run(
            [
                "g++",
                "-shared",
                f"-Wl,-soname,{name}",
                "-x",
                "c++",
                os.devnull,
                "-o",
                root / "front" / name,
            ],
            check=True,
        )
        return True

    return apply


def _another_metadata(name: str, version: str) -> Callable[[Path], bool]:
    """Leave metadata of an older release beside those of a package."""

    def apply(root: Path) -> bool:
        info = next(site(root).glob(f"{name}-[0-9]*.dist-info"), None)
        if info is None:
            return False
        older = info.with_name(f"{name}-{version}.dist-info")
        shutil.copytree(info, older)
        text = re.sub(r"(?m)^Version: .*", f"Version: {version}", (older / "METADATA").read_text())
        (older / "METADATA").unlink()
        (older / "METADATA").write_text(text)
        return True

    return apply


def _without_pyvenv(root: Path) -> bool:
    path = root / "pyvenv.cfg"
    if not path.exists():
        return False
    path.unlink()
    return True


def _overlaid(what: str) -> Breakage:
    """Install over the files of another release, as pip's --ignore-installed does."""

    def apply(root: Path) -> bool:
        if not (site(root) / what.partition("==")[0]).exists():
            return False
        python = root / "bin" / "python"
        _uv("install", "-p", python, "--no-deps", "--target", root / "over", what)
        # Copies with hard links share files with the base; so each file is replaced.
        for path in (root / "over").rglob("*"):
            target = site(root) / path.relative_to(root / "over")
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.unlink(missing_ok=True)
                shutil.copy(path, target)
        shutil.rmtree(root / "over")
        return True

    return Breakage(f"{what} installed over it", apply)


def _folder(name: str) -> Callable[[Path], bool]:
    """Put an empty folder that is called like a package into a folder of PYTHONPATH."""

    def apply(root: Path) -> bool:
        (root / "scripts" / name).mkdir(parents=True)
        return True

    return apply


def _package(name: str) -> Callable[[Path], bool]:
    """Put a user's own package that is called like a module into a folder of PYTHONPATH."""

    def apply(root: Path) -> bool:
        _folder(name)(root)
        (root / "scripts" / name / "__init__.py").write_text("experiment = 1\n")
        return True

    return apply


def _removed_metadata(root: Path) -> bool:
    """Remove the metadata of what `_target` installed, as a checkout of sources has none."""
    for path in (root / "other").glob("*.dist-info"):
        shutil.rmtree(path)
    return True


def _dangling(pattern: str) -> Callable[[Path], bool]:
    """Replace a file or folder by a link to nothing, as a disk that is not there leaves it."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(pattern), None)
        if path is None:
            return False
        _remove(path)
        path.symlink_to("/mnt/gone")
        return True

    return apply


def _first_or_last(name: str, line: str) -> Callable[[Path], bool]:
    """Let a .pth file add a folder with a user's own module; `{}` in the line is the folder."""

    def apply(root: Path) -> bool:
        _stray(name)(root)
        (site(root) / "mine.pth").write_text(line.format(root / "scripts") + "\n")
        return True

    return apply


def _archived(name: str) -> Callable[[Path], bool]:
    """Put a user's own module into an archive."""

    def apply(root: Path) -> bool:
        _stray(name)(root)
        shutil.make_archive(str(root / "archive"), "zip", root / "scripts")
        return True

    return apply


def _compiled_stray(root: Path) -> bool:
    """Leave the bytecode of a user's own module, without its source."""
    _stray("inspect")(root)
    source = root / "scripts" / "inspect.py"
    python = root / "bin" / "python"
    subprocess.run([python, "-m", "compileall", "-q", "-b", root / "scripts"], check=True)
    source.unlink()
    return True


def _of_another_system(system: str, what: str) -> Callable[[Path], bool]:
    """Install a wheel of another system over that of this one."""

    def apply(root: Path) -> bool:
        python = root / "bin" / "python"
        asked = ["--python-platform", system, "--link-mode", "copy", "--reinstall"]
        _uv("install", "-p", python, "--no-deps", *asked, what)
        return True

    return apply


def _edited(pattern: str, part: str, other: str) -> Callable[[Path], bool]:
    """Replace text in a file below the root; part is a pattern."""

    def apply(root: Path) -> bool:
        path = next(root.glob(pattern))
        text = re.sub(part, other, path.read_text())
        path.unlink()
        path.write_text(text)
        return True

    return apply


def _empty_metadata(root: Path) -> bool:
    (site(root) / "diffusers-0.30.0.dist-info").mkdir()
    return True


def _editable_gone(root: Path) -> bool:
    """Delete the sources of an editable install."""
    _editable("transformers")(root)
    shutil.rmtree(root / "checkout")
    return True


def _another_python(root: Path) -> bool:
    """A folder with compiled packages for another Python."""
    theirs = "3.12" if "python3.12" not in str(site(root)) else "3.11"
    asked = ["--python-version", theirs, "--no-deps"]
    python = root / "bin" / "python"
    packages = ("numpy", "regex", "pyyaml", "pillow")
    _uv("install", *asked, "-p", python, "--target", root / "other", *packages)
    return True


def _in_site(name: str, data: bytes) -> Callable[[Path], bool]:
    """Put a file into site-packages."""

    def apply(root: Path) -> bool:
        (site(root) / name).write_bytes(data)
        return True

    return apply


def _wrapped(root: Path) -> bool:
    """Let the environment's python be a shell script that starts the real one."""
    python = root / "bin" / "python"
    python.rename(root / "bin" / "python.real")
    real = str(root / "bin" / "python.real").replace("'", "'\\''")
    python.write_text(f"#!/bin/sh\nexec '{real}' \"$@\"\n")
    python.chmod(0o755)
    return True


def _newer_python(root: Path) -> bool:
    """Let the environment's python be of the next minor version, as after a system's upgrade."""
    ours = int(site(root).parent.name.removeprefix("python3."))
    newer = shutil.which(f"python3.{ours + 1}")
    if newer is None or not (root / "pyvenv.cfg").exists():
        return False
    for path in (root / "bin").glob("python*"):
        path.unlink()
    (root / "bin" / "python").symlink_to(newer)
    return True


def _extension_of_another(root: Path) -> bool:
    """Let the name of torch's extension say another Python."""
    path = next(site(root).glob("torch/_C.cpython-3*.so"), None)
    if path is None:
        return False
    path.rename(path.with_name(re.sub(r"cpython-3\d+", "cpython-38", path.name)))
    return True


def _flash_without(what: str) -> Callable[[Path], bool]:
    """Remove the extension of the substitute for flash-attn, or leave an empty file."""

    def apply(root: Path) -> bool:
        _flash("", "", "").apply(root)
        path = next(site(root).glob("flash_attn_2_cuda*.so"))
        path.unlink()
        if what:
            path.write_bytes(b"")
        return True

    return apply


def _in_path(*arguments: str) -> Callable[[Path], bool]:
    """Put the wheel of a package, which Python can import as an archive, into a folder."""

    def apply(root: Path) -> bool:
        _target(*arguments)(root)
        shutil.make_archive(str(root / "archive"), "zip", root / "other")
        shutil.rmtree(root / "other")
        (root / "archive.zip").rename(root / "archive.whl")
        return True

    return apply


def _zipped(name: str) -> Callable[[Path], bool]:
    """Move a package into an archive, which a .pth file adds."""

    def apply(root: Path) -> bool:
        (root / "zipped").mkdir()
        shutil.move(site(root) / name, root / "zipped" / name)
        shutil.make_archive(str(root / "archive"), "zip", root / "zipped")
        shutil.rmtree(root / "zipped")
        (site(root) / "archive.pth").write_text(f"{root / 'archive.zip'}\n")
        return True

    return apply


def _sourceless(name: str) -> Callable[[Path], bool]:
    """Replace the sources of a package by their bytecode, as some images do."""

    def apply(root: Path) -> bool:
        folder = site(root) / name
        python = str(root / "bin" / "python")
        subprocess.run([python, "-m", "compileall", "-q", "-b", folder], check=False)
        for path in folder.rglob("*.py"):
            if path.with_suffix(".pyc").exists():
                path.unlink()
        return True

    return apply


def _lib64(root: Path) -> bool:
    """Let lib64 be a folder of its own with a second site-packages, which Python does not read."""
    (root / "lib64").unlink(missing_ok=True)
    target = root / "lib64" / site(root).parent.name / "site-packages"
    python = root / "bin" / "python"
    _uv("install", "-p", python, "--no-deps", "--target", target, "diffusers==0.31.0")
    return True


def _linked_root(root: Path) -> bool:
    """Move the environment and leave a link."""
    target = root.with_name(root.name + "-real")
    shutil.rmtree(target, ignore_errors=True)
    root.rename(target)
    root.symlink_to(target)
    return True


def _half_installed(name: str, by_uv: bool) -> Callable[[Path], bool]:
    """Leave what pip, or uv, leaves of a package if it is killed while it installs it.

    pip writes files in the order of the archive, uv in many threads; the metadata come last.
    """

    def apply(root: Path) -> bool:
        info = next(site(root).glob(f"{name}-[0-9]*.dist-info"))
        listed = [line.split(",")[0] for line in (info / "RECORD").read_text().splitlines()]
        files = [one for one in listed if one.startswith(f"{name}/") and one.endswith(".py")]
        gone = files[1::2] if by_uv else files[len(files) // 2 :]
        for one in gone:
            (site(root) / one).unlink()
        shutil.rmtree(info)
        return True

    return apply


def _entry_point(root: Path) -> bool:
    """Leave the metadata of a backend that torch imports when it is imported itself."""
    info = site(root) / "torch_npu-2.7.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.7.1\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return True


def _text(pattern: str, text: str, what: str) -> Breakage:
    """Replace a file by text."""

    def apply(root: Path) -> bool:
        path = next(site(root).glob(pattern), None)
        if path is None:
            return False
        path.unlink()
        path.write_text(text)
        return True

    return Breakage(f"{pattern} {what}", apply)


def _copied_from(python: str, *names: str) -> Callable[[Path], bool]:
    """Copy packages of another Python over those of the environment."""

    def apply(root: Path) -> bool:
        ours = root / "bin" / "python"
        asked = ["--python-version", python, "--no-deps", "--link-mode", "copy"]
        _uv("install", *asked, "-p", ours, "--target", root / "over", *names)
        for path in [*(root / "over").iterdir()]:
            target = site(root) / path.name
            if target.exists():
                _remove(target)
            path.rename(target)
        return True

    return apply


def _prefix(*arguments: str) -> Callable[[Path], bool]:
    """Install packages into a prefix of their own."""

    def apply(root: Path) -> bool:
        python = root / "bin" / "python"
        _uv("install", "-p", python, "--no-deps", "--prefix", root / "prefix", *arguments)
        (root / "scripts").symlink_to(site(root / "prefix"))
        return True

    return apply


def _flash_of(library: str, requirement: str = "") -> Callable[[Path], bool]:
    """A substitute for flash-attn that needs a library, or a package that is not there."""

    def apply(root: Path) -> bool:
        stub = ["g++", "-shared", f"-Wl,-soname,{library}", "-x", "c++", os.devnull]
        subprocess.run([*stub, "-o", root / library], check=True)
        _flash("", "", "", f"-l:{library}").apply(root)
        (root / library).unlink()
        if requirement:
            metadata = site(root) / "flash_attn-2.8.3.dist-info" / "METADATA"
            metadata.write_text(metadata.read_text() + f"Requires-Dist: {requirement}\n")
            code = f"import {requirement}\n{FLASH_INIT}"
            (site(root) / "flash_attn" / "__init__.py").write_text(code)
        return True

    return apply


def _without_module(name: str) -> Callable[[Path], bool]:
    """Remove a compiled module of Python itself, which a Python built without a library lacks."""

    def apply(root: Path) -> bool:
        if (root / "pyvenv.cfg").exists():
            return False
        found = list(site(root).parent.glob(f"lib-dynload/{name}.*.so"))
        for path in found:
            path.unlink()
        return bool(found)

    return apply


def _leftovers(root: Path) -> bool:
    """Leave beside torch what pip leaves of an older one that it could not delete."""
    shutil.copytree(site(root) / "torch" / "optim", site(root) / "~orch" / "optim")
    info = next(site(root).glob("torch-[0-9]*.dist-info"))
    shutil.copytree(info, site(root) / "~orch-2.1.0.dist-info")
    return True


def _one_file_of(what: str, file: str) -> Callable[[Path], bool]:
    """Replace one file of a package by that of another release."""

    def apply(root: Path) -> bool:
        target = site(root) / file
        if not target.exists():
            return False
        _target(what)(root)
        target.unlink()
        shutil.copy(root / "other" / file, target)
        shutil.rmtree(root / "other")
        return True

    return apply


BREAKAGES = (
    Breakage("as installed", lambda _: True),
    Breakage("moved", _elsewhere),
    Breakage("torch's sources in PYTHONPATH", _sources, (("PYTHONPATH", "{root}/sources"),)),
    Breakage(
        "another torch in PYTHONPATH",
        _target("torch==2.5.1"),
        (("PYTHONPATH", "{root}/other"),),
    ),
    Breakage(
        "an old numpy in PYTHONPATH",
        _target("numpy==1.26.4"),
        (("PYTHONPATH", "{root}/other"),),
    ),
    Breakage(
        "another torch in the user's site-packages",
        _user("torch==2.13.0+cpu"),
        (("PYTHONUSERBASE", "{root}/user"),),
    ),
    Breakage(
        "diffusers in the user's site-packages",
        _user("diffusers==0.35.2"),
        (("PYTHONUSERBASE", "{root}/user"),),
    ),
    *(
        _install("--no-deps", f"xformers=={version}")
        for version in ("0.0.27.post2", "0.0.29.post3", "0.0.32.post2", "0.0.35")
    ),
    *(_install("--no-deps", f"torchvision=={version}") for version in ("0.20.1", "0.28.0")),
    _install("--no-deps", "torchaudio==2.5.1"),
    _install("--no-deps", "torchao==0.9.0"),
    _install("--no-deps", "triton==3.0.0"),
    _install("--no-deps", "torch==2.5.1"),
    _install("numpy==1.26.4"),
    _install("--no-deps", "diffusers", "transformers", "accelerate", "peft"),
    *map(
        _without,
        (
            "packaging",
            "filelock",
            "typing_extensions",
            "sympy",
            "networkx",
            "jinja2",
            "numpy",
            "httpx2",
            "httpx",
            "safetensors",
            "psutil",
            "yaml",
            "requests",
            "regex",
            "huggingface_hub",
            "tokenizers",
            "PIL",
            "tqdm",
            "importlib_metadata",
            "fsspec",
            "triton",
            "setuptools",
        ),
    ),
    _without("packaging", "sympy"),
    _cut("torchvision/_C*.so", 0.5, "cut short"),
    _cut("torchvision/_C*.so", 0, "empty"),
    _cut("torchvision/image*.so", 0.7, "cut short"),
    _cut("torchaudio/lib/libtorchaudio*.so", 0.5, "cut short"),
    _cut("xformers/_C.so", 0.9, "cut short"),
    _cut("torch/lib/libtorch_cpu.so", 0.6, "cut short"),
    _cut("torch/lib/libc10.so", 0, "empty"),
    _cut("torch/lib/libtorch_python.so", 0.9, "cut short"),
    _removed("torch/lib/libc10.so"),
    _removed("torch/version.py"),
    _removed("torch/__init__.py"),
    _removed("torch/_C.*.so"),
    _removed("torch"),
    _removed("torch-[0-9]*.dist-info"),
    _removed("nvidia/cudnn"),
    _removed("nvidia/cu13/lib/libcublas.so*"),
    _metadata_as("torch", "missing", None),
    _metadata_as("torch", "empty", b""),
    _metadata_as("torch", "binary", bytes(range(256)) * 8),
    _metadata_as("torch", "Latin-1", None),
    _metadata_as("torch", "a loop", None),
    _metadata_as("diffusers", "empty", b""),
    _metadata_as("transformers", "missing", None),
    Breakage("two metadata folders of torch", _two_metadata),
    Breakage("its base deleted", _moved),
    _flash("that fits", "", ""),
    _flash(
        "with an undefined symbol",
        "void _ZN3c104gone7missingEv();",
        "_ZN3c104gone7missingEv()",
    ),
    _flash("with the library of CUDA 11", "", "", "-l:libcudart.so.11.0"),
    _flash("for another Python", "", "", tag="39"),
    Breakage("flash-attn cut short", _flash_cut),
    *(
        _install(what)
        for what in ("torch==2.15.0", "torch==2.9.1", "torch==2.7.1", "huggingface_hub==0.23.5")
    ),
    *(
        _install("--no-deps", what)
        for what in (
            "huggingface_hub==0.25.2",
            "tokenizers==0.15.2",
            "transformers==4.40.2",
            "peft==0.6.2",
            "safetensors==0.3.3",
            "accelerate==0.20.3",
            "kernels==0.4.4",
            "typing_extensions==4.5.0",
            "filelock==3.0.12",
            "nvidia-cudnn-cu12==8.9.2.26",
            "nvidia-cudnn-cu13==9.13.0.50",
            "nvidia-nccl-cu12==2.18.1",
            "nvidia-cublas-cu12==12.1.3.1",
            "torchao==0.18.0",
            "torchvision==0.29.2",
            "torchaudio==2.11.0",
            "bitsandbytes==0.42.0",
            "sageattention==1.0.6",
            "triton==3.9.0",
            "numpy==2.4.0",
            "diffusers==0.30.3",
        )
    ),
    Breakage("torch's metadata as an egg", _egg_info),
    Breakage("torch half removed by pip", _half_removed),
    Breakage("another version in metadata of torch", _versions_differ("torch", "2.5.1")),
    Breakage(
        "metadata of torchvision of another version", _versions_differ("torchvision", "0.9.0")
    ),
    Breakage("another torch by a .pth file", _path_file("torch==2.5.1")),
    *(
        Breakage(f"{name}.py in PYTHONPATH", _stray(name), (("PYTHONPATH", "{root}/scripts"),))
        for name in ("torch", "numpy", "packaging", "diffusers", "xformers", "random")
    ),
    Breakage("an editable diffusers", _editable("diffusers")),
    Breakage("an editable transformers", _editable("transformers")),
    *(
        Breakage(f"{name} uninstalled", _uninstalled(name))
        for name in (
            "triton",
            "nvidia-cudnn-cu12",
            "nvidia-cudnn-cu13",
            "nvidia-cublas",
            "nvidia-nccl-cu13",
            "nvidia-cusparselt-cu12",
            "nvidia-nvshmem-cu13",
            "torch",
            "numpy",
            "cuda-bindings",
        )
    ),
    _removed("torchvision"),
    _removed("torchvision/_C*.so"),
    _removed("xformers/_C*"),
    _removed("diffusers/models"),
    _removed("numpy/__init__.py"),
    _removed("numpy/_core/_multiarray_umath*.so"),
    _removed("triton/_C"),
    _removed("torch/lib"),
    _removed("torch/nn"),
    _removed("torch/bin"),
    _removed("torchgen"),
    _removed("nvidia"),
    _removed("[a-z]*-[0-9]*.dist-info"),
    _cut("torch/_C.*.so", 0, "empty"),
    _cut("torch/lib/libtorch_cuda.so", 0.3, "cut short"),
    _cut("nvidia/cudnn/lib/libcudnn.so.9", 0, "empty"),
    _cut("torch/__init__.py", 0, "empty"),
    _cut("torch/functional.py", 0.5, "cut short"),
    _cut("diffusers/__init__.py", 0, "empty"),
    _cut("diffusers/models/attention_dispatch.py", 0.5, "cut short"),
    _cut("safetensors/_safetensors_rust*.so", 0.5, "cut short"),
    _cut("tokenizers/tokenizers*.so", 0, "empty"),
    _cut("numpy/_core/_multiarray_umath*.so", 0.5, "cut short"),
    _cut("regex/_regex*.so", 0, "empty"),
    _cut("triton/_C/libtriton.so", 0.5, "cut short"),
    _cut("bitsandbytes/libbitsandbytes_c*.so", 0.5, "cut short"),
    # Listed on 26 November 2026
    _without("pip"),
    _removed("pip/_internal"),
    Breakage("without pyvenv.cfg", _without_pyvenv),
    _both("without pip and packaging", _without("pip").apply, _without("packaging").apply),
    _both(
        "torch without RECORD and libc10.so",
        _removed("torch-[0-9]*.dist-info/RECORD").apply,
        _removed("torch/lib/libc10.so").apply,
    ),
    _both(
        "numpy without RECORD and __init__.py",
        _removed("numpy-[0-9]*.dist-info/RECORD").apply,
        _removed("numpy/__init__.py").apply,
    ),
    Breakage(
        "another diffusers by sitecustomize.py", _customized, (("PYTHONPATH", "{root}/custom"),)
    ),
    Breakage("an import hook of an editable diffusers", _finder("diffusers")),
    Breakage("an import hook of an editable accelerate", _finder("accelerate")),
    Breakage("torch on another disk", _linked),
    *(
        Breakage(f"{name} with bytecode only", _only_bytecode(name))
        for name in ("torch", "torchvision", "xformers", "diffusers", "numpy")
    ),
    *(
        Breakage(
            f"{name} without functions in LD_LIBRARY_PATH",
            _library_in_front(name),
            (("LD_LIBRARY_PATH", "{root}/front"),),
        )
        for name in (
            "libcudnn.so.9",
            "libc10.so",
            "libgomp.so.1",
            "libcudart.so.12",
            "libcudart.so.13",
        )
    ),
    *(
        Breakage(f"metadata of {name} {version} too", _another_metadata(name, version))
        for name, version in (
            ("numpy", "1.24.0"),
            ("diffusers", "0.28.0"),
            ("transformers", "4.30.0"),
            ("torchvision", "0.15.1"),
            ("xformers", "0.0.20"),
            ("packaging", "19.0"),
        )
    ),
    *map(
        _for_another_processor,
        (
            "torchvision/_C*.so",
            "torch/_C.*.so",
            "torch/lib/libtorch_cpu.so",
            "safetensors/_saf*.so",
            "numpy/_core/_multiarray_umath*.so",
            "xformers/_C.so",
            "torchaudio/lib/libtorchaudio*.so",
            "tokenizers/tok*.so",
        ),
    ),
    _replaced("torch/_tensor.py", b"", b"\0\0\0\0", "with NUL bytes"),
    _replaced(
        "torch/nn/functional.py", b"def linear", b"<<<<<<< HEAD\ndef linear", "with a conflict"
    ),
    _replaced(
        "diffusers/models/attention_processor.py",
        b"import math",
        b"<<<<<<< HEAD\nimport math",
        "with a conflict",
    ),
    _replaced("diffusers/utils/import_utils.py", b"", b"\xff\xfe", "with a wrong encoding"),
    _replaced(
        "transformers/modeling_utils.py",
        b"import copy",
        b"import copyy",
        "with a misspelled import",
    ),
    _replaced("torch/version.py", b"__version__", b"version__", "without a version"),
    *(
        _install("--no-deps", what)
        for what in (
            "huggingface_hub==0.36.0",
            "tokenizers==0.21.4",
            "transformers==4.57.1",
            "transformers==5.2.0",
            "sympy==1.11",
            "packaging==20.9",
            "jinja2==2.11.3",
            "triton==2.1.0",
            "xformers==0.0.31",
            "torchvision==0.19.1",
            "torchvision==0.24.1",
            "torchaudio==2.7.1",
            "diffusers==0.25.1",
            "numpy==2.2.6",
            "safetensors==0.4.1",
            "accelerate==0.26.1",
            "regex==2019.12.20",
            "kernels==0.10.0",
            "torchao==0.13.0",
            "bitsandbytes==0.45.5",
            "peft==0.14.0",
        )
    ),
    _removed("bitsandbytes/libbitsandbytes_cpu.so"),
    _removed("nvidia/cusparselt"),
    _removed("nvidia/nccl"),
    _removed("torch/lib/libshm.so"),
    _removed("torch/lib/libtorch_global_deps.so"),
    _removed("torch/_dynamo"),
    _removed("torch/lib/libgomp*"),
    _removed("torch.libs"),
    _removed("numpy.libs"),
    _removed("pillow.libs"),
    _removed("triton/backends"),
    _without("setuptools", "networkx"),
    _without("mpmath"),
    _without("markupsafe"),
    _without("certifi"),
    _without("hf_xet"),
    _without("click"),
    _without("typer"),
    _without("anyio"),
    # Listed on 27 November 2026
    _metadata_as("torchvision", "empty", b""),
    _metadata_as("numpy", "binary", bytes(range(256)) * 8),
    _metadata_as("xformers", "missing", None),
    _metadata_as("huggingface_hub", "missing", None),
    _metadata_as("accelerate", "a loop", None),
    _removed("transformers-[0-9]*.dist-info"),
    # Listed for the runs of 27 November 2026 at noon
    *(
        _metadata_as(name, what, data)
        for name, what, data in (
            ("torch", "a folder", None),
            ("diffusers", "half", None),
            ("transformers", "without a version", None),
            ("torchvision", "with CRLF", None),
            ("torch", "with CRLF", None),
            ("accelerate", "UTF-16", "Name: accelerate\nVersion: 1.0\n".encode("utf-16")),
            ("torch", "UTF-16", "Name: torch\nVersion: 2.13.0\n".encode("utf-16")),
        )
    ),
    *(
        _overlaid(name)
        for name in (
            "transformers==4.46.3",
            "numpy==1.26.4",
            "huggingface_hub==0.30.2",
            "diffusers==0.33.1",
            "peft==0.10.0",
        )
    ),
    *(
        _install("--no-deps", *what.split())
        for what in (
            "huggingface_hub==2.4.0",
            "huggingface_hub==1.0.1",
            "transformers==4.57.6",
            "transformers==5.24.0",
            "transformers==4.44.2",
            "tokenizers==0.22.1",
            "tokenizers==0.19.1",
            "diffusers==0.42.1",
            "diffusers==0.36.0",
            "peft==0.21.2",
            "peft==0.17.1",
            "accelerate==1.15.0",
            "accelerate==0.34.2",
            "torchao==0.15.0",
            "bitsandbytes==0.43.1",
            "triton==2.2.0",
            "triton==3.2.0",
            "triton==3.5.1",
            "mpmath==1.4.0",
            "scikit-learn==1.3.2 scipy==1.11.4 joblib threadpoolctl",
            "pandas==2.0.3 python-dateutil pytz tzdata six",
            "nvidia-nvjitlink-cu12==12.1.105",
            "nvidia-cusparse-cu12==12.1.0.106",
            "nvidia-cuda-nvrtc-cu12==12.1.105",
            "nvidia-cudnn-cu13==9.20.0.48",
            "torchvision==0.21.0",
            "torchvision==0.26.0",
            "torchaudio==2.8.0",
            "torchaudio==2.9.1",
            "xformers==0.0.23.post1",
            "xformers==0.0.28.post3",
            "xformers==0.0.34",
            "kernels==0.17.2",
            "safetensors==0.4.5",
            "numpy==1.24.4",
            "numpy==2.3.5",
            "optimum-quanto==0.2.7 ninja",
            "sageattention==1.0.6",
        )
    ),
    *(
        _install(*what.split())
        for what in (
            "-U transformers",
            "-U diffusers",
            "-U huggingface_hub",
            "-U xformers",
            "-U torchao",
            "-U bitsandbytes",
            "-U torchvision",
            "-U accelerate peft",
        )
    ),
    *map(
        _without,
        (
            "urllib3",
            "idna",
            "charset_normalizer",
            "h11",
            "httpcore",
            "rich",
            "six",
            "einops",
            "shellingham",
            "pygments",
            "importlib_metadata",
            "zipp",
        ),
    ),
    *(
        Breakage(
            f"{name}.py in PYTHONPATH, more", _stray(name), (("PYTHONPATH", "{root}/scripts"),)
        )
        for name in (
            "types",
            "logging",
            "copy",
            "queue",
            "tokenizers",
            "transformers",
            "triton",
            "regex",
            "PIL",
            "inspect",
            "accelerate",
            "xformers",
            "flash_attn",
        )
    ),
    *(
        Breakage(
            f"an empty folder {name} in PYTHONPATH",
            _folder(name),
            (("PYTHONPATH", "{root}/scripts"),),
        )
        for name in ("torch", "diffusers", "triton")
    ),
    Breakage(
        "packages of another Python in PYTHONPATH",
        _another_python,
        (("PYTHONPATH", "{root}/other"),),
    ),
    Breakage(
        "an older nvJitLink in LD_LIBRARY_PATH",
        _target("nvidia-nvjitlink-cu12==12.1.105"),
        (("LD_LIBRARY_PATH", "{root}/other/nvidia/nvjitlink/lib"),),
    ),
    Breakage(
        "an older cuDNN in LD_LIBRARY_PATH",
        _target("nvidia-cudnn-cu12==9.1.0.70"),
        (("LD_LIBRARY_PATH", "{root}/other/nvidia/cudnn/lib"),),
    ),
    *(
        Breakage(
            f"{name} without functions in front",
            _library_in_front(name),
            (("LD_LIBRARY_PATH", "{root}/front"),),
        )
        for name in (
            "libstdc++.so.6",
            "libcublas.so.12",
            "libcublas.so.13",
            "libnccl.so.2",
            "libtorch_cpu.so",
            "libz.so.1",
        )
    ),
    Breakage(
        "LD_PRELOAD of a library that is gone", lambda _: True, (("LD_PRELOAD", "{root}/gone.so"),)
    ),
    Breakage("a .pth file with an error", _in_site("broken.pth", b"import does_not_exist_here\n")),
    Breakage("a binary .pth file", _in_site("binary.pth", bytes(range(1, 256)))),
    Breakage("a sitecustomize.py that raises", _in_site("sitecustomize.py", b"raise KeyError(1)")),
    Breakage("its python is a script", _wrapped),
    Breakage("its python is of a newer minor version", _newer_python),
    Breakage("torch's extension of another Python", _extension_of_another),
    _flash("of two Pythons", "", ""),
    Breakage("flash-attn without its extension", _flash_without("")),
    Breakage("flash-attn with an empty extension", _flash_without("empty")),
    _both(
        "without RECORD of torch and INSTALLER",
        _removed("torch-[0-9]*.dist-info/RECORD").apply,
        _removed("torch-[0-9]*.dist-info/INSTALLER").apply,
    ),
    *map(
        _removed,
        (
            "torchvision.libs",
            "torchaudio/lib",
            "xformers",
            "xformers-*.dist-info",
            "triton",
            "triton-*.dist-info",
            "nvidia/cu13",
            "nvidia/nvshmem",
            "nvidia/cuda_nvrtc",
            "torch/include",
            "torch/utils",
            "torch/distributed",
            "transformers/models",
            "transformers/utils",
            "tokenizers",
            "safetensors",
            "torch/_inductor",
            "torch/nn/attention",
            "accelerate/utils",
        ),
    ),
    *(
        _cut(name, part, how)
        for name, part, how in (
            ("transformers/__init__.py", 0, "empty"),
            ("transformers/modeling_utils.py", 0.5, "cut in half"),
            ("accelerate/__init__.py", 0, "empty"),
            ("torch/lib/libtorch_cuda.so", 0, "empty"),
            ("torch/lib/libtorch_cuda_linalg.so", 0.5, "cut in half"),
            ("huggingface_hub/__init__.py", 0, "empty"),
            ("torch/nn/attention/flex_attention.py", 0.5, "cut in half"),
            ("nvidia/cu13/lib/libcublasLt.so.13", 0.5, "cut in half"),
            ("nvidia/nccl/lib/libnccl.so.2", 0.5, "cut in half"),
            ("xformers/ops/fmha/__init__.py", 0, "empty"),
            ("yaml/_yaml*.so", 0, "empty"),
            ("PIL/_imaging.*.so", 0.5, "cut in half"),
            ("hf_xet/hf_xet*.so", 0.5, "cut in half"),
            ("markupsafe/_speedups*.so", 0, "empty"),
        )
    ),
    Breakage(
        "then uv pip uninstall of torch's nvidia wheels",
        _uninstalled("nvidia-cublas-cu12", "nvidia-cusparse-cu12", "nvidia-nvjitlink-cu12"),
    ),
    *(
        Breakage(f"{name} uninstalled, more", _uninstalled(name))
        for name in (
            "nvidia-cuda-runtime-cu12",
            "nvidia-nvtx-cu12",
            "nvidia-cufile-cu12",
            "nvidia-cufile",
            "nvidia-nvjitlink",
            "nvidia-cuda-cupti",
            "nvidia-cudnn-cu13",
            "sympy",
            "torchvision",
            "huggingface_hub",
            "accelerate",
            "cuda-toolkit",
        )
    ),
    # Listed on 27 November 2026 at 16:00
    *(
        _install(*what.split())
        for what in (
            "-U numpy",
            "-U accelerate",
            "-U safetensors pillow protobuf",
            "-U peft",
            "-U triton",
            "-U kernels",
            "-U torch",
            "-U flash-linear-attention liger-kernel",
            "--no-deps bitsandbytes==0.49.1",
            "--no-deps pillow==12.0.0",
            "--no-deps nvidia-cublas-cu12==12.9.1.4",
            "--no-deps nvidia-cudnn-cu12==9.10.2.21",
        )
    ),
    *(
        Breakage(f"{name} uninstalled, list 3", _uninstalled(name))
        for name in ("nvidia-nvshmem-cu12", "nvidia-cutlass-dsl")
    ),
    *map(
        _removed,
        (
            "nvidia/cu13/lib/libcufft.so.12",
            "nvidia/cu13/lib/libnvrtc.so.13",
            "torch/lib/libcaffe2_nvrtc.so",
            "diffusers/utils",
            "torch/fx",
        ),
    ),
    *(
        Breakage(f"{name} deleted, list 3", _removed(name).apply)
        for name in ("diffusers", "huggingface_hub")
    ),
    _cut("packaging/version.py", 0, "empty"),
    Breakage("a backend of torch that is gone", _entry_point),
    Breakage(
        "a wheel in PYTHONPATH",
        _in_path("diffusers==0.35.2"),
        (("PYTHONPATH", "{root}/archive.whl"),),
    ),
    Breakage("diffusers in a zip file of a .pth file", _zipped("diffusers")),
    Breakage("accelerate as bytecode without sources", _sourceless("accelerate")),
    Breakage("torch as bytecode without sources", _sourceless("torch")),
    Breakage("a second site-packages in lib64", _lib64),
    Breakage("a link to the environment", _linked_root),
    Breakage("transformers half installed", _half_installed("transformers", by_uv=False)),
    Breakage("diffusers half installed by uv", _half_installed("diffusers", by_uv=True)),
    Breakage("PYTHONHOME of another Python", lambda _: True, (("PYTHONHOME", "/usr"),)),
    _text(
        "torch/lib/libtorch_cpu.so",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 440000000\n",
        "as a pointer of Git LFS",
    ),
    Breakage(
        "tokenizers of another Python copied in", _copied_from("3.9", "tokenizers==0.15.0", "regex")
    ),
    Breakage("html/ in PYTHONPATH", _package("html"), (("PYTHONPATH", "{root}/scripts"),)),
    Breakage("jinja2/ in PYTHONPATH", _package("jinja2"), (("PYTHONPATH", "{root}/scripts"),)),
    Breakage(
        "sources of transformers 4.40.2 in PYTHONPATH",
        _both("", _target("transformers==4.40.2"), _removed_metadata).apply,
        (("PYTHONPATH", "{root}/other"),),
    ),
    Breakage(
        "an install with --prefix in PYTHONPATH",
        _prefix("diffusers==0.33.1", "huggingface_hub==0.30.2"),
        (("PYTHONPATH", "{root}/scripts"),),
    ),
    # Listed on 27 November 2026 at 16:56
    Breakage("inspect.pyc in PYTHONPATH", _compiled_stray, (("PYTHONPATH", "{root}/scripts"),)),
    Breakage(
        "queue.py in a folder that a .pth file puts first",
        _first_or_last("queue", "import sys; sys.path.insert(0, '{}')"),
    ),
    Breakage("tokenizers.py in a folder that a .pth file adds", _first_or_last("tokenizers", "{}")),
    Breakage(
        "an archive with typing_extensions.py in PYTHONPATH",
        _archived("typing_extensions"),
        (("PYTHONPATH", "{root}/archive.zip"),),
    ),
    *(
        Breakage(name, lambda _: True, (variable,))
        for name, variable in (
            ("PYTHONOPTIMIZE=2", ("PYTHONOPTIMIZE", "2")),
            ("TORCH_LOGS of an unknown name", ("TORCH_LOGS", "attention")),
            ("DIFFUSERS_ATTN_BACKEND of an unknown name", ("DIFFUSERS_ATTN_BACKEND", "sdpa")),
            ("USE_TORCH=0", ("USE_TORCH", "0")),
            ("PYTHONPLATLIBDIR=lib64", ("PYTHONPLATLIBDIR", "lib64")),
            ("LD_BIND_NOW=1", ("LD_BIND_NOW", "1")),
        )
    ),
    Breakage("diffusers as a link to nothing", _dangling("diffusers")),
    Breakage("torch/lib as a link to nothing", _dangling("torch/lib")),
    Breakage("libcudart.so.13 as a link to nothing", _dangling("nvidia/cu13/lib/libcudart.so.13")),
    Breakage("an empty folder of metadata of diffusers too", _empty_metadata),
    Breakage("an editable transformers whose sources are gone", _editable_gone),
    Breakage("safetensors for macOS", _of_another_system("macos", "safetensors")),
    Breakage("regex for Windows", _of_another_system("windows", "regex")),
    Breakage(
        "tokenizers for musl", _of_another_system("x86_64-unknown-linux-musl", "tokenizers==0.22.1")
    ),
    _overlaid("accelerate==1.2.1"),
    _overlaid("tokenizers==0.21.4"),
    Breakage("RECORD of torch empty", _cut("torch-[0-9]*.dist-info/RECORD", 0, "").apply),
    Breakage(
        "pyvenv.cfg with another home",
        _edited("pyvenv.cfg", "(?m)^home = .*$", "home = /opt/gone/bin"),
    ),
    Breakage("inspect.py in site-packages", _in_site("inspect.py", b"experiment = 1\n")),
    Breakage(
        "sitecustomize.py that ends Python", _in_site("sitecustomize.py", b"raise SystemExit(3)\n")
    ),
    Breakage(
        "METADATA of numpy with a byte order mark",
        _replaced("numpy-*.dist-info/METADATA", b"", b"\xef\xbb\xbf", "").apply,
    ),
    Breakage("usercustomize.py that raises", _in_site("usercustomize.py", b"raise KeyError(1)\n")),
    # Listed on 28 November 2026
    *(
        _install("--no-deps", what)
        for what in (
            "xformers==0.0.28.post2",
            "xformers==0.0.30",
            "xformers==0.0.33",
            "torchvision==0.18.1",
            "torchvision==0.22.1",
            "torchvision==0.25.0",
            "torchvision==0.27.1",
            "torchaudio==2.6.0",
            "torchaudio==2.10.0",
            "transformers==4.49.0",
            "transformers==4.53.3",
            "transformers==5.10.2",
            "diffusers==0.34.0",
            "diffusers==0.40.0",
            "peft==0.9.0",
            "peft==0.18.1",
            "torchao==0.10.0",
            "torchao==0.12.0",
            "torchao==0.16.0",
            "bitsandbytes==0.46.1",
            "accelerate==1.3.0",
            "kernels==0.12.3",
            "triton==3.3.1",
            "triton==3.7.1",
            "huggingface_hub==0.29.3",
            "huggingface_hub==1.10.2",
            "tokenizers==0.20.3",
            "timm==0.6.13",
            "numpy==2.0.2",
            "nvidia-cudnn-cu12==9.5.1.17",
            "nvidia-nccl-cu13==2.27.7",
        )
    ),
    *(
        _install(*what.split())
        for what in (
            "torch==2.6.0",
            "torch==2.12.0",
            "transformers==4.48.3",
            "-U sentence-transformers timm",
            "-U optimum-quanto diffusers",
        )
    ),
    *(
        Breakage(f"{name} uninstalled, list 4", _uninstalled(name))
        for name in (
            "nvidia-curand-cu12",
            "nvidia-cufft-cu12",
            "nvidia-cusolver-cu12",
            "nvidia-cusolver",
            "nvidia-cuda-nvrtc",
            "nvidia-nccl-cu12",
            "cuda-pathfinder",
            "torchaudio",
            "safetensors",
        )
    ),
    *map(
        _removed,
        (
            "torch/optim",
            "torch/_refs",
            "torch/jit",
            "torch/_subclasses",
            "transformers/integrations",
            "transformers/models/auto",
            "accelerate/hooks.py",
            "xformers/ops",
            "triton/language",
            "nvidia/cuda_runtime",
            "nvidia/cublas/lib/libcublasLt.so.12",
            "diffusers/models/attention_processor.py",
            "sympy/core",
            "huggingface_hub/utils",
            "torchvision/ops",
            "tqdm",
        ),
    ),
    *(
        _cut(name, part, how)
        for name, part, how in (
            ("torch/lib/libtorch.so", 0, "empty"),
            ("torch/_C.*.so", 0.5, "cut in half"),
            ("torchvision/__init__.py", 0, "empty"),
            ("torch/_meta_registrations.py", 0.5, "cut in half"),
            ("diffusers/utils/import_utils.py", 0.7, "cut short"),
            ("torchao/__init__.py", 0.5, "cut in half"),
            ("sageattention/__init__.py", 0, "empty"),
            ("accelerate/utils/imports.py", 0.5, "cut in half"),
            ("triton/_C/libtriton.so", 0, "empty"),
            ("peft/__init__.py", 0.5, "cut in half"),
        )
    ),
    *(
        _metadata_as(name, what, data)
        for name, what, data in (
            ("torch", "half", None),
            ("torch", "without a version", None),
            ("torchvision", "binary", bytes(range(256)) * 8),
            ("peft", "missing", None),
            ("diffusers", "a loop", None),
            ("safetensors", "empty", b""),
            ("triton", "missing", None),
            ("tokenizers", "UTF-16", "Name: tokenizers\nVersion: 0.22.1\n".encode("utf-16")),
        )
    ),
    *(
        Breakage(f"metadata of {name} {version} too", _another_metadata(name, version))
        for name, version in (("transformers", "5.99.0"), ("torch", "2.99.0"), ("tqdm", "4.1.0"))
    ),
    *(
        Breakage(f"another version in metadata of {name}", _versions_differ(name, version))
        for name, version in (
            ("diffusers", "0.20.0"),
            ("transformers", "3.0.0"),
            ("triton", "2.0.0"),
            ("numpy", "1.16.0"),
            ("huggingface_hub", "0.10.0"),
        )
    ),
    *map(
        _overlaid,
        (
            "transformers==4.50.3",
            "torchvision==0.21.0",
            "kernels==0.6.2",
            "timm==0.9.16",
            "safetensors==0.4.3",
        ),
    ),
    *(
        Breakage(
            f"{name}.py in PYTHONPATH, list 4", _stray(name), (("PYTHONPATH", "{root}/scripts"),)
        )
        for name in (
            "typing_extensions",
            "safetensors",
            "secrets",
            "statistics",
            "attention",
            "peft",
            "bitsandbytes",
            "yaml",
        )
    ),
    Breakage(
        "another transformers in PYTHONPATH",
        _target("transformers==4.51.3"),
        (("PYTHONPATH", "{root}/other"),),
    ),
    Breakage(
        "libraries of another torch in LD_LIBRARY_PATH",
        _target("torch==2.5.1"),
        (("LD_LIBRARY_PATH", "{root}/other/torch/lib"),),
    ),
    *(
        Breakage(name, lambda _: True, (variable,))
        for name, variable in (
            ("PYTORCH_CUDA_ALLOC_CONF of an unknown option", ("PYTORCH_CUDA_ALLOC_CONF", "fast:1")),
            ("DIFFUSERS_ATTN_BACKEND=flash", ("DIFFUSERS_ATTN_BACKEND", "flash")),
            ("HF_HUB_OFFLINE=1", ("HF_HUB_OFFLINE", "1")),
            ("PYTHONSAFEPATH and PYTHONNOUSERSITE", ("PYTHONSAFEPATH", "1")),
            ("OMP_NUM_THREADS of a word", ("OMP_NUM_THREADS", "many")),
            ("PYTHONWARNINGS=error", ("PYTHONWARNINGS", "error")),
        )
    ),
    Breakage("flash-attn for CUDA 12", _flash_of("libcudart.so.12")),
    Breakage("flash-attn for CUDA 13", _flash_of("libcudart.so.13")),
    Breakage("flash-attn without its einops", _flash_of("libm.so.6", "einops")),
    *(
        Breakage(f"Python without {name}", _without_module(name))
        for name in ("_lzma", "_ctypes", "_bz2", "_sqlite3")
    ),
    Breakage("pip's leftovers of an older torch", _leftovers),
    Breakage(
        "one file of another transformers",
        _one_file_of("transformers==4.45.2", "transformers/modeling_utils.py"),
    ),
    Breakage(
        "one file of another diffusers",
        _one_file_of("diffusers==0.29.2", "diffusers/utils/__init__.py"),
    ),
    Breakage("pyvenv.cfg empty", _edited("pyvenv.cfg", "(?s).*", "")),
    Breakage(
        "METADATA of diffusers with a requirement cut short",
        _replaced(
            "diffusers-*.dist-info/METADATA",
            b"Requires-Dist: filelock",
            b"Requires-Dist: filelock (>=3",
            "",
        ).apply,
    ),
    Breakage("transformers as a link to nothing", _dangling("transformers")),
    Breakage("triton as a link to nothing", _dangling("triton")),
    *(
        _install("--no-deps", one)
        for one in (
            "xformers==0.0.26.post1",
            "xformers==0.0.29.post1",
            "xformers==0.0.31.post1",
            "xformers==0.0.33.post1",
            "torchvision==0.20.0",
            "torchvision==0.29.0",
            "torchaudio==2.4.1",
            "transformers==4.51.3",
            "transformers==4.56.2",
            "transformers==5.13.1",
            "tokenizers==0.20.1",
            "kernels==0.14.1",
            "peft==0.13.2",
            "peft==0.16.0",
            "torchao==0.7.0",
            "bitsandbytes==0.44.1",
            "numpy==1.26.3",
            "diffusers==0.35.1",
            "huggingface_hub==0.34.4",
            "huggingface_hub==1.3.4",
        )
    ),
    _install("--no-deps", "peft", "torchao", "bitsandbytes"),
    _install("--no-deps", "kernels", "sageattention==1.0.6", "optimum-quanto"),
    _install("torch==2.10.0"),
    _install("numpy<2"),
    _without("packaging", "psutil"),
    _without("regex", "tqdm"),
    _without("yaml", "filelock"),
)


class Task(NamedTuple):
    """One environment, and one way of breaking a copy of it."""

    base: Path
    breakage: int
    copy: Path
    commands: bool


def main() -> int:
    """Print one line for each environment, then the totals; 1 if a claim is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environments", nargs="*", type=Path)
    parser.add_argument("--make", nargs="+", default=[], metavar=("PYTHON", "PACKAGE"))
    parser.add_argument("--list", type=Path, help="file of environments to make and break")
    parser.add_argument("--select", default="", help="pattern of the names in that file")
    parser.add_argument("--work", type=Path, required=True, help="folder for the copies")
    parser.add_argument("--only", default="", help="pattern of the names of breakages")
    parser.add_argument("--commands", action="store_true", help="run the printed remedies too")
    parser.add_argument("--jobs", type=int, default=1, help="environments at a time")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for base, only in _bases(options, work):
            tasks = [
                Task(base, number, work / f"{number}-{base.name}", options.commands)
                for number, breakage in enumerate(BREAKAGES)
                if re.search(only, breakage.name)
            ]
            for result in pool.map(_result, tasks):
                if result is not None:
                    results.append(result)
                    _show(result)
    total = sum(one.claims for one in results)
    wrong = sum(len(one.wrong) for one in results)
    missed = sum(one.missed for one in results)
    commands = [command for one in results for command in one.commands]
    unreachable = sum(one.unreachable for one in commands)
    worked = sum(not one.failure for one in commands)
    print(f"{len(results)} environments, {total} claims, {wrong} wrong, {missed} missed failures")
    about = sum(one.statements for one in results)
    wrong_about = sum(one.wrong_statements for one in results)
    print(f"{about} statements about packages and backends, {wrong_about} wrong")
    print(f"{len(commands)} commands, {worked} worked, {unreachable} need an index out of reach")
    return 1 if wrong or worked + unreachable < len(commands) else 0


def _bases(options: argparse.Namespace, work: Path) -> Iterator[tuple[Path, str]]:
    """Yield each environment with a pattern of the ways to break it; delete those made here."""
    for path in options.environments:
        yield path.resolve(), options.only
    asked = []
    if options.make:
        python, *packages = options.make
        asked.append({"name": "-".join(packages), "python": python, "install": [packages]})
    if options.list:
        named = read_toml(options.list)["environment"]
        asked += [one for one in named if re.search(options.select, one["name"])]
    for one in asked:
        root = work / re.sub(r"[^\w.]+", "-", one["name"])[:40]
        start = time.monotonic()
        try:
            _make(root, one)
            print(f"{one['name']}: made in {time.monotonic() - start:.0f} s", flush=True)
            yield root, options.only or "|".join(one.get("break", [""]))
        except subprocess.SubprocessError as error:
            print(f"{one['name']}: not made: {str(error)[-300:]}", flush=True)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _make(root: Path, asked: dict[str, Any]) -> None:
    """Make an environment as asked, and let Python store its bytecode once.

    `kind`: `uv` (without pip), `pip` (the default), `layered` (with pip, it also uses the packages
    of its base), `base`, a copy of a whole Python that an operating system manages, or `conda`,
    such a copy with the record that conda keeps of its Python, where no conda is at hand.
    """
    kind = asked.get("kind", "pip")
    target = root / "bin" / "python"
    if kind in ("base", "conda"):
        found = subprocess.run(
            ["uv", "python", "find", "--no-project", asked["python"]],
            capture_output=True,
            text=True,
            check=True,
        )
        subprocess.run(
            ["cp", "-a", Path(found.stdout.strip()).resolve().parents[1], root], check=True
        )
        if not target.exists():
            target.symlink_to(f"python{asked['python']}")
        if kind == "base":
            text = "[externally-managed]\nError=Use the packages of the system.\n"
            (site(root).parent / "EXTERNALLY-MANAGED").write_text(text)
        else:
            (root / "conda-meta").mkdir()
            (root / "conda-meta" / "history").write_text("")
            record = {"name": "python", "version": asked["python"], "channel": "conda-forge"}
            (root / "conda-meta" / "python-3-0.json").write_text(json.dumps(record))
    else:
        seed = {"pip": ["--seed"], "layered": ["--seed", "--system-site-packages"]}.get(kind, [])
        subprocess.run(["uv", "venv", "-q", *seed, "-p", asked["python"], root], check=True)
    for packages in asked["install"]:
        _uv("install", "-p", target, "--break-system-packages", *packages)
    trial(target, [Claim(f"import {one}", True, "", f"import {one}") for one in MODULES.values()])


def _result(task: Task) -> Result | None:
    """Break a copy of an environment and compare; None where nothing can be broken so."""
    breakage = BREAKAGES[task.breakage]
    name = f"{task.base.name}, {breakage.name}"
    try:
        with _broken(task) as copy:
            if copy is None:
                return None
            result = compare(name, copy)
            if not task.commands:
                return result
            further = [*others(copy)]
            tried = [*repair(copy)]
        for rule, lines in further:
            with _broken(task) as copy:
                if copy is not None:
                    tried.append(_remedy(copy, rule, lines))
        return result._replace(commands=tuple(tried))
    except (subprocess.SubprocessError, OSError) as error:
        return Result(name, 0, [], 0, untried=str(error)[-120:])


@contextmanager
def _broken(task: Task) -> Iterator[Path | None]:
    """A broken copy, with the variables of its breakage set; None where it cannot be so broken."""
    breakage = BREAKAGES[task.breakage]
    shutil.rmtree(task.copy, ignore_errors=True)
    subprocess.run(["cp", "-al", task.base, task.copy], check=True)
    before = dict(os.environ)
    try:
        applies = breakage.apply(task.copy)
        for name, value in breakage.variables:
            os.environ[name] = value.format(root=task.copy)
        yield task.copy if applies else None
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(task.copy.resolve(), ignore_errors=True)
        if task.copy.is_symlink():
            task.copy.unlink()


def _show(result: Result) -> None:
    if result.untried:
        print(f"{result.name}: not tried: {result.untried}", flush=True)
        return
    print(
        f"{result.name}: {result.claims} claims, {len(result.wrong)} wrong, "
        f"{result.missed} missed; "
        f"{result.statements} statements, {result.wrong_statements} wrong",
        flush=True,
    )
    for one in result.wrong:
        print(f"    {one}", flush=True)
    for command in result.commands:
        print(f"    {command.rule}: {command.text}", flush=True)
        print(f"        {command.failure or 'worked'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
