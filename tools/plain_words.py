"""Refuses words that docs/glossary.md retires, in code, rules, tests and documentation.

    python tools/plain_words.py [FILE …]      default: every file of the project that people read

Prints `file:line: word` for each hit and exits with 1 if there is any. A line that has to quote
such a word ends with the comment `plain: quoted`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
#: Recorded machines, posted logs and tables hold other people's words.
FOREIGN = ("tests/machines/", "tests/logs/", "tests/explain/successes/", "rules/tables/", "LICENSE")
READ = (".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".c", ".h")
ALLOWED = "plain: quoted"
#: Keys of rule files whose values are quoted from programs.
QUOTED = re.compile(r"^\s*(?:pattern|example|examples|log|line|lines|text|evidence)\b\s*=")
NO_NOUN = (
    r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b|other\b|less\b|newer\b)\w+"
)


def retired(glossary: str) -> re.Pattern[str]:
    """The words in backticks in the last column of each row, and "is no" before a noun."""
    words = [
        word
        for row in glossary.splitlines()
        if row.startswith("| ") and not row.startswith(("| term", "| write", "| ---"))
        for word in re.findall(r"`([^`]+)`", row.split("|")[-2])
        if not word.startswith(("is no", "are no"))
    ]
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z])(?:{listed})(?![A-Za-z])|{NO_NOUN}", re.IGNORECASE)


def lines(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines to search: of TOML, those without quotations of programs."""
    quoting = False
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".toml":
            quoting = quoting or bool(QUOTED.match(line))
            if quoting:
                # A quotation ends with its line, its closing triple quotes or its closing bracket.
                opened = QUOTED.match(line)
                value = line.partition("=")[2].strip() if opened else ""
                if opened and value.startswith(("'''", '"""', "[")) and not _closed(value):
                    continue
                if opened or line.strip().endswith(("'''", '"""', "]")):
                    quoting = False
                continue
        yield number, line


def _closed(value: str) -> bool:
    if value.startswith("["):
        return value.endswith("]")
    return len(value) > 5 and value.endswith(value[:3])


def hits(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Line numbers of `path` and the retired words on them."""
    text = path.read_text("utf-8")
    for number, line in lines(path, text):
        if ALLOWED not in line:
            for match in pattern.finditer(line):
                yield number, match[0]


def project_files() -> list[Path]:
    """The files that git tracks and people read."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return [
        ROOT / name
        for name in listed.stdout.splitlines()
        if name.endswith(READ) and not name.startswith(FOREIGN)
    ]


def main(names: list[str]) -> int:
    """Print every hit; 1 if there is one."""
    pattern = retired(GLOSSARY.read_text("utf-8"))
    count = 0
    for path in [Path(name) for name in names] or project_files():
        if path.resolve() == GLOSSARY:
            continue
        for number, word in hits(path, pattern):
            count += 1
            sys.stdout.write(f"{path.resolve().relative_to(ROOT)}:{number}: {word}\n")
    if count:
        sys.stdout.write(f"{count} retired words; docs/glossary.md says what to write instead\n")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
