"""Whether the branches of a script that lead to a line are taken here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from attn_doctor.configs.readers.script_tree import Way
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
#: Modules that a script may ask for or try to import, and the fact about each.
_MODULES = {
    "xformers": "xformers",
    "flash_attn": "flash_attn",
    "sageattention": "sageattention",
    "kernels": "kernels",
}
#: Functions that look for the module that their argument names.
_ASKS = re.compile(r"(?:\w+\.)*(?:find_spec|find_loader|_is_package_available) (\w+)")
#: `torch.cuda.get_device_capability()[0] >= 8`
_CAPABILITY = re.compile(
    r"(?:torch\.)?cuda\.get_device_capability\([^()]{0,20}\)\[0\] ?(>=|>|<=|<|==) ?(\d{1,2})"
)
#: Functions that ask for a device other than a GPU of NVIDIA or AMD.
_DEVICES = ("is_torch_npu_available", "is_npu_available", "is_torch_xla_available")
#: Conditions of which every combination is tried.
_MOST = 10

_Atom = tuple[str, str]


def holds(when: Sequence[Branch], facts: Facts) -> bool | None:
    """The branches are all taken; None if that is not known before the run."""
    known = [_holds(one, facts) for one in when]
    return False if False in known else None if None in known else True


def _holds(branch: Branch, facts: Facts) -> bool | None:
    if branch.kind == "all":
        return holds(branch.parts, facts)
    if branch.kind == "any":
        known = [_holds(one, facts) for one in branch.parts]
        return True if True in known else None if None in known else False
    value = _value(branch, facts)
    return None if value is None else value is not branch.negated


def _value(branch: Branch, facts: Facts) -> bool | None:
    if branch.kind == "import":
        modules = branch.text.split(", ")
        known = [_installed(_MODULES[one], facts) if one in _MODULES else None for one in modules]
        return False if False in known else None if None in known else True
    if branch.kind == "other":
        return _capability(branch.text, facts)
    if branch.kind != "call":
        return None
    name = branch.name.rpartition(".")[2]
    if name in _PACKAGES:
        return _installed(_PACKAGES[name], facts)
    asked = _ASKS.fullmatch(branch.name)
    if asked is not None:
        return _installed(_MODULES[asked[1]], facts) if asked[1] in _MODULES else None
    build = facts.torch.build
    if name in _DEVICES:
        return False if build in ("cuda", "rocm", "cpu") else None
    if branch.name in ("torch.cuda.is_available", "cuda.is_available"):
        sm = facts.driver.best_sm
        return None if build is None or sm is None else build == "cuda" and sm > 0
    return None


def _capability(text: str, facts: Facts) -> bool | None:
    """Whether a comparison of the GPU's compute capability holds; None for another text."""
    compared, sm = _CAPABILITY.fullmatch(text), facts.driver.best_sm
    if compared is None or not sm:
        return None
    own, least = sm // 10, int(compared[2])
    return {
        ">=": own >= least,
        ">": own > least,
        "<=": own <= least,
        "<": own < least,
        "==": own == least,
    }[compared[1]]


def _installed(package: str, facts: Facts) -> bool | None:
    installed: bool | None = getattr(facts, package).installed
    return installed


def covered(ways: Sequence[Way]) -> bool:
    """One of the ways is always taken: a branch and its opposite, `if`, `elif` and `else`."""
    atoms = [*dict.fromkeys(atom for way in ways for one in way for atom, _ in _atoms(one))]
    if not all(ways):
        return True
    if not atoms or len(atoms) > _MOST:
        return False
    return all(
        any(all(_true(one, dict(zip(atoms, values, strict=True))) for one in way) for way in ways)
        for values in product((False, True), repeat=len(atoms))
    )


def _atoms(branch: Branch) -> Iterator[tuple[_Atom, bool]]:
    """The conditions of a branch, and whether each is negated."""
    for one in branch.parts:
        yield from _atoms(one)
    if not branch.parts:
        # `a != b` is the opposite of `a == b`.
        differs = branch.kind == "other" and " != " in branch.text
        text = branch.text.replace(" != ", " == ") if differs else branch.text
        place = str(branch.line) if branch.kind == "try" else branch.name
        yield (branch.kind, f"{text} {place}"), branch.negated is not differs


def _true(branch: Branch, values: dict[_Atom, bool]) -> bool:
    if branch.kind == "all":
        return all(_true(one, values) for one in branch.parts)
    if branch.kind == "any":
        return any(_true(one, values) for one in branch.parts)
    ((atom, negated),) = _atoms(branch)
    return values[atom] is not negated


def condition(when: Iterable[Branch], reading: Reading, facts: Facts) -> str:
    """The branches that are not decided, in words; empty if all of them are."""
    open_ = [_words(one, reading, facts) for one in when if _holds(one, facts) is None]
    words = [*dict.fromkeys(open_)]
    return " and ".join(f"({one})" if " or " in one and len(words) > 1 else one for one in words)


def _words(one: Branch, reading: Reading, facts: Facts) -> str:
    if one.kind in ("any", "all"):
        several = [each for each in one.parts if _holds(each, facts) is None]
        words = dict.fromkeys(_words(each, reading, facts) for each in several)
        joined = " or " if one.kind == "any" else " and "
        return joined.join(words)
    if one.kind == "try":
        where = reading.place(one.line)
        return f"what is tried at {where} {'fails' if one.negated else 'works'}"
    if one.kind == "import":
        return f"{one.text} {'cannot' if one.negated else 'can'} be imported"
    if one.kind == "called":
        return f"`{one.text}` is called"
    if one.kind == "option":
        return f"{one.text} is {'not ' if one.negated else ''}given"
    if one.kind == "default":
        return f"{one.name} is not given"
    text = " ".join(one.text.split())
    return f"`{text}` is false" if one.negated else f"`{text}` holds"
