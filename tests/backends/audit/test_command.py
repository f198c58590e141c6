"""`attn-doctor audit` on the command line."""

from __future__ import annotations

import pytest

from tests.command import run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("audit", "flx"), "audit cannot run flx; did you mean flex?"),
        (("audit", "--device", "H100"), "--device H100: write cuda:0"),
        (("audit", "--minutes", "0"), "0.1"),
        (("backends", "--audit"), "--audit runs the backends: add --live"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""
