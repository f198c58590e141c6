"""Prints rules with the lines that their claims cite, to read whether the lines prove the claims.

    python tools/cited_lines.py flash/dtype triton/c-compiler-missing
    python tools/cited_lines.py flash/dtype --clones ~/src

Lines of wheels are read from the package index, in parts. Lines on GitHub are read from git
clones: `--clones` names a folder with `OWNER/NAME`, or `OWNER+NAME/repo` for a bare clone. `>`
marks a cited line. What cannot be read is named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from attn_doctor.rulebook.rule_files import read_folder  # noqa: E402
from tools import claim_lines  # noqa: E402

_GITHUB = re.compile(
    r"https://github\.com/(?P<owner>[^/]+)/(?P<name>[^/]+)/blob/(?P<at>[^/]+)/(?P<path>[^#\s]+)"
    r"(?:#L(?P<first>\d+)(?:-L(?P<last>\d+))?)?"
)
#: Lines that are shown before and after cited ones, and at most for one part.
_AROUND, _MOST = 5, 60
#: Seconds for git.
_LIMIT = 60

Parts = list[tuple[int, int]]


def shown(text: str, parts: Parts) -> Iterator[str]:
    """The lines of each part (its first and last line, from 1) with those around it."""
    lines = text.splitlines()
    for first, last in parts:
        start = max(1, first - _AROUND)
        for number in range(start, min(len(lines), last + _AROUND, start + _MOST) + 1):
            mark = ">" if first <= number <= last else " "
            yield f"  {mark} {number:5} {lines[number - 1][:180]}"
        yield "    …"
    if not parts:
        yield f"    ({len(lines)} lines; the claim names none)"


def parts_of(text: str) -> Parts:
    """`12-14,20` as pairs of a first and a last line."""
    pairs = (one.partition("-") for one in re.findall(r"\d+(?:-\d+)?", text))
    return [(int(first), int(last or first)) for first, _, last in pairs]


def _of_wheel(source: str) -> Iterator[str]:
    (place,) = claim_lines.sources([("", source)])
    text = claim_lines.texts(place.package, place.version, {place.path}).get(place.path)
    if text is None:
        yield "    no wheel has this file"
    elif cited := re.search(r":(\d[\d,-]*)", source):
        yield from shown(text, parts_of(cited[1]))
    else:
        there = place.said and place.said in text
        line = text[: text.index(place.said)].count("\n") + 1 if there else 0
        yield from shown(text, [(line, line)] if there else [])


def _of_clone(found: re.Match[str], clones: Path) -> Iterator[str]:
    for folder in (f"{found['owner']}/{found['name']}", f"{found['owner']}+{found['name']}/repo"):
        if (clones / folder).is_dir():
            break
    else:
        yield f"    {clones} has no clone of it"
        return
    argv = ["git", "-C", str(clones / folder), "show", f"{found['at']}:{found['path']}"]
    run = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=_LIMIT, check=False
    )
    if run.returncode:
        yield f"    {run.stderr.strip()}"
    else:
        lines = f"{found['first']}-{found['last'] or found['first']}" if found["first"] else ""
        yield from shown(run.stdout, parts_of(lines))


def lines_of(source: str, clones: Path | None) -> Iterator[str]:
    """The cited lines of a source; nothing for a source that has none."""
    found = _GITHUB.match(source)
    try:
        if found and clones is not None:
            yield from _of_clone(found, clones)
        elif any(claim_lines.sources([("", source)])):
            yield from _of_wheel(source)
    except (OSError, ValueError, subprocess.TimeoutExpired, zipfile.BadZipFile) as error:
        yield f"    {error}"


def main() -> int:
    """Print the rules; the exit code is 2 if there is no such rule."""
    parser = argparse.ArgumentParser(description="Print rules with the lines that they cite.")
    parser.add_argument("rule", nargs="+")
    parser.add_argument("--clones", type=Path)
    asked = parser.parse_args()
    rules = {rule.id: rule for rule in read_folder(claim_lines.RULES)}
    if unknown := [one for one in asked.rule if one not in rules]:
        print(f"no such rule: {', '.join(unknown)}", file=sys.stderr)
        return 2
    for name in asked.rule:
        print(f"# {name}\n{(claim_lines.RULES / f'{name}.toml').read_text().strip()}\n")
        for claim in rules[name].claims:
            print(f"claim: {claim.says}")
            for source in claim.source:
                print(f"  {source}", *lines_of(source, asked.clones), sep="\n", flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
