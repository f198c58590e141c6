"""The package whose build failed, and the line that says why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from attn_doctor.explain.blame import component_of_file
from attn_doctor.explain.components import Component, component_table
from attn_doctor.explain.failures import AFTER, BUILD, NEAR, NO_GIT, Failure
from attn_doctor.explain.normalize import LogLine

#: What pip says of a build that failed before it began, and of the package that it had fetched.
_NOT_RUN = re.compile(r"did not run successfully|\bsubprocess-exited-with-error\b")
_OUTPUT = re.compile(r"\[\d+ lines of output\]")
_FETCHED = re.compile(r"(?:Collecting|Processing) (?:git\+\w+:/+)?(?P<package>[\w./-]+)")
#: What was compiled by a failed build: a file, or a folder for ninja.
_COMPILED = re.compile(
    r"errors? detected in the compilation of [`'\"](?P<file>[^`'\"\n]{1,300})"
    r"|^\s*FAILED: (?:\[code=\d+\] )?(?P<object>\S{1,400}\.o(?:bj)?)\b"
    r"|Command .{1,3}ninja\b[^\n]{0,60}-C['\"]?,? ['\"]?(?P<folder>[^'\"\n]{1,300})"
)
_FIRST_ERROR = re.compile(
    r"\b(?:fatal )?error\b ?[:C](?!\s*$)(?! (?:subprocess-exited-with|failed-wheel-build))"
    r"|\bError: (?! +×)|\bCMake Error\b"
)
#: An exception in the output of a build, other than those that only say that it failed.
_BUILD_RAISED = re.compile(
    r"^\s*(?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception): (?!Command |Error compiling )"
)
#: An error of a compiler or linker, and lines before the end of a build in which it may be.
_COMPILER = re.compile(
    r"(?:\.(?:cu|cuh|cpp|cc|c|h|hpp|hip)[:(]\d+[:),\d ]*|^\s*"
    r"|\b(?:nvcc|clang|gcc|g\+\+|ld|LINK) ?:? )"
    r"(?:fatal )?error(?: [A-Z]+\d+)?: (?!command |subprocess)|\bnvcc fatal\b|\bninja: error: "
    r"|\bptxas \S+, line \d+; (?:error|fatal) *:|^\s*CMake Error at "
)
_BUILD_LINES = 400


class Built(NamedTuple):
    """A failed build."""

    failure: Failure
    component: Component
    package: str = ""
    """The name under which it is installed, if the log says it."""


def at_its_compiler(failure: Failure, lines: Sequence[LogLine]) -> Failure:
    """The failure of a build at the first error of its compiler, if the log shows one."""
    after = failure.line.number + failure.message.count("\n")
    near = (line for line in lines if after - _BUILD_LINES <= line.number <= after)
    return next(
        (failure._replace(line=line) for line in near if _COMPILER.search(line.text)), failure
    )


def failed_build(lines: Sequence[LogLine]) -> Built | None:
    """The package whose build failed, with the first error of the compiler."""
    for line in reversed(lines[-200:]):
        match = BUILD.search(line.text) or _COMPILED.search(line.text)
        if match is None:
            continue
        package, file = match.groupdict().get("package") or "", next(filter(None, match.groups()))
        found = _component(package) if package else component_of_file(file)
        if found is None:
            continue
        errors = (
            one for one in lines if _FIRST_ERROR.search(one.text) and not NO_GIT.match(one.text)
        )
        raised = (one for one in lines if _BUILD_RAISED.match(one.text))
        reported = (one for one in lines if BUILD.search(one.text))
        first = next(errors, next(raised, next(reported, line)))
        return Built(Failure(first, line.text.strip()), found, package)
    return _of_pip(lines)


def _of_pip(lines: Sequence[LogLine]) -> Built | None:
    """The package that pip fetched before it reported a failure, or that its setup names first."""
    failed: LogLine | None = None
    for index in range(len(lines) - 1, max(-1, len(lines) - 201), -1):
        line = lines[index]
        if (match := _OUTPUT.search(line.text)) and failed is None:
            printed = "\n".join(one.text for one in lines[index + 1 : index + 1 + NEAR])
            found = next((c for c in component_table().component if c.is_named_in(printed)), None)
            if found is not None and not found.fallback and not found.attention:
                before = lines[max(0, index - AFTER) : index][::-1]
                said = next((one for one in before if _NOT_RUN.search(one.text)), line)
                return Built(Failure(said, "did not run successfully"), found)
        if match := _NOT_RUN.search(line.text):
            # The line that says what did not run says more than the one before it.
            failed = failed if failed is not None and match[0].startswith("sub") else line
        elif failed is not None and (match := _FETCHED.search(line.text)):
            package = match["package"].rsplit("/", 1)[-1]
            found = _component(package)
            if found is None:
                return None
            return Built(Failure(failed, "did not run successfully"), found, package)
    return None


def _component(package: str) -> Component | None:
    table = component_table()
    return next((c for c in table.component if c.is_named_in(package) or c.has(package)), None)
