"""`attn-doctor cache verify -- COMMAND`: prove a warm-up by running its program twice."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.verify.result import Proof

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.caches.survey import Survey
    from attn_doctor.kernels.verify.programs import Judged
    from attn_doctor.record.manifest import Manifest

_PHASES = {
    "cache": "Running {program} with {folder} …",
    "empty": "Running {program} again with an empty cache, to compare …",
}


def compared(
    found: Sequence[Survey], facts: Facts, program: Sequence[str], *, quiet: bool
) -> list[Proof]:
    """One proof for the program; without one, for each recorded warm-up that waits for its proof.

    Raises `AttnDoctorError` if there is no cache of torch.compile to prove it with, or no such
    program.
    """
    caches = [one for one in found if one.place.kind == "inductor"]
    if not caches:
        raise AttnDoctorError(
            "there is no cache of torch.compile here: name its folder, `cache verify DIR --"
            " COMMAND`, or set TORCHINDUCTOR_CACHE_DIR"
        )
    if program:
        return [_proof(caches[0], facts, program, None, quiet=quiet)]
    return [proof for one in caches for proof in _recorded(one, facts, quiet=quiet)]


def _recorded(one: Survey, facts: Facts, *, quiet: bool) -> list[Proof]:
    from attn_doctor.kernels.verify.programs import lacking
    from attn_doctor.shell.commands import verify

    results = []
    for key, warmup in one.manifest.warmups.items() if one.manifest else ():
        if not warmup.unverified or warmup.device_slot not in _here(one):
            continue
        gone = lacking(warmup)
        folder = _folder(one)
        if gone:
            results.append(
                Proof(
                    folder=str(folder),
                    key=key,
                    title=shlex.join(warmup.argv),
                    place=warmup.device_slot,
                    hit=False,
                    state="unverified",
                    was="unverified",
                    message=f"{gone}: {verify(folder, facts, ('COMMAND',))}, with the program of"
                    " here",
                )
            )
        else:
            results.append(_proof(one, facts, warmup.argv, warmup.folder, quiet=quiet))
    return results


def _here(one: Survey) -> frozenset[str]:
    return frozenset(
        str(each.device_slot) for each in one.built if each.device_present is not False
    )


def _folder(one: Survey) -> Path:
    return Path(one.real or one.place.path)


def _proof(
    one: Survey, facts: Facts, argv: Sequence[str], cwd: str | None, *, quiet: bool
) -> Proof:
    from msgspec.structs import replace

    from attn_doctor.cli.cache.verify_run import request_for
    from attn_doctor.kernels.verify.programs import covered, judge, write_down
    from attn_doctor.record import store

    folder, name = _folder(one), shlex.join(argv)
    request = request_for(folder, facts)

    def begin(phase: str) -> None:
        if not quiet:
            sys.stderr.write(_PHASES[phase].format(program=name, folder=folder) + "\n")

    judged = judge(argv, request, begin, cwd)
    manifest = store.load(folder) or store.empty()
    if judged.verified:
        judged = replace(judged, warmups=covered(manifest, judged, _here(one)))
        if judged.warmups:
            write_down(request, judged)
    return _told(folder, name, judged, manifest)


def _told(folder: Path, name: str, judged: Judged, manifest: Manifest) -> Proof:
    waiting = any(one.unverified for one in manifest.warmups.values())
    message = judged.message
    if judged.verified and waiting and not judged.warmups:
        message = (
            "it asks for other graphs than any recorded warm-up did, so none is verified by it"
        )
    graphs = judged.compared.graphs
    return Proof(
        folder=str(folder),
        key="program",
        title=name,
        hit=not judged.message,
        seconds=judged.seconds,
        errors={f"{graphs} graphs": judged.compared.worst} if graphs else {},
        message=message,
        state="built" if judged.verified else "unverified",
        was="unverified" if judged.warmups else "",
        misses=judged.misses,
        ended=judged.ended,
    )
