"""Tests a toolkit: runs its nvcc and builds a few lines as torch builds its extensions.

A C++ file and a CUDA file that include what torch's own headers include are compiled and linked.
This finds faults that files do not show: parts of different releases, a host compiler that nvcc
does not accept, a GPU it does not know. No compiled code is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes.cuda_home.candidate import Compiler
from attn_doctor.host import Host
from attn_doctor.processes import Ended, run

#: Seconds for nvcc to print its version, and for one compilation; 0.1 s and 4 s here.
ASK, COMPILE = 20.0, 180.0
_HEADERS = ("cuda_runtime.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h")
_CPP = "".join(f"#include <{name}>\n" for name in _HEADERS) + "int attn_doctor() { return 0; }\n"
_CU = """#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <thrust/version.h>
__global__ void twice(__half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
extern "C" int go(__half* x) { twice<<<1, 32>>>(x); return (int)cudaGetLastError(); }
"""


class Nvcc(Struct, frozen=True):
    """What an nvcc reports."""

    version: str = ""
    """Such as `13.0.88`; empty if it could not be run, for the reason in `why`."""
    archs: tuple[int, ...] | None = None
    """Compute capabilities ×10 it compiles for; None if unknown."""
    why: str = ""

    @property
    def release(self) -> str:
        """Major and minor version."""
        return ".".join(self.version.split(".")[:2])


def nvcc(path: str, environ: Mapping[str, str]) -> Nvcc:
    """Ask the nvcc at `path` for its version and for the GPUs it knows."""
    ran = run([path, "--version"], ASK, env=_plain(environ), cwd=os.sep)
    # Cuda compilation tools, release 13.0, V13.0.88
    match = re.search(r"release \d+\.\d+, V(\d+\.\d+\.\d+)", ran.out)
    if match is None or not ran.ok:
        return Nvcc(why=f"{path} --version: {_last(ran) or 'no release is named'}")
    listed = run([path, "--list-gpu-code"], ASK, env=_plain(environ), cwd=os.sep)
    archs = tuple(int(number) for number in re.findall(r"\bsm_(\d+)\b", listed.out))
    return Nvcc(match[1], archs if listed.ok and archs else None)


def headers_beside(host: Host, root: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return CPATH for a toolkit with headers in `targets/…/include` only, as conda-forge's.

    nvcc finds them there, the C++ compiler does not. Empty if nothing is missing.
    """
    if host.is_file(host.join(root, "include", _HEADERS[0])):
        return {}
    old = [one for one in environ.get("CPATH", "").split(":") if one]
    folders = (host.join(root, "targets", name, "include") for name in _targets(host))
    found = next((one for one in folders if host.is_file(host.join(one, _HEADERS[0]))), "")
    return {"CPATH": ":".join([found, *old])} if found and found not in old else {}


def _targets(host: Host) -> tuple[str, ...]:
    machine = host.platform.machine
    return ("sbsa-linux", "aarch64-linux") if machine == "aarch64" else (f"{machine}-linux",)


def build(
    host: Host, root: str, environ: Mapping[str, str], sm: int | None, compiler: Compiler
) -> str:
    """Return why a small extension cannot be built with the toolkit in `root`; empty if it can.

    `sm`: the compute capability ×10 to compile for, None for nvcc's own default. Raises
    `AttnDoctorError` if there is no temporary folder to build in.
    """
    environ = {**environ, **headers_beside(host, root, environ)}
    try:
        folder = tempfile.mkdtemp(prefix="attn-doctor-")
    except OSError as error:
        raise AttnDoctorError(
            f"no temporary folder can be made ({error.strerror}); set TMPDIR to one with space"
        ) from None
    try:
        Path(folder, "host.cpp").write_text(_CPP, "utf-8")
        Path(folder, "kernel.cu").write_text(_CU, "utf-8")
        for argv in _commands(host, root, folder, environ, sm, compiler):
            ran = run(argv, COMPILE, env=_plain(environ), cwd=folder)
            if not ran.ok:
                return _said(ran)
    except OSError as error:
        raise AttnDoctorError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _commands(
    host: Host, root: str, folder: str, environ: Mapping[str, str], sm: int | None, named: Compiler
) -> list[list[str]]:
    """The commands of torch's cpp_extension: g++ for C++ and for linking, nvcc for kernels."""
    cxx = named.cxx or host.which(environ.get("CXX", "")) or host.which("c++") or host.which("g++")
    cc = named.cc or environ.get("CC", "")
    # As torch does: gcc must not get its own directory again.
    include = [] if root == "/usr" else [f"-I{root}/include"]
    arch = [f"-gencode=arch=compute_{sm},code=sm_{sm}"] if sm else []
    host_compiler = ["-ccbin", cc] if cc else []
    wide = host.join(root, "lib64")
    libraries = wide if host.is_dir(wide) else host.join(root, "lib")
    nvcc_argv = [
        f"{root}/bin/nvcc", *include, "-c", f"{folder}/kernel.cu", "-o", f"{folder}/kernel.o",
        *arch, "--compiler-options", "-fPIC", "-std=c++17", *host_compiler,
    ]  # fmt: skip
    return [
        nvcc_argv,
        [cxx, *include, *_flags(environ, "CFLAGS"), *_flags(environ, "CPPFLAGS"), "-fPIC",
         "-std=c++17", "-c", f"{folder}/host.cpp", "-o", f"{folder}/host.o"],
        [cxx, f"{folder}/host.o", f"{folder}/kernel.o", "-shared", f"-L{libraries}", "-lcudart",
         *_flags(environ, "LDFLAGS"), "-o", f"{folder}/built.so"],
    ]  # fmt: skip


def _flags(environ: Mapping[str, str], name: str) -> list[str]:
    """Options that setuptools takes from the environment, as conda's activation sets them."""
    try:
        return shlex.split(environ.get(name, ""))
    except ValueError:
        return []


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's variables for a child: messages in English, and no use of ccache."""
    return {**environ, "LC_ALL": "C", "CCACHE_DISABLE": "1"}


#: What compilers print, and its meaning here.
_MEANINGS = (
    (r"unsupported GNU version! gcc versions later than ([\d.]+)",
     "its nvcc accepts gcc up to {0}, and this one is newer"),
    (r"unsupported (clang|Microsoft Visual Studio) version!", "its nvcc does not accept this {0}"),
    (r"Unsupported gpu architecture '(\w+)'", "its nvcc does not know {0}"),
    (r"fatal error: (\S+): No such file or directory", "the header {0} is missing"),
    (r"cannot find (-l\w+)", "the linker does not find {0}"),
    (r"Unsupported \.version ([\d.]+)",
     "its parts are of different releases: the compiler writes PTX {0}, its ptxas is older"),
    (r"(\S+): not found|sh: \d+: (\S+): not found", "{0} is missing"),
)  # fmt: skip


def _said(ran: Ended) -> str:
    """One sentence on why a compilation failed."""
    for pattern, meaning in _MEANINGS:
        match = re.search(pattern, ran.err + ran.out)
        if match is not None:
            return meaning.format(next(group for group in match.groups() if group))
    return f"a trial build fails: {os.path.basename(ran.argv[0])}: {_last(ran)}"


def _last(ran: Ended) -> str:
    """How it ended and the most specific line; empty if it succeeded."""
    if ran.ok:
        return ""
    printed = [line.strip() for line in (ran.err + ran.out).splitlines() if line.strip()]
    faults = [line for line in printed if "error" in line.lower() or "fatal" in line.lower()]
    line = (faults or printed[-1:] or [""])[0][:300]
    return f"{ran.status}: {line}" if line else ran.status
