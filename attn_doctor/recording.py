"""Records a machine as a test: all its answers, the resulting facts, and the verdicts.

`host.recorded.RecordedHost` replays `host.json`; `facts.json` and `findings.toml` are the expected
results. A question that the recording does not have is answered as on a machine without that file
or program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attn_doctor.anonymize import anonymous, private_packages, walk
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.env_vars import VARIABLES
from attn_doctor.examination import examine
from attn_doctor.facts import to_json
from attn_doctor.findings import Finding, Verdict
from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost, RecordingHost, to_text
from attn_doctor.redact import Redacted, redact_all

#: Variables that no probe reports but that an examination reads.
_NEEDED = {"PATH", "HOME", "USER", "LOGNAME", "USERNAME", "PATHEXT", "ProgramFiles", "APPDATA"}


def record(host: Host, python: str = "") -> dict[str, str]:
    """Examine `host` and return the files of the test machine by name."""
    recording = RecordingHost(host, lambda name: name in VARIABLES or name in _NEEDED)
    examine(recording, python)
    replaced = anonymous(host)
    # Not cleaned: answers of programs and the heads of files are replayed as they are.
    private = private_packages(recording.answers.items())
    answers = redact_all(walk(recording.answers, lambda text: private(replaced(text))))
    # The results of a replay, so that they do not contain what was removed from the answers.
    files = {"host.json": to_text(answers), **expected(answers, replaced(python))}
    return {name: Redacted(text) for name, text in files.items()}


def expected(answers: Mapping[str, Any], python: str = "") -> dict[str, str]:
    """Return the other two files of a test machine, computed from its answers."""
    facts = examine(RecordedHost(answers), python)
    return {
        "facts.json": to_json(facts).decode() + "\n",
        "findings.toml": _findings_toml(python, diagnosis_of(facts).findings),
    }


def _findings_toml(python: str, findings: tuple[Finding, ...]) -> str:
    """Return what was examined, the rules with a problem, and those with an unknown verdict."""
    problems = [one for one in findings if one.verdict is Verdict.PROBLEM]
    unknown = sorted({one.rule for one in findings if one.verdict is Verdict.UNKNOWN})
    lines = [f"examined = {json.dumps(python)}", "", "[problems]"]
    for rule in dict.fromkeys(one.rule for one in problems):
        same = [one for one in problems if one.rule == rule]
        cause = f", caused_by = {json.dumps(same[0].caused_by)}" if same[0].caused_by else ""
        lines.append(f"{json.dumps(rule)} = {{ times = {len(same)}{cause} }}")
    lines += ["", "[unknown]", f"rules = {json.dumps(unknown)}", ""]
    return "\n".join(lines)
