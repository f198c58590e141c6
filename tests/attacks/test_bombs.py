"""Small files that would take gigabytes or minutes: from a pull request, or an artifact."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from attn_doctor.configs.readers import kinds, shell_words
from tests.effort import at_most


def doubling(letters: str = "ABCDEFGHIJ") -> str:
    """A script in which each variable holds the one before it ten times."""
    pairs = itertools.pairwise(letters)
    return "A=xxxxxxxxxx\n" + "".join(f"{new}={f'${old}' * 10}\n" for old, new in pairs)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", doubling() + "train.py --model_family flux --prompt $J\n"),
        ("long.sh", f"A={'x' * 60_000}\n" + "train --model_family flux $A\n" * 60_000),
        ("append.sh", "A+=x\n" * 300_000 + "train --model_family flux\n"),
        ("config.env", "MODEL_FAMILY=flux\n" + "A+=x\n" * 300_000),
        ("open.sh", "train --model_family flux\n" + "train ${" * 8000 + "A=${B:-" * 8000),
    ],
)
def test_variables_do_not_multiply(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with at_most(10):
        found = kinds.read(path)
    assert found.settings["model_family"].text.startswith("flux")
    assert sum(len(one.text) for one in found.variables.values()) < 1 << 20


def test_short_values_are_filled_in_as_ever() -> None:
    script = shell_words.read("A=flux\nB=$A-$A\nC+=x\nC+=y\ntrain --model_family ${B} $C $NONE\n")
    words = ["train", "--model_family", "flux-flux", "x y", "$NONE"]
    assert [word for word, _ in script.words if word != ";"] == words
