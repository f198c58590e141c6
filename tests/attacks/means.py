"""What an attack gets back, and the environment that it runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

#: The checkout: attn-doctor is started from it in any working directory.
ROOT = Path(__file__).resolve().parent.parent.parent
#: The number of a user who is neither root nor the one that runs the tests.
STRANGER = 65534
#: Exit codes that the documentation names: `attn_doctor/__main__.py`. 3 is a failure of our own.
DOCUMENTED = (0, 1, 2, 4, 130)


class Run(NamedTuple):
    """A finished run of attn-doctor."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    """How long it took."""

    @property
    def text(self) -> str:
        """All that was printed, on one line."""
        return " ".join((self.stdout + self.stderr).split())

    def answered(self, *codes: int) -> Run:
        """Assert that it ended with one of these exit codes, or a documented one, and as it should.

        Returns itself.
        """
        assert "Traceback" not in self.stdout + self.stderr, self.stderr
        assert self.code in (codes or DOCUMENTED), (self.code, self.stderr[-2000:])
        return self


Attack = Callable[..., Run]


def own_home(home: Path) -> dict[str, str]:
    """This process's environment, with every folder of the user below `home`.

    Its Python is first on PATH, else another one is examined, which may have torch.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ATTN_DOCTOR", "TORCHINDUCTOR", "TRITON_", "XDG_", "VIRTUAL_ENV"))
    }
    return {
        **variables,
        "HOME": str(home),
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "caches"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }


def fill(folder: Path) -> None:
    """Leave no free space on the file system of `folder`, with a file `filler`."""
    handle = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while os.write(handle, b"x" * 4096):
            pass
    except OSError:
        os.close(handle)


def commands() -> tuple[tuple[str, ...], ...]:
    """Every command of attn-doctor, such as `("cache", "clear")`, as its help pages list them."""
    from typer.main import get_command

    from attn_doctor.cli.application import app_for

    def walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner: dict[str, object] = getattr(command, "commands", {})
        if not inner:
            yield words
        for name, one in inner.items():
            yield from walk(one, (*words, name))

    return tuple(walk(get_command(app_for([])), ()))
