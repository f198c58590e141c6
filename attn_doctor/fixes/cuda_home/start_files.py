"""Writes the choice for later shells: works out each file's new contents, then writes them.

The choice depends on the examined environment's torch, so its own activation hook comes first; a
system Python has none, so the shell's start file is used. Files are written through the journal,
so that `fix undo` restores them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_bytes
from attn_doctor.fixes.cuda_home import marked_block
from attn_doctor.fixes.journal import Journal
from attn_doctor.shell.detect import start_file
from attn_doctor.shell.exports import Exports, enter_lines, leave_lines, start_lines
from attn_doctor.shell.quote import Shell

#: What `--write-to` takes; `auto` is GitHub Actions, else the environment, else the shell.
KINDS = ("auto", "environment", "shell", "github")

_VENV: tuple[tuple[str, Shell, str], ...] = (
    ("bin/activate", "sh", r"^deactivate\s*\(\)\s*\{"),
    ("Scripts/activate", "sh", r"^deactivate\s*\(\)\s*\{"),
    ("bin/activate.fish", "fish", r"^function deactivate\b"),
    ("Scripts/activate.fish", "fish", r"^function deactivate\b"),
    ("bin/Activate.ps1", "powershell", r"^function global:deactivate\b"),
    ("bin/activate.ps1", "powershell", r"^function global:deactivate\b"),
    ("Scripts/Activate.ps1", "powershell", r"^function global:deactivate\b"),
)
_OTHERS = ("activate.csh", "activate.nu", "activate.bat")
_CONDA: tuple[tuple[str, Shell], ...] = (("sh", "sh"), ("fish", "fish"), ("ps1", "powershell"))
#: conda reads hooks in the order of their names; those of its compilers precede this one.
_HOOK = "zz-attn-doctor-cuda-home"


class Change(Struct, frozen=True, kw_only=True):
    """One file before and after."""

    path: Path
    """The path that was searched."""
    real: Path
    """The file behind `path`, which changes."""
    before: bytes | None
    """None if there is no such file yet."""
    after: bytes

    @property
    def needed(self) -> bool:
        """The file has to change."""
        return self.before != self.after


class FileChanges(Struct, frozen=True, kw_only=True):
    """The files to write, and what they set."""

    kind: str
    """`environment`, `shell` or `github`."""
    changes: tuple[Change, ...]
    exports: Exports
    notes: tuple[str, ...] = ()
    then: str = ""
    """What the user does to use it in the current shell."""


def file_changes(
    facts: Facts, exports: Exports, shell: Shell, environ: Mapping[str, str], kind: str
) -> FileChanges:
    """Return the files to write. Raises `AttnDoctorError` if one cannot or must not be written."""
    if kind == "auto":
        kind = _usual(facts, environ)
    if kind == "github":
        return _github(exports, environ)
    if kind == "shell":
        return _shell(facts, exports, shell, environ)
    python = facts.python
    if python.environment == "conda" and python.prefix:
        return _conda(exports, Path(python.prefix))
    if python.environment == "venv" and python.prefix:
        return _venv(exports, shell, Path(python.prefix))
    raise AttnDoctorError(
        f"{python.path or 'this interpreter'} is neither in a virtual nor in a conda environment,"
        " so it has no activation hook; use --write-to shell"
    )


def _usual(facts: Facts, environ: Mapping[str, str]) -> str:
    if environ.get("GITHUB_ACTIONS") == "true" and environ.get("GITHUB_ENV"):
        return "github"
    return "environment" if facts.python.environment in ("venv", "conda") else "shell"


# Kinds of files


def _shell(facts: Facts, exports: Exports, shell: Shell, environ: Mapping[str, str]) -> FileChanges:
    path = start_file(shell, environ, macos=facts.system.os == "macos")
    before = _read(path)
    after = marked_block.with_block(before or b"", start_lines(exports, shell), str(path))
    change = _change(path, before, after or b"")
    return FileChanges(kind="shell", changes=(change,), exports=exports, then="open a new shell")


def _venv(exports: Exports, shell: Shell, prefix: Path) -> FileChanges:
    """The environment's own activation scripts, all that are there."""
    changes: list[Change] = []
    notes: list[str] = []
    for name, family, leaving in _VENV:
        path = prefix / name
        before = _read(path)
        if before is None or any(_same(path, one.path) for one in changes):
            continue
        if b"# SIG # Begin signature block" in before:
            notes.append(f"{path} is signed and would not run after a change: it was not changed")
            continue
        after = marked_block.with_block(before, enter_lines(exports, family), str(path))
        lines = leave_lines(exports, family, path=False)
        left = marked_block.with_block(after or before, lines, str(path), "deactivate", leaving)
        if left is None:
            notes.append(f"{path} has no known `deactivate`: the variables stay set after it")
        changes.append(_change(path, before, left or after or before))
    folder = prefix / ("Scripts" if (prefix / "Scripts").is_dir() else "bin")
    others = [name for name in _OTHERS if (folder / name).is_file()]
    if others:
        notes.append(f"not changed: {', '.join(others)}")
    if not changes:
        raise AttnDoctorError(
            f"{prefix} has no activation script to write to; use --write-to shell"
        )
    activate = {"fish": "activate.fish", "powershell": "Activate.ps1"}.get(shell, "activate")
    source = ". " if shell in ("sh", "powershell") else "source "
    return FileChanges(
        kind="environment",
        changes=tuple(changes),
        exports=exports,
        notes=tuple(notes),
        then=f"activate it again: {source}{folder / activate}",
    )


def _conda(exports: Exports, prefix: Path) -> FileChanges:
    """Our own hook files, which conda reads when the environment is activated and deactivated."""
    changes = []
    for ending, family in _CONDA:
        for folder, lines in (
            ("activate.d", enter_lines(exports, family)),
            ("deactivate.d", leave_lines(exports, family, path=True)),
        ):
            path = prefix / "etc" / "conda" / folder / f"{_HOOK}.{ending}"
            before = _read(path)
            after = marked_block.with_block(before or b"", lines, str(path))
            changes.append(_change(path, before, after or b""))
    return FileChanges(
        kind="environment",
        changes=tuple(changes),
        exports=exports,
        then=f"run conda activate {prefix} again",
    )


def _github(exports: Exports, environ: Mapping[str, str]) -> FileChanges:
    """The files that pass variables from one step of a GitHub Actions job to the next."""
    changes = []
    texts = {"GITHUB_ENV": [f"{name}={value}" for name, value in exports.variables.items()]}
    if exports.path:
        texts["GITHUB_PATH"] = [exports.path]
    for variable, lines in texts.items():
        path = Path(environ.get(variable, ""))
        if not path.is_absolute() or not path.is_file():
            raise AttnDoctorError(
                f"{variable} does not name a file; --write-to github is for a workflow"
            )
        before = _read(path) or b""
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        known = before.decode("utf-8", "replace").splitlines()
        new = [line for line in lines if line not in known]
        after = before + gap + "".join(f"{line}\n" for line in new).encode() if new else before
        changes.append(_change(path, before, after))
    return FileChanges(
        kind="github",
        changes=tuple(changes),
        exports=exports,
        then="the next steps of the job have it",
    )


# Files


def _read(path: Path) -> bytes | None:
    """The bytes of a file that may be changed, or None if it is not there."""
    try:
        return read_bytes(path, DATA)
    except FileNotFoundError:
        if path.is_symlink():
            raise AttnDoctorError(
                f"{path} is a link to {os.path.realpath(path)}, which does not exist; create"
                " that file or remove the link, then run this again"
            ) from None
        return None
    except OSError as error:
        raise AttnDoctorError(f"{path} cannot be read: {error.strerror}") from None


def _change(path: Path, before: bytes | None, after: bytes) -> Change:
    """A change that can be applied. Raises `AttnDoctorError` if it cannot."""
    real = Path(os.path.realpath(path))
    change = Change(path=path, real=real, before=before, after=after)
    if not change.needed:
        return change
    link = f" (the target of {path})" if real != path else ""
    if before is not None and hasattr(os, "getuid"):
        owner = real.stat().st_uid
        if owner != os.getuid():
            raise AttnDoctorError(
                f"{real}{link} belongs to user {owner}, not to you ({os.getuid()}); it was"
                " not changed. Print the lines without --write and add them where you may"
            )
    # A new file is renamed into the folder, so the folder has to be writable.
    folder = next(one for one in real.parents if one.is_dir())
    for place, what in ((real, "is read-only"), (folder, "is in a folder you may not write to")):
        if place.exists() and not os.access(place, os.W_OK):
            raise AttnDoctorError(
                f"{real}{link} {what}; nothing was changed. Print the lines without --write and add"
                " them where you may"
            )
    return change


def _same(one: Path, other: Path) -> bool:
    """Two names of one file, as on file systems that ignore case."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def write(plan: FileChanges, journal: Journal) -> tuple[Change, ...]:
    """Write every file that has to change; return those that were written.

    Raises `AttnDoctorError` if a file changed since it was read, or cannot be written.
    """
    needed = tuple(one for one in plan.changes if one.needed)
    for change in needed:
        _unchanged(change)
        journal.write_file(change.path, change.after)
    return needed


def append(plan: FileChanges) -> tuple[Change, ...]:
    """Append to the files of GitHub Actions, which last for one step and are never restored."""
    needed = tuple(one for one in plan.changes if one.needed)
    for change in needed:
        with change.real.open("ab") as file:
            file.write(change.after[len(change.before or b"") :])
    return needed


def _unchanged(change: Change) -> None:
    """Raise `AttnDoctorError` if the file changed after the change was shown."""
    try:
        now = read_bytes(change.real, DATA) if os.path.lexists(change.real) else None
    except OSError as error:
        raise AttnDoctorError(f"{change.real} cannot be read: {error.strerror}") from None
    if now != change.before:
        raise AttnDoctorError(f"{change.real} was changed in the meantime; run this again")
