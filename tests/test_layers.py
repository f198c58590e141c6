"""Imports point one way, and files are opened in one place."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import attn_doctor

PACKAGE = Path(attn_doctor.__file__).parent

#: Every package of `attn_doctor`, lowest layer first. A package imports from lower layers only.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in (
        "clean lean_imports logger own_modules python_source",
        "_version env_vars errors facts gpu_names json_files numbers suggest token_shapes worker",
        "binaries files language log processes redact requirement site",
        "interpreter_child",
        "toml_files findings host pool pretend record snapshot translation wheels",
        "shell",
        "anonymize derived probes rulebook",
        "ownership",
        "examination explain kernels.caches kernels.gpus policy",
        "backends fixes kernels.builder",
        "configs install kernels.verify rules_wheel",
        "diagnosis kernels.bundle",
        "kernels.require_hit recording",
        "render",
        "api",
        "__init__ cli",
        "__main__",
    )
)
#: The outside world, which only `host`, `processes.py`, `wheels` and `worker` may touch.
OUTSIDE = ("subprocess", "ctypes", "socket", "urllib.request", "http", "multiprocessing", "pty")
#: The packages under examination, which only `worker` may import.
EXAMINED = (
    "torch",
    "triton",
    "flash_attn",
    "sageattention",
    "xformers",
    "diffusers",
    "transformers",
)
#: What is not installed in the examined environment.
OURS = ("msgspec", "packaging", "psutil", "rich", "typer", "attn_doctor")
#: Scripts that run in a child process; their standard output is their answer.
CHILDREN = ("host/nvml_process.py", "worker/")


class Module(NamedTuple):
    """What the tests need to know of one module."""

    path: str
    """Below the package, such as `record/lock.py`."""
    name: str
    imports: frozenset[str]
    """Full names of everything that it imports, also inside functions."""
    writes: tuple[int, ...]
    """Lines that print, or name a standard stream."""

    @property
    def package(self) -> str:
        """Its package in `LAYERS`."""
        parts = self.name.split(".")[1:]
        return ".".join(parts[: 2 if parts[:1] == ["kernels"] else 1]) or "__init__"


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def writes(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                yield node.lineno
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in ("stdout", "stderr")
            and isinstance(node.value, ast.Name)
            and node.value.id == "sys"
        ):
            yield node.lineno


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, parsed once for all tests."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if "_rules" in place.parts:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        parts = ["attn_doctor", *place.with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(place.as_posix(), name, frozenset(imports(tree)), tuple(writes(tree))))
    return tuple(found)


def module_of(name: str, known: Iterable[str]) -> str:
    """The longest module name that `name` begins with."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def within(name: str, names: tuple[str, ...]) -> bool:
    """`name` is one of `names` or lies in one."""
    return any(f"{name}.".startswith(f"{one}.") for one in names)


def imported(module: Module, names: tuple[str, ...]) -> list[str]:
    return [f"{module.path} imports {one}" for one in sorted(module.imports) if within(one, names)]


@cache
def graph() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports."""
    names = {module.name for module in modules()}
    return {
        module.name: {
            target
            for name in module.imports
            if within(name, ("attn_doctor",))
            # Everything may ask the top package for its version and its lazy names.
            and (target := module_of(name, names)) not in (module.name, "attn_doctor")
        }
        for module in modules()
    }


def test_every_package_has_one_layer() -> None:
    layered = [package for layer in LAYERS for package in layer]
    found = {module.package for module in modules()} - {"kernels"}  # its __init__ is empty
    assert sorted(layered) == sorted(found)


def test_packages_import_lower_layers_only() -> None:
    height = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    of = {module.name: module.package for module in modules()}
    upwards = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in targets
        if of[name] != of[target] and "kernels" not in (of[name], of[target])
        if height[of[name]] <= height[of[target]]
    ]
    assert upwards == []


def drawn() -> list[set[str]]:
    """The layers of the drawing in `docs/architecture.md`, the highest first."""
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
    layers = text.partition("```text")[2].partition("```")[0].split("│")
    return [{line.split()[0] for line in layer.splitlines() if line.strip()} for layer in layers]


def test_the_drawing_shows_what_imports_what() -> None:
    height = {package: -number for number, layer in enumerate(drawn()) for package in layer}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"kernels"}
    assert packages | {"diagnosis", "kernels.caches"} <= height.keys()
    of = {module.name: module.package for module in modules()}
    wrong = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in targets
        if of[name] != of[target] and {of[name], of[target]} <= height.keys()
        if height[of[name]] <= height[of[target]]
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    graphlib.TopologicalSorter(graph()).prepare()  # raises CycleError with the names


def test_only_the_host_touches_the_outside() -> None:
    allowed = ("host/", "processes.py", "wheels/ranges.py", "worker/")
    others = (module for module in modules() if not module.path.startswith(allowed))
    assert [line for module in others for line in imported(module, OUTSIDE)] == []


def test_nothing_imports_what_it_examines() -> None:
    others = (module for module in modules() if not module.path.startswith("worker/"))
    assert [line for module in others for line in imported(module, EXAMINED)] == []


def test_workers_bring_nothing_along() -> None:
    """attn-doctor and its dependencies are not installed where workers run."""
    workers = [module for module in modules() if module.path.startswith("worker/")]
    used = [
        f"{module.path} imports {name}"
        for module in workers
        for name in sorted(module.imports)
        if within(name, OURS) and not within(name, ("attn_doctor.worker",))
    ]
    assert workers
    assert used == []


def test_only_the_edge_prints() -> None:
    edge = ("__main__.py", "cli/", "render/", *CHILDREN)
    others = (module for module in modules() if not module.path.startswith(edge))
    assert [f"{module.path}:{line}" for module in others for line in module.writes] == []


def test_the_reader_of_imports_sees_every_form() -> None:
    source = (
        "import os.path as p, ctypes\nfrom attn_doctor import probes\n"
        "def f():\n    from attn_doctor.probes.torch import read\n"
    )
    assert set(imports(ast.parse(source))) == {
        "os.path",
        "ctypes",
        "attn_doctor.probes",
        "attn_doctor.probes.torch.read",
    }
    assert within("attn_doctor.probes.torch.read", ("attn_doctor.probes",))
    assert not within("attn_doctor.probes_new", ("attn_doctor.probes",))
    assert list(writes(ast.parse("import sys\nprint(1)\nsys.stderr.write('x')\n"))) == [2, 3]


def test_cycles_are_found() -> None:
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


# Who may open and parse files

#: Calls that open or parse a file themselves, by the name that is called.
OPENERS = ("open", "_os_open", "read_text", "read_bytes", "fdopen")
PARSERS = ("tomllib.load", "tomllib.loads", "json.load", "msgspec.json.decode", "linecache.getline")
#: Module → the calls that it may make, with the reason.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "worker/files.py": {"os.open": "the opener itself", "os.fdopen": "the opener itself"},
    "own_modules.py": {"_os_open": "bytecode, as Python opens it"},
    "worker/reach.py": {"open": "/proc/self/mountinfo; the opener imports this module"},
    "json_files.py": {"msgspec.json.decode": "the decoder itself"},
    "probes/forked.py": {"os.fdopen": "a pipe between this process and its fork"},
    "toml_files.py": {"tomllib.loads": "the parser itself"},
    # Files of our own making, written.
    "kernels/builder/report.py": {"existing[-1].open": "appends to a log of our process"},
    "kernels/builder/program_run.py": {"log.open": "makes the log of a program"},
    "fixes/installers.py": {"log.open": "makes the log of an installer"},
    "fixes/journal.py": {
        "os.open": "makes the journal",
        "kept.open": "a copy of our own making, to synchronise it",
    },
    "fixes/locks.py": {"os.open": "makes a lock, and opens a folder to lock it"},
    "record/lock.py": {"path.open": "makes a lock, mode x"},
    "fixes/cuda_home/start_files.py": {"change.real.open": "appends for GitHub Actions"},
    "kernels/caches/removal.py": {
        "os.open": "opens folders to delete below them, and locks to take them",
        "os.fdopen": "writes the list of a trash",
    },
    "wheels/archive.py": {"archive.open": "reads what the opener opened"},
    "wheels/reading.py": {"self.archive.open": "reads what the opener opened"},
    "render/build_kernels/idle_clock.py": {"open": "/proc/PID/task, of many threads each look"},
    "cli/output_file.py": {"open": "appends to the summary that GitHub names"},
    "cli/streams.py": {"os.open": "/dev/null", "open": "a standard stream"},
    "kernels/bundle/artifact.py": {
        "tarfile.open": "reads what the opener opened",
        "target.open": "makes a file, mode x",
    },
    # Decoded by the wheel's own index, or by lines of a process of ours.
    "rulebook/library.py": {"msgspec.json.decode": "the index in our wheel"},
    "backends/catalogue.py": {"msgspec.json.decode": "the index in our wheel"},
    "cli/backends/live.py": {"msgspec.json.decode": "what this process has written"},
    # Run in the examined interpreter.
    "worker/interpreter.py": {"open": "runs alone, in any Python from 3.6 on; isfile comes first"},
    "worker/cuda_home.py": {"os.fdopen": "its own answer"},
    "worker/wire.py": {"os.open": "/dev/null and its own log"},
    "worker/describe_gpu.py": {"os.fdopen": "its own answer"},
    "worker/audit/job.py": {"devices.open": "opens a GPU"},
    "worker/backends/device.py": {"open": "a function of this name that opens a GPU"},
    "worker/backends/job.py": {"open": "/proc/self/oom_score_adj", "devices.open": "opens a GPU"},
    "worker/kernels/job.py": {"os.fdopen": "its own answer", "json.load": "its own job"},
    "worker/kernels/compiler_watch.py": {"open": "/proc/self/maps"},
    "worker/kernels/graph_outputs.py": {"open": "appends to its own record"},
    "worker/stub_gpu/source_lines.py": {"linecache.getline": "a line of a program that runs"},
}


def called(tree: ast.AST) -> Iterator[str]:
    """Every call that opens or parses a file, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            last = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if last in OPENERS or any(name.endswith(f".{last}") for name in PARSERS):
                name = ast.unparse(node.func)
                if last in OPENERS or name in PARSERS:
                    yield name


@cache
def calls() -> dict[str, set[str]]:
    """Module → the calls in it that open or parse a file."""
    texts = {one.path: (PACKAGE / one.path).read_text("utf-8") for one in modules()}
    words = [f"{name.rpartition('.')[2]}(" for name in (*OPENERS, *PARSERS)]
    trees = {
        path: ast.parse(text) for path, text in texts.items() if any(word in text for word in words)
    }
    return {path: set(called(tree)) for path, tree in trees.items()}


def test_every_file_is_opened_in_one_place() -> None:
    ours = ("files.read_bytes", "files.read_text", "read_bytes", "read_text")
    bare = [
        f"{path}: {name}"
        for path, names in calls().items()
        for name in sorted(names - EXCEPTIONS.get(path, {}).keys())
        if name not in ours
    ]
    assert bare == [], "use attn_doctor.files, json_files or toml_files"


def test_every_exception_is_needed() -> None:
    needless = [
        f"{path}: {name}"
        for path, names in EXCEPTIONS.items()
        for name in names
        if name not in calls().get(path, ())
    ]
    assert needless == []


def test_the_reader_of_calls_sees_every_form() -> None:
    source = "open(a)\nPath(a).read_text()\nos.open(a)\nx.y.open()\ntomllib.loads(a)\nf.reader()"
    assert set(called(ast.parse(source))) == {
        "open",
        "Path(a).read_text",
        "os.open",
        "x.y.open",
        "tomllib.loads",
    }
