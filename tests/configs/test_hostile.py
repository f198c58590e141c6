"""Configurations that are none: one clear sentence, quickly, and nothing is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attn_doctor.configs.readers.kinds import read
from attn_doctor.configs.readers.settings import ConfigError
from tests.command import run
from tests.effort import at_most

HOSTILE = {
    "no.json": "{",
    "list.json": "[]",
    "comma.json": '{"model_family": "flux",}',
    "other.json": '{"name": "x"}',
    "deep.json": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "brackets.json": "[" * 500_000,
    "digits.json": '{"model_family": 1' + "0" * 10_000 + "}",
    "deep.toml": "a = " + "[" * 20_000,
    "no.toml": "model_family = \n",
    "other.env": "A=1\n",
    "other.sh": "echo hello\n",
    "unary.py": "-" * 1_000_000 + "1",
    "attributes.py": "a" + ".b" * 300_000,
    "sum.py": "a" + "+a" * 300_000,
    "ternary.py": "a if b else " * 100_000 + "1",
    "parentheses.py": "(" * 100_000,
    "syntax.py": "def f(:\n",
    "nul.py": "x = 1\0\n",
    "nul.json": '{"model_family": "flux\0"}',
    "what.bin": "model",
    "deep.yaml": "".join(" " * level + "a:\n" for level in range(2000)),
    "flow.yaml": "a: " + "[" * 200_000,
    "dashes.yaml": "- " * 100_000,
    "colons.yaml": "a:" * 100_000,
    "quotes.yaml": '"' * 100_000 + ": x",
    "tabs.yaml": "\t" * 1000 + "a: b\n" * 1000,
    "no.ipynb": "{}",
    "deep.ipynb": '{"cells": ' + "[" * 100_000,
    "long.bat": "set " * 100_000,
    "words.sh": "a b\n" * 5_000,
    "Dockerfile": "ENV " + "A=1 " * 50_000,
    "table.toml": "[a]\n" + "\n".join(f"k{n} = {n}" for n in range(2_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name], encoding="utf-8")
    with at_most(5), pytest.raises(ConfigError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 600


def test_a_hundred_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(ConfigError, match="it has 100 MiB, and at most 2 MiB are read"):
        read(path)


@pytest.mark.posix
def test_a_pipe_does_not_hold_us(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        read(path)


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{\n"model_family": "\xff\xfe"}')
    with pytest.raises(ConfigError, match="line 2: is not UTF-8"):
        read(path)


def test_lines_of_errors(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n "model_family": "flux"\n "x": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="line 3, column 2"):
        read(path)


def test_a_script_is_not_run(tmp_path: Path) -> None:
    created = tmp_path / "created"
    path = tmp_path / "run.py"
    path.write_text(f"open({str(created)!r}, 'w')\n", encoding="utf-8")
    assert read(path).kind == "script"
    assert not created.exists()


def test_exit_code_two(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{", encoding="utf-8")
    done = run("check", "--config", str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"attn-doctor: {path.name}, line 1")
