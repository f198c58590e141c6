"""The compatibility tables of `rules/tables/` as tables to read and to sort."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_doctor.errors import RuleError
from attn_doctor.toml_files import read_toml

#: File → its title, in the order of the list.
TABLES = {
    "torch": "PyTorch: CUDA, Triton, Python and GPUs of each release",
    "triton": "Triton: ptxas of each release",
    "flash-attn": "FlashAttention 2: prebuilt wheels of each release",
    "sageattention": "SageAttention: what each release compiles for",
    "xformers": "xformers: the torch that each release is for",
    "companions": "torchvision, torchaudio, torchao and others beside torch",
    "cuda-toolkits": "CUDA toolkits",
    "drivers": "NVIDIA drivers and CUDA",
    "pythons": "Python versions of each release",
    "gpus": "GPUs and their compute capabilities",
    "families": "SimpleTuner's model families and their attention",
    "releases": "Newest releases that the rules know",
}
_NOTED = ("schema", "checked", "newest")
#: Characters of a cell that may stand in a narrow column.
_SHORT = 40


def pages(folder: Path, others: Mapping[str, str]) -> dict[str, str]:
    """A page for each table and the list of all, by path. Raises `RuleError`.

    `others`: titles of further pages of the list.
    """
    listed = [f"- [{title}]({name}.md)" for name, title in {**TABLES, **others}.items()]
    intro = "The rules read these tables. Each row has its source. Click a heading to sort."
    index = "\n".join(["# Compatibility tables", "", intro, "", *listed, ""])
    made = {
        f"tables/{name}.md": page(folder / f"{name}.toml", title) for name, title in TABLES.items()
    }
    return {"tables/index.md": index, **made}


def page(file: Path, title: str) -> str:
    """One file as a page. Raises `RuleError`."""
    data = read_toml(file, RuleError)
    checked = f"Last checked on {data['checked']}." if "checked" in data else ""
    newest = f" Newest known release: {data['newest']}." if "newest" in data else ""
    lines = [f"# {title}", "", *_introduction(file.read_text("utf-8")), checked + newest, ""]
    for name, value in data.items():
        if name not in _NOTED:
            lines += _shown(name, value)
    return "\n".join(lines)


def _introduction(text: str) -> Iterator[str]:
    """The comment at the top; a line `name  meaning` becomes an item."""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words = line[2:]
        item = re.match(r"([\w`]+)\s{2,}(?=\S)(.*)", words)
        if item:
            yield f"- `{item[1].strip('`')}`: {escaped(item[2])}"
        elif words.startswith("  "):
            yield f"    {escaped(words.strip())}"
        else:
            yield from ("", escaped(words)) if words[:1].isupper() else (escaped(words),)
    yield ""


def _shown(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield from (f"## {name}", "", *table(value))
    elif isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        yield from (f"## {name}", "")
        yield from table([{name: key, **inner} for key, inner in value.items()])
    elif isinstance(value, dict):
        plain = {key: one for key, one in value.items() if not _is_table(one)}
        yield from (f"## {name}", "")
        yield from (f"- {key}: {_cell(one)}" for key, one in plain.items())
        yield ""
        for one in value.values():
            if _is_table(one):
                yield from table(one)
    else:
        yield from (f"- {name}: {_cell(value)}", "")


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Rows as a table with a column for each key that any row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    yield f"| {' | '.join(columns)} |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        yield f"| {' | '.join(_wide(_cell(row.get(column, ''))) for column in columns)} |"
    yield ""


def _wide(cell: str) -> str:
    """A cell whose column keeps a width to read it in, if it holds a list."""
    shown = re.sub(r"\]\([^)]*\)", "]", cell)
    return f'<div class="wide">{cell}</div>' if len(shown) > _SHORT else cell


def _cell(value: Any, between: str = "<br>") -> str:
    if isinstance(value, dict):
        return between.join(f"{escaped(key)}: {_cell(one)}" for key, one in value.items())
    if isinstance(value, list):
        nested = any(isinstance(one, (list, dict)) for one in value)
        between = "<br>" if nested else ", "
        # The last ones may be empty: no newest release is known.
        return between.join(_cell(one, ", ") for one in value).rstrip(", ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return f"[source]({text})" if text.startswith("https://") else escaped(text)


def escaped(text: str) -> str:
    """Text without markup, except for code between backticks."""
    parts = re.split(r"(`[^`]+`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
