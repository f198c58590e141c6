"""Chooses the interpreter to examine, and says why.

A user rarely means the interpreter that runs attn-doctor: installed by pipx, it examines the active
environment. An interpreter that the user did not name could belong to another user. So a `.venv`
above the working directory is skipped if another user owns it, and a script is started only if
`--python` names it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from attn_doctor.errors import ExaminationError
from attn_doctor.host import Host, expand


class Choice(NamedTuple):
    """An interpreter, why it was chosen, and the first words of an error about it."""

    path: str
    why: str
    subject: str


def pick(host: Host, python: str) -> Choice:
    """Choose the interpreter at `python`, else of the active environment, a `.venv`, or our own.

    Raises `ExaminationError` with one sentence if that one cannot be started.
    """
    if python:
        return _named(host, python)
    active = host.environ.get("VIRTUAL_ENV", "")
    if active:
        subject = f"VIRTUAL_ENV={active}"
        root = _folder(host, active, subject, "deactivate")
        return Choice(_interpreter_of(host, root, subject), "VIRTUAL_ENV is set", subject)
    # conda activates its base environment in every shell, so a `.venv` takes precedence over it.
    if host.environ.get("CONDA_DEFAULT_ENV") in ("base", "root"):
        choice = _dot_venv(host) or _conda(host)
    else:
        choice = _conda(host) or _dot_venv(host)
    ours = host.platform.python
    if choice is None and not ours:
        raise failure("attn-doctor", "cannot determine which Python runs it")
    return choice or Choice(ours, "runs attn-doctor", ours)


def _named(host: Host, python: str) -> Choice:
    """Return what `--python` names: a program on PATH, an environment, or an interpreter."""
    subject = f"--python {python}"
    path = _absolute(host, expand(python, host.platform.home))
    bare = not re.search(r"[/\\]", python)
    if bare:
        # `--python 3.12` means python3.12, as it does for uv.
        version = re.fullmatch(r"\d+(\.\d+)?t?", python)
        found = host.which(python) or (host.which(f"python{python}") if version else "")
        if not found and host.try_stat(path) is None:
            raise failure(subject, "there is no such program on PATH and no such folder here")
        path = _absolute(host, found) if found else path
    if host.is_dir(path):
        path = _interpreter_of(host, path, subject)
    else:
        _check(host, path, subject)
    return Choice(path, "--python", subject)


def _conda(host: Host) -> Choice | None:
    """Return the active conda environment, if it contains Python."""
    prefix = host.environ.get("CONDA_PREFIX", "")
    if not prefix:
        return None
    subject = f"CONDA_PREFIX={prefix}"
    root = _folder(host, prefix, subject, "conda deactivate")
    if not _find(host, root):
        return None
    return Choice(_interpreter_of(host, root, subject), "CONDA_PREFIX is set", subject)


def _dot_venv(host: Host) -> Choice | None:
    """Return the nearest `.venv` from the working directory up to the home directory or a root."""
    start = folder = host.platform.cwd
    while folder:
        root = host.join(folder, ".venv")
        here = folder == start
        if host.is_file(host.join(root, "pyvenv.cfg")) and (here or _trusted(host, root)):
            path = _interpreter_of(host, root, root)
            if host.try_read(path, 2).startswith("#!"):
                raise failure(
                    root, f"{path} is a script, which is started only if --python names it"
                )
            return Choice(path, f".venv in {'the working directory' if here else folder}", root)
        above = host.parent(folder)
        if folder in (host.platform.home, above):
            break
        folder = above
    return None


def _trusted(host: Host, folder: str) -> bool:
    """Whether `folder` belongs to this user or to root."""
    found = host.try_stat(folder)
    return found is not None and (host.windows or found.uid in (0, host.platform.uid))


def _absolute(host: Host, path: str) -> str:
    """Return `path` seen from the working directory; `..` stays if it follows a link."""
    path = host.join(host.platform.cwd, path)
    if not path:
        return path
    short = host.normal(path)
    # Folders are compared: the file itself may be a link to a Python that many environments share.
    straight = ".." not in path or host.real(host.parent(short)) == host.real(host.parent(path))
    return short if straight else path


def _folder(host: Host, folder: str, subject: str, command: str) -> str:
    """Return the folder that a variable names, if it exists."""
    root = _absolute(host, folder)
    if not host.is_dir(root):
        raise failure(
            subject, "that environment does not exist or cannot be read", f"run `{command}`"
        )
    return root


def _interpreter_of(host: Host, root: str, subject: str) -> str:
    """Return the interpreter of the environment at `root`, if it can be started."""
    path = _find(host, root)
    if not path:
        raise failure(subject, f"there is no Python interpreter in {root}")
    _check(host, path, subject)
    return path


def _find(host: Host, root: str) -> str:
    """Return the path of the interpreter in an environment, even a broken link; or empty."""
    names = ("python.exe",) if host.windows else ("python", "python3")
    for folder in ("Scripts", "", "bin") if host.windows else ("bin", ""):
        place = host.join(root, folder) if folder else root
        there = host.try_list(place)
        for name in names:
            if name in there and not host.is_dir(host.join(place, name)):
                return host.join(place, name)
    return ""


def _check(host: Host, path: str, subject: str) -> None:
    """Raise unless `path` is an executable file with the name of a Python."""
    name = re.split(r"[/\\]", path)[-1]
    real = host.real(path)
    try:
        kind = host.stat(path).kind
    except FileNotFoundError:
        if name in host.try_list(host.parent(path)):
            remedy = "install that Python again, create the environment again"
            raise failure(
                subject, f"{path} leads to {real}, which does not exist", remedy
            ) from None
        raise failure(subject, f"{path} does not exist") from None
    except OSError as error:
        raise failure(subject, f"{path} cannot be reached ({error.strerror})") from None
    if kind != "file":
        raise failure(subject, f"{path} is not a file")
    # Other files, named by mistake (`--python train.py`), are not started.
    names = {name.lower().removesuffix(".exe"), re.split(r"[/\\]", real)[-1].lower()}
    if not any(re.fullmatch(r"py|(?!.*\.py$).*(python|pypy).*", one) for one in names):
        raise failure(subject, f"{path} is not a Python interpreter")
    if not host.access(path, "x"):
        raise failure(subject, f"{path} may not be executed by this user")


def failure(subject: str, why: str, remedy: str = "") -> ExaminationError:
    """Return the error for the user: what was asked for, what is wrong, and what to do."""
    otherwise = "give another interpreter or environment with --python PATH"
    return ExaminationError(f"{subject}: {why}; {remedy + ', or ' if remedy else ''}{otherwise}")
