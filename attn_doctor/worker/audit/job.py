"""Runs the calls of an audit in order, and says of each whether it is right.

Each call is named before it begins, so that the place of a crash or a hang is known.
"""

from __future__ import annotations

import faulthandler
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attn_doctor.worker.audit import scripts
from attn_doctor.worker.audit.case import Case
from attn_doctor.worker.audit.lines import inputs
from attn_doctor.worker.audit.ways import WAYS
from attn_doctor.worker.backends import calls
from attn_doctor.worker.backends import device as devices
from attn_doctor.worker.proof.calls import Call, Proof, prove
from attn_doctor.worker.proof.probes import Probe
from attn_doctor.worker.proof.rounding import rounding
from attn_doctor.worker.reference import scaled_dot_product
from attn_doctor.worker.wire import Emit

#: Scores of which a wrong result is compared with a second one in float64.
_HELD = 1 << 28
#: Exceptions that say that the device is lost for this process.
_LOST = ("AcceleratorError", "CUDA error", "illegal memory access", "device-side assert")
#: Bytes that a call may take without a look at the free memory.
_SMALL = 1 << 29
#: Scores that the processor compares faster than a GPU that other processes use too.
_ON_HOST = 1 << 19
#: Compiled kernels that one process keeps: shapes beyond make torch forget and compile again.
_COMPILED = 64


def audit(job: dict[str, Any], emit: Emit) -> None:
    """Run `cases` and then `scripts` with one backend.

    With `groups`, no call of a group follows one of it that was wrong as `sign` says. No call
    follows one that lost the device: each would fail for that reason.
    """
    route = calls.find(job["name"], job["route"])
    emit("imported", version=route.version, file=route.file)
    emit("stage", stage="device")
    device = devices.open(job["device"], job["share"])
    warnings.simplefilter("ignore")
    if device.type != "cpu":
        torch.set_num_threads(1)  # other processes of this audit use the other processors
    groups, settled = job.get("groups") or (), set()
    for number, plain in enumerate(job["cases"]):
        if groups and groups[number] in settled:
            continue
        faulthandler.dump_traceback_later(job["each"], exit=True)
        emit("case", number=number)
        try:
            found = _tried(Case(**plain), route, job, device)
        except Exception as error:
            found = _failed(error)
        emit("compared", number=number, **found)
        if found.get("lost"):
            return
        if groups and _shows(found, job.get("sign")):
            settled.add(groups[number])
    for number, name in enumerate(job.get("scripts", ()), len(job["cases"])):
        faulthandler.dump_traceback_later(job["each"], exit=True)
        emit("case", number=number)
        try:
            found = {"wrong": _script(name, route, job, device), "result": name, "figure": ""}
        except Exception as error:
            found = _failed(error)
        emit("compared", number=number, **found)
        if found.get("lost"):
            return


def _shows(found: dict[str, Any], sign: Sequence[str] | None) -> bool:
    """Whether a call was wrong in this way: its kind and the result that is wrong."""
    if not found.get("wrong") or not found.get("held", True):
        return False
    kind = "not finite" if found["figure"] == "finite" else "wrong"
    return sign is None or (kind, found["result"]) == tuple(sign)


def _failed(error: Exception) -> dict[str, Any]:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    message = str(error)[:2000]
    lost = any(sign in message or sign == kinds[0] for sign in _LOST)
    return {"failed": kinds[0], "kinds": kinds, "message": message, "lost": lost}


def _attention(route: calls.Route, made: dict[str, Any]) -> Callable[..., Any]:
    """The backend as `attention(q, k, v, mask)`, with heads before tokens."""

    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = route.call(q, k, v, mask, made["causal"], q.shape[2] != k.shape[2])
        return out.transpose(1, 2)

    return attention


def _tried(case: Case, route: calls.Route, job: dict[str, Any], device: Any) -> dict[str, Any]:
    """How a call ends; of a backend without a backward, how its forward does."""
    try:
        return _compared(case, route, job, device)
    except Exception as error:
        words = _failed(error)
        if not case.training or words["lost"]:
            raise
    found = _compared(case._replace(training=False), route, job, device)
    return {**found, "forward_only": words["message"]}


def _compared(case: Case, route: calls.Route, job: dict[str, Any], device: Any) -> dict[str, Any]:
    need = _need(case, job)
    if need > _SMALL:  # asking for free memory gives all unused memory back, which takes long
        memory = devices.free_memory(device, job["share"])
        if memory is not None and need > memory["allowed"]:
            return {"failed": "OutOfMemory", "message": f"needs about {need >> 20} MiB"}
    made: dict[str, Any] = {"torch": torch, "device": str(device)}
    exec(inputs(case), made)  # noqa: S102 - lines of our own table
    made["attention"] = _attention(route, made)
    if job["name"] == "flex" or case.how != "call":
        torch._dynamo.config.cache_size_limit = _COMPILED
    exec(WAYS[case.how].code, made)  # noqa: S102
    q, k, v, mask = (made[name] for name in ("q", "k", "v", "mask"))
    on_host = device.type != "cpu" and case.scores <= _ON_HOST
    hides = mask.cpu() if on_host and mask is not None else mask
    call = Call(
        torch=torch, device=str(device), inputs=(q, k, v), turned=False,
        run=lambda: made["attention"](q, k, v, mask),
        adjust=_hiding(hides, case),
        scale=1 / math.sqrt(case.size), training=case.training,
        rounding=rounding(job["rounding"], case.dtype, str(device)),
        # Transfers wait for the device, and nothing is timed.
        wait=lambda: None, seed=case.seed, keeps=False, on_host=on_host,
    )  # fmt: skip
    probe = Probe("this call", None, lambda *_: made["upstream"], "")
    found = _figures(prove(call, [probe]))
    if found["wrong"] and case.scores <= _HELD:
        # A probe of which float64 itself would be called wrong says nothing.
        exact = call._replace(run=lambda: _in_float64(q, k, v, mask, case))
        found["held"] = not prove(exact, [probe]).wrong
    return found


def _in_float64(q: Any, k: Any, v: Any, mask: Any, case: Case) -> Any:
    """The exact result, rounded once, by another way than that of the comparison."""
    attention = scaled_dot_product(torch)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.double()
    out = attention(
        q.double(), k.double(), v.double(), mask, is_causal=case.causal,
        enable_gqa=case.heads != case.kv_heads,
    )  # fmt: skip
    return out.to(q.dtype)


def _figures(proof: Proof) -> dict[str, Any]:
    """What a proof showed, as JSON can hold it."""
    first = next((name for name, one in proof.results.items() if one.wrong), "")
    one = proof.results.get(first)
    if one is None:
        largest = max((each.margin for each in proof.results.values()), default=0.0)
        return {"wrong": proof.wrong, "result": "", "figure": "", "margin": largest}
    return {
        "wrong": one.wrong,
        "result": first,
        "figure": one.figure,
        "allowed": one.row_allowed if one.figure == "row" else one.allowed,
        "place": one.place,
        "margin": one.margin if math.isfinite(one.margin) else None,
    }


def _hiding(mask: Any, case: Case) -> Any:
    """Changes scores in float64 as mask and causal flag do."""
    full = None
    if mask is not None:
        full = mask.expand(case.batch, case.heads, case.length, case.columns)

    def adjust(scores: Any, batch: int, head: int, rows: Any) -> Any:
        if full is not None:
            part = full[batch, head][rows]
            if part.dtype == torch.bool:
                scores = scores.masked_fill(~part, -math.inf)
            else:
                scores = scores + part.double()
        if case.causal:
            columns = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(columns > rows[:, None], -math.inf)
        return scores

    return adjust


def _need(case: Case, job: dict[str, Any]) -> int:
    """Bytes that a call takes, roughly."""
    tensors = 4 * case.batch * case.heads * (case.length + case.columns) * case.size
    mask = 0 if case.mask == "none" else 4 * case.length * case.columns
    phase = "training" if case.training else "inference"
    return int(12 * tensors + mask + case.scores * job["score_bytes"][phase])


def _script(name: str, route: calls.Route, job: dict[str, Any], device: Any) -> str:
    made: dict[str, Any] = {"torch": torch, "device": str(device), "causal": False}
    code = scripts.SCRIPTS[name].code
    exec(scripts.prelude(job["name"], job["route"], code), made)  # noqa: S102
    made["attention"] = _attention(route, made)
    exec(code, made)  # noqa: S102
    return str(made["wrong"])
