"""The stage of a Dockerfile that builds kernels into an image, at the path where they are used.

Kernels hold the path of their folder, and their keys the digests of torch's own files: built in
the image that trains, both are right. Which image that is, and which user trains, is unknown here
and left to the author of the rest of the Dockerfile.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from attn_doctor.render.build_kernels.off_gpu import variables

#: Where attn-doctor is installed, beside the environment that trains and not into it.
_OWN = "/opt/attn-doctor"
#: Where files of the build context are put in the stage that builds.
_WORK = "/opt/attn-doctor-build"
_WIDTH = 96


class Stage(Struct, frozen=True, kw_only=True):
    """What a stage needs to know."""

    targets: tuple[str, ...]
    """Names of the GPUs."""
    arguments: tuple[str, ...]
    """Of `attn-doctor build-kernels`, without the interpreter and the folder."""
    program: tuple[str, ...]
    """A warm-up's command line; empty if specs are built."""
    folder: str
    """The cache folder in the image."""
    files: tuple[str, ...]
    """Files of the build context that the arguments name, by their relative paths."""
    version: str
    """Of attn-doctor."""
    needs: tuple[str, ...] = ()
    """What the image must have, such as "torch 2.11.0+cu130"."""
    environment: dict[str, str] = {}
    """Variables that enter the keys and are set where the GPU is."""


def dockerfile(stage: Stage) -> str:
    """The text of the stage that builds, and of the lines that take its kernels over."""
    return "\n".join([*_builds(stage), "", *_takes_over(stage)]) + "\n"


def _builds(stage: Stage) -> Iterator[str]:
    gpus = ", ".join(stage.targets)
    yield f"# Kernels for {gpus}, built without a GPU by attn-doctor {stage.version}."
    needs = f", with {', '.join(stage.needs)}" if stage.needs else ""
    yield f"# BASE is the image that trains{needs}; this stage needs a C compiler in it."
    yield "ARG BASE"
    yield "FROM ${BASE} AS attention-kernels"
    yield "# What pip installs: a wheel or a checkout in the build context (./attn_doctor-….whl),"
    yield "# a wheel's address, or git+https://…@COMMIT. Set it with --build-arg ATTN_DOCTOR=…"
    yield "ARG ATTN_DOCTOR"
    yield "# The interpreter that trains."
    yield "ARG PYTHON=python3"
    yield f"# In {_OWN}, so that nothing changes in the environment that trains."
    yield f'RUN --mount=type=bind,target=/context,rw cd /context && "$PYTHON" -m venv {_OWN} \\'
    yield f'    && {_OWN}/bin/pip install --no-cache-dir "${{ATTN_DOCTOR:?is needed, see above}}"'
    for name in stage.files:
        yield f"COPY {json.dumps([name, f'{_WORK}/{name}'], ensure_ascii=False)}"
    if stage.files:
        yield f"WORKDIR {_WORK}"
    yield from _folders(stage)
    own = [f"{_OWN}/bin/attn-doctor", "build-kernels"]
    words = [*map(shlex.quote, own), *_pairs(stage.arguments)]
    words += [f"--cache-dir {shlex.quote(stage.folder)}", '--python "$(command -v "$PYTHON")"']
    if stage.program:
        words.append(f"-- {shlex.join(stage.program)}")
        yield "# The program has to be in the image, at the path from which it is run here."
    yield from _wrapped("RUN", words)


def _takes_over(stage: Stage) -> Iterator[str]:
    yield "# The image that trains, with the kernels at the path that they hold."
    yield "FROM ${BASE}"
    yield "# Training writes there: add --chown=USER if it does not run as root."
    pair = json.dumps([stage.folder, stage.folder], ensure_ascii=False)
    yield f"COPY --from=attention-kernels {pair}"
    yield from _folders(stage)
    if stage.environment:
        yield "# As where the GPU is; their text is in the keys."
    for name, text in sorted(stage.environment.items()):
        yield f"ENV {name}={_value(text)}"
    yield "# Unverified until it was run on the GPU itself, once:"
    yield f"#   attn-doctor cache verify --cache-dir {shlex.quote(stage.folder)}"


def _folders(stage: Stage) -> Iterator[str]:
    # Without the second, Triton compiles its link to the driver again, with a C compiler.
    yield from (f"ENV {one}" for one in variables(_value(stage.folder)))


def _pairs(arguments: Sequence[str]) -> list[str]:
    """Options with their values, quoted for a shell, each a piece that stays on one line."""
    pieces: list[str] = []
    for word in arguments:
        quoted = shlex.quote(word)
        if word.startswith("--") or not pieces:
            pieces.append(quoted)
        else:
            pieces[-1] += f" {quoted}"
    return pieces


def _wrapped(instruction: str, pieces: Sequence[str]) -> Iterator[str]:
    """An instruction over as many lines as it takes."""
    line = instruction
    for piece in pieces:
        if len(line) + len(piece) + 3 > _WIDTH and line.strip() != instruction:
            yield f"{line} \\"
            line = "   "
        line += f" {piece}"
    yield line


def _value(text: str) -> str:
    """A value of ENV, quoted where it has to be."""
    if re.fullmatch(r"[\w./:+,=@%-]+", text):
        return text
    return '"' + re.sub(r'(["\\$])', r"\\\1", text) + '"'
