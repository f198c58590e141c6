"""Lanes: places where processes of an audit run side by side, each with interpreters of its own.

A call of an audit leaves a GPU idle most of the time: starting processes and kernels takes longer
than computing. Times are not compared, so several backends can run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from attn_doctor.backends.live.interpreter import Interpreter, environment
from attn_doctor.backends.live.plan import Limits
from attn_doctor.facts import Facts

_DIFFUSERS = "diffusers.models.attention_dispatch"
#: The first backward imports it, with hundreds of modules; so it is imported before the forks.
_DYNAMO = "torch._dynamo"
#: Lanes at most.
_MOST = 12
#: Processors, and MiB of the memory of machine and GPU, for each lane. The largest call that does
#: not run alone takes 700 MiB of a GPU.
_PROCESSORS, _MEMORY, _GPU_MEMORY = 4 / 3, 6144, 4096


class Lane:
    """Interpreters that run one job at a time. Close the stack to end them."""

    def __init__(self, facts: Facts, limits: Limits, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.folder = str(folder)
        self._facts, self._limits, self._stack = facts, limits, stack
        self._through: Interpreter | None = None
        self.plain = self._interpreter("torch", _DYNAMO)

    def through(self) -> Interpreter:
        """The interpreter that has imported Diffusers."""
        if self._through is None:
            self._through = self._interpreter("torch", _DYNAMO, _DIFFUSERS)
        return self._through

    def _interpreter(self, *modules: str) -> Interpreter:
        # All lanes share what is compiled.
        env = environment(self._facts, str(Path(self.folder).parent), self._limits)
        python, seconds = self._facts.python.path or "", self._limits.import_seconds
        return self._stack.enter_context(Interpreter(python, modules, self.folder, env, seconds))


def count(facts: Facts, device: str, memory_mib: int) -> int:
    """How many lanes an audit has on a device: one on a processor, which torch uses as a whole."""
    alone = any((gpu.compute_mode or "").startswith("excl") for gpu in facts.gpus or ())
    if not device.startswith("cuda") or alone:
        return 1
    smallest = min((gpu.memory_total_mib or 0 for gpu in facts.gpus or ()), default=0)
    processors = int((facts.system.cpus or 1) / _PROCESSORS)
    return max(1, min(_MOST, processors, memory_mib // _MEMORY, smallest // _GPU_MEMORY))


def side_by_side(lanes: Iterable[Lane], work: Callable[[Lane], None]) -> None:
    """Run `work` for each lane in a thread of its own; raises what one of them raises first.

    Threads end with this process: on Ctrl-C, closing the interpreters ends what they run.
    """
    errors: list[BaseException] = []

    def guarded(lane: Lane) -> None:
        try:
            work(lane)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.2)
        if errors:
            raise errors[0]
    if errors:
        raise errors[0]
