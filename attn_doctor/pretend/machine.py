"""Another system, Python or C compiler."""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Build, Facts, Program, Python, System
from attn_doctor.pretend.common import ABSENT, REASON, Tables, checked, without_gaps


def operating_system(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """Another system, of which nothing but its name and processor is known."""
    if value not in ("linux", "windows", "macos"):
        raise AttnDoctorError(f"--pretend os={value}: one of linux, windows, macos")
    told.append(value)
    if value == facts.system.os:
        return facts
    arch = "arm64" if value == "macos" else "x86_64"
    system = System(os=value, arch=arch, wsl=0, container="", musl=False)
    # What lies on this machine would not lie there: a Linux toolkit says nothing of a Windows.
    lists = {"directories": None, "caches": None, "shadowing_libraries": None, "toolkits": None}
    tools = dict.fromkeys(("cc", "cxx", "cl", "ninja", "cmake"), Program())
    elsewhere = ("system", *lists, "build", *tools)
    gaps = without_gaps(facts, "manifests", *elsewhere)
    return replace(
        facts,
        system=system,
        build=Build(),
        gaps={**gaps, **dict.fromkeys(elsewhere, REASON)},
        **lists,
        **tools,
    )


def python(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """Another CPython with the packages of the one that was examined."""
    told.append(f"Python {checked('python', value)}")
    old = facts.python
    python = Python(
        path=old.path,
        selection_reason=old.selection_reason,
        version=value,
        implementation="cpython",
        environment=old.environment,
        headers=old.headers,
        shadowing_modules=(),
        duplicate_distributions=(),
        invalid_distributions=(),
    )
    return replace(facts, python=python, gaps=without_gaps(facts, "python"))


def c_compiler(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """A gcc of a version, for C and C++, or none."""
    gaps = without_gaps(facts, "cc", "cxx")
    if value in ABSENT:
        told.append("no C compiler")
        program = Program(path="", version="", family="")
    else:
        told.append(f"gcc {checked('cc', value)}")
        program = Program(path="/usr/bin/gcc", version=value, family="gcc")
    return replace(facts, cc=program, cxx=program, gaps=gaps)
