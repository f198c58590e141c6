"""Which compilers and build tools a build would start, and which of them are run to ask."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attn_doctor.facts import Program
from attn_doctor.host import Host
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, RecordingHost
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.toolchain import compilers
from tests.probes.answers import machine, site_of

ASK = "-dumpfullversion -dumpversion"
NONE = Program(path="", family="", source="")
#: gcc as Debian installs it: links to versioned programs.
LINKS = {
    "/usr/bin/gcc": "/usr/bin/x86_64-linux-gnu-gcc-12",
    "/usr/bin/g++": "/usr/bin/x86_64-linux-gnu-g++-12",
}
RUNS = {f"/usr/bin/gcc {ASK}": "12.2.0\n"}
PATH = {"PATH": "/home/me/bin:/usr/local/bin:/usr/bin"}


def debian(files: dict[str, str] | None = None, **environ: str) -> RecordedHost:
    there = dict.fromkeys(LINKS.values(), "") | (files or {})
    return machine(there, links=LINKS, runs=RUNS, environ=PATH | environ)


def read(host: Host, site: Site | None = None) -> tuple[dict[str, Program], dict[str, str]]:
    gaps = Gaps()
    site = site or Site(folders=(), distributions=Distributions(host, ()), prefix="/env")
    return compilers.read(host, site, gaps), gaps.reasons


def test_nothing_is_nothing() -> None:
    found, gaps = read(machine())
    assert found == dict.fromkeys(("cc", "cxx", "cl", "ninja", "cmake"), NONE)
    assert gaps == {}


def test_gcc_of_the_system_is_run_once_for_both_languages() -> None:
    recording = RecordingHost(debian(), lambda name: True)
    found, gaps = read(recording)
    gcc = Program(path="/usr/bin/gcc", version="12.2.0", family="gcc", source="known place")
    assert found["cc"] == gcc
    assert found["cxx"] == Program(
        path="/usr/bin/g++", version="12.2.0", family="gcc", source="known place"
    )
    assert gaps == {}
    asked = [question for question in recording.answers if question.startswith("run ")]
    assert asked == [f"run /usr/bin/gcc {ASK}"]


def test_a_gcc_of_another_version_is_run_separately() -> None:
    files = {"/usr/bin/gcc-13": "", "/usr/bin/g++-12": ""}
    links = {"/usr/bin/gcc": "/usr/bin/gcc-13", "/usr/bin/g++": "/usr/bin/g++-12"}
    runs = {f"/usr/bin/gcc {ASK}": "13.3.0\n", f"/usr/bin/g++ {ASK}": "12.3.0\n"}
    found, _ = read(machine(files, links=links, runs=runs, environ=PATH))
    assert (found["cc"].version, found["cxx"].version) == ("13.3.0", "12.3.0")


def test_without_path_python_searches_the_usual_folders() -> None:
    found, _ = read(machine({"/usr/bin/gcc": ""}, runs=RUNS))
    assert found["cc"].path == "/usr/bin/gcc"


def test_a_compiler_outside_path() -> None:
    found, gaps = read(machine({"/usr/bin/gcc": ""}, runs=RUNS, environ={"PATH": "/somewhere"}))
    assert found["cc"] == Program(path="", family="", source="not on PATH")
    assert found["cxx"] == NONE
    assert gaps == {}


@pytest.mark.posix
@pytest.mark.skipif(sys.platform == "darwin", reason="clang++ and c++ come first on macOS")
def test_a_gcc_outside_system_folders_is_described_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gcc", "g++", "ninja", "cmake"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho 99.9\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    found, gaps = read(LocalHost())
    assert not (tmp_path / "ran").exists()
    for fact, name in (("cc", "gcc"), ("cxx", "g++"), ("ninja", "ninja"), ("cmake", "cmake")):
        path = f"{tmp_path}/{name}"
        family = "gcc" if fact in ("cc", "cxx") else ""
        assert found[fact] == Program(path=path, family=family, source="PATH")
        assert path in gaps[f"{fact}.version"]


def test_programs_of_a_user_in_system_folders_are_not_run() -> None:
    files = {"/usr/local/bin/gcc": ""}
    runs = {f"/usr/local/bin/gcc {ASK}": "99.0.0\n"}
    assert read(machine(files, runs=runs, environ=PATH))[0]["cc"].version == "99.0.0"
    host = machine(files, runs=runs, environ=PATH, foreign=("/usr/local/bin/gcc",))
    found, gaps = read(host)
    assert (found["cc"].path, found["cc"].version) == ("/usr/local/bin/gcc", None)
    assert "is not run" in gaps["cc.version"]


def test_the_version_of_condas_compiler_is_in_its_folders() -> None:
    name = "/conda/bin/x86_64-conda-linux-gnu-"
    parts = "/conda/lib/gcc/x86_64-conda-linux-gnu/13.3.0/cc1"
    files = {name + "cc": "", name + "c++": "", parts: ""}
    found, gaps = read(debian(files, CC=name + "cc", CXX=name + "c++"))
    assert found["cc"] == Program(path=name + "cc", version="13.3.0", family="gcc", source="CC")
    assert found["cxx"] == Program(path=name + "c++", version="13.3.0", family="gcc", source="CXX")
    assert gaps == {}


def test_two_versions_in_one_folder_are_ambiguous() -> None:
    parts = {f"/tools/lib/gcc/x86_64-pc-linux-gnu/{one}/cc1": "" for one in ("12", "13.3.0")}
    found, gaps = read(debian({"/tools/bin/gcc": "", **parts}, CC="/tools/bin/gcc"))
    assert found["cc"].version is None
    assert "/tools/bin/gcc is not run" in gaps["cc.version"]


@pytest.mark.parametrize(
    ("value", "path", "source"),
    [
        ("gcc", "/usr/bin/gcc", "CC"),
        ("/usr/bin/gcc", "/usr/bin/gcc", "CC"),
        ("/nope/gcc", "", "CC (missing)"),
        ("clang-99", "", "CC (missing)"),
        ("", "", "CC (missing)"),
        ("ccache gcc", "/usr/bin/gcc", "CC (with arguments)"),
        ("gcc -m64", "/usr/bin/gcc", "CC (with arguments)"),
    ],
)
def test_cc(value: str, path: str, source: str) -> None:
    found, gaps = read(debian({"/usr/bin/ccache": ""}, CC=value))
    assert (found["cc"].path, found["cc"].source) == (path, source)
    assert (found["cc"].version == "12.2.0") == bool(path)
    assert "cc.version" not in gaps


def test_clang_is_used_without_gcc() -> None:
    files = {"/usr/lib/llvm-18/bin/clang": "", "/usr/bin/c++": ""}
    links = {"/usr/bin/clang": "/usr/lib/llvm-18/bin/clang"}
    runs = {"/usr/bin/clang -dumpversion": "18.1.3\n"}
    found, gaps = read(machine(files, links=links, runs=runs, environ=PATH))
    assert found["cc"] == Program(
        path="/usr/bin/clang", version="18.1.3", family="clang", source="known place"
    )
    assert (found["cxx"].path, found["cxx"].family) == ("/usr/bin/c++", "")
    assert gaps["cxx.version"] == "/usr/bin/c++ does not exist"


def test_a_toolset_of_red_hat_belongs_to_the_system() -> None:
    path = "/opt/rh/gcc-toolset-13/root/usr/bin/gcc"
    runs = {f"{path} {ASK}": "13.2.1\n"}
    environ = {"PATH": "/opt/rh/gcc-toolset-13/root/usr/bin:/usr/bin"}
    found, _ = read(machine({path: ""}, runs=runs, environ=environ))
    assert (found["cc"].path, found["cc"].version, found["cc"].source) == (path, "13.2.1", "PATH")


def test_a_compiler_that_hangs_or_fails_is_a_gap() -> None:
    command = f"run /usr/bin/gcc {ASK}"
    host = debian()
    hangs = {command: {"answer": {"outcome": "timeout"}}}
    found, gaps = read(RecordedHost({**host.answers, **hangs}))
    assert found["cc"].version is None
    assert gaps["cc.version"] == "/usr/bin/gcc did not answer within 2 s"
    mute = {command: {"answer": {"outcome": "done", "code": 0, "out": "no number\n"}}}
    _, gaps = read(RecordedHost({**host.answers, **mute}))
    assert gaps["cc.version"] == "/usr/bin/gcc prints no version"


def test_nothing_is_run_on_macos() -> None:
    runs = {"/usr/bin/clang -dumpversion": "17.0.0\n"}
    files = {"/usr/bin/clang": "", "/usr/bin/clang++": ""}
    found, gaps = read(machine(files, os="macos", runs=runs))
    assert (found["cc"].path, found["cc"].family) == ("/usr/bin/clang", "clang")
    assert (found["cxx"].path, found["cc"].version) == ("/usr/bin/clang++", None)
    assert "installer" in gaps["cc.version"]


# Build tools

WHEELS = {
    "/env/lib/ninja-1.13.0.dist-info/METADATA": "",
    "/env/lib/cmake-4.1.2.dist-info/METADATA": "",
    "/env/bin/ninja": "#!/env/bin/python\n",
    "/env/bin/cmake": "#!/env/bin/python\n",
}


def test_the_wheels_of_an_active_environment() -> None:
    host = machine(WHEELS, environ={"PATH": "/env/bin:/usr/bin"})
    found, gaps = read(host, site_of(host, "/env/lib"))
    assert found["ninja"] == Program(
        path="/env/bin/ninja", version="1.13.0", family="", source="wheel"
    )
    assert (found["cmake"].version, found["cmake"].source) == ("4.1.2", "wheel")
    assert gaps == {}


def test_the_wheels_of_an_environment_that_is_not_active() -> None:
    host = machine(WHEELS, environ=PATH)
    found, _ = read(host, site_of(host, "/env/lib"))
    assert found["ninja"] == Program(
        path="/env/bin/ninja", version="1.13.0", family="", source="wheel (not on PATH)"
    )


def test_path_precedes_the_wheel() -> None:
    runs = {"/usr/bin/ninja --version": "1.11.1\n"}
    host = machine(WHEELS | {"/usr/bin/ninja": ""}, runs=runs, environ=PATH)
    found, _ = read(host, site_of(host, "/env/lib"))
    assert found["ninja"] == Program(
        path="/usr/bin/ninja", version="1.11.1", family="", source="known place"
    )


def test_a_wheel_without_its_script_is_not_a_program() -> None:
    files = {path: text for path, text in WHEELS.items() if "/bin/" not in path}
    host = machine(files)
    assert read(host, site_of(host, "/env/lib"))[0]["ninja"] == NONE


def test_cmake_is_run_only_without_a_version_in_a_folder() -> None:
    runs = {"/usr/bin/cmake --version": "cmake version 3.26.5\n\nmaintained by Kitware\n"}
    files = {"/usr/bin/cmake": "", "/usr/share/cmake/Modules/x.cmake": ""}
    assert read(machine(files, runs=runs))[0]["cmake"].version == "3.26.5"
    files |= {"/usr/share/cmake-3.25/Modules/x.cmake": ""}
    assert read(machine(files, runs=runs))[0]["cmake"].version == "3.25"


# Windows

STUDIO = r"C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools\VC\Tools\MSVC"
CL = r"bin\Hostx64\x64\cl.exe"


def test_the_newest_compiler_of_visual_studio() -> None:
    files = {rf"{STUDIO}\{version}\{CL}": "" for version in ("14.9.1", "14.44.35207")}
    found, gaps = read(machine(files, os="windows"))
    assert found["cl"] == Program(
        path=rf"{STUDIO}\14.44.35207\{CL}",
        version="14.44.35207",
        family="msvc",
        source="known place",
    )
    # Inductor and Triton look for it on PATH.
    assert found["cc"] == found["cxx"] == NONE
    assert gaps == {}


def test_visual_studio_in_a_developer_prompt() -> None:
    path = rf"{STUDIO}\14.44.35207\{CL}"
    host = machine({path: ""}, os="windows", environ={"PATH": path.rpartition("\\")[0]})
    found, _ = read(host)
    expected = Program(path=path, version="14.44.35207", family="msvc", source="PATH")
    assert found["cl"] == expected
    assert found["cc"] == found["cxx"] == expected


def test_triton_for_windows_contains_a_compiler() -> None:
    tcc = r"C:\env\Lib\site-packages\triton\runtime\tcc\tcc.exe"
    files = {tcc: "", rf"{STUDIO}\14.44.35207\{CL}": ""}
    host = machine(files, os="windows")
    found, gaps = read(host, site_of(host, r"C:\env\Lib\site-packages", prefix=r"C:\env"))
    assert (found["cc"].path, found["cc"].source) == (tcc, "wheel")
    assert "cc.version" in gaps
