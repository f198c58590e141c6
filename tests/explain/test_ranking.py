"""The confidence in a cause: the sum of its weights, and the order of causes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Confirmation, Explanation
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.relevance import LogEnd, log_end
from attn_doctor.explain.tracebacks import TraceLog
from attn_doctor.facts import Facts, Gpu, Torch

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

#: 45 characters of plain text, all that a symptom can say.
LINE = "RuntimeError: the kernel does not work on this GPU of"
CPU = "[when]\nall = ['torch.build == \"cpu\"']"


def confidence(found: Explanation) -> float:
    return found.matches[0].confidence


def test_a_specific_exception_without_facts(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", LINE)
    assert confidence(explained(LINE)) == 0.9  # 0.45 + 0.25 + 0.2


def test_further_symptoms_and_rules_add_up_to_a_limit(rule: WriteRule, explained: Explain) -> None:
    lines = [f"INFO kernel {word} is slow" for word in ("alpha", "bravo", "carol", "delta")]
    for count, expected in ((1, 0.0), (2, 0.06), (3, 0.12), (4, 0.12)):
        rule("a/b", "torch-cpu-only", *lines[:count])
        alone = confidence(explained(lines[0]))
        assert round(confidence(explained("\n".join(lines))) - alone, 2) == expected
    rule("a/c", "torch-cpu-only", lines[0])
    both = explained(lines[0])
    assert round(both.matches[0].confidence - alone, 2) == 0.06
    assert both.matches[0].also == ("a/c",)


def test_code_beside_the_line_that_failed_is_no_symptom(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "No kernel here")
    code = 'raise RuntimeError("No kernel here")'
    other = "--> 302 start()\nTypeError: start() takes no arguments"
    assert not explained(f"    296     {code}\n{other}").matches
    assert not explained(f"│   296 │   │   {code}  │\n{other}").matches
    assert explained(f"--> 296     {code}\n").matches
    assert explained(f"    296     {code}\n--> 302 start()\nRuntimeError: No kernel here").matches


def test_a_note_that_the_run_goes_on_does_not_explain_a_later_failure(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "error: fast attention failed to import")
    note = "error: fast attention failed to import. Falling back to native attention."
    later = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
    assert explained(note).matches
    assert not explained(f"{note}\n{later}ValueError: the learning rate is negative").matches
    long = note.replace(".", f": {'a reason ' * 20}.", 1)
    assert not explained(f"{long}\n{later}ValueError: the learning rate is negative").matches


@pytest.mark.parametrize(
    "line",
    [
        f"- Fixed: {LINE}",
        f'$ grep -rn "{LINE}" logs/',
        f"SKIPPED [1] tests/test_attention.py:10: {LINE}",
        f"1a2b3c4 Fix {LINE}",
        f"If you see `{LINE}`, install another release.",
        f"If you see `{LINE}, for {'a reason ' * 20}`, install another release.",
        f'    with pytest.raises(RuntimeError, match="{LINE}"):',
        f'src/checks.py:41:        "{LINE}"',
        f"src/checks.py:# {LINE}",
        f"I have fixed the error `{LINE}` by another torch, now I get this:",
        f"The earlier error ({LINE}) is gone.",
        f"I no longer get `{LINE}`.",
    ],
)
def test_a_line_that_quotes_a_failure_is_no_failure(
    rule: WriteRule, explained: Explain, line: str
) -> None:
    rule("a/b", "torch-cpu-only", LINE)
    assert not explained(line).matches
    assert explained(f"{line}\n{LINE}").matches
    standing = "xFormers can't load C++/CUDA extensions. xFormers was built for another torch"
    rule("a/c", "xformers-torch-mismatch", "xFormers was built for")
    assert not explained(line.replace(LINE, standing)).matches


def test_facts_of_the_log_and_of_the_machine(rule: WriteRule, explained: Explain) -> None:
    line = "INFO kernel alpha is slow"
    rule("a/b", "torch-cpu-only", line, tail=CPU)
    alone = confidence(explained(line))

    def added(version: str, build: str | None = None) -> float:
        machine = None if build is None else Facts(torch=Torch(installed=True, build=build))  # type: ignore[arg-type]
        log = f"PyTorch version: {version}\n{line}" if version else line
        return round(confidence(explained(log, machine)) - alone, 2)

    assert added("2.6.0+cpu") == 0.12
    assert added("2.6.0+cu124") == -0.25
    assert added("", "cpu") == 0.08
    assert added("", "cuda") == -0.08


def test_a_consequence_is_below_its_root_cause(rule: WriteRule, explained: Explain) -> None:
    rule("a/root", "torch-cpu-only", "INFO kernel alpha is slow")
    rule("b/consequence", "no-matching-wheel", LINE, more='requires = ["a/root"]')
    found = explained(f"INFO kernel alpha is slow\n{LINE}")
    assert [match.rule for match in found.matches] == ["a/root", "b/consequence"]
    first, second = (match.confidence for match in found.matches)
    assert round(first - second, 2) == 0.05


def test_a_cause_with_a_low_score_is_not_claimed(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "slow kernel", tail=CPU)
    log = "PyTorch version: 2.6.0+cu124\nWARNING: slow kernel\n" + "step\n" * 20 + "Killed\n"
    assert explained(log).matches == ()


def end_of(log: str) -> LogEnd:
    return log_end("a.log", TraceLog(NormalizedLog(1, log.encode()).lines))


def test_the_end_of_a_log_is_its_last_message_or_a_later_fatal_line() -> None:
    failure = "step\nRuntimeError: no\nmore\n"
    assert end_of(failure) == LogEnd("a.log", "RuntimeError: no\nmore", 2, 3)
    assert end_of(f"{failure}\ncp: No space left on device\n") == LogEnd(
        "a.log", "cp: No space left on device", 5, 5
    )
    assert end_of("No space left on device\n") == LogEnd("a.log", "No space left on device", 1, 1)
    assert end_of(f"No space left on device\n\n{failure}") == LogEnd(
        "a.log", "RuntimeError: no\nmore", 4, 5
    )
    assert end_of("step\n") == LogEnd("a.log")


def test_a_log_end_that_is_one_line_in_two_roles() -> None:
    """The fatal line is the message itself."""
    assert end_of("step\ntorch.OutOfMemoryError: CUDA out of memory\nmore\n").last == 3


def test_a_fact_that_the_machine_does_not_have_keeps_the_confidence(
    rule: WriteRule, explained: Explain
) -> None:
    line = "INFO kernel alpha is slow"
    rule("a/b", "torch-cpu-only", line, tail=CPU)
    assert confidence(explained(line, Facts())) == confidence(explained(line))


def test_a_cause_says_what_its_rule_says(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", LINE, tail=CPU, why="the build is {torch.build}")
    found = explained(f"PyTorch version: 2.6.0+cpu\n{LINE}").matches[0]
    assert found.severity == "error"
    assert found.why == "the build is cpu"
    assert found.evidence == ("https://github.com/pytorch/pytorch/issues/1",)
    on_machine = explained(LINE, Facts(torch=Torch(installed=True, build="cpu"))).matches[0]
    assert on_machine.why == "the build is cpu"


EACH = 'for_each = "gpus"'
OLD = "[when]\nall = ['gpu.sm < 80']"


def test_a_machine_without_the_parts_of_a_rule_excludes_it(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/old", "torch-cpu-only", LINE, more=EACH, tail=OLD)
    none = explained(LINE, Facts(gpus=())).matches[0]
    assert (none.confirmation, none.reason) == (Confirmation.NO, "there are no GPUs")
    old = explained(LINE, Facts(gpus=(Gpu(index=0, sm=75),))).matches[0]
    assert old.confirmation is Confirmation.BY_MACHINE
    unknown = explained(LINE, Facts(gpus=(Gpu(index=0),))).matches[0]
    assert (unknown.confirmation, unknown.reason) == (Confirmation.UNKNOWN, "gpu.sm unknown")


NOTE = "WARNING: flash_attn not found, install it for speed\n"
STEPS = "step 1/100 loss 2.3\nstep 2/100 loss 2.2\n"


@pytest.mark.parametrize(
    ("log", "claimed"),
    [
        (NOTE, True),
        (NOTE + STEPS, False),
        (STEPS + NOTE, True),
        (NOTE + STEPS + "RuntimeError: flash_attn not found, install it for speed\n", True),
        ("RuntimeError: flash_attn not found, install it\n" + STEPS, True),
    ],
    ids=["alone", "goes on", "after the steps", "fails", "raised"],
)
def test_a_note_on_an_optional_package_is_no_cause_of_a_run_that_goes_on(
    rule: WriteRule, explained: Explain, log: str, claimed: bool
) -> None:
    rule("a/b", "package-not-installed", "flash_attn not found, install it")
    assert bool(explained(log).matches) is claimed


def test_a_bar_shows_that_a_run_goes_on(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "package-not-installed", "flash_attn not found, install it")
    bar = " 45%|####5     | {}/20 [00:11<00:15,  {}it/s]\n"
    stamp = "[2024-06-11 16:01] "
    assert not explained(f"{stamp}{NOTE}{stamp}{bar.format(9, '1.76')}").matches
    assert explained(f"{stamp}{NOTE}{stamp}{bar.format(0, '?')}").matches


@pytest.mark.parametrize(("lines", "claimed"), [(0, True), (2, False)], ids=["asked", "goes on"])
def test_a_traceback_of_a_note_is_no_cause_of_a_run_that_goes_on(
    rule: WriteRule, explained: Explain, lines: int, claimed: bool
) -> None:
    rule("a/b", "triton-missing", "No module named 'triton'", severity="info")
    note = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'triton'\n"
    assert bool(explained(note + "loading\n" * lines + STEPS).matches) is claimed


def test_a_program_that_says_which_attention_it_uses_needs_no_other_package(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "package-not-installed", "xFormers not available")
    note = "xFormers not available\n"
    assert explained(note).matches
    assert not explained(f"Using pytorch attention\n{note}").matches
    failed = "Traceback (most recent call last):\nImportError: xFormers not available\n"
    assert explained(f"Using pytorch attention\n{note}{failed}").matches


def test_an_exception_without_a_message_may_come_from_a_package_that_is_absent(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "package-not-installed", "assert fast_func is not None")
    frame = "File ~/a.py:98, in run(x)\n---> 98     assert fast_func is not None\n\n"
    assert explained(f"{frame}AssertionError: ").matches
    assert not explained(f"{frame}ValueError: the learning rate is negative").matches


def test_a_note_that_the_run_goes_on_does_not_explain_a_crash(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "Error running fast attention")
    note = "Error running fast attention: no. Falling back to native attention.\n"
    assert explained(note).matches
    for crash in ("Fatal Python error: Aborted", "Segmentation fault (core dumped)"):
        assert not explained(f"{note}{crash}\n").matches


def test_a_note_on_what_is_used_instead_is_no_cause_of_a_run_that_goes_on(
    rule: WriteRule, explained: Explain
) -> None:
    note = "the fast kernel wants Hopper. Defaulting to the other kernel"
    run = "step 10 loss=0.3\nstep 20 loss=0.2"
    rule("a/b", "torch-cpu-only", "the fast kernel wants Hopper")
    assert explained(note).matches
    assert not explained(f"{note}\n{run}").matches
    assert explained(f"Error: {note}\n{run}").matches


NOT_FOUND = "ERROR: No matching distribution found for flash-attn==2.8.3"


@pytest.mark.parametrize(
    ("before", "explains"),
    [
        ("Looking in indexes: https://pypi.org/simple", True),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'", False),
        ("$ pip install --no-index flash-attn==2.8.3", False),
        (
            "Retrying: connection broken by 'X'\nsatisfies flash-attn==2.9 (from versions: 2.8.3)",
            True,
        ),
    ],
)
def test_an_installer_that_read_no_index_does_not_know_what_it_has(
    rule: WriteRule, explained: Explain, before: str, explains: bool
) -> None:
    rule("a/b", "no-matching-wheel", NOT_FOUND)
    assert bool(explained(f"{before}\n{NOT_FOUND}").matches) is explains


@pytest.mark.parametrize(
    ("message", "explains"),
    [
        ("RuntimeError: shape '[3]' is invalid for input of size 2", False),
        ("AssertionError", True),
        ("NameError: name 'kernel' is not defined", True),
        ("RuntimeError: no attention kernel", True),
    ],
)
def test_a_note_on_an_optional_package_does_not_explain_another_exception(
    rule: WriteRule, explained: Explain, message: str, explains: bool
) -> None:
    rule("a/b", "package-not-installed", "the kernel package is not installed")
    log = f"the kernel package is not installed\nTraceback (most recent call last):\n{message}"
    assert bool(explained(log).matches) is explains


def test_a_package_that_is_not_ready_is_no_cause_where_it_was_built_at_last(
    rule: WriteRule, explained: Explain
) -> None:
    rule("flash/a", "no-matching-wheel", "no wheel was found")
    log = "flash_attn: no wheel was found, building it\n"
    assert explained(log).matches
    assert not explained(f"{log}Successfully installed flash_attn-2.8.3\n").matches
    failed = "Traceback (most recent call last):\nRuntimeError: no wheel was found\n"
    assert explained(f"Successfully installed einops-0.8\n{failed}").matches


def test_a_warning_of_the_driver_explains_that_a_program_has_no_gpu(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "gpu-not-available", "CUDA driver initialization failed")
    warning = "/a/torch/cuda/__init__.py:52: UserWarning: CUDA driver initialization failed\n"
    end = 'Traceback (most recent call last):\n  File "setup.py", line 47, in f\n    raise X()\n'
    assert explained(f"{warning}{end}NotImplementedError: Cuda is not availabel").matches
    assert not explained(f"{warning}{end}NotImplementedError: no such option").matches


@pytest.mark.parametrize(("build", "named"), [("cpu", "a/facts"), ("cuda", "a/log")])
def test_a_rule_that_the_machine_confirms_stands_for_one_that_only_reads_logs(
    rule: WriteRule, explained: Explain, build: str, named: str
) -> None:
    line = "RuntimeError: the kernel alpha has no code"
    rule("a/facts", "torch-cpu-only", "another alpha", tail=CPU)
    rule("a/log", "torch-cpu-only", line, more='requires = ["a/facts"]')
    machine = Facts(torch=Torch(installed=True, build=build))  # type: ignore[arg-type]
    [match] = explained(line, machine).matches
    assert (match.rule, match.line) == (named, 1)
    assert (match.confirmation is Confirmation.BY_MACHINE) == (named == "a/facts")
