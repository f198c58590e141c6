"""Real environments with a tiny torch, and a folder of tiny wheels for real installers.

A plugin of pytest, so that all folders of tests share one environment of each kind.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from tests.command import Ended, installed, run

TORCH = "__version__ = '2.11.0+cu130'\ncuda = '13.0'\nhip = None\ndebug = False\ngit_version = ''\n"

#: Before a command: where the tests run in the background, what they start would ignore Ctrl-C.
_HEARS_CTRL_C = [
    sys.executable,
    "-c",
    (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        " os.execv(sys.argv[1], sys.argv[1:])"
    ),
]


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = ()
) -> Path:
    """A wheel for every Python, made by hand."""
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    meta += "".join(f"Requires-Dist: {one}\n" for one in requires)
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {**files, f"{info}/METADATA": meta, f"{info}/WHEEL": tags}
    path = folder / f"{name}-{version}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in whole.items():
            archive.writestr(place, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += f"{place},sha256={digest.rstrip(b'=').decode()},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of torch, of two Tritons, and of a few more."""
    folder = tmp_path_factory.mktemp("wheels")
    torch = {
        "torch/__init__.py": "",
        "torch/version.py": TORCH,
        "torch/nn/attention/flex_attention.py": "",
    }
    wheel(folder, "torch", "2.11.0+cu130", torch, ("triton==3.6.0",))
    wheel(folder, "triton", "3.5.0", {"triton/__init__.py": "old = 1\n", "triton/old.py": ""})
    wheel(folder, "triton", "3.6.0", {"triton/__init__.py": "new = 1\n", "triton/new.py": ""})
    many = {f"bulk/m{number}.py": f"x = {number}\n" for number in range(1500)}
    wheel(folder, "bulk", "2.0", {"bulk/__init__.py": "", **many})
    wheel(folder, "bulk", "1.0", {"bulk/__init__.py": "", "bulk/first.py": ""})
    wheel(folder, "other", "1.0", {"other.py": ""})
    wheel(folder, "diffusers", "0.30.0", {"diffusers/__init__.py": ""})
    # An upgrade that would move torch: what `xformers -U` does.
    wheel(folder, "diffusers", "0.40.0", {"diffusers/__init__.py": "new = 1\n"}, ("torch>=2.12",))
    wheel(folder, "torch", "2.12.0", {**torch, "torch/version.py": TORCH.replace("11", "12")})
    _slow(folder)
    return folder


def _slow(folder: Path) -> None:
    """A source package whose build takes a minute, and one whose build fails as flash-attn's."""
    for name, what in (
        ("slow", "import time; time.sleep(60)"),
        ("broken", "raise ModuleNotFoundError(\"No module named 'torch'\")"),
    ):
        source = folder / f"{name}-1.0"
        source.mkdir()
        (source / "pyproject.toml").write_text(
            "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n"
        )
        (source / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (source / "own.py").write_text(
            "import os\n"
            "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
            f"    info = '{name}-1.0.dist-info'\n"
            "    os.mkdir(os.path.join(folder, info))\n"
            "    with open(os.path.join(folder, info, 'METADATA'), 'w') as file:\n"
            f"        file.write('Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n')\n"
            "    return info\n"
            "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
            f"    {what}\n"
        )
        shutil.make_archive(str(source), "gztar", folder, source.name)
        shutil.rmtree(source)


PACKAGES = ("torch==2.11.0+cu130", "triton==3.5.0", "bulk==1.0", "diffusers==0.30.0")


def _once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """What `make` makes in a folder: one worker does for all, since pip takes five seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    made = folder / "made"
    try:
        folder.mkdir()
    except FileExistsError:
        until(made.exists, 300)
    else:
        make(folder / "env")
        made.touch()
    return folder / "env"


@pytest.fixture(scope="session")
def _with_pip(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """An environment with pip, made once; tests copy it."""
    return _once(tmp_path_factory, "with-pip", lambda folder: _make_with_pip(folder, wheels))


def _make_with_pip(folder: Path, wheels: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "-f", str(wheels), *PACKAGES],
        check=True,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )


@pytest.fixture(scope="session")
def uv() -> str:
    """The path of uv itself, wrappers followed."""
    if sys.platform != "linux":
        pytest.skip("the rules that are fixed are about Linux")
    found = LocalHost().which("uv")
    if not found:
        pytest.skip("uv is not here")
    return os.path.realpath(found)


@pytest.fixture(scope="session")
def _without_pip(tmp_path_factory: pytest.TempPathFactory, wheels: Path, uv: str) -> Path:
    """An environment without pip, made once; tests copy it."""
    folder = tmp_path_factory.mktemp("without-pip") / "env"
    venv.create(folder, with_pip=False)
    install = [uv, "pip", "install", "-q", "--no-deps", "--no-index", "--python"]
    subprocess.run(
        [*install, str(folder / "bin" / "python"), "-f", str(wheels), *PACKAGES],
        check=True,
        env={**os.environ, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder.parent / "cache")},
    )
    return folder


class Environment:
    """An environment, and attn-doctor's own state beside it."""

    def __init__(self, folder: Path, wheels: Path, uv: str = "") -> None:
        self.prefix = folder / "env"
        self.python = self.prefix / "bin" / "python"
        self.state = folder / "state"
        self.rules = folder / "rules"
        self.uv = uv
        tools = folder / "tools"
        tools.mkdir()
        if uv:
            (tools / "uv").symlink_to(uv)
        home = folder / "home"
        home.mkdir()
        self.variables = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(home),
            "XDG_STATE_HOME": str(self.state),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_FIND_LINKS": str(wheels),
            "UV_CACHE_DIR": str(folder / "uv-cache"),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
        }

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return next(self.prefix.glob("lib/python*/site-packages"))

    def fix(
        self, *arguments: str, variables: Mapping[str, str] | None = None, examine: bool = True
    ) -> Ended:
        """`attn-doctor fix` on it, without a terminal. In this process, which is quicker."""
        given = {**self.variables, **(variables or {})}
        return run(*self.argv(*arguments, examine=examine), environ=given)

    def started(self, *arguments: str, examine: bool = True) -> subprocess.Popen[str]:
        """`attn-doctor fix` on it as a process of its own, to be stopped at some moment."""
        return subprocess.Popen(
            [*_HEARS_CTRL_C, *installed(), *self.argv(*arguments, examine=examine)],
            env=self.variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wrote(self, text: str, pattern: str) -> bool:
        """Whether a file of that name in its state holds this text by now.

        A run that is under way may take a file away between its listing and its reading.
        """
        for folder, _, names in os.walk(self.state):
            for name in fnmatch.filter(names, pattern):
                with contextlib.suppress(FileNotFoundError):
                    if text.encode() in Path(folder, name).read_bytes():
                        return True
        return False

    def argv(self, *arguments: str, examine: bool = True) -> list[str]:
        """The words of `fix`."""
        where = ["--python", str(self.prefix), "--timeout", "20"] if examine else []
        rules = ["--rules", str(self.rules)] if self.rules.is_dir() and examine else []
        return ["fix", *arguments, *where, *rules]

    def freeze(self) -> str:
        """What the installer itself says is installed."""
        argv = [str(self.python), "-m", "pip", "freeze", "--all"]
        if self.uv:
            argv = [self.uv, "pip", "freeze", "--python", str(self.python)]
        ended = subprocess.run(argv, text=True, capture_output=True, check=True, env=self.variables)
        return str(ended.stdout)

    def tree(self) -> dict[str, bytes]:
        """Every file of the environment with its contents, but for compiled ones."""
        return {
            str(path.relative_to(self.prefix)): b"" if path.is_symlink() else path.read_bytes()
            for path in sorted(self.prefix.rglob("*"))
            if (path.is_file() or path.is_symlink())
            and path.suffix != ".pyc"
            and ".attn-doctor-undo" not in path.parts
            and path != self.prefix / ".lock"  # uv's own
        }

    def rule(self, name: str, *runs: str, **texts: str) -> None:
        """Add a rule of the team's own, which finds a problem here; each of `runs` fixes it."""
        (self.rules / "own").mkdir(parents=True, exist_ok=True)
        when = texts.get("when", "'torch.installed == true'")
        done = f"done = [{texts['done']}]" if "done" in texts else ""
        fixes = "".join(
            f'[[fix]]\ntitle = "Fix {name}"\nsafety = "ask"\nrun = [{run}]\n{done}\n'
            for run in runs
        )
        (self.rules / "own" / f"{name}.toml").write_text(
            f"""
schema = 1
severity = "error"
cause = "package-api-mismatch"
evidence = ["https://example.org/{name}"]
checked = 2026-11-21
[text]
title = "{name} is wrong"
why = "It is."
[when]
all = [{when}]
{fixes}"""
        )


@pytest.fixture
def env(tmp_path: Path, _with_pip: Path, wheels: Path) -> Environment:
    """An environment with pip."""
    shutil.copytree(_with_pip, tmp_path / "env", symlinks=True)
    return Environment(tmp_path, wheels)


@pytest.fixture
def uv_env(tmp_path: Path, _without_pip: Path, wheels: Path, uv: str) -> Environment:
    """One without pip, with uv on PATH."""
    shutil.copytree(_without_pip, tmp_path / "env", symlinks=True)
    return Environment(tmp_path, wheels, uv=uv)


def until(what: Callable[[], bool], seconds: float = 120.0) -> None:
    """Waits for something to be so.

    Raises:
        AssertionError: it was not within that time.
    """
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)
