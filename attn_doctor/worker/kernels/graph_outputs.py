"""Records what the compiled graphs of a program compute, so that two runs can be compared.

Runs inside the user's own program, on any device. For each call of a graph and each tensor that
goes in or comes out, sums over blocks of rows are kept, among them products with eight fixed
vectors of random signs: the difference of two such products estimates the distance of two blocks
(Johnson and Lindenstrauss), so that a result in another order, or wrong in one row, is seen as well
as one of another size. The random numbers of a run are seeded, as far as the program lets
them be. Graphs that a program calls more often than `CALLS` times are followed no further, and what
is not compiled by Inductor is not seen.
"""

from __future__ import annotations

import array
import base64
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from attn_doctor.worker.stub_gpu import import_hooks

#: The folder that the records go to, one file a process.
FOLDER = "ATTN_DOCTOR_OUTPUTS"
#: Calls of one graph that are followed.
CALLS = 32
#: Elements that are summed at a time; they take about ten times as many bytes.
CHUNK = 1 << 22
#: Products with vectors of random signs, of each block.
SIGNS = 8
#: Blocks of a result, of whole rows, in the first calls of a graph; each is 53 bytes of a record.
#: Of 100,000 rows, one is then a twentieth of the length of its block. Inputs, and the results of
#: later calls, have fewer.
BLOCKS, FEW, CLOSELY = 256, 16, 4


def install() -> None:
    """Wait for torch, then seed it and record its compiled graphs."""
    import_hooks.when("torch", _seed)
    import_hooks.when("torch._inductor.output_code", lambda module: _follow(module.CompiledFxGraph))
    # torch 2.5 has the class elsewhere; later releases import it there.
    import_hooks.when("torch._inductor.codecache", lambda module: _follow(module.CompiledFxGraph))


def _seed(torch: Any) -> None:
    import random

    random.seed(0)
    torch.manual_seed(0)
    import_hooks.when("numpy.random", lambda numpy: numpy.seed(0))


def _follow(graph: Any) -> None:
    """Record each call of a compiled graph."""
    before = graph.__call__
    if getattr(before, "attn_doctor_outputs", False):
        return
    record = _Record(os.environ[FOLDER])
    began, ended = import_hooks.unseen(record.began), import_hooks.unseen(record.ended)

    def call(self: Any, inputs: Sequence[Any]) -> Any:
        # The called graph empties the list, and writes to some of its tensors.
        kept = list(inputs)
        note = began(self, kept)
        outputs = before(self, inputs)
        if note is not None:
            ended(self, note, kept, outputs)
        return outputs

    call.attn_doctor_outputs = True  # type: ignore[attr-defined]
    graph.__call__ = call


class _Record:
    """The record of one process; a fork begins its own file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._calls: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pid = 0

    def began(self, graph: Any, inputs: list[Any]) -> dict[str, Any] | None:
        """Begin the record of a call; None if it is not recorded."""
        key = str(getattr(graph, "_fx_graph_cache_key", "") or "")
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._calls = os.getpid(), {}
                self._write(self._process())
            number = self._calls.get(key, 0)
            self._calls[key] = number + 1
        if number >= CALLS or _capturing():
            return None
        note: dict[str, Any] = {"key": key, "number": number}
        try:
            note["in"] = _sketches(inputs, FEW)
        except Exception as error:
            note["error"] = f"{type(error).__name__}: {error}"
        return note

    def ended(self, graph: Any, note: dict[str, Any], inputs: list[Any], outputs: Any) -> None:
        """Complete the record: the outputs, and inputs that were written to."""
        try:
            blocks = BLOCKS if note["number"] < CLOSELY else FEW
            several = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            note["out"] = _sketches(several, blocks)
            changed = sorted(getattr(graph, "mutated_input_idxs", None) or ())
            note["changed"] = _sketches([inputs[index] for index in changed], blocks)
        except Exception as error:
            note["error"] = f"{type(error).__name__}: {error}"
        with self._lock:
            self._write(note)

    def _process(self) -> dict[str, Any]:
        rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
        return {"pid": self._pid, "rank": rank, "began": time.time()}

    def _write(self, line: dict[str, Any]) -> None:
        with open(os.path.join(self._folder, f"{self._pid}.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _capturing() -> bool:
    """A CUDA graph is being recorded, and everything that starts becomes part of it."""
    import torch

    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _sketches(values: Sequence[Any], blocks: int) -> list[dict[str, Any]]:
    import torch

    with torch.no_grad():
        return [sketch(torch, one, blocks) for one in values if isinstance(one, torch.Tensor)]


def sketch(torch: Any, tensor: Any, most: int = BLOCKS) -> dict[str, Any]:
    """Sums over at most `most` blocks of a tensor that distinguish it from others of its size.

    `blocks`: float32 in base64; of each block the products, the length and the largest element.
    """
    flat = tensor.detach()
    flat = torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat
    row = max(1, flat.shape[-1] if flat.dim() else 1)
    flat = flat.reshape(-1)
    rows = max(1, -(-flat.numel() // row))
    size = row * -(-rows // most)
    step = size * max(1, CHUNK // size)
    strange = torch.zeros((), dtype=torch.int64, device=flat.device)
    found = []
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step].to(torch.float64)
        finite = torch.isfinite(part)
        strange += (~finite).sum()
        part = torch.where(finite, part, torch.zeros_like(part))
        blocks = torch.nn.functional.pad(part, (0, -part.numel() % size)).view(-1, size)
        products = [
            torch.nn.functional.pad(part * sign, (0, -part.numel() % size)).view(-1, size).sum(1)
            for sign in _signs(torch, start, part)
        ]
        sums = [*products, blocks.norm(dim=1), blocks.abs().amax(1)]
        found.append(torch.stack(sums, dim=1).float())
    numbers = torch.cat(found).flatten().tolist() if found else []
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).replace("torch.", ""),
        "strange": int(strange),
        "blocks": base64.b64encode(array.array("f", numbers).tobytes()).decode(),
    }


def _signs(torch: Any, start: int, part: Any) -> Iterator[Any]:
    """Vectors of ±1 for the positions from `start` on: bits of a hash of the position."""
    place = torch.arange(start, start + part.numel(), dtype=torch.int64, device=part.device)
    # Constants of MurmurHash3's finaliser; products wrap around.
    mixed = (place + 1) * -49064778989728563
    mixed = (mixed ^ (mixed >> 33)) * -4265267296055464877
    mixed = mixed ^ (mixed >> 33)
    for bit in range(SIGNS):
        yield ((mixed >> (7 * bit)) & 1).to(torch.float64) * 2 - 1
