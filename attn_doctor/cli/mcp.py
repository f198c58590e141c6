"""`attn-doctor mcp`: a server for coding agents over standard input and output.

Each tool runs one command of attn-doctor in a process of its own, since the standard streams of
this one carry the protocol. None of these commands changes anything.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Literal

from attn_doctor._version import __version__
from attn_doctor.errors import AttnDoctorError
from attn_doctor.processes import run
from attn_doctor.shell.commands import line

#: Seconds that a tool may take; `plan` asks an installer, which may use the network.
_SECONDS = 300
_INSTRUCTIONS = (
    "Find out which attention kernels work in a Python environment, why others do not, and the"
    " command that fixes them. Nothing is changed: show the user the commands, and ask before you"
    " run them."
)


def mcp() -> None:
    """Serve coding agents over standard input and output (Model Context Protocol).

    The tools are check, explain, backends and plan. None of them changes anything; plan asks the
    installer what a fix would change. Needs the package mcp: pip install ".[mcp]".

    Exit codes: 0 the client left, 2 the package mcp is missing.
    """
    _server().run("stdio")


def _server() -> Any:
    """The server with its tools. Raises `AttnDoctorError` without the package mcp."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise AttnDoctorError(
            "the server needs the package mcp 2.3 or newer, in the environment of attn-doctor:"
            f" {line([sys.executable, '-m', 'pip', 'install', '--upgrade', 'mcp'])}"
        ) from None
    server = MCPServer("attn-doctor", instructions=_INSTRUCTIONS, version=__version__)
    for tool in (check, explain, backends, plan):
        hints = ToolAnnotations(read_only_hint=True, open_world_hint=tool is plan)
        server.add_tool(tool, annotations=hints, structured_output=False)
    return server


def check(python: str = "", pretend: str = "") -> str:
    """Examine the machine and a Python environment: problems, reasons, and fixing commands.

    python: the interpreter or environment to examine; empty: the active one. pretend: another
    machine, such as gpu=rtx4090,torch=2.9.1+cu128.
    """
    return _output("check", *_given(python=python, pretend=pretend))


def explain(log: str, python: str = "") -> str:
    """Find the cause of a failure in a log or a message, with the fix for this machine.

    log: its text. python: as for check.
    """
    return _output("explain", "-", *_given(python=python), text=log)


def backends(
    framework: Literal[
        "", "diffusers", "finetrainers", "simpletuner", "transformers", "comfyui"
    ] = "",
    phase: Literal["", "training", "inference"] = "",
    mask: Literal["", "none", "varlen", "bool", "float"] = "",
    python: str = "",
    pretend: str = "",
) -> str:
    """List the attention backends as ready, slow or not ready, with reasons and fixes.

    framework: whose names are used; empty: the installed trainer, else diffusers. phase and mask:
    the attention calls; empty: all. python and pretend: as for check.
    """
    asked = {"framework": framework, "for": phase, "mask": mask}
    return _output("backends", *_given(**asked, python=python, pretend=pretend))


def plan(python: str = "") -> str:
    """Plan fixes for what check finds, with the packages that would change. Applies nothing.

    python: as for check.
    """
    return _output("fix", "plan", *_given(python=python))


def _given(**values: str) -> list[str]:
    """Options with a value, each in one word, so that no value is an option itself."""
    return [f"--{name}={value}" for name, value in values.items() if value]


def _output(*words: str, text: str = "") -> str:
    """What a command prints. Raises mcp's `ToolError` with its message if it fails."""
    from mcp.server.mcpserver.exceptions import ToolError

    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.seek(0)
        ended = run(_argv(words), _SECONDS, stdin=file)
    if ended.code is None or ended.code not in (0, 1, 4, 5):
        late = f"no answer after {_SECONDS} s" if ended.timed_out else ""
        raise ToolError(late or ended.err.strip() or f"attn-doctor ended with {ended.code}")
    return ended.out


def _argv(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "attn_doctor", *words]
