"""How long `attn-doctor check` takes, beside the collector that torch itself brings along.

    python benchmarks/check.py --python ENV/bin/python [--runs 10] [--cpu] [--where]

Both examine the same environment and run in it, by turns, so that a busy machine slows both. A
bare interpreter and a bare `import torch` are measured too: the first is what nothing costs, the
second what a collector pays that imports torch. The first round warms the disk cache and is left
out. Install attn-doctor into ENV first: a wheel, since a checkout has no index of the rules.

`--against OTHER/bin/python` measures the attn-doctor of another environment by turns with it, such
as the release before. `--where` prints where the time of a check goes: its slowest modules and
probes, each the least of all runs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import NamedTuple

#: Label and arguments after the interpreter. The first is compared with the others.
COMMANDS = {
    "attn-doctor check": ("-m", "attn_doctor", "check"),
    "torch.utils.collect_env": ("-m", "torch.utils.collect_env"),
    "import torch": ("-c", "import torch"),
    "python, nothing else": ("-c", "pass"),
}
#: Label of the check of `--against`.
OTHER = "the other attn-doctor"
#: Without these, each command examines the environment that it runs in.
OTHERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
HERE = {name: value for name, value in os.environ.items() if name not in OTHERS}


class Run(NamedTuple):
    """One run of a command, in seconds."""

    wall: float
    cpu: float
    code: int


def run(argv: list[str], folder: str) -> Run:
    """Run a command to its end in `folder`, its output thrown away."""
    before = children_cpu()
    start = time.perf_counter()
    no = subprocess.DEVNULL
    done = subprocess.run(argv, cwd=folder, env=HERE, stdin=no, stdout=no, stderr=no, check=False)
    wall = time.perf_counter() - start
    return Run(wall, children_cpu() - before, done.returncode)


def children_cpu() -> float:
    """Give the processor time of all children that have ended; Windows does not keep it."""
    if sys.platform == "win32":
        return 0.0
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(python: str, runs: int, against: str = "") -> dict[str, list[Run]]:
    """Every command `runs` times, by turns, after one round that does not count."""
    commands = {label: [python, *arguments] for label, arguments in COMMANDS.items()}
    if against:
        commands[OTHER] = [against, *COMMANDS["attn-doctor check"]]
    # `python -m` imports from the working directory first; in a checkout of attn-doctor that would
    # be the sources, which have no index of the rules.
    with tempfile.TemporaryDirectory() as empty:
        rounds = [
            {label: run(argv, empty) for label, argv in commands.items()} for _ in range(runs + 1)
        ]
    return {label: [one[label] for one in rounds[1:]] for label in commands}


# import time:      1953 |       6567 |   typing
_IMPORTED = re.compile(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", re.MULTILINE)
#     84 ms  attn_doctor.diagnosis: probe torch took 9 ms
_PROBE = re.compile(r"probe (.+) took (\d+) ms")


def where(python: str, runs: int, most: int = 15) -> str:
    """Write what takes the most time in a check, in milliseconds, each the least of all runs."""
    with tempfile.TemporaryDirectory() as empty:
        argv = [python, "-X", "importtime", *COMMANDS["attn-doctor check"]]
        imported = [_read(argv, empty, {}, _IMPORTED, 1) for _ in range(runs)]
        argv = [python, *COMMANDS["attn-doctor check"]]
        probed = [_read(argv, empty, {"ATTN_DOCTOR_LOG": "debug"}, _PROBE, 0) for _ in range(runs)]
    modules, probes = _least(imported, 1e-3), _least(probed, 1.0)
    groups = {"attn_doctor": 0.0, "packages": 0.0, "Python's own": 0.0}
    for name, spent in modules.items():
        top = name.partition(".")[0]
        own = top.lstrip("_") in sys.stdlib_module_names or top in sys.stdlib_module_names
        groups[
            "attn_doctor" if top == "attn_doctor" else "Python's own" if own else "packages"
        ] += spent
    parts = [f"{label} {spent:.1f}" for label, spent in groups.items()]
    lines = [f"{len(modules)} modules are imported in {sum(modules.values()):.1f} ms:", *parts]
    lines += ["", f"the {most} slowest modules by themselves"]
    lines += [f"{spent:6.1f}  {name}" for name, spent in _first(modules, most)]
    lines += ["", "probes, which run at the same time (elapsed)"]
    return "\n".join(lines + [f"{spent:6.1f}  {name}" for name, spent in _first(probes, most)])


def _read(
    argv: list[str], folder: str, variables: dict[str, str], line: re.Pattern[str], name: int
) -> dict[str, float]:
    """The number that each name has in the lines of a run's standard error."""
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**HERE, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return {found[name]: float(found[1 - name]) for found in line.findall(done.stderr)}


def _least(runs: list[dict[str, float]], unit: float) -> dict[str, float]:
    return {
        name: unit * min(one.get(name, spent) for one in runs) for name, spent in runs[0].items()
    }


def _first(spent: dict[str, float], most: int) -> list[tuple[str, float]]:
    return sorted(spent.items(), key=lambda item: -item[1])[:most]


def table(measured: dict[str, list[Run]], cpu: bool) -> str:
    """Write the medians, and how many times as long as the first command each one takes."""

    def seconds(one: Run) -> float:
        return one.cpu if cpu else one.wall

    what = "CPU" if cpu else "elapsed"
    lines = [f"{what + ', seconds':26} {'median':>8} {'least':>8} {'most':>8} {'ratio':>8}  exit"]
    first = median(map(seconds, next(iter(measured.values()))))
    for label, runs in measured.items():
        times = [seconds(one) for one in runs]
        codes = ",".join(str(code) for code in sorted({one.code for one in runs}))
        lines.append(
            f"{label:26} {median(times):8.3f} {min(times):8.3f} {max(times):8.3f}"
            f" {median(times) / first:7.1f}x  {codes}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure and print; 1 if a command did not run, since then its time says nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    parser.add_argument("--runs", type=int, default=10, help="runs that count (default 10)")
    parser.add_argument("--cpu", action="store_true", help="print processor time as well")
    parser.add_argument("--against", default="", help="interpreter with another attn-doctor")
    parser.add_argument("--where", action="store_true", help="print where the time of a check goes")
    options = parser.parse_args()
    against = options.against and os.path.abspath(options.against)
    measured = measure(os.path.abspath(options.python), options.runs, against)
    print(f"{options.python}, medians of {options.runs} runs by turns")
    print(table(measured, cpu=False))
    if options.cpu:
        print("\n" + table(measured, cpu=True))
    if options.where:
        print("\n" + where(os.path.abspath(options.python), options.runs))
    # `check` ends with 1 where it finds problems.
    failed = [
        label
        for label, runs in measured.items()
        if any(
            one.code not in ((0, 1) if label in ("attn-doctor check", OTHER) else (0,))
            for one in runs
        )
    ]
    if failed:
        print(f"\nDid not run: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
