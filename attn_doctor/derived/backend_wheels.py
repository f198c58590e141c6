"""Finds releases of flash-attn, xformers and SageAttention for the installed torch.

`expected` names compatible releases, `wheel` whether one of them has a prebuilt wheel. The tables
list the projects' own wheels and, for SageAttention on Windows, those of its port; wheels of others
are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from attn_doctor.derived import companions
from attn_doctor.derived.extensions import takes_hopper_kernel
from attn_doctor.derived.releases import (
    Row,
    Tables,
    Unknown,
    all_of,
    major,
    parts,
    series,
    torch_release,
)
from attn_doctor.facts import Facts
from attn_doctor.requirement import satisfies

Answer = str | Unknown | None


def _flash_expected(facts: Facts, tables: Tables) -> Answer:
    """Return the releases with a prebuilt wheel for this minor release of torch."""
    minor = series(facts.torch.version)
    if minor is None:
        return None
    rows = tables["flash-attn"]["release"]
    fitting = [row["version"] for row in rows if minor in row.get("torch", ())]
    if not fitting:
        # Few releases got wheels afterwards, and not one after another: name the newest.
        added = [
            row["version"] for row in rows for one in row.get("later", ()) if one["torch"] == minor
        ]
        fitting = added[-1:]
    return _span(fitting) or Unknown(f"no wheel of flash-attn is known for torch {minor}")


def _xformers_expected(facts: Facts, tables: Tables) -> Answer:
    """Return the releases whose metadata accept this torch."""
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    newest = tables["xformers"]["newest"]
    if facts.xformers.version is not None and parts(facts.xformers.version) > parts(newest):
        own, torch = facts.xformers.requires_torch, facts.torch.version
        if own is not None and _accepts(own, torch):
            return f"=={facts.xformers.version.partition('+')[0]}"
        return Unknown(f"the tables of this attn-doctor end at xformers {newest}")
    rows = tables["xformers"]["release"]
    fitting = [one["version"] for one in rows if _accepts(one["torch"], facts.torch.version)]
    return _span(fitting) or Unknown(f"no xformers is known for torch {facts.torch.version}")


def _sage_expected(facts: Facts, tables: Tables) -> Answer:
    """Return the oldest release that does not require a newer torch, and all later ones."""
    if facts.torch.version is None:
        return None
    version = parts(facts.torch.version)
    rows = tables["sageattention"]["release"]
    fitting = [row["version"] for row in rows if parts(row["torch"]) <= version]
    return (
        f">={fitting[0]}" if fitting else Unknown("no SageAttention is known for such an old torch")
    )


def _flash_wheel(facts: Facts, tables: Tables) -> Answer:
    version = facts.flash_attn.version
    rows = tables["flash-attn"]["release"]
    if version is not None:
        rows = [row for row in rows if row["version"] == version.partition("+")[0]]
    answers = [_flash_fits(row, facts) for row in rows] or [None]
    return _yes_or_no(answers, f"which wheels flash-attn {version or rows[-1]['version']} has")


def _flash_fits(row: Row, facts: Facts) -> bool | None:
    """Whether the release has a wheel for this torch, CUDA, C++ ABI and Python on Linux."""
    if facts.system.os not in ("linux", None):
        return False
    if "torch" not in row:
        return None
    minor, python = series(facts.torch.version), series(facts.python.version)
    fits = [
        all_of(
            _among(facts.system.arch, row["machine"]),
            _among(minor, row["torch"]),
            _among(major(facts.torch.cuda), row["cuda"]),
            _among(facts.torch.cxx11_abi, _abis(row, minor)),
            _among(python, row["python"]),
            [minor, python] not in row["without"],
        )
    ]
    fits += [
        all_of(
            _among(facts.system.arch, (one["machine"],)),
            _among(minor, (one["torch"],)),
            _among(major(facts.torch.cuda), (one["cuda"],)),
            facts.torch.cxx11_abi,
            _among(python, (one["python"],)),
        )
        for one in row.get("later", ())
    ]
    return all_of(
        None if facts.system.os is None else True,
        _among(facts.system.musl, (False,)),
        _among(facts.python.free_threaded, (False,)),
        True if True in fits else None if None in fits else False,
    )


def _abis(row: Row, minor: str | None) -> Collection[bool]:
    """The C++ ABIs of the release's wheels for this torch, whatever their names say."""
    return row["abi"] if minor in row.get("old_abi", row["torch"]) else (True,)


def accepts_flash_attn(facts: Facts, tables: Tables) -> bool | Unknown | None:
    """Whether the installed xformers accepts the version of the installed flash-attn."""
    version, flash = facts.xformers.version, facts.flash_attn.version
    if version is None or flash is None:
        return None
    if facts.xformers.flash_attn_range:
        return _accepts(facts.xformers.flash_attn_range, flash)
    released = version.partition("+")[0]
    row = next((one for one in tables["xformers"]["release"] if one["version"] == released), None)
    if row is None:
        return Unknown(f"the tables do not list xformers {version}")
    return _accepts(row["flash"], flash)


def accepts_kernels(facts: Facts) -> bool | None:
    """Whether the installed Transformers accepts the version of the installed kernels."""
    wanted, version = facts.transformers.kernels_range, facts.kernels.version
    return None if wanted is None or version is None else satisfies(version, wanted)


def _xformers_wheel(facts: Facts, tables: Tables) -> Answer:
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    rows = tables["xformers"]["release"]
    answers = [_xformers_fits(one, facts) for one in rows]
    return _yes_or_no(answers, "whether a wheel fits: the system, CUDA or Python is unknown")


def xformers_index(facts: Facts, tables: Tables) -> str | None:
    """Return where a wheel of the right CUDA major version is; empty if none fits GPU and Python.

    `pypi` for a torch of PyPI if PyPI's wheel fits; else torch's newest index, such as `cu130`.
    """
    if facts.system.os == "macos" or facts.system.arch not in ("x86_64", None):
        return ""
    if facts.torch.version is None or facts.torch.cuda is None:
        return None
    if parts(facts.torch.version) < parts(tables["xformers"]["release"][0]["torch"].strip("=")):
        return None  # the table does not go back so far
    rows = [
        row for row in tables["xformers"]["release"] if _accepts(row["torch"], facts.torch.version)
    ]
    if any(not _runs_on_gpu(row, facts) or _fits_python(row, facts) is False for row in rows[-1:]):
        return ""
    wanted = major(facts.torch.cuda)
    if facts.torch.from_pypi and any(major(row["pypi"]) == wanted for row in rows[-1:]):
        return "pypi"
    listed = "windows" if facts.system.os == "windows" else "cuda"
    builds = [cuda for row in rows[-1:] for cuda in row.get(listed, row["cuda"])]
    found = [cuda for cuda in builds if major(cuda) == wanted]
    exact = series(facts.torch.cuda)
    best = exact if exact in found else max(found, key=parts, default="")
    return "cu" + best.replace(".", "") if best else ""


def _has_build(row: Row, facts: Facts) -> bool | None:
    """Whether xformers was built for this CUDA; on Windows for exactly this one, if not for all.

    pip would compile the source for another one, since the default index has no such wheel.
    """
    if facts.system.os != "linux" and "windows" in row:
        exact = _among(series(facts.torch.cuda), row["windows"])
        return exact if facts.system.os == "windows" or exact else None
    return _among(major(facts.torch.cuda), [major(cuda) for cuda in row["cuda"]])


def _xformers_fits(row: Row, facts: Facts) -> bool | None:
    """Whether an index has a wheel. Its CUDA is compatible if the major version is equal."""
    return all_of(
        _accepts(row["torch"], facts.torch.version),
        _among(facts.system.os, ("linux", "windows")),
        _among(facts.system.arch, ("x86_64",)),
        facts.system.musl is not True,
        _has_build(row, facts),
        _fits_python(row, facts),
        _runs_on_gpu(row, facts),
    )


def _fits_python(row: Row, facts: Facts) -> bool | None:
    """Whether a wheel of this xformers is for the Python here."""
    python = parts(facts.python.version or "")[:2]
    oldest, *newest = (parts(one) for one in row["python"])
    return all_of(
        oldest <= python and all(python <= one for one in newest) if python else None,
        _among(facts.python.free_threaded, (False,)),
    )


def _runs_on_gpu(row: Row, facts: Facts) -> bool:
    """Whether the wheels of xformers have code for the best GPU here, as far as that is known."""
    sm = facts.driver.best_sm
    fails = takes_hopper_kernel(row["version"]) and (sm or 0) > 90
    return not sm or (sm >= row.get("oldest", 0) and not fails)


def _sage_wheel(facts: Facts, tables: Tables) -> Answer:
    """Return `yes` for 1.x, which has one wheel for all; otherwise the answer for 2.x."""
    if (major(facts.sageattention.version) or 2) < 2:
        return "yes"
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    answers = [_sage_fits(one, facts) for one in tables["sageattention"]["wheel"]]
    return _yes_or_no(answers, "whether a wheel fits: the system, CUDA or Python is unknown")


def _sage_fits(row: Row, facts: Facts) -> bool | None:
    python = parts(facts.python.version or "")[:2]
    return all_of(
        _among(facts.system.os, ("windows",)),
        _among(facts.system.arch, ("x86_64",)),
        _accepts(row["torch"], facts.torch.version),
        _among(major(facts.torch.cuda), row["cuda"]),
        parts(row["python"]) <= python if python else None,
        _among(facts.python.free_threaded, (False,)),
    )


def _for_cuda(answer: Callable[[Facts, Tables], Answer]) -> Callable[[Facts, Tables], Answer]:
    """Return `answer` for a torch that was built for CUDA; the tables list no other wheels."""
    return lambda facts, tables: answer(facts, tables) if facts.torch.build == "cuda" else None


def _yes_or_no(answers: list[bool | None], what: str) -> str | Unknown:
    if True in answers:
        return "yes"
    return Unknown(f"it is unknown {what}") if None in answers else "no"


def _among(value: Any, wanted: Collection[Any]) -> bool | None:
    return None if value is None else value in wanted


@cache
def _accepts(specifier: str, version: str | None) -> bool | None:
    return satisfies(version, specifier) if version else None


def _span(versions: list[str]) -> str:
    """Return a specifier from the first to the last of `versions`, which are in order."""
    if len(versions) < 2:
        return f"=={versions[0]}" if versions else ""
    return f">={versions[0]},<={versions[-1]}"


EXPECTED: dict[str, Callable[[Facts, Tables], Answer]] = {
    "flash_attn": _for_cuda(_flash_expected),
    "xformers": _xformers_expected,
    "sageattention": _sage_expected,
    "torchaudio": companions.torchaudio_expected,
    "torchao": companions.torchao_expected,
    "diffusers": companions.diffusers_expected,
    "transformers": companions.transformers_expected,
}
WHEEL: dict[str, Callable[[Facts, Tables], Answer]] = {
    "flash_attn": _for_cuda(_flash_wheel),
    "xformers": _for_cuda(_xformers_wheel),
    "sageattention": _for_cuda(_sage_wheel),
}
