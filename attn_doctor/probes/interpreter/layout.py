"""Finds the torch of an interpreter from the layout of its folders; the interpreter is not started.

So several interpreters can be compared before one of them is chosen. Not seen: folders that `.pth`
files add, and those of a `sitecustomize`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attn_doctor.host import Host

_TORCH = r"torch-(\d[^-]*)(?:-[^-]+)*\.(?:dist|egg)-info"
#: Shells that version managers put on PATH in place of the interpreter.
_SHIMS = r"(.+)[/\\]shims[/\\][^/\\]+"


def torch_of(host: Host, python: str) -> str:
    """Return the version of torch that the interpreter at `python` would import; empty if none."""
    return next(filter(None, (_torch_in(host, one) for one in site_packages(host, python))), "")


def _torch_in(host: Host, folder: str) -> str:
    names = host.try_list(folder)
    if "torch" in names:
        text = host.try_read(host.join(folder, "torch", "version.py"), 1 << 14)
        lines = (one for one in text.split("\n") if one.startswith("__version__"))
        said = next(lines, "").partition("=")[2].strip()
        version = said[1:].partition(said[0])[0] if said[:1] in ("'", '"') else ""
        if version:
            return version
    metadata = (re.fullmatch(_TORCH, name) for name in names if name.startswith("torch-"))
    return next((found[1] for found in metadata if found), "")


def site_packages(host: Host, python: str) -> Iterator[str]:
    """Yield the folders of distributions of the interpreter at `python`, in import order."""
    root, settings = _environment(host, python)
    if settings is None:
        yield from _of_prefix(host, *_base(host, host.real(python)))
        return
    yield from _of_prefix(host, root, "")
    if settings.get("include-system-site-packages", "true").lower() == "true":
        home = settings.get("home", "")
        yield from _of_prefix(host, *_base(host, host.join(home, host.real(python))))


def settings_of(config: str) -> dict[str, str]:
    """Return the settings of a `pyvenv.cfg`."""
    # home = /usr/bin
    # uv = 0.5.11
    # include-system-site-packages = false
    pairs = (line.partition("=") for line in config.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _environment(host: Host, python: str) -> tuple[str, dict[str, str] | None]:
    """Return root and settings of the virtual environment; None if it is none."""
    folder = host.parent(python)
    for root in (folder, host.parent(folder)):
        config = host.join(root, "pyvenv.cfg")
        if host.is_file(config):
            return root, settings_of(host.try_read(config))
    return "", None


def _base(host: Host, real: str) -> tuple[str, str]:
    """Return the prefix of an installed Python, and its minor version if its name has one."""
    folder = host.parent(real)
    # /usr/bin/python3.12 · C:\Python312\python.exe
    prefix = folder if host.windows else host.parent(folder)
    return prefix, _minor(real.rpartition("python")[2].removesuffix(".exe"))


def _minor(text: str) -> str:
    """Return `text` if it is a minor version such as `3.12` or `3.13t`, else empty text."""
    start, number = text[:2], text[2:].removesuffix("t")
    return text if start == "3." and number.isdecimal() else ""


def _of_prefix(host: Host, prefix: str, minor: str) -> Iterator[str]:
    if host.windows:
        yield host.join(prefix, "Lib", "site-packages")
        return
    roots = [prefix, *(("/usr/local",) if prefix == "/usr" else ())]
    if minor:
        # The user's own folder precedes those of the installation.
        roots.insert(0, host.join(host.platform.home, ".local"))
    for root in roots:
        lib = host.join(root, "lib")
        names = [f"python{minor}"] if minor else [*_pythons(host, lib)]
        for name in (*names, "python3"):
            for last in ("site-packages", "dist-packages"):
                yield host.join(lib, name, last)


def _pythons(host: Host, lib: str) -> Iterator[str]:
    names = (name for name in host.try_list(lib) if name.startswith("python"))
    return (name for name in names if _minor(name.removeprefix("python")))


def behind_shim(host: Host, path: str) -> str:
    """Return the interpreter that pyenv's shim at `path` starts; empty if that is unknown.

    Other files are returned as they are. A shim is a shell script, which is not started.
    """
    shim = re.fullmatch(_SHIMS, path) if "shims" in path else None
    if shim is None or not host.try_read(path, 2).startswith("#!"):
        return path
    name = path.replace("\\", "/").rpartition("/")[2]
    for version in _pyenv_versions(host, shim[1]):
        found = host.join(shim[1], "versions", version, "bin", name)
        if host.is_file(found):
            return found
    return ""


def _pyenv_versions(host: Host, root: str) -> list[str]:
    """Return the versions that pyenv would use here, in its order."""
    asked = host.environ.get("PYENV_VERSION", "")
    if asked:
        return asked.split(":")
    folder = host.platform.cwd
    files = []
    while folder:
        files.append(host.join(folder, ".python-version"))
        above = host.parent(folder)
        folder = above if above != folder else ""
    texts = (host.try_read(one, 1 << 12) for one in (*files, host.join(root, "version")))
    lines = next(filter(None, texts), "").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
