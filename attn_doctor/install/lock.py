"""Writes an installation for another machine: requirements with hashes, a script, an image.

Which versions of the requirements are installed is decided by uv, for the Python and the system of
the other machine (`uv pip compile --generate-hashes`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from attn_doctor.derived.releases import parts, series
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts, System
from attn_doctor.files import DATA, read_text
from attn_doctor.fixes.installers import failure, run
from attn_doctor.fixes.pip_arguments import PipCall, pip_call
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.shell.quote import join

Form = Literal["requirements", "script", "dockerfile"]
#: Seconds that uv may take: for the hash of a wheel that is named by its address it downloads it.
_SECONDS = 900.0
_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-manylinux_2_{glibc}",
    ("linux", "aarch64"): "aarch64-manylinux_2_{glibc}",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc",
    ("macos", "arm64"): "aarch64-apple-darwin",
}
#: Releases of glibc that uv knows (2.28 is what torch's wheels need), of which it takes one.
_GLIBC = (28, *range(31, 41))
#: The macOS that torch's wheels are for; uv assumes an earlier one.
_MACOS = "14.0"
_REQUIREMENTS = "attn-doctor-requirements.txt"
#: By default uv takes a package from the first index that has its name. PyTorch's have old releases
#: of what torch requires. The hashes are what decides here.
_UV = "uv pip install --index-strategy unsafe-best-match --require-hashes -r"


def form_of(name: str) -> Form:
    """Return the form that a file's name asks for."""
    last = Path(name).name.lower()
    if last.endswith(".sh"):
        return "script"
    return "dockerfile" if "dockerfile" in last or "containerfile" in last else "requirements"


def locked(
    plan: Plan, facts: Facts, machine: str, uv: str, environ: Mapping[str, str], form: Form
) -> str:
    """Return the text of the file. `machine`: the machine in one line; `uv`: the program.

    Raises `AttnDoctorError` if uv has no answer.
    """
    calls = [call for step in plan.steps for call in _calls(step) if step.kind == "install"]
    builds = [step for step in plan.steps if step.kind == "build"]
    requirements = _compiled(calls, facts, uv, environ)
    head = f"# For {machine}, by attn-doctor."
    if form == "requirements":
        how = ("# pip install --require-hashes -r FILE", f"# {_UV} FILE")
        return "\n".join((head, *how, *map(_comment, builds), requirements))
    install = _lines(builds)
    if form == "script":
        return "\n".join(
            (
                "#!/bin/sh",
                head,
                "set -eu",
                f"cat > {_REQUIREMENTS} <<'END'",
                requirements + "END",
                "if command -v uv > /dev/null",
                f"then {_UV} {_REQUIREMENTS} --python python",
                f"else python -m pip install --require-hashes -r {_REQUIREMENTS}",
                "fi",
                *install,
                "",
            )
        )
    python = series(facts.python.version) or "3.12"
    return "\n".join(
        (
            head,
            f"FROM python:{python}-slim",
            f"COPY <<'END' /tmp/{_REQUIREMENTS}",
            requirements + "END",
            f"RUN python -m pip install --no-cache-dir --require-hashes -r /tmp/{_REQUIREMENTS}",
            *(f"# needs nvcc, which this image lacks: {line}" for line in install),
            "",
        )
    )


def _calls(step: Step) -> list[PipCall]:
    return [call for call in map(pip_call, step.run) if call]


def _lines(builds: Sequence[Step]) -> list[str]:
    """The commands that compile, with their variables, for a POSIX shell."""
    return [
        join((*(f"{name}={value}" for name, value in step.variables.items()), *words), "sh")
        for step in builds
        for words in step.run
    ]


def _comment(step: Step) -> str:
    return f"# compile it afterwards: {_lines([step])[-1]}"


def platform_of(system: System) -> str:
    """Return uv's name of a system, by its glibc if that is known. Raises `AttnDoctorError`."""
    name = _PLATFORMS.get((system.os or "", system.arch or ""))
    if name is None:
        raise AttnDoctorError(f"uv has no platform for {system.os} {system.arch}")
    known = parts(system.glibc or "")
    glibc = max((one for one in _GLIBC if (2, one) <= known), default=_GLIBC[0])
    return name.format(glibc=glibc)


def _compiled(calls: Sequence[PipCall], facts: Facts, uv: str, environ: Mapping[str, str]) -> str:
    """Return the requirements of all calls with their hashes, as uv resolves them."""
    indexes = dict.fromkeys(url for call in calls for _, url in call.indexes)
    lines = [one.text for call in calls for one in call.wanted]
    platform = platform_of(facts.system)
    with tempfile.TemporaryDirectory(prefix="attn-doctor-") as name:
        folder = Path(name)
        (folder / "wanted.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
        argv = [
            uv, "pip", "compile", "wanted.in", "--quiet", "--no-header", "--no-annotate",
            "--generate-hashes", "--emit-index-url", "--index-strategy", "unsafe-best-match",
            "--only-binary", ":all:",
            "--python-platform", platform,
            "--python-version", facts.python.version or "3.12",
            "--output-file", "locked.txt",
        ]  # fmt: skip
        argv += [part for url in indexes for part in ("--extra-index-url", url)]
        env = {"MACOSX_DEPLOYMENT_TARGET": _MACOS, **environ}
        ended = run(argv, seconds=_SECONDS, env=env, folder=folder, log=folder / "uv.log")
        if not ended.ok:
            raise AttnDoctorError(f"uv finds no set for this machine: {failure(ended)}")
        return read_text(str(folder / "locked.txt"), DATA)
