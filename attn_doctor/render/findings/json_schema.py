"""The JSON Schema of what `check --format json` writes; `docs/check.schema.json` holds it."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec

from attn_doctor.backends.readiness import Matrix, Readiness
from attn_doctor.facts import Facts, NewerRelease
from attn_doctor.findings import Finding
from attn_doctor.render.json_text import SCHEMA

_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "array", "items": {"type": "string"}}


def schema() -> dict[str, Any]:
    """The schema of one result. Keys may be added within one value of `schema`."""
    shapes: tuple[type, ...] = (Finding, Facts, Matrix, NewerRelease)
    references, components = msgspec.json.schema_components(shapes, ref_template="#/$defs/{name}")
    finding, facts, matrix, newer = references
    for component in components.values():
        if "description" in component:  # as Python does by itself from 3.13 on
            component["description"] = cleandoc(component["description"])
    # Renderers add the lines for the shell and leave out what only `fix` uses.
    del components["Fix"]["properties"]["done"]
    components["Fix"]["properties"]["commands"] = {
        **_TEXTS,
        "description": "Lines for the shell of this machine.",
    }
    components["Finding"]["properties"]["page"] = {
        "type": "string",
        "description": "Address of the rule's page on the documentation site; absent without one.",
    }
    del components["Matrix"]["properties"]["recommended"]
    components["Matrix"]["required"] = [
        name for name in components["Matrix"].get("required", ()) if name != "recommended"
    ]
    summary = ("rules", "errors", "warnings", "notes", "suppressed", "unchecked")
    properties: dict[str, Any] = {
        "schema": {"const": SCHEMA},
        "attn_doctor": {"type": "string", "description": "Version that wrote it."},
        "exit_code": {"enum": [0, 1, 4]},
        "summary": _object(
            {**dict.fromkeys(summary, _COUNT), "seconds": {"type": "number", "minimum": 0}}
        ),
        "problems": {"type": "array", "items": finding},
        "suppressed": {"type": "array", "items": finding},
        "unchecked": {
            "type": "array",
            "items": _object({"reason": {"type": "string"}, "rules": _TEXTS}),
        },
        "newer_releases": {"type": "array", "items": newer},
        "tables": _object(
            {"checked": {"type": "string", "format": "date"}, "days": {"type": "integer"}}
        ),
        "facts": facts,
    }
    optional = {"backends": matrix, "configs": {"type": "array", "items": _config()}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What attn-doctor check --format json writes",
        **_object(properties, optional),
        "$defs": components,
    }


def _config() -> dict[str, Any]:
    """One configuration and what each of its phases will run (`preflight.plain`)."""
    text, maybe_text = {"type": "string"}, {"type": ["string", "null"]}
    maybe_count = {"type": ["integer", "null"], "minimum": 0}
    states: list[Any] = [one.value for one in Readiness]
    phase = {
        **dict.fromkeys(("phase", "asked", "why", "last_known", "reason", "dtype", "mask"), text),
        "backend": maybe_text,
        "fused": {"type": ["boolean", "null"]},
        "state": {"enum": [*states, None]},
        "except_for": _TEXTS,
        "tokens": maybe_count,
        "mib_per_layer": maybe_count,
    }
    return _object(
        {
            **dict.fromkeys(("file", "found", "kind", "framework", "version", "model"), text),
            "installed": {"type": ["boolean", "null"]},
            "phases": {"type": "array", "items": _object(phase)},
            "ignored": _TEXTS,
            "notes": _TEXTS,
        }
    )


def _object(properties: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
    }
