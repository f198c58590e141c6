"""What a hostile package says while `audit` and `--live` run it stays text, without secrets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from attn_doctor.facts import Facts
from attn_doctor.render.audit import json as audit_json
from attn_doctor.render.audit import markdown as audit_markdown
from attn_doctor.render.audit import text as audit_text
from attn_doctor.render.backends import live_json, live_markdown, live_text
from attn_doctor.render.edge import safe
from attn_doctor.render.terminal import Terminal
from tests.attacks import test_cleaning as cleaning
from tests.attacks.test_redaction import MARKED, TOKENS, leaks
from tests.backends.audit import test_rendering as audited
from tests.backends.live import made

#: Fields of which attn-doctor chooses the values.
_OURS = (
    *("name", "route", "state", "kind", "stage", "verdict", "phase", "phases", "mask", "masks"),
    *("dtype", "severity", "outcome", "layout", "task", "backend", "field", "advisory", "decisive"),
)


def filled(value: Any, text: Callable[[], str], field: str = "") -> Any:
    """The value with a text of the attacker in each text that a package or a driver gives."""
    if isinstance(value, msgspec.Struct):
        fields = {one: getattr(value, one) for one in value.__struct_fields__}
        changed = {name: filled(one, text, name) for name, one in fields.items()}
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(filled(one, text, field) for one in value)
    if isinstance(value, dict):
        return {name: filled(one, text, field) for name, one in value.items()}
    return f"{value} {text()}" if type(value) is str and field not in _OURS else value


def pages(text: Callable[[], str]) -> Iterator[tuple[str, str]]:
    audit = filled(audited.report(audited.RIGHT, audited.WRONG, audited.PART, audited.BROKEN), text)
    live = filled(made.REPORT, text)
    terminal = Terminal(width=90)
    yield "audit text", safe(audit_text.text(audit, Facts(), terminal))
    yield "audit markdown", safe(audit_markdown.markdown(audit))
    yield "audit json", safe(audit_json.json(audit, 1))
    yield "live text", safe(live_text.text(live, Facts(), terminal, verbose=True))
    yield "live markdown", safe(live_markdown.markdown(live, Facts()))
    yield "live json", safe(live_json.json(live, (), 1))


@pytest.mark.parametrize("first", range(3))
def test_results_stay_text(first: int) -> None:
    texts = itertools.cycle(cleaning.EVIL[first:] + cleaning.EVIL[:first])
    for name, page in pages(lambda: next(texts)):
        assert "owned" in page, name
        # What a package printed is shown in lines of its own, indented or in a block.
        found = [one for one in cleaning._of_page(page) if not one.startswith("a line of theirs")]
        assert found == [], name
        if name.endswith("json"):
            strings = cleaning._strings(json.loads(page))
            assert [one for text in strings for one in cleaning._of_text(text)] == [], name


@pytest.mark.parametrize("first", range(0, len(MARKED), 30))
def test_results_hold_no_token(first: int) -> None:
    names = [*MARKED][first : first + 30]
    texts = itertools.cycle(TOKENS[name] for name in names)
    for page, text in pages(lambda: next(texts)):
        assert [name for name in names if leaks(TOKENS[name], text)] == [], page
