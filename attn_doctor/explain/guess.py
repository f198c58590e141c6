"""A guess from the structure of a failure that no rule knows.

The last failure, its innermost frames and its message name a component and a kind of failure. The
result says where the failure is, and what was checked there; it never claims a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from attn_doctor.explain.components import Component, Kind, component_table
from attn_doctor.explain.explanation import Guess
from attn_doctor.explain.frames import FRAME, Frame, frames_of
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.messages import KnownMessage, known_message
from attn_doctor.explain.normalize import LogLine, NormalizedLog
from attn_doctor.explain.survived import survived
from attn_doctor.explain.symptom_match import excerpt
from attn_doctor.explain.tracebacks import LineKind, Position, TraceLog
from attn_doctor.explain.wanted import wanted_in_words
from attn_doctor.findings import Fix, Safety

#: Lines of a message that are read, and characters of it.
_LINES, _CHARACTERS = 40, 4000
#: A run that goes on for this many lines after a traceback was not ended by it.
_WENT_ON = 400
#: Lines at the end of a log that are searched for a failure without a traceback.
_END = 40
#: Lines before an exception in which its frames may be.
_LOOK_BACK = 60
#: Lines before and after a failure without frames that may name its component.
_NEAR, _AFTER = 12, 4
#: Lines of a log that is only a message, as a person types one.
_TYPED = 5
#: Frames at the end of a log, and lines after them, in a traceback whose last line is missing. One
#: frame is enough if nothing but its line of code is after it.
_CUT, _AFTER_CUT, _AT_THE_END = 2, 8, 3
#: Innermost frames that show what kind of work failed.
_CLOSE = 2

#: A file of a model or a program with its attention, which calls a component.
_CALLER = re.compile(r"(?i)(?:attn|attention)[^/]*$")
#: The lines of ComfyUI's report that hold the exception and its message, and the end of a build.
_REPORTED = re.compile(
    r"\s*(?:- \*\*Exception (?:Type|Message):\*\*|Error occurred when executing"
    r"|(?:subprocess\.)?CalledProcessError: Command .{1,60}?"
    r"\b(?:ninja|cmake|nvcc|hipcc|gcc|cc|clang)\b)"
)
_MESSAGE_OF = re.compile(r"\s*- \*\*Exception Message:\*\*")
#: A line that reports a failure, and does not only mention one.
_REPORTS = (
    r"\b[A-Z]\w*(?:Error|Exception)\b ?:|\b(?:error|ERROR|fatal|FATAL)\b {0,3}:(?!\s*$)"
    r"|[Cc]annot import name '|[Aa]ssertion\b.*failed|failed assertion|\bFailed to compile\b"
    r"|\b[Ee]xception [Cc]ode: 0x|\bfatal exception\b|\bException raised from \w"
    # The compiler and the linker of Microsoft.
    r"|\berror (?:LNK|C)\d{4}\b"
    r"|\bterminate called after throwing\b|\bnvcc fatal\b"
    # A place in sources of C++, and what fails there.
    r"|\.(?:cu|cuh|cpp|cc|h|hpp)[:(]\d+\b.{1,200}\b(?:cannot|[Uu]nsupported|[Ff]ailed|[Ii]nvalid)\b"
)
#: A line before the stack of a crash.
_CRASH = re.compile(
    r"\b[Ee]xception [Cc]ode: 0x|\bfatal exception\b|Fatal Python error|\bException raised from \w"
)
#: Where a C++ exception was raised, and the message that a program prints before it dies of one.
_RAISED, _WHAT = re.compile(r"\bException raised from \w"), re.compile(r"\s*what\(\): ")
#: ComfyUI's older report, which has the message below.
_EXECUTING = re.compile(r"Error occurred when executing [^:]{1,80}:\s*$")
#: How a shell reports that a program died, and torch's message before the place of an exception.
_DIED = re.compile(r"\s*(?:\S+ line \d+: +\d+ )?(?:Aborted|Abort trap|Segmentation fault)\b")
_CUDA = re.compile(r"(?:\w+Error: )?(?:CUDA|HIP) [Ee]rror: ")
#: Lines between torch's message and the place of its exception.
_HINTS = 8
#: What torch's tracer writes before the frames of the program that it traced.
_TRACED = "from user code"
#: A file that a message names.
_FILE = re.compile(r"'([^'\n]*/[^'\n]*)'")
#: A line of code that raises. It stands for the exception in a report that ends with it.
_RAISES = re.compile(r"""\s*(?:raise \w+\(|assert .*["'])""")
_BUILD = re.compile(
    r"(?:Failed building wheel for|Could not build wheels for"
    r"|Failed to (?:download and )?build"
    r"(?::| installable wheels for some pyproject\.toml based projects)?"
    r"|Building (?:wheel|editable) for(?=.{1,80}\berror$))"
    r" [`'\"(]?(?P<package>[\w.-]+)"
)
#: What pip says of a build that failed before it began, and of the package that it had fetched.
_NOT_RUN = re.compile(r"did not run successfully|\bsubprocess-exited-with-error\b")
_OUTPUT = re.compile(r"\[\d+ lines of output\]")
_FETCHED = re.compile(r"(?:Collecting|Processing) (?P<package>[\w./-]+)")
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
    r"(?:fatal )?error(?: [A-Z]+\d+)?: (?!command |subprocess)|\bnvcc fatal\b"
)
_BUILD_LINES = 400
#: What the setup of flash-attn prints outside a checkout, before it goes on.
_NO_GIT = re.compile(r"\s*fatal: not a git repository")
#: How docker reports that a step of an image failed, which repeats its command.
_STEP = re.compile(r"\bERROR: process \"")
#: Messages that the package is absent, after which a program may go on.
_ABSENT = re.compile(r"No module named|not (?:be )?(?:found|installed|available)|[Pp]lease install")

#: How messages write the value that was found and the one that was wanted.
_GOT = r",? (?:but |and )?(?:got|found|received|you have) (?P<seen>\([^)\n]{0,80}\)|[^;\n(]{1,80})"
_WANTED = r"(?P<wanted>[^;\n]{1,100}?)"
_VALUES = tuple(
    map(
        re.compile,
        (
            rf"(?:[Ee]xpected|[Rr]equires?) {_WANTED}{_GOT}",
            r"takes (?P<wanted>[^(\n]{1,60}) but (?P<seen>[^\n]{1,100}?) (?:was|were) given",
            rf"(?:must|needs? to|expected to|should) (?:be|have) {_WANTED}{_GOT}",
            rf"[Oo]nly supports? {_WANTED}{_GOT}",
            r"\b(?:must|needs? to|expected to|should) (?:be|have) (?P<wanted>[^;\n]{1,120})",
            r"[Oo]nly supports? (?P<wanted>[^;\n]{1,120})",
            r"(?:does not|doesn't) support (?P<seen>[^;\n]{1,100})",
        ),
    )
)
_RANGE = re.compile(
    r"(?P<name>[A-Za-z][\w-]{1,40})(?: version)? ?"
    r"(?P<range>[<>=!~]=? ?\d[\w.+]{0,20}(?: ?, ?[<>=!~]=? ?\d[\w.+]{0,20}){0,3})"
)
#: What messages call a package, and the name by which it is installed.
_PACKAGES = {
    "flash-attention": "flash-attn", "flash-attn": "flash-attn", "pytorch": "torch",
    "torch": "torch", "triton": "triton", "transformers": "transformers", "xformers": "xformers",
    "diffusers": "diffusers", "sageattention": "sageattention", "kernels": "kernels",
    "accelerate": "accelerate", "flashinfer-python": "flashinfer-python",
}  # fmt: skip


class _Failure(NamedTuple):
    """One exception, or one line that reports a failure."""

    line: LogLine
    message: str
    frames: tuple[Frame, ...] = ()
    near: str = ""
    """The lines around it, where it has no frames."""
    traced: bool = False
    """torch's tracer raised it; its last frames are those of the program that it traced."""


def guess(name: str, log: NormalizedLog) -> Guess | None:
    """The component at which the end of a log failed; None if no component is named."""
    near: Guess | None = None
    trace = TraceLog(log.lines)
    over = survived(trace)
    for failure in _failures(trace):
        if any(first <= failure.line.number <= last for first, last in over):
            continue
        if _is_unrelated(failure):
            return near
        if component_table().is_other_work(_innermost(failure)):
            return near
        known = known_message(failure.message, tuple(frame.path for frame in failure.frames))
        component, frame = _component(failure, known)
        beside = _component_beside(failure)
        if component is not None:
            compiling = component_table().kind_of(failure.message).id == "build"
            if component.fallback and frame is None and beside is not None and not compiling:
                component = beside
            shown = _at_its_frame(failure, frame, log.lines)
            if compiling:
                shown = _at_its_compiler(shown, log.lines)
            return _guess(name, shown, component, frame, known)
        if near is None and beside is not None:
            near = _guess(name, failure, beside, None, known)
    built = _of_build(name, log.lines)
    if near is not None and built is not None and built.component == near.component:
        # The lines of a build are near each other; its first error says more than its last.
        ended = max((line.number for line in log.lines if _BUILD.search(line.text)), default=0)
        return built if near.line <= ended + _AFTER else near
    return near or built or _of_index(name, trace)


def _is_unrelated(failure: _Failure) -> bool:
    """The failure is not about attention. One about a file of the component it is in may be."""
    table = component_table()
    inner = failure.frames[-1].path if failure.frames else ""
    owners = [one for one in table.component if one.owns(inner)]
    if any(one.owns(path) for one in owners for path in _FILE.findall(failure.message)):
        return False
    other = log_signals().unrelated.search(failure.message)
    return other is not None or table.is_unrelated(failure.message)


# The failures


def _failures(trace: TraceLog) -> Iterator[_Failure]:
    """The last chain of exceptions from its root, or else lines that report a failure."""
    chain, below = trace.last_failure()
    read: set[LogLine] = set()
    last = max((line.number for line in trace.lines), default=0)
    open_frames = tuple(frames_of([line.text for line in below]))
    if chain and last - chain[-1][0].number <= _WENT_ON:
        for _, link in groupby(chain, key=lambda entry: entry[1].link):
            failure = _exception(list(link), open_frames)
            if failure is not None:
                # IPython's frames have no header, so that they do not belong to the failure.
                at = trace.lines.index(failure.line)
                frames = failure.frames or tuple(
                    frames_of([one.text for one in trace.lines[max(0, at - _LOOK_BACK) : at]])
                )
                near = "" if frames else _around(trace, at)
                traced = any(_TRACED in one.text for one in trace.lines[at : at + _LINES])
                if traced and frames != open_frames:
                    frames = (*frames, *open_frames)
                if frames:
                    read.add(failure.line)
                yield failure._replace(frames=frames, near=near, traced=traced)
    yield from (failure for failure in _lines(trace, last, open_frames) if failure.line not in read)
    yield from _cut(trace)


def _around(trace: TraceLog, at: int) -> str:
    """The lines around one, the nearest first, without those that say what a program does."""
    near = (*range(max(0, at - _NEAR), at), *range(at + 1, min(len(trace.lines), at + 1 + _AFTER)))
    said = {i for i in near if trace.lines[i].stamped and trace.positions[i].kind is LineKind.TEXT}
    nearest = sorted(near, key=lambda i: abs(i - at))
    return "\n".join(trace.lines[i].text for i in nearest if i not in said)


def _cut(trace: TraceLog) -> Iterator[_Failure]:
    """The traceback in which a log ends without the line that says why."""
    end = trace.lines[-_LOOK_BACK:]
    at = [index for index, line in enumerate(end) if FRAME.match(line.text)]
    after = trace.positions[-_LOOK_BACK:][at[-1] :] if at else []
    said = any(position.kind is LineKind.EXCEPTION for position in after)
    if not at or said:
        return
    # rich and notebooks print the code around each frame.
    with_code = not end[at[-1]].text.lstrip().startswith('File "')
    most = _AFTER_CUT if len(at) >= _CUT or with_code else _AT_THE_END
    if len(end) - at[-1] <= most:
        yield _Failure(end[at[-1]], "", tuple(frames_of([line.text for line in end])))


def _exception(
    link: Sequence[tuple[LogLine, Position]], open_frames: tuple[Frame, ...]
) -> _Failure | None:
    raised = [line for line, at in link if at.kind is LineKind.EXCEPTION]
    if not raised:
        return None
    lines = [line for line, at in link if at.kind in (LineKind.EXCEPTION, LineKind.MESSAGE)]
    frames = tuple(frames_of([line.text for line, _ in link]))
    message = "\n".join(line.text.strip() for line in lines[:_LINES])
    line = next((line for line in lines[1:] if _MESSAGE_OF.match(line.text)), raised[-1])
    # Frames below belong to the exception only if it has none: else another process passed it on.
    return _Failure(line, message[:_CHARACTERS], frames or open_frames)


def _lines(trace: TraceLog, last: int, open_frames: tuple[Frame, ...]) -> Iterator[_Failure]:
    """Lines near the end that report a failure without a traceback, the last one first."""
    signals, died = log_signals(), next(k for k in component_table().kind if k.id == "died")
    pattern = re.compile("|".join((_REPORTS, *died.patterns)))
    for index in reversed(range(len(trace.lines))):
        line, kind = trace.lines[index], trace.positions[index].kind
        text = line.text
        reported = _REPORTED.match(text) or _RAISES.match(text)
        if last - line.number > _END or FRAME.match(text):
            continue
        if kind <= LineKind.WARNING and not reported:
            continue
        reports = reported or pattern.search(text)
        if not reports or any(one.search(text) for one in (_ABSENT, _BUILD, _STEP)):
            continue
        if not (signals.benign.search(text) or signals.passed.search(text) or _NO_GIT.match(text)):
            stack = trace.lines[index : index + _LOOK_BACK] if _CRASH.search(text) else ()
            frames = open_frames or tuple(frames_of([one.text for one in stack]))
            line = _said_by(trace.lines, index)
            yield _Failure(line, line.text.strip()[:_CHARACTERS], frames, _around(trace, index))


def _said_by(lines: Sequence[LogLine], index: int) -> LogLine:
    """The line with the message of a failure that another line reports."""
    text = lines[index].text
    if _EXECUTING.match(text):
        return next((line for line in lines[index + 1 :] if line.text.strip()), lines[index])
    if _RAISED.search(text) or _DIED.match(text):
        before = lines[max(0, index - _LOOK_BACK) : index][::-1]
        said = (line for line in before if _WHAT.match(line.text))
        near = (line for line in before[:_HINTS] if _CUDA.match(line.text))
        return next(said, next(near, lines[index]))
    return lines[index]


def _at_its_frame(failure: _Failure, frame: Frame | None, lines: Sequence[LogLine]) -> _Failure:
    """The failure at the line of the component's frame, if it has no message of its own."""
    if failure.message or frame is None:
        return failure
    place = (frame.path, frame.line)
    for line in reversed(lines[-_LOOK_BACK:]):
        if any((one.path, one.line) == place for one in frames_of([line.text])):
            return failure._replace(line=line)
    return failure


def _at_its_compiler(failure: _Failure, lines: Sequence[LogLine]) -> _Failure:
    """The failure of a build at the first error of its compiler, if the log shows one."""
    after = failure.line.number + failure.message.count("\n")
    near = (line for line in lines if after - _BUILD_LINES <= line.number <= after)
    return next(
        (failure._replace(line=line) for line in near if _COMPILER.search(line.text)), failure
    )


# The component


def _innermost(failure: _Failure) -> str:
    """The message and the frames next to it."""
    parts = (f"{frame.path} {frame.function} {frame.code}" for frame in failure.frames[-_CLOSE:])
    return "\n".join((failure.message, *parts))


def _component(
    failure: _Failure, known: KnownMessage | None
) -> tuple[Component | None, Frame | None]:
    """The component by the frames, by the message, then one that counts if no other does.

    `known`: the entry of the message in the index of messages.
    """
    table = component_table()
    parts = (f"{frame.path} {frame.function} {frame.code}" for frame in failure.frames)
    text = "\n".join((failure.message, failure.near, *parts))
    attention = re.search(table.attention, text) is not None
    able = [one for one in table.component if attention or not one.attention]
    first = [one for one in able if not one.fallback]
    named = [one for one in first if one.is_named_in(failure.message)]
    platform = [one for one in first if one.before and one.is_named_in(text)]
    if (inmost := _inmost(failure, first)) is not None:
        one, frame = inmost
        return next((other for other in platform if one.id in other.before), one), frame
    inner = failure.frames[-1] if failure.frames else None
    if known is not None and known.names_its_component:
        return next(one for one in table.component if one.id == known.component), inner
    kind = table.kind_of(failure.message).id
    indirect = kind in ("died", "cut") or failure.traced
    if indirect and (late := _further_up(failure, first)):
        return late
    # A program compiles other kernels too; the frames around it would name attention.
    passed_on = [table.is_neutral(frame.path) for frame in failure.frames]
    called = passed_on[-1:] == [True] and not all(passed_on)
    other = kind == "compile" and called and not attention
    last = [one for one in able if one.fallback and not other]
    named += [one for one in last if one.is_named_in(failure.message)]
    if named:
        return named[0], inner
    for one in last:
        if any(one.owns(frame.path) for frame in failure.frames[-3:]):
            return one, inner
    return None, None


def _inmost(failure: _Failure, components: Sequence[Component]) -> tuple[Component, Frame] | None:
    """The component of the innermost frame that does not only pass a call on."""
    for frame in reversed(failure.frames):
        for one in components:
            called = one.is_called_by(frame.code) or one.is_called_by(f"{frame.function}(")
            if one.owns(frame.path) or called:
                return one, frame
            if frame.native and one.is_named_in(frame.path.rsplit("/", 1)[-1]):
                return one, frame
        passes_on = component_table().is_neutral(frame.path) or _CALLER.search(frame.path)
        if not frame.native and not passes_on:
            return None
    return None


def _further_up(
    failure: _Failure, components: Sequence[Component]
) -> tuple[Component, Frame] | None:
    """The component that an outer frame names.

    A GPU reports a failure at a later call, torch's tracer one of the program that it traces, and
    a log that was cut does not say which call failed.
    """
    for frame in reversed(failure.frames):
        text = f"{frame.path} {frame.function} {frame.code}"
        named = next((one for one in components if one.is_named_in(text)), None)
        if named is not None:
            return named, frame
    return None


def _component_beside(failure: _Failure) -> Component | None:
    """The component that the nearest line around a failure without frames names."""
    text = f"{failure.message}\n{failure.near}"
    attention = re.search(component_table().attention, text) is not None
    for line in failure.near.split("\n"):
        reports = re.search(r"\berror\b", line) is not None
        for one in component_table().component:
            # A compiler is at fault only on a line with an error.
            able = (attention or not one.attention) and (reports or not one.fallback)
            if able and one.is_named_in(line):
                return one
    return None


def _of_build(name: str, lines: Sequence[LogLine]) -> Guess | None:
    """The package whose build failed, with the first error of the compiler."""
    for line in reversed(lines[-200:]):
        match = _BUILD.search(line.text) or _COMPILED.search(line.text)
        if match is None:
            continue
        package = next(filter(None, match.groups()))
        found = next((c for c in component_table().component if c.is_named_in(package)), None)
        if found is None:
            continue
        errors = (
            one for one in lines if _FIRST_ERROR.search(one.text) and not _NO_GIT.match(one.text)
        )
        raised = (one for one in lines if _BUILD_RAISED.match(one.text))
        first = next(errors, next(raised, line))
        return _guess(name, _Failure(first, line.text.strip()), found, None)
    return _of_pip(name, lines)


def _of_pip(name: str, lines: Sequence[LogLine]) -> Guess | None:
    """The package that pip fetched before it reported a failure, or that its setup names first."""
    failed: LogLine | None = None
    for index in range(len(lines) - 1, max(-1, len(lines) - 201), -1):
        line = lines[index]
        if (match := _OUTPUT.search(line.text)) and failed is None:
            printed = "\n".join(one.text for one in lines[index + 1 : index + 1 + _NEAR])
            found = next((c for c in component_table().component if c.is_named_in(printed)), None)
            if found is not None and not found.fallback and not found.attention:
                before = lines[max(0, index - _AFTER) : index][::-1]
                said = next((one for one in before if _NOT_RUN.search(one.text)), line)
                return _guess(name, _Failure(said, "did not run successfully"), found, None)
        if match := _NOT_RUN.search(line.text):
            # The line that says what did not run says more than the one before it.
            failed = failed if failed is not None and match[0].startswith("sub") else line
        elif failed is not None and (match := _FETCHED.search(line.text)):
            package = match["package"].rsplit("/", 1)[-1]
            found = next((c for c in component_table().component if c.is_named_in(package)), None)
            if found is None:
                return None
            return _guess(name, _Failure(failed, "did not run successfully"), found, None)
    return None


def _of_index(name: str, trace: TraceLog) -> Guess | None:
    """The component whose sources have a message that a person gave without its traceback."""
    given = [
        (line, position)
        for line, position in zip(trace.lines, trace.positions, strict=True)
        if line.text.strip()
    ]
    if len(given) > _TYPED:
        return None
    for line, position in reversed(given):
        failure = _Failure(line, line.text.strip()[:_CHARACTERS])
        said = log_signals().benign.search(line.text) or position.kind is LineKind.WARNING
        if said or _is_unrelated(failure) or component_table().is_other_work(failure.message):
            continue
        known = known_message(failure.message)
        if known is not None and known.names_its_component:
            component = next(c for c in component_table().component if c.id == known.component)
            return _guess(name, failure, component, None, known)
    return None


# The words


def _guess(
    name: str,
    failure: _Failure,
    component: Component,
    frame: Frame | None,
    known: KnownMessage | None = None,
) -> Guess:
    message = failure.message
    if known is not None and known.component != component.id:
        known = None
    kind = component_table().kind_of(message)
    seen, wanted = _values(message)
    condition = _condition(frame) or (known.condition if known is not None else "")
    wanted = wanted or wanted_in_words(condition)
    title = kind.title.format(name=component.name)
    return Guess(
        component=component.id,
        name=component.name,
        kind=kind.id,
        file=name,
        line=failure.line.number,
        excerpt=excerpt(failure.line.text, failure.line.text.strip()),
        rank=failure.line.rank,
        # A name such as xformers keeps its first letter; an article gets a capital one.
        title=re.sub(r"^(?:a|the)\b", lambda match: match[0].capitalize(), title),
        frame=_place(frame),
        source=_source(known),
        condition=condition,
        seen=seen,
        wanted=wanted,
        fixes=tuple(_fixes(kind, message)),
    )


def _place(frame: Frame | None) -> str:
    if frame is None:
        return ""
    if frame.native:
        return frame.path
    return f"{frame.path}, line {frame.line}" + (f", in {frame.function}" if frame.function else "")


def _source(known: KnownMessage | None) -> str:
    """Where the sources of the component have the message."""
    if known is None:
        return ""
    function = f" ({known.function})" if known.function else ""
    releases = known.first if known.first == known.last else f"{known.first} to {known.last}"
    return f"{known.file}{function}, release {releases}"


def _condition(frame: Frame | None) -> str:
    """The condition under which an `assert` that the traceback shows fails."""
    code = frame.code if frame is not None else ""
    if not code.startswith("assert "):
        return ""
    asserted = re.split(r""", f?["'(]""", code.removeprefix("assert "))[0].strip(" (,")
    return f"not ({asserted})"


def _values(message: str) -> tuple[str, str]:
    """The value that was found and the one that was wanted, as the message writes them."""
    for pattern in _VALUES:
        if match := pattern.search(message):
            groups = match.groupdict()
            seen = (groups.get("seen") or "").strip(" .,:")
            # torch's own checks say that a condition is false, without the values.
            return "" if seen == "false" else seen, (groups.get("wanted") or "").strip(" .,:")
    return "", ""


def _fixes(kind: Kind, message: str) -> Iterator[Fix]:
    if kind.id in ("version", "platform") and (match := _RANGE.search(message)):
        package = _PACKAGES.get(match["name"].lower().replace("_", "-"))
        if package:
            wanted = f"{package}{match['range'].replace(' ', '')}"
            yield Fix(
                title=f"Install {package} within the range of the message",
                safety=Safety.MANUAL,
                run=(("pip", "install", wanted),),
            )
    for advice in kind.advice:
        yield Fix(title=advice.rstrip("."), safety=Safety.MANUAL)
