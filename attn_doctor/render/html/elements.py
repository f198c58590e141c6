"""Elements of HTML. Text from the machine is redacted and escaped here: it cannot be markup.

Sentences are translated here, for all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.language import chosen
from attn_doctor.redact import redact
from attn_doctor.render.terminal import clean
from attn_doctor.rulebook.pages import page
from attn_doctor.shell.commands import in_text, shell_lines

_VOID = ("meta", "br")
#: Elements whose text is never translated: code, an address, and what stands in a picture.
_AS_IT_IS = ("code", "a", "text", "tspan")


class Html(str):
    """Markup that is safe to put into a page."""

    __slots__ = ()


def text(words: str) -> Html:
    """Words as text of a page. They are redacted first: escaped, no secret would be seen."""
    return Html(escape(redact(clean(words))))


def tag(name: str, /, *children: str, **attributes: str) -> Html:
    """An element. Children that are not `Html` are text; `class_` and `aria_label` are attributes.

    A child that is empty is left out.
    """
    if "aria_label" in attributes:
        attributes["aria_label"] = _said(attributes["aria_label"])
    shown = "".join(
        f' {key.strip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
    said = str if name in _AS_IT_IS else _said
    inner = "".join(one if isinstance(one, Html) else text(said(one)) for one in children if one)
    return Html(f"<{name}{shown}>" if name in _VOID else f"<{name}{shown}>{inner}</{name}>")


def _said(words: str) -> str:
    """Words in the language of the user."""
    language = chosen()
    if not language:
        return words
    from attn_doctor.translation import say

    return say(words, language)


def join(parts: Iterable[Html]) -> Html:
    """Several elements as one."""
    return Html("\n".join(parts))


def prose(words: str, facts: Facts | None = None) -> Html:
    """A sentence whose parts between backquotes are code; with `facts`, commands as typed there."""
    words = _said(words)
    words = in_text(words, facts) if facts else words
    parts = re.split(r"`([^`\n]+)`", words)
    return Html(
        "".join(tag("code", one) if number % 2 else text(one) for number, one in enumerate(parts))
    )


def link(address: str) -> Html:
    """A link that is followed only by a click; other text stays text."""
    if not address.startswith(("https://", "http://")):
        return text(address)
    return tag("a", address, href=address, rel="noreferrer")


def rule_name(rule: str) -> Html:
    """The id of a rule, as a link to its page where such pages are served."""
    name = tag("code", rule)
    address = page(rule)
    return tag("a", name, href=address, rel="noreferrer") if address else name


def rule_names(rules: Iterable[str]) -> Html:
    """Ids of rules in one line, each as `rule_name` shows it."""
    return Html(", ".join(map(rule_name, rules)))


def block(lines: Iterable[str], label: str) -> Html:
    """Lines to copy. They scroll, also by the keyboard, where they are too long."""
    shown = Html("\n".join(map(text, lines)))
    return tag("pre", tag("code", shown), tabindex="0", role="group", aria_label=label)


def listed(items: Iterable[Html]) -> Html:
    """A list; nothing for no items."""
    shown = [tag("li", one) for one in items]
    return tag("ul", *shown) if shown else Html("")


def pairs(items: Iterable[tuple[str, Iterable[str]]]) -> Html:
    """Terms with the lines that describe them."""
    shown = [
        tag("div", tag("dt", term), *(tag("dd", prose(line)) for line in lines))
        for term, lines in items
    ]
    return tag("dl", *shown)


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[Html]]) -> Html:
    """A table with a caption. The first cell of each row is its header."""
    columns = tag("tr", *(tag("th", one, scope="col") for one in head))
    body = []
    for first, *rest in rows:
        cells = (one if one.startswith("<td") else tag("td", one) for one in rest)
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    inner = tag("table", tag("caption", caption), tag("thead", columns), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def section(title: str, *children: Html) -> Html:
    """A part of a page under a heading; nothing without content."""
    inside = [one for one in children if one]
    return tag("section", tag("h2", title), *inside) if inside else Html("")


def fixes(found: Iterable[Fix], facts: Facts) -> Iterator[Html]:
    """Each fix with its needs, its instructions, its code and its commands."""
    label = "Fix"
    for fix in found:
        needs = f" (needs {fix.needs})" if fix.needs else ""
        yield tag("p", tag("strong", f"{label}:"), Html(" "), prose(fix.title + needs, facts))
        if fix.manual:
            yield tag("p", prose(fix.manual, facts))
        lines = [*fix.code.splitlines(), *shell_lines(fix, facts)]
        if lines:
            yield block(lines, "lines to copy")
        label = "Or"
