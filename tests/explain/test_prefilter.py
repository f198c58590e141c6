"""The prefilter lets through what a plain search finds, and little else."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attn_doctor.explain.keywords import Keywords
from attn_doctor.explain.log_files import LogChunk
from attn_doctor.explain.prefilter import Prefilter

NEEDLE = b"RuntimeError: FlashAttention only supports Ampere GPUs or newer."


def chunks(lines: list[bytes], size: int = 1 << 16) -> Iterator[LogChunk]:
    """The lines as blocks."""
    first, data = 1, b""
    number = 0
    for number, line in enumerate(lines, 1):
        data += line + b"\n"
        if len(data) > size:
            yield LogChunk(first, data)
            first, data = number + 1, b""
    yield LogChunk(first, data)


def log(count: int) -> list[bytes]:
    rng = random.Random(4)
    return [
        b"step %d loss %.4f lr %.2e grad_norm %.3f" % (n, rng.random(), rng.random(), rng.random())
        for n in range(count)
    ]


def test_a_needle_anywhere() -> None:
    for place in (0, 1, 4000, 19_998, 19_999):
        lines = log(20_000)
        lines[place] = NEEDLE
        found = list(Prefilter(Keywords(["flashattention"])).passages(chunks(lines)))
        assert len(found) == 1
        at = found[0].data.split(b"\n").index(NEEDLE)
        assert found[0].first + at == place + 1
        assert found[0].keywords == {"flashattention"}
        # Enough around it to see what led to it.
        wanted = min(place, 100)
        assert at >= wanted


def test_nothing_is_let_through_of_a_log_without_keywords() -> None:
    assert (
        list(Prefilter(Keywords(["flashattention", "libcuda"])).passages(chunks(log(20_000)))) == []
    )


def test_keywords_within_words_and_in_any_case() -> None:
    lines = log(5000)
    lines[10] = b"import LIBCUDA.so"
    lines[2500] = b"see my_flashattention2_fork"
    found = list(Prefilter(Keywords(["flashattention", "libcuda"])).passages(chunks(lines)))
    assert [one.keywords for one in found] == [{"libcuda"}, {"flashattention"}]


def test_a_line_that_repeats_is_read_a_few_times_only() -> None:
    lines = log(60_000)
    for place in range(0, 60_000, 2):
        lines[place] = b"%d warning: flashattention is slow here" % place
    found = list(Prefilter(Keywords(["flashattention"])).passages(chunks(lines)))
    assert 1 <= len(found) <= 4


def test_another_line_with_the_same_word_is_read_as_well() -> None:
    lines = log(60_000)
    for place in range(0, 60_000, 2):
        lines[place] = b"%d warning: flashattention is slow here" % place
    lines[30_001] = NEEDLE
    found = list(Prefilter(Keywords(["flashattention"])).passages(chunks(lines)))
    assert any(NEEDLE in one.data for one in found)


def test_a_progress_bar_may_carry_a_needle() -> None:
    bar = b"\r".join(b"%d%%|## | %d/100 [00:01<00:02]" % (n, n) for n in range(100))
    lines = log(3000)
    lines[1500] = bar + b"\r" + NEEDLE
    found = list(Prefilter(Keywords(["flashattention"])).passages(chunks(lines)))
    assert any(NEEDLE in one.data for one in found)


def test_what_differs_in_every_line_ends_at_a_limit() -> None:
    rng = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = [b"libcuda " + "".join(rng.choices(letters, k=30)).encode() for _ in range(20_000)]
    found = list(Prefilter(Keywords(["libcuda"])).passages(chunks(lines, 1 << 12)))
    assert sum(len(one.data) for one in found) < 20_000_000
    assert len(found) <= 300


def test_a_log_that_never_repeats_a_line_is_read_all_the_same() -> None:
    rng = random.Random(5)
    words = [bytes(rng.choices(b"abcdefgh", k=6)) for _ in range(400)]
    lines = [b" ".join(rng.choices(words, k=9)) for _ in range(120_000)]
    lines[110_000] = NEEDLE
    prefilter = Prefilter(Keywords(["flashattention"]))
    assert [NEEDLE in one.data.split(b"\n") for one in prefilter.passages(chunks(lines))] == [True]
    assert prefilter.skipped == 0
