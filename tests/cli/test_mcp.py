"""`attn-doctor mcp`, asked by the client of the package mcp; and what it says without it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.cli.mcp import mcp
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import to_json
from tests.command import process
from tests.render.sample import FACTS

LOG = "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"


def ask(*calls: tuple[str, dict[str, str]]) -> list[Any]:
    """The tools of the server, then the result of each call."""
    mcp = pytest.importorskip("mcp", reason='needs `pip install ".[mcp]"`')
    served = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "attn_doctor", "mcp"], env={**os.environ}
    )

    async def asked() -> list[Any]:
        async with mcp.Client(served) as client:
            tools = (await client.list_tools()).tools
            return [tools, *[await client.call_tool(name, given) for name, given in calls]]

    return asyncio.run(asyncio.wait_for(asked(), 120))


@pytest.mark.recipes
def test_a_client_checks_explains_and_plans(tmp_path: Path) -> None:
    snapshot = tmp_path / "facts.json"
    snapshot.write_bytes(to_json(FACTS))
    machine = "gpu=rtx4090,torch=2.9.1+cu128"
    tools, explained, listed, planned, refused, hostile = ask(
        ("explain", {"log": LOG}),
        ("backends", {"framework": "diffusers", "phase": "training", "pretend": machine}),
        ("plan", {"python": sys.executable}),
        ("check", {"python": str(tmp_path / "none")}),
        ("check", {"python": f"--facts={snapshot}"}),
    )
    assert {one.name for one in tools} == {"check", "explain", "backends", "plan"}
    assert all(one.annotations.read_only_hint for one in tools)
    assert (
        "flash-attn's extension does not load with the installed torch" in explained.content[0].text
    )
    assert "RTX 4090" in listed.content[0].text
    assert not planned.is_error, planned.content
    assert refused.is_error
    assert "does not exist" in refused.content[0].text
    # A value is never an option.
    assert hostile.is_error


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError\n")
    ended = process("mcp", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert "needs the package mcp" in ended.stderr


@pytest.mark.posix
def test_its_command_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.setattr(sys, "executable", "/opt/my tools/python")
    with pytest.raises(AttnDoctorError, match="'/opt/my tools/python' -m pip install"):
        mcp()
