"""Reads the manifest of kernels that were built ahead of time into torch's cache folder.

Only the cache folder that torch would use now is examined; a manifest in another folder is not
found. Only the sizes of files are compared; `cache verify` checks their content.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attn_doctor.facts import BuiltKernels
from attn_doctor.host import Host
from attn_doctor.json_files import JsonError, decode
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.caches import locate
from attn_doctor.probes.machine.mounts import writable
from attn_doctor.redact import presentable

if TYPE_CHECKING:
    from attn_doctor.record.manifest import (
        Build,
        Entry,
        Manifest,
        Warmup,
    )

#: Bytes of a manifest that are read; one with a thousand specs is smaller.
LIMIT = 1 << 25
#: Seconds for comparing file sizes.
BUDGET = 0.05


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return one `facts.BuiltKernels` for each device in the manifest of torch's cache."""
    return {"manifests": of_folder(host, locate(host)[0].path, gaps)}


def of_folder(host: Host, folder: str, gaps: Gaps) -> tuple[BuiltKernels, ...] | None:
    """Return the same for any cache folder; None, and a gap, if its manifest cannot be read."""
    # The path is written out here: importing `record.store` costs time, often for nothing.
    path = host.join(folder, "attn-doctor", "manifest.json")
    if danger := host.danger(path):
        gaps.add("manifests", f"{path} is not read: {danger}")
        return None
    try:
        text = host.read(path, LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        gaps.add("manifests", f"{path} cannot be read: {error.strerror}")
        return None
    found, reason = _decoded(text)
    if found is None:
        return (BuiltKernels(path=path, folder=folder, error=reason),)
    end = time.monotonic() + BUDGET
    places = dict.fromkeys(
        [entry.device_slot for entry in found.entries.values()]
        + [warmup.device_slot for warmup in found.warmups.values()]
    )
    return tuple(
        _place(host, gaps, path, folder, found, place, end, f"manifests[{number}]")
        for number, place in enumerate(places)
    )


def _decoded(text: str) -> tuple[Manifest | None, str]:
    """Return the manifest, or why it cannot be used."""
    import msgspec

    from attn_doctor.record.manifest import SCHEMA, Manifest

    class Version(msgspec.Struct):
        schema: int
        attn_doctor: str = "?"

    try:
        version = decode(text, Version)
        if version.schema > SCHEMA:
            return None, f"a newer attn-doctor wrote it ({version.attn_doctor})"
        return decode(text, Manifest), ""
    except JsonError as error:
        return None, f"it is damaged: {error}"


def _place(
    host: Host,
    gaps: Gaps,
    path: str,
    folder: str,
    manifest: Manifest,
    place: str,
    end: float,
    fact: str,
) -> BuiltKernels:
    entries = [one for one in manifest.entries.values() if one.device_slot == place]
    warmups = [one for one in manifest.warmups.values() if one.device_slot == place]
    was = manifest.environments.get(place)
    missing = _missing(host, folder, _files(entries, warmups), end)
    if missing is None:
        gaps.add(f"{fact}.missing_files", f"comparing all file sizes took longer than {BUDGET} s")
    builds: list[Build | Warmup] = [one.build for one in entries if one.build is not None]
    builds += warmups
    return BuiltKernels(
        path=path,
        folder=folder,
        error="",
        device_slot=place,
        specs=len(entries),
        built=sum(one.state == "built" for one in entries),
        recompiled=sum(one.state == "not-reused" for one in entries),
        failed=sum(one.state == "failed" for one in entries),
        unverified=sum(one.state == "unverified" for one in entries)
        + sum(one.unverified for one in warmups),
        kernels_only=sum(one.state == "cubins" for one in entries),
        cleared=sum(one.state == "cleared" for one in entries),
        warmups=len(warmups),
        seconds=round(sum(one.seconds for one in builds), 1),
        last_build=max((one.at for one in builds), default=""),
        torch=was.torch if was else None,
        torch_cuda=was.torch_cuda if was else None,
        triton=was.triton if was else None,
        ptxas=was.ptxas if was else None,
        python=was.python if was else None,
        device=was.device if was else None,
        sm=was.sm if was else None,
        driver=was.driver if was else None,
        cc=was.cc if was else None,
        cxx=was.cxx if was else None,
        cpu=was.cpu if was else None,
        environment=(
            tuple(f"{name}={presentable(value)}" for name, value in sorted(was.environment.items()))
            if was
            else None
        ),
        missing_files=missing,
        **_held(host, gaps, place, builds, fact),
    )


def _held(
    host: Host, gaps: Gaps, place: str, builds: Iterable[Build | Warmup], fact: str
) -> dict[str, Any]:
    """The folders whose paths graphs for a GPU hold, and whether torch could write there."""
    paths = () if place == "cpu" else tuple(sorted({one.root for one in builds if one.root}))
    can = {path: writable(host, path) for path in paths}
    blocked = next((path for path in paths if can[path] is False), "")
    if not blocked and None in can.values():
        gaps.add(f"{fact}.blocked_embedded_path", "Windows shows this only on an attempt to write")
        return {"embedded_paths": paths, "blocked_embedded_path": None}
    return {"embedded_paths": paths, "blocked_embedded_path": blocked}


def _files(entries: Iterable[Entry], warmups: Iterable[Warmup]) -> dict[str, int]:
    builds: list[Build | Warmup] = [one.build for one in entries if one.build is not None]
    return {path: size for one in (*builds, *warmups) for path, size in one.files.items()}


def _missing(host: Host, folder: str, files: dict[str, int], end: float) -> int | None:
    """How many are gone or have another size; None if the time was up before all were asked."""
    count = 0
    for name, size in files.items():
        if time.monotonic() > end:
            return None
        found = host.try_stat(host.join(folder, *name.split("/")))
        count += found is None or found.size != size
    return count
