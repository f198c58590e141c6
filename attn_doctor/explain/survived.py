"""Failures that a run survived: the program caught them, went on, and ended in another one.

Two tracebacks in one log are often one failure: a server reports that its worker died, or a module
that could not be imported is called. The later one counts only if it does not follow from the
earlier one, and if lines between them show that the program went on. A missing package is handled
if the next exception of the same chain does not follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attn_doctor.explain.components import component_table
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.tracebacks import PROMPT, LineKind, Position, TraceLog
from attn_doctor.rulebook.frames import FRAME

#: Lines with a time of day that show that a program went on, if none shows it by itself.
_INFORMED = 2
#: The same without a time of day.
_PLAIN = 10
#: Steps after a failure that show that it is over, whatever ends the run.
_STEPS = 10
#: Lines after the last step in which a run says how it ended.
_AT_THE_END = 60
#: A message, or a name, of fewer characters may be in another text by chance.
_REPEATED, _NAME = 12, 5

#: A process reports that another one failed, or a connection to it broke.
_REPORTS_ANOTHER = re.compile(
    r"(?i:\b(?:process(?:es)?|workers?|actors?|engine|child(?:ren)?|ranks?|servers?|replica|job|task"
    r"|scheduler|core)\b[^\n]{0,80}\b(?:died|dead|failed|failure|exited|exit ?code|terminated"
    r"|killed|crash\w*|initialization|unexpectedly|return ?code)\b"
    r"|\bfailed to (?:start|initialize|import|load|launch)\b|\b(?:exit|return) ?(?:code|status)\b"
    r"|\bsee (?:the )?(?:root cause|above|stack trace)|\blook up to see|\bnon-zero\b|\bsigquit\b)"
    r"|BrokenPipe|Broken pipe|EOFError|ConnectionReset|ConnectionRefused"
    r"|Connection (?:reset|refused|closed)|Timeout|timed out|ProcessGroup|NCCL|c10d|[Gg]loo"
    r"|ActorDied|ActorUnavailable|DeadError|Background loop|RayTaskError|SystemExit"
    r"|KeyboardInterrupt|CancelledError"
)
#: A person stopped the program.
_INTERRUPTED = re.compile(r"^\s*KeyboardInterrupt\b", re.MULTILINE)
#: The system stopped a process for its memory, and a program that reports that it failed.
_KILLED = re.compile(r"\s*Killed\s*$")
_FAILED = re.compile(
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|[Ff]ailed|FAILED|Aborted)\b"
    r"|\b[Ee]xit\w* .{0,20}[1-9]\d*$"
)
#: What a prompt starts, if it is a program and not a question about the environment.
_PROGRAM = re.compile(
    r"\S*python[\d.]*(?:\.exe)? (?!-[cV]|--version|-m (?:pip|venv|site|platform|torch\.utils"
    r"|xformers\.info|sglang\.check_env)\b)"
    r"|(?:torchrun|deepspeed|pytest|accelerate launch|uv run|vllm serve) "
)
#: A person says that the failure above does not occur any more, or what came after it.
_GONE = re.compile(
    r"\b(?i:(?:is|are) (?:now )?gone|(?:that|this|it|which) (?:fixed|solved|resolved)"
    r"|no longer (?:get|see|occurs?|happens?)|now (?:I|we) (?:get|have|see)"
    r"|(?:I|we) now (?:get|see))\b"
)
#: Tests ended, and none failed.
_TESTED = re.compile(r"(?!.*\b(?:failed|errors?)\b).*\b\d+ passed\b.*\bin \d|OK(?: \(.{1,80}\))?$")
#: A module cannot be imported, and what a program says later of one that it could not import.
_NOT_IMPORTED = re.compile(r"\b(?:ImportError|ModuleNotFoundError|OSError|PackageNotFoundError)\b")
ABSENT = re.compile(
    r"(?i:\bnot (?:be )?(?:defined|installed|available|found|imported|supported|callable"
    r"|compiled)\b|NoneType|\bcannot import\b|\bno module\b|\bhas no attribute\b|\bunavailable\b"
    r"|\brequires?\b|\bunknown\b|\bmissing\b|\binstall\b|\bunbound\b|\breferenced before\b"
    r"|\bassociated with a value\b)"
)
#: A package that a program can do without is absent.
_OPTIONAL = re.compile(r"\b(?:ModuleNotFoundError|PackageNotFoundError|No module named)\b")
#: Words of such a message that name a package.
_PACKAGE = re.compile(
    r"(?!(?:attention|kernels?)\b)\b\w*(?:attn|attention|xformers|triton|flashinfer|_cuda|kernel)\w*"
)
#: A failure on the GPU, after which every call fails, and one that has reasons of its own.
_STICKY = re.compile(
    r"\b(?:CUDA|cuda|HIP|hip|NCCL|cuDNN|CUDNN|cuBLAS|cublas|CUBLAS)(?: runtime| driver)?[ _]"
    r"(?:error|ERROR|Error|STATUS)|_STATUS_\w+|Triton Error \["
    r"|illegal memory access|[Uu]nspecified launch"
)
_OUT_OF_MEMORY = re.compile(r"(?i:out of memory|OutOfMemory)")
#: Names that are not defined because an import failed.
_UNDEFINED = re.compile(r"\bNameError\b|\bUnboundLocalError\b|\bNoneType\b")
_PATH = re.compile(r"\S*[/\\]\S*")
#: A word of a message, in lower case, that may name something.
_WORD = re.compile(
    r"\b(?!(?:attribute|cannot|cuda|cuda_home|directory|error|file|found|from|import|importerror"
    r"|install|installed|module|modulenotfounderror|name|named|none|object|open|oserror|please"
    r"|python|requires|shared|such|symbol|torch|undefined|using|version|with)\b)[a-z_]\w{3,}"
)
#: What a program prints at its end does not show that it went on.
_ENDS = re.compile(
    r"(?i:shut|terminat|exit|kill|abort|clean|stop|clos|destroy|fail|error|exception)"
)


class _Failure(NamedTuple):
    """A traceback of one process. Places are indexes of lines."""

    number: int
    first: int
    raised: int
    """Its last exception."""
    last: int
    message: str
    text: str
    traced: bool
    """It has frames."""
    excepted: bool
    """It has an exception."""


def reports_another(message: str) -> bool:
    """The message of a failure says that another process failed, or that it is out of reach."""
    return _REPORTS_ANOTHER.search(message) is not None


def gone_past(trace: TraceLog) -> dict[str, int]:
    """The number of the line at which a process still went on, before the failure that ended it.

    What a process reported before that line, outside a failure, did not stop it. Only for processes
    that end in a traceback.
    """
    found = {}
    for failures in _by_process(trace):
        _leave_reports(trace, failures)
        if not failures or not failures[-1].traced:
            continue
        end = failures[-1]
        went_on = _last_sign(trace, -1, end)
        if went_on >= 0 and not _asks_for_package(trace, went_on, end):
            found[trace.lines[end.first].rank] = trace.lines[went_on].number
    return found


def survived(trace: TraceLog) -> tuple[tuple[int, int], ...]:
    """The numbers of the first and the last line of each failure that its process survived."""
    found = []
    for failures in _by_process(trace):
        _leave_reports(trace, failures)
        if len(failures) < 2 or not failures[-1].traced:
            continue
        end, later = failures[-1], _Later(failures[-1])
        went_on = _last_sign(trace, failures[0].raised, end, _PLAIN)
        found += [
            (trace.lines[one.first].number, trace.lines[one.last].number)
            for one in failures[:-1]
            if one.raised < went_on and not later.follows(one)
        ]
    return (*found, *_handled(trace))


def _handled(trace: TraceLog) -> Iterator[tuple[int, int]]:
    """The lines of each missing package that a program handled before it failed for another reason.

    Python prints both exceptions as one chain.
    """
    for chain in _chains(trace):
        for at, one in enumerate(chain[:-1]):
            after = _joined(chain[at + 1 :])
            direct = trace.positions[chain[at + 1].raised].direct
            if direct or not _OPTIONAL.search(one.message) or reports_another(after.message):
                continue
            if not _Later(after).follows(one):
                yield trace.lines[one.first].number, trace.lines[one.last].number


def _chains(trace: TraceLog) -> Iterator[list[_Failure]]:
    """The exceptions of each failure with several, if each of them was read."""
    links: dict[tuple[str, int], dict[int, list[int]]] = {}
    for index, (line, position) in enumerate(zip(trace.lines, trace.positions, strict=True)):
        if position.failure >= 0:
            of_failure = links.setdefault((line.rank, position.failure), {})
            of_failure.setdefault(position.link, []).append(index)
    for (_, number), indexes in links.items():
        if len(indexes) > 1:
            chain = [_failure(trace, number, indexes[link]) for link in sorted(indexes)]
            whole = [one for one in chain if one is not None and one.excepted]
            if len(whole) == len(chain):
                yield whole


def _joined(chain: Sequence[_Failure]) -> _Failure:
    """The exceptions as one failure."""
    return chain[-1]._replace(
        first=chain[0].first,
        message="\n".join(one.message for one in chain),
        text="\n".join(one.text for one in chain),
    )


def ran_on(trace: TraceLog) -> int:
    """The number of a line after which a run only went on, by many steps; 0 if it did not."""
    steps, first = 0, 0
    for index in range(len(trace.lines) - 1, -1, -1):
        line, position = trace.lines[index], trace.positions[index]
        if log_signals().progress.search(line.text):
            steps, first = steps + 1, line.number
        elif _TESTED.match(line.text) or (steps and _starts_again(line.text)):
            # Tests passed, or this is another run of the program, which went well.
            steps, first = _STEPS, line.number
            break
        elif not line.text.strip() or (not steps and _KILLED.match(line.text)):
            continue
        elif not steps and len(trace.lines) - index > _AT_THE_END:
            return 0
        elif position.kind >= LineKind.ERROR or _fails(line.text) or _is_frame(position):
            break
    one = steps >= _STEPS and len({line.rank for line in trace.lines}) == 1
    return first if one else 0


def _starts_again(text: str) -> bool:
    """A prompt starts a program."""
    prompt = PROMPT.match(text)
    return prompt is not None and _PROGRAM.match(text, prompt.start("command")) is not None


def _is_frame(position: Position) -> bool:
    return position.kind is LineKind.NOISE and position.failure >= 0


def is_killed(trace: TraceLog) -> bool:
    """The log ends in the word with which a shell says that the system stopped a process."""
    last = next((line.text for line in reversed(trace.lines) if line.text.strip()), "")
    return _KILLED.match(last) is not None


def _fails(text: str) -> bool:
    return _FAILED.search(text) is not None or log_signals().fatal.search(text) is not None


def _leave_reports(trace: TraceLog, failures: list[_Failure]) -> None:
    """Leave out those at the end that report another one.

    An interrupt does not count if a person stopped a run that had gone on by many steps.
    """
    while failures and reports_another(failures[-1].message):
        end, after = failures[-1], failures[-2].raised if len(failures) > 1 else -1
        between = (trace.lines[index].text for index in range(after + 1, end.first))
        steps = sum(map(bool, map(log_signals().progress.search, between)))
        if steps >= _STEPS and _INTERRUPTED.search(end.message):
            return
        failures.pop()


def _asks_for_package(trace: TraceLog, went_on: int, end: _Failure) -> bool:
    """Another program asks for what an earlier one, such as pip, could not provide."""
    prompt = PROMPT.match(trace.lines[went_on].text) is not None
    about = component_table().is_about_attention(end.message)
    return prompt and about and ABSENT.search(end.message) is not None


def _by_process(trace: TraceLog) -> list[list[_Failure]]:
    """The failures of each process in their order; the last one has an exception."""
    places: dict[tuple[str, int], list[int]] = {}
    for index, (line, position) in enumerate(zip(trace.lines, trace.positions, strict=True)):
        if position.failure >= 0:
            places.setdefault((line.rank, position.failure), []).append(index)
    processes: dict[str, list[_Failure]] = {}
    for (rank, number), indexes in places.items():
        if (failure := _failure(trace, number, indexes)) is not None:
            processes.setdefault(rank, []).append(failure)
    for failures in processes.values():
        while failures and not failures[-1].excepted:
            failures.pop()
    return list(processes.values())


def _failure(trace: TraceLog, number: int, indexes: list[int]) -> _Failure | None:
    kinds = {index: trace.positions[index].kind for index in indexes}
    raised = [index for index in indexes if kinds[index] is LineKind.EXCEPTION]
    said = [index for index in indexes if kinds[index] >= LineKind.MESSAGE]
    excepted = bool(raised)
    if not raised and any(FRAME.match(trace.lines[index].text) for index in indexes):
        # A command failed, which is noise at the end of a build.
        noise = [at for at, kind in kinds.items() if kind is LineKind.NOISE]
        raised, said = noise[-1:], said or noise[-1:]
    if not raised:
        return None
    return _Failure(
        number=number,
        first=indexes[0],
        raised=raised[-1],
        last=indexes[-1],
        message="\n".join(trace.lines[index].text for index in said),
        text="\n".join(trace.lines[index].text for index in indexes),
        traced=any(kind is LineKind.NOISE for kind in kinds.values()),
        excepted=excepted,
    )


class _Later:
    """The failure that ended a process."""

    def __init__(self, failure: _Failure) -> None:
        message = failure.message
        self._message = message
        self._plain = _plain(failure.text)
        self._no_module = "No module named" in message
        self._undefined = _UNDEFINED.search(message) is not None
        self._absent = ABSENT.search(message) is not None
        self._attention = component_table().is_about_attention(message)
        self._words = _words(message)
        self._on_gpu = _fails_on_gpu(message)
        self._without_gpu = log_signals().no_gpu.search(message) is not None

    def follows(self, one: _Failure) -> bool:
        """Whether it can be a consequence of an earlier failure."""
        said = one.message.split("\n", 1)[0].partition(": ")[2].strip()
        if len(said) >= _REPEATED and said in self._message:
            return True
        on_gpu = _fails_on_gpu(one.message)
        if self._on_gpu and on_gpu:
            return True
        if self._without_gpu and (on_gpu or log_signals().no_gpu.search(one.message)):
            return True
        if not _NOT_IMPORTED.search(one.message):
            return False
        named = {_plain(word) for word in _PACKAGE.findall(one.message)}
        if any(name in self._plain for name in named if len(name) >= _NAME):
            return True
        # A module that is absent names what it lacks itself.
        about = self._attention and not self._no_module
        related = about or not self._words.isdisjoint(_words(one.message))
        return self._undefined or (self._absent and related)


def _fails_on_gpu(message: str) -> bool:
    return _STICKY.search(message) is not None and not _OUT_OF_MEMORY.search(message)


def _words(message: str) -> set[str]:
    return set(_WORD.findall(_PATH.sub(" ", message).lower()))


def _plain(text: str) -> str:
    return re.sub(r"cuda|[-_ .\d]", "", text.lower())


def _last_sign(trace: TraceLog, after: int, end: _Failure, plain: int = 1 << 30) -> int:
    """Index of the last place before a failure that shows that the program went on; else -1.

    Only places after the one at index `after` count.
    """
    rank, informed = trace.lines[end.first].rank, 0
    earliest = trace.lines[after].number if after >= 0 else 0
    if earliest < trace.stepped < trace.lines[end.first].number:
        return next(at for at in range(end.first + 1) if trace.lines[at].number > trace.stepped)
    lines = 0
    for index in range(end.first - 1, after, -1):
        line, position = trace.lines[index], trace.positions[index]
        if line.rank != rank:
            continue
        if _starts_again(line.text) or _GONE.search(line.text):
            return index
        if _ENDS.search(line.text):
            continue
        said = position.kind is LineKind.TEXT and bool(line.text.strip())
        informed += bool(line.stamped) and said
        lines += said
        if lines >= plain or informed >= _INFORMED or log_signals().progress.search(line.text):
            return index
    return -1
