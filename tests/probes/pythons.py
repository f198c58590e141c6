"""Real interpreters of this machine, and virtual environments made from them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

#: Where version managers put interpreters, below the home directory.
PLACES = (".pyenv/versions/*/bin/python", ".local/share/uv/python/*/bin/python3")
NAMES = ("python3", *(f"python3.{minor}" for minor in range(8, 20)))
SYSTEM = ("/usr/bin/python3", "/usr/local/bin/python3") if os.name == "posix" else ()


@cache
def pythons() -> dict[str, Path]:
    """One interpreter for each version found (of Python 3.6 and newer), by its version."""
    base = Path(getattr(sys, "_base_executable", sys.executable))
    shims = (".pyenv/shims/", ".asdf/shims/")
    on_path = (shutil.which(name) or "" for name in NAMES)
    places = [base, *map(Path, SYSTEM), *(Path(p) for p in on_path if p)]
    for pattern in PLACES:
        places += sorted(Path.home().glob(pattern))
    found: dict[str, Path] = {}
    for path in places:
        if path.is_file() and not any(part in path.as_posix() for part in shims):
            asked = [str(path), "-I", "-S", "-c", "import sys; print(sys.version.split()[0])"]
            ran = subprocess.run(asked, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                found.setdefault(ran.stdout.strip().rstrip("+"), path)
    return dict(sorted(found.items(), key=lambda item: number(item[0])))


def number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def examinable() -> list[str]:
    return [version for version in pythons() if number(version) >= (3, 8)]


def too_old() -> list[str]:
    return [version for version in pythons() if (3, 6) <= number(version) < (3, 8)]


def make_venv(python: Path, folder: Path, *options: str) -> Path:
    """Make a virtual environment without pip, which is fast, and return its interpreter."""
    subprocess.run(
        [python, "-I", "-m", "venv", "--without-pip", *options, folder],
        check=True,
        capture_output=True,
    )
    scripts = "Scripts" if os.name == "nt" else "bin"
    return folder / scripts / ("python.exe" if os.name == "nt" else "python")
