"""Files of others may be anything: a pipe, a device, a bomb. One opener reads them all."""

from __future__ import annotations

import ast
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import attn_doctor
from attn_doctor import files, json_files, toml_files
from attn_doctor.errors import AttnDoctorError
from tests.attacks.means import Attack, Run
from tests.test_layers import modules

PACKAGE = Path(attn_doctor.__file__).parent
#: Calls that open or parse a file themselves, by the name that is called.
OPENERS = ("open", "read_text", "read_bytes", "fdopen")
PARSERS = ("tomllib.load", "tomllib.loads", "json.load", "msgspec.json.decode", "linecache.getline")
#: Module → the calls that it may make, with the reason.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "worker/files.py": {"os.open": "the opener itself", "os.fdopen": "the opener itself"},
    "json_files.py": {"msgspec.json.decode": "the decoder itself"},
    "toml_files.py": {"tomllib.loads": "the parser itself"},
    # Files of our own making, written.
    "kernels/builder/report.py": {"existing[-1].open": "appends to a log of our process"},
    "kernels/builder/program_run.py": {"log.open": "makes the log of a program"},
    "fixes/installers.py": {"log.open": "makes the log of an installer"},
    "fixes/journal.py": {
        "os.open": "makes the journal",
        "kept.open": "a copy of our own making, to synchronise it",
    },
    "fixes/locks.py": {"os.open": "makes a lock, and opens a folder to lock it"},
    "record/lock.py": {"path.open": "makes a lock, mode x"},
    "cli/rules/authoring.py": {"path.open": "makes a rule, mode x"},
    "cli/fix/command.py": {"Path(output).open": "makes a requirements file, mode x"},
    "cli/check/formats.py": {"Path(path).open": "appends to the summary that GitHub names"},
    "fixes/cuda_home/start_files.py": {"change.real.open": "appends for GitHub Actions"},
    "kernels/caches/deletion.py": {"os.open": "opens folders to delete below them"},
    "__main__.py": {"os.open": "/dev/null"},
    "kernels/bundle/artifact.py": {"tarfile.open": "reads what the opener opened"},
    # Decoded by the wheel's own index, or by lines of a process of ours.
    "rulebook/library.py": {"msgspec.json.decode": "the index in our wheel"},
    "backends/catalogue.py": {"msgspec.json.decode": "the index in our wheel"},
    "cli/backends/live.py": {"msgspec.json.decode": "what this process has written"},
    # Run in the examined interpreter.
    "worker/interpreter.py": {"open": "runs alone, in any Python from 3.6 on; isfile comes first"},
    "worker/cuda_home.py": {"os.fdopen": "its own answer"},
    "worker/wire.py": {"os.open": "/dev/null and its own log"},
    "worker/describe_gpu.py": {"os.fdopen": "its own answer"},
    "worker/backends/device.py": {"open": "a function of this name that opens a GPU"},
    "worker/backends/job.py": {"open": "/proc/self/oom_score_adj", "devices.open": "opens a GPU"},
    "worker/kernels/job.py": {"os.fdopen": "its own answer", "json.load": "its own job"},
    "worker/kernels/compiler_watch.py": {"open": "/proc/self/maps"},
    "worker/kernels/graph_outputs.py": {"open": "appends to its own record"},
    "worker/stub_gpu/source_lines.py": {"linecache.getline": "a line of a program that runs"},
}


def called(tree: ast.AST) -> Iterator[str]:
    """Every call that opens or parses a file, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            last = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if last in OPENERS or any(name.endswith(f".{last}") for name in PARSERS):
                name = ast.unparse(node.func)
                if last in OPENERS or name in PARSERS:
                    yield name


@cache
def calls() -> dict[str, set[str]]:
    """Module → the calls in it that open or parse a file."""
    texts = {one.path: (PACKAGE / one.path).read_text("utf-8") for one in modules()}
    words = [f"{name.rpartition('.')[2]}(" for name in (*OPENERS, *PARSERS)]
    trees = {
        path: ast.parse(text) for path, text in texts.items() if any(word in text for word in words)
    }
    return {path: set(called(tree)) for path, tree in trees.items()}


def test_every_file_is_opened_in_one_place() -> None:
    ours = ("files.read_bytes", "files.read_text", "read_bytes", "read_text")
    bare = [
        f"{path}: {name}"
        for path, names in calls().items()
        for name in sorted(names - EXCEPTIONS.get(path, {}).keys())
        if name not in ours
    ]
    assert bare == [], "use attn_doctor.files, json_files or toml_files"


def test_every_exception_is_needed() -> None:
    needless = [
        f"{path}: {name}"
        for path, names in EXCEPTIONS.items()
        for name in names
        if name not in calls().get(path, ())
    ]
    assert needless == []


def test_the_reader_of_calls_sees_every_form() -> None:
    source = "open(a)\nPath(a).read_text()\nos.open(a)\nx.y.open()\ntomllib.loads(a)\nf.reader()"
    assert set(called(ast.parse(source))) == {
        "open",
        "Path(a).read_text",
        "os.open",
        "x.y.open",
        "tomllib.loads",
    }


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
        (b'{"a": "\xff"}', "utf-8"),
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
    ("train.sh", "check --config train.sh"),
    ("rules/area/rule.toml", "check --rules rules"),
    ("log.txt", "explain log.txt"),
    ("x.tgz", "cache import x.tgz --dry-run"),
]
FOUND = [
    ("pyproject.toml", "check"),
    ("attn-doctor.toml", "check"),
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
