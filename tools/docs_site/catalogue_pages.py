"""The catalogue of backends and the presets of model families, as tables to read and to sort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attn_doctor.backends.catalogue_entries import Backend, Catalogue, Name
from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets
from tools.docs_site.table_pages import escaped, table

#: Page → its title, in the order of the list.
TITLES = {
    "backends": "Attention backends, their names and what they need",
    "presets": "Models and the attention that they run",
}


def pages(catalogue: Catalogue, absent: list[dict[str, Any]]) -> dict[str, str]:
    """The two pages by path. `absent`: families without a preset, each with the reason."""
    return {
        "tables/backends.md": "\n".join(_backends(catalogue)),
        "tables/presets.md": "\n".join(_presets(absent)),
    }


def _backends(catalogue: Catalogue) -> Iterator[str]:
    yield from (f"# {TITLES['backends']}", "")
    yield "`attn-doctor backends` evaluates them for your machine. Click a heading to sort."
    yield from ("", "## Backends", "")
    yield from table([_backend(one) for one in catalogue.backends])
    yield from ("## Names", "", "The names that each framework accepts.", "")
    titles = {one.name: one.title for one in catalogue.frameworks}
    yield from table([_name(one, titles[one.framework]) for one in catalogue.names])
    yield from ("## Requirements", "", "What is wrong where one is not met.", "")
    users: dict[str, list[str]] = {one.id: [] for one in catalogue.requirements}
    for backend in catalogue.backends:
        for id in dict.fromkeys((*backend.requires, *backend.compiled)):
            users[id].append(backend.name)
    for one in catalogue.names:
        for id in one.requires:
            users[id].append(one.name)
    yield from table(
        [
            {
                "requirement": f"`{one.id}`",
                "otherwise": one.text,
                "result": "wrong, without a message" if one.silent else one.otherwise,
                "backends": ", ".join(f"`{name}`" for name in dict.fromkeys(users[one.id])),
                "rule": f"`{one.rule or one.problem}`" if one.rule or one.problem else "",
                "source": one.source,
            }
            for one in catalogue.requirements
        ]
    )
    for order in catalogue.orders:
        if order.timing:
            yield from (f"## Measured on {escaped(order.gpu)}", "", f"{escaped(order.what)}.", "")
            yield f"{escaped(order.source)}."
            yield ""
            yield from table(
                [
                    {
                        "backend": f"`{one.backend}`" + (" (compiled)" if one.compiled else ""),
                        "ms": one.ms,
                        "MiB": "" if one.mib is None else one.mib,
                        "error against float64": "" if one.error is None else one.error,
                    }
                    for one in order.timing
                ]
            )


def _backend(one: Backend) -> dict[str, Any]:
    return {
        "backend": f"`{one.name}`",
        "what it is": one.title,
        "exact": not one.approximate,
        "accepts": one.truth,
        "other hardware": one.hardware,
        "source": one.source,
    }


def _name(one: Name, framework: str) -> dict[str, Any]:
    return {
        "framework": framework,
        "name": f"`{one.name}`",
        "backend": f"`{one.backend}`",
        "since": one.since,
        "before": one.before,
        "where it fails": one.fallback,
        "note": one.note,
    }


def _presets(absent: list[dict[str, Any]]) -> Iterator[str]:
    yield from (f"# {TITLES['presets']}", "")
    yield "`attn-doctor build-kernels --preset NAME` compiles FlexAttention for a model."
    yield "Tokens are those of the default size, with the text. Click a heading to sort."
    yield from ("", "## Presets", "")
    yield from table([row for one in presets.families().values() for row in _preset(one)])
    yield from ("## Models without a preset", "")
    yield from table([{**one, "name": f"`{one['name']}`"} for one in absent])


def _preset(family: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each attention of the family."""
    try:
        found, _ = presets.rows(family["name"], block=False)
    except AttnDoctorError:  # it has no default size
        found = [{} for _ in family["attention"]]
    for kernel, attention in zip(found, family["attention"], strict=True):
        lengths = [str(one) for length in kernel.get("lengths", []) for one in length]
        keys = kernel.get("kv_length", "")
        yield {
            "preset": f"`{family['name']}`",
            "model": family["title"],
            "attention": attention.get("of", ""),
            "heads": kernel.get("heads", family["heads"]),
            "head size": kernel.get("head_dim", family["head_dim"]),
            "default size": family.get("default", ""),
            "queries": ", ".join(lengths) or "as given",
            "keys": keys or "same",
            "mask": kernel.get("mask", attention.get("mask", "none")),
            "Diffusers": family["since"] or "never by its dispatcher",
            "source": family["source"],
        }
