"""Checks whether torch's modules have `.pyc` files, so that a start does not compile them again.

Their paths are those of `importlib.util.cache_from_source`. Two modules represent all: `torch`
itself, and a module of its compiler, which `import torch` alone does not import. Outdated files,
which Python would compile again, and the files of `python -O`, which have other names, are not
recognised.
"""

from __future__ import annotations

from typing import Any

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.mounts import writable

_MODULES = (("__init__.py",), ("_inductor", "compile_fx.py"))


def compiled(host: Host, site: Site, path: str, gaps: Gaps) -> dict[str, Any]:
    """Return the fields `bytecode` and `bytecode_writable` of the torch package at `path`."""
    if not path or path.endswith(".py"):
        why = "no torch folder"
    elif not site.cache_tag:
        why = "the interpreter did not report its cache tag for compiled modules"
    else:
        return {
            "bytecode": _kept(host, site.cache_tag, path, gaps),
            "bytecode_writable": _may_write(host, path, gaps),
        }
    gaps.add("torch.bytecode", why)
    gaps.add("torch.bytecode_writable", why)
    return {}


def _kept(host: Host, tag: str, path: str, gaps: Gaps) -> bool | None:
    for parts in _MODULES:
        source = host.join(path, *parts)
        if len(parts) > 1 and not host.is_file(source):
            continue  # torch 1 has no such compiler
        name = f"{parts[-1].removesuffix('.py')}.{tag}.pyc"
        file = host.join(_cache(host, host.parent(source)), name)
        try:
            host.stat(file)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            gaps.add("torch.bytecode", f"{file} cannot be read: {error.strerror}")
            return None
    return True


def _may_write(host: Host, path: str, gaps: Gaps) -> bool | None:
    answer = writable(host, _cache(host, path))
    if answer is None:
        gaps.add("torch.bytecode_writable", "Windows shows this only on an attempt to write")
    return answer


def _cache(host: Host, folder: str) -> str:
    """Return the folder for compiled modules of the source files in `folder`."""
    prefix = host.environ.get("PYTHONPYCACHEPREFIX", "")
    if not prefix:
        return host.join(folder, "__pycache__")
    if host.windows:
        folder = folder[2:] if folder[1:2] == ":" else folder
    return host.join(host.platform.cwd, prefix, folder.lstrip("/\\" if host.windows else "/"))
