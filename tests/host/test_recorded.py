"""A machine recorded and played back answers the same."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.host import Host, Ran
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, RecordingHost, key, to_text


def keep_all(name: str) -> bool:
    return True


def replay(recording: RecordingHost) -> RecordedHost:
    return RecordedHost(json.loads(to_text(recording.answers)))


def questions(host: Host, folder: str) -> list[Any]:
    """What probes ask: some of it is there, some is not."""
    python = sys.executable
    return [
        host.platform,
        host.environ,
        host.windows,
        host.now(),
        host.try_read(host.join(folder, "file")),
        host.try_read(host.join(folder, "none")),
        host.try_stat(host.join(folder, "file")),
        host.try_stat(host.join(folder, "none")),
        host.try_list(folder),
        host.try_list(host.join(folder, "file")),
        host.real(folder),
        host.access(folder, "w"),
        host.access(host.join(folder, "none"), "r"),
        host.space(folder),
        host.memory(),
        host.measure(folder, 5.0),
        host.run([python, "-I", "-S", "-c", "print('ä \"quoted\"')"], 20.0),
        host.run([host.join(folder, "none")], 1.0),
        host.which("python3"),
    ]


def test_replay_gives_the_same_answers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\nwith «quotes»\n", encoding="utf-8")
    recording = RecordingHost(LocalHost(), keep_all)
    seen = questions(recording, str(tmp_path))
    assert "«quotes»" in seen[4]
    (tmp_path / "file").unlink()
    assert questions(replay(recording), str(tmp_path)) == seen


class Failing(Host):
    """A machine on which every question about a file fails."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def ask(self, question: str, *args: Any) -> Any:
        raise OSError("no errno") if self.number is None else OSError(self.number, "why", args[0])


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EISDIR, IsADirectoryError),
        (errno.ESTALE, OSError),
        (None, OSError),
    ],
)
def test_errors_replay_as_they_were(number: int | None, kind: type[OSError]) -> None:
    recording = RecordingHost(Failing(number), keep_all)
    with pytest.raises(kind) as live:
        recording.read("/proc/driver/nvidia/version")
    with pytest.raises(kind) as played:
        replay(recording).read("/proc/driver/nvidia/version")
    assert type(played.value) is type(live.value)
    assert played.value.errno == (number or errno.EIO)
    assert played.value.filename == "/proc/driver/nvidia/version"


def test_limits_and_variables_are_not_part_of_the_key() -> None:
    assert key("read", "/etc/os-release", 100) == "read /etc/os-release"
    assert key("measure", "/cache", 0.5) == "measure /cache"
    assert key("run", ["/usr/bin/gcc", "-v"], 3, {"A": "1"}) == "run /usr/bin/gcc -v"
    assert key("inside", "/usr/bin/python3", 2) == "inside /usr/bin/python3"
    assert key("nvml", 2) == "nvml"
    assert key("access", "/tmp", "w") == "access /tmp w"


def test_environ_is_filtered_in_the_recording_and_in_what_probes_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    recording = RecordingHost(LocalHost(), lambda name: name.startswith("CUDA_"))
    assert recording.environ["CUDA_HOME"] == "/opt/cuda"
    assert "SECRET_TOKEN" not in recording.environ
    assert "hunter2" not in to_text(recording.answers)
    assert replay(recording).environ["CUDA_HOME"] == "/opt/cuda"


@pytest.mark.posix
def test_a_recording_is_one_line_a_question_in_order(tmp_path: Path) -> None:
    recording = RecordingHost(LocalHost(), keep_all)
    recording.access(str(tmp_path), "r")
    recording.try_read(os.fspath(tmp_path / "none"))
    first, *lines, last = to_text(recording.answers).splitlines()
    assert (first, last) == ("{", "}")
    assert lines == [
        f' "access {tmp_path} r": {{"answer": true}},',
        f' "read {tmp_path / "none"}": {{"error": "ENOENT"}}',
    ]


def test_questions_without_a_recorded_answer() -> None:
    host = RecordedHost({})
    with pytest.raises(FileNotFoundError):
        host.read("/etc/os-release")
    with pytest.raises(FileNotFoundError):
        host.list("/proc")
    assert host.try_stat("/etc") is None
    assert not host.access("/etc", "r")
    assert host.real("/etc") == "/etc"
    assert host.environ == {}
    assert host.run(["/usr/bin/gcc"], 1) == Ran(outcome="missing")
    assert host.nvml(1) == {"outcome": "missing"}
    assert host.inside("/usr/bin/python3", 1) == {"outcome": "missing"}
