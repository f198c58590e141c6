"""`build-kernels --target … --docker`: the same call as a stage of a Dockerfile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from attn_doctor.cli.build_kernels.request import How
    from attn_doctor.kernels.builder.spec_requests import SpecArgs
    from attn_doctor.kernels.builder.target import Target

#: Options that say where or how this call runs, not what it builds.
_LEFT_OUT = (
    "docker", "python", "cache_dir", "format", "verbose", "dry_run", "check", "fit", "artifact",
    "list_presets", "list_targets", "force", "program",
)  # fmt: skip


def docker_stage(ctx: typer.Context, given: SpecArgs | None, how: How, program: list[str]) -> str:
    """The text of the stage. Nothing is examined or built.

    Raises `AttnDoctorError` for a file that a build context cannot have, or if nothing was asked
    for.
    """
    from attn_doctor._version import __version__
    from attn_doctor.cli.build_kernels.request import targets
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.render.build_kernels.docker import Stage, dockerfile

    if given is None and not program:
        raise AttnDoctorError("--docker needs specs or a warm-up: an image has no record to repeat")
    if not how.cache_dir:
        raise AttnDoctorError(
            "--docker needs --cache-dir: kernels hold the path that they have in the image"
        )
    folder = how.cache_dir
    if not folder.startswith("/"):
        raise AttnDoctorError(f"--cache-dir {folder}: an absolute path is needed for an image")
    found = targets(how)
    files = dict.fromkeys([*_named(given, found), *_masks(given)])
    arguments = tuple(_arguments(ctx))
    for word in (*arguments, *program, folder):
        if "\n" in word:
            raise AttnDoctorError(f"{word!r} holds a line break, which a Dockerfile cannot")
    return dockerfile(
        Stage(
            targets=tuple(one.name for one in found),
            arguments=arguments,
            program=tuple(program),
            folder=os.path.normpath(folder),
            files=tuple(_in_context(Path(name)) for name in files),
            version=__version__,
            needs=_needs(found),
            environment=_environment(found),
        )
    )


def _arguments(ctx: typer.Context) -> Iterator[str]:
    """The options of this call, written again."""
    for option in ctx.command.params:
        name = option.name or ""
        value: Any = ctx.params.get(name)
        if name in _LEFT_OUT or value in (option.default, None, "", (), []):
            continue
        flag = max(option.opts, key=len)
        if isinstance(value, bool):
            yield flag if value else max(option.secondary_opts, key=len, default=flag)
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, Enum):
                one = one.value
            yield flag
            yield _word(name, str(one))


def _word(name: str, word: str) -> str:
    """A file by its place in the build context; other words as they are."""
    if name == "spec":
        return _in_context(Path(word))
    if name != "target":
        return word
    parts = [part.strip() for part in word.split(",") if part.strip()]
    return ",".join(_in_context(Path(part)) if Path(part).is_file() else part for part in parts)


def _named(given: SpecArgs | None, targets: Sequence[Target]) -> Iterator[str]:
    """Files that the options name."""
    yield from given.spec if given is not None else ()
    yield from (one.word for one in targets if Path(one.word).is_file())


def _masks(given: SpecArgs | None) -> Iterator[str]:
    """Files of the user's own masks. Raises `AttnDoctorError` if one is not found."""
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.kernels.builder.spec_requests import requested_specs

    if given is None:
        return
    wishes = requested_specs(given)
    for spec in wishes.specs:
        if ":" not in spec.mask:
            continue
        parts = spec.mask.partition(":")[0].split(".")
        places = [
            path
            for folder in wishes.sys_path
            for path in (Path(folder, *parts).with_suffix(".py"), Path(folder, *parts))
            if path.exists()
        ]
        if not places:
            raise AttnDoctorError(f"{spec.mask}: no such module beside the specs or in this folder")
        yield str(places[0])


def _in_context(path: Path) -> str:
    """The path relative to this folder, from which docker builds."""
    from attn_doctor.errors import AttnDoctorError

    relative = os.path.relpath(path)
    if relative.startswith(os.pardir):
        raise AttnDoctorError(
            f"{path} lies outside of this folder, and docker copies only what is below the folder"
            " that it builds from: copy it here, or run this where both are"
        )
    return Path(relative).as_posix()


def _needs(targets: Sequence[Target]) -> tuple[str, ...]:
    """What the image must have, as far as a descriptor tells."""
    software = next((one.descriptor.software for one in targets if one.descriptor.own), {})
    words = (("torch", "torch {}"), ("triton", "Triton {}"), ("abi", "Python ABI {}"))
    return tuple(text.format(software[name]) for name, text in words if software.get(name))


def _environment(targets: Sequence[Target]) -> dict[str, str]:
    """Variables that enter the keys, where a descriptor tells them. `AttnDoctorError` if unlike."""
    from attn_doctor.errors import AttnDoctorError

    own = [one for one in targets if one.descriptor.own]
    for one in own[1:]:
        if one.environment != own[0].environment:
            raise AttnDoctorError(
                f"{own[0].word} and {one.word} tell of machines with other variables: an image has"
                " one set of them, so make a stage for each"
            )
    return dict(own[0].environment) if own else {}
