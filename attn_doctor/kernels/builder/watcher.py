"""Who is told what happens while kernels are built or verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_doctor.kernels.builder.plan import Plan
    from attn_doctor.kernels.builder.scheduler import Step
    from attn_doctor.record.lock import Owner


class Watcher:
    """Is told what happens; a progress display overrides what it shows."""

    def __enter__(self) -> Watcher:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        """The display ends."""

    def waiting(self, owner: Owner | None) -> None:
        """Another builder holds the lock."""

    def begin(self, plan: Plan) -> None:
        """The build begins; stale files are about to be removed."""

    def step(self, step: Step) -> None:
        """A spec has moved on."""

    def tick(self) -> None:
        """A moment has passed."""
