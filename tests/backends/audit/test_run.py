"""Audits in a real torch on the CPU: wrong attentions, a crash, a hang, and right backends."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.backends.audit import faults, plan, programs
from attn_doctor.backends.audit import run as audit
from attn_doctor.backends.audit.calls import Runner
from attn_doctor.backends.audit.outcome import Fault, Kind
from attn_doctor.backends.audit.shrink import shrink
from attn_doctor.facts import Facts, Python
from attn_doctor.findings import Diagnosis
from attn_doctor.worker.audit import scripts
from attn_doctor.worker.audit.case import Case
from attn_doctor.worker.audit.lines import GRADIENTS, LAYOUTS, MASKS, VALUES
from attn_doctor.worker.audit.program import Bound, program
from tests.backends.audit import wrong_backend
from tests.command import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        made.setenv("OMP_NUM_THREADS", "1")
        yield made


@pytest.fixture(scope="module")
def auditing(
    torch_python: str, patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Runner]]:
    folder = tmp_path_factory.mktemp("wrong")
    with wrong_backend.auditing(torch_python, folder, patch.setenv) as made:
        yield made


#: Faults of scale, softmax, keys, heads, masks, rows, memory, and gradients: 40 of them.
FAULTS = (
    "scale 2 % too large", "scale of a padded head", "no maximum taken away",
    "maximum of the first tile", "tiles not scaled to one maximum", "scores clamped to 30",
    "soft cap of 50", "weights in fp8", "keys in fp8", "scores in bfloat16",
    "total without the last key", "last key left out", "first key left out",
    "values shifted by one key", "only as many keys as queries", "two heads exchanged",
    "heads of a group in turns", "mask left out", "mask of the first sample for all",
    "mask shifted by one key", "mask left out in odd heads", "causal flag left out",
    "causal mask shows one key too many", "causal mask shows one key too few", "bias scaled",
    "bias of the first head for all", "rows before tile boundaries halved",
    "one row of one head off",
    "NaN in rows without a key", "rows beyond 160 shifted by one", "memory read as contiguous",
    "output of the first call", "one output buffer for all calls", "every fifth call wrong",
    "no gradient for keys", "dq 2 % too large", "gradient read as contiguous",
    "gradient in float16", "log-sum-exp of the first call", "gradient NaN for very negative scores",
)  # fmt: skip


def test_forty_wrong_attentions_are_found(auditing: tuple[Path, Runner]) -> None:
    name, runner = auditing
    missed = []
    for fault in FAULTS:
        name.write_text(fault)
        if wrong_backend.first_wrong(runner, plan.Options()) is None:
            missed.append(fault)
    assert missed == []


def shrunk(auditing: tuple[Path, Runner], fault: str, part: list[Case]) -> Fault:
    """The fault that a part of an audit shows first, shrunk."""
    name, runner = auditing
    name.write_text(fault)
    answers, _ = runner.run(part)
    answer = next(one for one in answers if one.kind is not None)
    small = shrink(runner, part, answer, time.monotonic() + 120)
    first = part[answer.number]
    return faults.of_case(small, first, "probe", runner.attempt, "cpu", "here", ())


@pytest.mark.parametrize(
    ("name", "part", "kind", "small"),
    [
        (
            "gradient NaN for very negative scores",
            [Case(length=n, heads=2, kv_heads=2, training=True, level=-200) for n in (640, 704)],
            Kind.NOT_FINITE,
            [{"length": 64, "size": 8, "training": True, "level": -120}],
        ),
        (
            "last key left out",
            [
                Case(
                    length=192,
                    heads=4,
                    kv_heads=2,
                    batch=2,
                    mask="rows",
                    layout="rows with padding",
                )
            ],
            Kind.WRONG,
            [{"length": 2, "size": 8}],
        ),
        (
            "gradients of the first call",
            [Case(length=192, training=True, seed=seed) for seed in (1, 2)],
            Kind.WRONG,
            None,
        ),
    ],
)
def test_a_fault_is_shrunk_and_its_program_shows_it(
    auditing: tuple[Path, Runner],
    torch_python: str,
    tmp_path: Path,
    name: str,
    part: list[Case],
    kind: Kind,
    small: list[dict[str, object]] | None,
) -> None:
    fault = shrunk(auditing, name, part)
    assert fault.kind is kind
    if small is None:
        assert len(fault.cases) == 2
        assert "; after length" in fault.words
        assert fault.cases[0]["length"] == fault.cases[1]["length"] < 192
    else:
        assert list(fault.cases) == small
    assert "attn_doctor" not in fault.program
    env = {**os.environ, "PYTHONPATH": str(auditing[0].parent)}
    shown, printed = programs.confirmed(fault, torch_python, str(tmp_path), env, 120)
    assert shown is True, printed
    # The same program without the fault.
    auditing[0].write_text("")
    shown, printed = programs.confirmed(fault, torch_python, str(tmp_path), env, 120)
    assert shown is False, printed


#: Crashes and hangs at some lengths.
DEADLY = """
import ctypes, time, torch

class LowerTriangularMask:
    pass

def memory_efficient_attention(q, k, v, bias, p, scale):
    if q.shape[1] % 50 == 1:
        ctypes.string_at(1)
    while q.shape[1] % 50 == 2:
        time.sleep(1)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
"""


@pytest.mark.parametrize(("length", "kind", "small"), [(151, Kind.CRASHED, 1), (152, Kind.HUNG, 2)])
def test_a_crash_and_a_hang_are_findings(
    torch_python: str,
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    length: int,
    kind: Kind,
    small: int,
) -> None:
    with wrong_backend.auditing(torch_python, tmp_path, patch.setenv) as (name, runner):
        (name.parent / "xformers" / "ops.py").write_text(DEADLY)
        runner = replace(runner, each=3.0)
        part = [Case(length=130), Case(length=length), Case(length=140)]
        answers, _ = runner.run(part)
        assert [one.kind for one in answers] == [None, kind]
        found = shrink(runner, part, answers[1], time.monotonic() + 60)
        assert found.cases == (Case(length=small, size=8),)
        fault = faults.of_case(found, part[1], "probe", runner.attempt, "cpu", "here", ())
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    seconds = 20.0 if kind is Kind.HUNG else 120.0
    shown, printed = programs.confirmed(fault, torch_python, str(tmp_path), env, seconds)
    assert shown is True, printed


#: Loses the device at some lengths, as an illegal access does: every later call fails too.
LOST = """
import torch

class LowerTriangularMask:
    pass

lost = []

def memory_efficient_attention(q, k, v, bias, p, scale):
    if lost or q.shape[1] % 50 == 1:
        lost.append(1)
        raise RuntimeError("CUDA error: " + open(__file__ + ".error").read())
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
"""


def test_calls_behind_a_lost_device_run_in_the_next_process(
    torch_python: str, tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    with wrong_backend.auditing(torch_python, tmp_path, patch.setenv) as (name, runner):
        (name.parent / "xformers" / "ops.py").write_text(LOST)
        error = name.parent / "xformers" / "ops.py.error"
        error.write_text("an illegal memory access was encountered")
        part = [Case(length=length, training=True) for length in (130, 151, 140)]
        answers, _ = runner.run(part)
        assert [one.kind for one in answers] == [None, Kind.CRASHED]
        found = shrink(runner, part, answers[1], time.monotonic() + 60)
        assert found.cases == (Case(length=1, size=8),)
        rest, _ = runner.run(part[2:])
        assert [one.kind for one in rest] == [None]
        # An error that says what a call does not allow is refused.
        error.write_text("misaligned address")
        refused = runner.run(part)[0][1]
        assert (refused.kind, refused.refusal) == (
            None,
            "RuntimeError: CUDA error: misaligned address",
        )


def test_lanes_side_by_side_find_what_one_finds(
    torch_python: str, tmp_path: Path, patch: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lanes share one backend: all calls are counted once, and each fault is shrunk once."""
    name = wrong_backend.write(tmp_path, "last key left out")
    patch.setenv("PYTHONPATH", str(name.parent))
    usual = Case(length=20, heads=2, kv_heads=2, training=True)
    cases = [usual._replace(seed=seed, how="call") for seed in range(12)]
    made = [
        plan.Part(probes=("one",) * 3, cases=tuple(cases[start : start + 3]), alone=start == 3)
        for start in range(0, 12, 3)
    ]
    monkeypatch.setattr(plan, "parts", lambda *_: made)
    monkeypatch.setattr(audit, "count", lambda *_: 3)
    facts = Facts(python=Python(path=torch_python))
    options = plan.Options(
        names=("xformers",), device="cpu", progress_file=str(tmp_path / "progress.json")
    )
    report = audit.run(Diagnosis(facts=facts, findings=(), rules=0), options)
    (result,) = report.results
    assert (result.wrong, result.done, report.complete) == (12, 12, True)
    (fault,) = result.faults
    assert (fault.count, fault.confirmed) == (12, True)
    assert fault.cases == ({"length": 2, "size": 8},)
    kept = json.loads((tmp_path / "progress.json").read_text())["backends"]["xformers/direct"]
    assert (kept["parts"], kept["result"]["wrong"]) == ([0, 1, 2, 3], 12)


#: A result is the same whether the device or the processor compares it.
_COMPARED_ON_HOST = """
import torch
from attn_doctor.worker.audit import job
from attn_doctor.worker.audit.case import Case
from attn_doctor.worker.backends import calls

given = {"name": "native", "route": "direct", "share": 0.9, "rounding": "fused",
         "score_bytes": {"training": 0, "inference": 0}}
made, route = job.Call, calls.find("native", "direct")
bad = type("Route", (), {"call": staticmethod(lambda *x: 1.1 * route.call(*x))})
usual = Case(length=40, heads=4, kv_heads=2, batch=2, training=True)
for case in (usual._replace(mask="hole", layout="slices of one projection"),
             usual._replace(gradient="that of a sum", training=True), Case(length=7)):
    for attention in (route, bad):
        found = []
        for on_host in (False, True):
            job.Call = lambda **more: made(**{**more, "on_host": on_host})
            found.append(job._compared(case, attention, given, torch.device("cpu")))
        print(found[0] == found[1], bool(found[1]["wrong"]))
"""


def test_the_processor_compares_as_the_device_does(torch_python: str) -> None:
    done = subprocess.run(
        [torch_python, "-c", _COMPARED_ON_HOST],
        capture_output=True, text=True, check=False, timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "True", "True"] * 3, done.stderr[-2000:]


#: torch's memory-efficient backward: gradients of scores are scaled, and then float16.
_SCALED_FIRST = """
import sys, types, torch
from attn_doctor.worker.audit import job
from attn_doctor.worker.audit.case import Case

class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        weights = torch.softmax(q.float() @ k.float().mT * q.shape[-1] ** -0.5, -1)
        out = (weights.half().float() @ v.float()).half()
        ctx.save_for_backward(q, k, v, out, weights)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, weights = ctx.saved_tensors
        inner = (grad.float() * out.float()).sum(-1, keepdim=True)
        change = (grad.float() @ v.float().mT - inner) * weights * q.shape[-1] ** -0.5
        change = change.half().float()
        dv = weights.half().float().mT @ grad.float()
        return tuple(x.half() for x in (change @ k.float(), change.mT @ q.float(), dv))

def call(q, k, v, mask, causal, gqa):
    return Attention.apply(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

device = torch.device("cpu")
given = {"name": "x", "route": "direct", "share": 0.9, "rounding": "fused",
         "score_bytes": {"training": 0, "inference": 0}}
for values in ("rising", "falling", "normal"):
    for length in (17, 64, 192):
        for seed in range(3):
            case = Case(length=length, values=values, dtype="float16", training=True, seed=seed)
            found = job._compared(case, types.SimpleNamespace(call=call), given, device)
            print(found["wrong"] or "right")
"""


def test_float16_gradients_that_are_scaled_before_they_are_written_are_right(
    torch_python: str,
) -> None:
    done = subprocess.run(
        [torch_python, "-c", _SCALED_FIRST],
        capture_output=True, text=True, check=False, timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.stdout.split("\n") == ["right"] * 27 + [""], done.stdout + done.stderr[-2000:]


#: Runs programs in one process; prints how each ended.
_CHILD = """
import json, sys, types
for number, line in enumerate(sys.stdin):
    title, text = json.loads(line)
    name = f"program_{number}"
    module = sys.modules[name] = types.ModuleType(name)
    try:
        exec(compile(text, title, "exec"), vars(module))
    except SystemExit as ended:
        print("ENDED", json.dumps([title, ended.code]), flush=True)
"""


@pytest.mark.parametrize("name", ["native", "_native_math", "_native_flash", "flex"])
def test_programs_of_right_backends_find_nothing(
    torch_python: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each table's lines, in programs: a program is not wrong by itself."""
    usual = Case(length=48, heads=2, kv_heads=2, batch=2, training=name != "flex")
    every = [
        *(usual._replace(values=values) for values in VALUES),
        *(usual._replace(mask=mask) for mask in MASKS),
        *(usual._replace(gradient=gradient) for gradient in GRADIENTS),
        *(usual._replace(layout=layout) for layout in LAYOUTS if "single" not in layout),
        usual._replace(batch=1, layout="odd stride of a single sample"),
        usual._replace(causal=True), usual._replace(heads=4), usual._replace(keys=77),
        usual._replace(level=-200), usual._replace(dtype="float32"),
        usual._replace(how="checkpoint"),
    ]  # fmt: skip
    if name == "_native_flash":
        every = [one for one in every if one.mask == "none" and one.layout[:5] != "sizes"]
    lines: dict[str, str] = {}
    with monkeypatch.context() as patched:  # as of calls whose scores do not fit
        patched.setattr("attn_doctor.worker.audit.program._SCORES", 1)
        case = usual._replace(training=False, mask="none" if name == "_native_flash" else "rows")
        bound = Bound("out", "whole", 0.02)
        lines["sampled"] = program((case,), name, "direct", "cpu", bound, "title")
    for number, case in enumerate(every):
        bounds = [Bound("out", "whole", 0.02), Bound("out", "finite", 0.0)]
        bounds += [Bound("dv", "whole", 0.03)] if case.training else []
        for bound in bounds:
            text = program((case,), name, "direct", "cpu", bound, "title")
            lines[f"{number} {bound.result} {bound.figure}"] = text
    for title, script in scripts.SCRIPTS.items():
        if title != "blocks without a function" and scripts.applies(
            script, name, "direct", "cpu", training=name != "flex"
        ):
            lines[title] = scripts.program(script, name, "direct", "cpu", "title")
    done = subprocess.run(
        [torch_python, "-c", _CHILD],
        input="".join(json.dumps(pair) + "\n" for pair in lines.items()),
        capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    ended = [line.removeprefix("ENDED ") for line in done.stdout.splitlines() if "ENDED" in line]
    codes = dict(json.loads(line) for line in ended)
    assert codes == dict.fromkeys(lines, 0), done.stderr[-3000:]


def test_the_command_goes_on_where_it_ended(torch_python: str, tmp_path: Path) -> None:
    progress, words = tmp_path / "progress.json", ("--device", "cpu", "--json", "--seed", "5")
    found = []
    for minutes in ("0.25", "0.3"):
        done = run(
            "audit", "_native_math", "--python", torch_python, "--minutes", minutes,
            "--resume", str(progress), *words, OMP_NUM_THREADS="1",
        )  # fmt: skip
        data = json.loads(done.stdout)
        assert done.returncode == data["exit_code"] == (0 if data["audit"]["complete"] else 4)
        (result,) = data["audit"]["results"]
        assert result["wrong"] == 0
        found.append(result["right"])
    assert 0 < found[0] <= found[1]
    kept = json.loads(progress.read_text())
    assert kept["backends"]["_native_math/direct"]["result"]["right"] == found[1]
    other = run(
        "audit", "--python", torch_python, "--resume", str(tmp_path / "other.json"), "--minutes",
        "0.1", "--device", "cuda:7",
    )  # fmt: skip
    assert other.returncode == 1
    assert "Nothing could be run" in other.stdout
