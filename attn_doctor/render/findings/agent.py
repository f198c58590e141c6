"""A diagnosis as one short line of JSON, for coding agents: verdict, reason and first commands.

A model pays for each word that it reads, so the line is shorter than `LIMIT` bytes. `check --format
json` has the rest.
"""

from __future__ import annotations

import msgspec

from attn_doctor.clean import clean_lines
from attn_doctor.findings import Diagnosis
from attn_doctor.redact import Redacted, redact
from attn_doctor.render.findings.json import page_of
from attn_doctor.render.findings.plain import headline
from attn_doctor.render.grouping import counts, problems, unchecked
from attn_doctor.render.json_text import result
from attn_doctor.shell.commands import shell_lines

#: Bytes that the line stays below.
LIMIT = 2000
_NEWER, _RELEASES = 60, 4
#: What a release that is newer than the rules know is evaluated by.
_BASES = {
    "known": "newer, evaluated as the newest known",
    "source": "newer, evaluated from its source",
    "unknown": "newer, in part unknown",
}
_RULE, _TITLE, _REASON, _COMMANDS, _MANUAL = 100, 250, 450, 500, 300


def agent(diagnosis: Diagnosis, code: int) -> str:
    """The worst root problem and its first fix as one line of JSON.

    `verdict` is `problem` for errors and warnings, else `ok`: notes need no repair. `problems`
    counts root problems by severity, and `unchecked` the rules that could not be evaluated. `newer`
    names releases that the rules do not know, and what each is evaluated by. `page` is the address
    of the rule's page where such pages are served and the line has room for it. `code` is the exit
    code. Texts that are too long end in `…`; commands that are too long are left out, and
    `instruction` says so.
    """
    line = _line(diagnosis, code, linked=True)
    return line if len(line.encode()) < LIMIT else _line(diagnosis, code, linked=False)


def _line(diagnosis: Diagnosis, code: int, *, linked: bool) -> Redacted:
    errors, warnings, notes = counts(diagnosis)
    found = errors + warnings > 0
    written = result(
        verdict="problem" if found else "ok",
        exit_code=code,
        problems={"errors": errors, "warnings": warnings, "notes": notes},
        unchecked=sum(len(rules) for rules in unchecked(diagnosis).values()),
        newer=[
            _short(f"{one.package} {one.version}: {_BASES[one.basis or 'unknown']}", _NEWER)
            for one in (diagnosis.facts.newer_releases or ())[:_RELEASES]
        ],
        simulated=bool(diagnosis.facts.simulated),
        **(_first(diagnosis, linked=linked) if found else {}),
    )
    return Redacted(msgspec.json.format(written.encode(), indent=-1).decode() + "\n")


def _first(diagnosis: Diagnosis, *, linked: bool) -> dict[str, object]:
    """The worst root problem, with the first of its fixes that has commands."""
    worst = problems(diagnosis)[0]
    finding = worst.finding
    fixes = [(fix, shell_lines(fix, diagnosis.facts)) for fix in finding.fixes]
    fix, lines = next((one for one in fixes if one[1]), fixes[0] if fixes else (None, []))
    lines = [*map(clean_lines, lines)]
    fits = _size(lines) <= _COMMANDS
    manual = (fix.manual or fix.code) if fix else ""
    return {
        "rule": _short(finding.rule, _RULE),
        **(page_of(finding.rule) if linked else {}),
        "severity": worst.severity,
        "problem": _short(headline(finding), _TITLE),
        "reason": _short(finding.why, _REASON),
        "commands": lines if fits else [],
        "safety": fix.safety if fix else "",
        "instruction": _short(manual, _MANUAL)
        if fits
        else "The commands are too long for this format: use --format json.",
    }


def _short(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of JSON.

    It is redacted before it is cut: half a token does not look like a token.
    """
    text = redact(clean_lines(text))
    if _size(text) <= limit:
        return text
    text = text[:limit]
    while _size(text) > limit - 3:
        text = text[:-4]
    return f"{text}…"


def _size(data: object) -> int:
    """Bytes of `data` as `json_text` writes it."""
    return len(msgspec.json.encode(data).replace(b"##", b"#\\u0023"))
