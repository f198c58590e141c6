"""The results of a live run as Markdown, with reports of wrong static verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attn_doctor._version import __version__
from attn_doctor.anonymize import rewritten, walk
from attn_doctor.backends.live.outcome import LiveReport, PhaseResult, Verdict
from attn_doctor.backends.live.static_disagreements import Disagreement
from attn_doctor.facts import Facts, to_builtins
from attn_doctor.render.backends.figures import cells, shape_of
from attn_doctor.render.backends.live_text import PHASES, compared, last_line
from attn_doctor.render.findings.markdown import escape, fenced
from attn_doctor.render.json_text import json_text

_HEAD = ("backend", "verdict", "max diff", "time", "TFLOP/s", "memory", "ratio")
#: Groups of facts that a report of ours needs; the backend's own package comes with them.
_GROUPS = ("system", "python", "driver", "gpus", "torch", "triton", "diffusers")
_PACKAGES = {
    "flash": "flash_attn",
    "_flash": "flash_attn_3",
    "sage": "sageattention",
    "_sage": "sageattention",
    "xformers": "xformers",
}
_LINES = 40


def markdown(
    report: LiveReport,
    facts: Facts,
    differing: Sequence[Disagreement] = (),
    anonymous: Callable[[str], str] = str,
) -> str:
    """The result as tables. `anonymous` takes the machine's identity out of a text."""
    lines = ["## attention backends, run", ""]
    device = report.device
    where = f"torch {report.torch} on {device.name or device.device}. " if device.device else ""
    lines.append(escape(where + last_line(report)))
    if device.note:
        lines += ["", escape(device.note)]
    for phase in dict.fromkeys(phase for one in report.results for phase in one.outcomes):
        lines += _table(phase, report)
    words = compared(report)
    lines += ["", escape(f"{words[0].upper()}{words[1:]}.")] if words else []
    for one in differing:
        lines += ["", _disagreement(one, report, facts, anonymous)]
    return anonymous("\n".join(lines)) + "\n"


def _table(phase: str, report: LiveReport) -> Iterator[str]:
    shown = [one for one in report.results if one.outcomes[phase].verdict is not Verdict.ABSENT]
    figures = [one for each in shown for one in each.outcomes[phase].figures]
    yield from ("", f"### {PHASES.get(phase, phase)}", "", f"{shape_of(figures, report.dtype)}", "")
    yield f"| {' | '.join(_HEAD)} |"
    yield "|---" * len(_HEAD) + "|"
    for one in shown:
        yield f"| `{one.title}` | {' | '.join(_cells(one.outcomes[phase]))} |"


def _cells(outcome: PhaseResult) -> list[str]:
    if outcome.verdict.works and outcome.figures:
        return [outcome.verdict.value, *cells(outcome.figures[-1])]
    return [f"{outcome.verdict.value}: {escape(outcome.sentence)}", "", "", "", "", ""]


def _disagreement(
    one: Disagreement, report: LiveReport, facts: Facts, anonymous: Callable[[str], str]
) -> str:
    """A report of a wrong verdict, ready to be pasted into an issue."""
    failure = one.outcome.failure
    text = failure.text.splitlines()[-_LINES:] if failure is not None else []
    shown = {name: value for name, value in _facts(one, facts, anonymous).items() if value}
    written, version = json_text(shown).rstrip(), one.result.version or "unknown"
    lines = [
        f"### `{one.name}` for {one.phase}: the facts and the run differ",
        "",
        f"- attn-doctor {__version__}, torch {escape(f'{report.torch}, {report.device.name}')}",
        f"- called: {escape(f'{one.result.route}, version {version}')}",
        f"- from the facts: {escape(one.static)}",
        f"- by running: {escape(one.live)}",
        "",
        "<details><summary>What it printed</summary>",
        "",
        *fenced("text", text or ["(nothing)"]),
        "",
        "</details>",
        "<details><summary>Facts</summary>",
        "",
        *fenced("json", written.splitlines()),
        "",
        "</details>",
    ]
    return anonymous("\n".join(lines))


def _facts(one: Disagreement, facts: Facts, anonymous: Callable[[str], str]) -> dict[str, object]:
    plain = to_builtins(rewritten(facts, anonymous))
    family = next((name for name in _PACKAGES if one.name.startswith(name)), "")
    groups = (*_GROUPS, *([_PACKAGES[family]] if family else []))
    found = {name: _known(plain[name]) for name in groups}
    return {name: walk(value, anonymous) for name, value in found.items()}


def _known(value: object) -> object:
    """The value without unknown facts, which are most of the text and say nothing."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items() if one not in (None, (), [])}
    if isinstance(value, (list, tuple)):
        return [_known(one) for one in value]
    return value
