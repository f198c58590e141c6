"""Writes docs/rules/, a page for each area: the claims of each rule, and how each was checked.

Run it after a change to a rule: `python tools/rule_claims.py`. A test fails until the pages are up
to date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from attn_doctor.rulebook.library import folder
from attn_doctor.rulebook.rule import Claim, Rule
from attn_doctor.rulebook.rule_files import read_folder

FOLDER = Path(__file__).parents[1] / "docs" / "rules"

INTRO = """\
<!-- Written by tools/rule_claims.py from rules/{area}/; edit those files, not this one. -->
# Claims of the rules of `{area}`

{read} of {all} rules were read claim by claim. A reading starts from the statement, bound or fix
and tries to refute it in its source; [rules/README.md](../../rules/README.md#claims) says how. The
other rules have only their evidence.

| rule | claim | checked by | source | day |
| --- | --- | --- | --- | --- |
"""

OPEN = """
## Not settled

| rule | claim | what would settle it |
| --- | --- | --- |
"""


def pages() -> dict[str, str]:
    """The text of each page, by its name."""
    rules = read_folder(folder())
    by_area = groupby(rules, lambda rule: rule.id.partition("/")[0])
    return {f"{area}.md": page(area, tuple(group)) for area, group in by_area}


def page(area: str, rules: Sequence[Rule]) -> str:
    """The page of one area."""
    read = sum(bool(rule.claims) for rule in rules)
    text = INTRO.format(area=area, read=read, all=len(rules))
    text += "".join(row for rule in rules for row in _rows(rule))
    open_claims = [_open(rule, one) for rule in rules for one in rule.claims if one.how == "open"]
    return text + (OPEN + "".join(open_claims) if open_claims else "")


def _rows(rule: Rule) -> Iterator[str]:
    name = f"[{rule.id}](../../rules/{rule.id}.toml)"
    if not rule.claims:
        links = " ".join(map(_source, rule.evidence))
        yield f"| {name} | {_cell(rule.title)} | evidence | {links} | {rule.checked} |\n"
    for claim in rule.claims:
        sources = " · ".join(map(_source, claim.source))
        yield f"| {name} | {_cell(claim.says)} | {claim.how} | {sources} | {rule.checked} |\n"


def _open(rule: Rule, claim: Claim) -> str:
    return f"| {rule.id} | {_cell(claim.says)} | {_cell(claim.needs)} |\n"


def _source(text: str) -> str:
    return f"<{text}>" if text.startswith("https://") else _cell(text)


def _cell(text: str) -> str:
    """`text` as a cell of a table; what Markdown would read as HTML stays text."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    composed = pages()
    for name, text in composed.items():
        (FOLDER / name).write_text(text, "utf-8", newline="\n")
    for old in {path.name for path in FOLDER.glob("*.md")} - composed.keys():
        (FOLDER / old).unlink()
