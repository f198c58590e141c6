"""Attacks by other users of the machine: folders, records, environments and policies of theirs.

What another user owns or can write to is neither run, loaded nor obeyed, unless `--allow-foreign`
names it. Each attack leaves a trace if it succeeds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attn_doctor import processes
from attn_doctor.errors import OwnershipError
from attn_doctor.kernels.bundle.artifact import Artifact, Packed
from attn_doctor.kernels.bundle.unpack import Relocation
from attn_doctor.record import store
from attn_doctor.record.lock import Lock
from attn_doctor.record.manifest import SCHEMA, Manifest, Warmup
from attn_doctor.worker import ownership
from tests.attacks.means import STRANGER, Attack, Run, own_home
from tests.command import run as in_process

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX owners and modes")
Give = Callable[[Path], Path]


@pytest.fixture
def doctor(home: Path) -> Attack:
    """attn-doctor in this process, which is quicker: only the verdict on files matters here."""

    def run(*words: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Run:
        start = time.monotonic()
        ended = in_process(*words, cwd=cwd, environ={**own_home(home), **(environ or {})})
        return Run(*ended, time.monotonic() - start)

    return run


#: How a refusal names the stranger.
THEIRS = f"belongs to {ownership.user_name(STRANGER)}"
#: An interpreter that every user can start.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or os.path.realpath(sys.executable)
#: An interpreter that leaves a trace, with who ran it, and then answers as Python.
SPY = '#!/bin/sh\nid -u >> {marker}\nexec {python} "$@"\n'


def few(values: Sequence[Any], count: int) -> list[Any]:
    """The values as parameters; those after the first `count` carry the mark `attack`."""
    marks = [() if number < count else pytest.mark.attack for number in range(len(values))]
    names = [one if isinstance(one, str) else " ".join(one) for one in values]
    return [
        pytest.param(one, marks=mark, id=name)
        for one, mark, name in zip(values, marks, names, strict=True)
    ]


def spy(folder: Path, marker: Path) -> Path:
    """A virtual environment whose interpreter notes each start in `marker`."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    python.write_text(SPY.format(marker=marker, python=PYTHON))
    python.chmod(0o755)
    return python


@pytest.fixture
def public(as_root: None) -> Iterator[Path]:
    """A folder of root's that every user can read; those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="attn-doctor-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def open_marker(public: Path) -> Path:
    """A trace that every user can write."""
    marker = public / "executed"
    marker.touch()
    marker.chmod(0o666)
    return marker


def cache(folder: Path, argv: tuple[str, ...] = ()) -> Path:
    """A cache of Inductor with a record, which names a program to run."""
    (folder / "fxgraph" / "ab").mkdir(parents=True)
    (folder / "fxgraph" / "ab" / "entry").write_bytes(b"\x80\x04N.")
    (folder / ".attn-doctor-trash" / "20261101-000000-aaaa").mkdir(parents=True)
    warmup = Warmup(
        argv=argv or ("true",),
        folder=str(folder),
        device_slot="cpu",
        at="2026-11-01T00:00:00Z",
        seconds=1.0,
        files={},
        keys={},
        unverified=True,
    )
    manifest = Manifest(schema=SCHEMA, attn_doctor="0.1.0", warmups={"one": warmup})
    store.save(folder, manifest)
    return folder


# The question


def test_what_belongs_to_this_user_or_root_is_safe(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in ("/", "/usr", "/etc/passwd", str(tmp_path / "link"), str(tmp_path / "absent/x")):
        assert ownership.danger(path) is None, path
    assert ownership.within(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("mode", "writers"), [(0o777, "all users"), (0o757, "all users"), (0o1777, "all users")]
)
def test_a_folder_that_all_can_write_is_a_danger(tmp_path: Path, mode: int, writers: str) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    found = ownership.danger(str(folder))
    assert found is not None
    assert (found.path, found.writers, found.mode) == (str(folder), writers, mode)
    (folder / "own").mkdir()
    inside = ownership.danger(str(folder / "own"))
    # Under the sticky bit others cannot take the name away.
    assert (inside is None) == bool(mode & stat.S_ISVTX)


def test_a_group_of_others_is_a_danger_and_an_own_group_is_not(
    tmp_path: Path, as_root: None
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o770)
    assert ownership.danger(str(folder)) is None, "the group of root"
    os.chown(folder, 1, 1)
    assert ownership.danger(str(folder), uid=1) is None, "a group of the user's name alone"
    os.chown(folder, 0, STRANGER)
    found = ownership.danger(str(folder))
    assert found is not None
    assert found.writers.startswith("group ")


def test_dangers_are_found_anywhere_on_the_way(tmp_path: Path, stranger: Give) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(theirs / "deep")
    stranger(theirs)
    os.chown(theirs / "deep", 0, 0)
    for path in (theirs / "deep", own / "link", theirs / "deep" / ".." / "deep", theirs / "absent"):
        found = ownership.danger(str(path))
        assert found is not None, path
        assert found.path == str(theirs)
    assert ownership.within(str(own)) == ownership.danger(str(theirs))


def test_a_link_of_a_stranger_is_a_danger(tmp_path: Path, as_root: None) -> None:
    (tmp_path / "own").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "own")
    assert ownership.danger(str(link)) is None
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    found = ownership.danger(str(link))
    assert found is not None
    assert found.uid == STRANGER


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "up").symlink_to(".")
    assert ownership.danger(str(tmp_path / "a")) is not None
    assert ownership.within(str(tmp_path / "up")) is not None


def test_one_entry_of_a_stranger_is_found(tmp_path: Path, stranger: Give) -> None:
    (tmp_path / "cache" / "a" / "b").mkdir(parents=True)
    for number in range(50):
        (tmp_path / "cache" / "a" / f"file{number}").touch()
    (tmp_path / "cache" / "a" / "b" / "kernel.so").touch()
    assert ownership.within(str(tmp_path / "cache")) is None
    stranger(tmp_path / "cache" / "a" / "b" / "kernel.so")
    found = ownership.within(str(tmp_path / "cache"))
    assert found is not None
    assert found.path.endswith("kernel.so")


def test_one_entry_can_be_accepted(
    tmp_path: Path, stranger: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernel.so").touch()
    entry = stranger(tmp_path / "cache" / "kernel.so")
    monkeypatch.setenv(ownership.ALLOW, str(entry))
    assert ownership.within(str(tmp_path / "cache")) is None
    monkeypatch.setenv(ownership.ALLOW, f"{entry}.other")
    assert ownership.within(str(tmp_path / "cache")) is not None


#: Kinds of entries of an access list, and the number of entries without a name: `acl(5)`.
OWNER, USER, OWN_GROUP, GROUP, MASK, OTHER, UNNAMED = 1, 2, 4, 8, 16, 32, 2**32 - 1


def give(folder: Path, *entries: tuple[int, int, int], mask: int = 7, kind: str = "access") -> None:
    """Add entries (kind, rights, number) to the access list of a private folder."""
    group = () if any(one[0] == OWN_GROUP for one in entries) else ((OWN_GROUP, 0, UNNAMED),)
    rows = [(OWNER, 7, UNNAMED), *entries, *group, (MASK, mask, UNNAMED), (OTHER, 0, UNNAMED)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in sorted(rows))
    try:
        os.setxattr(folder, f"system.posix_acl_{kind}", value)
    except (OSError, AttributeError):
        pytest.skip("this file system has no access lists")


@pytest.mark.parametrize(
    ("entries", "mask", "writers"),
    [
        ([(USER, 7, STRANGER)], 7, f"user {ownership.user_name(STRANGER)} of its access list"),
        ([(USER, 2, STRANGER)], 7, f"user {ownership.user_name(STRANGER)} of its access list"),
        ([(USER, 5, STRANGER)], 7, ""),
        ([(USER, 7, STRANGER)], 5, ""),
        ([(USER, 7, 0)], 7, ""),
        ([(GROUP, 7, STRANGER)], 7, "group "),
        ([(OWN_GROUP, 7, UNNAMED), (USER, 5, STRANGER)], 7, "as the group"),
    ],
)
def test_writers_of_an_access_list_are_a_danger(
    tmp_path: Path, entries: list[tuple[int, int, int]], mask: int, writers: str
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o770)
    group = ownership.danger(str(folder))
    folder.chmod(0o700)
    give(folder, *entries, mask=mask)
    found = ownership.danger(str(folder))
    if writers == "as the group":
        assert (found and found.writers) == (group and group.writers)
    else:
        assert (found.writers if found else "").startswith(writers)
        assert bool(found) == bool(writers)


def test_a_folder_that_gives_rights_to_what_is_made_in_it_is_a_danger(
    tmp_path: Path, doctor: Attack
) -> None:
    folder = tmp_path / "shared"
    cache(folder)
    give(folder, (USER, 7, STRANGER), kind="default")
    found = ownership.danger(str(folder))
    assert found is not None
    assert found.inherited
    assert ownership.danger(str(folder / "fxgraph")) is None, "it was made before"
    run = doctor("cache", "verify", "--cache-dir", str(folder)).answered(2)
    assert f"what is made in {folder} can be written by user" in run.text
    assert f"setfacl -k {folder}" in run.text
    os.removexattr(folder, "system.posix_acl_default")
    assert ownership.danger(str(folder)) is None


def test_a_group_that_sets_itself_is_a_group(tmp_path: Path, as_root: None) -> None:
    """In a setgid folder new files get the folder's group; only its right to write counts."""
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, 0, STRANGER)
    folder.chmod(0o2750)
    assert ownership.danger(str(folder)) is None
    folder.chmod(0o2770)
    assert ownership.danger(str(folder)) is not None


def test_a_folder_that_is_bound_to_another_place_is_that_folder(
    tmp_path: Path, stranger: Give
) -> None:
    (tmp_path / "theirs").mkdir()
    stranger(tmp_path / "theirs")
    (tmp_path / "own" / "bound").mkdir(parents=True)
    bind = ["mount", "--bind", str(tmp_path / "theirs"), str(tmp_path / "own" / "bound")]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a folder")
    try:
        found = ownership.within(str(tmp_path / "own"))
        assert found is not None
        assert found.path == str(tmp_path / "own" / "bound")
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "own" / "bound")], check=True)


@pytest.mark.parametrize("user", [0, STRANGER])
def test_a_file_system_of_a_stranger_is_not_believed(
    tmp_path: Path, as_root: None, user: int
) -> None:
    """Its process says that all in it belongs to root."""
    (tmp_path / "own" / "theirs").mkdir(parents=True)
    with lying_file_system(tmp_path / "own" / "theirs", user):
        status = (tmp_path / "own" / "theirs").stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o755)
        found = ownership.danger(str(tmp_path / "own" / "theirs" / "kernel.so"))
        assert (found.uid if found else 0) == user
        assert ownership.within(str(tmp_path / "own")) == found


@contextmanager
def lying_file_system(folder: Path, user: int) -> Iterator[None]:
    """Mount a file system whose process runs as `user` and names root as the owner of all."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("needs /dev/fuse")
    options = f"fd={device},rootmode=40000,user_id={user},group_id={user},allow_other"
    mount = ctypes.CDLL(None, use_errno=True).mount
    if mount(b"x", str(folder).encode(), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip("cannot mount a file system")
    threading.Thread(target=_answer_as_root, args=(device,), daemon=True).start()
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _answer_as_root(device: int) -> None:
    """Answer the requests of linux/fuse.h to begin and for attributes, and refuse others."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return os.close(device)  # unmounted
        _, kind, unique = struct.unpack_from("<IIQ", request)
        answer, error = b"", -errno.ENOSYS
        if kind == 26:  # FUSE_INIT
            answer, error = struct.pack("<4I2H2I36x", 7, 31, 0, 0, 0, 0, 4096, 1), 0
        elif kind == 3:  # FUSE_GETATTR: seconds that it holds, then `struct fuse_attr`
            attributes = (1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 512, 0)
            answer, error = struct.pack("<QII6Q10I", 0, 0, 0, *attributes), 0
        elif kind == 1:  # FUSE_LOOKUP
            error = -errno.ENOENT
        with suppress(OSError):
            os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


# Caches

BUILD = ("build-kernels", "--device", "cpu", "--heads", "2", "--head-dim", "64", "--seq-len", "64")
READERS = (
    ("cache", "verify", "--warm-ups", "--cache-dir"),
    ("cache", "import", "in.tar.gz", "--sha256", "0" * 64, "--cache-dir"),
    (*BUILD, "--cache-dir"),
    ("cache", "verify", "--cache-dir"),
    ("cache", "verify", "--require-hit", "--cache-dir"),
    ("cache", "why", "--cache-dir"),
    ("cache", "export", "--output", "out.tar.gz", "--cache-dir"),
    ("cache", "clear", "--yes", "--cache-dir"),
    ("cache", "restore", "--cache-dir"),
    ("cache", "empty-trash", "--yes", "--cache-dir"),
)


@pytest.mark.parametrize("words", few(READERS, 3))
def test_a_cache_of_a_stranger_is_refused(
    doctor: Attack, tmp_path: Path, stranger: Give, marker: Path, words: tuple[str, ...]
) -> None:
    folder = stranger(cache(tmp_path / "cache", ("/bin/sh", "-c", f"touch {marker}")))
    before = sorted(folder.rglob("*"))
    run = doctor(*words, str(folder), cwd=tmp_path).answered(2)
    assert f"{folder} {THEIRS} (uid {STRANGER}, mode 0755)" in run.text
    assert f"--allow-foreign {folder}" in run.text
    assert not marker.exists()
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_cache_that_all_can_write_is_refused(doctor: Attack, tmp_path: Path, mode: int) -> None:
    folder = cache(tmp_path / "cache")
    folder.chmod(mode)
    run = doctor("cache", "verify", "--cache-dir", str(folder)).answered(2)
    owner = ownership.user_name(os.getuid())
    assert f"can be written by all users (owner {owner}, mode {mode:04o})" in run.text
    assert f"chmod go-w {folder}" in run.text


def test_a_cache_below_a_folder_that_all_can_write_is_refused(
    doctor: Attack, tmp_path: Path
) -> None:
    folder = cache(tmp_path / "shared" / "cache")
    (tmp_path / "shared").chmod(0o777)
    run = doctor("cache", "verify", "--cache-dir", str(folder)).answered(2)
    assert f"{tmp_path}/shared can be written by all users" in run.text


def test_the_option_accepts_a_cache(doctor: Attack, tmp_path: Path, stranger: Give) -> None:
    folder = stranger(cache(tmp_path / "cache"))
    named = ("cache", "verify", "--no-verify", "--cache-dir", str(folder))
    doctor(*named).answered(2)
    assert doctor(*named, "--allow-foreign", str(folder)).answered().code != 2
    assert doctor(*named, environ={ownership.ALLOW: str(tmp_path)}).answered().code != 2
    doctor(*named, "--allow-foreign", str(tmp_path / "other")).answered(2)


@pytest.mark.parametrize("path", ["", "/opt:/"])
def test_the_option_takes_one_path(doctor: Attack, path: str) -> None:
    """An unset variable of a shell must not accept the working directory, nor a colon more."""
    assert "name one path" in doctor("cache", "env", "--allow-foreign", path).answered(2).text


def test_the_record_of_a_stranger_is_not_believed(
    doctor: Attack, tmp_path: Path, stranger: Give
) -> None:
    folder = stranger(cache(tmp_path / "cache"))
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
    status = doctor("cache", "status", environ=environ).answered(0)
    assert "another user can put code there" in status.text
    found = msgspec.json.decode(doctor("check", "--json", environ=environ).answered().stdout)
    assert found["facts"]["manifests"] is None
    assert "is not read" in found["facts"]["gaps"]["manifests"]


@pytest.mark.parametrize("kind", few(["inductor", "triton", "extensions"], 1))
@pytest.mark.parametrize("poison", ["owner", "mode", "entry", "parent"])
@pytest.mark.thorough
def test_check_names_each_poisoned_cache(
    doctor: Attack, tmp_path: Path, as_root: None, kind: str, poison: str
) -> None:
    folder = tmp_path / "above" / "cache"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "kernel.so").touch()
    name = {
        "inductor": "TORCHINDUCTOR_CACHE_DIR",
        "triton": "TRITON_CACHE_DIR",
        "extensions": "TORCH_EXTENSIONS_DIR",
    }[kind]
    clean = doctor("check", "--json", environ={name: str(folder)}).answered()
    assert "caches/foreign" not in rules(clean.stdout, kind)
    if poison == "owner":
        os.chown(folder, STRANGER, STRANGER)
    elif poison == "mode":
        folder.chmod(0o777)
    elif poison == "entry":
        os.chown(folder / "deep" / "kernel.so", STRANGER, STRANGER)
    else:
        folder.parent.chmod(0o777)
    found = doctor("check", "--json", environ={name: str(folder)}).answered()
    assert "caches/foreign" in rules(found.stdout, kind)


def rules(report: str, kind: str) -> list[str]:
    """The rules with a finding about that kind of cache."""
    found = msgspec.json.decode(report)["problems"]
    return [one["rule"] for one in found if one["subject"].startswith(f"{kind}:")]


def test_a_program_of_the_record_is_shown_and_must_be_ours(
    doctor: Attack, tmp_path: Path, as_root: None
) -> None:
    script = tmp_path / "scripts" / "warm.py"
    script.parent.mkdir()
    script.write_text("import sys; sys.exit(3)\n")
    folder = cache(tmp_path / "cache", (sys.executable, str(script)))
    words = ("cache", "verify", "--warm-ups", "--json", "--cache-dir", str(folder))
    shown = doctor(*words).answered(1)
    assert f"records this program in {folder}: {sys.executable} {script}" in shown.stderr
    os.chown(script, STRANGER, STRANGER)
    refused = doctor(*words).answered(2)
    assert f"{script} {THEIRS}" in refused.text
    assert "records this program" not in refused.text


def test_a_folder_that_a_stranger_made_just_before_is_not_locked(
    tmp_path: Path, stranger: Give
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "attn-doctor").mkdir()
    stranger(tmp_path / "cache")
    with pytest.raises(OwnershipError, match=THEIRS), Lock(tmp_path / "cache"):
        pass
    assert list((tmp_path / "cache" / "attn-doctor").iterdir()) == []


def test_entries_are_not_imported_through_a_link(tmp_path: Path) -> None:
    for name in ("staging/fxgraph/24", "cache/fxgraph", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "staging" / "fxgraph" / "24" / "entry").write_bytes(b"x")
    (tmp_path / "cache" / "fxgraph" / "24").symlink_to(tmp_path / "elsewhere")
    packed = {"fxgraph/24/entry": Packed(bytes=1, sha256="0" * 64)}
    artifact = Artifact(
        schema=1, attn_doctor="0.1.0", made="", environments={}, entries={}, files=packed
    )
    moved = Relocation(tmp_path / "staging", tmp_path / "cache", artifact)
    warmup = Warmup(
        argv=(), folder="", device_slot="cpu", at="", seconds=0.0, files={"fxgraph/24/entry": 1}
    )
    with pytest.raises(OSError, match="is a link or a file"):
        moved.warmup("one", warmup)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["attn-doctor", "attn-doctor/incoming"])
def test_nothing_is_imported_through_a_link(doctor: Attack, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "cache"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(elsewhere)
    (tmp_path / "in.tar.gz").write_bytes(b"x")
    words = ("cache", "import", str(tmp_path / "in.tar.gz"), "--sha256", "0" * 64)
    run = doctor(*words, "--cache-dir", str(folder)).answered(2)
    assert "is a link or a file" in run.text
    assert list(elsewhere.iterdir()) == []


def test_signers_of_a_stranger_are_not_obeyed(
    doctor: Attack, tmp_path: Path, stranger: Give
) -> None:
    (tmp_path / "signers").write_text("them ssh-ed25519 AAAA\n")
    stranger(tmp_path / "signers")
    (tmp_path / "in.tar.gz").write_bytes(b"x")
    words = ("cache", "import", str(tmp_path / "in.tar.gz"), "--signers")
    run = doctor(*words, str(tmp_path / "signers")).answered(2)
    assert f"signers {THEIRS}" in run.text


# Environments

EXAMINERS = (
    ("check",),
    BUILD,
    ("backends",),
    ("explain", "train.log"),
    ("report",),
    ("fix", "--dry-run"),
    ("cache", "status"),
    ("cache", "verify"),
    ("cache", "why"),
)


@pytest.mark.parametrize("words", few(EXAMINERS, 2))
@pytest.mark.parametrize("below", few(["", "below"], 1))
def test_an_environment_of_a_stranger_is_not_started(
    doctor: Attack,
    tmp_path: Path,
    stranger: Give,
    marker: Path,
    words: tuple[str, ...],
    below: str,
) -> None:
    project = tmp_path / "project"
    spy(project / ".venv", marker)
    stranger(project / ".venv")
    (project / "below").mkdir()
    (project / below / "train.log").write_text("ImportError: No module named torch\n")
    run = doctor(*words, cwd=project / below).answered()
    assert not marker.exists()
    if run.code == 2:
        assert f"{project}/.venv {THEIRS}" in run.text
        assert f"--allow-foreign {project}/.venv" in run.text
    else:
        assert words[0] in ("explain", "report")


def test_a_part_of_an_environment_is_enough(doctor: Attack, tmp_path: Path, as_root: None) -> None:
    packages = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    assert doctor("check", cwd=tmp_path).answered().code != 2
    packages.chmod(0o777)
    run = doctor("check", cwd=tmp_path).answered(2)
    assert f"{packages} can be written by all users" in run.text


def test_root_starts_an_environment_of_a_user_as_that_user(
    doctor: Attack, public: Path, stranger: Give, open_marker: Path
) -> None:
    """As in the prolog of a job, which runs as root."""
    python = spy(public / "venv", open_marker)
    stranger(public / "venv")
    run = doctor("check", "--python", str(python)).answered()
    assert run.code != 2, run.stderr
    assert set(open_marker.read_text().split()) == {str(STRANGER)}


def test_root_runs_no_packages_of_a_user(
    doctor: Attack, public: Path, stranger: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = public / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(PYTHON)
    (public / "venv" / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\n")
    stranger(public / "venv")
    run = doctor("backends", "--live", "--device", "cpu", "--python", str(python)).answered(2)
    assert f"{python} is not run: it {THEIRS}, and this is root" in run.text
    assert "runuser -u" in run.text
    with pytest.raises(OwnershipError, match="and this is root"):
        processes.run([PYTHON, "-c", "pass", "--python", str(python)], 10)
    monkeypatch.setenv(ownership.ALLOW, str(python))
    assert processes.run([str(python), "-c", "pass"], 10).ok


def test_root_starts_nothing_that_two_users_can_change(
    doctor: Attack, public: Path, stranger: Give, open_marker: Path
) -> None:
    python = spy(public / "venv", open_marker)
    stranger(public / "venv")
    os.chown(python, STRANGER - 1, STRANGER - 1)
    run = doctor("check", "--python", str(python)).answered(2)
    assert "and this is root; or add `--allow-foreign" in run.text
    assert open_marker.read_text() == ""


# Policies and journals


@pytest.mark.parametrize("name", ["attn-doctor.toml", "pyproject.toml"])
@pytest.mark.parametrize("below", few(["below", ""], 1))
def test_a_policy_of_a_stranger_is_not_obeyed(
    doctor: Attack, tmp_path: Path, stranger: Give, name: str, below: str
) -> None:
    text = 'fail-on = "never"\n'
    (tmp_path / name).write_text(text if name[0] == "a" else f"[tool.attn-doctor]\n{text}")
    (tmp_path / "below").mkdir()
    words = ("check", "--require", "sage")
    ours = doctor(*words, cwd=tmp_path / below).answered(1)
    assert f"policy in force: {tmp_path}/{name}" in ours.text
    stranger(tmp_path / name)
    run = doctor(*words, cwd=tmp_path / below).answered(2)
    assert f"{tmp_path}/{name} {THEIRS}" in run.text
    assert f"--policy {tmp_path}/{name}" in run.text
    named = doctor(*words, "--policy", str(tmp_path / name)).answered(1)
    assert f"policy in force: {tmp_path}/{name}" in named.text
    doctor(*words, "--policy", "none", cwd=tmp_path / below).answered(1)


def test_the_policy_is_named_in_a_short_report_too(doctor: Attack, tmp_path: Path) -> None:
    (tmp_path / "attn-doctor.toml").write_text('fail-on = "never"\n')
    run = doctor("check", "--quiet", cwd=tmp_path).answered(0)
    assert f"policy in force: {tmp_path}/attn-doctor.toml" in run.text


def test_a_journal_of_a_stranger_is_not_obeyed(
    doctor: Attack, tmp_path: Path, home: Path, stranger: Give
) -> None:
    target = tmp_path / "victim"
    target.mkdir()
    run_folder = home / "state" / "attn-doctor" / "fixes" / "20261101-000000000-aa"
    run_folder.mkdir(parents=True)
    (run_folder / "journal.jsonl").write_text(
        '{"event": "begin", "title": "x", "time": 1}\n'
        f'{{"event": "folder", "path": "{target}"}}\n{{"event": "end", "result": "done"}}\n'
    )
    (target / ".attn-doctor-made").write_text(f"{run_folder.name}\n")
    stranger(run_folder)
    run = doctor("fix", "undo", "--yes").answered(2)
    assert THEIRS in run.text
    assert target.is_dir()


# Workers


def job(**more: object) -> dict[str, object]:
    return {"action": "build", "device": "cpu", "spec": {"mask": "none"}, **more}


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME"])
def test_a_worker_refuses_a_cache_of_a_stranger(
    tmp_path: Path, stranger: Give, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also if it was made after the command looked: /tmp is open to all."""
    from attn_doctor.worker.kernels.job import run_job

    (tmp_path / "cache").mkdir()
    monkeypatch.setenv(name, str(stranger(tmp_path / "cache")))
    failure = run_job(job())["failure"]
    assert failure["type"] == "Refused"
    assert f"{name} is not used: {tmp_path}/cache {THEIRS}" in failure["message"]


def test_a_worker_imports_no_mask_of_a_stranger(
    tmp_path: Path, stranger: Give, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory is searched for the user's mask, and it may be /tmp."""
    from attn_doctor.worker.kernels.job import run_job

    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "masks.py").write_text(f"open({str(marker)!r}, 'w')\n")
    folder = str(stranger(tmp_path / "theirs"))
    failure = run_job(job(spec={"mask": "masks:one"}, sys_path=[folder]))["failure"]
    assert failure["type"] == "Refused"
    assert f"{folder} is not searched for the mask" in failure["message"]
    run_job(job(sys_path=[folder]))
    assert folder not in sys.path
    assert not marker.exists()
