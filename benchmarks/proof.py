"""Proves wrong and right attentions, and says whether each got the right answer: one command.

    python benchmarks/proof.py --device cuda:0

Every fault of `tests/worker/proof/wrong_attention.py` runs as a backend through the child of
`--live`, and as a kernel through the builder's proof. All have to be found wrong. Then right
backends and a compiled FlexAttention kernel run with many seeds. All have to be found right. The
exit code is 1 if anything got a wrong answer. Parts: `--only live,build,right`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.worker.proof import run_faults

#: Runs jobs of `--live` in one process, with one interpreter's cost; a line of input is a job.
_LIVE = """
import json, os, sys
sys.path.insert(0, {root!r})
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import torch
from attn_doctor.worker.backends import job, calls
found = {{}}
find = calls.find
def once(name, route):
    if (name, route) not in found:
        found[name, route] = find(name, route)
    return found[name, route]
calls.find = once
fresh = torch.compiler.reset
for line in sys.stdin:
    asked = json.loads(line)
    # A compiled kernel serves all seeds of its shape.
    torch.compiler.reset = (lambda: None) if asked["seed"] else fresh
    events = []
    job.run_job(asked, lambda event, **more: events.append({{"event": event, **more}}))
    kept = [one for one in events if one["event"] in ("measured", "failed", "refused")]
    print(json.dumps(kept), file=answers, flush=True)
"""
#: Backend, route, and length of the realistic shape; cuDNN at ordinary lengths only.
RIGHT = {
    "cuda": [
        ("native", "direct"), ("_native_cudnn", "direct"), ("_native_efficient", "direct"),
        ("_native_flash", "direct"), ("_native_math", "direct"), ("flex", "compiled"),
        ("flash", "direct"), ("flash_varlen", "direct"),
        ("sage", "direct"), ("_sage_qk_int8_pv_fp8_cuda", "direct"),
        ("_sage_qk_int8_pv_fp8_cuda_sm90", "direct"), ("_sage_qk_int8_pv_fp16_cuda", "direct"),
        ("_sage_qk_int8_pv_fp16_triton", "direct"), ("sage_varlen", "direct"),
    ],
    "cpu": [
        ("native", "direct"), ("_native_flash", "direct"), ("_native_math", "direct"),
        ("flex", "direct"), ("flex", "compiled"),
    ],
}  # fmt: skip
#: Length and head size of the builder's kernels on a GPU.
LARGE = (704, 128)
#: Backends with known faults of cuDNN 9.19, and the shapes that show them: NaN gradients for 64
#: over a multiple of 128 tokens, and wrong ones for a gradient in another layout (ATTN-2026-0001,
#: 0002).
CUDNN, CUDNN_SHAPES = ("native", "_native_cudnn"), ("residue 64", "realistic")


def shapes(device: str) -> list[dict[str, Any]]:
    """Shapes of the right backends: that with 64 over a multiple of 128 last."""
    common = {"kv_length": 0, "fused": False, "model": ""}
    if device == "cpu":
        small = {"batch": 2, "heads": 2, "kv_heads": 2, "length": 200, "head_dim": 64}
        return [{**common, **small, "name": "small", "fused": True}]
    usual = {"batch": 1, "heads": 24, "kv_heads": 24, "head_dim": 128}
    return [
        {**common, **usual, "name": "realistic", "length": 2304},
        {**common, "name": "uneven", "batch": 2, "heads": 4, "kv_heads": 4, "length": 200,
         "kv_length": 333, "head_dim": 64, "fused": True},
        {**common, **usual, "name": "residue 64", "length": 704, "heads": 4, "kv_heads": 4,
         "batch": 2, "fused": True},
    ]  # fmt: skip


def main() -> int:
    """Run all parts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seeds", type=int, default=20, help="of right backends")
    parser.add_argument("--fault-seeds", type=int, default=1, help="of wrong ones")
    parser.add_argument("--only", default="build,live,right")
    parser.add_argument("--first-seed", type=int, default=0, help="the lowest seed")
    parser.add_argument("--faults", default="", help="only those whose name matches a pattern")
    parser.add_argument("--shard", default="1/1", help="I/N: every N-th fault, from the I-th on")
    parser.add_argument("--backends", default="", help="right ones whose name matches a pattern")
    asked = parser.parse_args()
    found = run_faults.faults(asked.python)
    chosen = [name for name in found if re.search(asked.faults, name)]
    shard, shards = map(int, asked.shard.split("/"))
    faults = {name: found[name] for name in chosen[shard - 1 :: shards]}
    bad = 0
    for part in asked.only.split(","):
        start = time.time()
        run = {"build": _build, "live": _live, "right": _right}[part]
        bad += run(asked, faults)
        print(f"{part}: {time.time() - start:.0f} s\n", flush=True)
    print("all answers are right" if not bad else f"{bad} got a wrong answer")
    return int(bad > 0)


def _seeds(asked: Any, count: int) -> range:
    return range(asked.first_seed, asked.first_seed + count)


def _show(part: str, name: str, found: run_faults.Answer, *, right: bool, first: bool) -> int:
    """Print the first seed's line, and that of a wrong answer; 1 if it is wrong."""
    ok = found.right == right and found.compared
    if not ok or first:
        mark = "ok  " if ok else "MISS"
        print(f"{mark} {part:6} {name or '(right)':45} {found.sentence[:150]}", flush=True)
    return int(not ok)


def _build(asked: Any, faults: dict[str, list[str]]) -> int:
    jobs = [
        (
            name,
            {
                "action": "build",
                "device": asked.device,
                "seed": seed,
                "spec": run_faults.spec(needs, *(LARGE if "cuda" in asked.device else ())),
            },
        )
        for name, needs in faults.items()
        for seed in _seeds(asked, asked.fault_seeds)
    ]
    answers = run_faults.build(asked.python, jobs, os.environ)
    print(f"{len(faults)} faults, {len(answers)} answers", flush=True)
    return sum(
        _show("build", name, answer, right=name == "", first=job["seed"] == asked.first_seed)
        for (name, job), answer in zip(jobs, answers, strict=True)
    )


def _live(asked: Any, faults: dict[str, list[str]]) -> int:
    bad = count = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        run_faults.live(asked.python, Path(folder), asked.device, os.environ.__setitem__) as live,
    ):
        for name, needs in faults.items():
            workload = run_faults.workload(needs, 1024 if "cuda" in asked.device else 192)
            for seed in _seeds(asked, asked.fault_seeds if workload else 0):
                assert workload is not None
                answer = live.run(name, workload, seed)
                count += 1
                first = seed == asked.first_seed
                bad += _show("live", name, answer, right=name == "", first=first)
    print(f"{len(faults)} faults, {count} answers", flush=True)
    return bad


def _right(asked: Any, _: dict[str, list[str]]) -> int:
    kind = asked.device.partition(":")[0]
    jobs, titles = [], []
    for backend, route in RIGHT[kind]:
        if not re.search(asked.backends, backend):
            continue
        for shape in shapes(kind):
            for phase in ("inference", "training"):
                for seed in _seeds(asked, asked.seeds):
                    titles.append((backend, route, shape["name"], phase, seed))
                    jobs.append(_job(asked.device, backend, route, shape, phase, seed))
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run(
        [asked.python, "-c", _LIVE.format(root=str(run_faults.ROOT))],
        input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    rows: dict[tuple[str, str, str, str], list[list[dict[str, Any]]]] = {}
    for title, line in zip(titles, done.stdout.splitlines(), strict=False):
        rows.setdefault(title[:4], []).append(json.loads(line))
    bad = sum(_row(*title, found) for title, found in rows.items())
    ran = done.stdout.count("\n")
    if ran < len(jobs):
        print(f"the process ended after {ran} of {len(jobs)} jobs, in {titles[ran]}")
        bad += 1
    return bad


def _job(
    device: str, backend: str, route: str, shape: dict[str, Any], phase: str, seed: int
) -> dict[str, Any]:
    from attn_doctor.backends.live import plan
    from attn_doctor.rulebook import library

    memory = {"inference": 0.0, "training": 0.0}
    attempt = plan.Attempt(name=backend, route=route, score_bytes=memory)
    limits = plan.Limits(timing_seconds=0.0)
    made = plan.job(attempt, plan.Workload(), limits, device, library.tables()["live"])
    one = {"shapes": [shape], "phases": [phase], "seed": seed, "seconds": 600, "share": 0.8}
    return {**made, **one}


def _row(
    backend: str, route: str, shape: str, phase: str, found: list[list[dict[str, Any]]]
) -> int:
    """Print what all seeds of one backend, shape and phase gave; 1 if it got a wrong answer."""
    nothing: dict[str, Any] = {"event": "failed", "message": "nothing"}
    last = [events[-1] if events else nothing for events in found]
    title = f"{backend} {route} {shape} {phase}"
    failed = [one for one in last if one["event"] != "measured"]
    if failed:
        words = str(failed[0].get("message", failed[0])).splitlines()
        print(f"     right  {title:55} not run: {(words or ['?'])[0][:90]}", flush=True)
        return 0
    wrong = [one["wrong"] for one in last if one["wrong"]]
    margins = {
        name: max(one["margins"].get(name) or 99.0 for one in last) for name in last[0]["margins"]
    }
    shown = " ".join(f"{name} {margin:.2f}" for name, margin in margins.items())
    print(
        f"{'    ' if wrong else 'ok  '} right  {title:55} {len(last) - len(wrong)}/{len(last)}"
        f"  largest share of what is allowed: {shown}",
        flush=True,
    )
    for words in dict.fromkeys(wrong[:2]):
        print(f"            {words}")
    if phase == "training" and shape in CUDNN_SHAPES and backend in CUDNN:
        print("            (cuDNN 9.19 has wrong gradients here)")
        return 0
    # A backend without a gradient is found out in training, rightly.
    lost = all("no grad_fn" in words for words in wrong)
    return int(bool(wrong) and not lost)


if __name__ == "__main__":
    sys.exit(main())
