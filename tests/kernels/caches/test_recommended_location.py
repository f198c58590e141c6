"""The place for compiled kernels: lasting, local, the user's own, with room."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.host.recorded import RecordedHost
from attn_doctor.kernels.caches.recommended_location import choose

GIB = 1 << 30


def machine(
    mounts: dict[str, str],
    *,
    environ: dict[str, str] | None = None,
    owners: dict[str, int] | None = None,
    free: dict[str, int] | None = None,
    readonly: tuple[str, ...] = (),
) -> RecordedHost:
    """A Linux machine of user 1000 with these mounts: path → `ext4` or `ext4 noexec`."""
    lines = []
    for number, (path, described) in enumerate(mounts.items()):
        kind, *options = described.split()
        joined = ",".join(["rw", *options])
        lines.append(f"{number} 1 8:1 / {path} {joined} - {kind} /dev/x rw")
    answers: dict[str, Any] = {
        "platform": {
            "answer": {
                "os": "linux", "machine": "x86_64", "release": "6.1", "uid": 1000, "user": "ada",
                "home": "/home/ada", "cwd": "/home/ada",
            }
        },
        "environ": {"answer": environ or {}},
        "read /proc/self/mountinfo": {"answer": "\n".join(lines)},
    }  # fmt: skip
    folders = {"/", "/tmp", "/var/tmp", "/home/ada", *mounts, *(owners or {})}
    for path in folders:
        mine = path not in ("/", "/tmp", "/var/tmp")
        uid = (owners or {}).get(path, 1000 if mine else 0)
        answers[f"stat {path}"] = {"answer": {"kind": "dir", "uid": uid, "mode": 0o755}}
        if uid not in (0, 1000):
            answers[f"danger {path}"] = {"answer": f"{path} belongs to {uid} (mode 0755)"}
        writable = path != "/" and path not in readonly
        answers[f"access {path} w"] = {"answer": writable}
        answers[f"access {path} x"] = {"answer": True}
        room = (free or {}).get(path, 100 * GIB)
        answers[f"space {path}"] = {"answer": {"total": 200 * GIB, "free": room}}
    return RecordedHost(answers)


@pytest.mark.parametrize(
    ("name", "host", "inductor", "triton"),
    [
        ("a desktop", machine({"/": "ext4"}), "/home/ada/.cache/torchinductor", ""),
        (
            "a container with a volume",
            machine({"/": "overlay", "/workspace": "ext4", "/proc": "proc", "/dev/shm": "tmpfs"}),
            "/workspace/.cache/torchinductor",
            "/workspace/.cache/torchinductor/triton",
        ),
        (
            "a cluster with NFS homes",
            machine({"/": "ext4", "/home": "nfs4"}),
            "/var/tmp/torchinductor-ada",
            "/var/tmp/torchinductor-ada/triton",
        ),
        (
            "a home mounted noexec",
            machine({"/": "ext4", "/home": "ext4 noexec"}),
            "/var/tmp/torchinductor-ada",
            "/var/tmp/torchinductor-ada/triton",
        ),
        (
            "a container with an NFS home",
            machine({"/": "overlay", "/home": "nfs4"}),
            "/var/tmp/torchinductor-ada",
            "/var/tmp/torchinductor-ada/triton",
        ),
        (
            "a container with a home mounted noexec",
            machine({"/": "overlay", "/home": "ext4 noexec"}),
            "/var/tmp/torchinductor-ada",
            "/var/tmp/torchinductor-ada/triton",
        ),
        (
            "a good folder that is named already",
            machine(
                {"/": "ext4", "/data": "xfs"},
                environ={"TORCHINDUCTOR_CACHE_DIR": "/data/i", "TRITON_CACHE_DIR": "/data/t"},
            ),
            "/data/i",
            "/data/t",
        ),
        (
            "a folder in memory that is named already",
            machine({"/": "ext4"}, environ={"TORCHINDUCTOR_CACHE_DIR": "/tmp/i"}),
            "/home/ada/.cache/torchinductor",
            "",
        ),
        (
            "another user made the folder in /var/tmp",
            machine(
                {"/": "ext4", "/home": "nfs4", "/scratch": "xfs"},
                owners={"/var/tmp/torchinductor-ada": 1001},
            ),
            "/scratch/.cache/torchinductor",
            "/scratch/.cache/torchinductor/triton",
        ),
        (
            "a full home",
            machine({"/": "ext4", "/home": "ext4"}, free={"/home/ada": GIB}),
            "/home/.cache/torchinductor",
            None,
        ),
    ],
)
def test_the_place(name: str, host: RecordedHost, inductor: str, triton: str | None) -> None:
    found = choose(host).variables
    assert found["TORCHINDUCTOR_CACHE_DIR"] == inductor, name
    if triton is not None:
        assert found.get("TRITON_CACHE_DIR", "") == triton, name


def test_a_container_without_a_volume_is_reported() -> None:
    found = choose(machine({"/": "overlay"}))
    assert found.variables["TORCHINDUCTOR_CACHE_DIR"] == "/home/ada/.cache/torchinductor"
    text = "\n".join(found.reasons)
    assert "it is lost with the container; nothing better was found" in text
    assert "mount a volume" in text


def test_where_nothing_can_be_written_nothing_is_set() -> None:
    found = choose(machine({"/": "ext4"}, readonly=("/home/ada", "/var/tmp", "/tmp")))
    assert found.variables == {}
    assert any("cannot be written" in text for text in found.reasons)


def test_reasons_name_what_was_passed_over() -> None:
    text = "\n".join(choose(machine({"/": "ext4", "/home": "nfs4"})).reasons)
    assert "not /home/ada/.cache/torchinductor: it is on a network disk (nfs4)" in text


def test_tritons_own_folder_of_a_build_without_the_gpu_is_named() -> None:
    host = machine(
        {"/": "ext4"},
        environ={"TORCHINDUCTOR_CACHE_DIR": "/opt/k"},
        owners={"/opt/k": 1000, "/opt/k/.triton": 1000},
    )
    assert choose(host).variables == {"TORCHINDUCTOR_CACHE_DIR": "/opt/k", "TRITON_HOME": "/opt/k"}
