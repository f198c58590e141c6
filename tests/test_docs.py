"""The documents say what the code does."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from attn_doctor import facts
from attn_doctor.rulebook.fact_catalogue import KINDS, catalogue, sentences

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rules/*.md")])
STRUCTS = [
    one
    for one in vars(facts).values()
    if isinstance(one, type) and issubclass(one, msgspec.Struct) and one is not msgspec.Struct
]


def test_the_reference_of_facts_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "tools" / "fact_reference.py"))["page"]
    written = (ROOT / "docs" / "facts.md").read_text("utf-8")
    assert written == page(), "run `python tools/fact_reference.py`"


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: str(struct.__name__))
def test_every_fact_has_a_sentence(struct: type[msgspec.Struct]) -> None:
    assert struct.__doc__
    said = sentences()[struct.__name__]
    for name in struct.__struct_fields__:
        assert said.get(name, "").endswith((".", "…")), name


def test_names_and_kinds_in_the_catalogue() -> None:
    known = catalogue()
    assert {fact.kind for fact in known.values()} == set(KINDS)
    assert all(name == fact.name for name, fact in known.items())
    assert known["torch.version"].kind == "version"
    assert known["torch.installed"].kind == "boolean"
    assert (known["torch.archs"].kind, known["torch.archs"].items) == ("list", "number")
    assert known["gpus.count"].kind == "number"
    assert known["toolkit.missing_components.count"].element_of == "toolkits"
    gpu = known["gpu.sm"]
    assert (gpu.kind, gpu.element_of) == ("number", "gpus")
    assert gpu.doc == "Compute capability ×10: 89 for 8.9, 120 for 12.0."
    assert known["env.CUDA_HOME"].kind == "text"
    assert not {"gaps", "env", "gpus.sm", "torch"} & set(known)


def test_each_list_of_facts_has_a_name_for_its_elements() -> None:
    lists = {fact.name for fact in catalogue().values() if fact.kind == "list" and not fact.items}
    assert lists == set(facts.ELEMENTS)
    # An element called like a group of facts would make `torch.version` ambiguous.
    assert not set(facts.ELEMENTS.values()) & set(facts.Facts.__struct_fields__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_documents(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.posix
@pytest.mark.parametrize(
    ("name", "command"),
    [("test", 'pip install ".[test]" && pytest'), ("main", "attn-doctor check")],
)
def test_ci_finds_the_readmes_commands(name: str, command: str) -> None:
    script = ROOT / ".ci" / "run"
    found = subprocess.run([script, "--show", name], capture_output=True, text=True, check=True)
    assert command in found.stdout


#: Files of other projects, and files that users have, which our texts mention.
FOREIGN = {
    "setup.py", "sitecustomize.py", "warmup.py", "train.py", "collect_env.py", "masks.py",
    "my_masks.py", "torch.py", "triton.py", "attention_dispatch.py", "flex_attention.py",
    "pyproject.py", "run.py", "__init__.py", "cmd_args.py",
}  # fmt: skip


@cache
def docstrings() -> list[tuple[Path, str]]:
    return [
        (path, ast.get_docstring(node, clean=False) or "")
        for path in sorted((ROOT / "attn_doctor").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    ]


def test_files_that_docstrings_name_exist() -> None:
    known = {
        path.relative_to(ROOT).as_posix()
        for folder in ("attn_doctor", "tests", "tools", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    ours = {name for path in known for name in _endings(path)}
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in docstrings()
        for name in re.findall(r"`([\w./]+\.py)`", text)
        if name not in ours and name.rpartition("/")[2] not in FOREIGN
        if not name.startswith(("torch/", "triton/"))
    ]
    assert gone == []


def test_modules_that_docstrings_name_exist() -> None:
    packages = {path.name for path in (ROOT / "attn_doctor").iterdir() if path.is_dir()}
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in docstrings()
        for name in re.findall(r"`(?:attn_doctor\.)?([a-z_]+(?:\.[a-z_]+)+)`", text)
        if name.split(".")[0] in packages - {"facts"} and not name.endswith(".json")
        if not _module_of(name.split("."))
    ]
    assert gone == []


def _endings(path: str) -> Iterator[str]:
    """Every way to name a file by the end of its path."""
    parts = path.split("/")
    yield from ("/".join(parts[start:]) for start in range(len(parts)))


def _module_of(parts: list[str]) -> bool:
    """`parts` name a module or a package, perhaps with a name that it defines."""
    folder = ROOT / "attn_doctor"
    for length in (len(parts), len(parts) - 1):
        place = folder.joinpath(*parts[:length])
        source = next(
            (one for one in (place.with_suffix(".py"), place / "__init__.py") if one.exists()), None
        )
        if source is not None:
            return length == len(parts) or bool(
                re.search(rf"\b{parts[-1]}\b", source.read_text("utf-8"))
            )
    return False


def test_files_that_pages_name_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`([\w./]+\.py)`", text)) - {"version.py"}  # torch's
    assert named
    assert {one for one in named if not [*ROOT.glob(f"**/{one}")]} == set()


def test_nothing_installs_a_name_that_anyone_could_take() -> None:
    """Until a release is on an index, recipes install a checkout, a wheel or an address."""
    pattern = re.compile(
        r"(?:(?:pipx?|tool) install|uvx|pipx run)\s[^&;`]*?\battn-doctor(?![-\w/.])"
    )
    places = ["*.md", "*.yml", "docs/**/*.md", "rules/**/*.toml", "rules/*.md", "examples/*"]
    places += ["attn_doctor/**/*.py", ".github/**/*.yml"]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for place in places
        for path in ROOT.glob(place)
        for line in path.read_text("utf-8").splitlines()
        if pattern.search(line)
    ]
    assert found == []
