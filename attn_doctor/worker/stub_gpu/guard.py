"""Refuses what a stub GPU cannot know: memory that is read, times, and results of the device.

On a stub GPU no kernel runs, so a value read from its memory is garbage unless the host wrote it. A
value read while something compiles, or before it, may decide what is compiled; torch's cache would
then serve a wrong kernel, with every sign of success. The library reports each such read. Read

- inside a compilation: refused at once;
- before a later compilation: refused when that begins, with the line that read;
- after the last compilation: noted, for example the loss that a training loop prints.

A refusal is raised as an exception, is written to the report, since frameworks swallow exceptions,
and ends all keeping: torch saves no entry any more in this process. What a program passes on to
another process as text is not seen; a Triton kernel's key holds its source and its constants, so
one that was compiled after a read can be missed on the target, but cannot be wrong.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from attn_doctor.worker.stub_gpu import (
    import_hooks,
    report,
    source_lines,
    unsupported_settings,
)

#: The library that replaces the driver; set for a process that uses it.
LIBRARY = "ATTN_DOCTOR_STUB_GPU"
#: Different lines that are kept of a program's reads.
_MOST = 200
_REMEDY = "no kernel runs on a GPU that is not there, so the value is not the one it will have"

_installed: list[Guard] = []


class StubGpuRefusedError(RuntimeError):
    """Something cannot be built without the GPU; the message has the line of the user's code."""


def active() -> bool:
    """Whether this process runs on a stub GPU.

    The library itself is looked for as well: without the variable, a comparison of nothing with
    nothing would count as a proof.
    """
    if os.environ.get(LIBRARY):
        return True
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "stub_gpu_launches")


def installed() -> Guard | None:
    """The guard of this process, if there is one."""
    return _installed[0] if _installed else None


def keep(guard: Guard) -> None:
    """Make `guard` the one that `installed` returns."""
    _installed.append(guard)


class Guard:
    """Records what happened in this process, and decides whether more may be compiled."""

    def __init__(self, library: str | None, folder: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.stub_gpu_launches.restype = ctypes.c_ulong
        self._folder = folder
        #: Where the program's kernels are to go; a program that moves it is refused.
        self.cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        self.refused: list[report.Refused] = []
        self.reads: list[report.Read] = []
        #: What else is reported: sentence → how often.
        self.notes: dict[str, int] = {}
        self._compiling = 0
        self._loading = 0
        self._lock = threading.RLock()
        self._calls: list[Any] = []

    def begin(self) -> None:
        """Listen to the library, and change torch when it is imported."""
        import_hooks.when("torch", self._listen)
        import_hooks.when("torch.fx.graph_module", self._watch_loading)
        import_hooks.when("torch._dynamo.convert_frame", self._watch_dynamo)
        import_hooks.when("torch._inductor.compile_fx", self._watch_inductor)
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self.write)
        self.write()

    @property
    def compiling(self) -> bool:
        """Whether something is being compiled now."""
        return self._compiling > 0

    def launches(self) -> int:
        """How many kernels were launched so far."""
        return int(self._library.stub_gpu_launches())

    def refuse(
        self, kind: str, sentence: str, place: source_lines.Place | None = None
    ) -> StubGpuRefusedError:
        """Record a refusal, and return the error to raise."""
        place = place or source_lines.here()
        if place.file:
            sentence = f"{place}: {sentence}"
        one = report.Refused(kind, sentence, place.file, place.line, place.text)
        with self._lock:
            if one not in self.refused:
                self.refused.append(one)
            self.write()
        return StubGpuRefusedError(sentence)

    def error(self) -> StubGpuRefusedError:
        """The first refusal, to raise."""
        return StubGpuRefusedError(self.refused[0].sentence)

    def note(self, words: str) -> None:
        """Record what does no harm but has to be reported."""
        with self._lock:
            self.notes[words] = self.notes.get(words, 0) + 1
            if self.notes[words] == 1:
                self.write()

    def write(self) -> None:
        """Update the report of this process."""
        if self._folder:
            report.write(
                self._folder,
                {
                    "argv": list(getattr(sys, "orig_argv", sys.argv)),
                    "refused": [one._asdict() for one in self.refused],
                    "reads": [one._asdict() for one in self.reads],
                    "launches": self.launches(),
                    "unknown": self._unknown(),
                    "notes": self.notes,
                },
            )

    # Reports of the library

    def _listen(self, _torch: Any) -> None:
        read = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        timing = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
        self._calls = [
            read(import_hooks.unseen(self._was_read)),
            timing(import_hooks.unseen(self._was_timed)),
        ]
        self._library.stub_gpu_on_read(self._calls[0])
        self._library.stub_gpu_on_timing(self._calls[1])

    def _was_read(self, function: bytes, _address: int, size: int) -> None:
        self._met("read", f"{size} bytes of the GPU's memory were read", function)

    def _was_timed(self, function: bytes) -> None:
        self._met("timing", "a time was measured on the GPU", function)

    def _met(self, kind: str, what: str, function: bytes) -> None:
        """Record a read or a timing. An error that is raised here would be lost in C code."""
        place = source_lines.here()
        if self.compiling:
            error = self.refuse(kind, f"{what} while compiling, and {_REMEDY}", place)
            if hasattr(self._library, "stub_gpu_refuse"):  # torch raises it where it read
                self._library.stub_gpu_refuse(str(error).encode())
            return
        one = report.Read(kind, function.decode(), what, place.file, place.line, str(place))
        with self._lock:
            if one not in self.reads and len(self.reads) < _MOST:
                self.reads.append(one)
                self.write()

    def _unknown(self) -> list[str]:
        ask = getattr(self._library, "stub_gpu_unknown", None)
        if ask is None:
            return []
        ask.restype = ctypes.c_char_p
        return sorted(set((ask() or b"").decode().split()))

    # When something compiles

    def _watch_loading(self, module: Any) -> None:
        """A graph that comes from a cache is traced again, and makes its constants as it is.

        They decide nothing; if such a graph is compiled, torch reads them for its key.
        """

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def loaded(*args: Any, **kwargs: Any) -> Any:
                before = self.launches()
                try:
                    return function(*args, **kwargs)
                finally:
                    self._loading += self.launches() - before

            return loaded

        import_hooks.changed(module, "_deserialize_graph_module", counted)

    def _watch_dynamo(self, module: Any) -> None:
        import_hooks.changed(module, "_compile", functools.partial(self._region, check=False))

    def _watch_inductor(self, module: Any) -> None:
        import_hooks.changed(module, "compile_fx", functools.partial(self._region, check=True))
        import_hooks.changed(
            module, "_compile_fx_inner", functools.partial(self._region, check=True)
        )

    def _region(self, function: Callable[..., Any], *, check: bool) -> Callable[..., Any]:
        """`function`, which compiles; what happens inside is evaluated at its end."""

        def compiled(*args: Any, **kwargs: Any) -> Any:
            if check:
                self._may_compile()
            known, launches = len(self.refused), self.launches() - self._loading
            self._compiling += 1
            try:
                result = function(*args, **kwargs)
            except StubGpuRefusedError:
                raise
            except Exception as error:
                if len(self.refused) > known:
                    raise self.error() from error
                raise
            finally:
                self._compiling -= 1
            more = self.launches() - self._loading - launches
            if check and more:
                sentence = (
                    f"{more} kernels were launched while torch compiled; what they compute goes "
                    f"into the result, and {_REMEDY}"
                )
                raise self.refuse("launched", sentence)
            if len(self.refused) > known:
                raise self.error()
            return result

        return compiled

    def _may_compile(self) -> None:
        """Raise if this compilation may depend on something read, or settings forbid it."""
        if self.refused:
            raise self.error()
        if import_hooks.incompatibilities:
            details = "; ".join(import_hooks.incompatibilities)
            raise self.refuse("version", f"the guard cannot work with this torch: {details}")
        for sentence in unsupported_settings.forbidden(self.cache):
            raise self.refuse("settings", sentence)
        context = sys.modules["torch._guards"].TracingContext.try_get()
        # A backward that is compiled late was traced with its forward: no later read got into it.
        if getattr(context, "attn_doctor_began", False):
            return
        if self.reads:
            one, now = self.reads[0], source_lines.here()
            sentence = (
                f"{one.what} here, and what {now} compiles later may depend on it; {_REMEDY}. "
                "Move it behind the last compilation, or leave it out of the warm-up"
            )
            place = source_lines.Place(one.file, one.line, "")
            raise self.refuse(one.kind, sentence, place._replace(text=source_lines.text(place)))
        if context is not None:
            context.attn_doctor_began = True

    def _end(self) -> None:
        """Write the final report. The library must not call an interpreter that has ended."""
        self.write()
        if self._calls:
            self._library.stub_gpu_on_read(None)
            self._library.stub_gpu_on_timing(None)
