"""Tries every fix of every rule on the machines that it is offered on, and names what fails.

    python -m tools.try_fixes                  all rules; asks PyPI, and keeps its answers
    python -m tools.try_fixes torch/ xformers/ rules whose id begins so; keeps no answers
    python -m tools.try_fixes --kept           with kept answers only
    python -m tools.try_fixes --answers FILE   keep answers in another file

Prints the rule, the number of the fix and the fault, and on how many machines it happened.
The exit status is 1 if a fix fails. Nothing is installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.rulebook.rule_shape import WrittenRule
from tools.try_fixes.checks import Tried, faults, fixes_on
from tools.try_fixes.index import Answers
from tools.try_fixes.machines import Machines, grid, machines

#: The answers that the tests use too.
ANSWERS = Path(__file__).parents[2] / "tests" / "fixes" / "index.json"


def failures(
    rule: WrittenRule, answers: Answers, chosen: Machines | None = None
) -> Iterator[tuple[int, str, str]]:
    """The number of each fix that fails, the fault, and the machine, of `chosen` or of the grid."""
    for name, facts in machines(rule, chosen or grid()):
        for fix in fixes_on(rule, facts):
            for fault in faults(Tried(rule, fix, facts), answers):
                yield fix.remedy, fault, name


def main(arguments: Sequence[str]) -> int:
    """Try the rules that are named, or all."""
    parser = argparse.ArgumentParser(prog="try_fixes", description=__doc__)
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    parser.add_argument("--kept", action="store_true")
    given = parser.parse_args(arguments)
    answers = Answers(given.answers, ask=not given.kept)
    wrong = 0
    for rule in read_folder(library.folder()):
        if given.rules and not rule.id.startswith(tuple(given.rules)):
            continue
        found: dict[tuple[int, str], list[str]] = {}
        for number, fault, machine in failures(rule, answers):
            found.setdefault((number, fault), []).append(machine)
        for (number, fault), where in sorted(found.items()):
            print(f"{rule.id} fix {number}: {fault}\n    {len(where)} machines, as {where[0]}")
        wrong += len(found)
    if not (given.kept or given.rules):
        answers.keep()
    print(f"{wrong} faults")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
