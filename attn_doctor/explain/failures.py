"""The failures in which a log ends: exceptions with frames, and lines that report a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from attn_doctor.explain.components import component_table
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.normalize import LogLine
from attn_doctor.explain.survived import reports_another
from attn_doctor.explain.tracebacks import LineKind, Position, TraceLog
from attn_doctor.rulebook.frames import FRAME, Frame, frames_of

#: Lines of a message that are read, and characters of it.
_LINES, CHARACTERS = 40, 4000
#: A run that goes on for this many lines after a traceback was not ended by it.
_WENT_ON = 400
#: Lines at the end of a log that are searched for a failure without a traceback.
_END = 40
#: Lines before an exception in which its frames may be.
LOOK_BACK = 60
#: Lines before and after a failure without frames that may name its component.
NEAR, AFTER = 12, 4
#: Frames at the end of a log, and lines after them, in a traceback whose last line is missing. One
#: frame is enough if nothing but its line of code is after it.
_CUT, _AFTER_CUT, _AT_THE_END = 2, 8, 3

#: The lines of ComfyUI's report that hold the exception and its message, and the end of a build.
_REPORTED = re.compile(
    r"[\s`]*(?:- \*\*Exception (?:Type|Message):\*\*|Error occurred when executing"
    # TensorRT-LLM warns that it has no kernel, and goes on more slowly.
    r"|\[?TensorRT-LLM\]\[WARNING\] (?:Fall back to unfused MHA|FMHA [Kk]ernel)"
    r"|.{0,80}?(?:(?:[Ee]rror|failed)\b ?[:(] ?[Cc]ommand .|\bCommand '?\[).{0,300}?"
    r"\b(?:ninja|cmake|nvcc|hipcc|gcc|cc|tcc|clang|cl|ptxas)\b"
    r"|(?:RuntimeError: )?Error compiling objects for extension)"
)
_MESSAGE_OF = re.compile(r"\s*(?:- \*\*Exception|Error) Message:")
#: A line that reports a failure, and does not only mention one.
_REPORTS = (
    r"(?<!except )\b(?:[A-Z]\w*(?:Error|Exception)|StopIteration)\b ?:"
    r"|(?:(?:^Error|\b(?:error|ERROR|fatal|FATAL)\b) {0,3}:|\[(?:ERROR|FATAL)\])(?!\s*$)"
    r"|\bException during processing ?!!! \S"
    r"|[Cc]annot import name '|[Aa]ssertion\b.*failed|failed assertion|\bFailed to compile\b"
    r"|\b[Ee]xception [Cc]ode: 0x|\bfatal exception\b|\bException raised from \w"
    r"|^error in \w+_cuda\w*: \S"
    # The assembler of NVIDIA; the compiler and the linker of Microsoft.
    r"|\bptxas\b\S? failed with error\b"
    r"|\berror (?:LNK|C)\d{4}\b"
    r"|\bterminate called after throwing\b|\bnvcc (?:fatal\b|error while executing\b)"
    r"|\bUNREACHABLE executed at\b"
    # A library that cannot be loaded.
    r"|\.so(?:\.\d+)*: (?:cannot open shared object|undefined symbol)|\bDLL load failed\b"
    r"|\.so(?![a-z\d.]).{0,20}undefined symbol: \w|\bfailed jit build\b"
    # pip after it installed a release that another package does not accept.
    r"|^\S{2,40} \S{1,40} requires [\w-]{2,40}\b.{1,80}, but you have \S"
    # A place in sources of C++, and what fails there.
    r"|\.(?:cu|cuh|cpp|c):\d+: fatal error$"
    r"|\.(?:cu|cuh|cpp|cc|h|hpp)[:(]\d+\b.{1,200}\b(?:cannot|[Uu]nsupported|[Ff]ailed|[Ii]nvalid)\b"
)
#: A line of an installer's summary, which says nothing of the lines around it.
_SUMMARY = re.compile(r"\s*[\w. -]{1,60}: +\[?FAILED\]?\s*$")
#: A line before the stack of a crash.
_CRASH = re.compile(
    r"\b[Ee]xception [Cc]ode: 0x|\bfatal exception\b|Fatal Python error|\bException raised from \w"
)
#: Where a C++ exception was raised, and the message that a program prints before it dies of one.
_RAISED, _WHAT = re.compile(r"\bException raised from \w"), re.compile(r"\s*what\(\): ")
#: The line above such a message.
_THROWN = "terminate called after throwing"
#: ComfyUI's older report, which has the message below.
_EXECUTING = re.compile(r"Error occurred when executing [^:]{1,80}:\s*$")
#: How a shell reports that a program died, and torch's message before the place of an exception.
_DIED = re.compile(r"\s*(?:\S+ line \d+: +\d+ )?(?:Aborted|Abort trap|Segmentation fault)\b")
_CUDA = re.compile(r"(?:[\w.]+Error: )?(?:CUDA|HIP) [Ee]rror: ")
#: torch's hint below the message of an exception, with the name of the error.
_LOOK_UP = re.compile(r"Search for .(?:cuda|hip)Error\w+")
#: LLVM prints the reason on the line before.
_UNREACHABLE = re.compile(r"UNREACHABLE executed at ")
#: Lines between torch's message and the place of its exception.
_HINTS = 8
#: What torch's tracer writes before the frames of the program that it traced.
_TRACED = "from user code"
#: A line of code that raises. It stands for the exception in a report that ends with it.
_RAISES = re.compile(r"""\s*(?:raise \w+\(|assert .*["'])""")
#: What the setup of flash-attn prints outside a checkout, before it goes on.
NO_GIT = re.compile(r"\s*fatal: not a git repository")
#: How docker reports that a step of an image failed, which repeats its command.
_STEP = re.compile(r"\bERROR: (?:failed to solve: )?process \"")
#: The command of a process that ended.
_COMMAND = re.compile(r"(?<!\S)['\"]?--\w")
#: An exception without a message, and a traceback without an exception.
_BARE = re.compile(r"(?:[\w.]*(?:Error|Exception):?)?")
#: The title of a report, as it is exported and pasted.
_TITLE = re.compile(r"#{1,3} \S|[Tt]itle:")
#: A title that names the error.
_FAILS = re.compile(
    r"(?:[a-z]Error|Exception)\b|\b(?:[Ee]rror|[Ff]ail(?:s|ed|ure)?|out of memory)\b"
    r"|\bundefined symbol|(?:\b[Nn]ot|n't) (?:\w+ )?(?:work|found|installed|available"
    r"|support(?:ed)?|compatible|implemented)|\b(?:[Bb]roken?|[Cc]rash(?:e[sd])?|[Cc]annot|[Ii]llegal)\b"
    r"|\b[Nn]o (?:valid|available|suitable|matching|module)\b|报错|错误|失败"
)
#: Messages that the package is absent, after which a program may go on.
_ABSENT = re.compile(
    r"No module named|^(?!.*\b[Aa]ssertion\b).*\bnot (?:be )?(?:found|installed|available)"
    r"|[Pp]lease install"
)
#: A warning as Python's `warnings` prints it, of a program that goes on as before.
_WARNED = re.compile(r"\b\w*Warning: (?!.*\b[Ff]ailed\b)")
#: A notice that a package can be used.
_AVAILABLE = re.compile(r"(?i:\bis available\b|\bsuccessfully imported\b)")
BUILD = re.compile(
    r"(?:Failed building wheel for|Could not build wheels for"
    r"|Failed to (?:download and )?build"
    r"(?::| installable wheels for some pyproject\.toml based projects)?"
    r"|Building (?:wheel|editable) for(?=.{1,80}\berror'?$))"
    r" [`'\"(]?(?P<package>[\w.-]+)"
)


class Failure(NamedTuple):
    """One exception, or one line that reports a failure."""

    line: LogLine
    message: str
    frames: tuple[Frame, ...] = ()
    near: str = ""
    """The lines around it, where it has no frames."""
    traced: bool = False
    """torch's tracer raised it; its last frames are those of the program that it traced."""


def failures(trace: TraceLog) -> Iterator[Failure]:
    """The exceptions in which a log ends, each chain from its root, then lines that report one."""
    title = trace.lines[0] if trace.lines else None
    yield from (_titled(one, title) if title else one for one in _failures(trace))


def _failures(trace: TraceLog) -> Iterator[Failure]:
    read: set[LogLine] = set()
    chains = list(trace.failures())
    last = max((line.number for line in trace.lines), default=0)
    under = trace.below(chains[0][-1][1].failure if chains else -1)
    below = tuple(frames_of([line.text for line in under]))
    for chain in chains:
        if last - chain[-1][0].number > _WENT_ON:
            break
        for failure in _chain(trace, chain, below if chain is chains[0] else ()):
            if failure.frames:
                read.add(failure.line)
            yield failure
        if not any(reports_another(line.text) for line, _ in chain):
            break
    yield from (failure for failure in _lines(trace, last, below) if failure.line not in read)
    yield from _cut(trace)


def _titled(failure: Failure, title: LogLine) -> Failure:
    """The failure with what the title of its report says, if it says nothing itself."""
    if not _TITLE.match(title.text) or not _BARE.fullmatch(failure.message):
        return failure
    if not failure.message and _FAILS.search(title.text):
        return failure._replace(line=title, message=title.text.lstrip("# "))
    return failure._replace(near=f"{failure.near}\n{title.text}")


def _chain(
    trace: TraceLog, chain: Sequence[tuple[LogLine, Position]], below: tuple[Frame, ...]
) -> Iterator[Failure]:
    """The exceptions of a chain, its root first. `below`: frames of a traceback without one."""
    for _, entries in groupby(chain, key=lambda entry: entry[1].link):
        link = list(entries)
        failure = _exception(link, below)
        if failure is None:
            continue
        # IPython's frames have no header, so that they do not belong to the failure.
        at = trace.lines.index(failure.line)
        frames = failure.frames or tuple(
            frames_of([one.text for one in trace.lines[max(0, at - LOOK_BACK) : at]])
        )
        near = "" if frames else _around(trace, trace.lines.index(link[0][0]), at)
        traced = any(_TRACED in one.text for one in trace.lines[at : at + _LINES])
        if traced and frames != below:
            frames = (*frames, *below)
        yield failure._replace(frames=frames, near=near, traced=traced)


def _around(trace: TraceLog, first: int, at: int) -> str:
    """The lines around some, the nearest first, without those that say what a program does."""
    after = range(at + 1, min(len(trace.lines), at + 1 + AFTER))
    near = (*range(max(0, first - NEAR), first), *after)
    said = {
        i
        for i in near
        if (trace.lines[i].stamped and trace.positions[i].kind is LineKind.TEXT)
        or _AVAILABLE.search(trace.lines[i].text)
        or _of_warning(trace, i)
    }
    nearest = sorted(near, key=lambda i: first - i if i < first else i - at)
    return "\n".join(trace.lines[i].text for i in nearest if i not in said)


def _of_warning(trace: TraceLog, index: int) -> bool:
    """The line is a warning of Python, or the code that Python shows below it."""
    if _WARNED.search(trace.lines[index].text):
        return True
    above = trace.lines[index - 1].text if index else ""
    return trace.lines[index].text[:1] == " " and _WARNED.search(above) is not None


def _cut(trace: TraceLog) -> Iterator[Failure]:
    """The traceback in which a log ends without the line that says why."""
    end = trace.lines[-LOOK_BACK:]
    at = [index for index, line in enumerate(end) if FRAME.match(line.text)]
    after = trace.positions[-LOOK_BACK:][at[-1] :] if at else []
    said = any(position.kind is LineKind.EXCEPTION for position in after)
    if not at or said:
        return
    # rich and notebooks print the code around each frame.
    with_code = not end[at[-1]].text.lstrip().startswith('File "')
    most = _AFTER_CUT if len(at) >= _CUT or with_code else _AT_THE_END
    if len(end) - at[-1] <= most:
        yield Failure(end[at[-1]], "", tuple(frames_of([line.text for line in end])))


def _exception(
    link: Sequence[tuple[LogLine, Position]], open_frames: tuple[Frame, ...]
) -> Failure | None:
    raised = [line for line, at in link if at.kind is LineKind.EXCEPTION]
    if not raised:
        return None
    lines = [line for line, at in link if at.kind in (LineKind.EXCEPTION, LineKind.MESSAGE)]
    frames = tuple(frames_of([line.text for line, _ in link]))
    message = "\n".join(line.text.strip() for line in lines[:_LINES])
    line = next((line for line in lines[1:] if _MESSAGE_OF.match(line.text)), raised[-1])
    # Frames below belong to the exception only if it has none: else another process passed it on.
    return Failure(line, message[:CHARACTERS], frames or open_frames)


def _lines(trace: TraceLog, last: int, open_frames: tuple[Frame, ...]) -> Iterator[Failure]:
    """Lines near the end that report a failure without a traceback, the last one first."""
    signals, died = log_signals(), next(k for k in component_table().kind if k.id == "died")
    installed = max(
        (one.number for one in trace.lines if signals.installed.search(one.text)), default=0
    )
    parts = (one for part in component_table().outside for one in part.messages)
    pattern = re.compile("|".join((_REPORTS, _SUMMARY.pattern, *died.patterns, *parts)))
    raised = {at.failure for at in trace.positions if at.kind is LineKind.EXCEPTION}
    for index in reversed(range(len(trace.lines))):
        line, at = trace.lines[index], trace.positions[index]
        text, kind = line.text, at.kind
        code = _RAISES.match(text) and at.failure not in raised
        reported = _REPORTED.match(text) or code
        if line.number < max(installed, last - _END) or FRAME.match(text):
            continue
        if kind <= LineKind.WARNING and not reported:
            continue
        reports = reported or pattern.search(text)
        # Of what only its logger calls an error, the lines around it may not be about.
        alone = not reports and line.failing and kind >= LineKind.TEXT and not _COMMAND.search(text)
        # A package that a program misses at its end is not one that it does without.
        at_end = alone and last - line.number <= _AT_THE_END
        said_before = (BUILD, _STEP) if at_end else (_ABSENT, BUILD, _STEP)
        if not (reports or alone) or any(one.search(text) for one in said_before):
            continue
        if alone and signals.harmless.search(text):
            continue
        if signals.quoted.search(text):
            continue
        if not (signals.benign.search(text) or signals.passed.search(text) or NO_GIT.match(text)):
            line = _said_by(trace.lines, index)
            stack = trace.lines[index : index + LOOK_BACK] if _CRASH.search(text) else ()
            if line.number < trace.lines[index].number:
                stack = trace.lines[trace.lines.index(line) : index + (LOOK_BACK if stack else 1)]
            frames = open_frames or tuple(frames_of([one.text for one in stack]))
            said = f"{line.text}\n{text}" if _UNREACHABLE.match(text) else line.text
            near = "" if alone or _SUMMARY.match(text) else _around(trace, index, index)
            yield Failure(line, said.strip()[:CHARACTERS], frames, near)


def _said_by(lines: Sequence[LogLine], index: int) -> LogLine:
    """The line with the message of a failure that another line reports."""
    text = lines[index].text
    if _EXECUTING.match(text):
        return next((line for line in lines[index + 1 :] if line.text.strip()), lines[index])
    if _THROWN in text:
        below = (line for line in lines[index + 1 : index + 1 + AFTER] if _WHAT.match(line.text))
        return next(below, lines[index])
    if _UNREACHABLE.match(text):
        above = (line for line in lines[max(0, index - AFTER) : index][::-1] if line.text.strip())
        return next(above, lines[index])
    if _RAISED.search(text) or _DIED.match(text) or _LOOK_UP.match(text):
        before = lines[max(0, index - LOOK_BACK) : index][::-1]
        said = (line for line in before if _WHAT.match(line.text))
        near = (line for line in before[:_HINTS] if _CUDA.match(line.text))
        return next(said, next(near, lines[index]))
    return lines[index]
