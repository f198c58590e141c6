"""What entries are held against: the versions and GPUs of today, as the facts tell them."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts import Facts, Gpu


class Now(Struct, frozen=True, kw_only=True):
    """Today's machine and environment. None: could not tell; empty: there is none."""

    torch: str | None = None
    cuda: str | None = None
    """CUDA that torch was built for, such as `13.0`; empty in other builds."""
    triton: str | None = None
    python: str | None = None
    """Python as file names write it, such as `312`."""
    sms: tuple[int, ...] | None = None
    """Compute capabilities ×10 of the GPUs that CUDA shows."""
    gpus: tuple[str, ...] | None = None
    """Their names."""


def now(facts: Facts) -> Now:
    """Today, from the facts of the examined environment."""
    torch, triton = facts.torch, facts.triton
    shown = None if facts.gpus is None else [one for one in facts.gpus if one.visible is not False]
    return Now(
        torch=_version(torch.installed, torch.version),
        cuda=torch.cuda
        if torch.build == "cuda"
        else ""
        if torch.build
        else _absent(torch.installed),
        triton=_version(triton.installed, triton.version),
        python=(facts.python.minor or "").replace(".", "") or None,
        sms=_sms(shown),
        gpus=_names(shown),
    )


def _version(installed: bool | None, version: str | None) -> str | None:
    return "" if installed is False else version


def _absent(installed: bool | None) -> str | None:
    return "" if installed is False else None


def _sms(shown: list[Gpu] | None) -> tuple[int, ...] | None:
    found = [] if shown is None else [gpu.sm for gpu in shown if gpu.sm is not None]
    return None if shown is None or len(found) < len(shown) else tuple(sorted(set(found)))


def _names(shown: list[Gpu] | None) -> tuple[str, ...] | None:
    found = [] if shown is None else [gpu.name for gpu in shown if gpu.name]
    return None if shown is None or len(found) < len(shown) else tuple(dict.fromkeys(found))
