"""What is said after kernels and programs were run with a cache."""

from __future__ import annotations

import pytest

from attn_doctor.facts import Facts, Python
from attn_doctor.kernels.verify.run import Verification
from attn_doctor.render.caches.verification import verification_text
from attn_doctor.render.terminal import Terminal

FACTS = Facts(python=Python(path="/env/bin/python", selection_reason="--python"))
KERNEL = Verification(
    folder="/my caches", title="2×64", hit=False, key="a@cpu", previous_state="built", message="no"
)
PROGRAM = Verification(folder="/k", title="python 'a b.py'", hit=False, key="program", message="no")


@pytest.mark.posix
@pytest.mark.parametrize(
    ("results", "command"),
    [
        ([KERNEL], "build-kernels --cache-dir '/my caches' --python /env/bin/python` builds"),
        ([PROGRAM], "--cache-dir /k --python /env/bin/python -- python 'a b.py'` builds"),
    ],
)
def test_the_next_command_is_for_what_missed(results: list[Verification], command: str) -> None:
    assert command in verification_text(results, FACTS, Terminal(width=200))


def test_a_program_that_failed_by_itself_is_not_built() -> None:
    failed = Verification(
        folder="/k", title="x", hit=False, key="program", message="no", program_failed=True
    )
    assert "build-kernels" not in verification_text([failed], FACTS, Terminal(width=200))
