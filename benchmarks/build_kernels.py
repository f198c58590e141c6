"""What `attn-doctor build-kernels` saves, and how well it uses the machine; all in one run.

    python benchmarks/build_kernels.py --python ENV/bin/python [--device cuda:0|cpu] [--json FILE]

1. Many specs at once, against the ideal (the sum of what each takes alone, divided by the workers,
   plus one process start) and against one after another (`--jobs 1`).
2. The first compiled forward and backward of a program in a fresh process: with empty caches, after
   `build-kernels`, and after the same program warmed the caches itself. The program is a plain one,
   below, which knows nothing of attn-doctor; the median of several processes counts.
3. The largest error against float64, and whether a kernel that is wrong on purpose is noticed.
4. How long it takes to say that everything is up to date.

Run it with an interpreter that has attn-doctor; ENV is the one with torch. The exit code is 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from attn_doctor import worker

#: Ratios and limits that the program promises.
REUSE, SELF, IDEAL, SERIAL, ERROR, IDLE = 0.30, 1.1, 1.5, 0.25, 1e-2, 1.0
#: What is set here would decide for all runs alike.
OURS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
ENVIRON = {name: value for name, value in os.environ.items() if name not in OURS}

#: What a user would write: compile, one step, and the seconds that it took.
PROGRAM = """
import json, sys, time
spec = json.loads(sys.argv[1])
begun = time.perf_counter()
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
device, training = spec["device"], spec["phase"] == "training"
if device != "cpu":
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
dtype = getattr(torch, spec["dtype"])
heads, dim, length = spec["heads"], spec["head_dim"], spec["length"]
def tensor():
    if spec["layout"] == "bshd":
        made = torch.randn(1, length, heads, dim, device=device, dtype=dtype).transpose(1, 2)
    else:
        made = torch.randn(1, heads, length, dim, device=device, dtype=dtype)
    return made.requires_grad_(training)
query, key, value = tensor(), tensor(), tensor()
def causal(batch, head, q_idx, kv_idx):
    return q_idx >= kv_idx
mask = None
if spec["mask"] == "causal":
    mask = create_block_mask(causal, None, None, length, length, device=device)
def wait():
    if device != "cpu":
        torch.cuda.synchronize()
compiled = torch.compile(flex_attention)
arguments = {"block_mask": mask} if mask is not None else {}
wait()
start = time.perf_counter()
with torch.set_grad_enabled(training):
    out = compiled(query, key, value, **arguments)
    if training:
        out.backward(torch.randn_like(out))
wait()
seconds = time.perf_counter() - start
counted = {f"{a}.{b}": n for a in ("aot_autograd", "inductor") for b, n in counters[a].items()}
print(json.dumps({"seconds": seconds, "whole": time.perf_counter() - begun, "counters": counted}))
"""


def specs(device: str) -> list[dict[str, Any]]:
    """Sixteen specs as training uses them on a GPU, four small ones on a CPU."""
    if device == "cpu":
        return [
            {"heads": 2, "head_dim": dim, "seq_len": 256, "mask": mask, "dtype": "fp32"}
            for dim in (32, 64)
            for mask in ("none", "causal")
        ]
    return [
        {"heads": heads, "head_dim": dim, "seq_len": length, "mask": mask, "layout": layout}
        for heads, dim, length in ((24, 128, 4608), (16, 64, 4096))
        for mask in ("none", "causal")
        for layout in ("bhsd", "bshd")
    ] + [
        {"heads": 12, "head_dim": 128, "seq_len": length, "mask": mask}
        for length in (1024, 2048, 1536, 3072)
        for mask in ("none", "causal")
    ]


def toml(wanted: list[dict[str, Any]]) -> str:
    """The specs as a file for `--spec`."""
    lines = []
    for one in wanted:
        lines.append("[[kernel]]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in one.items()]
    return "\n".join(lines) + "\n"


def build(
    args: argparse.Namespace, folder: Path, *more: str, env: dict[str, str] | None = None
) -> tuple[dict[str, Any], int, float]:
    """Run `attn-doctor build-kernels`. Returns its answer, exit code and wall time."""
    argv = [sys.executable, "-m", "attn_doctor", "build-kernels", "--python", args.python]
    argv += ["--device", args.device, "--cache-dir", str(folder), "--format", "json", *more]
    start = time.perf_counter()
    done = subprocess.run(
        argv, env={**ENVIRON, **(env or {})}, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - start
    try:
        return json.loads(done.stdout), done.returncode, wall
    except ValueError:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}")


def program(args: argparse.Namespace, folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Run the user's program once in a fresh process."""
    shown = {
        "device": args.device,
        "phase": "inference" if args.device == "cpu" else "training",
        "dtype": "float32" if args.device == "cpu" else "bfloat16",
        "layout": spec.get("layout", "bhsd"),
        "heads": spec["heads"],
        "head_dim": spec["head_dim"],
        "length": spec["seq_len"],
        "mask": spec["mask"],
    }
    env = {**ENVIRON, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    argv = [args.python, "-c", PROGRAM, json.dumps(shown)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the program failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def many(args: argparse.Namespace, work: Path, wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """Part 1 and 4: all specs side by side, and once more."""
    file = work / "specs.toml"
    file.write_text(toml(wanted), encoding="utf-8")
    # Whichever run comes first would else read torch from the disk, and the others from memory.
    root = str(Path(worker.LAUNCHER).parents[2])
    modules = (
        f"import sys; sys.path.append({root!r}); from attn_doctor.worker.kernels import job; "
        "job.prepare([], lambda *_, **__: None)"
    )
    subprocess.run([args.python, "-c", modules], env=ENVIRON, check=True, capture_output=True)
    jobs = ["--jobs", str(args.jobs)] if args.jobs else []
    beside, code, wall = build(args, work / "beside", "--spec", str(file), *jobs)
    errors = [error for one in beside["kernels"] for error in one["errors"].values()]
    shown = {
        "states": [one["state"] for one in beside["kernels"]],
        "messages": [one["message"] for one in beside["kernels"] if one["message"]],
        "exit_code": code,
        "wall": wall,
        "jobs": beside["jobs"],
        "start": beside["start_seconds"],
        "crowded": [one["seconds"] for one in beside["kernels"]],
        "error": max(errors, default=None),
    }
    again, code, idle = build(args, work / "beside", "--spec", str(file), *jobs)
    shown["idle"] = idle
    shown["idle_states"] = sorted({one["state"] for one in again["kernels"]})
    return shown


def serial(args: argparse.Namespace, work: Path, beside: dict[str, Any]) -> dict[str, Any]:
    """Part 1, the other half: the same specs one after another, and the ideal that follows."""
    file = str(work / "specs.toml")
    alone, _, wall = build(args, work / "alone", "--spec", file, "--jobs", "1")
    each = [one["seconds"] or 0.0 for one in alone["kernels"]]
    ideal = sum(each) / beside["jobs"] + alone["start_seconds"]
    return {
        "each": each,
        "serial": wall,
        "ideal": ideal,
        "of_ideal": beside["wall"] / ideal,
        "of_serial": beside["wall"] / wall,
    }


def reuse(
    args: argparse.Namespace, work: Path, wanted: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Part 2: one program cold, after build-kernels, and warmed by itself."""
    rows = []
    for number, spec in enumerate(wanted):
        own = work / f"own{number}"
        cold = program(args, own, spec)
        after, itself = [], []
        # By turns, so that a busy machine slows both.
        for _ in range(args.runs):
            after.append(program(args, work / "beside", spec))
            itself.append(program(args, own, spec))
        seconds = median(one["seconds"] for one in after)
        warm = median(one["seconds"] for one in itself)
        rows.append(
            {
                "spec": spec,
                "cold": cold["seconds"],
                "after": seconds,
                "itself": warm,
                "of_cold": seconds / cold["seconds"],
                "of_itself": seconds / warm,
                "all_after": [one["seconds"] for one in after],
                "all_itself": [one["seconds"] for one in itself],
                "counters": after[-1]["counters"],
            }
        )
    return rows


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=5, help="fresh processes of each kind")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--no-serial", dest="serial", action="store_false")
    parser.add_argument("--programs", type=int, default=2, help="specs measured as programs")
    parser.add_argument("--json", default="", help="also write all figures to this file")
    args = parser.parse_args()
    wanted = specs(args.device)
    with tempfile.TemporaryDirectory(prefix="build-kernels-") as place:
        work = Path(place)
        shown: dict[str, Any] = {"many": many(args, work, wanted)}
        print(json.dumps(shown["many"], indent=1), flush=True)
        shown["reuse"] = reuse(args, work, wanted[: args.programs])
        for row in shown["reuse"]:
            print(json.dumps(row), flush=True)
        small = wanted[-1:]
        (work / "wrong.toml").write_text(toml(small), encoding="utf-8")
        hook = {"ATTN_DOCTOR_TEST_WRONG": "1"}
        wrong, code, _ = build(args, work / "w", "--spec", str(work / "wrong.toml"), env=hook)
        shown["wrong"] = {"exit_code": code, "kernel": wrong["kernels"][0]}
        print(json.dumps(shown["wrong"]), flush=True)
        if args.serial:
            # Last, as it takes longest.
            shown["many"].update(serial(args, work, shown["many"]))
    if args.json:
        Path(args.json).write_text(json.dumps(shown, indent=1), encoding="utf-8")
    return judge(shown)


def judge(shown: dict[str, Any]) -> int:
    """Print each target with its figure; 1 if one is missed."""
    beside = shown["many"]
    rows: list[tuple[str, float, float]] = [
        ("largest error against float64", beside["error"], ERROR),
        ("seconds to say that all is up to date", beside["idle"], IDLE),
    ]
    if "serial" in beside:
        rows += [
            (f"{len(beside['states'])} specs, of the ideal", beside["of_ideal"], IDEAL),
            (f"{len(beside['states'])} specs, of one after another", beside["of_serial"], SERIAL),
        ]
    for row in shown["reuse"]:
        name = f"{row['spec']['heads']}x{row['spec']['head_dim']} {row['spec']['mask']}"
        rows += [
            (f"first step after building, of cold: {name}", row["of_cold"], REUSE),
            (f"the same, of warmed by itself: {name}", row["of_itself"], SELF),
        ]
    missed = 0
    for label, figure, limit in rows:
        good = figure is not None and figure <= limit
        missed += not good
        print(f"{'ok  ' if good else 'MISS'} {label}: {figure:.3g} (at most {limit:g})")
    caught = shown["wrong"]["exit_code"] == 1 and shown["wrong"]["kernel"]["state"] == "failed"
    built = set(beside["states"]) == {"built"} and beside["idle_states"] == ["up-to-date"]
    print(f"{'ok  ' if caught else 'MISS'} a wrong kernel is caught")
    print(f"{'ok  ' if built else 'MISS'} every spec is built and then up to date")
    return int(bool(missed) or not caught or not built)


if __name__ == "__main__":
    sys.exit(main())
