"""Installs a CUDA toolkit from NVIDIA's wheels in a folder of its own, in the layout for builds.

The meta-package `cuda-toolkit` pins parts that belong together; installed separately, the compiler
and its back end are from different releases and do not work together. Libraries that torch already
installed (such as cuBLAS, more than a gigabyte) are linked from there if the release is the same.
The wheels contain no `libcuda.so` to link against: the driver has one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from attn_doctor.derived.releases import major, series
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home import trial_build
from attn_doctor.fixes.cuda_home.advice import own_root, wheels_hold_nvcc
from attn_doctor.fixes.installers import installer_environment, run
from attn_doctor.fixes.journal import MARKER, Journal, alive
from attn_doctor.host import Host
from attn_doctor.probes.toolchain import cuda_root
from attn_doctor.shell.commands import line

#: Parts of `cuda-toolkit` that compile, and those that torch's own headers and extensions include.
COMPILING = ("nvcc", "crt", "nvvm", "cudart", "cccl", "nvrtc", "nvtx", "profiler")
LIBRARIES = ("cublas", "cusparse", "cusolver", "curand", "cufft", "nvjitlink")
#: MiB to download and on disk, of the wheels of CUDA 13.0 for x86_64.
_SIZE_COMPILING, _SIZE_LIBRARIES = (190, 490), (1050, 1500)
#: Seconds for the installer.
LIMIT = 3600.0


class Installation(Struct, frozen=True, kw_only=True):
    """What `--install` would install."""

    root: Path
    """The folder it makes."""
    requirement: str
    argv: tuple[str, ...]
    """The installer's command line."""
    linked: Path | None = None
    """Folder of the environment's own wheels to link headers and libraries from."""
    download_mib: int = 0
    disk_mib: int = 0


def plan(host: Host, facts: Facts, environ: Mapping[str, str]) -> Installation:
    """Return the toolkit for torch's CUDA. Raises `AttnDoctorError` if there are no wheels."""
    torch = facts.torch
    if torch.build != "cuda" or not torch.cuda:
        raise AttnDoctorError("--install uses the CUDA release of torch, and this torch has none")
    release = series(torch.cuda) or torch.cuda
    if facts.system.os not in ("linux", "windows") or facts.system.musl:
        raise AttnDoctorError("NVIDIA publishes wheels for Windows and for Linux with glibc only")
    if not wheels_hold_nvcc(release):
        raise AttnDoctorError(
            f"NVIDIA's wheels of CUDA {release} contain no compiler (from CUDA 13.0 on they do);"
            " use one of the other ways that fix --cuda-home shows"
        )
    root = own_root(release, environ)
    if root is None:
        raise AttnDoctorError("there is no folder for a toolkit: set HOME or XDG_DATA_HOME")
    if os.path.lexists(root):
        raise AttnDoctorError(
            f"{root} exists and does not fit; attn-doctor fix undo removes the folder of an"
            " earlier run, else move it away"
        )
    linked, exact = _of_environment(facts, release)
    extras = COMPILING if linked else (*COMPILING, *LIBRARIES)
    requirement = f"cuda-toolkit[{','.join(extras)}]=={exact or release + '.*'}"
    sizes = (_SIZE_COMPILING,) if linked else (_SIZE_COMPILING, _SIZE_LIBRARIES)
    disk = sum(size[1] for size in sizes)
    if linked and not _one_device(linked, root):
        disk += _SIZE_LIBRARIES[1]  # they are copied then
    _enough_space(host, root, disk)
    return Installation(
        root=root,
        requirement=requirement,
        argv=(*_installer(facts), "--target", str(root / "wheels"), "--only-binary", ":all:",
              requirement),
        linked=linked,
        download_mib=sum(size[0] for size in sizes),
        disk_mib=disk,
    )  # fmt: skip


def _installer(facts: Facts) -> tuple[str, ...]:
    python = facts.python
    if python.path and python.pip:
        return (python.path, "-m", "pip", "install", "--no-compile")
    if python.path and python.uv:
        return (python.uv, "pip", "install", "--python", python.path)
    raise AttnDoctorError(
        f"{python.path} has no pip, and there is no uv;"
        f" `{line([python.path or 'python', '-m', 'ensurepip'])}` installs pip"
    )


def _of_environment(facts: Facts, release: str) -> tuple[Path | None, str]:
    """The environment's own wheels of that release with all headers, and its exact version."""
    for folder in facts.python.site_packages or ():
        place = Path(folder, "nvidia", f"cu{major(release)}")
        for found in Path(folder).glob("cuda_toolkit-*.dist-info"):
            version = found.name.removesuffix(".dist-info").partition("-")[2]
            headers = (cuda_root.HEADERS[part] for part in ("cublas", "cusparse", "cusolver"))
            if version.startswith(release + ".") and all(
                (place / "include" / name).is_file() for name in headers
            ):
                return place, version
    return None, ""


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _one_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == _existing(other).stat().st_dev


def _enough_space(host: Host, root: Path, mib: int) -> None:
    place = _existing(root)
    free = host.space(str(place)).free >> 20
    if free < mib:
        raise AttnDoctorError(
            f"{root} needs {mib} MiB, and {place} has {free} MiB free; free some space, or set"
            " XDG_DATA_HOME to a folder on a larger disk"
        )
    if not os.access(place, os.W_OK):
        raise AttnDoctorError(f"{place} cannot be written; set XDG_DATA_HOME to a folder of yours")


# Installing


def install(
    host: Host,
    wanted: Installation,
    environ: Mapping[str, str],
    journal: Journal,
    progress: Callable[[str], None],
) -> None:
    """Install it. Raises `AttnDoctorError` if that fails, after removing the folder."""
    root = journal.make_folder(wanted.root)
    try:
        with alive(root / MARKER):
            _fill(host, root, wanted, environ, journal, progress)
            journal.record_folder(root)
    except BaseException as error:
        # This run made it, as the marker says.
        if (root / MARKER).is_file() and not root.is_symlink():
            shutil.rmtree(root, ignore_errors=True)
        if isinstance(error, OSError):
            raise AttnDoctorError(f"{root} could not be filled: {error.strerror}") from None
        raise


def _fill(
    host: Host,
    root: Path,
    wanted: Installation,
    environ: Mapping[str, str],
    journal: Journal,
    progress: Callable[[str], None],
) -> None:
    """Install the wheels into `root`, and make a toolkit of them."""
    log = journal.folder / "toolkit.log"
    ended = run(
        wanted.argv,
        seconds=LIMIT,
        env=installer_environment(environ, {}),
        folder=journal.folder,
        log=log,
        on_line=progress,
        on_start=lambda process: journal.note("child", process=process, names=[]),
        inherit=(journal.lock_handle,),
    )
    if not ended.ok:
        last = ended.lines[-1] if ended.lines else ""
        why = ended.failure or f"it ended with code {ended.code}: {last[:300]}"
        raise AttnDoctorError(f"the toolkit could not be installed: {why}; the log is {log}")
    progress("putting the toolkit together")
    assemble(root, wanted.linked)
    _check(host, root, environ)


def assemble(root: Path, linked: Path | None) -> None:
    """Build a toolkit from the wheels in `root/wheels`: `bin`, `include`, `lib64`, `nvvm`.

    Both layouts are merged: one folder for all parts (CUDA 13) and one for each (CUDA 12).
    """
    wheels = root / "wheels"
    for part in sorted((wheels / "nvidia").iterdir()):
        if part.is_dir():
            _merge(part, root, os.replace)
    (root / "dist-info").mkdir(exist_ok=True)
    for found in wheels.glob("*.dist-info"):
        found.rename(root / "dist-info" / found.name)
    shutil.rmtree(wheels)
    if linked is not None:
        for name in ("include", "lib"):
            _merge(linked / name, root / name, _link)
    _libraries(root)
    (root / "version.json").write_text(json.dumps(_versions(root), indent=1) + "\n", "utf-8")


def _merge(source: Path, target: Path, put: Callable[[str, str], object]) -> None:
    """Put every file below `source` at the same path below `target`, if that is free."""
    for folder, folders, names in os.walk(source):
        folders[:] = [name for name in folders if name != "__pycache__"]
        place = target / os.path.relpath(folder, source)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name != "__init__.py" and not os.path.lexists(place / name):
                put(os.path.join(folder, name), str(place / name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _libraries(root: Path) -> None:
    """`lib64`, and the names without a version that the linker looks for."""
    folder = root / "lib"
    if os.name == "nt" or not folder.is_dir():
        return
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
    for path in sorted(folder.glob("lib*.so.*")):
        plain = folder / (path.name.partition(".so.")[0] + ".so")
        if not os.path.lexists(plain):
            plain.symlink_to(path.name)


def _versions(root: Path) -> dict[str, dict[str, str]]:
    """What NVIDIA's `version.json` holds: the toolkit's version and those of its parts."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((root / "dist-info").iterdir()):
        name, version = path.name.removesuffix(".dist-info").split("-")[:2]
        name = "cuda" if name == "cuda_toolkit" else re.sub(r"^nvidia_|_cu\d+$", "", name)
        found[name] = {"name": name, "version": version}
    return found


def _check(host: Host, root: Path, environ: Mapping[str, str]) -> None:
    lacks = cuda_root.missing_components(host, str(root))
    if lacks:
        raise AttnDoctorError(f"the wheels give an incomplete toolkit: it lacks {', '.join(lacks)}")
    asked = trial_build.nvcc(host.join(str(root), "bin", "nvcc"), environ)
    if not asked.version:
        raise AttnDoctorError(f"the toolkit from wheels does not run: {asked.why}")
