"""Lines are broken as `textwrap` breaks them."""

from __future__ import annotations

import textwrap

from hypothesis import example, given
from hypothesis import strategies as st

from attn_doctor.render.terminal import filled


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
