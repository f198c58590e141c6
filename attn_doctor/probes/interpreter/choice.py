"""Chooses the interpreter to examine, and says why.

A user rarely means the interpreter that runs attn-doctor: installed by pipx or uv, it has no torch.
So those that the user works with are looked for, and the first one with torch is chosen. All are
found by name and files alone. An interpreter that the user did not name could belong to another
user. So an environment in the working directory or above is refused if another user owns it or can
write to it, and a script is started only if `--python` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import ExaminationError
from attn_doctor.facts import Interpreter
from attn_doctor.host import Host, expand
from attn_doctor.probes.interpreter.layout import behind_shim, torch_of

#: Names of environments in a project's folder, then those in portable builds such as ComfyUI's.
_FOLDERS = (".venv", "venv", "env", ".pixi/envs/default")
_PORTABLE = ("python_embeded", "python_embedded")
_BASE = ("base", "root")


class Choice(Struct, frozen=True):
    """An interpreter, why it was chosen, and the first words of an error about it."""

    path: str
    why: str
    subject: str
    torch: str = ""
    """Version of its torch, if it was looked for; empty if it has none."""
    announced: bool = False
    """Its path is to be shown before it is started: neither the user nor the shell names it."""
    candidates: tuple[Interpreter, ...] = ()
    """All interpreters that were found and have torch, in the order of preference."""


def pick(host: Host, python: str) -> Choice:
    """Choose the interpreter at `python`, else that of the active environment.

    Without both, the first one with torch is chosen: in a folder here or above, on PATH, our own.
    If none has torch, the first one is chosen. Raises `ExaminationError` with one sentence if that
    one cannot be started.
    """
    if python:
        return _named(host, python)
    active = _active(host)
    # conda activates its base environment in every shell, so a folder takes precedence over it.
    base = not host.environ.get("VIRTUAL_ENV") and host.environ.get("CONDA_DEFAULT_ENV") in _BASE
    named = active is not None and not base
    mine = [active] if active is not None else []
    near = [*mine, *_in_folders(host)] if named else [*_in_folders(host), *mine]
    found = [replace(one, torch=torch_of(host, one.path)) for one in [*near, *_on_path(host)]]
    own = _own(host)
    with_torch = [*_distinct(host, [one for one in (*found, own) if one.torch])]
    choice = (found if named else with_torch or found or [own])[0]
    if not choice.path:
        raise failure("attn-doctor", "cannot determine which Python runs it")
    if choice.path not in (own.path, *(one.path for one in mine)):
        _check_found(host, choice)
    listed = (Interpreter(path=one.path, found=one.why, torch=one.torch) for one in with_torch)
    return replace(choice, candidates=tuple(listed))


def to_install_into(host: Host) -> str:
    """Return the environment folder here or above that `install` takes; empty to choose as `pick`.

    A new environment of a project has no torch yet, and is meant all the same. An active one comes
    first. Raises `ExaminationError` if others can change the folder.
    """
    active = _active(host)
    base = not host.environ.get("VIRTUAL_ENV") and host.environ.get("CONDA_DEFAULT_ENV") in _BASE
    if active is not None and not base:
        return ""
    found = [*_in_folders(host)]
    for one in [*(one for one in found if torch_of(host, one.path)), *found]:
        _check_found(host, one)
        return one.subject
    return ""


def _own(host: Host) -> Choice:
    ours = host.platform.python
    return Choice(ours, "runs attn-doctor", ours, torch_of(host, ours) if ours else "")


def _active(host: Host) -> Choice | None:
    """Return the interpreter of the active environment."""
    active = host.environ.get("VIRTUAL_ENV", "")
    if not active:
        return _conda(host)
    subject = f"VIRTUAL_ENV={active}"
    root = _folder(host, active, subject, "deactivate")
    return Choice(_interpreter_of(host, root, subject), "VIRTUAL_ENV is set", subject)


def _in_folders(host: Host) -> Iterator[Choice]:
    """Yield the interpreters of environments in folders here and above."""
    for names in (_FOLDERS, _PORTABLE):
        for folder in _upwards(host):
            for name in names:
                yield from _in_folder(host, folder, name)


def _on_path(host: Host) -> Iterator[Choice]:
    """Yield the interpreters on PATH. Of a shim of pyenv, which is a script, the target is taken.

    Left out are other scripts, Python 2, and Windows' links to its store.
    """
    for name in ("python", "python3"):
        path = host.which(name)
        path = behind_shim(host, _absolute(host, path)) if path else ""
        if path and not (
            "\\WindowsApps\\" in path
            or _is_python2(host.real(path))
            or host.try_read(path, 2).startswith("#!")
        ):
            yield Choice(path, f"{name} on PATH", path, announced=True)


def _is_python2(path: str) -> bool:
    name = path.replace("\\", "/").rpartition("/")[2]
    return name.startswith("python2") and not name[len("python2") :].strip(".0123456789")


def _upwards(host: Host) -> Iterator[str]:
    """Yield the working directory and those above it, up to the home directory or a root."""
    folder = host.platform.cwd
    while folder:
        yield folder
        above = host.parent(folder)
        if folder in (host.platform.home, above):
            return
        folder = above


def _in_folder(host: Host, folder: str, name: str) -> Iterator[Choice]:
    """Yield the interpreter of the environment `name` in `folder`, if it is one."""
    root = host.join(folder, *name.split("/"))
    if name in _FOLDERS and not (
        host.is_file(host.join(root, "pyvenv.cfg")) or host.is_dir(host.join(root, "conda-meta"))
    ):
        return
    path = _find(host, root)
    if path:
        where = "the working directory" if folder == host.platform.cwd else folder
        yield Choice(path, f"{name} in {where}", root, announced=name != ".venv")


def _distinct(host: Host, found: list[Choice]) -> Iterator[Choice]:
    """Yield each interpreter once. Two environments may share the file that a link leads to."""
    seen = set()
    for one in found:
        place = _place(host, one.path)
        if place not in seen:
            seen.add(place)
            yield one


def _place(host: Host, path: str) -> tuple[str, str]:
    return host.real(host.parent(path)), host.real(path)


def _check_found(host: Host, choice: Choice) -> None:
    """Raise unless an interpreter that the user did not name can be started."""
    root = choice.subject
    # What PATH names, the user's shell starts too.
    searched = root != choice.path
    danger = searched and (host.danger(root) or host.interpreter_danger(choice.path))
    if danger:
        raise failure(root, f"it is not started: {danger}", f"add --allow-foreign {root}")
    check(host, choice.path, root)
    if host.try_read(choice.path, 2).startswith("#!"):
        why = f"{choice.path} is a script, which is started only if --python names it"
        raise failure(choice.subject, why)


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
        check(host, path, subject)
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
    try:
        kind = host.stat(root).kind
    except FileNotFoundError:
        raise failure(subject, "that environment does not exist", f"run `{command}`") from None
    except OSError as error:
        why = f"that environment cannot be reached: {error.strerror}"
        raise failure(subject, why, f"run `{command}`") from None
    if kind != "dir":
        raise failure(subject, "that is not a folder", f"run `{command}`")
    return root


def _interpreter_of(host: Host, root: str, subject: str) -> str:
    """Return the interpreter of an environment or portable build, if it can be started."""
    inside = (_find(host, host.join(root, name)) for name in _PORTABLE)
    path = _find(host, root) or next(filter(None, inside), "")
    if not path:
        raise failure(subject, f"there is no Python interpreter in {root}")
    check(host, path, subject)
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


def check(host: Host, path: str, subject: str) -> None:
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
