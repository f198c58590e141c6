"""`install` and the facts that `check`, `fix` and `backends` use name the same wheels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attn_doctor.derived.releases import tag
from attn_doctor.fixes.wheel_check import verdict
from attn_doctor.install.packages import Lacking, Rules, pick
from attn_doctor.rulebook import library
from tests.install.machines import machine

TABLES = library.tables()


def torches() -> Iterator[str]:
    """One torch for each CUDA version of each release."""
    for row in TABLES["torch"]["release"]:
        for cuda in row["cuda"]:
            yield f"{max(row['pins'])}+{tag(cuda)}"


@pytest.mark.parametrize("python", ["3.10.13", "3.12.3", "3.14.0"])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_the_same_wheels(python: str, system: str) -> None:
    for torch in torches():
        facts = machine("gpu=rtx4090", f"torch={torch}", f"python={python}", f"os={system}")
        said = verdict("xformers", facts)
        picked = pick("xformers", facts, Rules())
        assert (said.wheel == "yes") is not isinstance(picked, Lacking), torch
        if not isinstance(picked, Lacking):
            assert (picked.version, picked.index) == (said.version, said.index)
            index = said.index.rpartition("/")[2]
            assert index in ("", facts.xformers.index), torch
            assert facts.xformers.wheel == "yes"
        flash = verdict("flash-attn", facts)
        taken = pick("flash-attn", facts, Rules())
        by_wheel = not isinstance(taken, Lacking) and taken.how == "address"
        assert (flash.wheel == "yes") is by_wheel, (torch, flash, taken)
        if by_wheel and not isinstance(taken, Lacking):
            assert taken.version == flash.version, torch
