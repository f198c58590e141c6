"""A new rule file with everything filled in that can be, and the rest marked.

The file loads from the start, its examples agree with it, and the linter lists what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date

from attn_doctor.rulebook.fact_catalogue import catalogue
from attn_doctor.rulebook.patterns import dangers
from attn_doctor.rulebook.rule import Rule

#: Stands wherever a person has to write.
FILL_IN = "FILL IN"
#: Areas that are named after what people call a package, not after its facts.
_PACKAGES = {"flash": "flash_attn", "sage": "sageattention", "flex": "torch"}
#: Characters of a line that its pattern is made of.
_LONGEST = 160

_FILE = """\
schema   = 1
severity = "error"        # info | warning | error
cause    = {cause}    # a label of tables/causes.toml; `attn-doctor rules show LABEL` explains one
backends = []             # what does not work because of it: flex, flash, sage, xformers, …
# platforms = ["linux", "windows", "macos", "wsl"]    # where it can happen; left out: everywhere
# requires  = ["driver/no-driver"]    # problems that would explain this one
# row       = "…"         # the statement of a guide that it answers
evidence = ["https://{fill}"]    # what supports it: an issue, a release's source, a document
checked  = {today}     # the day the evidence was read

[text]                    # {{torch.version}} and the like are replaced by this machine's values
title = "{fill}: what is wrong, with the values, no full stop"
why   = \"\"\"{fill}: the mechanism, not the advice, in at most three sentences.\"\"\"

[applies]                 # where the rule has something to say
all = ['{package}.installed == true']

[when]                    # what is wrong; each line is shown with value seen and value wanted
all = ['torch.local == "{fill}"']
# any  = ['…']            # at least one of these
# none = ['…']            # not one of these

[[fix]]
title  = "{fill}"
safety = "ask"            # auto: harmless and undoable · ask · manual: a person must
run    = [["pip", "install", "{fill}"]]    # one argument an element; there is no shell
# manual = "…"            # what no command can do
# needs  = "…"            # what it takes: minutes, memory, tools
# clears = ["triton", "inductor"]    # caches that are stale afterwards
# when   = ['system.os == "linux"']    # offer it only where this holds
done   = ['torch.local != "{fill}"']    # what must hold afterwards

[[symptom]]               # what the failure prints, for `attn-doctor explain`
pattern = {pattern}
logs    = [{log}]    # real lines, which the pattern must match

[[example]]               # facts that are not given are unknown
name   = "{fill}: the report it came from"
expect = "problem"
[example.facts]
{package}.installed = true
torch.local = "{fill}"
{told}
[[example]]
name   = "{fill}: the same, as it should be"
expect = "ok"
[example.facts]
{package}.installed = true
torch.local = "cu130"

[[example]]
name   = "what decides could not be read"
expect = "unknown"
[example.facts]
{package}.installed = true

[[example]]
name   = "{package} is not installed"
expect = "not applicable"
[example.facts]
{package}.installed = false
torch.local = "{fill}"
"""


def scaffold(
    id: str,
    today: date,
    line: str = FILL_IN,
    cause: str = FILL_IN,
    told: Iterable[tuple[str, str]] = (),
) -> str:
    """The text of a new rule file.

    `line` is what the failure printed, `told` are facts that its log tells with their values.
    """
    area = id.partition("/")[0]
    package = _PACKAGES.get(area, area)
    if f"{package}.installed" not in catalogue():
        package = "torch"
    notes = "".join(f"# The log tells: {fact} = {_quoted(value)}\n" for fact, value in told)
    return _FILE.format(
        fill=FILL_IN,
        cause=_quoted(cause),
        today=today.isoformat(),
        package=package,
        pattern=_literal(pattern_for(line)),
        log=_quoted(line),
        told=notes,
    )


def unfilled(rule: Rule) -> list[str]:
    """The keys of a rule in which something is still to be filled in."""
    keys = {
        "cause": rule.cause,
        "evidence": rule.evidence,
        "text.title": rule.title,
        "text.why": rule.why,
        "applies": rule.applies,
        "when": rule.when,
        "fix": (rule.fixes, rule.fix_when, rule.fix_done),
        "symptom": rule.symptoms,
        "example": rule.examples,
    }
    return [key for key, value in keys.items() if FILL_IN in repr(value)]


# What differs from machine to machine: addresses, paths, versions and numbers.
_VARYING = re.compile(
    r"(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<path>(?:/[\w.+@-]+){2,}/?|\b[A-Za-z]:\\[^\s'\",:;)]+)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)*(?!\w))"
)
_GENERAL = {
    "hex": r"0x[0-9a-fA-F]{1,16}",
    "path": r"""[^\s'"]{1,300}""",
    "number": r"\d[\d.]{0,20}",
}


def pattern_for(line: str) -> str:
    """A pattern that finds a line again on another machine, and costs nothing to look for."""
    line = line.strip().splitlines()[0][:_LONGEST]
    parts, end = [], 0
    for match in _VARYING.finditer(line):
        parts += [_plain(line[end : match.start()]), _GENERAL[str(match.lastgroup)]]
        end = match.end()
    pattern = "".join([*parts, _plain(line[end:])])
    return _plain(line) if dangers(pattern) else pattern


def _plain(text: str) -> str:
    """`text` as a pattern; `re.escape` would also escape spaces and make it hard to read."""
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)


def _literal(text: str) -> str:
    """`text` as a TOML string, without escapes if it can be."""
    quotes = "'" if "'" not in text else "'''"
    if not text.isprintable() or quotes in text or text.endswith("'"):
        return _quoted(text)
    return f"{quotes}{text}{quotes}"


def _quoted(text: str) -> str:
    """`text` as a TOML string. JSON's escapes are TOML's too, which wants one more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
