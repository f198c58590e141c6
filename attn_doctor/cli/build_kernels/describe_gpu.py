"""`attn-doctor describe-gpu`: this machine's GPU as a file, for builders that have none."""

from __future__ import annotations

import os
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.common_options import Json, Output, Python
from attn_doctor.cli.screen import terminal

if TYPE_CHECKING:
    from attn_doctor.kernels.gpus.descriptor import Descriptor

EPILOG = (
    "Examples:\n\n"
    "attn-doctor describe-gpu -o h200.toml\n\n"
    "attn-doctor build-kernels --target h200.toml --preset flux1   (where there is no GPU)"
)


class Format(str, Enum):
    """How the descriptor is written."""

    toml = "toml"
    json = "json"


def describe_gpu(
    device: Annotated[
        str,
        typer.Option("--device", metavar="DEVICE", help="The GPU: cuda:N is torch's GPU number N."),
    ] = "cuda:0",
    output: Output = "",
    python: Python = "",
    format: Annotated[
        Format | None,
        typer.Option(help="Format. Default: by the ending of FILE, else toml.", show_default=False),
    ] = None,
    json: Json = False,
    gpu_only: Annotated[
        bool,
        typer.Option(
            "--gpu-only",
            help="Leave out variables, settings and releases: a build then uses those of its own"
            " machine.",
        ),
    ] = False,
    known: Annotated[
        bool,
        typer.Option("--list", help="List the GPUs that --target knows without a file, and exit."),
    ] = False,
) -> None:
    """Describe a GPU of this machine, for `build-kernels --target` on a machine without one.

    The file contains the properties for which torch and Triton generate code, and what else enters
    the keys of their caches: variables such as CXX, settings, and releases. torch is imported and
    asks the driver; nothing is compiled.

    Exit codes: 0 described, 1 there is no GPU or no torch, 2 wrong usage or an unwritable file.
    """
    format = Format.json if json else format
    if known:
        sys.stdout.write(_listing(format))
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise typer.BadParameter(f"--device {device}: write cuda or cuda:N")
    wanted = format or (Format.json if output.endswith(".json") else Format.toml)
    if output and not output.endswith(f".{wanted.value}"):
        raise typer.BadParameter(
            f"--output {output}: --target recognises a descriptor by its ending: write"
            f" {Path(output).with_suffix('.' + wanted.value)}"
        )
    found = _described(python, device)
    if gpu_only:
        found = found.alone()
    text = _text(found, wanted, output)
    if not output:
        sys.stdout.write(text)
        return
    from attn_doctor.cli.output_file import write
    from attn_doctor.render.build_kernels.gpu_descriptors import written_text

    write(output, text)
    sys.stdout.write(written_text(found, output, terminal()))


def _described(python: str, device: str) -> Descriptor:
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import examine
    from attn_doctor.kernels.builder.describe_gpu import described
    from attn_doctor.kernels.builder.devices import DeviceError

    facts = examine(this_machine(), python)
    try:
        return described(facts, device, os.environ)
    except DeviceError as error:
        sys.stderr.write(f"attn-doctor: {error}\n")
        raise typer.Exit(1) from None


def _text(found: Descriptor, format: Format, output: str) -> str:
    from attn_doctor.render.build_kernels import gpu_descriptors

    if format is Format.json:
        return gpu_descriptors.descriptor_json(found)
    return gpu_descriptors.descriptor_toml(found, output)


def _listing(format: Format | None) -> str:
    from attn_doctor.kernels.gpus.known import listing
    from attn_doctor.render.build_kernels import gpu_descriptors

    if format is Format.json:
        return gpu_descriptors.listing_json(listing())
    return gpu_descriptors.listing_text(listing(), terminal())
