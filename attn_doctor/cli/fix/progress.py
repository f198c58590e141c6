"""The progress of `fix` on standard error: one line that is rewritten, or a line for each step."""

from __future__ import annotations

import sys
import threading

from attn_doctor.facts import Facts
from attn_doctor.fixes.apply import Done
from attn_doctor.fixes.build_progress import Progress
from attn_doctor.fixes.steps import Step
from attn_doctor.render.fix.text import done_lines
from attn_doctor.render.terminal import Paper, clean

#: Seconds between two states of the line.
_EVERY = 0.5


class Shown:
    """Shows what is going on. Use it in a `with` block."""

    def __init__(self, facts: Facts, paper: Paper) -> None:
        self._facts, self._paper = facts, paper
        self._live = sys.stderr.isatty()
        self._step: Step | None = None
        self._progress = Progress(None)
        self._last = ""
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Shown:  # noqa: PYI034 (Self is newer than Python 3.10)
        if self._live:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._clear()

    def asking(self, text: str) -> None:
        """Something is asked of the installer."""
        self._write(f"{text} …", end="\r" if self._live else "\n")

    def started(self, step: Step) -> None:
        """A step begins."""
        self._progress = Progress(step.estimate.minutes)
        self._step, self._last = step, ""
        if not self._live:
            self._write(f"{step.number}. {step.title} …", end="\n")

    def line(self, _: Step, text: str) -> None:
        """Its installer printed a line."""
        self._progress.line(text)
        self._last = text.strip()

    def ended(self, done: Done) -> None:
        """A step ended."""
        self._step = None
        self._clear()
        for line in done_lines(done, self._facts, self._paper, whole=False):
            self._write(line, end="\n")

    def _tick(self) -> None:
        while not self._stop.wait(_EVERY):
            step = self._step
            if step is None:
                continue
            minutes, seconds = divmod(int(self._progress.elapsed), 60)
            told = self._progress.told
            words = [f"{step.number}. {minutes}:{seconds:02d}", told, self._last]
            text = "  ".join(clean(word) for word in words if word)
            self._write(text[: max(20, self._paper.width - 1)], end="\r")

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\x1b[2K\r")
            sys.stderr.flush()

    def _write(self, text: str, *, end: str) -> None:
        self._clear()
        sys.stderr.write(self._paper.glyphs(text) + end)
        sys.stderr.flush()
