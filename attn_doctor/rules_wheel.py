"""Takes the rules in a wheel of attn-doctor-rules, checks them, and puts them into use.

pip fetches the wheel, with its own configuration: index, mirrors, hashes, folders. The wheel is
data: only files of rules are taken out of it, after their digests were compared with its RECORD.
All rules and the catalogue of backends are read before anything is put into use.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from attn_doctor import processes
from attn_doctor._version import __version__
from attn_doctor.errors import AttnDoctorError, RuleError
from attn_doctor.files import open_binary, write_atomic
from attn_doctor.fixes.locks import lock
from attn_doctor.ownership import require
from attn_doctor.rulebook import library, updates
from attn_doctor.wheels.archive import content, open_archive

PROJECT = "attn-doctor-rules"
_FOLDER = "attn_doctor_rules"
#: Files that a wheel may hold, and most bytes of all of them.
_SUFFIXES = (".json", ".jsonl", ".md", ".toml", ".tsv")
_LIMIT = 64 << 20
_FILES = 5000
#: Seconds for pip.
_SECONDS = 300


class Staged(Struct, frozen=True):
    """Checked rules that are not in use yet."""

    folder: Path
    release: updates.Release
    rules: int
    checked: str
    """The day of the tables, ISO 8601."""


class State(Struct, frozen=True, kw_only=True):
    """The rules in use."""

    version: str
    folder: str
    updated: bool
    """They are an update, not the rules that attn-doctor has itself."""
    rules: int
    checked: str
    """The day of the tables, ISO 8601."""
    previous: str
    """What `rules rollback` returns to; empty for attn-doctor's own rules."""
    unused: str
    """An update that is not used, with the reason; empty if there is none."""


def state() -> State:
    """The rules in use."""
    folder, chosen = library.folder(), updates.current()
    updated = library.is_update()
    unused = ""
    if chosen.version and not updated:
        why = updates.why_not(chosen, folder) or "this is a checkout, which reads its own files"
        unused = f"{chosen.version}: {why}"
    return State(
        version=updates.release_of(folder).version,
        folder=str(folder),
        updated=updated,
        rules=len(library.load()),
        checked=str(library.tables()["releases"]["checked"]),
        previous=chosen.previous if updated else "",
        unused=unused,
    )


def download(version: str, options: Sequence[str], folder: Path) -> Path:
    """Let pip fetch the wheel into `folder`. `options` are given to pip.

    Raises `AttnDoctorError` if that fails.
    """
    # A file of requirements names the wheel itself, with its hashes.
    from_file = any(one.split("=")[0] in ("-r", "--requirement") for one in options)
    wanted = [] if from_file else [PROJECT + (f"=={version}" if version else "")]
    command = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "download"]
    command += ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    ended = processes.run([*command, *options, *wanted], _SECONDS, joined=True)
    found = sorted(folder.glob(f"{_FOLDER}-*.whl"))
    if ended.code == 0 and len(found) == 1:
        return found[0]
    if "No module named pip" in ended.out:
        raise AttnDoctorError(
            f"{sys.executable} has no pip; download {PROJECT} with another one, and name the wheel"
        )
    errors = [line for line in ended.out.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"pip got no {PROJECT}"
    raise AttnDoctorError(f"no rules were taken: {reason}")


def stage(wheel: Path, folder: Path) -> Staged:
    """Take the rules out of a wheel into `folder`, and check them. Raises `AttnDoctorError`."""
    _unpack(wheel, folder)
    release = updates.release_of(folder)
    if release.schema != updates.SCHEMA:
        raise RuleError(
            f"{wheel.name} has rules of form {release.schema}, and attn-doctor {__version__} reads"
            f" form {updates.SCHEMA}; update attn-doctor first"
        )
    if wheel.name.split("-")[1] != release.version:
        raise RuleError(f"{wheel.name} holds {release.version}, not what its name says")
    from attn_doctor.backends import catalogue_files
    from attn_doctor.backends.catalogue import INDEX

    (folder / library.INDEX).write_bytes(library.build_index(folder))
    (folder / INDEX).write_bytes(catalogue_files.build_index(folder))
    tables = library.read_tables(folder)
    count = len(library.Index(str(folder / library.INDEX)).rules())
    return Staged(folder, release, count, str(tables["releases"]["checked"]))


def use(staged: Staged) -> Path:
    """Put checked rules into use, and return their folder. Raises `AttnDoctorError`."""
    with _alone() as place:
        return _use(staged, place)


def _use(staged: Staged, place: Path) -> Path:
    target = place / staged.release.version
    before = updates.current()
    if updates.order(staged.release.version) <= updates.order(before.version):
        raise AttnDoctorError(f"another update has just taken rules {before.version}")
    shutil.rmtree(target, ignore_errors=True)
    staged.folder.chmod(0o700)
    staged.folder.rename(target)
    kept = before.version
    _write(updates.Current(version=staged.release.version, attn_doctor=__version__, previous=kept))
    for old in place.iterdir():
        others = old.name not in (staged.release.version, kept) and not old.name.startswith(".")
        if others and old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
    return target


def rollback() -> str:
    """Return to the rules before the update, and name them; empty for attn-doctor's own.

    Raises `AttnDoctorError` if no update is in use.
    """
    with _alone() as place:
        before = updates.current()
        if not before.version:
            raise AttnDoctorError("no update is in use: these are attn-doctor's own rules")
        kept = before.previous if (place / before.previous / library.INDEX).is_file() else ""
        _write(updates.Current(version=kept if before.previous else "", attn_doctor=__version__))
        return kept if before.previous else ""


@contextlib.contextmanager
def _alone() -> Iterator[Path]:
    """Keep other updates out of the folder of rules while the block runs; yield the folder."""
    place = _own_place()
    try:
        handle = lock(place / ".lock")
    except OSError as error:
        raise AttnDoctorError(
            f"{place} is in use by another update, or cannot be written ({error.strerror}); nothing"
            " was changed, so repeat the command"
        ) from None
    try:
        yield place
    finally:
        os.close(handle)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder beside the updates, so that a rename puts them into use."""
    return tempfile.TemporaryDirectory(prefix=".taking-", dir=_own_place())


def _own_place() -> Path:
    place = updates.place()
    if place is None:
        raise AttnDoctorError("rules are kept in your home; set HOME or XDG_DATA_HOME")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    require(place)
    return place


def _write(current: updates.Current) -> None:
    write_atomic(_own_place() / "current.json", msgspec.json.encode(current), 0o600)


def _unpack(wheel: Path, folder: Path) -> None:
    """Write the rules of a wheel into `folder`. Raises `RuleError`."""
    try:
        with open_binary(wheel) as file, open_archive(file) as archive:
            members = [one for one in archive.infolist() if not one.is_dir()]
            if len(members) > _FILES or sum(one.file_size for one in members) > _LIMIT:
                raise RuleError(f"{wheel.name} is larger than rules can be")
            digests = _digests(archive, wheel.name)
            for member in members:
                path = PurePosixPath(member.filename)
                top = path.parts[0] if path.parts else ""
                if top == _FOLDER:
                    _take(archive, member, digests, folder, wheel.name)
                elif not top.endswith(".dist-info"):
                    raise RuleError(f"{wheel.name}: {path} is not a file of rules")
    except (zipfile.BadZipFile, UnicodeError, csv.Error, OSError) as error:
        raise RuleError(f"{wheel.name} cannot be unpacked: {error}") from None


def _take(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    digests: dict[str, str],
    folder: Path,
    name: str,
) -> None:
    path = PurePosixPath(member.filename)
    if ".." in path.parts or "\\" in member.filename or path.suffix not in _SUFFIXES:
        raise RuleError(f"{name}: {path} is not a file of rules")
    data = content(archive, member)
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    if digests.get(member.filename) != f"sha256={found}":
        raise RuleError(f"{name}: {path} differs from what its RECORD says")
    target = folder.joinpath(*path.parts[1:])
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.write_bytes(data)


# attn_doctor_rules/tables/release.toml,sha256=…,312
def _digests(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """The digests in the wheel's RECORD, by file."""
    record = [one for one in archive.infolist() if one.filename.endswith(".dist-info/RECORD")]
    if len(record) != 1:
        raise RuleError(f"{name} has no RECORD")
    rows = csv.reader(io.StringIO(content(archive, record[0]).decode()))
    return {row[0]: row[1] for row in rows if len(row) > 1}
