"""Limits of control groups, of both versions, in containers and under a scheduler."""

from __future__ import annotations

from attn_doctor.probes.machine.cgroups import cpu_limit, memory_limit
from tests.probes.tree import GIB, machine

SLURM = "0::/system.slice/slurmstepd.scope/job_7/step_0\n"
JOB = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"


def test_no_groups() -> None:
    assert memory_limit(machine()) is None
    assert cpu_limit(machine()) is None


def test_no_limits() -> None:
    host = machine(
        {
            "/proc/self/cgroup": "0::/user.slice\n",
            "/sys/fs/cgroup/user.slice/memory.max": "max\n",
            "/sys/fs/cgroup/user.slice/memory.current": "12345\n",
            "/sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
        }
    )
    assert memory_limit(host) is None
    assert cpu_limit(host) is None


def test_a_parent_group_counts() -> None:
    host = machine(
        {
            "/proc/self/cgroup": SLURM,
            f"{JOB}/step_0/memory.max": "max\n",
            f"{JOB}/memory.max": f"{64 * GIB}\n",
            f"{JOB}/memory.current": f"{10 * GIB}\n",
            f"{JOB}/cpu.max": "800000 100000\n",
        }
    )
    assert memory_limit(host) == (64 * GIB, 54 * GIB)
    assert cpu_limit(host) == 8


def test_the_tightest_counts() -> None:
    host = machine(
        {
            "/proc/self/cgroup": SLURM,
            f"{JOB}/step_0/memory.max": f"{32 * GIB}\n",
            f"{JOB}/step_0/memory.current": f"{1 * GIB}\n",
            f"{JOB}/step_0/cpu.max": "50000 100000\n",
            f"{JOB}/memory.max": f"{64 * GIB}\n",
            f"{JOB}/memory.current": f"{60 * GIB}\n",
            f"{JOB}/cpu.max": "800000 100000\n",
        }
    )
    assert memory_limit(host) == (32 * GIB, 4 * GIB)
    assert cpu_limit(host) == 1


def test_version_1_in_a_container_that_does_not_see_its_own_path() -> None:
    host = machine(
        {
            "/proc/self/cgroup": "4:memory:/docker/8f8d\n3:cpu,cpuacct:/docker/8f8d\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            "/sys/fs/cgroup/memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}\n",
            "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
            "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        }
    )
    assert memory_limit(host) == (4 * GIB, 2 * GIB)
    assert cpu_limit(host) == 2


def test_more_in_use_than_allowed() -> None:
    host = machine(
        {
            "/proc/self/cgroup": "0::/\n",
            "/sys/fs/cgroup/memory.max": f"{GIB}\n",
            "/sys/fs/cgroup/memory.current": f"{2 * GIB}\n",
        }
    )
    assert memory_limit(host) == (GIB, 0)


def test_invalid_values_are_not_limits() -> None:
    host = machine(
        {
            "/proc/self/cgroup": "garbage\n0::/\n",
            "/sys/fs/cgroup/memory.max": "\n",
            "/sys/fs/cgroup/cpu.max": "100000 0\n",
        }
    )
    assert memory_limit(host) is None
    assert cpu_limit(host) is None
