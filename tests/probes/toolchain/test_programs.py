"""What PATH gives, what may be run, and what a wrapper script starts."""

from __future__ import annotations

import pytest

from attn_doctor.host.recorded import RecordedHost
from attn_doctor.probes.toolchain import programs
from tests.probes.answers import machine


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ('#!/bin/sh\nexec /usr/local/cuda-13.0/bin/nvcc "$@"\n', "/usr/local/cuda-13.0/bin/nvcc"),
        ('#!/bin/bash\n# was /old/bin/nvcc\nccache "/opt/cuda/bin/nvcc" $*', "/opt/cuda/bin/nvcc"),
        ("#!/bin/sh\nexec $CUDA/bin/nvcc\nexec ${HERE}/bin/nvcc", ""),
        ("#!/bin/sh\nexec /opt/cuda/bin/nvcc.profile /opt/nvcc/run", ""),
        ("#!/bin/sh\nexec /bin/nvcc", ""),
        ("\x7fELF exec /opt/cuda/bin/nvcc", None),
        ("", None),
    ],
)
def test_wrapper_scripts(text: str, target: str | None) -> None:
    assert programs.wrapped(machine({"/bin/nvcc": text}), "/bin/nvcc", "nvcc") == target


def test_every_program_on_path_once() -> None:
    files = {"/a/cc": "", "/home/me/project/b/cc": "", "/c/cc": ""}
    host = machine(files, environ={"PATH": "/a::/nowhere:b:/a:/c"})
    assert list(programs.on_path(host, "cc")) == ["/a/cc", "/home/me/project/b/cc", "/c/cc"]


def test_files_without_execute_permission_are_not_programs() -> None:
    host = machine({"/a/cc": "", "/b/cc": ""}, environ={"PATH": "/a:/b"})
    answers = {**host.answers, "access /a/cc x": {"answer": False}}
    assert programs.first_on_path(RecordedHost(answers), "cc") == "/b/cc"


def test_names_are_looked_for_and_paths_taken() -> None:
    host = machine({"/a/cc": "", "/home/me/project/b/cc": ""}, environ={"PATH": "/a"})
    assert programs.named(host, "cc") == "/a/cc"
    assert programs.named(host, "b/cc") == "/home/me/project/b/cc"
    assert programs.named(host, "/b/cc") == programs.named(host, "") == ""


def test_trust() -> None:
    files = {"/usr/bin/gcc": "", "/usr/local/bin/gcc": "", "/opt/gcc/bin/gcc": ""}
    host = machine(files, foreign=("/usr/local/bin/gcc",))
    assert programs.trusted(host, "/usr/bin/gcc")
    assert not programs.trusted(host, "/usr/local/bin/gcc")
    assert not programs.trusted(host, "/opt/gcc/bin/gcc")
    for path in ("/usr/bin", "/usr/bin/gcc"):
        kind = "dir" if path == "/usr/bin" else "file"
        open_to_all = {f"stat {path}": {"answer": {"kind": kind, "uid": 0, "mode": 0o777}}}
        answers = RecordedHost({**host.answers, **open_to_all})
        assert not programs.trusted(answers, "/usr/bin/gcc")
