"""Every command answers although a folder that it asks about never does."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import attn_doctor
from attn_doctor import files
from attn_doctor.backends import catalogue_files
from attn_doctor.backends.catalogue import INDEX
from attn_doctor.rulebook import library
from attn_doctor.worker import reach
from tests.attacks.hung import Hung
from tests.attacks.means import DOCUMENTED, own_home
from tests.command import PLAIN

PACKAGE = Path(attn_doctor.__file__).parent
#: Seconds that an examination may take, and how much later the answer may come.
LIMIT, LATER = 4.0, 1.0
#: Commands that compile a trial extension with a toolkit of this machine, and seconds for that.
COMPILING, TRIAL = ("fix cuda-home",), 4.0
#: Seconds after which a command counts as hung.
PATIENCE = 12

PLACES = (
    "HOME",
    "PATH",
    "VIRTUAL_ENV",
    ".pth",
    "working directory",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XDG_CACHE_HOME",
    "CUDA_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
)
COMMANDS = (
    "check",
    "backends",
    "report",
    "explain LOG",
    "fix --dry-run",
    "cache status",
    "cache verify",
    "cache clear --dry-run",
    "cache why",
    "cache export OUT",
    "cache import LOG --dry-run",
    "build-kernels --preset flux1@512x512 --dry-run",
    "rules list",
    "rules status",
    "rules list --rules rules",
    "install flash -n --no-read",
    "fix history",
    "fix wheels",
    "fix cuda-home",
    "report --issue",
)
#: Commands that name something in the dead folder, `DEAD`: refused in one sentence.
NAMING = (
    "check --rules DEAD/x",
    "check --policy DEAD/p.toml",
    "check --facts DEAD/f.json",
    "check --config DEAD/c.json",
    "check --baseline DEAD/b.json",
    "check --python DEAD/bin/python",
    "check -o DEAD/x",
    "explain DEAD/x.log",
    "explain LOG --against DEAD/x.log",
    "report --record DEAD/x",
    "cache status --cache-dir DEAD/x",
    "cache restore --cache-dir DEAD/x",
    "cache import DEAD/x.attn -n",
    "build-kernels --cache-dir DEAD/x --preset flux1@512x512 -n",
    "fix wheels DEAD/x.whl",
    "rules lint --rules DEAD/x",
    "rules new a/b --rules DEAD/x",
    "rules update DEAD/x.whl",
)


class Answer(NamedTuple):
    """What a command did. `code` is None if it had to be killed."""

    code: int | None
    text: str
    seconds: float


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Hung]:
    """A file system that hangs as soon as `hang` is called."""
    folder = tmp_path / "dead"
    folder.mkdir()
    try:
        made = Hung(folder, hang=False)
    except OSError as error:
        pytest.skip(f"cannot mount a file system: {error}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program as a wheel has it, with the index of rules, started as its console script is.

    So the working directory is not imported from.
    """
    root = tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, root / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    rules = root / PACKAGE.name / "_rules"
    if not rules.is_dir():  # a checkout
        shutil.copytree(PACKAGE.parent / "rules", rules)
        (rules / library.INDEX).write_bytes(library.build_index(rules))
        (rules / INDEX).write_bytes(catalogue_files.build_index(rules))
    compileall.compile_dir(root, quiet=1)
    script = root / "attn-doctor"
    script.write_text(
        f"import faulthandler, sys\nsys.path.insert(0, {str(root)!r})\n"
        f"faulthandler.dump_traceback_later({PATIENCE}, exit=True)\n"  # what waits, and where
        "from attn_doctor.__main__ import main\nmain()\n"
    )
    return [sys.executable, str(script)]


@pytest.fixture
def slow(tmp_path: Path, started: list[str]) -> float:
    """Seconds that this busy machine adds to a command that takes half a second."""
    start = time.monotonic()
    subprocess.run([*started, "check"], cwd=tmp_path, capture_output=True, check=False)
    return max(0.0, time.monotonic() - start - 0.5)


def environment(folder: Path, dead: Path, place: str) -> dict[str, str]:
    """The variables of a user of whom one folder is dead."""
    home = folder / "home"
    home.mkdir()
    variables = {**own_home(home), **PLAIN, "PYTHONNOUSERSITE": "1"}
    variables["PYTHONPATH"] = ""
    variables |= {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}  # an index may be slow as well
    if place == "PATH":
        variables["PATH"] = f"{dead}/bin:{variables['PATH']}"
    elif place == ".pth":
        variables["VIRTUAL_ENV"] = str(_environment_with(folder, f"{dead}/packages\n"))
    elif place == "HOME":
        variables = {name: one for name, one in variables.items() if not name.startswith("XDG_")}
        variables["HOME"] = str(dead)
    elif place != "working directory":
        variables[place] = str(dead / "folder")
    return variables


def _environment_with(folder: Path, line: str) -> Path:
    """A virtual environment with `line` in a `.pth` file."""
    root = folder / "env"
    version = "python{}.{}".format(*sys.version_info)
    packages = root / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / "dead.pth").write_text(line)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    home = os.path.dirname(os.path.realpath(sys.executable))
    (root / "pyvenv.cfg").write_text(f"home = {home}\n")
    return root


def run(started: list[str], command: str, folder: Path, hung: Hung, place: str) -> Answer:
    """Run `command` while `place` is dead, and kill it long after its time."""
    log = folder / "log.txt"
    log.write_text("RuntimeError: CUDA error: no kernel image is available\n")
    names = {"LOG": str(log), "OUT": str(folder / "out.tgz")}
    words = [names.get(word, word) for word in command.replace("DEAD", str(hung.path)).split()]
    environ = environment(folder, hung.path, place)
    start = time.monotonic()
    # The child is started by a shell of its own: changing to the folder needs an answer.
    with subprocess.Popen(
        [*started, *words],
        cwd=hung.path if place == "working directory" else folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        hung.hang()
        try:
            out, _ = child.communicate(timeout=2 * PATIENCE)
            code: int | None = child.returncode
        except subprocess.TimeoutExpired:
            child.kill()
            out, code = b"", None
    return Answer(code, out.decode(errors="replace"), time.monotonic() - start)


@pytest.mark.attack
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_dead_folder_holds_nothing_up(
    tmp_path: Path, hung: Hung, started: list[str], place: str, command: str, slow: float
) -> None:
    answer = run(started, command, tmp_path, hung, place)
    assert "Timeout (" not in answer.text, answer.text
    assert answer.code in DOCUMENTED, answer.text
    assert "Traceback" not in answer.text
    trial = TRIAL if command in COMPILING and "trial" in answer.text else 0.0
    assert answer.seconds <= LIMIT + LATER + trial + slow


@pytest.mark.attack
@pytest.mark.parametrize("command", NAMING)
def test_what_a_command_names_on_a_dead_disk_is_refused(
    tmp_path: Path, hung: Hung, started: list[str], command: str, slow: float
) -> None:
    answer = run(started, command, tmp_path, hung, "nothing else")
    assert answer.code == 2, answer.text
    assert answer.text.count(f"{hung.path} does not answer") == 2, answer.text
    assert answer.seconds <= LIMIT + LATER + slow


@pytest.mark.attack
@pytest.mark.parametrize("command", ["fix history", "fix undo"])
def test_runs_on_a_dead_disk_are_not_called_none(
    tmp_path: Path, hung: Hung, started: list[str], command: str
) -> None:
    answer = run(started, command, tmp_path, hung, "HOME")
    assert answer.code == 2
    assert "fixes: " in answer.text


@pytest.mark.attack
def test_check_says_what_is_dead(tmp_path: Path, hung: Hung, started: list[str]) -> None:
    answer = run(started, "check --json", tmp_path, hung, "HOME")
    assert f"attn-doctor: {hung.path} does not answer and is left out" in answer.text
    gaps = json.loads(answer.text[answer.text.index("\n{") :])["facts"]["gaps"]
    assert gaps["directories[0].exists"] == (
        f"{hung.path} cannot be reached: {hung.path} does not answer"
    )


@pytest.mark.attack
def test_a_dead_environment_has_the_right_reason(
    tmp_path: Path, hung: Hung, started: list[str]
) -> None:
    answer = run(started, "check", tmp_path, hung, "VIRTUAL_ENV")
    assert answer.code == 2
    assert f"cannot be reached: {hung.path} does not answer" in answer.text


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known to be dead, before and after the test."""
    monkeypatch.setattr(reach, "_dead", set())
    monkeypatch.setattr(reach, "left_out", {})


@pytest.mark.posix
def test_a_dead_folder_is_found_and_refused(
    tmp_path: Path, hung: Hung, forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung.hang()
    (tmp_path / "link").symlink_to(hung.path / "inside")
    (tmp_path / "up").symlink_to("link/../..")
    start = time.monotonic()
    assert reach.look({"A": f"/usr/bin:{hung.path}/bin"}, []) == (str(hung.path),)
    assert time.monotonic() - start < 3
    for path in (hung.path, hung.path / "x" / "y", tmp_path / "link", tmp_path / "link" / "z"):
        with pytest.raises(reach.NoAnswerError, match=f"{hung.path} does not answer"):
            reach.refuse(path)
        with pytest.raises(reach.NoAnswerError):
            files.read_bytes(path, 1)
    reach.refuse(tmp_path)
    variables = {"PATH": f"/usr/bin:{hung.path}/bin:/bin", "TMPDIR": str(tmp_path)}
    reach.leave_out(variables)
    assert variables == {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}


@pytest.mark.posix
def test_no_function_of_python_touches_a_dead_folder(
    tmp_path: Path, hung: Hung, forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung.hang()
    reach.look({"A": f"{hung.path}/bin"}, [])
    for name in reach._QUESTIONS:  # put back afterwards
        monkeypatch.setattr(os, name, getattr(os, name))
    monkeypatch.setattr("io.open", open)
    monkeypatch.setattr("builtins.open", open)
    reach.guard()
    inside = hung.path / "x"
    (tmp_path / "link").symlink_to(inside)
    for asks in (
        *(os.stat, os.listdir, os.readlink, Path.is_file, Path.exists, Path.read_bytes, open),
        *(lambda path: os.rename(tmp_path, path), lambda path: os.access(path, os.R_OK)),
    ):
        with pytest.raises(reach.NoAnswerError, match="does not answer"):
            asks(inside)
    with pytest.raises(reach.NoAnswerError, match="does not answer"):
        os.stat(os.fsencode(tmp_path / "link"))
    assert not os.path.exists(inside)
    assert os.path.realpath(inside) == str(inside)
    assert os.listdir(tmp_path) == os.listdir(os.open(tmp_path, os.O_RDONLY))
    shutil.rmtree(tmp_path / "link", ignore_errors=True)


@pytest.mark.posix
def test_a_dead_mount_is_found_although_nothing_names_it(hung: Hung, forgetful: None) -> None:
    hung.hang()
    assert reach.look({}, []) == ()
    with pytest.raises(reach.NoAnswerError):
        reach.refuse(hung.path / "packages")


def test_living_folders_are_asked_in_a_moment(tmp_path: Path, forgetful: None) -> None:
    start = time.monotonic()
    assert reach.look({"A": str(tmp_path), "B": f"{tmp_path}/none"}, ["/usr/\0", "x/y"]) == ()
    assert time.monotonic() - start < 0.5
    reach.refuse(tmp_path)
