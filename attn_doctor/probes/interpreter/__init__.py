"""Describes the examined interpreter and its environment.

The interpreter is started once, isolated, to describe itself (`worker/interpreter.py`); all else is
read from its folders. Changes by `usercustomize` are not seen.
"""

import errno
import os
import re

import msgspec
from msgspec import Struct

from attn_doctor.errors import ExaminationError
from attn_doctor.facts import Interpreter, Python
from attn_doctor.facts.kinds import PythonEnvironment
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter.choice import Choice, check, failure, pick
from attn_doctor.probes.interpreter.layout import settings_of
from attn_doctor.probes.interpreter.shadowing import is_known_module, shadowing_modules
from attn_doctor.probes.machine.mounts import writable

#: Seconds an interpreter may take to describe itself. Most need a fiftieth of one.
LIMIT = 3.0


class Description(Struct, frozen=True, kw_only=True):
    """What an interpreter says of itself; see `worker/interpreter.py`."""

    version: str
    implementation: str
    abi: str
    free_threaded: bool
    debug: bool
    executable: str
    prefix: str
    base_prefix: str
    pyvenv: str
    include: str
    platinclude: str
    stdlib: str
    purelib: str
    scripts: str
    user_site: str | None
    reads_pythonpath: bool
    site_packages: tuple[str, ...]
    cache_tag: str = ""
    ctypes: bool = True


class _Failure(Struct, frozen=True, kw_only=True):
    """What an interpreter says that cannot describe itself, and how it ended."""

    outcome: str = ""
    kind: str = ""
    error: str = ""
    out: str = ""
    err: str = ""


class Chosen(Struct, frozen=True, kw_only=True):
    """The interpreter to examine, and its description of itself."""

    path: str
    why: str
    """Why this one is examined."""
    prefix: str
    site_packages: tuple[str, ...]
    """Folders of known packages in import order, those of PYTHONPATH included."""
    plain: tuple[str, ...] = ()
    """Those of them that PYTHONPATH adds; Python reads no `.pth` file there."""
    answer: Description
    candidates: tuple[Interpreter, ...] = ()
    """The interpreters with torch that were found."""


def choose(host: Host, python: str) -> Chosen:
    """Choose the interpreter at `python`, else the one that `pick` finds, and ask it what it is.

    An interpreter that neither the user nor the shell names is shown before it is started. Raises
    `ExaminationError` with one sentence if it cannot be examined.
    """
    choice = pick(host, python)
    if choice.announced:
        torch = f"torch {choice.torch}" if choice.torch else "no torch"
        host.show(f"Examining {choice.path}: {choice.why}, with {torch}")
    answer = _ask(host, choice)
    path = choice.path
    executable = answer.executable or path
    if host.real(executable) != host.real(path):
        path = executable  # a pyenv shim, for example: the facts describe its target
        check(host, path, choice.subject)  # what a foreign interpreter says of itself may be false
    added = _pythonpath(host) if answer.reads_pythonpath else ()
    plain = tuple(one for one in added if _holds_packages(host, one))
    folders: dict[str, str] = {}
    for folder in (*plain, *answer.site_packages):
        # If `lib64` is a link to `lib`, the same folder occurs twice.
        folders.setdefault(host.real(folder), folder)
    return Chosen(
        path=path,
        why=choice.why,
        prefix=answer.prefix,
        site_packages=tuple(folders.values()),
        plain=plain,
        answer=answer,
        candidates=choice.candidates,
    )


def describe(host: Host, chosen: Chosen, site: Site, gaps: Gaps) -> Python:
    """Return the facts of the chosen interpreter and its environment."""
    answer = chosen.answer
    venv = host.try_read(answer.pyvenv) if answer.pyvenv else ""
    marker = host.join(answer.stdlib, "EXTERNALLY-MANAGED")
    headers = [host.join(one, "Python.h") for one in (answer.include, answer.platinclude)]
    pip = site.distributions.get("pip")
    can_write = writable(host, answer.purelib)
    if can_write is None:
        gaps.add("python.site_packages_writable", "Windows shows this only on an attempt to write")
    foreign_variable, foreign_home = _foreign_home(host, answer)
    shadowing = shadowing_modules(host, site, _pythonpath(host)) if answer.reads_pythonpath else ()
    unread = gaps.reasons.get("python.distribution_count", "")
    for name in ("invalid_distributions", "pth_code") if unread else ():
        gaps.add(f"python.{name}", unread)
    return Python(
        path=chosen.path,
        selection_reason=chosen.why,
        version=answer.version,
        implementation=answer.implementation,
        abi=answer.abi,
        free_threaded=answer.free_threaded,
        debug=answer.debug,
        prefix=answer.prefix,
        base_prefix=answer.base_prefix,
        environment=_environment(host, answer),
        externally_managed=not answer.pyvenv and host.is_file(marker),
        headers=next(filter(host.is_file, headers), ""),
        include=answer.include,
        site_packages=tuple(
            one
            for one in chosen.site_packages
            if one not in chosen.plain or _holds_metadata(host, one)
        ),
        unread_torch=_unread_torch(host, answer, site),
        foreign_home=foreign_home,
        foreign_variable=foreign_variable,
        site_packages_writable=can_write,
        pip=pip.version if pip else "",
        uv=_uv(host, answer.scripts),
        created_by_uv="uv" in settings_of(venv),
        user_site=answer.user_site if answer.user_site in answer.site_packages else "",
        pythonpath=_pythonpath(host),
        shadowing_modules=tuple(map(str, shadowing)),
        shadowing_here=any(one.here for one in shadowing),
        pythonpath_kept=_kept(host, {one.folder for one in shadowing if not one.here}),
        invalid_distributions=None if unread else site.leftovers,
        pth_code=None if unread else site.pth_code,
        distribution_count=None if unread else len(site.distributions),
    )


def _ask(host: Host, choice: Choice) -> Description:
    """What the interpreter says of itself. Raises `ExaminationError` if that is nothing usable."""
    said = host.inside(choice.path, LIMIT * host.patience)
    try:
        return msgspec.convert(said, Description)
    except (msgspec.ValidationError, UnicodeError) as error:
        try:
            answer = msgspec.convert(said, _Failure)
        except (msgspec.ValidationError, UnicodeError):
            answer = _Failure()
        if "code" not in said and answer in (_Failure(), _Failure(outcome="done")):
            reason = f"{choice.path} is not a working Python interpreter; its description of itself"
            raise failure(choice.subject, f"{reason} cannot be used: {error}") from None
        raise _failed(host, choice, answer) from None


#: The system's reason why a program cannot be started → what to do, where it is a limit.
_RAISE = {
    os.strerror(errno.EMFILE): "raise the limit of open files (ulimit -n)",
    os.strerror(errno.EAGAIN): "raise the limit of processes (ulimit -u, or the container's)",
    os.strerror(errno.ENOMEM): "raise its limit of memory (ulimit -v, or the container's)",
}


def _failed(host: Host, choice: Choice, answer: _Failure) -> ExaminationError:
    """Why an interpreter did not describe itself, and what to do."""
    path, subject, outcome = choice.path, choice.subject, answer.outcome
    lines = (answer.err or answer.out).strip().splitlines()
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    said = (fatal or lines or ["nothing"])[0][:200]
    home = _home_of(host, path)
    # Python 2 answers "Unknown option: -I".
    if answer.kind == "too-old" or said.startswith("Unknown option: -I"):
        version = answer.error or "Python 2"
        return failure(subject, f"{path} is {version}; attn-doctor examines Python 3.8 and newer")
    if home and not host.is_dir(home):
        remedy = "install that Python again, create the environment again"
        return failure(
            subject, f"it was created from the Python in {home}, which does not exist", remedy
        )
    if outcome in ("timeout", "abandoned"):
        reason = f"{path} did not answer within {LIMIT * host.patience:g} s"
        return failure(subject, reason, "allow more time, if the command takes --timeout SECONDS")
    if outcome == "missing":
        return failure(
            subject,
            f"{path} cannot be started, because the loader or a program it needs is missing",
        )
    if outcome == "refused":
        # [Errno 8] Exec format error: '/home/ada/bin/python3'
        why = said.partition("] ")[2].partition(":")[0]
        reason = f"{path} cannot be started ({why})" if why else said
        return failure(subject, reason, _RAISE.get(why, ""))
    if answer.error:
        return failure(subject, f"{path} cannot describe itself ({answer.error})")
    return failure(subject, f"{path} is not a working Python interpreter; it answered {said!r}")


def _home_of(host: Host, python: str) -> str:
    """Return the folder of the base Python of a virtual environment; or empty."""
    root = host.parent(host.parent(python))
    return settings_of(host.try_read(host.join(root, "pyvenv.cfg"))).get("home", "")


def _environment(host: Host, answer: Description) -> PythonEnvironment:
    if answer.pyvenv:
        return "venv"
    if not answer.reads_pythonpath:
        return "embeddable"
    return "conda" if host.is_dir(host.join(answer.prefix, "conda-meta")) else "system"


def _foreign_home(host: Host, answer: Description) -> tuple[str, str]:
    """Return a variable that leads to another standard library, and its value; empty if none does.

    PYTHONHOME names another place than this Python's own, or PYTHONPLATLIBDIR another folder.
    """
    if not answer.reads_pythonpath:
        return "", ""
    home = host.environ.get("PYTHONHOME", "")
    first = home if host.windows else home.partition(":")[0]
    if home and host.real(first) != host.real(answer.base_prefix):
        return "PYTHONHOME", home
    folder = host.environ.get("PYTHONPLATLIBDIR", "")
    # /usr/lib64/python3.12
    ours = re.split(r"[/\\]", answer.stdlib)[-2:-1]
    if folder and not host.windows and ours != [folder] and not answer.version.startswith("3.8."):
        return "PYTHONPLATLIBDIR", folder
    return "", ""


def _unread_torch(host: Host, answer: Description, site: Site) -> str:
    """Return the folder of another minor version that has torch; empty if torch is elsewhere too.

    A virtual environment has one after the base Python was upgraded, a conda environment after its
    own Python was. Several installed Pythons share a folder too, and so others are not looked at.
    """
    if site.module(host, "torch") or _environment(host, answer) not in ("venv", "conda"):
        return ""
    lib = host.join(answer.prefix, "lib")
    folders = (host.join(lib, name, "site-packages") for name in host.try_list(lib))
    return next((one for one in folders if host.is_dir(host.join(one, "torch"))), "")


def _pythonpath(host: Host) -> tuple[str, ...]:
    """Return the folders that PYTHONPATH adds. An empty entry is the working directory."""
    text = host.environ.get("PYTHONPATH", "")
    if not text:
        return ()
    entries = text.split(";" if host.windows else ":")
    here = host.platform.cwd
    return tuple(dict.fromkeys(host.join(here, one) if one else here for one in entries))


def _kept(host: Host, folders: set[str]) -> str:
    """Return PYTHONPATH without `folders`."""
    kept = [one for one in _pythonpath(host) if one not in folders]
    return (";" if host.windows else ":").join(kept)


def _holds_packages(host: Host, folder: str) -> bool:
    """Whether `folder` has modules of one file, packages or metadata of packages."""
    return _holds_metadata(host, folder) or any(
        name.endswith((".py", ".pyc", ".so", ".pyd"))
        or is_known_module(host, folder, name)
        or ("." not in name and host.is_file(host.join(folder, name, "__init__.py")))
        for name in host.try_list(folder)
    )


def _holds_metadata(host: Host, folder: str) -> bool:
    """Whether packages are installed in `folder`, as by `pip install --target`."""
    return any(name.endswith((".dist-info", ".egg-info")) for name in host.try_list(folder))


def _uv(host: Host, scripts: str) -> str:
    """Return the path of uv on PATH or in a folder that its installers use; or empty."""
    name = "uv.exe" if host.windows else "uv"
    home = host.platform.home
    folders = [scripts, host.join(home, ".local", "bin"), host.join(home, ".cargo", "bin")]
    if not host.windows:
        folders += ["/usr/local/bin", "/opt/homebrew/bin", "/usr/bin"]
    places = (host.join(folder, name) for folder in folders)
    return host.which("uv") or next(filter(host.is_file, places), "")
