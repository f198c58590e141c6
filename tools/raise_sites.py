"""Lists the packages whose released code prints the text of each symptom.

    python tools/raise_sites.py
    python tools/raise_sites.py --folder torch-2.13.0 --folder flash-attn-2.8.3
    python tools/raise_sites.py --write

Without folders pip downloads the newest wheel of each package in `PACKAGES`; `--only` chooses some.
A folder holds one unpacked package, and its name begins with the package's name.

The text is searched in the literals of Python and C++ code, docstrings left out.
`tests/rulebook/raise_sites.tsv` has a row for each rule, package and message that was read: the
title of the rule is true where that package prints that message. The tool prints each new place
and exits with 1. `--write` adds them to the table, so read them first.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from attn_doctor.rulebook.patterns import required_texts
from attn_doctor.rulebook.rule import Rule, Symptom
from attn_doctor.rulebook.rule_files import read_folder
from tools.bisect_release import fetch, versions_on_index
from tools.mine_messages import _HOLE, _literal, cpp_messages, says_enough, template

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "rulebook" / "raise_sites.tsv"
#: Packages that print messages of attention, or that resemble them in their words.
PACKAGES = (
    "accelerate", "bitsandbytes", "deepspeed", "diffusers", "finetrainers", "fla-core",
    "flashinfer-python", "huggingface-hub", "kernels", "optimum-quanto", "peft", "sageattention",
    "sentence-transformers", "setuptools", "sglang", "tilelang", "timm", "torchao", "transformers",
    "triton", "trl", "unsloth", "unsloth-zoo", "xfuser", "yunchang",
)  # fmt: skip
#: What stands for a value in a message: a number, a word, a type, a shape, a release.
_VALUES = ("8", "value", "torch.float32", "(1, 2)", "2.7.1")
#: A literal with more lines is a text of documentation or of code.
_LINES = 12
#: Characters of a message in the table.
_LONGEST = 120
_CODE = frozenset((".py", ".cu", ".cpp", ".cuh", ".h"))
_SKIPPED = re.compile(r"(?:^|/)(?:tests?|testing|benchmarks?|examples?|3rdparty|third_party)/")


class Site(NamedTuple):
    """A text in the code of a package."""

    package: str
    file: str
    line: int
    text: str


class Row(NamedTuple):
    """A message of a package that a rule recognises."""

    rule: str
    package: str
    text: str


def sites(folder: Path) -> Iterator[Site]:
    """The literals in the code of an unpacked package, with `_HOLE` for each value."""
    package = re.split(r"-+\d+\.", folder.name)[0].lower().replace("_", "-")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix not in _CODE or _SKIPPED.search(name) or not path.is_file():
            continue
        source = path.read_text("utf-8", "replace")
        found = python_texts(source) if path.suffix == ".py" else cpp_texts(source)
        for line, text in found:
            if says_enough(template(text)) and text.count("\n") < _LINES:
                yield Site(package, name, line, text)


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each literal that is not a docstring."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)):
            text = _literal(node)
            if text.replace(_HOLE, "").strip():
                yield node.lineno, text
                continue
        pending += ast.iter_child_nodes(node)


def cpp_texts(source: str) -> Iterator[tuple[int, str]]:
    """The text of each check and exception in C++ code; the line is not known."""
    return ((0, message.text) for message in cpp_messages(source))


def printed(rules: Iterable[Rule], found: Iterable[Site]) -> dict[Row, Site]:
    """The messages that a symptom of a rule matches, each with one of its places.

    A symptom with `near` needs more of the log; the path of the file must fit that.
    """
    places = list(found)
    matched: dict[Row, Site] = {}
    at = _Literals(["\n".join(_filled(site.text)).lower() for site in places])
    for rule in rules:
        for symptom in rule.symptoms:
            regex = re.compile(symptom.pattern)
            for index in at.with_any(required_texts(symptom.pattern)):
                site = places[index]
                texts = _filled(site.text)
                if any(regex.search(text) and _is_near(symptom, site, text) for text in texts):
                    matched[Row(rule.id, site.package, template(site.text)[:_LONGEST])] = site
    return matched


def _filled(text: str) -> list[str]:
    """The literal with each of `_VALUES` where a value stands."""
    return [text.replace(_HOLE, value) for value in _VALUES] if _HOLE in text else [text]


class _Literals:
    """Many texts, searched as one: a thousand patterns meet a million literals."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._whole = "\n\0\n".join(texts)
        self._starts = list(accumulate((len(text) + 3 for text in texts), initial=0))

    def with_any(self, wanted: Iterable[str]) -> set[int]:
        """The indices of the texts that contain one of these."""
        return {index for text in wanted for index in self._with(text)}

    def _with(self, text: str) -> Iterator[int]:
        start = self._whole.find(text)
        while start >= 0:
            index = bisect_right(self._starts, start) - 1
            yield index
            start = self._whole.find(text, self._starts[index + 1])


def _is_near(symptom: Symptom, site: Site, text: str) -> bool:
    log = f'  File "/site-packages/{site.file}", line {site.line}, in call\n{text}'
    excluded = any(re.search(pattern, log) for pattern in symptom.absent)
    return not excluded and all(re.search(pattern, log) for pattern in symptom.near)


def accepted(path: Path = TABLE) -> set[Row]:
    """The rows of the table."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return {Row(*line.split("\t")) for line in lines}


def _downloaded(packages: Sequence[str], folder: Path) -> Iterator[Path]:
    """The newest wheel of each package, unpacked below `folder`, one after the other."""
    for package in packages:
        version = versions_on_index(package, ())[-1]
        source = fetch(package, version, folder, ("--only-binary", ":all:"))
        yield source.rename(folder / f"{package}-{version}")


def main() -> int:
    """Print the places that the table does not name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", action="append", type=Path)
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rules = read_folder(ROOT / "rules")
    with tempfile.TemporaryDirectory() as place:
        folders = options.folder or _downloaded(options.only, Path(place))
        matched = printed(rules, (site for folder in folders for site in sites(folder)))
    known = accepted()
    new = sorted(set(matched) - known)
    for row in new:
        site = matched[row]
        print(f"{row.rule}: {row.package} {site.file}:{site.line}\n    {row.text}")
    if options.write:
        ids = {rule.id for rule in rules}
        kept = sorted(row for row in known.union(new) if row.rule in ids)
        TABLE.write_text("".join("\t".join(row) + "\n" for row in kept), "utf-8", newline="\n")
    return 1 if new and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
