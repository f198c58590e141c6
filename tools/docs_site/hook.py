"""The hook of MkDocs that makes the site's generated pages: `mkdocs build --strict`.

Rules, commands, tables and documents outside `docs/` become pages; none of them is committed.
`llms.txt` lists the pages for language models.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File, Files  # noqa: E402

from attn_doctor.backends import catalogue  # noqa: E402
from attn_doctor.rulebook.library import tables  # noqa: E402
from attn_doctor.rulebook.rule_files import read_folder  # noqa: E402
from attn_doctor.rulebook.rule_shape import WrittenRule  # noqa: E402
from attn_doctor.site import address  # noqa: E402
from tools.docs_site import (  # noqa: E402
    catalogue_pages,
    claim_pages,
    command_pages,
    links,
    paste_assets,
    patterns,
    rule_pages,
    table_pages,
)


@cache
def rules() -> tuple[WrittenRule, ...]:
    """All rules, with their claims and examples."""
    return tuple(read_folder(ROOT / "rules"))


#: The field for a log. It stands where a page has `<!-- paste -->`.
_FIELD = """
<div id="paste">
<label for="paste-log">Paste a log or an error message</label>
<textarea id="paste-log" rows="7" spellcheck="false" autocomplete="off"></textarea>
<p><button type="button" class="md-button md-button--primary">Explain</button>
<span role="status"></span></p>
<div class="paste-answer" aria-live="polite"></div>
</div>

attn-doctor itself reads the log, on this page. Nothing is sent. The page knows of the machine what
the log says; `attn-doctor explain` also examines yours.
"""


@cache
def generated() -> Mapping[str, str]:
    """Pages that are not files of `docs/`, by path."""
    outside = {place: (ROOT / file).read_text("utf-8") for file, place in links.OUTSIDE.items()}
    return {
        **rule_pages.pages(rules(), tables()["causes"]["cause"]),
        **claim_pages.pages(rules()),
        **command_pages.pages(),
        **table_pages.pages(ROOT / "rules" / "tables", catalogue_pages.TITLES),
        **catalogue_pages.pages(catalogue.load(), tables()["presets"]["absent"]),
        **outside,
    }


def on_config(config: Any) -> Any:
    """Set the site's address, and add the generated pages to the navigation."""
    config.site_url = address() or None
    for entry in config.nav:
        for section, folder in (("Commands", "commands/"), ("Tables", "tables/")):
            if section in entry:
                named = (path for path in generated() if path.startswith(folder))
                entry[section] = [path for path in named if not path.endswith("-format.md")]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "llms.txt", content=_llms()))
    titles = {rule.id: rule_pages.title(rule) for rule in rules()}
    listed = json.dumps(patterns.listed(rules(), titles), ensure_ascii=False)
    files.append(File.generated(config, "assets/messages.json", content=listed))
    for name, found in paste_assets.files().items():
        files.append(File.generated(config, f"assets/paste/{name}", abs_src_path=str(found)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Make links of the repository links of the site, and ids of rules links to their pages."""
    place = page.file.src_uri
    pages = {one.src_uri for one in files.documentation_pages()} | {
        one.src_uri for one in files.media_files()
    }
    if place not in generated() or place in links.OUTSIDE.values():
        source = next((f for f, p in links.OUTSIDE.items() if p == place), f"docs/{place}")
        markdown = links.relinked(markdown, source, place, pages)
    if place != "changelog.md":
        markdown = links.linked_rules(markdown, place, {rule.id for rule in rules()})
    if place == "flex-guides.md":
        markdown += rule_pages.guides(rules())
    if place == "index.md":
        markdown = markdown.replace("<!-- paste -->", _FIELD if paste_assets.files() else "")
    if place == "claims.md":
        markdown += claim_pages.areas(rules())
    # Python-Markdown knows no escape for these characters.
    entities = {"<": "&lt;", "|": "&#124;", "~": "&#126;"}
    return links.outside_code(
        lambda part: re.sub(r"\\([<|~])", lambda match: entities[match[1]], part), markdown
    )


#: How the theme's search (lunr 2.3.9) names a node while it merges equal ones, and the correction.
#: Without a mark between a letter and the number of a node, "1" and 20 are the same as "12" and 0.
#: Nodes that differ are then merged, and a search for words such as "sm" fails.
_NODE_NAME = ("e=e+s+o.id}return e", 'e=e+s+o.id+";"}return e')


def on_post_build(config: Any) -> None:
    """Correct the search of the theme. Raises `ValueError` if its code has changed."""
    workers = Path(config.site_dir) / "assets" / "javascripts" / "workers"
    (worker,) = workers.glob("search.*.js")
    code = worker.read_text("utf-8")
    if code.count(_NODE_NAME[0]) != 1:
        message = f"{worker.name}: the code of lunr has changed; look at _NODE_NAME in hook.py"
        raise ValueError(message)
    worker.write_text(code.replace(*_NODE_NAME), "utf-8")


def _llms() -> str:
    """The list of pages for language models (llmstxt.org)."""
    tasks = sorted((ROOT / "docs/tasks").glob("*.md"))
    lines = [
        "# attn-doctor",
        "",
        "> Says which attention kernels (FlashAttention, SageAttention, xformers, FlexAttention,",
        "> SDPA) work in a Python environment, why others do not, and which command fixes them.",
        "",
        "`attn-doctor check --format agent` prints one line of JSON for coding agents.",
        "`attn-doctor explain LOG` names the cause of a failure. Each page is a rule: its",
        "messages, its cause, its fixes and its sources.",
        "",
        "## Tasks",
        "",
        *(f"- [{_heading(path)}](tasks/{path.stem}/)" for path in tasks),
        "",
        "## Rules",
        "",
        *map(_llms_line, rules()),
        "",
        "## Optional",
        "",
        "- [In a program or a notebook](api/)",
        "- [Commands and options](commands/)",
        "- [Facts that rules use](facts/)",
        "",
    ]
    return "\n".join(lines)


def _llms_line(rule: WrittenRule) -> str:
    title, summary = rule_pages.title(rule), rule_pages.summary(rule)
    name = title.replace("[", "(").replace("]", ")")
    return f"- [{name}](rules/{rule.id}/)" + (f": {summary}" if summary != title else "")


def _heading(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
