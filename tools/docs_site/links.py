"""Links between files of the repository, as links between pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container

#: Files outside `docs/` that are pages, by their place in the repository.
OUTSIDE = {
    "rules/README.md": "write-a-rule.md",
    "rules/tables/backends/README.md": "tables/backends-format.md",
    "rules/tables/formats/README.md": "tables/formats-format.md",
    "rules/tables/targets/README.md": "tables/targets-format.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
_LINK = re.compile(
    r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)"
)
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def outside_code(change: Callable[[str], str], text: str) -> str:
    """`text` with everything changed but its fenced blocks."""
    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def relinked(text: str, source: str, place: str, pages: Container[str]) -> str:
    """The page `text` with its links pointing at pages.

    `source`: its file in the repository; `place`: its page; `pages`: all pages. Of a link to a file
    without a page, only the words stay.
    """

    def replaced(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        found = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        if found not in pages:
            return words
        return f"[{words}]({posixpath.relpath(found, posixpath.dirname(place) or '.')}{anchor})"

    return outside_code(lambda part: _LINK.sub(replaced, part), text)


def page_of(file: str) -> str:
    """The page that a file of the repository becomes; empty if it becomes none."""
    if file in OUTSIDE:
        return OUTSIDE[file]
    if file == "README.md":
        return "index.md"
    if file == "rules":
        return "rules/index.md"
    if file.startswith("rules/") and file.endswith(".toml"):
        return file.removesuffix(".toml") + ".md" if "tables" not in file else _table(file)
    return file.removeprefix("docs/") if file.startswith("docs/") else ""


def _table(file: str) -> str:
    return f"tables/{posixpath.basename(file).removesuffix('.toml')}.md"


_ADVISORY = re.compile(r"ATTN-\d{4}-\d{4}")
#: A link, code, a heading, an id of an advisory: what comes first is taken whole.
_ID = re.compile(
    r"\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)\s]*\)"
    r"|(`+)(?P<code>.+?)(?<!`)\1(?!`)"
    r"|^#.*"
    rf"|(?<![\w/-])(?P<advisory>{_ADVISORY.pattern})(?![\w-])",
    re.MULTILINE,
)


def linked_rules(text: str, place: str, ids: Container[str]) -> str:
    """The page `text` with ids of rules as links to their pages.

    Those are ids between backticks, and ids of advisories also without them.
    """

    def replaced(match: re.Match[str]) -> str:
        id = match["code"] or match["advisory"]
        if id and _ADVISORY.fullmatch(id):
            id = f"advisories/{id}"
        target = f"rules/{id}.md"
        if id not in ids or target == place:
            return match[0]
        return f"[{match[0]}]({posixpath.relpath(target, posixpath.dirname(place) or '.')})"

    return outside_code(lambda part: _ID.sub(replaced, part), text)
