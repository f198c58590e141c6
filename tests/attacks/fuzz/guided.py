"""Runs one target with atheris, which keeps inputs that reach new lines of attn-doctor.

`pip install atheris`, then `python -m tests.attacks.fuzz.guided TARGET --seconds 600`. Each new
failure is printed with its input; the run goes on. The number of inputs is printed at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

# atheris is not part of the test tools, since few Pythons have it.
import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

with atheris.instrument_imports(include=["attn_doctor"]):
    from tests.attacks.fuzz.targets import TARGETS, attempt, mutated


def main() -> None:
    """Run one target for a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=600, help="of wall time")
    parser.add_argument("--seeds", nargs="*", default=[], help="further valid inputs: files")
    asked = parser.parse_args()
    seen: set[tuple[object, ...]] = set()
    number, end = 0, time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory() as name:
        corpus, folder = Path(name, "corpus"), Path(name, "work")
        corpus.mkdir()
        folder.mkdir()
        seeds = [TARGETS[asked.target][1], *(Path(one).read_bytes() for one in asked.seeds)]
        for number, seed in enumerate(seeds):
            (corpus / str(number)).write_bytes(seed)

        def one(data: bytes) -> None:
            nonlocal number
            if time.monotonic() > end:
                shutil.rmtree(name, ignore_errors=True)
                print(f"{asked.target}: {number} inputs, {len(seen)} failures, {_used()}")
                sys.stdout.flush()
                os._exit(1 if seen else 0)  # atheris would end the process without a word
            number += 1
            try:
                attempt(asked.target, folder, data)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                if (type(error), place.filename, place.lineno) not in seen:
                    seen.add((type(error), place.filename, place.lineno))
                    traceback.print_exc()
                    print(f"{asked.target}: failure with {data!r}", file=sys.stderr, flush=True)

        def custom(data: bytes, size: int, seed: int) -> bytes:
            """Our hostile pieces in half of the mutations, atheris' own in the others."""
            chance = random.Random(seed)
            if chance.random() < 0.5:
                return mutated(data, chance)[:size]
            changed: bytes = atheris.Mutate(data, size)
            return changed

        longest = max(4096, 2 * max(map(len, seeds)))
        options = ["-rss_limit_mb=4096", "-timeout=900", "-report_slow_units=900", "-verbosity=0"]
        argv = [sys.argv[0], *options, f"-max_len={longest}", str(corpus)]
        atheris.Setup(argv, one, custom_mutator=custom)
        atheris.Fuzz()


def _used() -> str:
    """Processor time and memory of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return f"{used.ru_utime + used.ru_stime:.0f} s of processor time, {used.ru_maxrss >> 10} MB"


if __name__ == "__main__":
    main()
