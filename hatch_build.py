"""Puts the rules, the catalogue of backends and the manual page into the wheel.

The indexes of the first two are prebuilt: `check` then reads two JSON files where it would
otherwise parse some hundred TOML files. Indexes and page are made by the source tree's own code, in
a temporary folder, so that a build leaves nothing behind in the tree. Editable installs need none
of this: the code reads `rules/` beside the package.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "attn_doctor/_rules"
#: Below the prefix of the environment, where `man` looks for each program on PATH.
MANUAL = "share/man/man1/attn-doctor.1"


class RulesHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]
    """Adds `rules/`, its indexes and the manual page to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is built: name the files to put into it."""
        if version == "editable" or _refused():
            return
        rules = Path(self.root, "rules")
        # The folder goes when the hook object does, which outlives the build.
        self._scratch = tempfile.TemporaryDirectory(prefix="attn-doctor-")
        build_data["force_include"] |= {str(rules): PLACE}
        for name, content in _made(self.root, rules).items():
            made = Path(self._scratch.name, name)
            made.write_bytes(content)
            if made.name == Path(MANUAL).name:
                build_data["shared_data"] |= {str(made): MANUAL}
            else:
                build_data["force_include"] |= {str(made): f"{PLACE}/{name}"}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """After the wheel is built."""
        if version != "editable" and not _refused():
            self._scratch.cleanup()


def _refused() -> bool:
    """Whether pip will refuse the wheel: it builds one to read which Python the package needs."""
    return sys.version_info < (3, 10) and "PIP_BUILD_TRACKER" in os.environ


def _made(root: str, rules: Path) -> dict[str, bytes]:
    """Make the files with the source tree's code, and leave no bytecode in the tree."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, root)
    try:
        from attn_doctor.backends import catalogue_files
        from attn_doctor.backends.catalogue import INDEX
        from attn_doctor.rulebook import library
        from tools.man_page import page

        return {
            library.INDEX: library.build_index(rules),
            INDEX: catalogue_files.build_index(rules),
            Path(MANUAL).name: page().encode(),
        }
    finally:
        sys.path.remove(root)
        sys.dont_write_bytecode = before
