"""Which line belongs to which failure, and what is the root of a chain."""

from __future__ import annotations

import pytest

from attn_doctor.explain.normalize import LogLine, NormalizedLog
from attn_doctor.explain.tracebacks import LineKind, Position, TraceLog


def places(log: str) -> dict[str, Position]:
    page = NormalizedLog(1, log.encode())
    return {
        line.text.strip(): place
        for line, place in zip(page.lines, TraceLog(page.lines).positions, strict=True)
    }


CHAIN = """\
Loading
Traceback (most recent call last):
  File "a.py", line 1, in f
    import flash_attn
ImportError: libcudart.so.12: cannot open shared object file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in g
    raise RuntimeError(
RuntimeError: Failed to import transformers.models.llama because of the following error:
libcudart.so.12: cannot open shared object file: No such file

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "c.py", line 3, in h
ValueError: no model
"""


def test_a_chain() -> None:
    found = places(CHAIN)
    root = found["ImportError: libcudart.so.12: cannot open shared object file"]
    assert root == Position(LineKind.EXCEPTION, failure=0, link=0)
    message = found["libcudart.so.12: cannot open shared object file: No such file"]
    assert message == Position(LineKind.MESSAGE, failure=0, link=1, direct=True)
    assert found["ValueError: no model"] == Position(LineKind.EXCEPTION, failure=0, link=2)
    assert found["import flash_attn"].kind is LineKind.NOISE
    assert found["Loading"] == Position(LineKind.TEXT)


def test_failures_one_after_the_other() -> None:
    found = places(
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'a'\n\n"
        "going on\n"
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'b'\n"
    )
    assert found["KeyError: 'a'"].failure == 0
    assert found["KeyError: 'b'"].failure == 1
    assert found["going on"].failure == -1


def test_a_log_without_the_head_of_its_traceback() -> None:
    found = places('  File "a.py", line 1, in <module>\n    x()\nRuntimeError: no\n')
    assert found["RuntimeError: no"] == Position(LineKind.EXCEPTION, failure=0)


def test_ranks_fail_each_for_itself() -> None:
    log = "".join(f"[rank{rank}]: {line}\n" for line in CHAIN.splitlines() for rank in (0, 1))
    page = NormalizedLog(1, log.encode())
    found = TraceLog(page.lines).positions
    ends = [
        p for line, p in zip(page.lines, found, strict=True) if line.text == "ValueError: no model"
    ]
    assert [(one.failure, one.link) for one in ends] == [(0, 2), (1, 2)]


def test_how_a_build_ends_says_nothing() -> None:
    found = places(
        "  error: subprocess-exited-with-error\n"
        "  × Getting requirements to build wheel did not run successfully.\n"
        "  │ exit code: 1\n"
        "  ╰─> [20 lines of output]\n"
        "      Traceback (most recent call last):\n"
        '        File "<string>", line 20, in <module>\n'
        "      ModuleNotFoundError: No module named 'torch'\n"
        "      [end of output]\n"
        "ERROR: Failed building wheel for flash-attn\n"
    )
    assert found["ModuleNotFoundError: No module named 'torch'"].kind is LineKind.EXCEPTION
    assert found["ERROR: Failed building wheel for flash-attn"].kind is LineKind.NOISE
    assert found["error: subprocess-exited-with-error"].kind is LineKind.NOISE


def test_warnings_and_errors_outside_of_tracebacks() -> None:
    found = places(
        "/a/b.py:12: UserWarning: flex_attention called without torch.compile()\n"
        "WARNING: A matching Triton is not available\n"
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
        "frame #3: c10::Error::Error(...) + 0x57 (0x7f in /lib/libc10.so)\n"
        "step 12 loss 0.3\n"
    )
    assert [one.kind for one in found.values()] == [
        LineKind.WARNING, LineKind.WARNING, LineKind.ERROR, LineKind.NOISE, LineKind.TEXT,
    ]  # fmt: skip


def test_exception_groups() -> None:
    found = places(
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "a.py", line 2, in <module>\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "b.py", line 7, in work\n'
        "    | ImportError: libcudart.so.12: cannot open shared object file\n"
        "    +------------------------------------\n"
    )
    inner = found["ImportError: libcudart.so.12: cannot open shared object file"]
    assert inner.kind is LineKind.EXCEPTION
    assert inner.link == 0


def test_a_launcher_that_ends_says_nothing_of_the_reason() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        "    import flash_attn\n"
        "ModuleNotFoundError: No module named 'flash_attn'\n"
        "E0304 10:11:12.123000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed\n"
        "Traceback (most recent call last):\n"
        '  File "/venv/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    lines = NormalizedLog(1, log.encode()).lines
    course = TraceLog(lines)
    assert course.is_final(3)
    assert [line.text for line in course.last_message()] == [
        "ModuleNotFoundError: No module named 'flash_attn'"
    ]
    assert course.positions[8].kind is LineKind.NOISE


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: no kernel", LineKind.EXCEPTION),
        ("torch._inductor.exc.InductorError: broken", LineKind.EXCEPTION),
        ("KeyboardInterrupt", LineKind.EXCEPTION),
        ("UserWarning: RuntimeError: no kernel", LineKind.WARNING),
        ("WARNING: attention is slow", LineKind.WARNING),
        ("W0304 10:11:12.123000 140 torch/a.py:7] slow", LineKind.WARNING),
        ("error: Microsoft Visual C++ is required", LineKind.ERROR),
        ("Killed", LineKind.ERROR),
        ("undefined symbol: _ZN3c10", LineKind.ERROR),
        ("loading the model", LineKind.TEXT),
        ("Failed to build flash-attn", LineKind.NOISE),
        ("ninja: build stopped: subcommand failed.", LineKind.NOISE),
        ("error: subprocess-exited-with-error", LineKind.NOISE),
        ("frame #3: <unknown function> + 0x29d90", LineKind.NOISE),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", LineKind.NOISE),
    ],
)
def test_the_kind_of_a_line(line: str, kind: LineKind) -> None:
    (position,) = TraceLog(NormalizedLog(1, line.encode()).lines).positions
    assert position.kind is kind


def test_kinds_are_ordered_by_their_nearness_to_the_reason() -> None:
    assert sorted(LineKind) == [
        LineKind.NOISE,
        LineKind.WARNING,
        LineKind.TEXT,
        LineKind.MESSAGE,
        LineKind.ERROR,
        LineKind.EXCEPTION,
    ]


def traced(log: str) -> TraceLog:
    return TraceLog(NormalizedLog(1, log.encode()).lines)


def kinds(log: str) -> list[LineKind]:
    return [position.kind for position in traced(log).positions]


HEAD = "Traceback (most recent call last):\n"


def test_the_message_of_an_exception_has_a_limit() -> None:
    log = "RuntimeError: no\n" + "more\n" * 61
    assert kinds(log) == [LineKind.EXCEPTION, *[LineKind.MESSAGE] * 60, LineKind.TEXT]


@pytest.mark.parametrize("end", ["\n", "  \n"])
def test_an_empty_line_ends_a_message(end: str) -> None:
    log = f"RuntimeError: no\nmore\n{end}afterwards\n"
    assert kinds(log) == [LineKind.EXCEPTION, LineKind.MESSAGE, LineKind.TEXT, LineKind.TEXT]


def test_a_stamped_line_ends_a_traceback_and_a_message() -> None:
    stamped = "2026-11-21 10:00:00,123 - INFO - going on\n"
    found = traced(f"{HEAD}{stamped}name: text\n").positions
    assert [position.failure for position in found] == [0, -1, -1]
    assert kinds(f"RuntimeError: no\n{stamped}") == [LineKind.EXCEPTION, LineKind.TEXT]


def test_a_warning_in_a_message_is_not_a_part_of_it() -> None:
    log = "RuntimeError: no\nWARNING: slow\nmore\n"
    assert kinds(log) == [LineKind.EXCEPTION, LineKind.WARNING, LineKind.MESSAGE]


def test_an_exception_whose_name_does_not_end_in_error() -> None:
    found = traced(f'{HEAD}  File "a.py", line 1\ntriton.Oops: it broke\nmore\nlast\n').positions
    assert found[2] == Position(LineKind.EXCEPTION, failure=0)
    assert [position.kind for position in found[3:]] == [LineKind.MESSAGE] * 2
    assert traced("triton.Oops: it broke\n").positions == [Position(LineKind.TEXT)]
    # A line with an error is not one.
    assert kinds(f"{HEAD}gcc: error: cannot\n")[1] is LineKind.ERROR


def test_code_in_a_traceback_says_nothing_and_other_text_does() -> None:
    shown = f"{HEAD}----> 5 import flash_attn\n3 import torch\nplain text\n"
    assert kinds(shown) == [LineKind.NOISE, LineKind.NOISE, LineKind.NOISE, LineKind.TEXT]
    assert traced(shown).positions[3].failure == 0


def test_code_is_indented_further_than_its_frame() -> None:
    log = f'{HEAD}  File "a.py", line 1\n    error: code\n  error: not code\n'
    assert kinds(log) == [LineKind.NOISE, LineKind.NOISE, LineKind.NOISE, LineKind.ERROR]
    # Before the first frame the limit is the indent of a frame.
    assert kinds(f"{HEAD}   error: code\n") == [LineKind.NOISE, LineKind.NOISE]
    assert kinds(f"{HEAD}  error: not code\n") == [LineKind.NOISE, LineKind.ERROR]


def test_the_lines_between_two_exceptions_of_a_chain() -> None:
    between = "During handling of the above exception, another exception occurred:\n"
    log = f"{HEAD}KeyError: 'a'\n{between}text\n{HEAD}ValueError: b\n"
    found = traced(log).positions
    assert found[2] == Position(LineKind.NOISE, failure=0)
    assert found[3] == Position(LineKind.TEXT)
    assert found[5] == Position(LineKind.EXCEPTION, failure=0, link=1)


def test_a_new_failure_forgets_how_the_last_one_was_chained() -> None:
    direct = "The above exception was the direct cause of the following exception:\n"
    one = f"{HEAD}KeyError: 'a'\n"
    both = traced(f"{one}{direct}{one}\n{one}").positions
    exceptions = [place for place in both if place.kind is LineKind.EXCEPTION]
    assert [(place.failure, place.link, place.direct) for place in exceptions] == [
        (0, 0, False),
        (0, 1, True),
        (1, 0, False),
    ]


def test_another_process_does_not_continue_a_chain_or_a_message() -> None:
    between = "During handling of the above exception, another exception occurred:\n"
    log = f"[rank0]: {HEAD}[rank0]: KeyError: 'a'\n[rank0]: {between}[rank1]: {HEAD}"
    found = places(f"{log}[rank1]: ValueError: b\n[rank0]: text\n")
    assert (found["ValueError: b"].failure, found["ValueError: b"].link) == (1, 0)
    assert found["text"].kind is LineKind.TEXT


def test_a_launcher_ends_the_traceback() -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    log = f"{HEAD}KeyError: 'a'\n\n{HEAD}{launcher}text\nname: text\n"
    trace = traced(log)
    assert [place.kind for place in trace.positions[5:]] == [LineKind.TEXT] * 2
    assert trace.positions[5].failure == -1
    assert trace.is_final(1)
    # Without a traceback of its own it is not a failure.
    alone = traced(f"{HEAD}KeyError: 'a'\n{launcher}")
    assert alone.is_final(1)
    assert [line.text for line in alone.last_message()] == ["KeyError: 'a'"]


def test_failures_after_a_launcher_count() -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    trace = traced(f"{HEAD}{launcher}\n{HEAD}KeyError: 'a'\n")
    assert [line.text for line in trace.last_message()] == ["KeyError: 'a'"]


def test_the_distance_to_the_last_failure_that_a_line_is_no_part_of() -> None:
    trace = traced(f"start\n{HEAD}KeyError: 'a'\n\ntext\nKilled\nlater\n")
    assert [trace.distance(index) for index in range(7)] == [5, 4, 3, 2, 1, 0, 0]
    assert [traced("a\nb\n").distance(index) for index in (0, 1)] == [0, 0]
    # A line of the failure itself is at no distance from it.
    alone = traced(f"start\n{HEAD}KeyError: 'a'\n")
    assert [alone.distance(index) for index in range(3)] == [2, 0, 0]
    two = traced(f"{HEAD}KeyError: 'a'\n\n{HEAD}ValueError: b\n")
    assert two.distance(1) == 3
    other = traced(f"[rank0]: text\n[rank1]: {HEAD}[rank1]: KeyError: 'a'\n")
    assert other.distance(0) == 0


def test_without_a_failure_there_is_no_last_message() -> None:
    for log in ("", "a\nb\n"):
        trace = traced(log)
        assert trace.last_message() == []
    assert not traced("a\n").is_final(0)
    two = traced(f"{HEAD}KeyError: 'a'\n\n{HEAD}ValueError: b\nmore\n")
    assert [line.text for line in two.last_message()] == ["ValueError: b", "more"]
    assert not two.is_final(1)


def failure_of(log: str) -> tuple[list[str], list[str]]:
    """The lines of the last failure of a log, and those below it, without their blanks."""
    trace = traced(log)
    own: list[tuple[LogLine, Position]] = next(trace.failures(), [])
    below = trace.below(own[-1][1].failure if own else -1)
    for line, place in own:
        assert place.failure >= 0, line.text
    return [line.text.strip() for line, _ in own], [line.text.strip() for line in below]


def test_the_lines_of_the_last_failure_with_an_exception() -> None:
    head = HEAD.splitlines()
    first, last = f"{HEAD}KeyError: 'a'\n", f"{HEAD}ValueError: b\nmore\n"
    stripped = [line.strip() for line in head]
    assert failure_of(f"start\n{first}\ntext\n{last}\nend\n") == (
        [*stripped, "ValueError: b", "more"],
        [],
    )
    assert failure_of(f"start\n{first}\ntext\n")[0] == [*stripped, "KeyError: 'a'"]


def test_frames_below_the_last_exception_have_none_of_their_own() -> None:
    own, below = failure_of(f"{HEAD}KeyError: 'a'\n\n{HEAD}")
    assert own[-1] == "KeyError: 'a'"
    assert below == [line.strip() for line in HEAD.splitlines()]


def test_without_an_exception_the_last_failure_is_empty() -> None:
    assert failure_of("a\nb\n") == ([], [])
    assert failure_of(f"a\n{HEAD}") == ([], [line.strip() for line in HEAD.splitlines()])


def test_a_launcher_is_not_the_last_failure() -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    own, _ = failure_of(f"{HEAD}KeyError: 'a'\n\n{HEAD}{launcher}")
    assert own[-1] == "KeyError: 'a'"


def test_the_last_failure_may_be_of_any_process() -> None:
    prefixed = "".join(f"[rank1]: {line}\n" for line in HEAD.splitlines())
    own, _ = failure_of(f"[rank0]: text\n{prefixed}[rank1]: KeyError: 'a'\n[rank0]: more\n")
    assert own[-1] == "KeyError: 'a'"


def test_an_exception_without_frames_is_a_failure_too() -> None:
    assert failure_of("step\nRuntimeError: no kernel\n")[0] == ["RuntimeError: no kernel"]
    assert failure_of("step\nRuntimeError: no kernel\nmore\n")[0] == [
        "RuntimeError: no kernel",
        "more",
    ]


def test_a_compiler_quotes_its_source() -> None:
    quoted = (
        "triton.compiler.errors.CompilationError: at 3:7:\n    x = 1\n\n    y = x +\n       ^\n"
    )
    found = places(f"{HEAD}{quoted}ValueError('no')\nend")
    assert found["y = x +"].kind is LineKind.MESSAGE
    assert found["ValueError('no')"] == Position(LineKind.EXCEPTION, 0)
    # It may end before the reason.
    found = places(f"{HEAD}{quoted[:-9]}{HEAD}KeyError: 'a'")
    assert found["KeyError: 'a'"] == Position(LineKind.EXCEPTION, 1)
