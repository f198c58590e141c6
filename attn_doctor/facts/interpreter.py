"""The examined Python."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import DuplicatePlace, PythonEnvironment, Version


class Python(Struct, frozen=True, kw_only=True):
    """The examined interpreter, which may differ from the one that runs attn-doctor."""

    path: str | None = None
    """Path of the interpreter."""
    selection_reason: str | None = None
    """Why this interpreter is examined, such as `VIRTUAL_ENV is set`."""
    version: Version | None = None
    """Python version, such as `3.12.3`."""
    minor: Version | None = None
    """Derived: major and minor version, such as `3.12`."""
    implementation: str | None = None
    """`cpython`, `pypy`, …"""
    abi: str | None = None
    """ABI tag of its extension modules, such as `cp312` or `cp313t`."""
    free_threaded: bool | None = None
    """Built without the global interpreter lock."""
    debug: bool | None = None
    """A debug build."""
    prefix: str | None = None
    """Root of the environment (`sys.prefix`)."""
    base_prefix: str | None = None
    """Root of the Python installation underneath (`sys.base_prefix`)."""
    environment: PythonEnvironment | None = None
    """`venv`, `conda`, `system`, or `embeddable`: a portable build's own Python on Windows."""
    externally_managed: bool | None = None
    """The distribution forbids pip to install here (PEP 668)."""
    headers: str | None = None
    """Path of `Python.h`; empty if it is not there."""
    include: str | None = None
    """Directory that should contain `Python.h`."""
    site_packages: tuple[str, ...] | None = None
    """Directories with its distributions, in import order."""
    unread_torch: str | None = None
    """Folder of this environment with torch for another Python version; empty if torch is read, or
    there is none."""
    foreign_home: str | None = None
    """Value of PYTHONHOME or PYTHONPLATLIBDIR if it leads to another standard library; empty if it
    does not, or is not set."""
    foreign_variable: str | None = None
    """Which of the two variables leads there; empty if none does."""
    site_packages_writable: bool | None = None
    """This user may write to the directory where pip installs packages (`purelib`)."""
    pip: Version | None = None
    """Version of pip in the environment; empty if there is none."""
    uv: str | None = None
    """Path of `uv`; empty if there is none."""
    created_by_uv: bool | None = None
    """The environment was created by uv (`uv venv`), which installs no pip."""
    user_site: str | None = None
    """The user site directory that this interpreter adds to its path; empty if it adds none."""
    pythonpath: tuple[str, ...] | None = None
    """Entries of PYTHONPATH."""
    shadowing_modules: tuple[str, ...] | None = None
    """Files outside site-packages that Python imports in place of a known package, or of a module
    that one needs."""
    shadowing_here: bool | None = None
    """One of them is in the working directory, which `python -m` and `python -c` search."""
    pythonpath_kept: str | None = None
    """PYTHONPATH without the folders that hold such files."""
    invalid_distributions: tuple[str, ...] | None = None
    """Partly removed distributions (`~orch…`), which pip calls invalid."""
    pth_code: tuple[str, ...] | None = None
    """`.pth` files that run code whenever this interpreter starts."""
    distribution_count: int | None = None
    """Number of installed distributions."""


class Interpreter(Struct, frozen=True, kw_only=True):
    """An interpreter with torch that was found by its name and its files, without starting it."""

    path: str | None = None
    """Its path."""
    found: str | None = None
    """Where it was found, such as `python on PATH` or `venv in /home/ada/ComfyUI`."""
    torch: Version | None = None
    """Version of its torch, from the files."""


class DamagedMetadata(Struct, frozen=True, kw_only=True):
    """Metadata of a known package that cannot be read."""

    package: str | None = None
    """Its distribution, from the name of the folder."""
    version: Version | None = None
    """Its version, likewise."""
    folder: str | None = None
    """Path of the folder, which ends in `.dist-info`."""
    reason: str | None = None
    """What is wrong with it."""
    again: tuple[str, ...] | None = None
    """Derived: what pip installs to get this release again, from where it came: a requirement and
    the options of an index; empty if the index may have other files of it, or none."""


class IncompletePackage(Struct, frozen=True, kw_only=True):
    """A known package with files that are gone or cut short."""

    package: str | None = None
    """Its distribution."""
    version: Version | None = None
    """Its version, from its metadata."""
    file: str | None = None
    """The first such file, relative to site-packages."""
    reason: str | None = None
    """What is wrong with it: `gone`, `empty`, `cut short`, `not text`, `with a conflict of Git` or
    `for another processor`."""
    files: int | None = None
    """Number of such files among those that an import may execute."""
    link: str | None = None
    """Path of a link to nothing in place of a folder of the package, over which installers fail;
    empty if there is none."""
    again: tuple[str, ...] | None = None
    """Derived: what pip installs to get this release again, from where it came: a requirement and
    the options of an index; empty if the index may have other files of it, or none."""


class Duplicate(Struct, frozen=True, kw_only=True):
    """A known package, or a CUDA wheel, that is installed more than once."""

    package: str | None = None
    """Its distribution."""
    versions: tuple[Version, ...] | None = None
    """The versions of the copies, in import order."""
    folders: tuple[str, ...] | None = None
    """The folders that the copies are in, in import order."""
    place: DuplicatePlace | None = None
    """Why there are several: two in one `folder`; one in `pythonpath`; one in a folder that code of
    a `.pth` file or `sitecustomize.py` adds (`path-file`); one of the `user`, beside that of an
    environment or the system; or several `environments`."""
    keep: Version | None = None
    """The version that its own files have; else the newest one."""
    stray: str | None = None
    """Metadata folder of the first copy with another version."""
    pythonpath: str | None = None
    """PYTHONPATH without these folders."""
    path_file: str | None = None
    """The `.pth` file or `sitecustomize.py` whose code adds one of these folders; empty if none
    does."""
    again: tuple[str, ...] | None = None
    """Derived: what pip installs to get the release `keep` again, from where it came: a requirement
    and the options of an index; empty if the index may have other files of it, or none."""
