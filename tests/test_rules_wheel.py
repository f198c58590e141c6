"""`rules update`, `status` and `rollback`, with a copy of attn-doctor as a wheel installs it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import attn_doctor
from attn_doctor.backends import catalogue, catalogue_files
from attn_doctor.errors import AttnDoctorError, RuleError
from attn_doctor.facts import Facts, Package, to_json
from attn_doctor.fixes.locks import lock
from attn_doctor.rulebook import library
from attn_doctor.rulebook.updates import release_of
from attn_doctor.rules_wheel import stage, use
from tests.command import Ended
from tests.command import run as in_process

RULES = library.folder()
OWN = release_of(RULES).version
Run = Callable[..., Ended]


def wheel(
    folder: Path,
    version: str = "2026.12.1",
    texts: dict[str, str] | None = None,
    name: str = "",
    record: Callable[[str], str] = lambda line: line,
) -> Path:
    """A wheel of all rules. `texts` takes the place of files, or adds to them."""
    files = {
        f"attn_doctor_rules/{path.relative_to(RULES).as_posix()}": path.read_bytes()
        for path in RULES.rglob("*")
        if path.is_file()
    }
    release = f'schema = 1\nversion = "{version}"\n'
    files["attn_doctor_rules/tables/release.toml"] = release.encode()
    newer = files["attn_doctor_rules/tables/releases.toml"].replace(b'"0.42.1"', b'"0.98.0"')
    files["attn_doctor_rules/tables/releases.toml"] = newer
    files |= {path: text.encode() for path, text in (texts or {}).items()}
    info = f"attn_doctor_rules-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: attn-doctor-rules\nVersion: {version}\n".encode()
    )
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [
        record(f"{path},sha256={_digest(content)},{len(content)}")
        for path, content in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    target = folder / (name or f"attn_doctor_rules-{version}-py3-none-any.whl")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with attn-doctor and its indexes, as in site-packages."""
    site = tmp_path_factory.mktemp("site")
    source = Path(attn_doctor.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "_rules")
    shutil.copytree(source, site / "attn_doctor", ignore=ignored)
    packed = site / "attn_doctor" / "_rules"
    shutil.copytree(RULES, packed)
    (packed / library.INDEX).write_bytes(library.build_index(RULES))
    (packed / "backends.json").write_bytes(catalogue_files.build_index(RULES))
    return site


@pytest.fixture
def run(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """`attn-doctor` with the rules of that folder, in a home of its own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setattr(library, "PACKAGE", installed / "attn_doctor")
    remembered = (
        *(library._folders, library._index, library.tables, library._all, library.harms),
        catalogue.load,
    )

    def command(*arguments: str) -> Ended:
        for cached in remembered:
            cached.cache_clear()
        return in_process(*arguments, HOME=str(home), XDG_DATA_HOME="")

    yield command
    for cached in remembered:
        cached.cache_clear()


@pytest.fixture
def program(installed: Path, tmp_path: Path) -> Run:
    """The same in a process of its own."""
    kept = ("PATH", "LANG", "SYSTEMROOT")
    environ = {name: value for name, value in os.environ.items() if name in kept}
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    environ |= {"PYTHONPATH": str(installed), "HOME": str(home), "COLUMNS": "200"}

    def command(*arguments: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "attn_doctor", *arguments],
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return command


def state(run: Run) -> dict[str, object]:
    ended = run("rules", "status", "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


@pytest.mark.thorough
def test_update_and_rollback(run: Run, tmp_path: Path) -> None:
    assert (state(run)["version"], state(run)["updated"]) == (OWN, False)
    made = str(wheel(tmp_path))
    asked = run("rules", "update", made)
    assert (asked.returncode, "pass --yes" in asked.text) == (2, True)
    assert not state(run)["updated"]
    taken = run("rules", "update", "--yes", made)
    assert (taken.returncode, "new       2026.12.1" in taken.stdout) == (0, True)
    found = state(run)
    assert (found["version"], found["updated"], found["previous"]) == ("2026.12.1", True, "")
    # The tables of the update are those that `check` uses.
    facts = tmp_path / "facts.json"
    facts.write_bytes(to_json(Facts(diffusers=Package(installed=True, version="0.97.0"))))
    assert json.loads(run("check", "--json", "--facts", str(facts)).stdout)["newer_releases"] == []
    assert "Nothing to do" in run("rules", "update", "--yes", made).stdout
    second = wheel(tmp_path, "2026.12.1.1")
    assert run("rules", "update", "--yes", str(second)).returncode == 0
    assert state(run)["previous"] == "2026.12.1"
    assert run("rules", "rollback", "--yes").returncode == 0
    assert state(run)["version"] == "2026.12.1"
    assert run("rules", "rollback", "--yes").returncode == 0
    assert (state(run)["version"], state(run)["updated"]) == (OWN, False)
    again = run("rules", "rollback", "--yes")
    assert (again.returncode, "no update is in use" in again.stderr) == (2, True)


@pytest.mark.recipes
def test_two_updates_do_not_collide(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "home" / ".local" / "share" / "attn-doctor" / "rules"
    place.mkdir(parents=True, mode=0o700)
    handle = lock(place / ".lock")
    older, newer = wheel(tmp_path), wheel(tmp_path, "2026.12.2")
    try:
        ended = run("rules", "update", str(newer), "--yes")
        assert ended.returncode == 2
        assert "is in use by another update" in ended.text
    finally:
        os.close(handle)
    (tmp_path / "staged").mkdir()
    staged = stage(older, tmp_path / "staged")
    assert run("rules", "update", str(newer), "--yes").returncode == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(place.parents[1]))
    with pytest.raises(AttnDoctorError, match="another update has just taken rules 2026"):
        use(staged)


@pytest.mark.recipes
def test_pip_fetches_the_wheel(program: Run, tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    made = wheel(index)
    local = ("--pip=--no-index", f"--pip=--find-links={index}")
    assert program("rules", "update", "--yes", *local).returncode == 0
    assert state(program)["version"] == "2026.12.1"
    assert program("backends").returncode == 0
    assert program("rules", "rollback", "--yes").returncode == 0
    # Hashes of a file of requirements count.
    file = tmp_path / "rules.txt"
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    file.write_text(f"attn-doctor-rules==2026.12.1 --hash=sha256:{'0' * 64}\n")
    refused = program("rules", "update", "--yes", *local, f"--pip=--requirement={file}")
    assert (refused.returncode, "no rules were taken" in refused.stderr) == (2, True)
    file.write_text(f"attn-doctor-rules==2026.12.1 --hash=sha256:{digest}\n")
    taken = program("rules", "update", "--yes", *local, f"--pip=--requirement={file}")
    assert taken.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows tells no owners")
def test_what_another_user_could_change_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("rules", "update", "--yes", str(wheel(tmp_path))).returncode == 0
    folder = tmp_path / "home" / ".local" / "share" / "attn-doctor" / "rules"
    (folder / "2026.12.1").chmod(0o777)
    refused = run("rules", "status")
    assert (refused.returncode, "is not used" in refused.stderr) == (2, True)
    (folder / "2026.12.1").chmod(0o700)
    (folder / "current.json").write_text("{")
    damaged = run("rules", "list")
    assert (damaged.returncode, "is damaged; delete it" in damaged.stderr) == (2, True)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"attn_doctor": "0.0.9"}, "attn-doctor 0.0.9 took it"),
        ({"version": "2026.1.1"}, f"attn-doctor has {OWN} itself"),
        ({"version": "2027.1.1"}, "2027.1.1 is missing"),
    ],
)
@pytest.mark.posix
@pytest.mark.thorough
def test_an_update_that_does_not_fit_is_not_used(
    changed: dict[str, str], why: str, run: Run, tmp_path: Path
) -> None:
    assert run("rules", "update", "--yes", str(wheel(tmp_path))).returncode == 0
    file = tmp_path / "home" / ".local" / "share" / "attn-doctor" / "rules" / "current.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    found = state(run)
    assert (found["version"], found["updated"]) == (OWN, False)
    assert why in str(found["unused"])


@pytest.mark.skipif(find_spec("pip") is None, reason="this Python has no pip")
def test_an_index_that_does_not_have_it(run: Run, tmp_path: Path) -> None:
    ended = run("rules", "update", "--pip=--no-index", f"--pip=--find-links={tmp_path}")
    assert ended.returncode == 2
    assert "no rules were taken: No matching distribution found" in ended.stderr


def _wrong(line: str) -> str:
    return line.replace("sha256=", "sha256=A") if "requires.toml" in line else line


@pytest.mark.parametrize(
    ("texts", "more", "said"),
    [
        (
            {"attn_doctor_rules/tables/release.toml": 'schema = 2\nversion = "2026.12.1"\n'},
            {},
            "update attn-doctor first",
        ),
        ({"attn_doctor_rules/tables/release.toml": "x"}, {}, "release.toml"),
        ({}, {"name": "attn_doctor_rules-2027.1-py3-none-any.whl"}, "not what its name says"),
        ({}, {"record": _wrong}, "differs from what its RECORD says"),
        ({"attn_doctor_rules/../../x.toml": "x"}, {}, "is not a file of rules"),
        ({"attn_doctor_rules/x.py": "x"}, {}, "is not a file of rules"),
        ({"other/x.toml": "x"}, {}, "is not a file of rules"),
        ({"attn_doctor_rules/flex/new.toml": "title = 3\n"}, {}, "flex/new.toml"),
        ({"attn_doctor_rules/tables/backends/x.toml": "[[backend]]\n"}, {}, "x.toml"),
    ],
    ids=["schema", "release", "name", "digest", "outside", "code", "place", "rule", "backend"],
)
@pytest.mark.posix
@pytest.mark.thorough
def test_what_is_not_right_is_refused(
    texts: dict[str, str], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    made = wheel(tmp_path, texts=texts, **more)
    (tmp_path / "rules").mkdir()
    with pytest.raises(RuleError, match=said):
        stage(made, tmp_path / "rules")


def test_a_file_that_is_not_a_wheel(tmp_path: Path) -> None:
    file = tmp_path / "attn_doctor_rules-2026.12.1-py3-none-any.whl"
    file.write_text("no")
    with pytest.raises(RuleError, match="cannot be unpacked"):
        stage(file, tmp_path)


@pytest.mark.parametrize(
    ("header", "place", "value", "said"),
    [(b"PK\1\2", 8, 1, "encrypted"), (b"PK\3\4", 30, 0, "differ")],
    ids=["a flag", "a name"],
)
@pytest.mark.thorough
def test_a_wheel_with_one_changed_byte(
    tmp_path: Path, header: bytes, place: int, value: int, said: str
) -> None:
    made = wheel(tmp_path)
    data = bytearray(made.read_bytes())
    data[data.rfind(header) + place] = value
    made.write_bytes(data)
    (tmp_path / "rules").mkdir()
    with pytest.raises(RuleError, match=said):
        stage(made, tmp_path / "rules")


@pytest.mark.recipes
def test_pip_builds_the_wheel(tmp_path: Path) -> None:
    package = Path(__file__).parents[1] / "rules_package"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", str(package)]
    subprocess.run([*command, "--wheel-dir", str(tmp_path)], check=True, timeout=300)
    (made,) = tmp_path.glob("attn_doctor_rules-*.whl")
    (tmp_path / "rules").mkdir()
    assert stage(made, tmp_path / "rules").release.version == OWN
