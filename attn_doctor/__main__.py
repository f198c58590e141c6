"""Entry point: runs the command line and turns every outcome into an exit code.

0 healthy · 1 problems found · 2 wrong usage or unreadable input · 3 attn-doctor itself failed ·
4 (with --strict) a rule could not be evaluated · 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys

from attn_doctor.errors import AttnDoctorError


def main() -> None:
    """Run attn-doctor and exit with its exit code."""
    # A check makes many objects and few cycles: by default collecting takes 2 % of it.
    gc.set_threshold(50_000, 20, 20)
    code = _run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    # Not sys.exit: Python would wait for its threads, and a probe may still wait for a driver that
    # never answers.
    os._exit(code)


def _run() -> int:
    try:
        from attn_doctor import log
        from attn_doctor.cli import run
        from attn_doctor.cli.output_encoding import make_lossless

        if os.environ.get(log.VARIABLE):
            log.enable(os.environ[log.VARIABLE])

        make_lossless(sys.stdout, sys.stderr)
        run()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except AttnDoctorError as error:
        sys.stderr.write(f"attn-doctor: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe, as in `attn-doctor check | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        return _bug()
    return 0


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
