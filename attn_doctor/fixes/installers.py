"""Runs the examined environment's own installer, and reads its failures.

That is pip if the environment has it, else uv from outside. A file of constraints keeps packages
that a step does not name. An installer that is interrupted gets some seconds to remove its
temporary folders before its process group is killed.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.files import open_binary
from attn_doctor.fixes.distributions import Installed
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.processes import Running
from attn_doctor.shell.commands import argv_for, split_assignments

#: Last lines that are kept for a message.
_TAIL = 200
#: Seconds between two looks at what an installer has printed.
_EVERY = 0.05
#: Seconds an installer has to clean up after Ctrl-C.
_GRACE = 5.0
#: Variables that would send an installation elsewhere than into the examined environment.
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_DRY_RUN")


class Outcome(Struct, frozen=True, kw_only=True):
    """The end of a program."""

    code: int | None
    """Exit code, negative for a signal; None if it could not be started or had to be ended."""
    lines: tuple[str, ...] = ()
    """The last lines it printed."""
    seconds: float = 0.0
    failure: str = ""
    """Why there is no exit code."""

    @property
    def ok(self) -> bool:
        """It ran to its end with code 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """The last lines as one text."""
        return "\n".join(self.lines)


def installer_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for an installer: it asks nothing and installs nowhere else."""
    kept = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    return {
        **kept,
        "PIP_NO_INPUT": "1",
        "PIP_QUIET": "0",  # its output tells which packages it changes
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_COLOR": "1",
        **extra,
    }


def run(
    argv: Sequence[str],
    *,
    seconds: float,
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    inherit: Sequence[int] = (),
) -> Outcome:
    """Run `argv` in `folder` for at most `seconds`; everything it prints is appended to `log`.

    `inherit`: file descriptors that it gets too, such as those of locks. Raises `OSError` if `log`
    cannot be written; a program that cannot be started is an outcome.
    """
    start = time.monotonic()
    tail: deque[str] = deque(maxlen=_TAIL)
    with log.open("ab") as file, open_binary(log) as printed, _Interrupts() as interrupts:
        printed.seek(0, os.SEEK_END)
        try:
            # It writes into the log itself, which is complete even if this process is killed.
            running = Running(
                argv,
                env=env,
                cwd=str(folder),
                joined=True,
                output=file.fileno(),
                inherit=inherit,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return Outcome(code=None, failure=f"{argv[0]} cannot be run: {reason}")
        with running:
            if on_start is not None:
                on_start(running.pid)
            ended = threading.Event()
            reader = threading.Thread(
                target=_follow, args=(printed, ended, tail, on_line), daemon=True
            )
            reader.start()
            try:
                interrupts.raise_again()
                code = running.wait(seconds)
                late = code is None
                if late:
                    _ask_to_end(running)
            except KeyboardInterrupt:
                _ask_to_end(running)
                raise
            finally:
                ended.set()
                reader.join(2.0)
    took = time.monotonic() - start
    failure = f"it did not end within {seconds / 60:.0f} min and was ended" if late else ""
    return Outcome(code=code, lines=tuple(tail), seconds=took, failure=failure)


class _Interrupts:
    """Holds Ctrl-C back until a program that is being started can be ended by it."""

    def __enter__(self) -> _Interrupts:  # noqa: PYI034 (Self is newer than Python 3.10)
        self._seen = False
        # In the background Ctrl-C is ignored, and another thread never gets it.
        self._held = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._held:
            signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        self._let_through()

    def raise_again(self) -> None:
        """Let Ctrl-C through from now on. Raises `KeyboardInterrupt` if it was pressed before."""
        self._let_through()
        if self._seen:
            raise KeyboardInterrupt

    def _remember(self, *_: object) -> None:
        self._seen = True

    def _let_through(self) -> None:
        if self._held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._held = False


def _follow(
    printed: IO[bytes],
    ended: threading.Event,
    tail: deque[str],
    on_line: Callable[[str], None] | None,
) -> None:
    """Read what a program writes into its log, until it has ended."""
    rest = b""
    last = False
    while True:
        chunk = printed.read(1 << 16)
        *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            _seen(line, tail, on_line)
        if not chunk:
            if last:
                break
            last = ended.wait(_EVERY)
    _seen(rest, tail, on_line)


def _seen(line: bytes, tail: deque[str], on_line: Callable[[str], None] | None) -> None:
    text = line.decode("utf-8", "replace").rstrip()
    if text:
        tail.append(text)
        if on_line is not None:
            on_line(text)


def _ask_to_end(running: Running) -> None:
    if os.name != "nt":
        with suppress(OSError):
            os.killpg(running.pid, signal.SIGINT)
        with suppress(KeyboardInterrupt):  # a second Ctrl-C does not wait
            running.wait(_GRACE)


#: Never changed by a step that does not name them, even if other packages have to change.
_GUARDED = re.compile(
    r"torch(vision|audio)?|triton.*|xformers|flash-attn.*|sageatt.*|nvidia-.*|cuda-.*"
)
#: A line of constraints that installers can read.
_PINNED = re.compile(r"[a-z0-9-]+==[A-Za-z0-9._+!-]+")
#: Packages that belong to torch and change with it.
_WITH_TORCH = re.compile(r"triton.*|pytorch-triton.*|nvidia-.*|cuda-.*")

#: What an installer prints, and its meaning for the user. The first match counts, so causes come
#: before their consequences.
_FAILURES = (
    (
        r"No space left on device|os error 28|Disk quota exceeded|Errno 122",
        "the disk is full: free some space (on the environment's disk, TMPDIR, the package cache)",
    ),
    (
        r"Read-only file system|os error 30\b",
        "the file system is mounted read-only, so nothing can be installed there",
    ),
    (
        r"Permission denied|os error 13\b|Access is denied",
        "this user may not write there; the environment belongs to another user, or to root",
    ),
    (
        r"externally-managed-environment|externally managed",
        "the system's package manager owns this Python: make an environment with `python -m venv`",
    ),
    (
        (r"Failed to establish a new connection|Temporary failure in name resolution|NameResolution"
         r"|ProxyError|Network is unreachable|error sending request|dns error|Connection refused"
         r"|Could not connect|Max retries exceeded|Read timed out|tunnel error|ConnectTimeout"
         r"|network was disabled|client error \(Connect\)|Could not resolve host"),
        ("the package index, or GitHub, cannot be reached: check the network and the proxy, or name"
         " a folder of wheels with PIP_FIND_LINKS (UV_FIND_LINKS)"),
    ),
    (r"No module named pip\b", "this environment has no pip: `python -m ensurepip` installs it"),
    (
        (r"ResolutionImpossible|conflicting dependencies|No solution found|are incompatible"
         r"|unsatisfiable"),
        "no set of releases fits together without changing packages that no step names",
    ),
    (
        r"\(from versions: none\)",
        "the index offers no release of it: it cannot be reached, or it does not have the package",
    ),
    (
        r"No matching distribution found|Could not find a version that satisfies|was not found in",
        "the index has no such release for this Python and system",
    ),
    (
        (r"Failed building wheel|subprocess-exited-with-error|Failed to build|Build backend failed"
         r"|ninja: build stopped|metadata-generation-failed"),
        "it had to be compiled, and that failed",
    ),
)  # fmt: skip


def name(facts: Facts) -> str:
    """Return the name of the installer: `pip 24.0`, or `uv`."""
    python = facts.python
    return "uv" if python.pip == "" else f"pip {python.pip or ''}".strip()


def command(argv: tuple[str, ...], facts: Facts, constraint: Path | None) -> tuple[str, ...]:
    """Return a rule's command for the examined environment, without its leading variables."""
    call = pip_call(argv)
    words = argv[len(call.variables) :] if call else argv
    if call is None or call.verb != "install":
        return argv_for(split_assignments(words)[1], facts)
    pinned = ("-c", str(constraint)) if constraint else ()
    wanted = (one.text for one in call.wanted)
    indexes = (part for pair in call.indexes for part in pair)
    return argv_for(("pip", "install", *call.flags, *wanted, *indexes, *pinned), facts)


def constraints(
    there: Mapping[str, Installed], moving: Iterable[str], *, strict: bool
) -> list[str]:
    """Return constraints that keep installed packages, except those that a step names.

    `strict` keeps all; otherwise only torch and its extensions. If torch itself changes, its CUDA
    libraries and its Triton may change with it. What is not a version, since the name of a folder
    can hold any text, is left out: the installer would refuse to plan anything.
    """
    free = {*moving}
    lines = []
    for each, one in sorted(there.items()):
        if each in free or ("torch" in free and _WITH_TORCH.fullmatch(each)):
            continue
        line = f"{each}=={one.version}"
        if _PINNED.fullmatch(line) and (strict or _GUARDED.fullmatch(each)):
            lines.append(line)
    return lines


def failure(ended: Outcome) -> str:
    """Return what went wrong, as a sentence: its known meaning, else the last line."""
    if ended.failure:
        return ended.failure
    for pattern, meaning in _FAILURES:
        if re.search(pattern, ended.text):
            return meaning
    # uv puts the cause of an error last.
    errors = [line for line in ended.lines if re.match(r"(?i)\s*(error|cause|×)", line)]
    last = (errors or [*ended.lines] or [f"exit code {ended.code}"])[-1]
    return re.sub(r"^\s*cause: ", "", last).strip()[:300]


#: Lock file → the command that enforces it, and the one that adds a package to it.
_TOOLS = {
    "uv.lock": ("`uv sync` removes", "`uv add`"),
    "poetry.lock": ("`poetry sync` removes", "`poetry add`"),
    "pdm.lock": ("`pdm sync` removes", "`pdm add`"),
    "Pipfile.lock": ("`pipenv clean` removes", "`pipenv install`"),
}


def lock_file_warning(facts: Facts) -> str:
    """Return a warning that a project's lock file decides on packages; empty if there is none.

    The project's tool undoes what `fix` installs when it runs next. Only the folder of the
    environment is searched, where such tools keep it (`.venv`); an environment elsewhere cannot be
    distinguished from one without a project.
    """
    prefix = facts.python.prefix
    if not prefix or facts.python.environment != "venv":
        return ""
    project = Path(prefix).parent
    for name, (restoring, keeping) in _TOOLS.items():
        if (project / name).is_file():
            return (
                f"{project / name} decides what is installed here: {restoring} other packages."
                f" Keep a change with {keeping} too."
            )
    return ""
