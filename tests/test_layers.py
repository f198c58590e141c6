"""The arrows between the parts of the program point one way; read from the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import attn_doctor

PACKAGE = Path(attn_doctor.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_rules" not in path.parts)

#: For each part of the package, the modules it must not import; its own it may.
FORBIDDEN = {
    "facts": ("attn_doctor",),
    "errors.py": ("attn_doctor",),
    "host": ("attn_doctor.probes", "attn_doctor.rulebook", "attn_doctor.cli", "attn_doctor.render"),
    "binaries": (
        "attn_doctor.facts",
        "attn_doctor.host",
        "attn_doctor.probes",
        "attn_doctor.rulebook",
        "attn_doctor.render",
        "attn_doctor.cli",
    ),
    "probes": ("attn_doctor.rulebook", "attn_doctor.render", "attn_doctor.cli"),
    "rulebook": (
        "attn_doctor.probes",
        "attn_doctor.host",
        "attn_doctor.render",
        "attn_doctor.cli",
    ),
    "render": ("attn_doctor.probes", "attn_doctor.host", "attn_doctor.cli"),
    "caches": ("attn_doctor.rulebook", "attn_doctor.render", "attn_doctor.cli"),
    "builder": ("attn_doctor.probes", "attn_doctor.render", "attn_doctor.cli"),
    "backends": ("attn_doctor.probes", "attn_doctor.render", "attn_doctor.cli"),
    "targets": ("attn_doctor.probes", "attn_doctor.render", "attn_doctor.cli"),
    "preflight": (
        "attn_doctor.probes",
        "attn_doctor.host",
        "attn_doctor.render",
        "attn_doctor.cli",
    ),
    "pretend": (
        "attn_doctor.host",
        "attn_doctor.probes",
        "attn_doctor.rulebook",
        "attn_doctor.render",
        "attn_doctor.cli",
    ),
}
#: The outside world, which only `host` may touch.
OUTSIDE = ("subprocess", "ctypes", "socket", "urllib.request", "http", "multiprocessing", "pty")
#: The packages under examination, which nothing may import.
EXAMINED = (
    "torch",
    "triton",
    "flash_attn",
    "sageattention",
    "xformers",
    "diffusers",
    "transformers",
)
#: Those that run in the examined interpreter with what it has, and use it.
GUESTS = ("backends/live/child/", "builder/child/", "fixes/cuda_home/child/")
#: Scripts that run in a child process; their standard output is their answer.
CHILDREN = ("host/inside.py", "host/nvml_child.py", *GUESTS)


def imports(source: str) -> set[str]:
    """Full names of all that `source` imports anywhere, those inside functions included."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def within(name: str, modules: tuple[str, ...]) -> bool:
    """`name` is one of `modules` or lies in one."""
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def writes(source: str) -> Iterator[int]:
    """Lines that print, or write to the standard streams."""
    for node in ast.walk(ast.parse(source)):
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


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("part", FORBIDDEN)
def test_layers(part: str) -> None:
    files = [path for path in MODULES if place(path) == part or place(path).startswith(part + "/")]
    assert files
    crossed = [
        f"{place(path)} imports {name}"
        for path in files
        for name in sorted(imports(path.read_text("utf-8")))
        if within(name, FORBIDDEN[part]) and not within(name, (f"attn_doctor.{part}",))
    ]
    assert crossed == []


def test_only_the_host_touches_the_outside() -> None:
    touched = [
        f"{place(path)} imports {name}"
        for path in MODULES
        if not place(path).startswith(("host/", "processes.py", *GUESTS))
        for name in sorted(imports(path.read_text("utf-8")))
        if within(name, OUTSIDE)
    ]
    assert touched == []


def test_nothing_imports_what_it_examines() -> None:
    imported = [
        f"{place(path)} imports {name}"
        for path in MODULES
        if not place(path).startswith(GUESTS)
        for name in sorted(imports(path.read_text("utf-8")))
        if within(name, EXAMINED)
    ]
    assert imported == []


def test_guests_bring_nothing_along() -> None:
    """attn-doctor and its dependencies are not installed where these run."""
    used = {
        f"{place(path)} imports {name}"
        for path in MODULES
        if place(path).startswith(GUESTS)
        for name in imports(path.read_text("utf-8"))
        if within(name, ("msgspec", "packaging", "psutil", "rich", "typer", "attn_doctor"))
        and not any(name.startswith(f"attn_doctor.{guest.replace('/', '.')}") for guest in GUESTS)
    }
    assert used == set()


def test_only_the_edge_prints() -> None:
    printed = [
        f"{place(path)}:{line}"
        for path in MODULES
        if not place(path).startswith(("__main__.py", "cli/", "render/"))
        and not place(path).startswith(CHILDREN)
        for line in writes(path.read_text("utf-8"))
    ]
    assert printed == []


def test_the_reader_of_imports_sees_every_form() -> None:
    source = (
        "import os.path as p, ctypes\nfrom attn_doctor import probes\n"
        "def f():\n    from attn_doctor.probes.torch import read\n"
    )
    assert imports(source) == {
        "os.path",
        "ctypes",
        "attn_doctor.probes",
        "attn_doctor.probes.torch.read",
    }
    assert within("attn_doctor.probes.torch.read", ("attn_doctor.probes",))
    assert not within("attn_doctor.probes_new", ("attn_doctor.probes",))
    assert list(writes("import sys\nprint(1)\nsys.stderr.write('x')\n")) == [2, 3]
