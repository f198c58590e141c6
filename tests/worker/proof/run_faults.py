"""Runs wrong and right attentions through the real child of `--live` and the builder's real proof.

The tests use it on the CPU, and `benchmarks/proof.py` on a GPU.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from attn_doctor.backends.live import plan, verdicts
from attn_doctor.backends.live.interpreter import Interpreter, environment, scratch
from attn_doctor.backends.live.outcome import LiveResult, Verdict
from attn_doctor.backends.live.plan import Attempt, Limits, Workload
from attn_doctor.facts import Facts, Python
from attn_doctor.rulebook import library

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
#: A package that serves the fault whose name stands in a file, in the worker's process.
OPS = """
import os, sys
sys.path.append({here!r})
import wrong_attention
_ATTENTION = wrong_attention.make(open({name!r}).read())

class LowerTriangularMask:
    pass

def memory_efficient_attention(q, k, v, bias, p, scale):
    return wrong_attention.memory_efficient_attention(_ATTENTION, q, k, v, bias)
"""
#: Runs jobs of the builder in one process; each line of input has a fault and a job.
_CHILD = """
import json, os, sys, tempfile
sys.path[:0] = [{root!r}, {here!r}]
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import torch, wrong_attention
from attn_doctor.worker.kernels import job
folder = tempfile.mkdtemp()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
job.prepare([], None)
compiling = torch.compile
for line in sys.stdin:
    fault, asked = json.loads(line)
    if fault is not None:
        wrong = wrong_attention.flex_attention(wrong_attention.make(fault))
        torch.compile = lambda *_, **__: wrong
    else:
        torch.compile = compiling
    print(json.dumps(job.run_job(asked)), file=answers, flush=True)
"""


class Answer(NamedTuple):
    """What was said of one attention."""

    right: bool
    sentence: str
    compared: bool = True
    """It ran, and its results were looked at."""


# The child of --live


class Live:
    """The worker of `--live` with a package `xformers` that has faults."""

    def __init__(self, interpreter: Interpreter, name: Path, device: str) -> None:
        self._interpreter, self._name, self._device = interpreter, name, device
        self._table: Mapping[str, Any] = library.tables()["live"]

    def run(self, fault: str, workload: Workload, seed: int = 0) -> Answer:
        """Run one fault; wrong if any phase says so."""
        self._name.write_text(fault)
        result = self.result("xformers", "direct", workload, seed)
        return answer(result)

    def result(self, backend: str, route: str, workload: Workload, seed: int = 0) -> LiveResult:
        """The result of one backend, as `--live` computes it."""
        memory = {"inference": 0.0, "training": 0.0}
        attempt = Attempt(name=backend, route=route, score_bytes=memory)
        limits = Limits(timing_seconds=0.001)
        job = plan.job(attempt, workload, limits, self._device, self._table)
        ended = self._interpreter.run({**job, "seed": seed}, 300, 60000)
        sizes = plan.shapes(workload, self._device, self._table)
        return verdicts.result(attempt, ended, workload, sizes, lambda _: None)


def answer(result: LiveResult) -> Answer:
    """Whether all phases are right; else the first sentence."""
    for phase, outcome in result.outcomes.items():
        if not outcome.verdict.works:
            wrong = outcome.verdict is Verdict.WRONG
            return Answer(False, f"{phase}: {outcome.verdict.value}: {outcome.sentence}", wrong)
    return Answer(True, "")


@contextmanager
def live(python: str, folder: Path, device: str, patch: Any) -> Iterator[Live]:
    """Start the worker; `patch` sets an environment variable (as `MonkeyPatch.setenv`)."""
    package, name = folder / "xformers", folder / "fault"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "ops.py").write_text(OPS.format(here=str(HERE), name=str(name)))
    patch("PYTHONPATH", str(folder))
    facts = Facts(python=Python(path=python))
    with scratch() as room:
        env = environment(facts, room, Limits())
        with Interpreter(python, ("torch",), room, env, 300.0) as interpreter:
            yield Live(interpreter, name, device)


# The builder's proof


def build(
    python: str, jobs: Iterable[tuple[str | None, Mapping[str, Any]]], env: Mapping[str, str]
) -> list[Answer]:
    """Run specs with faults (None: the compiled kernel itself) through the builder's proof."""
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run(
        [python, "-c", _CHILD.format(root=str(ROOT), here=str(HERE))],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=dict(env),
    )
    found = []
    for line in done.stdout.splitlines():
        result = json.loads(line)
        failure = result.get("failure") or {}
        words = f"{failure.get('type')}: {failure.get('message')}"
        right, compared = bool(result["ok"]), failure.get("type") in (None, "Wrong")
        found.append(Answer(right, "" if right else words, compared))
    if len(found) != lines.count("\n"):
        raise RuntimeError(f"the proof ended after {len(found)} jobs: {done.stderr[-3000:]}")
    return found


# Calls that show a fault


def faults(python: str) -> dict[str, list[str]]:
    """All faults, each with what a call must have for it to matter."""
    code = (
        f"import sys, json; sys.path.insert(0, {str(HERE)!r}); import wrong_attention as wrong;"
        "print(json.dumps({name: one.needs for name, one in wrong.FAULTS.items()}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def workload(needs: Iterable[str], seq: int | None = None) -> Workload | None:
    """The workload of `--live` in which a fault matters; None if it has none."""
    needs = set(needs)
    if "bias" in needs:
        return None  # masks of `--live` are the same for all heads
    return Workload(
        mask="bool" if "mask" in needs else "none",
        causal="causal" in needs,
        gqa="gqa" in needs,
        seq=seq,
    )


def spec(needs: Iterable[str], length: int = 320, size: int = 64) -> dict[str, Any]:
    """The kernel in which a fault matters; 320 has 64 over a multiple of 128."""
    needs = set(needs)
    made: dict[str, Any] = {"heads": 4, "head_dim": size, "lengths": [length], "batch": 2}
    if "mask" in needs:
        made.update(mask="bool")
    if "empty" in needs:
        made.update(mask_rows=True)
    if "bias" in needs:
        made.update(mask="float")
    if "causal" in needs:
        made.update(mask="causal")
    if "gqa" in needs:
        made.update(kv_heads=2)
    if "strided" in needs:
        made.update(layout="fused-qkv")
    if "uneven" in needs:
        made.update(kv_length=length + 77)
    return made
