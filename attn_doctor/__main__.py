"""Entry point: runs the command line and turns every outcome into an exit code.

0 healthy · 1 problems found · 2 wrong usage, unreadable input, or too little disk, memory or
processes · 3 attn-doctor itself failed · 4 (with --strict) a rule could not be evaluated ·
5 (explain) only the failing component is known · 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run attn-doctor and exit with its exit code."""
    # A check makes many objects and few cycles: by default collecting takes 2 % of it, and of its
    # JSON a tenth.
    gc.set_threshold(500_000, 20, 20)
    _own_packages_first()
    from attn_doctor import own_modules

    own_modules.install()
    from attn_doctor.worker import memory_limit

    if too_little := memory_limit.fit():
        os._exit(_stopped(too_little))
    from attn_doctor.cli import streams

    streams.open_closed()
    code = _run()
    if __name__ == "__main__":
        _say_what_to_type()
    code = streams.finish(code)
    # Not sys.exit: Python would wait for its threads, and a probe may still wait for a driver that
    # never answers.
    os._exit(code)


def _own_packages_first() -> None:
    """Look on PYTHONPATH last: it is meant for programs, often those of another Python."""
    added = {os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    if "PYTHONPATH" in os.environ:
        sys.path.sort(key=lambda folder: os.path.abspath(folder) in added)


def _say_what_to_type() -> None:
    """Say what to type for `attn-doctor` where only this Python has it, as in a portable build."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    import shutil

    from attn_doctor.shell.commands import line

    if not shutil.which("attn-doctor"):
        options = ("-s",) if sys.flags.no_user_site else ()
        command = line((sys.executable, *options, "-m", "attn_doctor"))
        sys.stderr.write(f"\nattn-doctor is not on PATH: type `{command}` for it.\n")


def _run() -> int:
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.lean_imports import put_off

    with put_off():
        from attn_doctor.worker import reach

    try:
        from attn_doctor.cli import run, streams
        from attn_doctor.logger import VARIABLE
        from attn_doctor.render import edge

        streams.prepare()
        edge.guard()
        if os.environ.get(VARIABLE):
            from attn_doctor import log

            log.enable(os.environ[VARIABLE])
        for folder in reach.look(os.environ, sys.argv[1:]):
            sys.stderr.write(
                f"attn-doctor: {folder} does not answer and is left out: mount it again, or unmount"
                f" it with `umount -l`\n"
            )
        reach.leave_out(os.environ)
        reach.guard()
        run()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except AttnDoctorError as error:
        return _stopped(str(error))
    except reach.NoAnswerError as error:
        return _stopped(f"{error.filename}: {error.strerror}; mount it again, or name another path")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        reason = _limit(error) or _incomplete(error)
        return _stopped(reason) if reason else _bug()
    return 0


def _limit(error: Exception) -> str:
    """The limit of this machine that `error` shows, as a sentence; empty for any other error."""
    import errno

    number = error.errno if isinstance(error, OSError) else None
    # msgspec and Python return an error without an exception where they get no memory.
    words = ("map segment", "error return without exception set", "without setting an exception")
    short = isinstance(error, MemoryError) or number == errno.ENOMEM
    if short or any(one in str(error) for one in words) or _no_memory():
        return "no memory is left for this process; raise its limit (ulimit -v, or the container's)"
    if number == errno.EAGAIN or "start new thread" in str(error):
        return (
            "no further thread or process can be started; raise the limit of processes (ulimit -u,"
            " or the container's) or of memory (ulimit -v)"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return "no further file can be opened; raise the limit of open files (ulimit -n)"
    if number in (errno.ENOSPC, errno.EDQUOT):
        place = getattr(error, "filename", None) or "a file"
        return f"{place} cannot be written: {os.strerror(number)}"
    return ""


def _incomplete(error: Exception) -> str:
    """Which package of attn-doctor's own cannot be imported; empty for any other error."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if not name or name == "attn_doctor" or name in sys.stdlib_module_names:
        return ""
    return (
        f"{name}, which attn-doctor needs, cannot be imported in {sys.prefix}: {error}; install"
        " attn-doctor there again"
    )


def _no_memory() -> bool:
    """Whether no memory is left. Python's parser then raises errors that name something else."""
    try:
        bytearray(16 << 20)
    except MemoryError:
        return True
    return False


def _stopped(why: str) -> int:
    """Say why attn-doctor cannot do its work; exit code 2."""
    if sys.__stderr__ is not None:  # it was closed, and nothing was put in its place yet
        sys.stderr.write(f"attn-doctor: {why}\n")
    return 2


def _bug() -> int:
    """Report a failure of attn-doctor itself with all that an issue needs; exit code 3."""
    import traceback

    from attn_doctor._version import __version__

    traceback.print_exc()
    version = sys.version.split()[0]
    sys.stderr.write(
        f"\nattn-doctor {__version__} failed on Python {version}, {sys.platform}. This is a bug in"
        " attn-doctor, not in your machine; please report the lines above.\n"
    )
    return 3


if __name__ == "__main__":
    main()
