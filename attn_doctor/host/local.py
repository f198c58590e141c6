"""This machine, as a `Host`.

Programs run in a session of their own. At the time limit the whole process group is killed,
waited for briefly, and abandoned if it does not die: a process stuck in the kernel (a hung GPU
driver, a dead NFS server) ignores SIGKILL, and waiting for it would hang us as well.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from attn_doctor.host import Host, stat_kind

__all__ = ["LocalHost"]

OUTPUT_LIMIT = 1 << 18
#: Seconds to wait for a killed process before it is left behind.
GRACE = 0.5
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MODES = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}
_HERE = os.path.dirname(os.path.abspath(__file__))


class LocalHost(Host):
    """The machine that attn-doctor runs on."""

    def __init__(self) -> None:
        # Copied at once: libraries imported later set variables of their own.
        self._variables = dict(os.environ)
        self._answers: dict[str, Callable[..., Any]] = {
            "platform": self._platform,
            "environ": lambda: self._variables,
            "now": time.time,
            "read": _read,
            "head": _head,
            "grep": _grep,
            "stat": _stat,
            "list": lambda path: sorted(os.listdir(path)),
            "real": os.path.realpath,
            "access": lambda path, mode: os.access(path, _MODES[mode]),
            "space": _space,
            "measure": _measure,
            "memory": _memory,
            "run": self._run,
            "nvml": self._nvml,
            "inside": self._inside,
            "binary": _binary("binary"),
            "versions": _binary("versions"),
            "gpu_code": _binary("gpu_code"),
            "unresolved": _unresolved,
        }

    def ask(self, question: str, *args: Any) -> Any:
        """The answer, from the operating system."""
        return self._answers[question](*args)

    def _platform(self) -> dict[str, Any]:
        windows = sys.platform == "win32"
        if windows:
            import platform

            machine, release, version = platform.machine(), platform.release(), platform.version()
        else:
            uname = os.uname()
            machine, release, version = uname.machine, uname.release, uname.version
        return {
            "os": {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux"),
            "machine": machine,
            "release": release,
            "version": version,
            "libc": _libc(),
            "cpus": _cpus(),
            "uid": -1 if windows else os.getuid(),
            "user": _user(self._variables),
            "home": os.path.expanduser("~"),
            "cwd": _cwd(),
            "python": sys.executable,
            "prefix": sys.prefix,
        }

    def _run(self, argv: list[str], seconds: float, env: Mapping[str, str]) -> dict[str, Any]:
        quiet = {"LC_ALL": "C", **({} if os.name == "nt" else {"PATH": SYSTEM_PATH})}
        variables = {**self._variables, **quiet, **env}
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.abspath(os.sep),
                env=variables,
                start_new_session=True,
            )
        except FileNotFoundError:
            return {"outcome": "missing"}
        except OSError as error:
            return {"outcome": "refused", "err": str(error)}
        out, err = _Drain(child.stdout), _Drain(child.stderr)
        outcome = _wait(child, seconds)
        if outcome != "abandoned":
            # A grandchild may keep the pipe open; what it would still print is not waited for.
            out.join(GRACE)
            err.join(GRACE)
        return {
            "outcome": outcome,
            "code": child.returncode,
            "out": out.text(),
            "err": err.text(),
            "pid": child.pid,
        }

    def _nvml(self, seconds: float) -> dict[str, Any]:
        import importlib.util

        from attn_doctor.host.nvml_child import fold

        spec = importlib.util.find_spec("pynvml")
        if spec is None or spec.origin is None:
            return {"outcome": "missing", "why": "nvidia-ml-py is not installed"}
        folder = os.path.dirname(spec.origin)
        child = os.path.join(_HERE, "nvml_child.py")
        # -S leaves out site-packages and every .pth file in it; only pynvml's folder is added.
        ran = self._run([sys.executable, "-I", "-S", "-B", child, folder], seconds, {})
        # What was answered before a hang or a crash is kept.
        return {**fold(ran.pop("out", "")), **ran}

    def _inside(self, python: str, seconds: float) -> dict[str, Any]:
        if _is_this(python, self._variables):
            from attn_doctor.host import inside

            return {**inside.describe(), "outcome": "done"}
        child = os.path.join(_HERE, "inside.py")
        return self._script([python, "-I", "-S", "-B", child], seconds)

    def _script(self, argv: list[str], seconds: float) -> dict[str, Any]:
        ran = self._run(argv, seconds, {})
        try:
            answer = json.loads(ran["out"])
        except (KeyError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            # Nothing usable was printed: how the process ended is the answer.
            return ran
        return {**answer, "outcome": ran["outcome"]}


class _Drain(threading.Thread):
    """Reads a pipe to its end so that the writer never blocks, and keeps the first part."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._kept = bytearray()
        self.start()

    def run(self) -> None:
        if self._pipe is None:
            return
        with self._pipe as pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                self._kept += chunk[: OUTPUT_LIMIT - len(self._kept)]

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


def _wait(child: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a child that leads its own process group. Returns an outcome of `Ran`."""
    try:
        _until_ended(child, seconds)
        return "done"
    except subprocess.TimeoutExpired:
        pass
    try:
        if os.name == "nt":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(GRACE)
        return "timeout"
    except (OSError, subprocess.TimeoutExpired):
        return "abandoned"


def _until_ended(child: subprocess.Popen[bytes], seconds: float) -> None:
    """`child.wait(seconds)`, which looks at ever longer intervals, without the time that costs."""
    open_handle = getattr(os, "pidfd_open", None)
    try:
        handle = open_handle(child.pid) if open_handle else -1
    except OSError:
        handle = -1
    if handle >= 0:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
        os.close(handle)
        seconds = 0
    child.wait(seconds)


def _is_this(python: str, variables: Mapping[str, str]) -> bool:
    """The interpreter at `python` is the one that runs us, and sees the same environment.

    A virtual environment's interpreter is a link to its base, so the folder must be the same too,
    letter by letter, for the prefix is made of it. Under PYTHONHOME our own prefix is not the one
    that an isolated child would find.
    """
    ours = os.path.abspath(sys.executable or os.sep)
    if sys.flags.no_site or variables.get("PYTHONHOME"):
        return False
    if os.path.dirname(os.path.abspath(python)) != os.path.dirname(ours):
        return False
    try:
        return os.path.samefile(python, ours)
    except OSError:
        return False


def _binary(question: str) -> Callable[..., Any]:
    """One of the questions that `binaries.reading` answers, which is imported when asked."""

    def answer(*args: Any) -> Any:
        import msgspec

        from attn_doctor.binaries import reading

        return msgspec.to_builtins(getattr(reading, question)(*args))

    return answer


def _unresolved(paths: Sequence[str], libraries: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    import msgspec

    from attn_doctor.binaries.unresolved import unresolved

    answers = unresolved([*zip(paths, libraries, strict=True)])
    return [msgspec.to_builtins(one) for one in answers]


def _read(path: str, limit: int) -> str:
    with open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")


def _head(path: str, limit: int) -> str:
    with open(path, "rb") as file:
        text = b""
        while len(text) < limit and (line := file.readline(limit)).strip():
            text += line
        return text[:limit].decode("utf-8", "replace")


def _grep(path: str, needles: Sequence[str], limit: int) -> list[str]:
    wanted = [needle.encode() for needle in needles]
    with open(path, "rb") as file:
        text = file.read(limit)
    if not any(needle in text for needle in wanted):
        return []
    lines = (line for line in text.splitlines() if any(needle in line for needle in wanted))
    return [line.decode("utf-8", "replace") for line in lines]


def _stat(path: str) -> dict[str, Any]:
    found = os.stat(path)
    return {
        "kind": stat_kind(found.st_mode),
        "size": found.st_size,
        "mtime": found.st_mtime,
        "uid": found.st_uid,
        "mode": found.st_mode & 0o7777,
    }


def _space(path: str) -> dict[str, int]:
    if hasattr(os, "statvfs"):
        # What `shutil.disk_usage` does, without the time that importing shutil takes.
        found = os.statvfs(path)
        return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}
    import shutil

    usage = shutil.disk_usage(path)
    return {"total": usage.total, "free": usage.free}


def _measure(path: str, seconds: float) -> dict[str, Any]:
    end = time.monotonic() + seconds
    files = size = 0
    newest = 0.0
    locks: list[str] = []
    pending = [path]
    while pending:
        if time.monotonic() > end:
            break
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            files += 1
            size += found.st_size
            newest = max(newest, found.st_mtime)
            if entry.name == "lock" or entry.name.endswith(".lock"):
                locks.append(os.path.relpath(entry.path, path))
    return {
        "files": files,
        "bytes": size,
        "newest": newest,
        "complete": not pending,
        "locks": sorted(locks)[:50],
    }


def _memory() -> tuple[int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _libc() -> str:
    """`glibc 2.36` where the C library is the GNU one, else empty."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _user(variables: Mapping[str, str]) -> str:
    """The user's name as `getpass.getuser` works it out; Inductor's cache is named after it."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if variables.get(name):
            return variables[name]
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return ""


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
