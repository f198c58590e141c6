"""A notice about attention that did not stop the run: shown, without the exit code of a cause."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

from collections.abc import Callable

from attn_doctor.explain.explanation import Explanation, Outcome

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

END = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/run.py", line 3, in main\n'
    "    image = Image.open(path)\n"
    "PIL.UnidentifiedImageError: cannot identify image file\n"
)
WARNING = "/a/attention.py:344: UserWarning: 1Torch was not compiled with flash attention.\n"


def test_a_notice_that_a_rule_knows(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "silent-sdpa-fallback", "Torch was not compiled with flash attention")
    found = explained(WARNING + END)
    assert found.outcome is Outcome.NOTHING
    assert found.note is not None
    assert (found.note.rule, found.note.line) == ("a/b", 1)


def test_a_notice_of_a_rule_about_each_gpu(rule: WriteRule, explained: Explain) -> None:
    pattern = "Torch was not compiled with flash attention"
    rule(
        "a/b", "silent-sdpa-fallback", pattern, more='for_each = "gpus"', title="{gpu.name} is old"
    )
    assert explained(WARNING + END).note is not None


def test_a_warning_of_a_component(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    log = "WARNING 04-20 00:18:19 [a.py:72] Failed to initialize the FlashInfer workspace\nstep 1\nstep 2\n"
    found = explained(log)
    assert found.outcome is Outcome.NOTHING
    assert found.note is not None
    assert (found.note.component, found.note.line) == ("flashinfer", 1)


def test_a_warning_of_a_compiler_of_kernels(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    log = "/a/timing.py:42: UserWarning: Failed to launch Triton kernels; a slower one is used\nstep 1\nstep 2\n"
    note = explained(log).note
    assert note is not None
    assert (note.component, note.line) == ("triton", 1)


def test_no_note_beside_a_cause_and_of_other_lines(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "cannot identify image file")
    assert explained(WARNING + END).note is None
    assert explained("WARNING: the disk is almost full, saving failed\nstep 1\n").note is None
    # An entry of a changelog only quotes it.
    assert explained("- fix: warning that xformers could not be loaded\nstep 1\n").note is None
