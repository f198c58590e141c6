"""A plain command line means the same with and without typer."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attn_doctor.cli import plain
from attn_doctor.cli.application import app_for
from attn_doctor.cli.check import command
from tests.command import process, run

H200 = Path(__file__).parents[1] / "machines" / "h200-torch-2.11-cu130" / "facts.json"
#: Values that some option takes, or that look like one.
VALUES = (
    "x",
    "a b",
    "diffusers",
    "-",
    "",
    "--json",
    "=",
    "a=b",
    "training",
    "fp16",
    "json",
    "warning",
    "64",
    "ä",
)


def options() -> list[str]:
    check = typer.main.get_command(app_for(["check"])).commands["check"]  # type: ignore[attr-defined]
    return sorted({name for each in check.params for name in each.opts})


WORDS = st.sampled_from([*options(), "-vv", "--pyth", "--no-json", "word"])
LINES: st.SearchStrategy[list[str]] = st.lists(
    st.one_of(
        WORDS.map(lambda name: [name]),
        st.builds(lambda name, value: [name, value], WORDS, st.sampled_from(VALUES)),
        st.builds(lambda name, value: [f"{name}={value}"], WORDS, st.sampled_from(VALUES)),
    ),
    max_size=4,
).map(lambda parts: [*itertools.chain(*parts)])


def by_us(words: list[str]) -> dict[str, Any] | None:
    """The same from the reader of plain lines; None if it leaves them to typer."""
    values = plain.arguments(command.check, words)
    if values is None:
        return None
    bound = inspect.signature(command.check).bind(**values)
    bound.apply_defaults()
    return dict(bound.arguments)


def by_typer(words: list[str]) -> dict[str, Any] | None:
    """The arguments that `check` gets from typer; None if typer refuses the words."""
    found: list[dict[str, Any]] = []

    @functools.wraps(command.check)
    def check(**values: Any) -> None:
        found.append(values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "check", check)
        app = app_for(["check"])
    with contextlib.suppress(SystemExit):
        app(args=["check", *words])
    return found[0] if found else None


@given(LINES)
@settings(max_examples=150, deadline=None)
@example(["--rules", "a", "--rules=b", "--require", "x"])
@example(["-o=x"])
@example(["--for", "training", "--framework", "diffusers", "--fail-on=never"])
def test_what_is_plain_means_the_same_to_typer(words: list[str]) -> None:
    values = by_us(words)
    if values is not None:
        assert values == by_typer(words)


@pytest.mark.parametrize("name", options())
@pytest.mark.thorough
def test_each_option_is_plain_or_left_to_typer(name: str) -> None:
    """Plain is an option without a number and without an effect of its own."""
    taken = [
        words
        for words in ([name], *([name, value] for value in VALUES))
        if (values := by_us(words)) is not None and values == by_typer(words)
    ]
    left = ("--help", "-h", "--timeout", "--head-dim", "--seq-len", "--kv-heads", "--allow-foreign")
    assert bool(taken) == (name not in left)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-q"],
        ["-v", "--python", "ComfyUI/venv"],
        ["--require", "sage", "--for", "inference"],
        ["--pretend", "gpu=rtx4090,torch=2.9.1+cu128"],
        ["--format", "json", "-o", "result.json"],
        ["--config", "config.json"],
    ],
    ids=" ".join,
)
def test_usual_command_lines_are_plain(words: list[str]) -> None:
    values = by_us(words)
    assert values is not None
    assert values == by_typer(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--facts", str(H200), "--python", "python3"],
        ["--facts", str(H200), "--format", "xml"],
        ["--facts", str(H200), "--format", "json:"],
        ["--facts", str(H200), "--mask", "diagonal"],
        ["--facts", str(H200), "--live"],
        ["--facts", str(H200), "--require", "nonsense"],
    ],
    ids=lambda words: " ".join(words[2:]),
)
def test_a_mistake_is_shown_as_typer_shows_it(words: list[str]) -> None:
    assert by_us(words) is not None
    found = run("check", *words)
    assert found.returncode == 2
    # A number is left to typer.
    assert found == run("check", *words, "--timeout", "4")


#: What a check can do without. Each takes 1 to 30 ms. Without an index of rules, as here, it also
#: needs json and ast.
HEAVY = {
    *("typer", "rich", "click", "typing_extensions", "inspect", "dis", "tokenize"),
    *("logging", "shutil", "hashlib", "difflib", "tempfile", "psutil"),
    *("packaging.specifiers", "packaging.markers", "packaging.requirements"),
    *("ipaddress", "locale", "platform", "signal", "textwrap", "urllib.parse"),
    *("msgspec.inspect", "attn_doctor.translation"),
}
#: Our own modules that only another option, a GPU, a mistake or a fault needs.
RARE = {
    "attn_doctor.binaries.demangle",
    "attn_doctor.binaries.fatbin",
    "attn_doctor.cli.output_file",
    "attn_doctor.cli.result_options",
    "attn_doctor.configs.readers.settings",
    "attn_doctor.probes.installed.hub",
    "attn_doctor.probes.nvidia.gpus",
    "attn_doctor.shell.detect",
    "attn_doctor.shell.exports",
}
#: The check of a snapshot imports 268 modules in a checkout; each takes 0.1 ms or more.
MOST_MODULES = 275
if os.name == "nt":
    # They ask Windows for memory and space of disks.
    HEAVY -= {"psutil", "shutil", "platform", "signal"}


def imported(*words: str) -> set[str]:
    """The modules that a check has imported at its end."""
    code = (
        "import os, sys, attn_doctor.__main__ as main;"
        "os._exit = lambda code: print(*sys.modules);"
        f"sys.argv = ['attn-doctor', 'check', *{words!r}]; main.main()"
    )
    done = process(program=[sys.executable, "-c", code])
    found = set(done.stdout.splitlines()[-1].split())
    assert "attn_doctor.diagnosis" in found, done.stderr
    return found


def test_a_check_reads_plain_versions_itself() -> None:
    """With an index of the rules; a checkout also reads the versions that rules name."""
    code = (
        "import sys; from attn_doctor.rulebook.conditions import Condition;"
        "from attn_doctor.requirement import applicable, satisfies;"
        "line = Condition('torch.version', '>=', 'version', '2.10');"
        "print(line.truth(lambda _: '2.13.0+cpu'), satisfies('3.6.0', '==3.6.*,>=3'),"
        " [name for name in sys.modules if name.startswith('packaging.')])"
    )
    assert process(program=[sys.executable, "-c", code]).stdout.split() == ["True", "True", "[]"]


def test_a_plain_check_imports_little() -> None:
    assert not HEAVY & imported("--policy", "none")


@pytest.mark.skipif(os.name == "nt", reason="it asks which shell started it")
def test_a_check_of_a_snapshot_imports_only_what_it_calls() -> None:
    found = imported("--facts", str(H200))
    assert not (HEAVY | RARE) & found
    assert len(found) <= MOST_MODULES
