"""Lines without what carried them, and broken lines put together."""

from __future__ import annotations

import textwrap

import pytest

from attn_doctor.explain.normalize import NormalizedLog, to_ascii

MESSAGE = "RuntimeError: FlashAttention only supports Ampere GPUs or newer, and this one is older."


def texts(data: str) -> list[str]:
    return [line.text for line in NormalizedLog(1, data.encode()).lines]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("\x1b[1;35mRuntimeError\x1b[0m: \x1b[35mno kernel\x1b[0m", "RuntimeError: no kernel"),
        ("\x1b]8;;file:///a\x07link\x1b]8;;\x07 text", "link text"),
        ("text\r\n", "text"),
        ("[rank3]: ValueError: x", "ValueError: x"),
        ("[default0]:ValueError: x", "ValueError: x"),
        ("[1,3]<stderr>: ValueError: x", "ValueError: x"),
        ("3: ValueError: x", "ValueError: x"),
        ("(RayTrainWorker pid=71, ip=10.0.0.2) ValueError: x", "ValueError: x"),
        ("(VllmWorker rank=1 pid=71) ValueError: x", "ValueError: x"),
        ("> **ValueError: x.** Then `f(**a, **b)`", "ValueError: x. Then `f(**a, **b)`"),
        ("**kwargs, **other", "**kwargs, **other"),
        ("(ServeReplica:default:LLM pid=71) ValueError: x", "ValueError: x"),
        ("(task pid=71) [repeated 3x across cluster] ValueError: x", "ValueError: x"),
        ("2025-11-21T10:00:00.1234567Z ValueError: x", "ValueError: x"),
        ('2025-11-21T10:00:00.1234567Z   File "a.py"', '  File "a.py"'),
        ("2025-11-21T10:00:00.123456Z 01E ValueError: x", "ValueError: x"),
        ("[2025-11-21 10:00:00,123] ValueError: x", "ValueError: x"),
        ("[2025-11-21 10:00] ValueError: x", "ValueError: x"),
        ("Nov 21 10:00:00 node7 train[81]: ValueError: x", "ValueError: x"),
        ("2025-11-21T10:00:00.123456789+00:00 stderr F ValueError: x", "ValueError: x"),
        ("2025-11-21T10:00:00+0100 node7 train[81]: ValueError: x", "ValueError: x"),
        ("2025-11-21 10:00:00,123 - train - ERROR - ValueError: x", "ValueError: x"),
        ("2025-11-21 10:00:00.123 | ERROR    | train:main:88 - ValueError: x", "ValueError: x"),
        ("ERROR 11-21 10:00:00 [core.py:700] ValueError: x", "ValueError: x"),
        ("E1121 10:00:00.123000 140 torch/_inductor/a.py:7] ValueError: x", "ValueError: x"),
        ("trainer-1  | ValueError: x", "ValueError: x"),
        ("[pod/train-7d9f8b/trainer] ValueError: x", "ValueError: x"),
        ("#12 33.417 ValueError: x", "ValueError: x"),
        ("^[[31mValueError^[[0m: x", "ValueError: x"),
        ("[31mValueError: x[0m", "ValueError: x"),
        ("  │ exit code: 1", "exit code: 1"),
        ("  ╰─> [22 lines of output]", "[22 lines of output]"),
        ("│ ValueError: x          │", "ValueError: x"),
        ("  | ValueError: x", "ValueError: x"),
        ("> ValueError: x", "ValueError: x"),
        ("> > [rank0]: ValueError: x", "ValueError: x"),
        (">>> import flash_attn", ">>> import flash_attn"),
        ("    indented", "    indented"),
        ("12%|█▏   | 12/100 [00:01<00:09, 9.1it/s]ValueError: x", "ValueError: x"),
    ],
)
def test_a_line(line: str, text: str) -> None:
    assert texts(line) == [text]


@pytest.mark.parametrize(
    "line", ["```", "```shell", "╭──────────╮", "+-+---------------- 1 ----------------"]
)
def test_lines_that_only_draw(line: str) -> None:
    assert texts(line) == []


def test_a_box_may_carry_the_head_of_a_traceback() -> None:
    head = "╭───────────── Traceback (most recent call last) ─────────────╮"
    assert "Traceback (most recent call last)" in texts(head)[0]


def test_carriage_returns_part_lines_of_one_number() -> None:
    bar = "\r".join(f"{n}%|{'█' * n}| {n}/9 [00:01<00:02]" for n in range(9))
    page = NormalizedLog(7, f"start\n{bar}\rCUDA error\nend\n".encode())
    assert [(line.number, line.text) for line in page.lines] == [
        (7, "start"),
        (8, "CUDA error"),
        (9, "end"),
    ]


def test_bytes_of_no_encoding() -> None:
    page = NormalizedLog(1, b"gut\n" + "Größe\n".encode("cp1252") + "漢字\n".encode())
    assert [line.text for line in page.lines] == ["gut", "Größe", "漢字"]


def test_ranks_are_kept_apart() -> None:
    log = "[rank0]: a\n[rank1]: A\n[rank0]: b\nplain\n[rank1]: B\n"
    page = NormalizedLog(1, log.encode())
    assert [(line.rank, line.number) for line in page.lines] == [
        ("0", 1), ("0", 3), ("1", 2), ("1", 5), ("", 4),
    ]  # fmt: skip
    assert "A\nB" in page.text


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize("prefix", ["", "> ", "    │ "])
def test_words_parted_by_a_column(width: int, prefix: str) -> None:
    said = (
        "Some words before it that fill the line, as error messages with long paths do: " + MESSAGE
    )
    lines = textwrap.wrap(said, width - len(prefix))
    page = NormalizedLog(
        1, "\n".join(["before", *(prefix + line for line in lines), "after"]).encode()
    )
    assert MESSAGE not in page.text
    assert any(MESSAGE in form for form in page.joined)


@pytest.mark.parametrize("width", [50, 80])
def test_letters_parted_by_a_column(width: int) -> None:
    said = (
        "Some words before it that fill the line, as error messages with long paths do: " + MESSAGE
    )
    lines = [said[at : at + width] for at in range(0, len(said), width)]
    page = NormalizedLog(1, "\n".join(lines).encode())
    assert any(MESSAGE in form for form in page.joined)


def test_lines_that_are_not_broken_stay_apart() -> None:
    log = (
        "a line of some length that could well be at the edge of a terminal of its width\n"
        '  File "/usr/lib/python3/site-packages/flash_attn/flash_attn_interface.py", line 10\n'
        "ValueError: something else that is long enough to look like it was broken, but no\n"
        "2025-11-21 10:00:00 another line with a time in front of it, which begins something"
    )
    assert NormalizedLog(1, log.encode()).joined == ()


def test_places_lead_back_to_lines() -> None:
    said = (
        "Some words before it that fill the line, as error messages with long paths do: " + MESSAGE
    )
    page = NormalizedLog(10, "\n".join(["before", *textwrap.wrap(said, 80), "after"]).encode())
    assert page.lines[page.index_at(page.text.index("after"))].number == page.lines[-1].number
    for form, text in enumerate(page.joined):
        assert page.lines[page.index_in(form, text.index("Some words"))].number == 11
        assert page.lines[page.index_in(form, text.index("FlashAttention"))].number == 12
        assert page.lines[page.index_in(form, text.index("after"))].text == "after"


def test_a_time_on_every_line_begins_nothing() -> None:
    page = NormalizedLog(1, b"2025-11-21T10:00:00Z Traceback\n2025-11-21T10:00:00Z   File\n")
    assert not any(line.stamped for line in page.lines)
    page = NormalizedLog(1, b"2025-11-21 10:00:00,123 ERROR x\n  File\n")
    assert [bool(line.stamped) for line in page.lines] == [True, False]


def test_prose_that_is_broken_evenly_is_joined() -> None:
    data = (
        "      <string>:106: UserWarning: flash_attn was requested, but\n"
        "      nvcc was not found.  Are you sure your environment has nvcc\n"
        "      available?  If you're installing within a container from\n"
        "      https://hub.docker.com/r/pytorch/pytorch, only images whose names\n"
    )
    assert (
        "flash_attn was requested, but nvcc was not found."
        in NormalizedLog(1, data.encode()).joined[0]
    )


def test_a_bracket_before_a_word_is_no_colour() -> None:
    log = b"[m[multiproc_executor.py:751] [mode] [mps][0m\n"
    assert NormalizedLog(1, log).text == "[multiproc_executor.py:751] [mode] [mps]"


def test_full_width_punctuation_is_read_as_ascii() -> None:
    text = "ＲｕｎｔｉｍｅＥｒｒｏｒ：ｎｏ（１，２）！「a」。"
    assert to_ascii(text) == 'RuntimeError:no(1,2)!"a".'
