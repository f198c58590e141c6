"""`cache status`, `cache verify` and `cache clear` as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from attn_doctor.kernels.caches.contents import State
from attn_doctor.render.json_text import result

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.deletion import Cleared, Plan
    from attn_doctor.kernels.caches.integrity import Integrity
    from attn_doctor.kernels.caches.survey import Survey


def status_json(found: Sequence[Survey]) -> str:
    """Every cache, with its entries."""
    return result(caches=[_cache(one) for one in found])


def _cache(one: Survey) -> dict[str, Any]:
    newest = max((entry.newest for entry in one.contents.entries), default=0.0)
    return {
        "kind": one.location.kind,
        "path": one.location.path,
        "source": one.location.source,
        "exists": one.exists,
        "real_path": one.real or one.location.path,
        "owner": one.owner,
        "danger": str(one.danger or ""),
        "recognised": not one.contents.unrecognised,
        "unrecognised": one.contents.unrecognised,
        "bytes": one.contents.bytes,
        "trash_bytes": one.contents.trash,
        "files": one.contents.files,
        "newest": _day(newest),
        "filesystem": one.facts.filesystem,
        "network": one.facts.network,
        "noexec": one.facts.noexec,
        "volatile": one.facts.volatile,
        "writable": one.facts.writable,
        "states": {state.value: one.count(state) for state in State},
        "reasons": [
            {"state": state.value, "why": why, "entries": count}
            for (state, why), count in Counter(
                (each.state, each.why) for each in one.evaluated
            ).items()
        ],
        "entries": [
            {
                "part": each.entry.part,
                "name": each.entry.name,
                "bytes": each.entry.bytes,
                "files": each.entry.files,
                "newest": _day(each.entry.newest),
                "state": each.state.value,
                "why": each.why,
            }
            for each in one.evaluated
        ],
        "locks": one.locks,
        "leftovers": one.contents.leftovers,
        "unrelated_files": one.contents.unrelated_files,
        "unreadable": one.contents.unreadable,
        "record": one.manifest,
    }


def verify_json(found: Iterable[Integrity], code: int, results: Sequence[Any] = ()) -> str:
    """What is broken, and the exit code."""
    caches = [{**msgspec.to_builtins(one), "ok": one.ok} for one in found]
    return result(exit_code=code, caches=caches, kernels=results)


def clear_json(plans: Iterable[Plan], done: Sequence[Cleared], code: int) -> str:
    """What would be deleted, or was deleted."""
    removed = {(one.plan.kind, one.plan.root): one for one in done}
    data = []
    for one in plans:
        cleared = removed.get((one.kind, one.root))
        data.append(
            {
                "kind": one.kind,
                "path": one.root,
                "bytes": one.bytes,
                "groups": one.groups,
                "refused": cleared.plan.refused if cleared else one.refused,
                "doubts": one.doubts,
                "unrelated_files": one.unrelated_files,
                "removed": None if cleared is None else cleared.removed,
                "trash": cleared.trash if cleared else "",
            }
        )
    return result(exit_code=code, applied=bool(done), caches=data)


def _day(seconds: float) -> str:
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
