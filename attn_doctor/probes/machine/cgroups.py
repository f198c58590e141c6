"""Reads the memory and processors that a container or a batch system allows this process.

The limits of every control group from this process's own up to the visible root apply, because a
scheduler such as Slurm sets them on a parent group. Inside a container the path that the kernel
names may not be visible; then the visible root has the container's own limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_doctor.host import Host
from attn_doctor.numbers import natural

ROOT = "/sys/fs/cgroup"


def memory_limit(host: Host) -> tuple[int, int] | None:
    """Return the bytes this process may use, and those still free; None without a limit."""
    totals: list[int] = []
    rests: list[int] = []
    for folder in _folders(host, "memory"):
        limit = _number(host, folder, "memory.max", "memory.limit_in_bytes")
        used = _number(host, folder, "memory.current", "memory.usage_in_bytes")
        # Without a limit, version 1 shows a number larger than any memory.
        if limit is None or limit > 1 << 60:
            continue
        totals.append(limit)
        # The kernel drops cached files before it refuses memory.
        rests.append(max(0, limit - (used or 0) + _inactive(host, folder)))
    return (min(totals), min(rests)) if totals else None


def cpu_limit(host: Host) -> int | None:
    """Return the processors this process may use, rounded up; None without a limit."""
    shares: list[float] = []
    for folder in _folders(host, "cpu"):
        # cpu.max: "150000 100000", or "max 100000"
        quota, _, period = host.try_read(f"{folder}/cpu.max").strip().partition(" ")
        if not quota:
            quota = host.try_read(f"{folder}/cpu.cfs_quota_us").strip()
            period = host.try_read(f"{folder}/cpu.cfs_period_us").strip()
        share, whole = natural(quota), natural(period)
        if share is not None and whole:
            shares.append(share / whole)
    return max(1, math.ceil(min(shares))) if shares else None


# 4:memory:/docker/8f8d          version 1
# 0::/user.slice/session-2.scope version 2
def _folders(host: Host, controller: str) -> Iterator[str]:
    """Yield the folders of the groups that limit `controller`, this process's own first."""
    for line in host.try_read("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base = ROOT
        elif controller in names.split(","):
            base = f"{ROOT}/{controller}"
        else:
            continue
        path = path.rstrip("/")
        while path.startswith("/"):
            yield base + path
            path = path.rpartition("/")[0]
        yield base


def _number(host: Host, folder: str, *names: str) -> int | None:
    for name in names:
        found = natural(host.try_read(f"{folder}/{name}").strip())
        if found is not None:
            return found
    return None


# inactive_file 1048576
# total_inactive_file 1048576     (version 1, with the groups below)
def _inactive(host: Host, folder: str) -> int:
    """Return the bytes of cached files that were not used recently."""
    lines = (line.split() for line in host.try_read(f"{folder}/memory.stat").splitlines())
    stat = {words[0]: words[1] for words in lines if len(words) == 2}
    return natural(stat.get("total_inactive_file", stat.get("inactive_file"))) or 0
