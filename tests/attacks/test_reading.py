"""Files of others may be anything: a pipe, a device, a bomb. One opener reads them all."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from attn_doctor import files, json_files, toml_files
from attn_doctor.configs.readers import kinds, locations
from attn_doctor.configs.readers.datasets import datasets
from attn_doctor.errors import AttnDoctorError
from attn_doctor.policy import nearest, policy
from tests.attacks.means import Attack, Run

# The opener


@pytest.fixture
def special(tmp_path: Path) -> dict[str, Path]:
    """One path of each kind that is not a regular file."""
    paths = {name: tmp_path / name for name in ("pipe", "socket", "folder", "link to a pipe")}
    os.mkfifo(paths["pipe"])
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(paths["socket"]))
    paths["folder"].mkdir()
    paths["link to a pipe"].symlink_to(paths["pipe"])
    return {**paths, "device": Path("/dev/zero")}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pipe", "it is a pipe, not a regular file"),
        ("link to a pipe", "it is a pipe, not a regular file"),
        ("socket", "it is a socket, not a regular file"),
        ("device", "it is a device, not a regular file"),
        ("folder", "Is a directory"),
    ],
)
def test_only_regular_files_are_opened(special: dict[str, Path], kind: str, words: str) -> None:
    with pytest.raises(OSError, match=words) as caught:
        files.read_bytes(special[kind], 100)
    assert caught.value.filename == str(special[kind])


def test_a_nul_in_a_path_is_an_error_of_the_file() -> None:
    with pytest.raises(OSError, match="null"):
        files.read_bytes("a\0b", 100)


@pytest.mark.symlinks
def test_a_link_is_followed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_bytes(tmp_path / "link", 100) == b"text"
    with pytest.raises(OSError, match="symbolic links"):
        files.read_bytes(tmp_path / "link", 100, follow=False)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(path, 100) == b"x" * 100
    assert files.read_bytes(path, 99, cut=True) == b"x" * 99
    with pytest.raises(OSError, match="it has 100 bytes, and at most 99 bytes are read"):
        files.read_bytes(path, 99)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_file_of_unknown_size_is_read_up_to_its_limit() -> None:
    whole = files.read_bytes("/proc/self/status", 1 << 16)
    assert whole.startswith(b"Name:")
    assert files.read_bytes("/proc/self/status", 5, cut=True) == b"Name:"
    with pytest.raises(OSError, match="at most 5 bytes"):
        files.read_bytes("/proc/self/status", 5)


# Parsers

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * DEEP + "]" * DEEP, "nested too deeply"),
        ("a = " + "1" * DEEP, "digits"),
        (".".join(["a"] * DEEP) + " = 1", "line 1: has more than 250 dots"),
        ("x = 1\n[" + ".".join(["a"] * DEEP) + "]", "line 2: has more than 250 dots"),
        ('a = "\0"', "Illegal character|control"),
        ('a = "\\ud800"', "scalar"),
    ],
    ids=["deep", "digits", "dotted key", "dotted table", "NUL", "surrogate"],
)
def test_toml_has_limits(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(AttnDoctorError, match=words) as caught:
        toml_files.read_toml(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
        (b'{"a":' * DEEP, "nested too deeply"),
        (b"1" * DEEP, "out of range"),
        (b'{"\\ud800": 1}', "truncated"),
        (b'{"a": "\\udc00 \\ud800"}', "surrogate|truncated|malformed"),
        (b'{"a": "\xff"}', "(?i)utf-8"),
        (b"", "truncated"),
    ],
    ids=["deep list", "deep object", "digits", "key", "half pairs", "not UTF-8", "empty"],
)
def test_json_has_limits(text: bytes, words: str) -> None:
    with pytest.raises(json_files.JsonError, match=words):
        json_files.decode(text)


def test_text_with_half_a_pair_is_no_json() -> None:
    with pytest.raises(json_files.JsonError):
        json_files.decode('{"a": "\ud800"}')


# Commands

#: A path that is a pipe, the command that meets it, and whether the command needs it.
NEEDED = [
    ("machine.json", "check --facts machine.json"),
    ("base.json", "check --baseline base.json"),
    ("own.toml", "check --policy own.toml"),
    ("attn-doctor.toml", "check"),
    ("train.sh", "check --config train.sh"),
    ("rules/area/rule.toml", "check --rules rules"),
    ("log.txt", "explain log.txt"),
    ("x.tgz", "cache import x.tgz --dry-run"),
]
FOUND = [
    ("pyproject.toml", "check"),
    ("config/config.json", "check"),
    ("config.json", "check"),
    (".venv/pyvenv.cfg", "check"),
    ("x.toml", "build-kernels x.toml --dry-run"),
    ("c/attn-doctor/manifest.json", "cache status c"),
    ("c/attn-doctor/manifest.json", "cache why c"),
    ("c/attn-doctor/manifest.json", "cache verify c"),
    ("c/attn-doctor/lock.1", "cache status c"),
    ("home/.bashrc", "check"),
]
pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")


def _piped(doctor: Attack, folder: Path, name: str, command: str) -> Run:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return doctor(*command.split(), cwd=folder, seconds=30).answered()


@pipes
@pytest.mark.attack
@pytest.mark.parametrize(("name", "command"), FOUND)
def test_a_pipe_is_passed_by(doctor: Attack, tmp_path: Path, name: str, command: str) -> None:
    _piped(doctor, tmp_path, name, command)


@pipes
@pytest.mark.attack
@pytest.mark.parametrize(("name", "command"), NEEDED)
def test_a_pipe_that_is_named_is_refused(
    doctor: Attack, tmp_path: Path, name: str, command: str
) -> None:
    ran = _piped(doctor, tmp_path, name, command)
    assert ran.code == 2
    assert f"{name}" in ran.text
    assert "a pipe, not a regular file" in ran.text


@pipes
@pytest.mark.parametrize(("name", "command"), [NEEDED[-2], FOUND[0]])
def test_a_pipe_never_blocks(doctor: Attack, tmp_path: Path, name: str, command: str) -> None:
    _piped(doctor, tmp_path, name, command)


@pipes
def test_a_policy_that_is_a_pipe_is_not_passed_by(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "attn-doctor.toml")
    found = nearest.find(tmp_path)
    assert found == tmp_path / "attn-doctor.toml"
    with pytest.raises(AttnDoctorError, match="it is a pipe, not a regular file"):
        policy.read(found)


@pytest.mark.parametrize("name", ["x" * 5000, "/".join(["x" * 200] * 40), "a\0b", "/proc/self/mem"])
def test_a_configuration_may_name_any_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"--model_family": "flux", "--data_backend_config": name}))
    assert datasets(path, name) == ()
    assert kinds.read(path)


def test_a_working_directory_may_have_a_path_of_any_length() -> None:
    deep = Path("/", *["d" * 200] * 40)
    assert locations.found_in(deep, {}) is None
    assert nearest.find(deep) in (None, *(one / "pyproject.toml" for one in deep.parents))
