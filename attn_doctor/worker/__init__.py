"""Programs that run in the examined interpreter: the standard library, torch, and one another.

attn-doctor's dependencies are not installed there, and Python may be as old as 3.9. `launch.py`
starts each program by its name; only `interpreter.py`, which knows no other module, is started by
its own path.
"""

import os

#: The script that starts the programs of this package.
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")


def command(python: str, program: str, *arguments: str) -> "list[str]":
    """The argv that runs a module of this package, such as `describe_gpu`, in an interpreter."""
    return [python, LAUNCHER, program, *arguments]
