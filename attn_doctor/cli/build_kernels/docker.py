"""`build-kernels --target … --docker`: the same call as a stage of a Dockerfile."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_doctor._version import __version__
from attn_doctor.cli.build_kernels.options import BuildOptions
from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.spec_requests import SpecArgs, requested_specs
from attn_doctor.kernels.builder.target import Target
from attn_doctor.render.build_kernels.docker import Stage, dockerfile

if TYPE_CHECKING:
    import typer

#: Options that say where or how this call runs, not what it builds.
_LEFT_OUT = (
    "docker", "python", "cache_dir", "format", "json", "verbose", "dry_run", "check", "fit",
    "artifact", "list_presets", "list_targets", "force", "program",
)  # fmt: skip


def docker_stage(ctx: typer.Context, options: BuildOptions) -> str:
    """The text of the stage. Nothing is examined or built.

    Raises `AttnDoctorError` for a file that a build context cannot have, or if nothing was asked
    for.
    """
    if options.specs is None and not options.program:
        raise AttnDoctorError("--docker needs specs or a warm-up: an image has no record to repeat")
    folder = options.cache_dir
    if not folder:
        raise AttnDoctorError(
            "--docker needs --cache-dir: kernels hold the path that they have in the image"
        )
    if not folder.startswith("/"):
        raise AttnDoctorError(f"--cache-dir {folder}: an image needs an absolute path")
    targets = options.targets
    files = [target.word for target in targets if Path(target.word).is_file()]
    if options.specs is not None:
        files = [*options.specs.spec, *files, *_masks(options.specs)]
    arguments, program = tuple(_arguments(ctx)), tuple(options.program or ())
    for word in (*arguments, *program, folder):
        if "\n" in word:
            raise AttnDoctorError(f"{word!r} holds a line break, which a Dockerfile cannot")
    return dockerfile(
        Stage(
            targets=tuple(target.name for target in targets),
            arguments=arguments,
            program=program,
            folder=posixpath.normpath(folder),  # of the image, not of this system
            files=tuple(_in_context(Path(name)) for name in dict.fromkeys(files)),
            version=__version__,
            needs=_needs(targets),
            environment=_environment(targets),
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
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, Enum):
                item = item.value
            yield flag
            yield _word(name, str(item))


def _word(name: str, word: str) -> str:
    """A file by its path in the build context; other words unchanged."""
    if name == "spec":
        return _in_context(Path(word))
    if name != "target":
        return word
    parts = [part.strip() for part in word.split(",") if part.strip()]
    return ",".join(_in_context(Path(part)) if Path(part).is_file() else part for part in parts)


def _masks(args: SpecArgs) -> Iterator[str]:
    """Files of the user's own masks. Raises `AttnDoctorError` if one is not found."""
    requested = requested_specs(args)
    for spec in requested.specs:
        if ":" not in spec.mask:
            continue
        parts = spec.mask.partition(":")[0].split(".")
        found = [
            path
            for folder in requested.sys_path
            for path in (Path(folder, *parts).with_suffix(".py"), Path(folder, *parts))
            if path.exists()
        ]
        if not found:
            raise AttnDoctorError(f"{spec.mask}: no such module beside the specs or in this folder")
        yield str(found[0])


def _in_context(path: Path) -> str:
    """The path relative to this folder, from which docker builds."""
    relative = os.path.relpath(path)
    if relative.startswith(os.pardir):
        raise AttnDoctorError(
            f"{path} is outside of this folder, and docker copies only what is below the folder"
            " that it builds from: copy it here, or run this where both are"
        )
    return Path(relative).as_posix()


def _needs(targets: Sequence[Target]) -> tuple[str, ...]:
    """What the image must have, as far as a descriptor knows."""
    software = next((one.descriptor.software for one in targets if one.descriptor.own), {})
    words = (("torch", "torch {}"), ("triton", "Triton {}"), ("abi", "Python ABI {}"))
    return tuple(text.format(software[name]) for name, text in words if software.get(name))


def _environment(targets: Sequence[Target]) -> dict[str, str]:
    """Variables that enter the keys, where a descriptor knows them.

    Raises `AttnDoctorError` if two descriptors differ.
    """
    own = [one for one in targets if one.descriptor.own]
    for target in own[1:]:
        if target.environment != own[0].environment:
            raise AttnDoctorError(
                f"{own[0].word} and {target.word} are of machines with other variables: an image"
                " has one set of them, so make a stage for each"
            )
    return dict(own[0].environment) if own else {}
