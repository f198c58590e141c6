"""A page for each rule and each advisory: the messages, the cause, the fixes and the claims.

The title is a message that people search for. All messages stand before the first heading, so that
the site's search weighs them together with the title.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from attn_doctor.language import LANGUAGES
from attn_doctor.render.findings.markdown import escape
from attn_doctor.render.rules.markdown import advisory, conditions, keys, prose, remedy
from attn_doctor.rulebook.programs import options
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_shape import Example, WrittenRule
from attn_doctor.rulebook.texts import in_general
from attn_doctor.shell.quote import quote
from attn_doctor.translation import say

#: How a claim was checked, in words.
HOW = {
    "source": "source code",
    "wheel": "released wheel",
    "document": "document",
    "run": "a run",
    "open": "not settled",
}
_SEVERITIES = {"error": "Error", "warning": "Warning", "info": "Note"}
#: The language of a translation, and what it says of itself, both in that language.
_TRANSLATIONS = {
    "zh-CN": ("简体中文", "此译文尚未经母语读者审阅；以英文为准。"),
    "pt-BR": ("Português", "Esta tradução não foi revisada por um leitor nativo; vale o inglês."),
    "hi": ("हिन्दी", "यह अनुवाद किसी मूल भाषी पाठक ने नहीं जाँचा है; अंग्रेज़ी पाठ ही मान्य है।"),
}
#: A title longer than this is cut at a word.
_LONGEST = 110


def path(id: str) -> str:
    """The page of a rule below the site's root, as Markdown."""
    return f"rules/{id}.md"


def pages(rules: Sequence[WrittenRule], meanings: Mapping[str, str]) -> dict[str, str]:
    """The page of each rule and the list of all, by path. `meanings` are those of the causes."""
    explains: dict[str, list[str]] = {rule.id: [] for rule in rules}
    for rule in rules:
        for needed in rule.requires:
            explains.setdefault(needed, []).append(rule.id)
    made = {
        path(rule.id): rule_page(rule, meanings.get(rule.cause, ""), explains[rule.id])
        for rule in rules
    }
    return {"rules/index.md": index(rules), **made}


def title(rule: Rule) -> str:
    """The message that people search for; without one, the rule's own title."""
    found = [*_last_lines(rule, "logs"), *_last_lines(rule, "reports")]
    return _shortened(found[0]) if found else summary(rule)


def summary(rule: Rule) -> str:
    """What is wrong, for no machine in particular."""
    return " ".join(in_general(rule.title).split())


def _wrong(rule: Rule) -> str:
    """The severity, and what is wrong if the title does not say it."""
    said = "" if title(rule) == summary(rule) else f": {prose(summary(rule))}"
    return _SEVERITIES[rule.severity] + said


def rule_page(rule: WrittenRule, meaning: str, explains: Sequence[str]) -> str:
    """The page of one rule."""
    lines = [
        "---",
        f"title: {_quoted(title(rule))}",
        f"description: {_quoted(summary(rule))}",
        f"tags: [{_quoted(_tag(rule.id))}]",
        "search:",
        "  boost: 2",
        "---",
        f"# {escape(title(rule))}",
        "",
        f"**{_wrong(rule)}**",
        "",
        prose(in_general(rule.why)),
        "",
        *_messages(rule),
        *_section("Other failures that look alike", list(_look_alikes(rule))),
        *_section("Fix", list(_fixes(rule))),
        *_section("Commands by machine", list(_by_machine(rule.examples))),
        *_section("Wrong results", list(advisory(rule))),
        *_section("When it is a problem", list(_when(rule))),
        "## About this rule",
        "",
        f"- rule: `{rule.id}`",
        *keys(rule, meaning, explains),
        "",
        *_section("Claims and sources", list(_claims(rule))),
        f"Evidence, read on {rule.checked.isoformat()}:",
        "",
        *(f"- <{link}>" for link in rule.evidence),
        "",
        *(line for one in LANGUAGES[1:] for line in _translation(rule, one)),
    ]
    return "\n".join(lines)


def index(rules: Sequence[Rule]) -> str:
    """The list of all rules by area."""
    lines = [
        "# Rules",
        "",
        f"{len(rules)} rules. Each page has the messages, the cause, the fixes and the sources.",
        "Paste a message into the search above, or run `attn-doctor explain LOG`.",
        "",
    ]
    for area, group in groupby(rules, lambda rule: rule.id.partition("/")[0]):
        lines += [f"## {area}", "", "| rule | what is wrong | severity |", "| --- | --- | --- |"]
        lines += [
            f"| [{one.id.removeprefix(area + '/')}]({one.id}.md) | {cell(summary(one))} |"
            f" {one.severity} |"
            for one in group
        ]
        lines.append("")
    return "\n".join(lines)


def _messages(rule: Rule) -> Iterator[str]:
    """Every message that the rule recognises, as it was printed."""
    printed = [line.rstrip() for one in rule.symptoms for line in one.logs]
    said = [line.rstrip() for one in rule.symptoms for line in one.reports]
    if printed:
        yield from ("Messages:", "", "```text")
        yield from (line for text in printed for line in text.strip("\n").splitlines())
        yield from ("```", "")
    if said:
        yield from ("As people report it:", "")
        yield from (f"- {cell(text)}" for text in said)
        yield ""


def _fixes(rule: Rule) -> Iterator[str]:
    for number, fix in enumerate(rule.fixes):
        yield from (line.replace("**Fix:** ", "### ", 1) for line in remedy(rule, number, fix))


def _translation(rule: Rule, language: str) -> Iterator[str]:
    """What is wrong, why, and the fixes in another language, if it has the rule."""
    title, why = _said(rule.title, language), _said(rule.why, language)
    if not (title and why):
        return
    name, note = _TRANSLATIONS[language]
    fixes = [
        "<br>".join(
            _said(text, language) for text in (fix.title, fix.manual, *options(fix)) if text
        )
        for fix in rule.fixes
    ]
    yield from (f"## {name} ({language})", "", f'<div lang="{language}">')
    yield from (f"<p><strong>{title}</strong></p>", f"<p>{why}</p>", "<ul>")
    yield from (f"<li>{fix}</li>" for fix in dict.fromkeys(fixes) if fix)
    yield from ("</ul>", f"<p><em>{note}</em></p>", "</div>", "")


def _said(text: str, language: str) -> str:
    """A text of a rule in another language, as HTML; empty without a translation."""
    english = " ".join(in_general(text).split())
    said = say(english, language)
    found = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(said, quote=False))
    return found if said != english else ""


def _by_machine(examples: Sequence[Example]) -> Iterator[str]:
    """The commands that tests expect on certain machines."""
    shown = [one for one in examples if one.run]
    if not shown:
        return
    yield from ("| machine | commands |", "| --- | --- |")
    for one in shown:
        lines = (_typed(line).replace("|", "\\|") for line in one.run or ())
        code = "<br>".join(f"`` {line} ``" for line in lines)
        yield f"| {cell(one.name)} | {code} |"
    yield ""


def _typed(line: str) -> str:
    """A line of words as it is typed in any shell: `<3.6` without quotes reads a file.

    Double quotes mean the same in bash, cmd and PowerShell for words without `$` and quotes.
    """
    if re.search(r"[\"'$&|]", line):
        return line
    return " ".join(quote(word, "powershell") for word in line.split(" "))


def _when(rule: Rule) -> Iterator[str]:
    yield from conditions("Applies where", rule.applies)
    yield from conditions("Is a problem if", rule.when)


def _look_alikes(rule: WrittenRule) -> Iterator[str]:
    for one in rule.look_alikes:
        last = _shortened(one.log.strip().splitlines()[-1].strip()).replace("`", "'")
        means = f"[{one.means}](../{one.means}.md)" if one.named_rule else cell(one.means)
        posted = f" ([posted]({one.source}))" if one.source else ""
        yield f"- `{last}` is {means}{posted}"
    if rule.look_alikes:
        yield ""


def _claims(rule: WrittenRule) -> Iterator[str]:
    if not rule.claims:
        return
    yield from ("| claim | checked by | source |", "| --- | --- | --- |")
    for claim in rule.claims:
        sources = "<br>".join(linked_source(text) for text in claim.source)
        settles = f" To settle it: {cell(claim.needs)}" if claim.needs else ""
        yield f"| {cell(claim.says)}{settles} | {HOW[claim.how]} | {sources} |"
    yield ""


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    return [f"## {heading}", "", *lines] if lines else []


def _last_lines(rule: Rule, kind: str) -> list[str]:
    """The last line of each message: a traceback ends with its error."""
    texts: list[str] = [text for one in rule.symptoms for text in getattr(one, kind)]
    return [text.strip().splitlines()[-1].strip() for text in texts if text.strip()]


def _shortened(message: str) -> str:
    """A message without folders of one machine, cut at a word."""
    short = re.sub(r"(?:[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]", "…/", " ".join(message.split()))
    if len(short) <= _LONGEST:
        return short
    return short[:_LONGEST].rpartition(" ")[0] + " …"


def linked_source(text: str) -> str:
    """A source as a cell of a table; an address is a link."""
    return f"<{text}>" if text.startswith("https://") else cell(text)


def cell(text: str) -> str:
    """Text in one line of a table, with nothing in it as markup."""
    return escape(" ".join(text.split()))


def _tag(id: str) -> str:
    """The id as one word of the search: its slash and hyphens are not those that words end at."""
    return id.replace("/", "\u2215").replace("-", "\u2011")


def _quoted(text: str) -> str:
    """A string of YAML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def guides(rules: Sequence[Rule]) -> str:
    """The rules that are about a statement of a guide, by the place in the guide."""
    rows = sorted((rule.row, rule.id) for rule in rules if rule.row)
    named = {rule.id: summary(rule) for rule in rules}
    lines = ["## Every rule about a guide", "", "| place | rule |", "| --- | --- |"]
    lines += [f"| {cell(row)} | [{cell(named[id])}](rules/{id}.md) |" for row, id in rows]
    return "\n".join(["", *lines, ""])
