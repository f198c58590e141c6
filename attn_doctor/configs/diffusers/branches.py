"""Whether the branches of a script that lead to a line are taken here."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.configs.readers.settings import Branch, Reading
from attn_doctor.facts import Facts

#: Functions that ask for a package, and the fact about it.
_PACKAGES = {
    "is_xformers_available": "xformers",
    "is_flash_attn_available": "flash_attn",
    "is_flash_attn_2_available": "flash_attn",
    "is_sageattention_available": "sageattention",
    "is_kernels_available": "kernels",
}
#: Functions that ask for a device other than a GPU of NVIDIA or AMD.
_DEVICES = ("is_torch_npu_available", "is_npu_available", "is_torch_xla_available")


def holds(when: Sequence[Branch], facts: Facts) -> bool | None:
    """The branches are all taken; None if that is not known before the run."""
    known = [_holds(one, facts) for one in when]
    return False if False in known else None if None in known else True


def _holds(branch: Branch, facts: Facts) -> bool | None:
    value = _value(branch, facts)
    return None if value is None else value is not branch.negated


def _value(branch: Branch, facts: Facts) -> bool | None:
    if branch.kind != "call":
        return None
    name = branch.name.rpartition(".")[2]
    if name in _PACKAGES:
        installed: bool | None = getattr(facts, _PACKAGES[name]).installed
        return installed
    build = facts.torch.build
    if name in _DEVICES:
        return False if build in ("cuda", "rocm", "cpu") else None
    if branch.name in ("torch.cuda.is_available", "cuda.is_available"):
        sm = facts.driver.best_sm
        return None if build is None or sm is None else build == "cuda" and sm > 0
    return None


def both_ways(ways: Sequence[tuple[Branch, ...]]) -> bool:
    """Two of the ways are a branch and its opposite, so that one of them is taken."""
    known = {*ways}
    return any(len(way) == 1 and (way[0].opposite(),) in known for way in known)


def condition(when: Sequence[Branch], reading: Reading, facts: Facts) -> str:
    """The branches that are not decided, in words; empty if all of them are."""
    words = [_words(one, reading) for one in when if _value(one, facts) is None]
    return " and ".join(dict.fromkeys(words))


def _words(one: Branch, reading: Reading) -> str:
    if one.kind == "try":
        where = reading.place(one.line)
        return f"what is tried at {where} {'fails' if one.negated else 'works'}"
    if one.kind == "option":
        return f"{one.text} is {'not ' if one.negated else ''}given"
    if one.kind == "default":
        return f"{one.name} is not given"
    text = " ".join(one.text.split())
    return f"`{text}` is false" if one.negated else f"`{text}` holds"
