"""Whether torch's modules are kept compiled, so that a start need not compile them again.

Python keeps them as `.pyc` files where `importlib.util.cache_from_source` says. Two modules stand
for all: `torch` itself, and one that only its compiler imports, since a lone `import torch` leaves
that one out. What this cannot know: whether a file there is out of date, which Python would compile
again, and files of `python -O`, which have other names.
"""

from __future__ import annotations

from typing import Any

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.mounts import writable

_MODULES = (("__init__.py",), ("_inductor", "compile_fx.py"))


def compiled(host: Host, site: Site, path: str, gaps: Gaps) -> dict[str, Any]:
    """The fields `bytecode` and `bytecode_writable` of the torch package at `path`."""
    if not path or path.endswith(".py"):
        why = "no torch folder"
    elif not site.cache_tag:
        why = "the interpreter does not say how it names compiled modules"
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
        gaps.add("torch.bytecode_writable", "Windows tells only when one tries to write")
    return answer


def _cache(host: Host, folder: str) -> str:
    """Where compiled modules of the source files in `folder` belong."""
    prefix = host.environ.get("PYTHONPYCACHEPREFIX", "")
    if not prefix:
        return host.join(folder, "__pycache__")
    if host.windows:
        folder = folder[2:] if folder[1:2] == ":" else folder
    return host.join(host.platform.cwd, prefix, folder.lstrip("/\\" if host.windows else "/"))
