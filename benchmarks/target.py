"""What kernels that were built without a GPU are worth on the real one; all in one run.

    attn-doctor build-kernels --target h200 --cache-dir DIR -- python target_program.py CASE…
    python benchmarks/target.py --python ENV/bin/python --folder DIR CASE…        on the GPU

The first line is for the machine without a GPU; DIR then comes to the GPU's machine, as it is or
through `cache export` and `cache import`. For each case the program runs in a fresh process, with
an empty cache folder and with DIR: every cache must hit, the first call takes at most 0.30 of the
cold one, and no result is further from float64 than 1e-2. A transformer block of Diffusers, trained
three steps, must give the losses of one that was compiled here. The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: What the program promises: of a cold first call, and the largest error against float64 in bf16.
FIRST, ERROR = 0.30, 1e-2
#: Losses of the same three steps, whose sums the GPU may take in another order.
LOSS = 1e-3
#: Ends of torch's counters of its caches on disk; others count what one process sees twice.
_MISSES = ("autograd_cache_miss", "fxgraph_cache_miss", "cache_bypass")
PROGRAM = str(Path(__file__).with_name("target_program.py"))


def run(python: str, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Run the program once in a fresh process; one answer for each case."""
    environ = {name: text for name, text in os.environ.items() if name != "TRITON_CACHE_DIR"}
    environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    argv = [python, PROGRAM, *names, "--errors"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the program failed:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cubins(folder: Path) -> dict[str, float]:
    """Compiled kernels in a cache folder, with the time they were written."""
    return {str(one): one.stat().st_mtime for one in folder.rglob("*.cubin")}


def compared(python: str, folder: Path, name: str, scratch: Path) -> dict[str, Any]:
    """One case in `folder` and in an empty folder."""
    cold_folder = scratch / name
    (cold,) = run(python, cold_folder, [name])
    before = cubins(folder)
    (shipped,) = run(python, folder, [name])
    counted = shipped["counters"]
    return {
        "case": name,
        "cold": cold["seconds"],
        "shipped": shipped["seconds"],
        "of_cold": shipped["seconds"] / cold["seconds"],
        "misses": {key: counted[key] for key in counted if key.endswith(_MISSES)},
        "hits": {key: value for key, value in counted.items() if key.endswith("cache_hit")},
        "compiled": len(cubins(folder).keys() - before.keys()),
        "compiled_cold": len(cubins(cold_folder)),
        "errors": shipped.get("errors", {}),
        "losses": [shipped.get("losses"), cold.get("losses")],
    }


def misses(row: dict[str, Any]) -> list[str]:
    """What a row misses."""
    missed = []
    if row["misses"] or not row["hits"] or row["compiled"]:
        missed.append(f"not every cache hit: {row['misses']}, {row['compiled']} compiled")
    if row["of_cold"] > FIRST:
        missed.append(f"first call {row['of_cold']:.2f} of cold")
    if any(not error <= ERROR for error in row["errors"].values()):
        missed.append(f"errors {row['errors']}")
    shipped, cold = row["losses"]
    if shipped and any(not abs(a - b) <= LOSS * abs(b) for a, b in zip(shipped, cold, strict=True)):
        missed.append(f"losses {shipped}, compiled here {cold}")
    return missed


def main() -> int:
    """Compare every case, print it, and say what is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--folder", type=Path, required=True, help="the cache folder that came")
    parser.add_argument("--json", default="", help="also write all figures to this file")
    parser.add_argument("cases", nargs="*", help="as the program has them")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="target-"))
    bad = 0
    rows = []
    try:
        for name in args.cases:
            start = time.perf_counter()
            row = compared(args.python, args.folder, name, scratch)
            missed = misses(row)
            bad += bool(missed)
            worst = max(row["errors"].values(), default=0.0)
            print(
                f"{'MISS' if missed else 'ok  '} {name}: {row['shipped']:.2f} s against"
                f" {row['cold']:.2f} s cold ({row['of_cold']:.2f}); {row['hits']};"
                f" {row['compiled']} of {row['compiled_cold']} compiled; error {worst:.1e}"
                f" ({time.perf_counter() - start:.0f} s) {'; '.join(missed)}",
                flush=True,
            )
            rows.append(row)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
