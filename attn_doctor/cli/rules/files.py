"""`attn-doctor rules lint`, `new` and `test`: for those who write rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attn_doctor.rulebook.rule import Rule


def lint(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of rules. Default: attn-doctor's own.", show_default=False),
    ] = None,
) -> None:
    """Check every rule and backend: their shape, facts, examples, and that each line matters.

    A folder without tables/causes.toml is taken to add to attn-doctor's own rules.

    Exit codes: 0 sound, 1 complaints, 2 a file that cannot be read as a rule.
    """
    from attn_doctor.render.grouping import plural
    from attn_doctor.rulebook.lint import lint as complaints_in

    rules = _folder(folder)
    found, complaints = complaints_in(rules)
    if not found and not complaints:
        raise _no_rules(rules)
    from attn_doctor.backends.lint import lint as catalogue_complaints

    table, unsound = catalogue_complaints(rules, [rule.id for rule in found])
    for complaint in complaints:
        typer.echo(f"{_near(Path(complaint.file))}: {complaint.text}")
    for entry, text in unsound:
        typer.echo(f"{_near(rules / 'tables' / 'backends')}: {entry}: {text}")
    if unsound:
        typer.echo(f"{plural(len(unsound), 'complaint')} about the catalogue of backends")
        raise typer.Exit(2 if table is None or any(one.unreadable for one in complaints) else 1)
    if complaints:
        typer.echo(f"{plural(len(complaints), 'complaint')} about {plural(len(found), 'rule')}")
        raise typer.Exit(2 if any(one.unreadable for one in complaints) else 1)
    examples = plural(sum(len(rule.examples) for rule in found), "example")
    sound = "rule is sound" if len(found) == 1 else "rules are sound"
    typer.echo(f"{len(found)} {sound}; {examples} agree")
    if table is not None:
        examples = plural(sum(len(one.examples) for one in table.requirements), "example")
        told = f"{len(table.names)} names of {len(table.backends)} backends"
        typer.echo(
            f"{told} and their {len(table.requirements)} demands are sound; {examples} agree"
        )


def new(
    id: Annotated[
        str, typer.Argument(metavar="AREA/NAME", help="The rule's id, as flash/wrong-thing.")
    ],
    from_log: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Log of the failure (- for stdin), to fill in what it tells."
        ),
    ] = "",
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of rules to write it in.")
    ] = Path("rules"),
) -> None:
    """Write a new rule file with all filled in that can be. Overwrites nothing.

    Exit codes: 0 written, 2 a wrong name, a log without a failure, or a file that is there already.
    """
    from datetime import date

    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.rulebook.rule_files import is_id
    from attn_doctor.rulebook.scaffold import FILL_IN, scaffold
    from attn_doctor.rulebook.texts import named

    if not is_id(id) or id.startswith(("tables/", "i18n/")):
        raise AttnDoctorError(
            f"{id!r} is no id for a rule: write area/name in lower case with hyphens"
        )
    path = directory / f"{id}.toml"
    if path.exists():
        raise AttnDoctorError(f"{path} exists; choose another name")
    _refuse_ours(id, directory)
    line, told = _read(from_log) if from_log else (FILL_IN, [])
    known = _known(line)
    cause = known[0].cause if known else FILL_IN
    _write(path, scaffold(id, date.today(), line, cause, told))
    for rule in known:
        typer.echo(f"Note: {rule.id} finds this line already: {named(rule.title)}")
    typer.echo(f"Wrote {path}.")
    typer.echo(f"Next: fill in what `attn-doctor rules lint {directory}` names.")


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID…]", help="Rules to test. Default: all.", show_default=False),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of rules. Default: attn-doctor's own.", show_default=False
        ),
    ] = None,
) -> None:
    """Run the examples of rules and hold their symptoms against their lines.

    With ids, each example and line is shown; without, each rule.

    Exit codes: 0 all passed, 1 failures, 2 no such rule, or a file that cannot be read as one.
    """
    from attn_doctor.render.grouping import plural
    from attn_doctor.rulebook.rule_files import read_folder
    from attn_doctor.rulebook.rule_lookup import meant

    folder = _folder(directory)
    rules = read_folder(folder)
    if not rules:
        raise _no_rules(folder)
    chosen = {one.id: one for name in names or () for one in meant(name, rules, {}).rules}
    failures = tests = 0
    for rule in chosen.values() if names else rules:
        results = list(_results(rule))
        faults = [fault for _, fault in results if fault]
        tests, failures = tests + len(results), failures + len(faults)
        if names:
            for what, fault in results:
                typer.echo(f"{'FAIL' if fault else 'ok  '}  {rule.id}  {fault or what}")
        else:
            typer.echo(f"{'FAIL' if faults else 'ok  '}  {rule.id}  {_tally(rule)}")
            for fault in faults:
                typer.echo(f"      {fault}")
    typer.echo(f"{plural(tests, 'test')}, {plural(failures, 'failure')}")
    raise typer.Exit(1 if failures else 0)


def _results(rule: Rule) -> Iterator[tuple[str, str]]:
    """Each example and each line of a rule, with what is wrong with it if anything is."""
    from attn_doctor.rulebook.lint import example_fault, symptom_fault

    for example in rule.examples:
        yield f"example {example.name!r}: {example.expect}", example_fault(rule, example)
    for symptom in rule.symptoms:
        for line in symptom.logs:
            shown = line.strip().splitlines()[0]
            yield f"line {shown!r}: found", symptom_fault(symptom, line)


def _tally(rule: Rule) -> str:
    from attn_doctor.render.grouping import plural

    lines = sum(len(symptom.logs) for symptom in rule.symptoms)
    counts = ((len(rule.examples), "example"), (lines, "line"))
    return ", ".join(plural(count, name) for count, name in counts if count) or "no tests"


def _folder(given: Path | None) -> Path:
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


def _near(path: Path) -> Path:
    """`path` from the working directory, if it lies below it, so that an editor can open it."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path


def _refuse_ours(id: str, directory: Path) -> None:
    """A team's rule must not have the id of one of ours, wherever it lies."""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.rulebook import library

    if (directory / "tables" / "causes.toml").is_file():
        return  # a rulebook of its own
    if any(rule.id == id for rule in library.load()):
        raise AttnDoctorError(f"{id} is one of attn-doctor's own rules; choose another name")


def _read(log: str) -> tuple[str, list[tuple[str, str]]]:
    """The line of a log that says what failed, and what it tells of the machine."""
    from attn_doctor.explain.draft_rule import failure

    return failure(log)


def _known(line: str) -> list[Rule]:
    """The rules that find this line already."""
    import re

    from attn_doctor.rulebook import library

    def finds(rule: Rule) -> bool:
        return any(re.search(symptom.pattern, line) for symptom in rule.symptoms)

    return [rule for rule in library.load() if finds(rule)]


def _write(path: Path, text: str) -> None:
    from attn_doctor.errors import AttnDoctorError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Never over a file that appeared meanwhile.
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise AttnDoctorError(f"{path} cannot be written: {error.strerror}") from None
