"""`attn-doctor rules lint`, `new` and `test`: for authors of rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli import completion
from attn_doctor.cli.screen import say

if TYPE_CHECKING:
    from attn_doctor.rulebook.rule_shape import WrittenRule


Folder = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Folder of rules. Default: attn-doctor's own.",
        show_default=False,
    ),
]


def lint(
    folder: Folder = None,
) -> None:
    """Check the rules and backends of a folder: form, facts, examples, and that each line matters.

    A folder without tables/causes.toml adds to attn-doctor's own rules and may refer to them.

    Exit codes: 0 no complaints, 1 complaints, 2 a file that cannot be read as a rule.
    """
    from attn_doctor.backends.advisories import faults
    from attn_doctor.backends.lint import lint as lint_catalogue
    from attn_doctor.render.grouping import plural
    from attn_doctor.rulebook.lint import Complaint
    from attn_doctor.rulebook.lint import lint as lint_rules

    path = _existing(folder)
    rules, complaints = lint_rules(path)
    if not rules and not complaints:
        raise _no_rules(path)
    complaints += [
        Complaint(rule.id, text, str(path / f"{rule.id}.toml"))
        for rule in rules
        if rule.advisory is not None
        for text in faults(rule.advisory)
    ]
    table, about_backends = lint_catalogue(path, [rule.id for rule in rules])
    for complaint in complaints:
        say(f"{_relative(Path(complaint.file))}: {complaint.text}")
    for entry, text in about_backends:
        say(f"{_relative(path / 'tables' / 'backends')}: {entry}: {text}")
    if about_backends:
        say(f"{plural(len(about_backends), 'complaint')} about the catalogue of backends")
    elif complaints:
        say(f"{plural(len(complaints), 'complaint')} about {plural(len(rules), 'rule')}")
    if complaints or about_backends:
        unreadable = any(complaint.unreadable for complaint in complaints)
        raise typer.Exit(2 if unreadable or (about_backends and table is None) else 1)
    counts = [
        plural(sum(len(rule.examples) for rule in rules), "example"),
        plural(sum(len(symptom.logs) for rule in rules for symptom in rule.symptoms), "log line"),
        plural(sum(len(symptom.reports) for rule in rules for symptom in rule.symptoms), "report"),
        plural(sum(len(rule.look_alikes) for rule in rules), "look-alike"),
    ]
    say(f"No complaints about {plural(len(rules), 'rule')}: {', '.join(counts)}")
    few = sum(bool(rule.symptoms) and len(rule.look_alikes) < 2 for rule in rules)
    if few:
        say(f"{plural(few, 'rule')} with symptoms, but with fewer than two look-alikes")
    if table is not None:
        examples = sum(len(requirement.examples) for requirement in table.requirements)
        say(
            f"No complaints about {plural(len(table.backends), 'backend')}:"
            f" {plural(len(table.names), 'name')},"
            f" {plural(len(table.requirements), 'requirement')}, {plural(examples, 'example')}"
        )


def new(
    id: Annotated[
        str, typer.Argument(metavar="AREA/NAME", help="Id of the rule, such as flash/wrong-thing.")
    ],
    from_log: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Log of the failure (- for standard input), from which the symptom is taken.",
        ),
    ] = "",
    folder: Annotated[
        Path, typer.Option("--rules", metavar="DIR", help="Folder of rules to write to.")
    ] = Path("rules"),
) -> None:
    """Write a new rule file, filled in as far as possible. Never overwrites a file.

    Exit codes: 0 written, 2 an id that is not allowed or exists, or a log without a failure.
    """
    from datetime import date

    from attn_doctor.cli.output_file import write_new
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_files import is_id
    from attn_doctor.rulebook.scaffold import FILL_IN, scaffold
    from attn_doctor.rulebook.symptom_text import is_in
    from attn_doctor.rulebook.texts import named

    if not is_id(id) or id.startswith(("tables/", "i18n/")):
        raise AttnDoctorError(
            f"{id!r} is not an id of a rule: write area/name in lower case with hyphens"
        )
    path = folder / f"{id}.toml"
    ours = library.load()
    # A team's rule must not have the id of one of ours; a rulebook of its own may.
    separate = (folder / "tables" / "causes.toml").is_file()
    if not separate and any(rule.id == id for rule in ours):
        raise AttnDoctorError(f"{id} is one of attn-doctor's own rules; choose another name")
    line, facts = FILL_IN, list[tuple[str, str]]()
    if from_log:
        from attn_doctor.explain.draft_rule import failure

        line, facts = failure(from_log)
    matching = [rule for rule in ours if any(is_in(symptom, line) for symptom in rule.symptoms)]
    cause = matching[0].cause if matching else FILL_IN
    write_new({path: scaffold(id, date.today(), line, cause, facts)}, folders=True)
    for rule in matching:
        say(f"Note: {rule.id} matches this line already: {named(rule.title)}")
    say(f"Wrote {path}.")
    say(f"Next: fill in what `attn-doctor rules lint --rules {folder}` names.")


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID…]",
            help="Rules to test. Default: all.",
            show_default=False,
            autocompletion=completion.rules,
        ),
    ] = None,
    folder: Folder = None,
) -> None:
    """Run the examples of rules, and match their symptoms against their example lines.

    With ids, each example and line is shown; without, each rule.

    Exit codes: 0 all passed, 1 failures, 2 no such rule, or a file that cannot be read as one.
    """
    from attn_doctor.render.grouping import plural
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_files import read_folder
    from attn_doctor.rulebook.rule_lookup import find_rules

    path = _existing(folder)
    rules = read_folder(path, library.required_sets())
    if not rules:
        raise _no_rules(path)
    known = {rule.id: rule for rule in rules}
    named = [rule.id for name in names or () for rule in find_rules(name, rules, {}).rules]
    chosen = list(map(known.__getitem__, dict.fromkeys(named))) if names else rules
    failures = tests = 0
    for rule in chosen:
        results = list(_results(rule))
        faults = [fault for _, fault in results if fault]
        tests, failures = tests + len(results), failures + len(faults)
        if names:
            for test, fault in results:
                say(f"{'FAIL' if fault else 'ok  '}  {rule.id}  {fault or test}")
        else:
            say(f"{'FAIL' if faults else 'ok  '}  {rule.id}  {_counts(rule)}")
            for fault in faults:
                say(f"      {fault}")
    say(f"{plural(tests, 'test')}, {plural(failures, 'failure')}")
    raise typer.Exit(1 if failures else 0)


def _results(rule: WrittenRule) -> Iterator[tuple[str, str]]:
    """Each example and each line of a rule, with its fault or an empty text."""
    from attn_doctor.rulebook.lint import example_fault, symptom_fault

    for example in rule.examples:
        yield f"example {example.name!r}: {example.expect}", example_fault(rule, example)
    for symptom in rule.symptoms:
        for line in symptom.lines:
            shown = line.strip().splitlines()[0]
            yield f"line {shown!r}: matched", symptom_fault(symptom, line)


def _counts(rule: WrittenRule) -> str:
    from attn_doctor.render.grouping import plural

    lines = sum(len(symptom.lines) for symptom in rule.symptoms)
    counts = ((len(rule.examples), "example"), (lines, "line"))
    return ", ".join(plural(count, name) for count, name in counts if count) or "no tests"


def _existing(given: Path | None) -> Path:
    """The folder that is given, or ours. Raises `AttnDoctorError` if it does not exist."""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.rulebook import library

    folder = given or library.folder()
    if not folder.is_dir():
        raise AttnDoctorError(
            f"{folder} is not a folder; name one that holds <area>/<rule>.toml files"
        )
    return folder


def _no_rules(folder: Path) -> Exception:
    from attn_doctor.errors import AttnDoctorError

    return AttnDoctorError(f"{folder} has no rules; their files are <area>/<rule>.toml")


def _relative(path: Path) -> Path:
    """`path` relative to the working directory if it is below it, so that an editor can open it."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
