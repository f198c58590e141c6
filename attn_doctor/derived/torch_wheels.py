"""Finds the GPU code in PyTorch's own wheels, their driver, and the wheel for this machine.

Wheels contain machine code for some generations of GPUs, and sometimes PTX, which the driver
compiles for newer ones. A few files may have code for more architectures than torch's main list;
torch itself uses that list.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.binaries.architectures import APART, APART_NO_MORE, compiles, number, runs
from attn_doctor.derived.releases import (
    Row,
    Tables,
    Unknown,
    is_release,
    major,
    parts,
    series,
    tag,
    torch_release,
)
from attn_doctor.facts import Facts, Gpu


def cuda_max(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return the CUDA version that the driver reported, else that of its branch."""
    driver = facts.driver
    if driver.cuda_max is not None or driver.version is None:
        return driver.cuda_max
    branches: list[Row] = tables["drivers"]["branch"]
    # Windows increases numbers within a branch: 581.57 belongs to R580. Branches are five apart.
    number = major(driver.version)
    if number is None:
        return None
    if number >= branches[0]["branch"] + 5:
        return Unknown(f"driver {driver.version} is newer than the tables of this attn-doctor")
    fitting = (row["cuda"] for row in branches if row["branch"] <= number)
    return next(
        fitting, Unknown(f"driver {driver.version} is older than all drivers in the tables")
    )


def archs(facts: Facts, tables: Tables) -> tuple[int, ...] | Unknown | None:
    """Return the architectures in its file, else those of PyTorch's wheels of that release."""
    torch = facts.torch
    if torch.cubins is not None:
        return tuple(sorted({number(code) for code in torch.cubins}))
    if torch.build != "cuda" or torch.cuda is None:
        return None
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    if torch.source not in ("index", "url", "local") or torch.local not in ("", tag(torch.cuda)):
        return Unknown("according to its metadata, this torch is not one of PyTorch's own wheels")
    found = _listed(row, facts, series(torch.cuda))
    return found or Unknown("the tables of this attn-doctor do not list its architectures")


def archs_source(facts: Facts, _: Tables) -> str | None:
    """Return the source of `torch.archs`, which is derived before."""
    if facts.torch.installed is None:
        return None
    if facts.torch.cubins is not None:
        return "file"
    return "table" if facts.torch.archs is not None else ""


def _listed(row: Row, facts: Facts, cuda: str | None) -> tuple[int, ...]:
    """Return the architectures of one build for this system; none if not in the table."""
    if facts.system.os == "windows" and not row.get("windows"):
        return tuple(row.get("windows_archs", {}).get(cuda, ()))
    return tuple(row.get("archs", {}).get(facts.system.arch, {}).get(cuda, ()))


def min_driver(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return NVIDIA's minimum for the major version; its minor versions are compatible."""
    wanted = major(facts.torch.cuda)
    if wanted is None or facts.system.os not in ("linux", "windows"):
        return None
    for row in tables["drivers"]["major"]:
        if row["cuda"] == wanted:
            return str(row[facts.system.os])
    return Unknown(f"the tables of this attn-doctor have no driver for CUDA {wanted}")


#: The local versions of PyTorch's own builds, each with an index of its name. Those of containers
#: (`nv25.08`), of AMD (`rocm6.4.2.git1a2b3c`) and of a build of one's own (`git1a2b3c`) have none.
_LOCAL = r"cpu|xpu|cu\d{3}|rocm\d\.\d"


def own_index(facts: Facts, _: Tables) -> str | None:
    """Return PyTorch's index that has the installed build; empty for a build of others."""
    version, local = facts.torch.version, facts.torch.local
    if version is None or local is None:
        return None
    own = local == "cpu" or re.fullmatch(_LOCAL, local)
    return local if is_release(version) and own else ""


def index_for_driver(facts: Facts, tables: Tables) -> str | None:
    """Return the index of the best build; empty if there is none."""
    best = _best(facts, tables)
    return None if best is None else best.index_name


def pin_for_driver(facts: Facts, tables: Tables) -> str | None:
    """Return the requirement for that index: the installed release, if it has a build."""
    best = _best(facts, tables)
    if best is None or not best.cuda:
        return None if best is None else ""
    stays = best.minor == series(facts.torch.version) and facts.torch.installed
    return f"torch=={best.minor}.*" if stays else "torch"


def newest_index(facts: Facts, tables: Tables) -> str | None:
    """Return the index of the newest release that has a build; empty if none has."""
    best = _best(facts, tables, keep=False)
    return None if best is None else best.index_name


def newest_release(facts: Facts, tables: Tables) -> str | None:
    """Return the newest release that has a build, such as `2.15`; empty if none has."""
    best = _best(facts, tables, keep=False)
    return None if best is None else best.minor


class _Best(Struct, frozen=True):
    """A build to install; its names are empty if there is none."""

    minor: str
    cuda: str

    @property
    def index_name(self) -> str:
        """The name of its index."""
        return tag(self.cuda) if self.cuda else ""


def _best(facts: Facts, tables: Tables, *, keep: bool = True) -> _Best | None:
    """Return the best build of the newest release with one; `keep`: of the installed release first.

    Builds that certainly have code for the GPUs come before builds that may have it. Among them
    the newest build that the driver fully supports comes first; without one, the oldest build that
    runs by minor version compatibility.
    """
    known = facts.driver.cuda_max
    if known is None or facts.system.os not in ("linux", "windows"):
        return None
    row = torch_release(facts, tables)
    installed = [] if row is None or isinstance(row, Unknown) or not keep else [row]
    # pip takes the newest release of an index, so that an older one of it is out of reach.
    passed: set[str] = set()
    for release in (*installed, *reversed(tables["torch"]["release"])):
        if not for_python(release, facts):
            continue
        offered = [cuda for cuda in release["cuda"] if is_built(release, cuda, facts)]
        answers = {
            cuda: serves(release, cuda, facts, tables) for cuda in offered if cuda not in passed
        }
        passed |= {*offered} if release not in installed else set()
        for wanted in (True, None):
            builds = [cuda for cuda, answer in answers.items() if answer is wanted]
            whole = [cuda for cuda in builds if parts(cuda) <= parts(known)]
            compatible = [cuda for cuda in builds if major(cuda) == major(known)]
            if whole or compatible:
                cuda = max(whole, key=parts) if whole else min(compatible, key=parts)
                return _Best(release["minor"], cuda)
    return _Best("", "")


def for_python(release: Row, facts: Facts) -> bool:
    """Whether a release of torch has wheels for this Python, as far as that is known."""
    python = parts(facts.python.version or "")[:2]
    oldest, newest = release["python"]
    return not python or parts(oldest) <= python <= parts(newest)


def is_built(release: Row, cuda: str, facts: Facts) -> bool:
    """Whether a release of torch is known to have a build for this CUDA and processor."""
    if facts.system.arch not in ("aarch64", "arm64"):
        return True
    if facts.system.os == "windows":
        return False
    return cuda in release.get("archs", {}).get("aarch64", ()) or cuda == release.get(
        "pypi_aarch64"
    )


def serves(release: Row, cuda: str, facts: Facts, tables: Tables) -> bool | None:
    """Whether the build has code for every visible GPU; None if its CUDA could have it."""
    sms = [gpu.sm for gpu in facts.gpus or () if gpu.visible is not False and gpu.sm is not None]
    codes = _listed(release, facts, cuda)
    if codes:
        return all(any(_runs(sm, code, cuda) for code in codes) for sm in sms)
    rows = [row for row in tables["drivers"]["compiler"] if parts(row["cuda"]) <= parts(cuda)]
    oldest, newest = rows[-1]["oldest"], rows[-1]["newest"]
    return None if all(oldest <= sm and sm // 10 <= newest // 10 for sm in sms) else False


def min_nvcc(gpu: Gpu, tables: Tables) -> str | None:
    """Return the oldest CUDA of the tables whose nvcc compiles for this GPU; None for none."""
    if gpu.sm is None:
        return None
    rows: list[Row] = tables["drivers"]["compiler"]
    able = (
        str(row["cuda"])
        for row in rows
        if row["oldest"] <= gpu.sm <= row["newest"] and gpu.sm not in row.get("lacks", ())
    )
    return next(able, None)


def carried(gpu: Gpu, facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return `yes` for machine code, `ptx` for code that the driver compiles, or `no`."""
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
    if facts.system.os == "windows" and series(cuda) in row.get("windows_archs", {}):
        return "no"
    if series(cuda) not in row["ptx"]:
        return Unknown("it is unknown whether this torch contains PTX for newer GPUs")
    return "ptx" if any(code <= gpu.sm for code in row["ptx"][series(cuda)]) else "no"


def _in_file(
    sm: int, cubins: tuple[str, ...], ptx: tuple[str, ...], cuda: str, driver: str | None
) -> str | Unknown:
    """Return the code found in the file; the driver must support the CUDA of PTX."""
    if any(runs(sm, code, apart(cuda)) for code in cubins):
        return "yes"
    if not any(compiles(sm, code) for code in ptx):
        return "no"
    if driver is None:
        return Unknown("it is unknown whether the driver can compile torch's PTX")
    return "ptx" if parts(driver) >= parts(cuda) else "no"


def _runs(sm: int, code: int, cuda: str) -> bool:
    """Whether a GPU of capability `sm` runs machine code for `code`."""
    return runs(sm, str(code), apart(cuda))


def apart(cuda: str) -> frozenset[int]:
    """Return the architectures with separate code, for a version of CUDA."""
    return APART - APART_NO_MORE if parts(cuda) >= (13, 2) else APART
