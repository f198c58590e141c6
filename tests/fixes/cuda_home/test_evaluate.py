"""Toolkits as real folders with real small programs, evaluated by really running them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from attn_doctor.facts import Build, Facts, Gpu, Program, Toolkit, Torch
from attn_doctor.fixes.cuda_home import trial_build
from attn_doctor.fixes.cuda_home.candidate import Candidate, Choice
from attn_doctor.fixes.cuda_home.evaluate import choose, wanted_archs
from attn_doctor.fixes.cuda_home.exports import needed
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.toolchain import cuda_root
from tests.fixes.cuda_home.trees import make, program

pytestmark = pytest.mark.gcc


def toolkit(root: Path, version: str, *, in_use: bool = False) -> Toolkit:
    host = LocalHost()
    return Toolkit(
        root=str(root),
        version=version,
        source="PATH",
        nvcc=cuda_root.tool(host, str(root), "nvcc"),
        missing_components=cuda_root.missing_components(host, str(root)),
        in_use=in_use,
    )


def machine(
    *toolkits: Toolkit,
    cuda: str | None = "13.0",
    sms: tuple[int, ...] = (90,),
    torch_path: str = "",
) -> Facts:
    return Facts(
        toolkits=toolkits,
        gpus=tuple(Gpu(sm=sm, visible=True) for sm in sms),
        cxx=Program(path="/usr/bin/g++", version="12.2.0", family="gcc"),
        torch=Torch(installed=True, version="2.11.0", build="cuda", cuda=cuda, path=torch_path),
    )


def evaluated(facts: Facts, **variables: str) -> Choice:
    environ = {"PATH": os.environ["PATH"], **variables}
    return choose(LocalHost(), facts, environ, lambda _: None)


def of(choice: Choice, root: Path) -> Candidate:
    return next(one for one in choice.candidates if one.root == str(root))


def test_the_release_of_torch_is_chosen_and_the_rest_explained(tmp_path: Path) -> None:
    old = make(tmp_path / "cuda-12.8", "12.8")
    exact = make(tmp_path / "cuda-13.0", "13.0")
    newer = make(tmp_path / "cuda-13.5", "13.5")
    found = evaluated(
        machine(toolkit(old, "12.8", in_use=True), toolkit(newer, "13.5"), toolkit(exact, "13.0"))
    )
    assert found.chosen == of(found, exact)
    assert found.chosen.nvcc == "13.0.99"
    assert found.candidates[0] == found.chosen
    assert of(found, newer).verdict == "fits"
    assert "torch's own release" in of(found, newer).reasons[0]
    assert of(found, old).reasons == (
        "torch is built for CUDA 13.0 and refuses another major version",
    )


def test_another_minor_version_serves_where_there_is_no_better(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "13.5")
    found = evaluated(machine(toolkit(root, "13.5"))).chosen
    assert found is not None
    assert found.matches
    assert not found.exact


def test_a_toolkit_without_headers_is_rejected_without_being_run(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "13.0", without=("include/cublas_v2.h",))
    program(root / "bin" / "nvcc", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    found = evaluated(machine(toolkit(root, "13.0")))
    assert found.chosen is None
    assert found.candidates[0].reasons == ("it lacks cublas",)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("archs", "sm", "side"), [("75 80 90", 120, "too old"), ("75 80 90", 70, "too new")]
)
def test_an_nvcc_that_does_not_know_the_gpu(tmp_path: Path, archs: str, sm: int, side: str) -> None:
    root = make(tmp_path / "cuda", "13.0", archs=archs)
    found = evaluated(machine(toolkit(root, "13.0"), sms=(sm,)))
    assert found.candidates[0].reasons == (f"its nvcc is {side} for sm_{sm}",)


def test_the_next_best_is_taken_when_the_best_does_not_compile(tmp_path: Path) -> None:
    trouble = (
        "echo 'ptxas k.ptx, line 9; fatal : Unsupported .version 9.5; current version is"
        " 9.0' >&2; exit 255"
    )
    mixed = make(tmp_path / "mixed", "13.0", trouble=trouble)
    whole = make(tmp_path / "whole", "13.1")
    found = evaluated(machine(toolkit(mixed, "13.0"), toolkit(whole, "13.1")))
    assert found.chosen == of(found, whole)
    assert "different releases" in of(found, mixed).reasons[0]


def test_an_nvcc_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_build, "ASK", 0.3)
    root = make(tmp_path / "cuda", "13.0")
    program(root / "bin" / "nvcc", "#!/bin/sh\nsleep 60\n")
    found = evaluated(machine(toolkit(root, "13.0"))).candidates[0]
    assert found.nvcc == "fails"
    assert "no answer within" in found.reasons[0]


def test_an_nvcc_of_another_release_than_its_headers(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "12.8")
    found = evaluated(machine(toolkit(root, "13.0"))).candidates[0]
    assert found.reasons == ("its nvcc is 12.8, torch needs CUDA 13.0",)


def test_a_missing_library_is_found_by_linking(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "13.0")
    (root / "lib64" / "libcudart.so").write_text("no library")
    found = evaluated(machine(toolkit(root, "13.0"))).candidates[0]
    assert found.verdict == "rejected"
    assert "a trial build fails" in found.reasons[0]


def test_a_gcc_that_nvcc_does_not_accept(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "13.0", newest_gcc=3)
    found = evaluated(machine(toolkit(root, "13.0"))).candidates[0]
    assert found.reasons == ("its nvcc accepts gcc up to 3, and this one is newer",)


def test_an_older_gcc_on_the_users_path_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "cuda", "13.0", newest_gcc=7)
    bin = tmp_path / "bin"
    for name in ("gcc", "g++"):
        real = shutil.which(name)
        old = f'#!/bin/sh\n[ "$1" = -dumpversion ] && echo 7 && exit\nexec {real} "$@"\n'
        program(bin / f"{name}-7", old)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    found = evaluated(machine(toolkit(root, "13.0"))).chosen
    assert found is not None
    assert found.compiler.cc == str(bin / "gcc-7")
    assert found.compiler.cxx == str(bin / "g++-7")


def test_torch_refuses_a_compiler_that_nvcc_would_take(tmp_path: Path) -> None:
    utils = tmp_path / "torch" / "utils"
    utils.mkdir(parents=True)
    (utils / "cpp_extension.py").write_text(
        "MINIMUM_GCC_VERSION = (6, 0, 0)\n"
        "CUDA_GCC_VERSIONS: VersionMap = {'13.0': (MINIMUM_GCC_VERSION, (12, 0))}\n"
    )
    root = make(tmp_path / "cuda", "13.0")
    facts = machine(toolkit(root, "13.0"), torch_path=str(tmp_path / "torch"))
    found = evaluated(facts, PATH="/usr/bin").candidates[0]
    if found.verdict == "chosen":  # this machine has an older gcc beside the usual one
        assert found.compiler.cxx
    else:
        assert found.reasons == (
            "torch refuses /usr/bin/g++ 12.2.0 with CUDA 13.0: it accepts those before 12.0",
        )


def test_headers_where_conda_keeps_them_are_shown_to_the_compiler(tmp_path: Path) -> None:
    root = make(tmp_path / "conda", "13.0")
    inside = root / "targets" / f"{os.uname().machine}-linux"
    inside.mkdir(parents=True)
    (root / "include").rename(inside / "include")
    found = evaluated(machine(toolkit(root, "13.0"))).chosen
    assert found is not None
    host = LocalHost()
    headers = str(inside / "include")
    assert needed(host, found, {"PATH": "/bin"}).variables["CPATH"] == headers
    assert needed(host, found, {"CPATH": "/x"}).variables["CPATH"] == f"{headers}:/x"
    assert "CPATH" not in needed(host, found, {"CPATH": f"/x:{headers}"}).variables


def test_what_torch_takes_now_is_evaluated_though_it_is_no_toolkit(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda-13.0", "13.0")
    facts = Facts(
        toolkits=(toolkit(root, "13.0"),),
        gpus=(),
        build=Build(
            cuda_home="/usr/local",
            cuda_home_source="nvcc on PATH",
            nvcc="",
            missing_components=("nvcc",),
        ),
        torch=Torch(installed=True, build="cuda", cuda="13.0"),
    )
    found = evaluated(facts)
    assert [one.root for one in found.candidates] == [str(root), "/usr/local"]
    assert found.candidates[1].reasons == ("it has no nvcc",)
    assert "no GPU is visible" in found.notes[0]


def test_without_a_cuda_torch_the_newest_is_chosen_and_that_is_said(tmp_path: Path) -> None:
    old, new = make(tmp_path / "a", "12.8"), make(tmp_path / "b", "13.0")
    facts = Facts(
        toolkits=(toolkit(new, "13.0"), toolkit(old, "12.8")),
        gpus=(Gpu(sm=90),),
        torch=Torch(installed=False),
    )
    found = evaluated(facts)
    assert found.chosen is not None
    assert found.chosen.root == str(new)
    assert found.notes == ("torch is not installed here, so no toolkit was compared with its CUDA",)


def test_variables_that_win_over_cuda_home_are_named(tmp_path: Path) -> None:
    root = make(tmp_path / "cuda", "13.0")
    facts = machine(toolkit(root, "13.0"))
    inside = evaluated(facts, CUDACXX=str(root / "bin" / "nvcc"))
    assert inside.notes == ()
    outside = evaluated(facts, CUDACXX="/opt/other/bin/nvcc")
    assert outside.notes[0].startswith(
        "CUDACXX=/opt/other/bin/nvcc overrides CUDA_HOME in CMake builds"
    )


@pytest.mark.parametrize(
    ("listed", "expected"),
    [("8.0;8.6 9.0a+PTX", (80, 86, 90)), ("12.0f", (120,)), ("Ampere", (89,)), ("", (89,))],
)
def test_architectures_to_build_for(listed: str, expected: tuple[int, ...]) -> None:
    environ = {"TORCH_CUDA_ARCH_LIST": listed} if listed else {}
    assert wanted_archs(machine(sms=(89,)), environ)[0] == expected


def test_hidden_gpus_do_not_count() -> None:
    facts = Facts(gpus=(Gpu(sm=90, visible=False), Gpu(sm=80, visible=True)))
    assert wanted_archs(facts, {})[0] == (80,)
