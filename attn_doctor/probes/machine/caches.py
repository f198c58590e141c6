"""Reads the cache folders of compiled code: their paths, sizes, and whether they can be used.

The paths are computed as each library computes them. Only sizes and times are read; whether the
entries are valid for this machine is not known here. `fxgraph` and `aotautograd` are parts of
`inductor` and count there too. All walks together take at most `BUDGET` seconds;
`complete` is false for a cache that was not counted to its end.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct

from attn_doctor.facts import Cache
from attn_doctor.facts.kinds import CacheKind
from attn_doctor.host import Host, Measure, Stat
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.mounts import (
    Mount,
    in_home,
    mount_of,
    mounts,
    network,
    noexec,
    writable,
)

#: Seconds for counting all caches.
BUDGET = 0.1
#: Seconds after which a lock is stale: no single compilation takes an hour.
STALE = 3600.0
#: File systems in memory, and the writable layer of a container.
VOLATILE = ("tmpfs", "ramfs", "overlay", "overlayfs", "aufs", "fuse-overlayfs")


class _Place(Struct, frozen=True):
    """The path of a cache, and the variable that sets it."""

    kind: CacheKind
    path: str
    source: str


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return one `facts.Cache` for each cache, whether it exists or not."""
    return {"caches": survey(host, gaps, BUDGET)}


def survey(host: Host, gaps: Gaps, seconds: float) -> tuple[Cache, ...]:
    """Return the caches; counting them takes at most `seconds` together."""
    known = mounts(host)
    places = locate(host)
    there = [_stat(host, gaps, one.path, f"caches[{n}]") for n, one in enumerate(places)]
    # Each gets an equal share of the time that remains.
    left = sum(isinstance(one, Stat) for one in there)
    end = time.monotonic() + seconds
    found: list[Cache] = []
    for place, stat in zip(places, there, strict=True):
        counted: Measure | None = Measure() if stat is False else None
        if isinstance(stat, Stat):
            share = max(0.0, end - time.monotonic()) / left
            left -= 1
            counted = _counted(host, gaps, place.path, share, f"caches[{len(found)}]")
        found.append(_cache(host, gaps, place, stat, counted, known))
    return tuple(found)


# Places


def locate(host: Host) -> tuple[_Place, ...]:
    """Return the path of each cache, whether it exists or not."""
    inductor, source = _inductor(host)
    triton, triton_source = _triton(host)
    kernels, kernels_source = _kernels(host)
    extensions, extensions_source = _extensions(host)
    found = [
        _Place("inductor", inductor, source),
        _Place("fxgraph", host.join(inductor, "fxgraph"), source),
        _Place("aotautograd", host.join(inductor, "aotautograd"), source),
        _Place("triton", triton, triton_source),
        _Place("extensions", extensions, extensions_source),
        _Place("jiterator", kernels, kernels_source),
    ]
    if host.platform.os != "macos":
        found.append(_Place("driver", *_driver(host)))
    if host.environ.get("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED") == "1":
        found.append(_Place("cute", *cute(host)))
    return tuple(found)


def _inductor(host: Host) -> tuple[str, str]:
    """As torch/_inductor/runtime/cache_dir_utils.py; has the Triton kernels of torch.compile."""
    if "TORCHINDUCTOR_CACHE_DIR" in host.environ:
        return _absolute(host, host.environ["TORCHINDUCTOR_CACHE_DIR"]), "TORCHINDUCTOR_CACHE_DIR"
    user = host.platform.user
    if not user:
        user = f"uid_{host.platform.uid}"
    elif not user.isalnum():
        user = re.sub(r'[\\/:*?"<>|]', "_", user)
    return host.join(_temporary(host), f"torchinductor_{user}"), "default"


def _temporary(host: Host) -> str:
    """Return the first writable directory, in the order of Python's `tempfile`."""
    named = [host.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    usual = ["/tmp", "/var/tmp", "/usr/tmp"]  # noqa: S108
    if host.windows:
        usual = [host.join(host.platform.home, "AppData", "Local", "Temp")]
    paths = [_absolute(host, path) for path in (*named, *usual) if path]
    return next((path for path in paths if host.is_dir(path) and host.access(path, "w")), paths[-1])


def _triton(host: Host) -> tuple[str, str]:
    """As triton/knobs.py: for kernels that are not compiled by torch.compile."""
    if host.environ.get("TRITON_CACHE_DIR", "").strip():
        return _absolute(host, host.environ["TRITON_CACHE_DIR"].strip()), "TRITON_CACHE_DIR"
    home = host.environ.get("TRITON_HOME", "")
    path = host.join(_absolute(host, home) if home else host.platform.home, ".triton", "cache")
    return path, "TRITON_HOME" if home else "default"


def _kernels(host: Host) -> tuple[str, str]:
    """As aten/src/ATen/native/cuda/jit_utils.cpp, for small kernels of torch itself."""
    if "PYTORCH_KERNEL_CACHE_PATH" in host.environ:
        path = host.environ["PYTORCH_KERNEL_CACHE_PATH"]
        return _absolute(host, path), "PYTORCH_KERNEL_CACHE_PATH"
    name = "TEMP" if host.windows else "XDG_CACHE_HOME"
    if host.environ.get(name):
        return host.join(_absolute(host, host.environ[name]), "torch", "kernels"), name
    return host.join(host.platform.home, ".cache", "torch", "kernels"), "default"


def _extensions(host: Host) -> tuple[str, str]:
    """As torch/utils/cpp_extension.py; in the default place, one folder for each torch build."""
    if "TORCH_EXTENSIONS_DIR" in host.environ:
        return _absolute(host, host.environ["TORCH_EXTENSIONS_DIR"]), "TORCH_EXTENSIONS_DIR"
    home = host.platform.home
    if host.windows:
        local = host.environ.get("LOCALAPPDATA") or host.join(home, "AppData", "Local")
        return host.join(local, "torch_extensions", "torch_extensions", "Cache"), "default"
    if host.platform.os == "macos":
        return host.join(home, "Library", "Caches", "torch_extensions"), "default"
    if host.environ.get("XDG_CACHE_HOME"):
        place = _absolute(host, host.environ["XDG_CACHE_HOME"])
        return host.join(place, "torch_extensions"), "XDG_CACHE_HOME"
    return host.join(home, ".cache", "torch_extensions"), "default"


def _driver(host: Host) -> tuple[str, str]:
    """As the CUDA programming guide, for kernels that the driver compiles from PTX."""
    if host.environ.get("CUDA_CACHE_PATH"):
        return _absolute(host, host.environ["CUDA_CACHE_PATH"]), "CUDA_CACHE_PATH"
    home = host.platform.home
    if host.windows:
        roaming = host.environ.get("APPDATA") or host.join(home, "AppData", "Roaming")
        return host.join(roaming, "NVIDIA", "ComputeCache"), "default"
    return host.join(home, ".nv", "ComputeCache"), "default"


def cute(host: Host) -> tuple[str, str]:
    """As flash_attn/cute of FlashAttention 4, which keeps its kernels only if a variable is set."""
    name = "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"
    if host.environ.get(name):
        return _absolute(host, host.environ[name]), name
    folder = host.join(_temporary(host), host.platform.user, "flash_attention_cute_dsl_cache")
    return folder, "default"


def _absolute(host: Host, path: str) -> str:
    """Return `path` seen from the working directory, without expansion, as torch does."""
    return host.join(host.platform.cwd, path).rstrip("/\\") or path


# Facts


def _stat(host: Host, gaps: Gaps, path: str, fact: str) -> Stat | bool | None:
    """Return the `Stat` of `path`; False if nothing is there, None if that is unknown."""
    try:
        return host.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        gaps.add(fact, f"{path} cannot be reached: {error.strerror}")
        return None


def _counted(host: Host, gaps: Gaps, path: str, seconds: float, fact: str) -> Measure | None:
    """Return its size; None if this user may not read it."""
    if host.access(path, "r"):
        return host.measure(path, seconds)
    gaps.add(fact, f"{path} may not be read by this user")
    return None


def _cache(
    host: Host,
    gaps: Gaps,
    place: _Place,
    stat: Stat | bool | None,
    counted: Measure | None,
    known: tuple[Mount, ...],
) -> Cache:
    mount = mount_of(host.real(place.path), known)
    if mount is None:
        gaps.add("caches", "only Linux lists its mounts (/proc/self/mountinfo)")
    can_write = None if stat is None else writable(host, place.path, known)
    if can_write is None and stat is not None:
        gaps.add("caches", "Windows shows this only on an attempt to write")
    return Cache(
        kind=place.kind,
        path=place.path,
        source=place.source,
        exists=stat if stat is None else bool(stat),
        bytes=counted.bytes if counted is not None else None,
        entries=counted.files if counted is not None else None,
        last_modified=_day_and_time(counted.newest) if counted is not None else None,
        complete=counted.complete if counted is not None else None,
        writable=can_write,
        noexec=noexec(mount) if mount is not None else None,
        filesystem=mount.filesystem if mount is not None else None,
        network=network(mount) if mount is not None else None,
        volatile=_volatile(host, place.path, mount),
        stale_locks=_stale_locks(host, place, counted) if counted is not None else None,
        danger=_danger(host, gaps, place, stat, counted),
    )


def _danger(
    host: Host, gaps: Gaps, place: _Place, stat: Stat | bool | None, counted: Measure | None
) -> str | None:
    """Who else decides what is in it; None if that is unknown."""
    if stat is None:
        return None
    found = host.danger(place.path)
    if found or stat is False:
        return found or ""
    if found is None or counted is None:
        gaps.add("caches", "the owners of its files are not known")
        return None
    if not counted.complete and not counted.danger:
        gaps.add("caches", "not all of its files could be looked at in time")
        return None
    return counted.danger


def _day_and_time(seconds: float) -> str:
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _volatile(host: Host, path: str, mount: Mount | None) -> bool | None:
    """Whether it can be lost when the machine restarts or the container ends.

    A temporary folder elsewhere, such as TMPDIR on a local disk or Windows' own, outlives both.
    """
    if host.windows:
        # Windows itself is on that disk; another drive may be one of memory.
        return False if in_home(host, path) else None
    if host.join(path, "").startswith("/tmp/"):  # noqa: S108
        return True
    return mount.filesystem in VOLATILE if mount is not None else None


def _stale_locks(host: Host, place: _Place, counted: Measure) -> int:
    """Count the files `lock` of extension builds that have not changed for an hour.

    A build creates that file and deletes it at its end. If the build is killed, the file stays and
    every later import waits for it. Only the file's age shows whether a build still runs. The
    locks of the other caches are permanent files that block nothing.
    """
    if place.kind != "extensions":
        return 0
    names = (name for name in counted.locks if re.split(r"[/\\]", name)[-1] == "lock")
    found = (host.try_stat(host.join(place.path, name)) for name in names)
    return sum(one is not None and host.now() - one.mtime > STALE for one in found)
