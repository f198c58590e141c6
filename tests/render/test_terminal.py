"""Lines are broken as `textwrap` breaks them, in messages too."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from attn_doctor.render.edge import Edge
from attn_doctor.render.terminal import filled

if TYPE_CHECKING:
    import pytest


@given(
    st.text(alphabet="ab-\t\n\v\f\r\0\u00a0\u3000\u00e9   ", max_size=60),
    st.integers(1, 30),
    st.integers(0, 8),
)
@example("", 20, 0)
@example(" first blank, and a-word-that-is-longer-than-a-line  ", 10, 4)
def test_lines_are_those_of_textwrap(text: str, width: int, indent: int) -> None:
    width += indent
    expected = textwrap.wrap(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    assert filled(text, width, indent) == expected


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_message_fits_the_terminal_and_keeps_its_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = f"attn-doctor: {'words ' * 9}and `attn-doctor check --python /venv/bin/python` more\n"
    screen, pipe = _Screen(), io.StringIO()
    Edge(screen, styled=False, said=True).write(text)
    Edge(pipe, styled=False, said=True).write(text)
    rows = screen.getvalue().splitlines()
    assert "`attn-doctor check --python /venv/bin/python`" in rows
    assert all(len(row) <= 40 for row in rows if "`" not in row)
    assert pipe.getvalue() == text
