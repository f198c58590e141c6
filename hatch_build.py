"""Puts the rules and the catalogue of backends into the wheel, with their indexes prebuilt.

`check` then reads two JSON files where it would otherwise parse some hundred TOML files. The
indexes are made by the source tree's own code, in a temporary folder, so that a build leaves
nothing behind in the tree. Editable installs need none of this: the code reads `rules/` beside
the package.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "attn_doctor/_rules"


class RulesHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]
    """Adds `rules/` and its index to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is built: name the files to put into it."""
        if version == "editable":
            return
        rules = Path(self.root, "rules")
        # The folder goes when the hook object does, which outlives the build.
        self._scratch = tempfile.TemporaryDirectory(prefix="attn-doctor-")
        build_data["force_include"] |= {str(rules): PLACE}
        for name, content in _indexes(self.root, rules).items():
            index = Path(self._scratch.name, name)
            index.write_bytes(content)
            build_data["force_include"] |= {str(index): f"{PLACE}/{name}"}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """After the wheel is built."""
        if version != "editable":
            self._scratch.cleanup()


def _indexes(root: str, rules: Path) -> dict[str, bytes]:
    """Build the indexes with the source tree's code, and leave no bytecode in the tree."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, root)
    try:
        from attn_doctor.backends import catalogue_files
        from attn_doctor.backends.catalogue import INDEX
        from attn_doctor.rulebook.library import build_index

        return {"index.json": build_index(rules), INDEX: catalogue_files.build_index(rules)}
    finally:
        sys.path.remove(root)
        sys.dont_write_bytecode = before
