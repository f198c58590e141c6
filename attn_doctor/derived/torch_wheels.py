"""What PyTorch's own wheels carry, which driver runs them, and which of them suits this machine.

Wheels carry machine code for some generations of GPUs; PTX, which the driver compiles for newer
ones, only now and then. Libraries may hold code for more architectures than their main lists say,
in single files; those lists are what torch itself goes by.
"""

from __future__ import annotations

from typing import NamedTuple

from attn_doctor.binaries.architectures import APART, APART_NO_MORE, compiles, number, runs
from attn_doctor.derived.releases import (
    Row,
    Tables,
    Unknown,
    major,
    parts,
    series,
    tag,
    torch_release,
)
from attn_doctor.facts import Facts, Gpu


def cuda_max(facts: Facts, tables: Tables) -> str | Unknown | None:
    """What the driver answered, else the CUDA of its branch."""
    driver = facts.driver
    if driver.cuda_max is not None or driver.version is None:
        return driver.cuda_max
    branches: list[Row] = tables["drivers"]["branch"]
    # Windows counts on within a branch: 581.57 belongs to R580. Branches are five apart.
    number = major(driver.version)
    if number is None:
        return None
    if number >= branches[0]["branch"] + 5:
        return Unknown(f"driver {driver.version} is newer than the tables of this attn-doctor")
    fitting = (row["cuda"] for row in branches if row["branch"] <= number)
    return next(fitting, Unknown(f"driver {driver.version} is older than the tables reach"))


def archs(facts: Facts, tables: Tables) -> tuple[int, ...] | Unknown | None:
    """Machine code as its file has it; else as PyTorch's own wheels of that release have it."""
    torch = facts.torch
    if torch.cubins is not None:
        return tuple(sorted({number(code) for code in torch.cubins}))
    if torch.build != "cuda" or torch.cuda is None:
        return None
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    if torch.source not in ("index", "url", "local") or torch.local not in ("", tag(torch.cuda)):
        return Unknown("this torch is not a wheel of PyTorch's own, as far as its metadata tell")
    found = _listed(row, facts, series(torch.cuda))
    return found or Unknown("the tables of this attn-doctor do not list its architectures")


def archs_source(facts: Facts, _: Tables) -> str | None:
    """How `torch.archs`, which is worked out before, is known."""
    if facts.torch.installed is None:
        return None
    if facts.torch.cubins is not None:
        return "file"
    return "table" if facts.torch.archs is not None else ""


def _listed(row: Row, facts: Facts, cuda: str | None) -> tuple[int, ...]:
    """Architectures of one build for this system; none if they are not in the table."""
    if facts.system.os == "windows" and not row.get("windows"):
        return ()
    return tuple(row.get("archs", {}).get(facts.system.arch, {}).get(cuda, ()))


def min_driver(facts: Facts, tables: Tables) -> str | Unknown | None:
    """NVIDIA's minimum for the major version; its minor versions are compatible."""
    wanted = major(facts.torch.cuda)
    if wanted is None or facts.system.os not in ("linux", "windows"):
        return None
    for row in tables["drivers"]["major"]:
        if row["cuda"] == wanted:
            return str(row[facts.system.os])
    return Unknown(f"the tables of this attn-doctor have no driver for CUDA {wanted}")


def index_for_driver(facts: Facts, tables: Tables) -> str | None:
    """The index of the best build, empty if there is none."""
    best = _best(facts, tables)
    if best is None or not best.cuda:
        return None if best is None else ""
    return tag(best.cuda)


def pin_for_driver(facts: Facts, tables: Tables) -> str | None:
    """What to ask that index for: the installed release, if it has a build of that one."""
    best = _best(facts, tables)
    if best is None or not best.cuda:
        return None if best is None else ""
    stays = best.minor == series(facts.torch.version) and facts.torch.installed
    return f"torch=={best.minor}.*" if stays else "torch"


class _Best(NamedTuple):
    """A build to install; its names are empty if there is none."""

    minor: str
    cuda: str


def _best(facts: Facts, tables: Tables) -> _Best | None:
    """The best build of the installed release; if it has none, of the newest that has one.

    Builds known to have code for the GPUs come before those that only may; then builds that the
    driver knows wholly, the newest of them, before those it runs by minor version compatibility,
    the oldest of them.
    """
    known = facts.driver.cuda_max
    if known is None or facts.system.os not in ("linux", "windows"):
        return None
    row = torch_release(facts, tables)
    installed = [] if row is None or isinstance(row, Unknown) else [row]
    for release in (*installed, *reversed(tables["torch"]["release"])):
        serves = {cuda: _serves(release, cuda, facts, tables) for cuda in release["cuda"]}
        for wanted in (True, None):
            builds = [cuda for cuda, answer in serves.items() if answer is wanted]
            whole = [cuda for cuda in builds if parts(cuda) <= parts(known)]
            compatible = [cuda for cuda in builds if major(cuda) == major(known)]
            if whole or compatible:
                cuda = max(whole, key=parts) if whole else min(compatible, key=parts)
                return _Best(release["minor"], cuda)
    return _Best("", "")


def _serves(release: Row, cuda: str, facts: Facts, tables: Tables) -> bool | None:
    """The build has code for every GPU that CUDA shows; None if it may have by its CUDA's age."""
    sms = [gpu.sm for gpu in facts.gpus or () if gpu.visible is not False and gpu.sm is not None]
    codes = _listed(release, facts, cuda)
    if codes:
        return all(any(_runs(sm, code, cuda) for code in codes) for sm in sms)
    rows = [row for row in tables["drivers"]["compiler"] if parts(row["cuda"]) <= parts(cuda)]
    oldest, newest = rows[-1]["oldest"], rows[-1]["newest"]
    return None if all(oldest <= sm and sm // 10 <= newest // 10 for sm in sms) else False


def carried(gpu: Gpu, facts: Facts, tables: Tables) -> str | Unknown | None:
    """`yes` for machine code of this GPU's generation, `ptx` for the driver to compile, or `no`."""
    codes, cuda = facts.torch.archs, facts.torch.cuda
    if gpu.sm is None or not codes or cuda is None:
        return None
    if facts.torch.cubins is not None and facts.torch.ptx is not None:
        return _in_file(gpu.sm, facts.torch.cubins, facts.torch.ptx, cuda, facts.driver.cuda_max)
    if any(_runs(gpu.sm, code, cuda) for code in codes):
        return "yes"
    if gpu.sm < min(codes):
        return "no"
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    if series(cuda) not in row["ptx"]:
        return Unknown("it is not known whether this torch carries PTX for newer GPUs")
    return "ptx" if any(code <= gpu.sm for code in row["ptx"][series(cuda)]) else "no"


def _in_file(
    sm: int, cubins: tuple[str, ...], ptx: tuple[str, ...], cuda: str, driver: str | None
) -> str | Unknown:
    """What was found in the file; PTX serves if the driver knows the CUDA that made it."""
    if any(runs(sm, code, apart(cuda)) for code in cubins):
        return "yes"
    if not any(compiles(sm, code) for code in ptx):
        return "no"
    if driver is None:
        return Unknown("it is not known whether the driver can compile torch's PTX")
    return "ptx" if parts(driver) >= parts(cuda) else "no"


def _runs(sm: int, code: int, cuda: str) -> bool:
    """A GPU of capability `sm` runs machine code for `code`: same generation, not older."""
    return runs(sm, str(code), apart(cuda))


def apart(cuda: str) -> frozenset[int]:
    """The architectures that stand alone, for code compiled with a version of CUDA."""
    return APART - APART_NO_MORE if parts(cuda) >= (13, 2) else APART
