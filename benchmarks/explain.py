"""How long `attn-doctor explain` takes on a huge log, beside grep and a plain read of it.

    python benchmarks/explain.py [--python ENV/bin/python] [--megabytes 1000] [--log FILE]

Two logs are written to a temporary folder: a training run, whose lines are similar, and prose, in
which no line repeats. grep counts the lines with one of the rules' plain texts (`grep -cE`, the
same alternatives that `explain` searches first), and a plain read counts the lines. A short log is
timed as well. The commands take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from attn_doctor.rulebook import library
from attn_doctor.rulebook.patterns import required_texts

PAGE = """\
$ pip install flash_attn
Collecting flash_attn
  Using cached flash_attn-2.8.3.tar.gz (8.4 MB)
  Installing build dependencies ... done
  Getting requirements to build wheel ... error
  error: subprocess-exited-with-error
  × Getting requirements to build wheel did not run successfully.
  │ exit code: 1
  ╰─> [20 lines of output]
      Traceback (most recent call last):
        File "<string>", line 22, in <module>
      ModuleNotFoundError: No module named 'torch'
"""
SENTENCE = """the picture shows a small house near the old river while two people walk along a
narrow path under tall trees and talk about their plans for the coming winter because every morning
the light over those hills looks different from what they had expected when summer came around"""


class Run(NamedTuple):
    """One run of a command: seconds, and MiB of memory at most."""

    seconds: float
    memory: int
    code: int


def training(rng: random.Random) -> Iterator[str]:
    """Lines of a training run."""
    step = 0
    while True:
        step += 1
        loss, rate = rng.random(), rng.random() * 1e-4
        clock = f"10:{step // 60 % 60:02}:{step % 60:02},{step % 1000:03}"
        speed = f"lr={rate:.3e} tokens/s={step * 7 % 9999}"
        yield f"[2026-11-21 {clock}][INFO] step {step}/1000000 loss={loss:.4f} {speed}"
        if step % 5 == 0:
            bars = (
                f"{n}%|{'█' * (n // 10):<10}| {n}/100 [00:{n % 60:02}<01:00, {loss * 9:.2f}it/s]"
                for n in range(0, 100, 20)
            )
            yield "\r".join(bars)


def prose(rng: random.Random) -> Iterator[str]:
    """Captions of pictures."""
    number, words = 0, SENTENCE.split()
    while True:
        number += 1
        yield f"caption {number}: {' '.join(rng.choices(words, k=rng.randint(8, 30)))}"


def write(path: Path, lines: Iterator[str], megabytes: int) -> None:
    """Write lines to a file: some megabytes of them, again and again up to the size."""
    part, size = [], 0
    while size < 4_000_000:
        line = next(lines) + "\n"
        part.append(line)
        size += len(line)
    data = "".join(part).encode()
    with path.open("wb") as file:
        for _ in range(max(1, megabytes * 1_000_000 // len(data))):
            file.write(data)


def run(argv: list[str]) -> Run:
    """Run a command to its end, its output written to a file that is thrown away.

    grep stops at its first match when it writes to /dev/null.
    """
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    return Run(seconds, used.ru_maxrss // 1024, child.returncode)


def alternatives(folder: Path) -> Path:
    """What grep looks for: the plain texts that the rules' symptoms need."""
    patterns = (symptom.pattern for rule in library.load() for symptom in rule.symptoms)
    texts = {text for pattern in patterns for text in required_texts(pattern)}
    path = folder / "alternatives"
    lines = {max(text.split("\n"), key=len) for text in texts}
    escaped = (re.sub(r"([\\.^$*+?(){}\[\]|])", r"\\\1", text) for text in sorted(lines))
    path.write_text("\n".join(escaped) + "\n")
    return path


def compare(label: str, log: Path, python: str, folder: Path, runs: int) -> float:
    """Time the commands on one log by turns and print them: `explain` beside grep, as a ratio."""
    commands = {
        "attn-doctor explain": [python, "-m", "attn_doctor", "explain", "--no-probe", str(log)],
        "grep -cE": ["grep", "-cE", "-f", str(alternatives(folder)), str(log)],
        "wc -l": ["wc", "-l", str(log)],
    }
    measured: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, argv in commands.items():
            # A child's peak counts from what its parent held, which is kept small (`write`).
            measured[name].append(run(argv))
    print(f"\n{label}: {log.stat().st_size / 1e6:.0f} MB")
    least = {name: min(one.seconds for one in found) for name, found in measured.items()}
    first = median(one.seconds for one in measured["attn-doctor explain"])
    for name, found in measured.items():
        middle = median(one.seconds for one in found)
        memory = max(one.memory for one in found)
        codes = ",".join(str(code) for code in sorted({one.code for one in found}))
        print(
            f"{name:22} {middle:8.2f} s  least {least[name]:8.2f} s  {memory:5} MiB"
            f"  explain takes {first / middle:5.1f} times as long  exit {codes}"
        )
    return first / median(one.seconds for one in measured["grep -cE"])


def main() -> int:
    """Measure and print; 1 if a huge log takes more than four times what grep takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="interpreter with attn-doctor")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the logs")
    parser.add_argument("--runs", type=int, default=3, help="runs of each command")
    parser.add_argument("--log", type=Path, help="time this log instead")
    options = parser.parse_args()
    kinds: dict[str, Callable[[random.Random], Iterator[str]]] = {
        "training": training,
        "prose": prose,
    }
    with tempfile.TemporaryDirectory(prefix="attn-doctor-") as name:
        folder = Path(name)
        page = folder / "page.log"
        page.write_text(PAGE, encoding="utf-8")
        compare("one page", page, options.python, folder, max(options.runs, 5))
        ratios = []
        if options.log:
            ratios.append(compare("given", options.log, options.python, folder, options.runs))
        for kind, lines in ({} if options.log else kinds).items():
            log = folder / f"{kind}.log"
            write(log, lines(random.Random(1)), options.megabytes)
            ratios.append(compare(kind, log, options.python, folder, options.runs))
            log.unlink()
    return int(max(ratios) > 4)


if __name__ == "__main__":
    sys.exit(main())
