"""Which variables a chosen toolkit needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attn_doctor.fixes.cuda_home.candidate import Candidate, Compiler
from attn_doctor.fixes.cuda_home.exports import apply, needed
from attn_doctor.host.local import LocalHost
from attn_doctor.shell.exports import Exports, eval_lines
from attn_doctor.shell.quote import SHELLS
from tests.fixes.cuda_home.trees import program


def toolkit(folder: Path) -> Candidate:
    program(folder / "bin" / "nvcc", "#!/bin/true\n")
    return Candidate(root=str(folder), source="PATH", version="13.0")


@pytest.mark.posix
def test_path_is_left_alone_where_it_leads_to_the_same_nvcc(tmp_path: Path) -> None:
    chosen = toolkit(tmp_path / "cuda")
    host = LocalHost()
    bin = f"{chosen.root}/bin"
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "nvcc").symlink_to(f"{bin}/nvcc")
    program(tmp_path / "scripts" / "nvcc", f'#!/bin/sh\nexec {bin}/nvcc "$@"\n')
    other = program(tmp_path / "other" / "nvcc", "#!/bin/true\n").parent
    for path, expected in (
        ("/usr/bin", bin),
        (f"/usr/bin:{bin}", "" if not shutil.which("nvcc", path="/usr/bin") else bin),
        (f"{tmp_path}/links:/bin", ""),
        (f"{tmp_path}/scripts:/bin", ""),
        (f"{other}:{bin}", bin),
    ):
        found = needed(host, chosen, {"PATH": path})
        assert found.path == expected, path
        assert found.variables == {"CUDA_HOME": chosen.root, "CUDA_PATH": chosen.root}


def test_host_compilers_are_set_only_where_they_have_to_be(tmp_path: Path) -> None:
    chosen = toolkit(tmp_path / "cuda")
    named = Candidate(
        root=chosen.root, source="", compiler=Compiler(cc="/usr/bin/gcc-12", cxx="/usr/bin/g++-12")
    )
    found = needed(LocalHost(), named, {"PATH": "/usr/bin"}).variables
    assert found["CC"] == "/usr/bin/gcc-12"
    assert found["CXX"] == "/usr/bin/g++-12"


def test_ld_library_path_is_never_set(tmp_path: Path) -> None:
    found = needed(LocalHost(), toolkit(tmp_path / "cuda"), {"PATH": "/usr/bin"})
    for shell in SHELLS:
        assert not any("LD_LIBRARY_PATH" in line for line in eval_lines(found, shell))


def test_the_environment_afterwards() -> None:
    exports = Exports(variables={"CUDA_HOME": "/a"}, path="/a/bin")
    assert apply(exports, {"PATH": "/b", "X": "1"}) == {
        "PATH": "/a/bin:/b", "X": "1", "CUDA_HOME": "/a",
    }  # fmt: skip
    assert apply(exports, {})["PATH"] == "/a/bin"
