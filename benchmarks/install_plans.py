"""Asks uv whether the plans of `install` resolve, for machines that are not here.

    python benchmarks/install_plans.py FOLDER [--seeds 30]

First five machines by the command itself (`attn-doctor install … --pretend …`), each step's command
as it is printed; then the random demands of `tests/install/test_choice.py`, twenty for each seed.
uv answers with `pip install --dry-run` for the Python and the system of the machine, all packages
of a plan together. PyTorch's indexes and the wheels of GitHub are those of `torch_index.py`, whose
FOLDER keeps what pip reported. Packages that are compiled are left out. One line for each plan that
uv refuses; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import torch_index  # type: ignore[import-not-found]  # noqa: E402

from attn_doctor.facts import System  # noqa: E402
from attn_doctor.fixes.pip_arguments import pip_call  # noqa: E402
from attn_doctor.install.choice import Choice  # noqa: E402
from attn_doctor.install.lock import _MACOS, platform_of  # noqa: E402
from attn_doctor.install.plan import plan  # noqa: E402
from tests.install.machines import machine  # noqa: E402
from tests.install.oracle import Asked  # noqa: E402
from tests.install.test_choice import _answer, _random  # noqa: E402

#: Words, and the machine: system, processor, Python, and what else is pretended.
MACHINES = (
    ("torch", "linux", "x86_64", "3.12.3", "gpu=rtx4090,driver=580"),
    ("torch", "windows", "x86_64", "3.13.1", "gpu=rtx5090,driver=580"),
    ("torch", "linux", "aarch64", "3.12.3", "gpu=gh200,driver=580"),
    ("torch", "macos", "arm64", "3.12.3", "gpu=none"),
    ("torch", "linux", "x86_64", "3.11.7", "gpu=gtx1080,driver=535"),
    ("torch flash xformers", "linux", "x86_64", "3.12.3", "gpu=rtx4090,driver=580"),
    ("torch xformers", "windows", "x86_64", "3.13.1", "gpu=rtx5090,driver=580"),
    ("torch flash", "linux", "aarch64", "3.12.3", "gpu=gh200,driver=580"),
    ("torch flash3", "linux", "x86_64", "3.12.3", "gpu=h100,driver=570"),
    ("comfyui", "windows", "x86_64", "3.13.1", "gpu=rtx4090,driver=580"),
    ("diffusers hub flex", "linux", "x86_64", "3.12.3", "gpu=h100,driver=580"),
)
#: What uv would have to run the setup of: flash-attn's imports torch.
_STATIC = """
[[dependency-metadata]]
name = "flash-attn"
requires-dist = ["torch", "einops"]
"""


def main() -> int:
    """Ask about all; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=30)
    given = parser.parse_args()
    with torch_index.serving(given.folder.resolve()) as index:
        (given.folder / "uv.toml").write_text(_STATIC)
        refused = [line for line in _machines(index) if line]
        refused += _demands(index, given.seeds)
    print("\n".join(refused))
    return 1 if refused else 0


def _machines(index: torch_index.Index) -> Iterator[str]:
    for words, os_name, arch, python, more in MACHINES:
        pretended = f"os={os_name},arch={arch},python={python},{more}"
        argv = [
            sys.executable, "-m", "attn_doctor", "install", *words.split(), "--json", "--no-read",
            "--pretend", pretended, "--torch-index", index.url,
        ]  # fmt: skip
        ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        found = json.loads(ended.stdout)
        steps = [one for one in (found.get("plan") or {}).get("steps", ()) if one["run"]]
        commands = [words for one in steps if one["kind"] == "install" for words in one["run"]]
        faults = [_asked(_words(one), index, os_name, arch, python) for one in commands]
        print(f"{words}: {pretended}: torch {found.get('torch')}")
        for command, fault in zip(commands, faults, strict=True):
            print(f"  {'refused' if fault else 'accepted'}: {command}", flush=True)
        yield from (f"{pretended} {words}: {fault}" for fault in faults if fault)
        if not commands:
            yield f"{pretended} {words}: no plan: {found.get('conflict')}"


def _words(command: str | Sequence[str]) -> list[str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    return words[words.index("install") + 1 :]


def _demands(index: torch_index.Index, seeds: int) -> list[str]:
    """Resolve each kind of answer once, two at a time."""
    kinds: dict[tuple[object, ...], Asked] = {}
    count: Counter[str] = Counter()
    for seed in range(seeds):
        generator = random.Random(seed)
        for _ in range(20):
            asked = _random(generator)
            found = _answer(asked)
            count[type(found).__name__] += 1
            if isinstance(found, Choice):
                steps = plan(found, machine(arch=asked.arch), index.url).steps
                lines = tuple(run for step in steps if step.kind == "install" for run in step.run)
                if lines:
                    kinds[lines, asked.system, asked.arch, asked.python] = asked
                    count["compiled"] += any(step.kind == "build" for step in steps)
    print(f"{seeds * 20} demands: {dict(count)}, {len(kinds)} kinds of answers", flush=True)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: _together(one, index), kinds))
    refused = [f"{kinds[one]}: {why}" for one, why in zip(kinds, answers, strict=True) if why]
    print(f"uv accepts {len(kinds) - len(refused)} of {len(kinds)} kinds", flush=True)
    return refused


def _together(kind: tuple[object, ...], index: torch_index.Index) -> str:
    lines, system, arch, python = kind
    calls = [call for run in lines if (call := pip_call(run))]  # type: ignore[attr-defined]
    words = [one.text for call in calls for one in call.wanted]
    for url in dict.fromkeys(url for call in calls for _, url in call.indexes):
        words += ["--extra-index-url", url]
    return _asked(words, index, str(system), str(arch), str(python))


def _asked(words: list[str], index: torch_index.Index, system: str, arch: str, python: str) -> str:
    """Ask uv; return its reason, empty if it accepts."""
    here = index.url.removesuffix("/whl")
    words = [one.replace("https://github.com/", f"{here}/github.com/") for one in words]
    words = [one for one in words if one not in ("--no-build-isolation", "--force-reinstall")]
    where = System(os=system, arch=arch, glibc="2.39")
    argv = [
        shutil.which("uv") or "uv", "pip", "install", "--dry-run", "--quiet",
        "--config-file", str(index.folder / "uv.toml"),
        "--target", str(index.folder / "none"), "--index-strategy", "unsafe-best-match",
        "--python-platform", platform_of(where), "--python-version", python, *words,
    ]  # fmt: skip
    environ = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": _MACOS}
    ended = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    return " ".join(ended.stderr.split()) if ended.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
