"""Recommends a folder for compiled kernels: lasting, the user's own, local, and with free space.

Every candidate is checked in the same way, by the kernel's table of mounts, modes and owners;
nothing is created for it. A volume that disappears with its container may look like a lasting disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.machine.caches import VOLATILE, locate
from attn_doctor.probes.machine.mounts import (
    Mount,
    existing,
    mount_of,
    mounts,
    network,
    noexec,
    writable,
)

#: Bytes that should be free: a model's kernels take some 100 MB, and several versions lie together.
ROOM = 2 << 30
#: Mounts that hold the system's own things, whatever their file system.
_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/usr", "/lib", "/snap", "/nix")
#: Faults, the worst first. A folder with one of them is not usable.
_UNFIT = (
    "cannot be written to by this user",
    "can be changed by another user",
    "is mounted noexec",
)


class Candidate(Struct, frozen=True, kw_only=True):
    """A possible folder."""

    path: str
    because: str
    """Why it is a candidate."""
    faults: tuple[str, ...] = ()
    """Its faults; empty if it is good."""

    @property
    def fit(self) -> bool:
        """Kernels can be kept and loaded there at all."""
        return not any(fault in _UNFIT for fault in self.faults)

    @property
    def harm(self) -> tuple[int, bool]:
        """How much is against it; of as many faults a network disk is the worst."""
        return len(self.faults), any("network" in fault for fault in self.faults)


class Choice(Struct, frozen=True, kw_only=True):
    """What to set, and why."""

    variables: dict[str, str]
    """Empty where no folder would do."""
    reasons: tuple[str, ...]
    """The reasons, one a line."""
    candidates: tuple[Candidate, ...]


def choose(host: Host) -> Choice:
    """Choose the best folder on `host` for the caches of torch and Triton."""
    known = mounts(host)
    candidates = tuple(_checked(host, path, why, known) for path, why in _candidates(host, known))
    fit = [one for one in candidates if one.fit]
    if not fit:
        return Choice(
            variables={},
            reasons=(
                "no folder on this machine is suitable:",
                *(f"  {one.path} {' and '.join(one.faults)}" for one in candidates),
            ),
            candidates=candidates,
        )
    best = min(fit, key=lambda one: one.harm)
    variables = {"TORCHINDUCTOR_CACHE_DIR": best.path}
    reasons = [*_why(best, candidates)]
    variables.update(_triton(host, best, known, reasons))
    return Choice(variables=variables, reasons=tuple(reasons), candidates=candidates)


def _candidates(host: Host, known: tuple[Mount, ...]) -> Iterator[tuple[str, str]]:
    """Possible folders, the best first, each once."""
    seen: set[str] = set()
    for path, why in _preferences(host, known):
        if path not in seen:
            seen.add(path)
            yield path, why


def _preferences(host: Host, known: tuple[Mount, ...]) -> Iterator[tuple[str, str]]:
    now = locate(host)[0]
    if now.source == "TORCHINDUCTOR_CACHE_DIR":
        yield now.path, "TORCHINDUCTOR_CACHE_DIR names it already"
    home = host.platform.home
    user = host.platform.user or str(host.platform.uid)
    if host.windows:
        local = host.environ.get("LOCALAPPDATA") or host.join(home, "AppData", "Local")
        yield host.join(local, "torchinductor"), "the user's folder for data of this machine"
        return
    caches = host.environ.get("XDG_CACHE_HOME") or host.join(home, ".cache")
    yield host.join(caches, "torchinductor"), "the user's folder for caches"
    for mount in known:
        if _is_volume(host, mount):
            stat = host.try_stat(mount.path)
            mine = stat is not None and stat.uid == host.platform.uid
            inside = (".cache", "torchinductor") if mine else (f"torchinductor-{user}",)
            yield host.join(mount.path, *inside), f"a volume ({mount.filesystem})"
    yield f"/var/tmp/torchinductor-{user}", "it outlives a reboot"  # noqa: S108


def _is_volume(host: Host, mount: Mount) -> bool:
    """A disk that is mounted for data, such as `/workspace` in a container."""
    if mount.path == "/" or mount.path.startswith(_SYSTEM) or "ro" in mount.options:
        return False
    kind = mount.filesystem
    if kind in VOLATILE or kind in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"):
        return False
    if network(mount):
        return False  # any access may hang
    # Files such as /etc/hosts are mounted into containers as well.
    return host.is_dir(mount.path)


def _checked(host: Host, path: str, why: str, known: tuple[Mount, ...]) -> Candidate:
    found = existing(host, path)
    mount = mount_of(host.real(path), known)
    faults = []
    if writable(host, path, known) is False:
        faults.append(_UNFIT[0])
    if host.danger(path):
        faults.append(_UNFIT[1])
    if mount is not None and noexec(mount):
        faults.append(_UNFIT[2])
    if mount is not None and network(mount):
        faults.append(f"is on a network disk ({mount.filesystem})")
    if _volatile(host, path, mount):
        kind = mount.filesystem if mount is not None else ""
        gone = "is lost with the container" if kind in VOLATILE[2:] else "is lost at reboot"
        faults.append(gone)
    room = _room(host, found)
    if room is not None and room < ROOM:
        faults.append(f"has only {room >> 20} MiB free")
    return Candidate(path=path, because=why, faults=tuple(faults))


def _volatile(host: Host, path: str, mount: Mount | None) -> bool:
    if mount is not None and mount.filesystem in VOLATILE:
        return True
    temporary = (host.environ.get("TMPDIR") or "/tmp", "/tmp", "/dev/shm")  # noqa: S108
    return not host.windows and any(
        path.startswith(host.join(folder, ""))
        for folder in temporary
        if folder != "/var/tmp"  # noqa: S108
    )


def _room(host: Host, path: str) -> int | None:
    try:
        return host.space(path).free if path else None
    except OSError:
        return None


def _why(best: Candidate, candidates: tuple[Candidate, ...]) -> Iterator[str]:
    yield f"# torch's caches: {best.path} ({best.because})"
    for fault in best.faults:
        yield f"# but it {fault}; nothing better was found"
    if any("container" in fault for fault in best.faults):
        yield "# mount a volume into the container, and name a folder on it in that variable"
    for one in candidates:
        if one is not best and one.faults:
            yield f"# not {one.path}: it {' and '.join(one.faults)}"


def _triton(
    host: Host, best: Candidate, known: tuple[Mount, ...], reasons: list[str]
) -> dict[str, str]:
    """Keep Triton's own folder if it is as good: torch.compile's kernels are not in it."""
    if host.is_dir(host.join(best.path, ".triton")):
        reasons.append("# Triton's own caches: below torch's folder, where a build put them")
        return {"TRITON_HOME": best.path}
    now = next(one for one in locate(host) if one.kind == "triton")
    triton = _checked(host, now.path, "", known)
    if not triton.faults and now.source == "TRITON_CACHE_DIR":
        reasons.append(f"# Triton's caches: {now.path}, as TRITON_CACHE_DIR says, is good")
        return {"TRITON_CACHE_DIR": now.path}
    if triton.fit and triton.harm <= best.harm:
        reasons.append(
            f"# Triton's own caches: {now.path} is as good; TRITON_CACHE_DIR stays unset, so"
            " that the kernels of torch.compile are inside torch's folder"
        )
        return {}
    faults = " and ".join(triton.faults)
    reasons.append(f"# Triton's caches: inside torch's folder, because {now.path} {faults}")
    return {"TRITON_CACHE_DIR": host.join(best.path, "triton")}
