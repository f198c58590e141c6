"""What a build removes from its caches, file by file with a reason, and what stayed."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.kernels.builder.cleared import Cleared, clear
from attn_doctor.kernels.builder.plan import BuildRequest, jiterator, listed


class Removing:
    """The removals of one build, below the folders that are its own to clear."""

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self.cleared: list[Cleared] = []
        """Files that are gone."""
        self.kept: dict[str, str] = {}
        """Files that should be gone and are not → why."""

    def remove(self, wanted: Iterable[Cleared]) -> None:
        """Remove these files."""
        roots = [str(self._request.folder), *filter(None, [jiterator(self._request)])]
        done, kept = clear(wanted, roots)
        self.cleared += done
        self.kept.update(kept)

    def damage(self) -> None:
        """Remove half-written files, as a killed compiler leaves them: torch would load them.

        Every file is looked into for that, so it is done only after a build that was ended.
        """
        from attn_doctor.kernels.caches.damage import damage

        folder = self._request.folder
        for one in damage("inductor", str(folder)):
            if not one.harmless:
                self.remove(listed(folder, one.remove, f"damaged: {one.what}"))
