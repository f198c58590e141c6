"""Writes docs/facts.md, the reference of all facts, from attn_doctor/facts/.

Run it after a change to the facts: `python tools/fact_reference.py`. A test fails until the page
is up to date.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from attn_doctor.facts import ELEMENTS
from attn_doctor.rulebook.fact_catalogue import Fact, catalogue, sentences

PAGE = Path(__file__).parents[1] / "docs" / "facts.md"

INTRO = """\
<!-- Written by tools/fact_reference.py from attn_doctor/facts/; edit those files, not this one. -->
# Facts

Everything that attn-doctor may learn about a machine, under the names that rules use. A fact that
could not be read is *unknown*, and the report says why. What is simply not there is not unknown:
`installed` is false, a path or a version is empty.

| kind | in a rule | compares |
| --- | --- | --- |
| version | `torch.version >= "2.8"` | by PEP 440; `+cu130` counts if the rule names a local part |
| text | `system.os == "linux"` | letter by letter |
| number | `gpu.sm >= 90` | as numbers |
| boolean | `triton.installed == true` | |
| list | `build.missing_components contains "nvcc"` | |

Each list has its length as a fact as well: `gpus.count`, `torch.archs.count`.
"""


def page() -> str:
    """Compose the text of docs/facts.md."""
    facts = [fact for fact in catalogue().values() if not fact.name.endswith(".count")]
    by_group = {name: list(group) for name, group in groupby(facts, _group)}
    parts = [INTRO]
    # Neighbours with the same facts, such as the packages, share one section.
    for _, same in groupby(by_group.items(), lambda item: _rows(item[1])):
        parts.append(_section(dict(same)))
    return "\n".join(parts)


def _group(fact: Fact) -> str:
    """Name the section of a fact: its list, or the part of its name before the dot."""
    head, dot, _ = fact.name.partition(".")
    return fact.element_of or (head if dot or fact.kind == "list" else "")


def _section(groups: dict[str, list[Fact]]) -> str:
    docs = sentences()["Facts"]
    first, *_, last = [*groups, *groups]
    title = f"`{first}`" if first == last else f"`{first}` to `{last}`"
    lines = [f"## {title if first else 'The snapshot itself'}", ""]
    if len(groups) > 1:
        lines += [f"- `{name}`: {docs[name]}" for name in groups]
        lines += ["", f"Each of them has these facts, such as `{groups[first][0].name}`:", ""]
    elif first in ELEMENTS:
        one = ELEMENTS[first]
        lines += [f'{docs[first]} With `for_each = "{first}"`, each of them is `{one}`.', ""]
    elif first:
        lines += [docs[first], ""]
    lines += ["| fact | kind | meaning |", "| --- | --- | --- |"]
    for fact, (name, kind, doc) in zip(groups[first], _rows(groups[first]), strict=True):
        if fact.name not in ELEMENTS:
            lines.append(f"| `{name if len(groups) > 1 else fact.name}` | {kind} | {doc} |")
    return "\n".join([*lines, ""])


def _rows(facts: list[Fact]) -> list[tuple[str, str, str]]:
    """Name within the group, kind and sentence of each fact."""
    return [
        (
            fact.name[fact.name.find(".") :] if "." in fact.name else fact.name,
            f"list of {fact.items}s".replace("texts", "text") if fact.items else fact.kind,
            fact.doc.replace("|", "\\|"),
        )
        for fact in facts
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8", newline="\n")
