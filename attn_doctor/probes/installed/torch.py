"""Reads torch from its metadata and its files as text. It is never imported.

`torch/version.py` is what a running torch reports, so it takes precedence over the metadata. GPU
architectures are read from the headers of the libraries. The driver that they need is not in any
file; `derived.torch_wheels` looks it up by release.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from msgspec import Struct

from attn_doctor.binaries.architectures import order
from attn_doctor.facts import Torch
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.bytecode import compiled
from attn_doctor.probes.installed.imports import Imports
from attn_doctor.probes.installed.linking import Displaced, Linking
from attn_doctor.probes.installed.origin import (
    Origin,
    cmake_config,
    cxx11_abi,
    module_path,
    origin,
    said_by,
)
from attn_doctor.probes.installed.packages import TAG, imports_of
from attn_doctor.probes.installed.requirements import required

#: Fat binaries (one for each source file) of torch's CUDA library that are read.
SAMPLE = 48
#: Facts about the libraries that `import torch` loads.
_LOADED = ("missing_libraries", "foreign_library", "foreign_fault", "foreign_variable")
#: The module of FlexAttention, and what its first call imports: more than `import torch` does.
FLEX = ("torch.nn.attention.flex_attention", "torch._dynamo")
#: What its first call imports in releases whose file, or a helper of it, names this module.
_FLEX_BACKEND = "torch._dynamo.backends.debugging"


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the field `torch` of `Facts`."""
    one = site.distributions.get("torch")
    came = origin(host, site, one) if one is not None else Origin(why="torch has no metadata")
    path = module_path(host, site, "torch", came)
    if one is None and not path:
        return {"torch": Torch(installed=False)}
    said = said_by(host, path)
    version = said.get("__version__") or (one.version if one is not None else None)
    if version is None:
        gaps.add("torch.version", "torch has neither metadata nor a readable version.py")
    if not said:
        reason = f"{host.join(path, 'version.py')} is not readable" if path else "no torch folder"
        for name in ("build", "cuda", "hip", "debug", "git_version"):
            gaps.add(f"torch.{name}", reason)
    if came.why:
        gaps.add("torch.source", came.why)
    overwritten = _overwritten(host, site, said.get("cuda", ""))
    missing, faults, symbols, displaced = _libraries(host, site, path, overwritten, gaps)
    faults = [*_extension(host, site, path), *faults]
    imports = imports_of(host, site)
    plugin = _plugin(host, site, path)
    lost = plugin is not None and not site.module(host, plugin.module)
    failure = "" if site.ctypes else "it imports ctypes, and this Python was built without it"
    failure = failure or imports.error("torch", "torch") or symbols
    log = _unknown_log(host, site, path)
    if log and not failure:
        failure = f"TORCH_LOGS names {log}, which this torch does not know"
    if plugin is not None and lost and not failure:
        failure = f"it loads {plugin.module} for {plugin.package}, which is not installed"
    doubt = "" if failure else imports.doubt("torch", "torch")
    if plugin is not None and not failure and not doubt:
        doubt = f"it loads {plugin.module} of {plugin.package}, which attn-doctor does not know"
    if doubt:
        gaps.add("torch.import_error", doubt)
    return {
        "torch": Torch(
            installed=True,
            version=version,
            local=version.partition("+")[2] if version is not None else None,
            debug={"True": True, "False": False}.get(said.get("debug", "")),
            git_version=said.get("git_version"),
            **_build(host, said),
            cxx11_abi=_cxx11_abi(host, path, gaps),
            path=path,
            installation_error=_installation_error(
                host, site.distributions.copies("torch"), path, said, faults
            ),
            import_error=None if doubt else failure,
            import_doubt=doubt,
            unknown_log=log,
            lost_plugin=plugin.package if plugin is not None and lost else "",
            unrecorded_plugin=plugin.unrecorded if plugin is not None and lost else "",
            source=came.source,
            from_pythonpath=_from_pythonpath(host, site, path),
            from_pypi=_from_pypi(one, said),
            missing_libraries=missing,
            overwritten_wheel=overwritten,
            **_foreign(displaced),
            **_gpu_code(host, path, said, gaps),
            flex_import_error=_flex_import_error(host, path, imports),
            **_flex(host, path, gaps),
            **compiled(host, site, path, gaps),
            **_demands(host, site, one, gaps),
        )
    }


def _unknown_log(host: Host, site: Site, path: str) -> str:
    """Return a name in TORCH_LOGS that is neither a log of torch nor a module; empty if none."""
    asked = host.environ.get("TORCH_LOGS", "")
    file = host.join(path, "_logging", "_registrations.py")
    text = host.try_read(file, 1 << 20) if asked and path else ""
    names = (one.strip().lstrip("+-") for one in asked.split(",") if text)
    return next((one for one in names if not _logs(host, site, text, one)), "")


def _logs(host: Host, site: Site, text: str, name: str) -> bool:
    """Whether torch may know the log; of a name with dots this is not looked up."""
    known = name == "all" or f'"{name}"' in text or name in sys.stdlib_module_names
    if known or not name.isidentifier() or site.module(host, name):
        return True
    # A program's own module, if it is started where attn-doctor is.
    return not {name, f"{name}.py"}.isdisjoint(host.try_list(host.platform.cwd))


class _Plugin(Struct, frozen=True):
    """A device backend of another package, which `import torch` loads since 2.5."""

    package: str
    module: str
    unrecorded: str
    """Its folder of metadata if that has no RECORD; else empty."""


# [torch.backends]
# torch_npu = torch_npu:_autoload
def _plugin(host: Host, site: Site, path: str) -> _Plugin | None:
    """Return the first such backend; that of a package without `torch` in its name is not seen."""
    named = [one for one in site.distributions if "torch" in one.name.replace("torchvision", "")]
    others = [one for one in named if one.name not in ("torch", "torchaudio")]
    if not others or host.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return None
    if not host.try_grep(host.join(path, "__init__.py"), '"torch.backends"'):
        return None
    for one in others:
        section = site.distributions.read(one, "entry_points.txt").partition("[torch.backends]")[2]
        found = re.match(r"\s*[^\s=\[]+\s*=\s*(\w[\w.]*)", section)
        if found is not None:
            recorded = "RECORD" in host.try_list(one.info)
            return _Plugin(one.name, found[1], "" if recorded else one.info)
    return None


def _from_pythonpath(host: Host, site: Site, path: str) -> bool:
    """Return whether a folder of PYTHONPATH has this torch without having its metadata."""
    folder = host.parent(path)
    sites = [one.site for one in site.distributions.copies("torch")]
    return bool(path) and folder in site.plain and folder not in sites


def _from_pypi(one: Distribution | None, said: dict[str, str]) -> bool | None:
    """Return whether a CUDA build is PyPI's: only its metadata have no local version (`+cu130`)."""
    if one is None or "+" not in said.get("__version__", ""):
        return None
    return "cuda" in said and "+" not in one.version


def _build(host: Host, said: dict[str, str]) -> dict[str, Any]:
    """Return the platform of the build, with its version."""
    if not said:
        return {}
    if "hip" in said:
        # hip = '6.4.43482-0f2d60242' is not a version by PEP 440; the part before the hyphen is.
        number = re.match(r"[\d.]*\d", said.get("rocm") or said["hip"])
        return {"build": "rocm", "hip": number[0] if number else None}
    if "cuda" in said:
        return {"build": "cuda", "cuda": said["cuda"]}
    if "xpu" in said:
        return {"build": "xpu"}
    return {"build": "mps" if host.platform.os == "macos" else "cpu"}


#   set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")
def _cxx11_abi(host: Host, path: str, gaps: Gaps) -> bool | None:
    """Return the C++ ABI of a torch for Linux; other systems do not use libstdc++."""
    if host.platform.os != "linux" or not path:
        return None
    abi = cxx11_abi(host, path)
    if abi is None:
        gaps.add("torch.cxx11_abi", f"{cmake_config(host, path)} is not readable")
    return abi


def _libraries(
    host: Host, site: Site, path: str, overwritten: str, gaps: Gaps
) -> tuple[tuple[str, ...] | None, list[str], str, Displaced | None]:
    """Return what is wrong with the libraries that torch loads.

    Those of others that Linux's loader would not find, faults of torch's own, a symbol that a
    wheel of another version than torch requires, or one that was overwritten, does not define, and
    a library of LD_LIBRARY_PATH with which torch does not load; None if that is unknown.
    """
    if host.platform.os != "linux" or not path:
        reason = (
            "torch's missing libraries are looked up on Linux only" if path else "no torch folder"
        )
        dlls = bool(path) and host.windows
        for name in _LOADED[dlls:]:
            gaps.add(f"torch.{name}", reason)
        if not dlls:
            return None, [], "", None
        from attn_doctor.probes.installed.runtime_dlls import missing_runtime

        return missing_runtime(host, site, path, gaps), [], "", None
    linking = Linking(host, site, path, host.join(site.prefix, "bin", "python3"))
    nothing = Displaced("", "", "")
    plain = not any(host.environ.get(name) for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"))
    if linking.torch_unclear:
        for name in _LOADED[: 1 if plain else None]:
            gaps.add(f"torch.{name}", linking.torch_unclear)
        return None, linking.torch_faults, "", nothing if plain else None
    if linking.torch_missing:
        return linking.torch_missing, linking.torch_faults, "", nothing
    displaced = linking.displaced() or nothing
    lacking = linking.wheel_fault or _symbols(host, site, linking, path, overwritten)
    if displaced.path and not lacking:
        lacking = f"{displaced.path} is loaded first, and {displaced.lacks}"
    return (), linking.torch_faults, lacking, displaced


def _foreign(displaced: Displaced | None) -> dict[str, Any]:
    """Return the facts of the library that LD_LIBRARY_PATH or LD_PRELOAD puts first."""
    if displaced is None:
        return {}
    return {
        "foreign_library": displaced.path,
        "foreign_fault": displaced.lacks,
        "foreign_variable": displaced.variable,
    }


# nvidia-nccl-cu12 and nvidia-nccl-cu13 have one nvidia/nccl/lib/libnccl.so.2.
def _overwritten(host: Host, site: Site, cuda: str) -> str:
    """Return a wheel for torch's CUDA with files of one for another CUDA, as a requirement.

    Empty if there is none.
    """
    suffix = f"-cu{cuda.partition('.')[0]}"
    for one in site.distributions if cuda else ():
        name = one.name.removesuffix(suffix)
        others = re.compile(rf"{re.escape(name)}-cu\d\d")
        if name == one.name or not any(
            others.fullmatch(other.name) for other in site.distributions if other.name != one.name
        ):
            continue
        try:
            changed = host.changed_files(one.info, host.patience)
        except OSError:
            continue
        if any(".so" in path for path, _ in changed):
            return f"{one.name}=={one.version}"
    return ""


def _symbols(host: Host, site: Site, linking: Linking, torch: str, overwritten: str) -> str:
    """Return which symbol a CUDA wheel lacks, if torch requires another version of that wheel.

    Only then, or if one was overwritten, are symbols looked up: with the required wheels they are
    there.
    """
    wheels = [
        f"{one.needs} is required, and {one.installed} is installed"
        for one in imports_of(host, site).unmet
        if one.package == "torch" and one.installed and (one.needs or "").startswith("nvidia-")
    ]
    wheels += [f"another wheel has overwritten {overwritten}"] if overwritten else []
    path = host.join(torch, "lib", "libtorch_cuda.so")
    if not wheels or not host.is_file(path):
        return ""
    try:
        found = host.unresolved({path: linking.links(path, torch).providers})[path]
    except OSError:
        return ""
    name = "" if found.damaged else next(iter(found.first), "")
    lacks = f"libtorch_cuda.so: undefined symbol {name}" if name else linking.wheels_that_lack()
    return f"{lacks}; {', '.join(wheels)}" if lacks else ""


# _C.cpython-312-x86_64-linux-gnu.so · _C.cp312-win_amd64.pyd
def _extension(host: Host, site: Site, path: str) -> list[str]:
    """Return the fault of torch's main extension: it is missing, or made for another Python."""
    names = host.try_list(path) if path else ()
    found = [one for one in names if one.startswith("_C.") and one.endswith(("so", "pyd"))]
    # `_C` beside it holds its stubs, in each wheel.
    if not found and {"_C", "lib"} <= set(names):
        return ["torch/_C, its main extension, is missing"]
    start, _, ours = site.cache_tag.partition("-3")
    theirs = [tag[1] for tag in map(TAG.search, found) if tag is not None]
    if start != "cpython" or not ours.isdecimal() or not theirs or ours in theirs:
        return []
    return [f"torch/_C is made for Python 3.{theirs[0]}, and this is Python 3.{ours}"]


def _gpu_code(host: Host, path: str, said: dict[str, str], gaps: Gaps) -> dict[str, Any]:
    """Return the architectures of most of the first kernels; a few kernels have more.

    Reading all of them takes 15 ms, and a second from a cold disk.
    """
    if not path or "cuda" not in said or "hip" in said:
        return {}
    name = "torch_cuda.dll" if host.windows else "libtorch_cuda.so"
    file = host.join(path, "lib", name)
    try:
        code = host.gpu_code(file, SAMPLE, 0.5 * host.patience)
    except OSError as error:
        reason = f"{file} cannot be read: {error.strerror}"
    else:
        if code.cubins:
            most = max((*code.cubins.values(), *code.ptx.values()))
            return {
                name: order(one for one, count in found.items() if 2 * count >= most)
                for name, found in (("cubins", code.cubins), ("ptx", code.ptx))
            }
        reason = f"{file}: {code.damaged or 'it contains no machine code for GPUs'}"
    gaps.add("torch.cubins", reason)
    gaps.add("torch.ptx", reason)
    return {}


def _flex(host: Host, path: str, gaps: Gaps) -> dict[str, Any]:
    if not path:
        gaps.add("torch.has_flex", "no torch folder")
        gaps.add("torch.has_build_helper", "no torch folder")
        return {}
    file = host.join(path, "nn", "attention", "flex_attention.py")
    try:
        helper = host.grep(file, "def build_flex_attention_kernels")
    except (FileNotFoundError, NotADirectoryError):
        return {"has_flex": False, "has_build_helper": False}
    except OSError as error:
        gaps.add("torch.has_build_helper", f"{file} cannot be read: {error.strerror}")
        return {"has_flex": True, "has_build_helper": None}
    return {
        "has_flex": True,
        "has_build_helper": bool(helper),
    }


def _flex_import_error(host: Host, path: str, imports: Imports) -> str | None:
    """Return why FlexAttention's module or its first call fails, empty if nothing is seen."""
    if not path:
        return None
    files = (("nn", "attention", "flex_attention.py"), ("_higher_order_ops", "utils.py"))
    named = (host.try_grep(host.join(path, *one), f"from {_FLEX_BACKEND} ") for one in files)
    more = (_FLEX_BACKEND,) if any(named) else ()
    return next(filter(None, (imports.error("torch", one) for one in (*FLEX, *more))), "")


def _demands(host: Host, site: Site, one: Distribution | None, gaps: Gaps) -> dict[str, Any]:
    """Return the requirements of its metadata on Python, triton and CUDA wheels."""
    headers = site.distributions.headers(one) if one is not None else {}
    if not headers:
        for name in ("requires_triton", "requires_python", "missing_nvidia_wheels"):
            gaps.add(f"torch.{name}", "torch has no readable metadata")
        return {}
    lines = headers.get("Requires-Dist", [])
    triton = required(host, site, lines, lambda name: "triton" in name.split("-"))
    return {
        "requires_python": headers.get("Requires-Python", [""])[0],
        "requires_triton": triton[0].specifier if triton else "",
        "missing_nvidia_wheels": _missing(host, site, lines),
    }


def _missing(host: Host, site: Site, lines: list[str]) -> tuple[str, ...]:
    """Return required CUDA wheels that are not installed; torch 2.11 requires cuda-toolkit."""
    missing = []
    for requirement in required(
        host, site, lines, lambda name: name.startswith("nvidia-") or name == "cuda-toolkit"
    ):
        found = site.distributions.get(requirement.name)
        if found is None:
            missing.append(requirement.name)
        elif requirement.extras:
            parts = site.distributions.headers(found).get("Requires-Dist", [])
            needed = required(
                host, site, parts, lambda name: name.startswith("nvidia-"), requirement.extras
            )
            missing += [part.name for part in needed if not site.distributions.get(part.name)]
    return tuple(dict.fromkeys(missing))


def _installation_error(
    host: Host,
    copies: tuple[Distribution, ...],
    path: str,
    said: dict[str, str],
    more: list[str],
) -> str:
    """Return what is wrong with the installation, or empty text.

    Of several metadata folders one has to agree with the files.
    """
    if not path:
        return "metadata, but no torch folder"
    if path.endswith(".py"):
        return f"{path} is where the torch folder should be"
    faults = [] if copies else ["no metadata"]
    parts = ("__init__.py", "version.py", "lib")
    absent = [part for part in parts if host.try_stat(host.join(path, part)) is None]
    links = {*absent}.intersection(host.try_list(path))
    faults += [
        f"torch/{part} is a link to nothing" if part in links else f"no torch/{part}"
        for part in absent
    ]
    version = said.get("__version__", "")
    if copies and said and not any(_agree(one.version, version) for one in copies):
        faults.append(f"metadata of {copies[0].version}, files of {version or '?'}")
    return ", ".join([*faults, *more])


def _agree(metadata: str, file: str) -> bool:
    """Whether both versions agree. Metadata of PyPI's wheels omit the local part (`+cu130`)."""
    if metadata in (file, file.partition("+")[0]):
        return True
    from packaging.version import Version

    try:
        one, other = Version(metadata), Version(file)
    except ValueError:  # also a number of more digits than Python converts
        return False
    same_local = one.local is None or other.local is None or one.local == other.local
    return one.public == other.public and same_local
