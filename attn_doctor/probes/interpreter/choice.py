"""Which interpreter to examine: the path of one that may be started, and why this one.

The one a user means is rarely the one that runs attn-doctor: installed by pipx, it examines the
activated environment. That a choice nobody spelled out is the user's own cannot be proved: a
`.venv` above the working directory that belongs to somebody else is therefore passed over, and a
script is started only where it was named by hand.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from attn_doctor.errors import ExaminationError
from attn_doctor.host import Host, expand


class Choice(NamedTuple):
    """An interpreter, why it was chosen, and what an error about it should begin with."""

    path: str
    why: str
    subject: str


def pick(host: Host, python: str) -> Choice:
    """The interpreter at `python`, else of the active environment, a `.venv` here, or our own.

    Raises `ExaminationError` with one sentence if that one cannot be started.
    """
    if python:
        return _named(host, python)
    active = host.environ.get("VIRTUAL_ENV", "")
    if active:
        subject = f"VIRTUAL_ENV={active}"
        root = _folder(host, active, subject, "deactivate")
        return Choice(_interpreter_of(host, root, subject), "VIRTUAL_ENV is set", subject)
    # conda activates its base environment in every shell, so that says less than a `.venv`.
    if host.environ.get("CONDA_DEFAULT_ENV") in ("base", "root"):
        choice = _dot_venv(host) or _conda(host)
    else:
        choice = _conda(host) or _dot_venv(host)
    ours = host.platform.python
    if choice is None and not ours:
        raise failure("attn-doctor", "cannot tell which Python runs it")
    return choice or Choice(ours, "runs attn-doctor", ours)


def _named(host: Host, python: str) -> Choice:
    """What `--python` names: a program on PATH, an environment, or an interpreter."""
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
    """The active conda environment, unless it holds no Python but, say, a CUDA toolkit."""
    prefix = host.environ.get("CONDA_PREFIX", "")
    if not prefix:
        return None
    subject = f"CONDA_PREFIX={prefix}"
    root = _folder(host, prefix, subject, "conda deactivate")
    if not _find(host, root):
        return None
    return Choice(_interpreter_of(host, root, subject), "CONDA_PREFIX is set", subject)


def _dot_venv(host: Host) -> Choice | None:
    """The nearest `.venv` from the working directory up to the home directory or a root."""
    start = folder = host.platform.cwd
    while folder:
        root = host.join(folder, ".venv")
        here = folder == start
        if host.is_file(host.join(root, "pyvenv.cfg")) and (here or _trusted(host, root)):
            path = _interpreter_of(host, root, root)
            if host.try_read(path, 2).startswith("#!"):
                raise failure(root, f"{path} is a script, which is started only if named by hand")
            return Choice(path, f".venv in {'the working directory' if here else folder}", root)
        above = host.parent(folder)
        if folder in (host.platform.home, above):
            break
        folder = above
    return None


def _trusted(host: Host, folder: str) -> bool:
    """`folder` belongs to this user or to root."""
    found = host.try_stat(folder)
    return found is not None and (host.windows or found.uid in (0, host.platform.uid))


def _absolute(host: Host, path: str) -> str:
    """`path` seen from the working directory. `..` stays where it follows a link elsewhere."""
    path = host.join(host.platform.cwd, path)
    if not path:
        return path
    short = host.normal(path)
    # Folders are compared: the file itself may be a link to a Python that many environments share.
    straight = ".." not in path or host.real(host.parent(short)) == host.real(host.parent(path))
    return short if straight else path


def _folder(host: Host, folder: str, subject: str, command: str) -> str:
    """The folder that a variable names, if it is there."""
    root = _absolute(host, folder)
    if not host.is_dir(root):
        raise failure(subject, "that environment is gone or cannot be read", f"run `{command}`")
    return root


def _interpreter_of(host: Host, root: str, subject: str) -> str:
    """The interpreter of the environment at `root`, if it can be started."""
    path = _find(host, root)
    if not path:
        raise failure(subject, f"there is no Python interpreter in {root}")
    _check(host, path, subject)
    return path


def _find(host: Host, root: str) -> str:
    """Path of the interpreter in an environment, even of one that leads nowhere; or empty."""
    names = ("python.exe",) if host.windows else ("python", "python3")
    for folder in ("Scripts", "", "bin") if host.windows else ("bin", ""):
        place = host.join(root, folder) if folder else root
        there = host.try_list(place)
        for name in names:
            if name in there and not host.is_dir(host.join(place, name)):
                return host.join(place, name)
    return ""


def _check(host: Host, path: str, subject: str) -> None:
    """Raises unless `path` is an executable file that may be a Python, judging by its name."""
    name = re.split(r"[/\\]", path)[-1]
    real = host.real(path)
    try:
        kind = host.stat(path).kind
    except FileNotFoundError:
        if name in host.try_list(host.parent(path)):
            remedy = "install that Python again, make the environment anew"
            raise failure(subject, f"{path} leads to {real}, which is gone", remedy) from None
        raise failure(subject, f"{path} does not exist") from None
    except OSError as error:
        raise failure(subject, f"{path} cannot be reached ({error.strerror})") from None
    if kind != "file":
        raise failure(subject, f"{path} is not a file")
    # Whatever else was named by mistake (`--python train.py`) is better not started.
    names = {name.lower().removesuffix(".exe"), re.split(r"[/\\]", real)[-1].lower()}
    if not any(re.fullmatch(r"py|(?!.*\.py$).*(python|pypy).*", one) for one in names):
        raise failure(subject, f"{path} is not a Python interpreter")
    if not host.access(path, "x"):
        raise failure(subject, f"{path} may not be executed by this user")


def failure(subject: str, why: str, remedy: str = "") -> ExaminationError:
    """The error a user sees: what was asked for, what is wrong with it, and what to do."""
    otherwise = "give another interpreter or environment with --python PATH"
    return ExaminationError(f"{subject}: {why}; {remedy + ', or ' if remedy else ''}{otherwise}")
