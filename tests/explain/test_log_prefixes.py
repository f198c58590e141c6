"""Records, escaped texts and signs that look alike, turned into what the program said."""

from __future__ import annotations

import json

import pytest

from attn_doctor.explain.normalize import NormalizedLog, to_ascii, unwrap

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "C:\\venv\\new\\train.py", line 3, in <module>\n'
    "    import flash_attn\n"
    "ModuleNotFoundError: No module named 'flash_attn'"
)


@pytest.mark.parametrize(
    "record",
    [
        {"log": f"{TRACEBACK}\n", "stream": "stderr", "time": "2025-03-04T10:11:12Z"},
        {"level": "error", "message": TRACEBACK},
        {"jsonPayload": 1, "error": {"message": TRACEBACK}},
    ],
)
def test_a_record_says_what_the_program_said(record: dict[str, object]) -> None:
    assert list(unwrap(json.dumps(record))) == TRACEBACK.split("\n")


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 0.31, 'learning_rate': 1e-05}",
        '{"loss": 0.31, "step": 4}',
        '{"broken": ',
        "cannot open C:\\new\\nvidia\\notes.txt",
        "plain text",
    ],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert list(unwrap(line)) == [line]


def test_a_traceback_in_one_string_is_parted() -> None:
    line = "500 Server Error: " + repr(TRACEBACK)
    assert unwrap(line)[-1].startswith("ModuleNotFoundError: No module named 'flash_attn'")


def test_signs_that_look_alike() -> None:
    text = "ModuleNotFoundError:\u00a0No module named \u2018flash_attn\u2019 \u201chere\u201d"
    assert to_ascii(text) == "ModuleNotFoundError: No module named 'flash_attn' \"here\""
    assert to_ascii("&lt;module&gt; &quot;a&#39;b&quot; &amp;") == '<module> "a\'b" &'
    assert to_ascii("CUDA Error\uff1a no kernel") == "CUDA Error: no kernel"


def test_lines_of_a_record_have_its_number() -> None:
    data = json.dumps({"log": TRACEBACK}) + "\nlast\n"
    page = NormalizedLog(1, data.encode())
    assert [line.number for line in page.lines] == [1, 1, 1, 1, 2]


def test_a_traceback_that_lost_its_line_ends_is_taken_apart() -> None:
    line = (
        'Traceback (most recent call last): File "a b.py", line 14, in from unsloth import Fast'
        ' File "C:\\u\\__init__.py", line 103, in import triton'
        " ModuleNotFoundError: No module named 'triton'"
    )
    assert unwrap(line) == [
        "Traceback (most recent call last):",
        '  File "a b.py", line 14, in from unsloth import Fast',
        '  File "C:\\u\\__init__.py", line 103, in import triton',
        "ModuleNotFoundError: No module named 'triton'",
    ]
    ranks = (
        '[rank0]: Traceback (most recent call last): [rank0]: File "f.py", line 5, in [rank0]: go()'
    )
    assert list(unwrap(ranks)) == [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]: File "f.py", line 5, in [rank0]: go()',
    ]


def test_a_part_of_a_traceback_that_lost_its_line_ends_is_taken_apart() -> None:
    line = 'File "a.py", line 3, in f g() File "b.py", line 4, in g h() ValueError: no'
    assert unwrap(line) == [
        '  File "a.py", line 3, in f',
        "    g()",
        '  File "b.py", line 4, in g',
        "    h()",
        "ValueError: no",
    ]


def test_a_cell_of_a_table_is_taken_apart() -> None:
    assert unwrap("| `pip` | `a b`<br>`c`<br/>`d` |") == ["a b", "c", "d"]
    assert unwrap("| one | a || b<br>c |") == ["a || b", "c"]
    assert unwrap("one<br>two") == ("one<br>two",)


def test_an_error_within_an_error_stays_on_its_line() -> None:
    said = "x.InductorError: LoweringException: AssertionError: target: flex_attention"
    line = f'Traceback (most recent call last): File "a.py", line 3, in f go() {said}'
    assert unwrap(line)[-1] == said


def test_words_about_a_traceback_stay_whole() -> None:
    line = "It prints Traceback (most recent call last): and then stops"
    assert unwrap(line) == (line,)


@pytest.mark.parametrize("level", ["[INFO]", "[ERROR]"])
def test_an_exception_is_no_name_of_a_logger(level: str) -> None:
    stamp = f"[2024-09-21 18:10:18] {level} "
    data = "\n".join(stamp + line for line in TRACEBACK.split("\n"))
    page = NormalizedLog(1, data.encode())
    assert page.text == TRACEBACK
    named = NormalizedLog(1, f"{stamp}train.main: started\n".encode())
    assert named.text.strip() == "started"


@pytest.mark.parametrize("prefix", ["app[web.1]: ", "0|app  | ", "10:11:12.123 | ERROR   | Run - "])
def test_an_unknown_prefix_of_a_traceback_is_left_out(prefix: str) -> None:
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: x'
    carried = "\n".join(prefix + line for line in log.split("\n"))
    assert NormalizedLog(1, carried.encode()).text == log


def test_words_before_a_traceback_are_no_prefix() -> None:
    log = 'ERROR: Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x'
    assert NormalizedLog(1, log.encode()).text == log
