"""A machine as a test: every answer it gave, the facts that came of them, and the verdicts.

`host.json` is played back by `host.recorded.RecordedHost`; `facts.json` and `findings.toml` say
what must come out. A new version of attn-doctor that asks something else finds it missing there.
"""

from __future__ import annotations

import json

from attn_doctor.facts import Facts, to_json
from attn_doctor.findings import Finding, Verdict
from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost, RecordingHost
from attn_doctor.pipeline import diagnose, examine
from attn_doctor.redact import redact
from attn_doctor.report import anonymous, walk
from attn_doctor.variables import VARIABLES

__all__ = ["findings_toml", "record", "replay"]

#: Variables that no probe reports but that examining depends on.
_NEEDED = {"PATH", "HOME", "USER", "LOGNAME", "USERNAME", "PATHEXT", "ProgramFiles", "APPDATA"}


def record(host: Host, python: str = "") -> dict[str, str]:
    """Examine `host` and return the files of the test machine by name."""
    recording = RecordingHost(host, lambda name: name in VARIABLES or name in _NEEDED)
    examine(recording, python)
    replaced = anonymous(host)
    answers = walk(recording.answers, replaced)
    kept = answers.get("environ", {}).get("answer", {})
    for name in kept:
        kept[name] = redact(kept[name])
    # What a replay sees, not what was seen here: the two must not differ by what was taken out.
    facts = replay(answers, replaced(python))
    lines = (
        f" {json.dumps(name)}: {json.dumps(answers[name], ensure_ascii=False)}"
        for name in sorted(answers)
    )
    return {
        "host.json": "{\n" + ",\n".join(lines) + "\n}\n",
        "facts.json": to_json(facts).decode() + "\n",
        "findings.toml": findings_toml(diagnose(facts).findings),
    }


def replay(answers: dict[str, object], python: str = "") -> Facts:
    """The facts of a recorded machine."""
    return examine(RecordedHost(answers), python)


def findings_toml(findings: tuple[Finding, ...]) -> str:
    """The rules that found a problem, and those that could not tell, as TOML."""
    problems = [one for one in findings if one.verdict is Verdict.PROBLEM]
    unknown = sorted({one.rule for one in findings if one.verdict is Verdict.UNKNOWN})
    lines = ["[problems]"]
    for rule in dict.fromkeys(one.rule for one in problems):
        same = [one for one in problems if one.rule == rule]
        cause = f", caused_by = {json.dumps(same[0].caused_by)}" if same[0].caused_by else ""
        lines.append(f"{json.dumps(rule)} = {{ times = {len(same)}{cause} }}")
    lines += ["", "[unknown]", f"rules = {json.dumps(unknown)}", ""]
    return "\n".join(lines)
