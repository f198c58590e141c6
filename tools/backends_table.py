"""Compares the catalogue's names of backends with the frameworks' own wheels.

    python tools/backends_table.py names WHEEL…      compare, and exit with 1 on a difference
    python tools/backends_table.py record WHEEL…     write tests/backends/names.json
    python tools/backends_table.py scenarios         write tests/backends/scenarios.toml

Wheels are read, never installed: `pip download --no-deps diffusers==0.42.1`. Their code is parsed
for the enum of names (Diffusers, Finetrainers), the list of choices (SimpleTuner) or the registered
functions (Transformers, ComfyUI, whose folder stands for a wheel), and, of
Diffusers and Finetrainers, for what each backend does with a mask: whether its function has an
argument for it, else the dispatcher drops it, and whether it raises an error when given one.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[1]
#: The demand of a backend that Finetrainers hands masks to, and Diffusers did not.
_SDPA = "flash-sdpa-mask-dropped"
RECORD = ROOT / "tests" / "backends" / "names.json"

#: Where each framework's wheel holds its names, and what they are called there.
PLACES = {
    "diffusers": ("diffusers/models/attention_dispatch.py", "AttentionBackendName"),
    "finetrainers": ("finetrainers/models/attention_dispatch.py", "AttentionProvider"),
    "simpletuner": (
        "simpletuner/simpletuner_sdk/server/services/field_registry/sections/advanced.py",
        "attention_mechanisms",
    ),
}


def names_in(wheel: Path) -> tuple[str, str, list[str]]:
    """Framework, version and names of backends in a wheel. Raises `SystemExit` if it has none."""
    if wheel.is_dir():
        return _comfyui(wheel)
    match = re.match(r"(?P<name>\w+)-(?P<version>[^-]+)-", wheel.name)
    if match is not None and match["name"] == "transformers":
        return "transformers", match["version"], _transformers(wheel)
    if match is None or match["name"] not in PLACES:
        raise SystemExit(f"{wheel}: no wheel of {', '.join(PLACES)}")
    path, name = PLACES[match["name"]]
    with zipfile.ZipFile(wheel) as archive:
        # The registry was one file before it became a folder.
        fitting = [path, "simpletuner/simpletuner_sdk/server/services/field_registry.py"]
        found = next((one for one in fitting if one in archive.namelist()), "")
        if not found:
            raise SystemExit(f"{wheel}: has no {path}")
        tree = ast.parse(archive.read(found).decode())
    names = list(_values(tree, name))
    if not names:
        raise SystemExit(f"{wheel}: {found} has no {name}")
    return match["name"], match["version"], names


def _transformers(wheel: Path) -> list[str]:
    from attn_doctor.backends.framework_source import PLACES as SOURCES

    path, named = SOURCES["transformers"]
    with zipfile.ZipFile(wheel) as archive:
        return sorted({*named(ast.parse(archive.read(f"transformers/{path}").decode()))})


def _comfyui(folder: Path) -> tuple[str, str, list[str]]:
    """A folder with ComfyUI. Raises `SystemExit` if it is not one."""
    from attn_doctor.backends.framework_source import PLACES as SOURCES

    path, named = SOURCES["comfyui"]
    try:
        version = (folder / "comfyui_version.py").read_text().rpartition('"')[0].rpartition('"')[2]
        tree = ast.parse((folder / path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{folder}: not ComfyUI: {error}") from None
    return "comfyui", version, sorted({*named(tree)})


def _values(tree: ast.Module, name: str) -> Iterator[str]:
    """The texts that an enum's members or a list hold."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from _texts(one.value for one in node.body if isinstance(one, ast.Assign))
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.List)
            and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
        ):
            yield from _texts(node.value.elts)


def _texts(nodes: Iterable[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def masks_in(wheel: Path, path: str) -> dict[str, str]:
    """What each backend of a dispatcher does with a mask: `drops`, `refuses` or `takes` it."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(path).decode())
    values = {
        f"{one.name}.{member.targets[0].id}": member.value.value
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef)
        for member in one.body
        if isinstance(member, ast.Assign)
        and isinstance(member.targets[0], ast.Name)
        and isinstance(member.value, ast.Constant)
    }
    found = {}
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for one in function.decorator_list:
            if isinstance(one, ast.Call) and ast.unparse(one.func).endswith(".register"):
                found[str(values[ast.unparse(one.args[0])])] = _mask(function)
    return found


def _mask(function: ast.FunctionDef) -> str:
    if all(one.arg != "attn_mask" for one in function.args.args):
        return "drops"
    guards = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "attn_mask is not None"
    ]
    if any(isinstance(one, ast.Raise) for node in guards for one in node.body):
        return "refuses"
    # It may have the argument and never look at it.
    used = sum(isinstance(n, ast.Name) and n.id == "attn_mask" for n in ast.walk(function))
    return "takes" if used else "drops"


def masks_tabled(framework: str, version: str) -> dict[str, str]:
    """The same, as the catalogue has it."""
    from attn_doctor.backends.catalogue import load

    refuses = framework == "diffusers" and Version(version) >= Version("0.37")
    table = load()
    found = {}
    for name in table.names_of(framework):
        demands = {*table.backend(name.backend).requires}
        drops = {"mask-dropped"} | (set() if framework == "finetrainers" else {_SDPA})
        if refuses:
            found[name.name] = "refuses" if "mask-refused" in demands else "takes"
        else:
            found[name.name] = "drops" if demands & drops else "takes"
    return found


def tabled(framework: str, version: str) -> set[str]:
    """The names that the catalogue gives a version."""
    from attn_doctor.backends.catalogue import load

    this = Version(version)
    return {
        one.name
        for one in load().names_of(framework)
        if Version(one.since) <= this
        and not (one.before and this >= Version(one.before))
        # Names of the Hub are in no wheel.
        and "/" not in one.name
    }


def compare(recorded: dict[str, dict[str, list[str]]]) -> list[str]:
    """What differs between the catalogue and names by framework and version."""
    differing = []
    for framework, versions in recorded.items():
        for version, names in versions.items():
            ours = tabled(framework, version)
            release = f"{framework} {version}"
            differing += [f"{release} has {name}, we do not" for name in sorted({*names} - ours)]
            differing += [f"{release} has no {name}, we do" for name in sorted(ours - {*names})]
    return differing


def compare_masks(wheels: Sequence[Path]) -> list[str]:
    """Differences between the catalogue and the dispatchers in what they do with a mask."""
    differing = []
    for wheel in wheels:
        framework, version, _ = names_in(wheel)
        if framework not in ("diffusers", "finetrainers"):
            continue
        ours = masks_tabled(framework, version)
        differing += [
            f"{framework} {version}: {name} {does} masks; we say {ours.get(name)}"
            for name, does in masks_in(wheel, PLACES[framework][0]).items()
            if ours.get(name) != does
        ]
    return differing


def read(wheels: Sequence[Path]) -> dict[str, dict[str, list[str]]]:
    """The names of several wheels, by framework and version."""
    found: dict[str, dict[str, list[str]]] = {}
    for framework, version, names in map(names_in, wheels):
        found.setdefault(framework, {})[version] = names
    return {
        framework: dict(sorted(versions.items(), key=lambda one: Version(one[0])))
        for framework, versions in sorted(found.items())
    }


def main() -> int:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("names", "record"):
        commands.add_parser(command).add_argument("wheels", nargs="+", type=Path)
    commands.add_parser("scenarios")
    options = parser.parse_args()
    if options.command == "scenarios":
        sys.path.insert(0, str(ROOT))
        from tests.backends.scenario import rewrite

        rewrite()
        return 0
    found = read(options.wheels)
    if options.command == "record":
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    differing = [*compare(found), *compare_masks(options.wheels)]
    count = sum(map(len, found.values()))
    lines = [*differing, f"{count} wheels compared, {len(differing)} differences"]
    sys.stdout.write("\n".join(lines) + "\n")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
