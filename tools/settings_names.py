"""Writes the settings that each program knows, from its source, to `rules/tables/settings/`.

    python tools/settings_names.py axolotl FOLDER…

FOLDERs hold checkouts or unpacked wheels of one or several releases, whose settings are taken
together: a file for an older release is that program's too. They are parsed, never run.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "rules" / "tables" / "settings"
_NAME = re.compile(r"[A-Za-z_][\w-]*")


def fields(tree: ast.Module) -> Iterator[str]:
    """Fields of dataclasses and of pydantic's models, with their other names."""
    for one in ast.walk(tree):
        for each in one.body if isinstance(one, ast.ClassDef) else ():
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id
                yield from _aliases(each.value)


def _aliases(node: ast.expr | None) -> Iterator[str]:
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.keyword) and one.arg in ("alias", "validation_alias"):
            yield from _texts(ast.walk(one))


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for one in nodes:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def options(tree: ast.Module) -> Iterator[str]:
    """Options of argparse and of click."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and _called(one) in ("add_argument", "option"):
            for each in _texts(one.args):
                if each.startswith("--"):
                    yield each[2:].partition("/")[0]


def looked_up(tree: ast.Module) -> Iterator[str]:
    """Keys that code reads: `config["a"]`, `config.get("a")`, `get_conf("a")`, `"a" in config`."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Subscript):
            yield from _texts([one.slice])
        elif isinstance(one, ast.Call) and _called(one) in ("get", "get_conf", "pop"):
            yield from _texts(one.args[:1])
        elif isinstance(one, ast.Compare) and isinstance(one.ops[0], (ast.In, ast.NotIn)):
            yield from _texts([one.left])


def appended(tree: ast.Module) -> Iterator[str]:
    """The first text of tuples that are added to a list: `data.append(("name", 1, int))`."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and _called(one) == "append":
            for each in one.args:
                if isinstance(each, ast.Tuple):
                    yield from _texts(each.elts[:1])


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def parameters(tree: ast.Module) -> Iterator[str]:
    """The parameters of functions."""
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            yield from (each.arg for each in one.args.args)


class Source(NamedTuple):
    """Where a program's settings are."""

    title: str
    address: str
    files: tuple[str, ...]
    """Patterns of files below a folder."""
    found: tuple[Callable[[ast.Module], Iterator[str]], ...]


SOURCES = {
    "transformers-training": Source(
        "Transformers' TrainingArguments",
        "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
        ("**/training_args*.py",),
        (fields,),
    ),
    "llama-factory": Source(
        "LLaMA-Factory",
        "https://github.com/hiyouga/LLaMA-Factory/tree/main/src/llamafactory/hparams",
        ("**/hparams/*.py",),
        (fields,),
    ),
    "axolotl": Source(
        "Axolotl",
        "https://github.com/axolotl-ai-cloud/axolotl/tree/main/src/axolotl/utils/schemas",
        ("**/utils/schemas/*.py", "**/utils/config/**/*.py", "**/integrations/*/args.py"),
        (fields,),
    ),
    "trl": Source(
        "TRL",
        "https://github.com/huggingface/trl/tree/main/trl/trainer",
        ("**/trainer/*config*.py", "**/scripts/*.py"),
        (fields,),
    ),
    "ms-swift": Source(
        "ms-swift",
        "https://github.com/modelscope/ms-swift/tree/main/swift/arguments",
        ("swift/arguments/**/*.py",),
        (fields,),
    ),
    "megatron-swift": Source(
        "Megatron-SWIFT",
        "https://github.com/modelscope/ms-swift/tree/main/swift/megatron/arguments",
        ("swift/arguments/**/*.py", "swift/megatron/arguments/*.py"),
        (fields,),
    ),
    "ai-toolkit": Source(
        "AI Toolkit",
        "https://github.com/ostris/ai-toolkit/blob/main/toolkit/config_modules.py",
        ("toolkit/config_modules.py", "jobs/**/*.py", "extensions_built_in/**/*.py"),
        (looked_up,),
    ),
    "onetrainer": Source(
        "OneTrainer",
        "https://github.com/Nerogar/OneTrainer/tree/master/modules/util/config",
        ("modules/util/config/*.py",),
        (appended,),
    ),
    "diffusion-pipe": Source(
        "diffusion-pipe",
        "https://github.com/tdrussell/diffusion-pipe/blob/main/train.py",
        ("*.py", "utils/*.py", "models/**/*.py", "optimizers/*.py"),
        (looked_up,),
    ),
    "sd-scripts": Source(
        "sd-scripts",
        "https://github.com/kohya-ss/sd-scripts/blob/main/library/train_util.py",
        ("*.py", "library/*.py", "networks/*.py", "finetune/*.py"),
        (options,),
    ),
    "musubi-tuner": Source(
        "Musubi Tuner",
        "https://github.com/kohya-ss/musubi-tuner/tree/main/src/musubi_tuner",
        ("**/*.py",),
        (options,),
    ),
    "kohya-gui": Source(
        "kohya_ss GUI",
        "https://github.com/bmaltais/kohya_ss/tree/master/kohya_gui",
        ("kohya_gui/*.py",),
        (parameters,),
    ),
    "web-ui": Source(
        "Stable Diffusion WebUI, Forge and SD.Next",
        "https://github.com/lllyasviel/stable-diffusion-webui-forge/blob/main/modules/cmd_args.py",
        ("modules/*.py", "backend/*.py", "modules_forge/*.py", "launch.py"),
        (options,),
    ),
    "comfyui": Source(
        "ComfyUI",
        "https://github.com/comfyanonymous/ComfyUI/blob/master/comfy/cli_args.py",
        ("comfy/cli_args.py",),
        (options,),
    ),
    "diffusers-training": Source(
        "Diffusers' training scripts",
        "https://github.com/huggingface/diffusers/tree/main/examples",
        ("examples/**/train*.py",),
        (options,),
    ),
}


def names_in(source: Source, folder: Path) -> Iterator[str]:
    """The settings in the files of one folder, `-` read as `_`."""
    for pattern in source.files:
        for path in sorted(folder.glob(pattern)):
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except SyntaxError:
                continue
            for find in source.found:
                for name in find(tree):
                    if _NAME.fullmatch(name):
                        yield name.replace("-", "_")


def written(source: Source, names: set[str], date: str) -> str:
    """The table as TOML, several names on a line."""
    lines, line = [], "   "
    for name in sorted(names):
        word = f' "{name}",'
        if len(line + word) > 100:
            lines.append(line)
            line = "   "
        line += word
    lines.append(line)
    listed = "\n".join(lines)
    return (
        f'title   = "{source.title}"\nschema  = 1\nchecked = {date}\n'
        f'source  = "{source.address}"\nnames   = [\n{listed}\n]\n'
    )


def main() -> None:
    """Write the table of one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=SOURCES)
    parser.add_argument("folder", type=Path, nargs="+")
    given = parser.parse_args()
    source = SOURCES[given.program]
    names = {name for folder in given.folder for name in names_in(source, folder)}
    TABLES.mkdir(exist_ok=True)
    text = written(source, names, datetime.date.today().isoformat())
    (TABLES / f"{given.program}.toml").write_text(text, encoding="utf-8")
    print(f"{given.program}: {len(names)} settings")


if __name__ == "__main__":
    main()
