"""Calls a kernel with all probes, and compares each result with what it should be.

Inputs are copied before each call, and the reference is computed from the copies, so that a kernel
that writes to its inputs cannot spoil both. All calls use the same memory. The results of the first
call are kept and compared with a copy of themselves at the end, so that a buffer that calls share
is seen.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attn_doctor.worker.proof import compare, exact, rows
from attn_doctor.worker.proof.probes import PROBES, Probe
from attn_doctor.worker.proof.rounding import Rounding

_GRADIENTS = ("dq", "dk", "dv")


class Call(NamedTuple):
    """A call that can be repeated with other numbers in its inputs."""

    torch: Any
    device: str
    inputs: tuple[Any, Any, Any]
    """Queries, keys and values as the kernel takes them."""
    run: Callable[[], Any]
    """Calls the kernel with `inputs`, and returns its output."""
    turned: bool
    """Tensors are (batch, length, heads, size), not (batch, heads, length, size)."""
    adjust: exact.Adjust
    scale: float
    training: bool
    rounding: Rounding
    wait: Callable[[], None]
    """Waits until the device has finished."""
    keeps: bool = True
    """Results stay valid after the next call; those of CUDA graphs do not."""
    seed: int = 0
    on_host: bool = False
    """Compare on the processor, after one transfer: where several processes share a GPU, each
    transfer waits for its turn. `adjust` gets tensors of the processor then."""

    def heads_first(self, tensor: Any) -> Any:
        """A view of a tensor as (batch, heads, length, size)."""
        tensor = tensor.detach()
        return tensor.transpose(1, 2) if self.turned else tensor


class Proof(NamedTuple):
    """What all calls showed."""

    results: dict[str, compare.Compared]
    """By result, the one with the largest margin."""
    compared: dict[str, float]
    """`calls`, `heads`, `rows` (of the output, in all calls) and `share` of all rows."""
    wrong: str
    """What is wrong, in a sentence; empty if nothing is."""
    seconds: tuple[float, ...]
    """Of each call, with its backward; the first may compile."""
    reference_seconds: float


def prove(
    call: Call,
    probes: Sequence[Probe] = PROBES,
    stage: Callable[[str], None] = lambda _: None,
    around: Callable[[], Any] = contextlib.nullcontext,
    *,
    compares: bool = True,
) -> Proof:
    """Run all probes, up to the first whose output is wrong.

    `stage` gets `forward`, `backward` or `reference` before each begins. `around` makes a context
    for the first call. Without `compares`, the kernel is called once and no number is looked at:
    on a stub GPU, where no kernel runs, memory holds anything.
    """
    prover = _Prover(call, stage, compares)
    for number, probe in enumerate(probes):
        returned = prover.called(number, probe, contextlib.nullcontext if number else around)
        if not compares:
            break
        if returned is not None:
            prover.compare(number, probe, *returned)
        if returned is None or prover.broken:
            break
    prover.compare_kept()
    return prover.proof()


class _Prover:
    def __init__(self, call: Call, stage: Callable[[str], None], compares: bool) -> None:
        self.call, self.stage, self.compares = call, stage, compares
        self.wrong = ""
        #: An output is wrong, so that other probes would show the same.
        self.broken = False
        self._also: list[str] = []
        self.reference_seconds = 0.0
        self.seconds: list[float] = []
        self.results: dict[str, compare.Compared] = {}
        self._calls = self._rows = 0
        self._kept: list[tuple[str, Any, Any]] = []
        self._copies: list[Any] = []
        self._allowed = rows.operations(call.torch, call.device)

    def called(
        self, number: int, probe: Probe, around: Callable[[], Any]
    ) -> tuple[dict[str, Any], Any, rows.Sample] | None:
        """Call the kernel once: its results, the gradient it got, and the rows to compare.

        None if it returned what cannot be compared, which `wrong` says then.
        """
        call, torch = self.call, self.call.torch
        views = [call.heads_first(one) for one in call.inputs]
        query, key, value = views
        generator = torch.Generator(query.device).manual_seed(1000 * call.seed + 1234 + number)

        def noise(*shape: int) -> Any:
            return torch.randn(shape, generator=generator, device=query.device)

        part = rows.sample(
            tuple(query.shape), key.shape[2],
            training=call.training, allowed=self._allowed, call=number,
            seed=100 * call.seed + number,
        )  # fmt: skip
        with torch.no_grad():
            if probe.make is not None:
                made = probe.make(noise, [tuple(one.shape) for one in views])
                for view, one in zip(views, made):  # noqa: B905 - Python 3.9 has no strict
                    view.copy_(one)
                del made
            self._copies = [one.clone() for one in views]
        upstream = None
        if call.training:
            shape = (*query.shape[:3], value.shape[3])
            # Small numbers of float16 have few digits, in a right kernel too.
            factor = 1.0 if query.dtype == torch.float16 else probe.gradient
            made = probe.upstream(noise, shape)
            if factor != 1.0:  # a product may lie in memory in another order
                made = made * factor
            upstream = self._upstream(made.to(query.dtype), part)
        call.wait()
        with around(), torch.set_grad_enabled(call.training):
            self.stage("forward")
            start = time.perf_counter()
            out = call.run()
            call.wait()
            unlike = self._unlike(out)
            gradients = None
            if call.training and not unlike:
                self.stage("backward")
                gradients, unlike = self._backward(out, upstream)
                call.wait()
            self.seconds.append(time.perf_counter() - start)
        if unlike:
            self.wrong = self.wrong or unlike
            return None
        return {"out": call.heads_first(out), **(gradients or {})}, upstream, part

    def _unlike(self, out: Any) -> str:
        """Why the output cannot be that of attention, by type and shape; empty if it can."""
        call = self.call
        query, value = call.inputs[0], call.inputs[2]
        if not isinstance(out, call.torch.Tensor):
            return f"it returned {type(out).__name__}, not a tensor"
        wanted = (*query.shape[:3], value.shape[3])
        if tuple(out.shape) != wanted:
            return f"the output has shape {tuple(out.shape)}, not {wanted}"
        if out.dtype != query.dtype:
            return f"the output is {out.dtype}, the input {query.dtype}"
        if call.training and out.grad_fn is None:
            return "the output has no grad_fn: no gradient reaches queries, keys and values"
        return ""

    def _upstream(self, made: Any, part: rows.Sample) -> Any:
        """`made`, zero in rows that are not compared: gradients of keys and values stay exact."""
        torch = self.call.torch
        if part.whole:
            return made
        keep = torch.zeros(made.shape[:3], dtype=made.dtype, device=made.device)
        for batch in range(made.shape[0]):
            for head in range(made.shape[1]):
                keep[batch, head, part.rows(torch, batch * made.shape[1] + head, made.device)] = 1
        return made * keep[..., None]

    def _backward(self, out: Any, upstream: Any) -> tuple[dict[str, Any], str]:
        """The gradients, and why they cannot be those of attention; empty if they can."""
        call, wrong = self.call, ""
        sent = upstream.transpose(1, 2) if call.turned else upstream
        before = upstream.clone()
        found = call.torch.autograd.grad(out, call.inputs, sent, allow_unused=True)
        named = dict(zip(_GRADIENTS, found))  # noqa: B905
        lost = [name[1] for name, one in named.items() if one is None]
        if lost:
            wrong = f"no gradient for {', '.join(lost)}"
        for name, one in named.items():
            like = call.inputs["qkv".index(name[1])]
            if one is not None and (one.shape, one.dtype) != (like.shape, like.dtype):
                wrong = f"{compare.NAMES[name]} is {one.dtype} of shape {tuple(one.shape)}"
        if self.compares and not call.torch.equal(before, upstream):
            wrong = "it changes the gradient that it is given, in place"
        if wrong:
            return {}, wrong
        return {name: call.heads_first(one) for name, one in named.items()}, ""

    def compare(
        self, number: int, probe: Probe, results: dict[str, Any], upstream: Any, part: rows.Sample
    ) -> None:
        """Compare the results of one call."""
        call, torch = self.call, self.call.torch
        self.stage("reference")
        start = time.perf_counter()
        after = [call.heads_first(one) for one in call.inputs]
        copies = self._copies
        if call.on_host:
            sent = [*copies, *after, *results.values(), *([] if upstream is None else [upstream])]
            sent = _on_host(torch, sent)
            copies, after = sent[:3], sent[3:6]
            results = dict(zip(results, sent[6:]))  # noqa: B905
            upstream = None if upstream is None else sent[-1]
        query, key, value = copies
        found = compare.compare(
            torch, (query, key, value), results, call.adjust, call.scale, call.rounding, part,
            upstream,
        )  # fmt: skip
        self._calls += 1
        self._rows += found["out"].rows
        wrong = [one.wrong for one in found.values() if one.wrong] + self._changed(copies, after)
        if wrong and self.wrong:
            self._also.append(probe.named(call.training))
        elif wrong:
            self.wrong = f"with {probe.named(call.training)}, {wrong[0]}"
        self.broken = bool(found["out"].wrong)
        for name, one in found.items():
            if name not in self.results or one.margin > self.results[name].margin:
                self.results[name] = one
        if number == 0 and call.keeps:
            self._kept = [(name, one, one.clone()) for name, one in results.items()]
        self.reference_seconds += time.perf_counter() - start

    def _changed(self, copies: Sequence[Any], after: Sequence[Any]) -> list[str]:
        pairs = zip(("queries", "keys", "values"), after, copies)  # noqa: B905
        return [
            f"it changes the {name} that it is given, in place"
            for name, one, copy in pairs
            if not self.call.torch.equal(one, copy)
        ]

    def compare_kept(self) -> None:
        """See whether the results of the first call are still what they were."""
        for name, one, copy in self._kept:
            if not self.wrong and not self.call.torch.equal(one, copy):
                self.wrong = f"{compare.NAMES[name]} of one call is overwritten by the next"

    def proof(self) -> Proof:
        """All that was seen."""
        also = f"; also with {', with '.join(self._also)}" if self._also else ""
        query = self.call.heads_first(self.call.inputs[0])
        batch, heads, length, _ = query.shape
        whole = batch * heads * length * max(1, self._calls)
        compared = {
            "calls": self._calls,
            "heads": batch * heads if self._rows else 0,
            "rows": self._rows,
            "share": round(self._rows / whole, 4),
        }
        return Proof(
            self.results, compared, self.wrong + also, tuple(self.seconds), self.reference_seconds
        )


def _on_host(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """Copies of tensors of one dtype in the processor's memory, sent together."""
    flat = torch.cat([one.reshape(-1) for one in tensors]).cpu()
    parts = flat.split([one.numel() for one in tensors])
    return [part.view(one.shape) for part, one in zip(parts, tensors)]  # noqa: B905
