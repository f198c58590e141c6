"""The backends run at the end of an installation, where there is a GPU."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from attn_doctor.cli.install import command
from attn_doctor.facts import Facts, Gpu
from attn_doctor.install.demand import Demand, words_of
from attn_doctor.install.proof import live_words
from tests.install.machines import machine


@pytest.mark.parametrize(
    ("words", "training", "expected"),
    [
        ("sage flash", False, ("sage", "flash", "--for", "inference")),
        ("native", True, ("native", "--for", "training")),
        ("comfyui hub", False, ()),
    ],
)
def test_which_backends_run(words: str, training: bool, expected: tuple[str, ...]) -> None:
    demand = Demand(words=words_of(words.split()), training=training)
    found = live_words(demand, machine("gpu=rtx4090"), "/venv/bin/python")
    begin, end = ("backends", "--live"), ("--python", "/venv/bin/python")
    assert found == ((*begin, *expected, *end) if expected else ())
    assert live_words(demand, machine("gpu=none"), "/venv/bin/python") == ()


@pytest.mark.slow
def test_they_run_and_count(torch_python: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On the processor here: a backend that runs, and one whose package is missing."""
    facts = replace(Facts(), gpus=(Gpu(index=0),))
    native, xformers = (Demand(words=(word,)) for word in ("native", "xformers"))
    assert command._live(native, facts, torch_python) == 0
    assert "1 verified" in capsys.readouterr().out
    data = command._live_data(native, facts, torch_python)
    assert data is not None
    assert data["ok"] is True
    assert command._live(xformers, facts, torch_python) == 1
    missing = command._live_data(xformers, facts, torch_python)
    assert missing is not None
    assert missing["ok"] is False
