"""Requirements and specifiers are read as `packaging` reads them."""

from __future__ import annotations

import operator
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement as Parsed
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from attn_doctor.requirement import (
    Requirement,
    applicable,
    combined,
    names_prerelease,
    normal_name,
    parsed,
    satisfiable,
    satisfies,
    wants_older,
    without_local,
)

COMPARED = [
    "1.0",
    "1",
    "1.0.0",
    "2.7.4.post1",
    "2.10.0a0",
    "2.13.0",
    "02.13",
    "2.13.0+cpu",
    "0",
    "1!2",
]


@pytest.mark.parametrize("one", COMPARED)
@pytest.mark.parametrize("other", COMPARED)
def test_versions_compare_as_those_of_packaging(one: str, other: str) -> None:
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert compare(parsed(one), parsed(other)) == compare(Version(one), Version(other))
    assert parsed(one).release == Version(one).release
    assert str(without_local(one)) == Version(one).public


def test_an_equal_version_has_the_same_hash() -> None:
    assert len({parsed("1"), parsed("1.0"), parsed("1.0.0")}) == 1


@pytest.mark.parametrize("text", ["", "1.", "one", "2.4-custom", "2.1+", "9" * 5000])
def test_what_is_no_version_is_refused(text: str) -> None:
    for read in (parsed, without_local):
        with pytest.raises(ValueError):  # noqa: PT011 - of `packaging`, or of `int`
            read(text)


ENVIRONMENT = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_release": "6.1.0",
    "platform_version": "#1 SMP",
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "platform_python_implementation": "CPython",
    "extra": "",
}
#: Metadata of torch, cuda-toolkit, diffusers, transformers, xformers and vLLM.
LINES = (
    "filelock",
    "typing-extensions>=4.10.0",
    'setuptools; python_version >= "3.12"',
    'sympy==1.13.1; python_version >= "3.9"',
    'nvidia-cublas-cu12==12.8.4.1; platform_system == "Linux" and platform_machine == "x86_64"',
    'nvidia-nccl-cu12 (==2.20.5) ; platform_system == "Linux" and platform_machine == "x86_64"',
    "cuda-toolkit[cublas,cudart,cufft]==13.0.2; platform_system == 'Linux'",
    "nvidia-cublas==13.1.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'x'",
    'pytorch-triton-rocm==3.1.0; platform_system == "Linux" and python_version < "3.13"',
    "safetensors>=0.8.0-rc.0",
    "huggingface-hub<2.0,>=0.34.0",
    "tokenizers<=0.23.0,>=0.22.0",
    "numpy!=1.19.0,!=1.19.1,>=1.17",
    'importlib-metadata; python_version < "3.8"',
    'tomli>=1.1.0; python_version < "3.11" or extra == "all"',
    "torch==2.9.1+cu128",
    "triton @ https://example.com/triton.whl",
    'pywin32>=226; sys_platform == "win32" and "x86" in platform_machine',
    "jax!=0.3.2,<=0.3.6,>=0.2.8; extra == 'flax'",
    "flash-attn ~= 2.8",
    "torch (>=2.0.*)",
    "Jinja2[i18n] >= 3",
    "",
    "a b",
    "name-",
    "x[,]",
    "x >= ",
    'x; python_version > "3"and extra == ""',
    "x; python_version",
    'x; (python_version > "3"',
    'x; unknown == "3"',
)
RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)
VERSIONS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(("", "", "", "1!")),
        RELEASES,
        st.sampled_from(("", "", "", "a0", "rc1", "-rc.0", ".post1", ".dev20261101")),
        st.sampled_from(("", "", "", "+cu130", "+cpu.1")),
    ),
)
CLAUSES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(("==", "!=", "<=", ">=", "<", ">", "~=", "===")),
    st.sampled_from(("", "", " ")),
    VERSIONS,
    st.sampled_from(("", "", "", ".*")),
)
SPECIFIERS = st.lists(CLAUSES, max_size=3).map(",".join)
COMPARISONS = st.builds(
    "{} {} {}".format,
    st.sampled_from(sorted(ENVIRONMENT)),
    st.sampled_from(("==", "!=", "<", ">=", "in", "~=")),
    st.sampled_from(
        ('"Linux"', "'linux'", '"3.9"', "'3.11'", '"x86_64"', '"3.11.*"', '"v1"', '""')
    ),
)
MARKERS = st.recursive(
    COMPARISONS,
    lambda inner: st.builds(
        "{}{}{} {} {}{}{}".format,
        *(st.sampled_from(("", "(")), inner, st.just(""), st.sampled_from(("and", "or"))),
        *(st.just(""), inner, st.sampled_from(("", ")"))),
    ),
    max_leaves=4,
)


def by_packaging(line: str, environments: list[dict[str, str]]) -> Requirement | None:
    try:
        found = Parsed(line)
        marker = found.marker
        if marker is None or any(marker.evaluate(one) for one in environments):
            return Requirement(found.name, frozenset(found.extras), str(found.specifier))
    except (ValueError, UndefinedEnvironmentName):
        pass
    return None


@given(VERSIONS, SPECIFIERS)
@settings(max_examples=400, deadline=None)
@example("2.13.0+cu130", ">=2.13,<2.14")
@example("2", "==2.0.*")
@example("3.7.1", "~=3.7.0")
@example("2.0", "> 2.0, >=2")
@example("unknown", "==1.*")
@example("2.4-custom", ">=1")
@pytest.mark.thorough
def test_a_version_satisfies_as_packaging_says(version: str, specifier: str) -> None:
    try:
        wanted = SpecifierSet(specifier).contains(version, prereleases=True)
    except ValueError:
        with pytest.raises(ValueError, match=r".*"):
            satisfies(version, specifier)
        return
    assert satisfies(version, specifier) == wanted
    assert names_prerelease(specifier) == bool(SpecifierSet(specifier).prereleases)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("extras", [("",), ("x", "flax")])
def test_a_line_of_metadata_reads_as_packaging_says(line: str, extras: tuple[str, ...]) -> None:
    environments = [{**ENVIRONMENT, "extra": extra} for extra in extras]
    assert applicable(line, environments) == by_packaging(line, environments)


@given(
    st.sampled_from(("torch", "nvidia-cublas_cu12", "a.b", "x[one]", "y[one, Two_2]")),
    SPECIFIERS,
    st.none() | MARKERS,
)
@settings(max_examples=400, deadline=None)
@pytest.mark.thorough
def test_a_requirement_reads_as_packaging_says(
    name: str, specifier: str, marker: str | None
) -> None:
    line = f"{name}{specifier}" if marker is None else f"{name} ({specifier}) ; {marker}"
    assert applicable(line, [ENVIRONMENT]) == by_packaging(line, [ENVIRONMENT])


def test_simple_lines_need_no_parser() -> None:
    """Its import takes as long as all probes together."""
    simple = [line for line in LINES[:13] if "@" not in line]
    code = (
        "import sys; from attn_doctor.requirement import applicable\n"
        f"for line in {simple!r}: assert applicable(line, [{ENVIRONMENT!r}]) or ';' in line\n"
        "print('packaging.specifiers' in sys.modules, 'packaging.markers' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "text", ["a" + "-" * 100_000 + "(", "a[" + "b," * 50_000, "x;" + "(" * 50_000]
)
def test_a_long_line_takes_no_time(text: str) -> None:
    assert applicable(text, [ENVIRONMENT]) is None


@pytest.mark.parametrize(
    ("specifiers", "expected"),
    [
        ((">=1.0", ">=1.2", ""), ">=1.2"),
        (("<3.0,>=1.32", "<2.0,>=1.5"), "<2.0,>=1.32"),
        ((">=1.0", ">1.0"), ">1.0"),
        (("<=2", "<2"), "<2"),
        (("==1.*", ">=1.2", "!=1.3"), "!=1.3,==1.*,>=1.2"),
        (("==0.34.0", "<0.41"), "==0.34.0"),
        (("==0.42", "<0.41"), "<0.41,==0.42"),
        (("==1.0", "==1"), "==1,==1.0"),
        (("<5", "<5.0", ">=4.46"), "<5,>=4.46"),
        (("~=1.4", "~=1.4.0"), "~=1.4,~=1.4.0"),
    ],
)
def test_combined_keeps_the_closest_bounds(specifiers: tuple[str, ...], expected: str) -> None:
    assert combined(specifiers) == expected


@pytest.mark.parametrize(
    ("one", "other", "fit", "older"),
    [
        ("<1.0,>=0.34", "<3.0,>=1.32", False, True),
        (">=1.32", "<1.0", False, False),
        ("==1.0", "==2.0", False, True),
        (">=1", "<3", True, False),
        ("~=1.4", ">=2", False, True),
        ("===odd", ">=2", True, False),
    ],
)
def test_two_specifiers_together(one: str, other: str, fit: bool, older: bool) -> None:
    assert satisfiable(one, other) == fit
    assert wants_older(one, other) == older


def test_normal_name() -> None:
    assert normal_name("Flash_Attn.3--x") == "flash-attn-3-x"
