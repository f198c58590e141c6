"""Compiles the stub GPU for an environment, once, and keeps it in the user's cache folder.

The compiler is the one that Triton would start: without it no kernel could be built either.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attn_doctor import processes
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.files import DATA, TEXT, read_bytes, read_text
from attn_doctor.kernels.gpus.stub import generated, storage
from attn_doctor.kernels.gpus.stub.cuda_libraries import HEADERS, Toolkit, find
from attn_doctor.shell.commands import shell_lines

LIBRARY, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
#: Triton before 3.6 links with -lcuda.
_LINKED = "libcuda.so"
_SOURCE = Path(__file__).parent / "source"
_STUBS = "stubs.c"
#: What each library is made of.
_CUDA = """target hooks device memory copies cubin runtime runtime_streams runtime_memory
runtime_kernels driver driver_memory driver_kernels blas others"""
_PARTS = {
    LIBRARY: (*(f"{name}.c" for name in _CUDA.split()), _STUBS),
    NVML: ("nvml.c", "target.c"),
}
_OPTIONS = ("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-w")
#: Seconds for one call of the compiler, on a busy machine.
_PATIENCE = 120.0
_NO_HEADER = re.compile(r"fatal error: '?<?(\w+\.h)")


def make(facts: Facts, environ: Mapping[str, str] | None = None) -> Path:
    """Return the library for the examined environment, compiled if it does not exist yet.

    Raises `AttnDoctorError` with what is missing: Linux with glibc, the CUDA build of torch and its
    wheels, a C compiler, a folder to keep it in.
    """
    _possible(facts)
    toolkit = find(facts)
    compiler = _compiler(facts)
    generated = _generated(toolkit)
    folder = storage.root(os.environ if environ is None else environ)
    folder /= _digest(toolkit, generated, f"{compiler} {facts.cc.version}")
    if re.search(r"[\s:;]", str(folder)):
        raise AttnDoctorError(
            f"{folder}: a library cannot be preloaded from a path with a space or a colon; set"
            " XDG_CACHE_HOME to another folder"
        )

    def fill(empty: Path) -> None:
        compile_into(empty, toolkit, compiler, facts.system.cpus or 1)

    return storage.kept(folder, (LIBRARY, NVML, _LINKED), fill) / LIBRARY


def _possible(facts: Facts) -> None:
    system = facts.system
    if system.os != "linux":
        raise AttnDoctorError(
            f"kernels for a GPU of another machine can be built on Linux only, not on {system.os}:"
            " the stub GPU is loaded by LD_PRELOAD; use a Linux container, or WSL"
        )
    if system.musl:
        raise AttnDoctorError(
            "kernels for a GPU of another machine cannot be built with musl (Alpine), for which"
            " torch publishes no wheels; use an image with glibc, such as Debian's"
        )


def _compiler(facts: Facts) -> str:
    if facts.cc.path is None:
        why = facts.gaps.get("cc.path") or facts.gaps.get("cc") or "no probe tells"
        raise AttnDoctorError(f"it is unknown whether a C compiler is installed: {why}")
    if not facts.cc.path:
        raise AttnDoctorError(f"the stub GPU needs a C compiler, and there is none. {_fix(facts)}")
    return facts.cc.path


def _fix(facts: Facts) -> str:
    """The fix of the rules for a missing compiler, or missing headers of the C library."""
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.evaluate import evaluate_rules

    rules = [rule for rule in library.load(()) if rule.id.endswith("c-compiler-missing")]
    for finding in evaluate_rules(facts, rules):
        for fix in finding.fixes:
            commands = shell_lines(fix, facts)
            if commands or fix.manual:
                return f"{fix.title}: {' && '.join(commands) or fix.manual}"
    return "Install gcc and the headers of the C library (Debian, Ubuntu: gcc libc6-dev)"


def _digest(toolkit: Toolkit, generated: str, compiler: str) -> str:
    """Return a digest of everything that the compiled libraries depend on."""
    found = hashlib.sha256()
    headers = [Path(toolkit.include, name) for name in HEADERS]
    for path in [*sorted(_SOURCE.rglob("*.[ch]")), *headers]:
        found.update(hashlib.sha256(read_bytes(path, TEXT)).digest())
    for text in (generated, compiler, *_OPTIONS):
        found.update(hashlib.sha256(text.encode()).digest())
    return found.hexdigest()[:32]


def _generated(toolkit: Toolkit) -> str:
    """Generate the source for the libraries of this environment."""
    header = read_text(Path(toolkit.include, "cuda.h"), TEXT)
    libraries = set[str]().union(*map(generated.defined, toolkit.libraries))
    return generated.text(libraries, generated.declared(header), generated.versions(header))


def compile_into(out: Path, toolkit: Toolkit, compiler: str, jobs: int) -> None:
    """Write the libraries into the folder `out`, compiling in the folder around it.

    Raises `AttnDoctorError` with the compiler's words.
    """
    scratch = out.parent
    (scratch / _STUBS).write_text(_generated(toolkit))

    def object_of(name: str) -> str:
        source = scratch / name if name == _STUBS else _SOURCE / name
        made = str(scratch / f"{name}.o")
        # Two thousand functions of one line need no optimisation.
        options = (*_OPTIONS, "-O0" if name == _STUBS else "-O1")
        folders = (f"-I{_SOURCE}", "-isystem", toolkit.include)
        _run([compiler, *options, *folders, "-c", "-o", made, str(source)])
        return made

    # The largest first.
    names = sorted({name for parts in _PARTS.values() for name in parts}, key=_STUBS.__ne__)
    with ThreadPoolExecutor(max(1, min(8, jobs))) as pool:
        objects = dict(zip(names, pool.map(object_of, names), strict=True))
    for library, parts in _PARTS.items():
        own = [objects[name] for name in parts]
        link = ["-shared", f"-Wl,-soname,{library}", "-Wl,-z,defs", "-o", str(out / library)]
        _run([compiler, *link, *own, "-lpthread"])
    # A copy, because links are not accepted here.
    (out / _LINKED).write_bytes(read_bytes(out / LIBRARY, DATA))


def _run(command: list[str]) -> None:
    ended = processes.run(command, _PATIENCE, joined=True)
    if ended.ok:
        return
    header = _NO_HEADER.search(ended.out)
    if header and not header[1].startswith("cuda"):
        raise AttnDoctorError(
            f"{command[0]} does not find {header[1]} of the C library, so the stub GPU cannot be"
            " compiled; install the headers of the C library (Debian, Ubuntu: sudo apt-get install"
            " -y libc6-dev; Fedora: sudo dnf install -y glibc-devel)"
        )
    raise AttnDoctorError(
        f"{command[0]} could not compile the stub GPU ({ended.status}):",
        *_first_errors(ended.out),
        "Set CC to another gcc or clang",
    )


def _first_errors(output: str) -> list[str]:
    """The first errors of a compiler."""
    lines = output.strip().splitlines()
    wrong = [line for line in lines if "error" in line.lower()]
    return (wrong or lines)[:5]
