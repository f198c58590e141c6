"""Compares the tables of releases with the package index, and writes what releases say themselves.

    python tools/refresh.py                      print what is new, and what a person must decide
    python tools/refresh.py --check              print new releases; exit with 1 if there are some
    python tools/refresh.py --write              also write what is new into rules/tables/
    python tools/refresh.py --write --body FILE  also write a description for a pull request
    python tools/refresh.py --source flash-attn=FOLDER  read a checkout of the newest release too

pip asks the index, with its configuration, and fetches wheels, which are read and never installed.
A row gets what the release itself says: requirements and Pythons from its metadata, the rest from
files of the wheel. What only a project's other pages say (CUDA builds on PyTorch's own index, the
newest Python of torch.compile, build matrices) is left out of the row and named, so that the tests
of the tables fail until a person has added it.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.pip_command import PipError, pip  # noqa: E402

TABLES = ROOT / "rules" / "tables"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "any")
#: Pythons that are asked for. Classifiers do not always name those that have a wheel.
PYTHONS = tuple(f"3.{minor}" for minor in range(9, 18))
#: Where the markers of requirements are evaluated.
LINUX = {"platform_system": "Linux", "extra": ""}
Row = dict[str, Any]


class Index(NamedTuple):
    """Questions to the package index. Tests answer them from recorded files."""

    versions: Callable[[str], list[str]]
    """All final releases of a package, in ascending order."""
    metadata: Callable[[str, str], Mapping[str, Any]]
    """Metadata of a release, as pip's installation report has it."""
    wheel: Callable[[str, str], Path]
    """The wheel of a release for Linux."""
    pythons: Callable[[str, str], list[str]]
    """The oldest and the newest Python with a wheel of a release for Linux."""


class Change(NamedTuple):
    """New rows of one table."""

    table: str
    rows: list[Row]
    open: list[str]
    """What a person must decide, one sentence each."""


def _kind(python: str) -> list[str]:
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    return ["--no-deps", "--only-binary=:all:", "--python-version", python, *platforms]


def _versions(package: str) -> list[str]:
    answer = pip("index", "versions", package, "--json", "--python-version=3.12")
    return sorted(json.loads(answer)["versions"], key=Version)


def _metadata(package: str, version: str, python: str = "3.12") -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        how = ["--dry-run", "--quiet", "--ignore-installed", "--report", "-", "--target", folder]
        answer = pip("install", *how, *_kind(python), f"{package}=={version}")
    (found,) = json.loads(answer)["install"]
    metadata: Mapping[str, Any] = found["metadata"]
    return metadata


def _pythons(package: str, version: str) -> list[str]:
    found = []
    for python in PYTHONS:
        try:
            _metadata(package, version, python)
        except PipError:
            continue
        found.append(python)
    return [found[0], found[-1]] if found else []


class Wheels:
    """Wheels in a folder, fetched once each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wheel(self, package: str, version: str) -> Path:
        """The wheel of a release."""
        name = package.replace("-", "_")
        found = [*self._folder.glob(f"{name}-{version}-*.whl")]
        if not found:
            given = ["--quiet", "--dest", str(self._folder), f"{package}=={version}"]
            pip("download", *_kind("3.12"), *given)
            found = [*self._folder.glob(f"{name}-{version}-*.whl")]
        return found[0]


def _requirement(metadata: Mapping[str, Any], name: str, machine: str = "x86_64") -> str:
    """The specifier of a requirement on Linux; empty if there is none."""
    here = {**LINUX, "platform_machine": machine}
    for line in metadata.get("requires_dist", ()):
        found = Requirement(line)
        if found.name == name and (found.marker is None or found.marker.evaluate(here)):
            return str(found.specifier)
    return ""


def torch_cuda(metadata: Mapping[str, Any], machine: str = "x86_64") -> str:
    """The CUDA of torch's wheel on the package index, by the CUDA packages that it requires.

    Empty if it requires none, as the wheels for the CPU do.
    """
    for name in ("cuda-toolkit", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13"):
        numbers = re.findall(r"==(\d+\.\d+)", _requirement(metadata, name, machine))
        if numbers:
            return str(numbers[0])
    return ""


def torch_rows(index: Index, minors: Sequence[str]) -> list[Row]:
    """A row for each minor release."""
    rows = []
    for minor in minors:
        releases = [one for one in index.versions("torch") if _minor(one) == minor]
        found = {one: index.metadata("torch", one) for one in releases}
        last = found[releases[-1]]
        pins = {one: _requirement(metadata, "triton") for one, metadata in found.items()}
        triton = re.search(r"\d+\.\d+", pins[releases[-1]])
        rows.append(
            {
                "minor": minor,
                "triton": triton[0] if triton else "",
                "pins": pins,
                "pypi": torch_cuda(last),
                **({"pypi_aarch64": arm} if (arm := torch_cuda(last, "aarch64")) else {}),
                "python": index.pythons("torch", releases[-1]),
                "source": f"https://pypi.org/project/torch/{releases[-1]}/",
            }
        )
    return rows


def xformers_rows(index: Index, versions: Sequence[str]) -> list[Row]:
    """A row for each release."""
    from attn_doctor.host.local import LocalHost
    from attn_doctor.probes.installed.packages import _flash_attn_range

    rows = []
    for version in versions:
        metadata = index.metadata("xformers", version)
        wheel = index.wheel("xformers", version)
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            archive.extract("xformers/ops/fmha/flash.py", folder)
            flash = _flash_attn_range(LocalHost(), f"{folder}/xformers")
            built = json.loads(archive.read("xformers/cpp_lib.json"))["version"]["cuda"]
        # One wheel for all from a Python on: `cp39-abi3` or `py39-none`. Else one for each Python.
        tag = re.search(r"-(?:cp3(\d+)-abi3|py3(\d+)-none)-", wheel.name)
        rows.append(
            {
                "version": version,
                "torch": _requirement(metadata, "torch"),
                "pypi": f"{built // 100}.{built % 100}",
                **({"python": [f"3.{tag[1] or tag[2]}"]} if tag else {}),
                "flash": flash,
                "source": f"https://pypi.org/project/xformers/{version}/",
            }
        )
    return rows


# Cuda compilation tools, release 12.9, V12.9.86
def _assembler(archive: zipfile.ZipFile, name: str) -> str:
    """The version of an assembler in a wheel of Triton, from its text; empty if it has none."""
    path = next((one for one in archive.namelist() if one.endswith(f"nvidia/bin/{name}")), "")
    match = re.search(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)", archive.read(path)) if path else None
    return match[1].decode() if match else ""


def triton_rows(index: Index, minors: Sequence[str]) -> list[Row]:
    """A row for each minor release."""
    rows = []
    for minor in minors:
        release = [one for one in index.versions("triton") if _minor(one) == minor][-1]
        with zipfile.ZipFile(index.wheel("triton", release)) as archive:
            found = {key: _assembler(archive, name) for key, name in ASSEMBLERS.items()}
        rows.append(
            {
                "minor": minor,
                **{key: version for key, version in found.items() if version},
                "source": f"https://pypi.org/project/triton/{release}/",
            }
        )
    return rows


def flash_rows(_: Index, versions: Sequence[str]) -> list[Row]:
    """A row for each release: the index has only its source."""
    source = "https://github.com/Dao-AILab/flash-attention/releases"
    return [{"version": one, "source": source} for one in versions]


ASSEMBLERS = {"ptxas": "ptxas", "blackwell": "ptxas-blackwell"}


class Table(NamedTuple):
    """How the rows of one table are made."""

    name: str
    package: str
    key: str
    rows: Callable[[Index, Sequence[str]], list[Row]]
    person: Mapping[str, str]
    """Keys that no release says, with the place where a person finds each."""


_TORCH = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
TABLE = (
    Table(
        "torch",
        "torch",
        "minor",
        torch_rows,
        {
            "cuda": f"CUDA builds on PyTorch's own index ({_TORCH})",
            "compile": "newest Python in torch/_dynamo/eval_frame.py",
            "ptx": "capabilities with PTX (cuobjdump of libtorch_cuda.so)",
            "archs": "capabilities with machine code (.ci/manywheel/build_cuda.sh)",
            "windows": "whether Windows has the same (.ci/pytorch/windows)",
        },
    ),
    Table("triton", "triton", "minor", triton_rows, {}),
    Table(
        "xformers",
        "xformers",
        "version",
        xformers_rows,
        {
            "cuda": "CUDA builds on PyTorch's own index (.github/workflows/wheels.yml)",
            "windows": "those for Windows, if they are fewer",
            "oldest": "the oldest compute capability that the wheels have code for",
            "python": "oldest and newest Python, where each has its own wheel",
        },
    ),
    Table(
        "flash-attn",
        "flash-attn",
        "version",
        flash_rows,
        {
            "torch": "the files of its release on GitHub, as for the rows above",
            "archs": "capabilities in its setup.py, and the torch that refuses its C++ standard",
            "nvcc": "oldest toolkit in its setup.py",
        },
    ),
)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def changes(
    texts: Mapping[str, str], index: Index, sources: Mapping[str, Path] | None = None
) -> list[Change]:
    """What the index has and the tables have not. `texts`: the tables, by name.

    `sources`: by table, a source tree of the newest release (`tools/build_limits.py`).
    """
    found = []
    for table in TABLE:
        last = tomllib.loads(texts[table.name])["release"][-1][table.key]
        versions = [one for one in index.versions(table.package) if not Version(one).is_prerelease]
        if table.key == "minor":
            versions = sorted({*map(_minor, versions)}, key=Version)
        new = [one for one in versions if Version(one) > Version(last)]
        rows = table.rows(index, new) if new else []
        if rows and table.name in (sources or {}):
            tool = runpy.run_path(str(Path(__file__).with_name("build_limits.py")))
            rows[-1].update(tool["read"]((sources or {})[table.name]))
        open_ = [
            f"{table.name} {row[table.key]}: `{key}`: {where}"
            for row in rows
            for key, where in table.person.items()
            if key not in row
        ]
        if rows:
            found.append(Change(table.name, rows, open_))
    return found


def dispatchers(text: str, index: Index) -> str:
    """dispatcher.toml with the dispatchers of newer releases of Diffusers."""
    from attn_doctor.probes.installed.dispatcher_source import describe

    tool = runpy.run_path(str(Path(__file__).with_name("dispatchers.py")))
    rows = tomllib.loads(text)["release"]
    listed = [one for row in rows for one in (row["version"], *row.get("also", ()))]
    known = {row["checksum"] for row in rows}
    for version in index.versions("diffusers"):
        if Version(version) <= Version(listed[-1]) or Version(version).is_prerelease:
            continue
        with zipfile.ZipFile(index.wheel("diffusers", version)) as archive:
            content = archive.read("diffusers/models/attention_dispatch.py")
        checksum = tool["checksum"](content)
        if checksum not in known:
            known.add(checksum)
            text += "\n" + tool["row_text"]([version], describe(content.decode(), checksum))
    return text


def newest(text: str, index: Index) -> dict[str, str]:
    """The newest release on the index, of each package of releases.toml that is older there."""
    found = {}
    for row in tomllib.loads(text)["release"]:
        if "index" not in row:
            continue
        known = Version(row["newest"])
        last = [one for one in index.versions(row["index"]) if not Version(one).is_prerelease][-1]
        parts = len(known.release)
        whole = Version(last) if parts > 2 else Version(_minor(last))
        if whole > known:
            found[row["name"]] = str(whole)
    return found


def written(text: str, rows: Sequence[Row], day: date) -> str:
    """A table with new rows behind its last release, and with its newest release and day."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("[")]
    of_rows = [n for n in starts if lines[n].startswith(("[[release]]", "[release."))]
    end = next((n for n in starts if n > of_rows[-1]), len(lines))
    while end > of_rows[-1] and (not lines[end - 1] or lines[end - 1].startswith("#")):
        end -= 1
    added = [line for row in rows for line in ("", *_block(row, day))]
    whole = "\n".join([*lines[:end], *added, *lines[end:]]) + "\n"
    return dated(whole, str(rows[-1].get("minor") or rows[-1]["version"]), day)


def dated(text: str, version: str, day: date) -> str:
    """The head of a table, or one row of releases.toml, with another newest release and day."""
    text = re.sub(r'(?m)^newest( *)= "[^"]*"', rf'newest\1= "{version}"', text, count=1)
    return re.sub(r"(?m)^checked( *)= .*", rf"checked\1= {day}", text, count=1)


def _block(row: Row, day: date) -> list[str]:
    lines = [f"{key.ljust(7)} = {_value(value)}" for key, value in row.items()]
    return ["[[release]]", *lines, f"checked = {day}"]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_value(one)}' for key, one in value.items()) + " }"
    return json.dumps(value)


def releases(text: str, found: Mapping[str, str], day: date) -> str:
    """releases.toml with newer releases."""
    head, *blocks = re.split(r"(?m)^(?=\[\[release\]\])", text)
    for number, block in enumerate(blocks):
        name = tomllib.loads(block)["release"][0]["name"]
        if name in found:
            blocks[number] = dated(block, found[name], day)
    return re.sub(r"(?m)^checked( *)= .*", rf"checked\1= {day}", head, count=1) + "".join(blocks)


def body(found: Sequence[Change], newer: Mapping[str, str]) -> str:
    """A description for a pull request."""
    lines = ["Releases that the tables did not have:", ""]
    lines += [f"- {name} {version}" for name, version in newer.items()]
    for one in found:
        named = ", ".join(str(row.get("minor") or row["version"]) for row in one.rows)
        lines.append(f"- table {one.table}: {named}")
    open_ = [sentence for one in found for sentence in one.open]
    frameworks = {"diffusers", "transformers", "simpletuner", "finetrainers"} & {*newer}
    open_ += [
        f"{name}: compare its names (`tools/backends_table.py`) and set `newest` in names.toml"
        for name in sorted(frameworks)
    ]
    if {"xformers", "transformers"} & {*newer}:
        open_.append("code.toml: run `tools/code_table.py` with the wheels of both packages")
    if "diffusers" in newer:
        open_.append("diffusers: run `tools/pipelines.py` with the wheels of its releases")
    if "transformers" in newer:
        open_.append("transformers: run `tools/sdpa.py` with the wheel of the newest release")
    if open_:
        lines += ["", "A person must decide:", "", *(f"- [ ] {sentence}" for sentence in open_)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool. It ends with 1 if `--check` finds a new release, with 2 after a failure."""
    parser = argparse.ArgumentParser(description="Compare the tables with the package index.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a release is missing")
    parser.add_argument("--write", action="store_true", help="write what is new into the tables")
    parser.add_argument("--body", type=Path, help="write a description for a pull request")
    parser.add_argument("--wheels", type=Path, help="folder that keeps the wheels")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TABLE=FOLDER",
        help="a source tree of the newest release, such as flash-attn=FOLDER",
    )
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder of the tables")
    asked = parser.parse_args(arguments)
    texts = {one.stem: one.read_text("utf-8") for one in asked.tables.glob("*.toml")}
    try:
        with tempfile.TemporaryDirectory(prefix="refresh-") as folder:
            index = Index(
                _versions, _metadata, Wheels(asked.wheels or Path(folder)).wheel, _pythons
            )
            newer = newest(texts["releases"], index)
            sources = {
                name: Path(path) for name, _, path in (s.partition("=") for s in asked.source)
            }
            found = [] if asked.check else changes(texts, index, sources)
            compared = dispatchers(texts["dispatcher"], index) if "diffusers" in newer else ""
    except (PipError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"refresh: {error}\n")
        return 2
    text = body(found, newer) if found or newer else "every release is in the tables\n"
    sys.stdout.write(text)
    if asked.body:
        asked.body.write_text(text, "utf-8")
    if asked.write and (found or newer):
        today = date.today()
        changed = {one.table: written(texts[one.table], one.rows, today) for one in found}
        if compared:
            changed["dispatcher"] = compared
        changed["releases"] = releases(texts["releases"], newer, today)
        for name, content in changed.items():
            (asked.tables / f"{name}.toml").write_text(content, "utf-8", newline="\n")
    return int(asked.check and bool(newer))


if __name__ == "__main__":
    sys.exit(main())
