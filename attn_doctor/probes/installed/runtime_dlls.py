r"""Finds DLLs of Microsoft's C++ and OpenMP runtimes that torch needs and Windows would not find.

`import torch` loads every DLL in `torch\lib`, and ends at the first that does not load. It names
that DLL, and not the one that is missing. Other DLLs, such as those of CUDA, come with torch.
"""

from __future__ import annotations

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter.layout import settings_of

#: How the names of runtime DLLs begin. The redistributable of Visual C++ brings all but the last.
_RUNTIME = ("vcruntime140", "msvcp140", "concrt140", "vcomp140", "libomp140")


def missing_runtime(host: Host, site: Site, torch: str, gaps: Gaps) -> tuple[str, ...] | None:
    """Return the runtime DLLs that are missing; None if that is unknown."""
    lib = host.join(torch, "lib")
    own = [name for name in host.try_list(lib) if name.lower().endswith(".dll")]
    root = host.environ.get("SystemRoot") or host.environ.get("SYSTEMROOT") or r"C:\Windows"
    system = host.join(root, "System32")
    if not own or not host.is_dir(system):
        gaps.add("torch.missing_libraries", f"{lib if not own else system} cannot be listed")
        return None
    # In a virtual environment, the program that runs is the base's.
    home = settings_of(host.try_read(host.join(site.prefix, "pyvenv.cfg"))).get("home", "")
    folders = [lib, system, root]
    for one in filter(None, (home, site.prefix)):
        folders += [one, host.join(one, "Library", "bin"), host.join(one, "bin")]
    # After a failure torch tries again with PATH.
    folders += filter(None, host.environ.get("PATH", "").split(";"))
    needed = {name.lower() for one in own for name in _needed(host, host.join(lib, one))}
    return tuple(
        name
        for name in sorted(needed)
        if name.startswith(_RUNTIME)
        and not any(host.is_file(host.join(folder, name)) for folder in folders)
    )


def _needed(host: Host, path: str) -> tuple[str, ...]:
    try:
        return host.binary(path).needed
    except OSError:
        return ()
