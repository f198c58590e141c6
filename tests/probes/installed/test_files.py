"""Files of a package that are gone, cut short or unreadable. Each is really imported too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import files
from tests.binaries.sources import library

SOURCES = {
    "diffusers/__init__.py": "from diffusers.models import part\n",
    "diffusers/models/__init__.py": "",
    "diffusers/models/part.py": "first = 1\nsecond = [\n    2,\n]\n",
    "diffusers/models/tests/case.py": "wrong = 1\n",
    "diffusers/pipelines/some/deep.py": "deep = 1\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package, and the RECORD that an installer writes."""
    folder = tmp_path / "site"
    info = folder / "diffusers-0.42.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: diffusers\nVersion: 0.42.1\n")
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    library(folder / "diffusers" / "_C.so", "int one() { return 1; }")
    names = [*SOURCES, "diffusers/_C.so"]
    lines = [f"{name},sha256=x,{(folder / name).stat().st_size}" for name in names]
    record = [*lines, "diffusers-0.42.1.dist-info/RECORD,,", "../../../bin/tool,sha256=x,90", ""]
    (info / "RECORD").write_text("\n".join(record))
    return folder


def found(site: Path) -> list[tuple[str | None, str | None, int | None]]:
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    listed = files.read(LocalHost(), where, Gaps())["incomplete_packages"]
    assert all((one.package, one.version) == ("diffusers", "0.42.1") for one in listed)
    return [(one.file, one.reason, one.files) for one in listed]


def imports(site: Path) -> bool:
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import diffusers"
    return not subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, check=False
    ).returncode


def test_all_there(site: Path) -> None:
    assert found(site) == []
    assert imports(site)


def test_metadata_of_a_version_that_was_replaced(site: Path) -> None:
    old = site / "diffusers-0.41.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Name: diffusers\nVersion: 0.41.0\n")
    record = (site / "diffusers-0.42.1.dist-info/RECORD").read_text()
    (old / "RECORD").write_text(f"diffusers/models/old.py,sha256=x,90\n{record}")
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    assert files.read(LocalHost(), where, Gaps())["incomplete_packages"] == ()
    (site / "diffusers/models/part.py").unlink()
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    (gone,) = files.read(LocalHost(), where, Gaps())["incomplete_packages"]
    assert (gone.file, gone.reason) == ("diffusers/models/part.py", "gone")


def test_a_source_is_gone(site: Path) -> None:
    (site / "diffusers/models/part.py").unlink()
    assert found(site) == [("diffusers/models/part.py", "gone", 1)]
    assert not imports(site)


def test_a_source_ends_within_a_line(site: Path) -> None:
    path = site / "diffusers/models/part.py"
    path.write_text(path.read_text()[:18])
    assert found(site) == [("diffusers/models/part.py", "cut short", 1)]
    assert not imports(site)


def test_a_source_is_empty_and_another_gone(site: Path) -> None:
    (site / "diffusers/__init__.py").write_text("")
    (site / "diffusers/models/part.py").unlink()
    assert found(site) == [("diffusers/models/part.py", "gone", 2)]


def test_a_user_shortened_a_source(site: Path) -> None:
    (site / "diffusers/models/part.py").write_text("first = 1\n")
    assert found(site) == []
    assert imports(site)


def test_a_compiled_module_is_cut_short_and_not_only_stripped(site: Path) -> None:
    path = site / "diffusers" / "_C.so"
    subprocess.run(["strip", path], check=True)
    assert found(site) == []
    path.write_bytes(path.read_bytes()[:600])
    assert found(site) == [("diffusers/_C.so", "cut short", 1)]


def test_what_an_import_does_not_execute_may_be_gone(site: Path) -> None:
    (site / "diffusers/models/tests/case.py").unlink()
    (site / "diffusers/pipelines/some/deep.py").unlink()
    assert found(site) == []
    assert imports(site)


def test_a_record_of_a_hostile_package(site: Path) -> None:
    record = site / "diffusers-0.42.1.dist-info" / "RECORD"
    lines = ["/etc/gone.py,x,5", "../gone.py,x,5", "a\0b.py,x,5", f"gone.py,x,{'9' * 5000}", "x.py"]
    record.write_text("\n".join(lines))
    assert found(site) == []


def test_without_record_only_the_first_file_is_looked_for(site: Path) -> None:
    (site / "diffusers-0.42.1.dist-info/RECORD").unlink()
    (site / "diffusers/models/part.py").unlink()
    assert found(site) == []
    (site / "diffusers/__init__.py").unlink()
    assert found(site) == [("diffusers/__init__.py", "gone", 1)]
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    assert files.read(LocalHost(), where, Gaps())["unrecorded_packages"] == ("diffusers",)
    assert imports(site)  # an empty package


def test_a_folder_of_numpy_without_metadata(site: Path) -> None:
    (site / "numpy/__pycache__").mkdir(parents=True)
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    (one,) = files.read(LocalHost(), where, Gaps())["incomplete_packages"]
    assert (one.package, one.version, one.file) == ("numpy", "", "numpy/__init__.py")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\0\0\0\0" + b"first = 1\n" * 9, "not text"),
        (b"\xff\xfe" + b"first = 1\n" * 9, "not text"),
        (b"<<<<<<< HEAD\n" + b"first = 1\n" * 9, "with a conflict of Git"),
    ],
)
def test_a_source_that_cannot_be_python(site: Path, text: bytes, reason: str) -> None:
    (site / "diffusers/models/part.py").write_bytes(text)
    assert found(site) == [("diffusers/models/part.py", reason, 1)]
    assert not imports(site)


@pytest.mark.parametrize(
    ("statement", "damaged"),
    [
        ("from .other import (\n    one,  # a comment\n    two as three,\n)", False),
        ("from . import other", False),
        ("from ..models import part, other", False),
        ("from .other import four", True),
        ("from .gone import one", True),
        ("from ..models import gone", True),
        ("try:\n    from .gone import one\nexcept ImportError:\n    pass", False),
        ("from .compiled import any_name", False),
        ("from .dynamic import any_name", False),
    ],
)
def test_a_source_of_another_release(site: Path, statement: str, damaged: bool) -> None:
    models = site / "diffusers/models"
    (models / "other.py").write_text("one = two = 1\n")
    (models / "dynamic.py").write_text("def __getattr__(name):\n    return 1\n")
    (models / "compiled.abi3.so").write_text("")
    path = models / "part.py"
    path.write_text(f"{path.read_text()}{statement}\n")
    reason = "with an import of what is not there"
    assert found(site) == ([("diffusers/models/part.py", reason, 1)] if damaged else [])
    if "compiled" not in statement:
        assert imports(site) is not damaged


def test_an_edited_source_is_not_damaged(site: Path) -> None:
    path = site / "diffusers/models/part.py"
    path.write_text(path.read_text() + "third = 3")
    assert found(site) == []


def test_an_extension_for_another_processor(site: Path) -> None:
    path = site / "diffusers/_C.so"
    data = bytearray(path.read_bytes())
    own = int.from_bytes(data[18:20], "little")
    data[18:20] = {62: 183, 183: 62}.get(own, own).to_bytes(2, "little")
    path.write_bytes(data)
    assert found(site) == [("diffusers/_C.so", "for another processor", 1)]


@pytest.mark.parametrize("name", ["diffusers/models/part.py", "diffusers/models", "", "METADATA"])
def test_a_file_that_this_user_may_not_read(
    site: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of packages itself too. Root may read all, so the answers are changed."""
    path = site / "diffusers-0.42.1.dist-info" / name if name == "METADATA" else site / name
    denied = str(path)
    if path.is_file():
        path.chmod(0o600)  # a file of all readers is not asked for

    class Denying(LocalHost):
        def ask(self, question: str, *arguments: object) -> object:
            if question in ("list", "head") and arguments[0] == denied:
                raise PermissionError(13, "Permission denied", denied)
            return super().ask(question, *arguments)

    allowed = os.access
    monkeypatch.setattr("os.access", lambda asked, mode: asked != denied and allowed(asked, mode))
    gaps = Gaps()
    where = scan(Denying(), (str(site),), str(site), gaps, python="3.12.3")
    said = files.read(Denying(), where, gaps)
    first = site / "diffusers/models/__init__.py" if name == "diffusers/models" else path
    assert said["unreadable_files"] == (str(first),)
    assert not said["incomplete_packages"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at files of other systems on Linux")
@pytest.mark.parametrize("macos", [False, True])
def test_an_extension_for_another_system(site: Path, macos: bool) -> None:
    """Wheels that `--platform`, or a copy of a folder, brings to Linux."""
    path = site / "diffusers/_C.so"
    record = site / "diffusers-0.42.1.dist-info" / "RECORD"
    if macos:
        path.write_bytes(b"\xcf\xfa\xed\xfe" + path.read_bytes()[4:])
    else:
        record.write_text(record.read_text().replace("_C.so", "_C.cp312-win_amd64.pyd"))
        path.rename(site / "diffusers/_C.cp312-win_amd64.pyd")
    name = "_C.so" if macos else "_C.cp312-win_amd64.pyd"
    assert found(site) == [(f"diffusers/{name}", "for another system", 1)]


def test_the_file_that_cuda_wheels_share(site: Path) -> None:
    """`uv pip uninstall` of one of them removes it."""
    info = site / "nvidia_cublas-13.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: nvidia-cublas\nVersion: 13.1.0\n")
    (info / "RECORD").write_text("nvidia/__init__.py,sha256=x,0\n")
    assert found(site) == []


@pytest.mark.skipif(sys.platform == "win32", reason="makes a symbolic link")
def test_a_folder_that_is_a_link_to_nothing(site: Path) -> None:
    shutil.rmtree(site / "diffusers")
    (site / "diffusers").symlink_to(site / "gone")
    where = scan(LocalHost(), (str(site),), str(site), Gaps(), python="3.12.3")
    (one,) = files.read(LocalHost(), where, Gaps())["incomplete_packages"]
    assert (one.reason, one.link) == ("gone", str(site / "diffusers"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at files of other systems on Linux")
@pytest.mark.parametrize("glibc_too", [False, True])
def test_a_wheel_for_musl(site: Path, glibc_too: bool) -> None:
    tags = ["musllinux_1_2_x86_64", "manylinux_2_28_x86_64"][: 1 + glibc_too]
    wheel = site / "diffusers-0.42.1.dist-info" / "WHEEL"
    wheel.write_text("".join(f"Tag: cp39-abi3-{tag}\n" for tag in tags))
    wanted = [] if glibc_too else [("diffusers/_C.so", "for another system", 1)]
    assert found(site) == wanted
