"""Fetches what the site's first page needs to explain a pasted log: Python for browsers.

    python tools/docs_site/paste_assets.py

It takes Pyodide from npm and msgspec from PyPI, in fixed versions, into `build/paste/`. A build of
the site copies them. With Node.js, it also keeps the memory of a Python that has loaded the engine.
Without them the site has no field to paste into. The build itself needs no network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "paste"
PYODIDE, PYODIDE_SHA256 = (
    "314.0.7",
    "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0",
)
MSGSPEC, MSGSPEC_SHA256 = (
    "0.22.0",
    "a66b1766311e42371e509c996c3933b161c7ae0eabdf361af5316dec197e1022",
)
#: The Python and the platform of this Pyodide.
PYTHON, PLATFORM = "3.14", "pyemscripten_2026_0_wasm32"
#: The files of Pyodide that a browser loads.
RUNTIME = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
_WHEEL = "msgspec.whl"
#: The file that the build of the site makes beside them.
ENGINE = "engine.bin"
#: How many known messages there are for each one that is explained before the memory is kept.
_EACH = 20
#: What no log is explained with, by the beginning of its path.
_LEFT_OUT = ("attn_doctor/cli/", "attn_doctor/translations/")
#: Where a wheel of attn-doctor has its rules.
PLACE = "attn_doctor/_rules"


def fetch(folder: Path = FOLDER) -> None:
    """Write Pyodide and msgspec into a folder. Raises `SystemExit` for a file that differs."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        packed = ("npm", "pack", "--silent", f"pyodide@{PYODIDE}")
        subprocess.run(packed, cwd=place, check=True, stdout=subprocess.DEVNULL, timeout=300)
        subprocess.run(_pip(place), check=True, timeout=300)
        (archive,), (wheel,) = place.glob("*.tgz"), place.glob("*.whl")
        _verified(archive, PYODIDE_SHA256)
        _verified(wheel, MSGSPEC_SHA256)
        with tarfile.open(archive) as files:
            for name in RUNTIME:
                content = files.extractfile(f"package/{name}")
                if content is None:
                    raise SystemExit(f"pyodide {PYODIDE} has no {name}")
                (folder / name).write_bytes(content.read())
        (folder / _WHEEL).write_bytes(wheel.read_bytes())


@cache
def files(folder: Path = FOLDER) -> dict[str, Path]:
    """The files for the site by name, the engine among them; empty if `fetch` was not run."""
    if not all((folder / name).exists() for name in (*RUNTIME, _WHEEL)):
        return {}
    return {name: folder / name for name in RUNTIME} | {ENGINE: _engine(folder)}


def _pip(place: Path) -> list[str]:
    options = [f"--platform={PLATFORM}", f"--python-version={PYTHON}", f"--dest={place}"]
    download = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    return [sys.executable, *download, *options, f"msgspec=={MSGSPEC}"]


def _verified(file: Path, expected: str) -> None:
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected:
        raise SystemExit(f"{file.name} has the sha256 {found}, not {expected}")


def _engine(folder: Path) -> Path:
    """Python's memory with attn-doctor, its rules, packaging and msgspec, and their files.

    Raises `SystemExit` without Node.js.
    """
    node = shutil.which("node")
    if node is None:
        raise SystemExit(f"A site with {folder} needs Node.js: install it, or delete the folder.")
    made = folder / ENGINE
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in _members(folder):
            file = Path(scratch, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        script = Path(__file__).with_name("paste_memory.mjs")
        subprocess.run(
            [node, script, folder, scratch, made],
            input=json.dumps(_warm_up()),
            text=True,
            check=True,
            timeout=600,
        )
    return made


def _warm_up() -> list[str]:
    """Logs that are explained before the memory is kept: what is loaded once is then loaded."""
    from attn_doctor.rulebook.rule_files import read_folder

    rules = read_folder(ROOT / "rules")
    printed = [symptom.logs[0] for rule in rules for symptom in rule.symptoms if symptom.logs]
    return ["", *printed[::_EACH]]


def _members(folder: Path) -> Iterator[tuple[str, bytes]]:
    from attn_doctor.backends import catalogue_files
    from attn_doctor.backends.catalogue import INDEX
    from attn_doctor.rulebook import library

    for source, place in ((ROOT / "attn_doctor", "attn_doctor"), (ROOT / "rules", PLACE)):
        for file in sorted(one for one in source.rglob("*") if one.is_file()):
            name = f"{place}/{file.relative_to(source).as_posix()}"
            if "__pycache__" not in file.parts and not name.startswith(_LEFT_OUT):
                yield name, file.read_bytes()
    yield "paste.py", Path(__file__).with_name("paste.py").read_bytes()
    yield f"{PLACE}/{library.INDEX}", library.build_index(ROOT / "rules")
    yield f"{PLACE}/{INDEX}", catalogue_files.build_index(ROOT / "rules")
    spec = importlib.util.find_spec("packaging")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(place).glob("*.py")):
            yield f"packaging/{file.name}", file.read_bytes()
    with zipfile.ZipFile(folder / _WHEEL) as wheel:
        for name in wheel.namelist():
            yield name, wheel.read(name)


if __name__ == "__main__":
    fetch()
