"""Compares `check --config` with what a framework really dispatches, on the CPU.

    python benchmarks/config_dispatch.py FOLDER --python PYTHON [--comfyui COMFYUI]

FOLDER has configurations. Each is predicted, and the framework's own code then chooses.
Transformers builds a model of two small layers with random weights and runs it forward and
backward. ComfyUI's `comfy/ldm/modules/attention.py` is imported with the options of the start line.
PYTHON has torch for the CPU and transformers, and for COMFYUI (its folder) what that imports. The
kernels of packages that need a GPU, and the GPU's properties, are stubs. One line for each
comparison; exit code 1 if one differs. Configurations of other programs are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.configs.predict import predict
from attn_doctor.configs.prediction import Phase
from attn_doctor.configs.readers.kinds import read_all
from attn_doctor.configs.readers.settings import ConfigError, Reading
from attn_doctor.facts import Facts, Package

ROOT = Path(__file__).parents[1]
#: Functions of ComfyUI and the canonical backends.
_COMFYUI = {
    "attention_sage": "sage",
    "attention_flash": "flash",
    "attention_xformers": "xformers",
    "attention_pytorch": "native",
    "attention_split": "comfyui_split",
    "attention_sub_quad": "comfyui_sub_quad",
}
#: Packages that are stubs in turn.
_SETS = ((), ("sageattention", "flash_attn"), ("sageattention", "flash_attn", "xformers"))
_TRANSFORMERS = ("trl", "transformers")
_OPTIONS = (
    "use_sage_attention", "use_flash_attention", "use_pytorch_cross_attention",
    "use_split_cross_attention", "use_quad_cross_attention", "disable_xformers", "cpu",
)  # fmt: skip
_SECONDS = 600


class Runner:
    """Runs a framework's choice in the interpreter with torch."""

    def __init__(self, python: str, comfyui: str) -> None:
        self._python, self._comfyui = python, comfyui
        self._known: dict[str, str] = {}

    @property
    def version(self) -> str:
        """The version of ComfyUI; empty without its folder."""
        path = Path(self._comfyui) / "comfyui_version.py"
        return path.read_text("utf-8").split('"')[-2] if self._comfyui else ""

    def chosen(self, what: str, options: Sequence[str], packages: Sequence[str]) -> str:
        """The backend that ran; `stops` if the framework stopped, `failed` if the run did."""
        request = json.dumps([what, self._comfyui, list(options), list(packages)])
        if request not in self._known:
            self._known[request] = self._run(request)
        return self._known[request]

    def _run(self, request: str) -> str:
        child = Path(__file__).with_name("config_dispatch_child.py")
        done = subprocess.run(
            [self._python, str(child), request],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        last = (done.stdout.strip().splitlines() or [""])[-1]
        if last.startswith("RAN "):
            return _COMFYUI.get(last[4:], last[4:])
        stopped = "must be installed" in done.stderr + done.stdout or done.returncode == 255
        return "stops" if stopped else f"failed: {done.stderr[-300:]}"


def comparisons(path: Path, runner: Runner, facts: Facts) -> Iterator[tuple[str, str, str]]:
    """What was compared, the prediction and the run, for each configuration of a file."""
    try:
        readings = read_all(path)
    except ConfigError:
        yield path.name, "", "not read"
        return
    for reading in readings:
        if reading.format == "comfyui" and runner.version:
            for packages in _SETS:
                yield _comfyui(path, reading, runner, _with(facts, packages), packages)
        elif reading.format in _TRANSFORMERS:
            yield from _transformers(path, reading, runner, facts)
        else:
            yield path.name, "", "another program"


def _with(facts: Facts, packages: Sequence[str]) -> Facts:
    """The machine with some packages, and without the others."""
    names = ("sageattention", "flash_attn", "xformers")
    here = {name: Package(installed=name in packages) for name in names}
    return replace(facts, **here)


def _comfyui(
    path: Path, reading: Reading, runner: Runner, facts: Facts, packages: Sequence[str]
) -> tuple[str, str, str]:
    title = f"{path.name} with {', '.join(packages) or 'no package'}"
    phases = predict(reading, facts, ()).phases
    if any(one.undecided for one in phases):
        return title, "", "undecided"
    options = [f"--{name.replace('_', '-')}" for name in _OPTIONS if name in reading.settings]
    ran = runner.chosen("comfyui", options, packages)
    (phase,) = [one for one in phases if _in_release(one, runner.version)]
    missing = {"sage": "sageattention", "flash": "flash_attn"}.get(phase.backend, "")
    return title, "stops" if missing and missing not in packages else phase.backend, ran


def _in_release(phase: Phase, version: str) -> bool:
    """The phase is for this release of ComfyUI."""
    newer = Version(version) > Version("0.20.1")
    return not phase.when or ("newer" in phase.when) == newer


def _transformers(
    path: Path, reading: Reading, runner: Runner, facts: Facts
) -> Iterator[tuple[str, str, str]]:
    phase = predict(reading, _with(facts, ("flash_attn",)), ()).phases[0]
    if phase.undecided:
        yield path.name, "", "undecided"
        return
    if reading.get("use_flash_attention_2"):
        yield path.name, "", "an older option"
        return
    value = next(
        (reading.get(key) for key in ("attn_implementation", "_attn_implementation")
         if reading.get(key)), "",
    )  # fmt: skip
    yield path.name, phase.backend, runner.chosen("transformers", [value], ("flash_attn",))


def main() -> int:
    """Compare, and print a line for each comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--comfyui", default="")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.configs.machines import machine

    runner = Runner(options.python, options.comfyui)
    counted: Counter[str] = Counter()
    for path in sorted(one for one in options.folder.rglob("*") if one.is_file()):
        for title, predicted, ran in comparisons(path, runner, machine()):
            state = "same" if predicted == ran else "DIFFERS"
            if not predicted:  # an unread file, or what has no name in the catalogue
                state = ran if " " in ran or ran == "undecided" else "not compared"
            counted[state] += 1
            if predicted:
                sys.stdout.write(f"{state}\t{title}\t{predicted}\t{ran}\n")
    sys.stdout.write(f"{dict(counted)}\n")
    return int(bool(counted["DIFFERS"]))


if __name__ == "__main__":
    sys.exit(main())
