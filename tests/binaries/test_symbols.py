"""Symbols and libraries, in libraries compiled here, against what the loader itself does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.binaries.read import binary, versions
from attn_doctor.binaries.symbols import gnu_hash
from attn_doctor.binaries.unresolved import of_torch, unresolved
from tests.binaries.sources import compiler, library

PROVIDER = """
#include <string>
namespace c10 {
struct Error { Error(int); virtual ~Error(); };
Error::Error(int) {}
Error::~Error() {}
int check(const std::string& text) { return (int)text.size(); }
int old(int x) { return x; }
}
extern "C" int helper() { return 1; }
"""
USER = """
#include <string>
namespace c10 { struct Error { Error(int); virtual ~Error(); }; int check(const std::string&);
int %s(int); }
extern "C" int helper();
extern "C" __attribute__((weak)) void not_there_and_weak();
int use() { c10::Error e(1); if (not_there_and_weak) not_there_and_weak();
return c10::check("x") + c10::%s(2) + helper(); }
"""


def pair(folder: Path, function: str, *options: str, provider: tuple[str, ...] = ()) -> list[str]:
    """An extension that calls `c10::function`, and the library that has `c10::old`."""
    made = library(folder / "libc10.so", PROVIDER, *provider)
    user = library(folder / "user.so", USER % (function, function), *options)
    return [str(user), str(made)]


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_all_there(tmp_path: Path, style: str) -> None:
    hashed = f"-Wl,--hash-style={style}"
    user, made = pair(tmp_path, "old", hashed, provider=(hashed,))
    (found,) = unresolved([(user, [made])])
    assert found.damaged == ""
    assert (found.count, found.first, found.cxx11_abi) == (0, (), True)


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_one_not_there(tmp_path: Path, style: str) -> None:
    user, made = pair(tmp_path, "newer", provider=(f"-Wl,--hash-style={style}",))
    (found,) = unresolved([(user, [made])])
    assert (found.count, found.torch, found.first) == (1, 1, ("_ZN3c105newerEi",))
    assert not found.other_abi
    # And the loader agrees.
    code = f"import ctypes; ctypes.CDLL({made!r}, ctypes.RTLD_GLOBAL); ctypes.CDLL({user!r})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "undefined symbol: _ZN3c105newerEi" in ran.stderr


@pytest.mark.parametrize("newer", ["provider", "user"])
@pytest.mark.thorough
def test_the_other_abi(tmp_path: Path, newer: str) -> None:
    old = "-D_GLIBCXX_USE_CXX11_ABI=0"
    user, made = pair(
        tmp_path,
        "old",
        *([old] if newer == "provider" else []),
        provider=(old,) if newer == "user" else (),
    )
    (found,) = unresolved([(user, [made])])
    assert (found.torch, found.other_abi) == (1, True)
    assert found.cxx11_abi is (newer == "user")


def test_the_other_abi_and_another_torch(tmp_path: Path) -> None:
    user, made = pair(tmp_path, "newer", "-D_GLIBCXX_USE_CXX11_ABI=0")
    (found,) = unresolved([(user, [made])])
    assert (found.torch, found.other_abi) == (2, False)


def test_symbols_of_others(tmp_path: Path) -> None:
    compiler()
    user = library(tmp_path / "u.so", 'extern "C" int f(); int use() { return f(); }')
    empty = library(tmp_path / "e.so", "int nothing() { return 0; }")
    (found,) = unresolved([(str(user), [str(empty)])])
    assert (found.count, found.torch, found.first) == (1, 0, ("f",))


def test_many_at_once_as_each_alone(tmp_path: Path) -> None:
    one, made = pair(tmp_path / "a", "old")
    two, other = pair(tmp_path / "b", "newer")
    needs = [(one, [made]), (two, [made, other]), (one, []), (two, ["/no/such/file"])]
    together = unresolved(needs)
    assert together == [unresolved([need])[0] for need in needs]
    assert [found.count for found in together[:2]] == [0, 1]
    assert together[2].count > 3
    assert together[3].damaged == "/no/such/file: No such file or directory"


def test_a_library_without_symbols_is_named(tmp_path: Path) -> None:
    user, _ = pair(tmp_path, "old")
    broken = tmp_path / "broken.so"
    broken.write_text("GROUP ( libc.so.6 )")
    (found,) = unresolved([(user, [str(broken)])])
    assert found.damaged == f"{broken}: it does not begin like an ELF file"


@given(st.binary(max_size=5000))
def test_the_hash_of_gnu(name: bytes) -> None:
    value = 5381
    for one in name:
        value = (value * 33 + one) % 2**32
    assert gnu_hash(name) == value


# What a library needs, against readelf.


def some_libraries() -> list[str]:
    """Real libraries: the C++ library, and extensions of the standard library."""
    folder = next((Path(one) for one in sys.path if one.endswith("lib-dynload")), None)
    found = sorted(str(one) for one in folder.glob("*.so"))[:12] if folder is not None else []
    maps = Path("/proc/self/maps")
    text = maps.read_text() if maps.exists() else ""
    return [*found, *dict.fromkeys(re.findall(r"/\S+/lib(?:c|m|stdc\+\+|z)\.so[.\d]*", text))]


def readelf(option: str, path: str) -> str:
    program = shutil.which("readelf")
    if program is None or sys.platform != "linux":
        pytest.skip("needs Linux and readelf")
    argv = [program, "-W", option, path]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_needs_as_readelf_tells_them(tmp_path: Path) -> None:
    made = library(tmp_path / "libone.so", "int one() { return 1; }", "-Wl,-soname,libone.so.7")
    user = library(
        tmp_path / "two.so",
        "int one(); int two() { return one(); }",
        f"-L{tmp_path}", "-lone", "-Wl,-rpath,$ORIGIN/../lib:/opt/x", "-Wl,--disable-new-dtags",
    )  # fmt: skip
    newer = library(
        tmp_path / "three.so", "int three() { return 3; }", "-Wl,-rpath,/opt/y,--enable-new-dtags"
    )
    assert binary(str(user)).rpath == ("$ORIGIN/../lib", "/opt/x")
    assert binary(str(newer)).runpath == ("/opt/y",)
    for path in (str(made), str(user), *some_libraries()):
        text, found = readelf("-d", path), binary(path)
        assert found.needed == tuple(re.findall(r"\(NEEDED\).*\[(.+)\]", text)), path
        assert [found.soname] == (re.findall(r"\(SONAME\).*\[(.+)\]", text) or [""]), path


def test_versions_as_readelf_tells_them() -> None:
    libraries = some_libraries()
    assert libraries
    for path in libraries:
        found, text = versions(path), readelf("-V", path)
        assert found.damaged == ""
        needs, _, _ = text.partition("no such thing")
        wanted = set(re.findall(r"Name: (\S+)  Flags: none", needs))
        given = set(re.findall(r"Flags: none +Index: \d+ +Cnt: \d+ +Name: (\S+)", text))
        assert {name for names in found.wants.values() for name in names} <= wanted
        assert set(found.gives) <= given
        for series in ("GLIBC_2", "GLIBCXX_3", "CXXABI_1"):
            for listed, seen in ((wanted, found.wants.values()), (given, [found.gives])):
                numbers = [
                    number(name) for name in listed if re.fullmatch(rf"{series}[.\d]+", name)
                ]
                flat = [number(one) for names in seen for one in names if one.startswith(series)]
                assert max(numbers, default=()) == max(flat, default=()), (path, series)


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    for content, reason in (
        (b"", "it is empty"),
        (b"#!/bin/sh\n" * 10, "it does not begin like an ELF file"),
        (b"\x7fELF\x01\x01" + bytes(60), "it is not a 64-bit little-endian ELF file"),
    ):
        path.write_bytes(content)
        assert binary(str(path)).damaged == reason
    with pytest.raises(FileNotFoundError):
        binary(str(tmp_path / "none.so"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"_ZNR5torch7Library4_defEv", True),
        (b"_ZN4c10d7Backend4nameEv", True),
        (b"_ZNK3c1010TensorImpl5sizesEv", True),
        (b"_ZN5boost6system4nameEv", False),
    ],
)
def test_names_of_torch(name: bytes, expected: bool) -> None:
    assert of_torch(name) == expected
