"""How a package that has to fit torch is installed beside one build of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.derived.releases import find, parts, series
from attn_doctor.facts import Facts
from attn_doctor.fixes.ready_wheels import ReadyWheel, ready_wheels
from attn_doctor.fixes.source_builds import preflight, without_code
from attn_doctor.fixes.wheel_check import Verdict, every_flash, every_xformers, verdict
from attn_doctor.requirement import satisfies
from attn_doctor.rulebook import library

How = Literal["stays", "index", "address", "build"]
#: The commit of SageAttention that the tables and the estimates are about.
_SAGE = "git+https://github.com/thu-ml/SageAttention@d1a57a546c3d395b1ffcbeecc66d81db76f3b4b5"
#: In place of an index: the one that torch comes from.
WITH_TORCH = "torch"
#: Installed packages are kept if they work: their field among the facts.
_FIELDS = {
    "flash-attn": "flash_attn",
    "xformers": "xformers",
    "sageattention": "sageattention",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "flash-attn-3": "flash_attn_3",
}
#: Oldest SageAttention that `backends` takes; earlier ones are not what `sage` means.
OLDEST_SAGE = "2.1.1"


class Pick(Struct, frozen=True, kw_only=True):
    """One package and how it gets there."""

    package: str
    how: How
    version: str = ""
    requirement: str = ""
    """What pip installs; empty for one that stays."""
    index: str = ""
    """Address of the index, where it is not the default one."""
    wheel: ReadyWheel | None = None
    note: str = ""
    """A remark for the user."""

    @property
    def official(self) -> bool:
        """Its wheel is the project's own, or it needs none."""
        return self.wheel is None or self.wheel.official


class Lacking(Struct, frozen=True):
    """Why a package cannot be had beside this torch."""

    reason: str


class Rules(Struct, frozen=True, kw_only=True):
    """What limits the choice."""

    community: bool = False
    reinstall: bool = False
    """An installed package that is asked for does not stay."""
    rejected: frozenset[str] = frozenset()
    """Addresses of wheels that were read and do not load."""
    absent: frozenset[str] = frozenset()
    """Versions of torch that the index does not have, with their local part."""
    only_default: bool = False
    """Only the default index can be reached, none of PyTorch's."""
    loads: Callable[[ReadyWheel, Facts], bool] = lambda *_: False
    """Whether a wheel that is named after an earlier torch loads with that of the facts."""


def pick(package: str, facts: Facts, rules: Rules, *, asked: bool = True) -> Pick | Lacking:
    """Return how `package` is installed beside the torch of `facts`, or why it is not.

    `asked`: it is asked for. Otherwise an installed release stays although it is too old.
    """
    kept = None if asked and rules.reinstall else _kept(package, facts)
    if kept and not (asked and package == "sageattention" and _too_old(kept.version)):
        return kept
    return _PICKERS[package](facts, rules)


def pick_pair(
    xformers: Pick, flash: Pick, facts: Facts, rules: Rules
) -> tuple[Pick, Pick] | Lacking:
    """Return an xformers and a flash-attn that it uses, beside the torch of `facts`.

    `xformers` and `flash` are those that would be taken alone. Where they do not fit each other,
    older releases are tried; what compiles nothing and is new comes first.
    """
    pairs = [
        (one, other)
        for one in _all_xformers(facts, rules)
        for other in _all_flash(facts, rules)
        if accepts_flash(one.version, other.version)
    ]
    if pairs:
        return min(pairs, key=lambda pair: pair[1].how == "build")
    return Lacking(
        f"xformers {xformers.version}, for torch {facts.torch.version}, accepts flash-attn"
        f" {_accepted_flash(xformers.version)}, and not {flash.version}"
    )


def accepts_flash(xformers: str, flash: str) -> bool:
    """Whether an xformers uses a flash-attn beside it."""
    accepted = _accepted_flash(xformers)
    return not accepted or satisfies(flash, accepted)


def _accepted_flash(xformers: str) -> str:
    rows = library.tables()["xformers"]["release"]
    return next((str(row["flash"]) for row in rows if row["version"] == xformers), "")


def _all_xformers(facts: Facts, rules: Rules) -> Iterator[Pick]:
    """The installed one, or every release with a wheel, the newest first."""
    if not rules.reinstall and (kept := _kept("xformers", facts)):
        yield kept
    for found in every_xformers(facts):
        if not (found.index and rules.only_default):
            yield _from_index(found)


def _all_flash(facts: Facts, rules: Rules) -> Iterator[Pick]:
    """The installed one, wheels, releases whose setup.py fetches one, and builds from source."""
    if not rules.reinstall and (kept := _kept("flash-attn", facts)):
        yield kept
    yield from _flash_wheels(facts, rules)
    for found in every_flash(facts):
        yield _fetching(found)
    for row in reversed(library.tables()["flash-attn"]["release"]):
        built = _built("flash-attn", f"flash-attn=={row['version']}", facts, rules)
        if "torch" in row and isinstance(built, Pick):
            yield built


def _kept(package: str, facts: Facts) -> Pick | None:
    """An installed package stays if it was built for this torch and loads."""
    field = _FIELDS.get(package)
    found = getattr(facts, field) if field else None
    if found is None or not found.installed or not found.version:
        return None
    if package == "torchvision":
        fits = _accepts(found.requires_torch, facts.torch.version)
    elif package == "torchaudio":
        fits = _accepts(found.expected, found.version.partition("+")[0])
        fits = fits and not isinstance(_torchaudio(facts, Rules()), Lacking)
    else:
        fits = found.known_to_load is True and found.built_torch in (None, facts.torch.version)
        fits = fits and found.path != ""  # FlashAttention 3 without its module
    if not fits:
        return None
    return Pick(package=package, how="stays", version=found.version)


def _too_old(sage: str) -> bool:
    return parts(sage) < parts(OLDEST_SAGE)


def _accepts(specifier: str | None, torch: str | None) -> bool:
    return bool(specifier and torch) and satisfies(torch or "", specifier or "")


def _flash(facts: Facts, rules: Rules) -> Pick | Lacking:
    if fault := _needs_cuda("flash-attn", facts) or without_code("flash-attn", facts):
        return Lacking(fault)
    if ready := next(_flash_wheels(facts, rules), None):
        return ready
    if older := next(every_flash(facts), None):
        return _fetching(older)
    listed = [row for row in library.tables()["flash-attn"]["release"] if "torch" in row]
    return _built("flash-attn", f"flash-attn=={listed[-1]['version']}", facts, rules)


def _flash_wheels(facts: Facts, rules: Rules) -> Iterator[Pick]:
    for wheel in ready_wheels("flash-attn", facts, community=rules.community):
        if wheel.url in rules.rejected:
            continue
        if wheel.names_torch(facts.torch.version) or rules.loads(wheel, facts):
            yield _by_address("flash-attn", wheel)


def _fetching(found: Verdict) -> Pick:
    return Pick(
        package="flash-attn",
        how="index",
        version=found.version,
        requirement=found.requirement,
        note="its setup.py fetches the wheel from the release",
    )


def _sage(facts: Facts, rules: Rules) -> Pick | Lacking:
    if fault := _needs_cuda("SageAttention", facts) or _no_triton_for_turing(facts):
        return Lacking(fault)
    for wheel in ready_wheels("sageattention", facts, community=rules.community):
        if wheel.url not in rules.rejected and wheel.names_torch(facts.torch.version):
            return _by_address("sageattention", wheel)
    built = _built("sageattention", _SAGE, facts, rules)
    if not isinstance(built, Lacking):
        return built
    if facts.sageattention.installed:
        if not _too_old(facts.sageattention.version or ""):
            return built
        older = f"the installed {facts.sageattention.version} is too old for Diffusers, which"
    else:
        older = "ComfyUI also takes 1.0.6 of the package index, which needs no compiler; Diffusers"
    return Lacking(f"{built.reason}; {older} takes {OLDEST_SAGE} or later")


def _no_triton_for_turing(facts: Facts) -> str:
    """Why Turing cannot run SageAttention's Triton kernels with this torch; empty if it may."""
    row = find(library.tables()["torch"], series(facts.torch.version))
    triton = (row or {}).get("triton", "")
    if facts.driver.best_sm != 75 or not triton or parts(triton)[:2] < (3, 3):
        return ""
    return (
        f"torch {facts.torch.version} goes with Triton {triton}, and from 3.3 on Triton does not"
        " compile SageAttention's kernels for Turing (7.5)"
    )


def _flash_3(facts: Facts, rules: Rules) -> Pick | Lacking:
    if fault := _needs_cuda("FlashAttention 3", facts):
        return Lacking(fault)
    for wheel in ready_wheels("flash-attn-3", facts, community=rules.community):
        if wheel.url not in rules.rejected and wheel.names_torch(facts.torch.version):
            found = _by_address("flash-attn-3", wheel)
            doubt = "whether it has code for GPUs before Hopper is unknown"
            before = (facts.driver.best_sm or 90) < 90
            return replace(found, note=f"{found.note}; {doubt}") if before else found
    system = f"{facts.system.os} {facts.system.arch}"
    return Lacking(
        f"no known wheel of FlashAttention 3 is for torch {facts.torch.version} on {system}:"
        " PyTorch's own are for torch 2.9 or later on linux x86_64"
        f"{_mention('flash-attn-3', facts, rules)}"
    )


def _by_address(package: str, wheel: ReadyWheel) -> Pick:
    publisher = wheel.publisher if wheel.official else f"{wheel.publisher}, not by the project"
    return Pick(
        package=package,
        how="address",
        version=wheel.version,
        requirement=f"{package} @ {wheel.url}",
        wheel=wheel,
        note=f"published by {publisher}",
    )


def _built(package: str, requirement: str, facts: Facts, rules: Rules) -> Pick | Lacking:
    """A build from source, if nothing that is known stops it."""
    found = preflight(package, facts)
    mention = _mention(package, facts, rules)
    if found.obstacles:
        build = facts.torch
        wheel = f"no prebuilt wheel of {package} is for torch {build.version}"
        python = f" and Python {series(facts.python.version)}"
        stops = "; ".join(found.obstacles)
        return Lacking(f"{wheel}{python}, and it cannot be compiled here: {stops}{mention}")
    version = requirement.partition("==")[2] or str(library.tables()[package]["newest"])
    return Pick(
        package=package,
        how="build",
        version=version,
        requirement=requirement,
        note=mention.removeprefix("; "),
    )


def _mention(package: str, facts: Facts, rules: Rules) -> str:
    """Return who else publishes a wheel for this torch; empty if none, or if it was asked for."""
    others = ready_wheels(package, facts, community=True)
    named = (one for one in others if not one.official and one.names_torch(facts.torch.version))
    other = None if rules.community else next(named, None)
    return f"; {other.publisher} publishes a wheel (`--community`)" if other else ""


def _xformers(facts: Facts, rules: Rules) -> Pick | Lacking:
    if fault := _needs_cuda("xformers", facts):
        return Lacking(fault)
    found = verdict("xformers", facts)
    if found.wheel != "yes":
        return Lacking(f"xformers: {found.reason}")
    if found.index and rules.only_default:
        return Lacking(f"xformers {found.version}: {found.index} cannot be reached")
    return _from_index(found)


def _from_index(found: Verdict) -> Pick:
    return Pick(
        package="xformers",
        how="index",
        version=found.version,
        requirement=found.requirement,
        index=found.index,
        note=f"from PyTorch's index {found.index.rpartition('/')[2]}" if found.index else "",
    )


def _triton(facts: Facts, _: Rules) -> Pick | Lacking:
    """FlexAttention needs Triton, which comes with torch on Linux."""
    torch = facts.torch
    if parts(torch.version or "")[:2] < (2, 5):
        return Lacking(f"torch {torch.version} has no FlexAttention; 2.5 and later have")
    row = find(library.tables()["torch"], series(torch.version))
    python = parts(facts.python.version or "")[:2]
    if row is not None and python > parts(row["compile"]):
        return Lacking(
            f"torch.compile of torch {row['minor']} accepts Python up to {row['compile']}"
        )
    if torch.build == "cpu" or facts.system.os == "linux":
        return Pick(package="triton", how="stays", note="comes with torch")
    found = verdict("triton", facts)
    if found.wheel != "yes":
        return Lacking(found.reason)
    return Pick(package="triton", how="index", version=found.version, requirement=found.requirement)


def _torchvision(facts: Facts, _: Rules) -> Pick | Lacking:
    """Leave the release to the installer: its metadata name the torch that it is for."""
    del facts
    return Pick(package="torchvision", how="index", requirement="torchvision", index=WITH_TORCH)


def _torchaudio(facts: Facts, _: Rules) -> Pick | Lacking:
    """Take torch's own release, up to the last one, whose CUDA has to be that of torch."""
    tables = library.tables()
    last = str(tables["companions"]["torchaudio"]["last"])
    row = find(tables["torch"], series(last))
    torch = facts.torch
    later = parts(torch.version or "")[:2] > parts(last)[:2]
    newest = row["python"][1] if row is not None else ""
    if newest and parts(facts.python.version or "")[:2] > parts(newest):
        return Lacking(f"torchaudio {last}, its last release, is for Python up to {newest}")
    if later and torch.cuda and row is not None and series(torch.cuda) not in row["cuda"]:
        listed = ", ".join(row["cuda"])
        return Lacking(
            f"torchaudio {last}, its last release, is for CUDA {listed} and refuses torch for"
            f" CUDA {torch.cuda}"
        )
    return Pick(package="torchaudio", how="index", requirement="torchaudio", index=WITH_TORCH)


def _needs_cuda(name: str, facts: Facts) -> str:
    if facts.torch.build == "cuda":
        return ""
    if facts.system.os == "macos":
        return f"{name} needs an NVIDIA GPU, and macOS supports none"
    return f"{name} needs a torch that was built for CUDA"


_PICKERS: dict[str, Callable[[Facts, Rules], Pick | Lacking]] = {
    "flash-attn": _flash,
    "flash-attn-3": _flash_3,
    "sageattention": _sage,
    "xformers": _xformers,
    "triton": _triton,
    "torchvision": _torchvision,
    "torchaudio": _torchaudio,
}
