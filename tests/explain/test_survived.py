"""A caught exception is not the cause of a later failure that does not follow from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Explanation
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.survived import survived
from attn_doctor.explain.tracebacks import TraceLog

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

CAUGHT = """\
Traceback (most recent call last):
  File "/app/model.py", line 3, in <module>
    import flash_attn_2_cuda
ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E
"""
INFORMED = """\
2026-01-02 10:00:02,321 INFO loader.py:88 loading weights
2026-01-02 10:00:09,001 INFO model.py:33 model has 8030261248 parameters
"""


def failure(message: str, frame: str = "/app/train.py") -> str:
    return f'Traceback (most recent call last):\n  File "{frame}", line 9, in run\n{message}\n'


UNRELATED = failure("KeyError: 'labels'")
PLAIN = "\nloading weights\nloading the tokenizer\nbuilding the model\n"


def of(log: str) -> tuple[tuple[int, int], ...]:
    return survived(TraceLog(NormalizedLog(1, log.encode()).lines))


@pytest.mark.parametrize("between", [INFORMED, "\nstep 3 loss 2.31\n", "\ngot prompt\n", PLAIN * 4])
def test_a_failure_that_the_run_survived(between: str) -> None:
    assert of(CAUGHT + between + UNRELATED) == ((1, 4),)


@pytest.mark.parametrize(
    "between",
    [
        "",
        "\n",
        INFORMED.split("\n", 1)[0] + "\n",  # one line shows little
        PLAIN,
        "2026-01-02 10:00:02 INFO shutting down\n2026-01-02 10:00:03 INFO closing\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n",
    ],
)
def test_nothing_shows_that_the_run_went_on(between: str) -> None:
    assert of(CAUGHT + between + UNRELATED) == ()


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
ABSENT = failure("ModuleNotFoundError: No module named 'sageattention'", "/app/attention.py")


def test_a_missing_package_that_was_handled_before_another_failure() -> None:
    assert of(ABSENT + HANDLING + UNRELATED) == ((1, 5),)


@pytest.mark.parametrize(
    "after",
    [
        HANDLING + failure("ImportError: please install sageattention"),
        HANDLING + failure("SystemExit: 1"),
        "\nThe above exception was the direct cause of the following exception:\n\n" + UNRELATED,
        HANDLING + 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in run\n',
    ],
)
def test_a_missing_package_that_ended_the_run(after: str) -> None:
    assert of(ABSENT + after) == ()


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "ray.exceptions.ActorDiedError: The actor died because of an error",
        "RuntimeError: worker process exited with code 1",
        "NameError: name 'flash_attn_func' is not defined",
        "TypeError: 'NoneType' object is not callable",
        "ValueError: flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E",
        "ValueError: flash-attn 2 refuses this",  # the package that could not be imported
    ],
)
def test_a_consequence_leaves_its_cause(message: str) -> None:
    assert of(CAUGHT + INFORMED + failure(message)) == ()


@pytest.mark.parametrize(
    "message",
    [
        "ModuleNotFoundError: No module named 'imageio_ffmpeg'",
        "ValueError: unknown scheduler flowmatch2",
        "AttributeError: 'Scheduler' object has no attribute 'set_shift'",
    ],
)
def test_something_else_that_is_absent_is_no_consequence(message: str) -> None:
    assert of(CAUGHT + INFORMED + failure(message)) == ((1, 4),)


def test_each_call_fails_after_a_failure_on_the_gpu() -> None:
    first = failure("RuntimeError: CUDA error: an illegal memory access was encountered")
    assert of(first + INFORMED + failure("RuntimeError: cuDNN error: EXECUTION_FAILED")) == ()
    assert of(first + INFORMED + failure("torch.OutOfMemoryError: CUDA out of memory."))
    refused = failure("ValueError: Query must be on a CUDA device.")
    assert of(refused + INFORMED + failure("RuntimeError: CUDA error: launch failure"))


def test_without_a_gpu_a_later_part_asks_for_one() -> None:
    first = failure("RuntimeError: No CUDA GPUs are available")
    assert of(first + INFORMED + failure("NotImplementedError: You need a GPU.")) == ()


def test_the_frames_of_a_traced_program_belong_to_its_failure() -> None:
    traced = (
        failure("torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node")
        + '\nfrom user code:\n   File "/app/model.py", line 9, in forward\n    return self.fc(x)\n'
    )
    assert of(CAUGHT + INFORMED + traced) == ((1, 4),)
    trace = TraceLog(NormalizedLog(1, traced.encode()).lines)
    assert [line.number for line in trace.last_message()] == [3]


def test_an_exception_whose_name_ends_in_missing() -> None:
    end = failure("torch._inductor.exc.TritonMissing: Cannot find a working triton installation.")
    assert of(CAUGHT + INFORMED + end) == ((1, 4),)


def test_the_last_failure_of_each_process_counts() -> None:
    both = CAUGHT + INFORMED
    ranks = "".join(f"[rank1]: {line}\n" for line in UNRELATED.splitlines())
    assert of(both + ranks) == ()


def test_the_later_failure_is_explained(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol: _ZN3c10[^ ]+")
    rule("a/c", "dtype-not-half", "only fp16")
    later = failure("RuntimeError: only fp16")
    matches = explained(CAUGHT + INFORMED + later).matches
    assert [one.cause for one in matches] == ["dtype-not-half"]
    assert len(explained(CAUGHT + later).matches) == 2


def test_a_survived_failure_explains_no_later_one(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol: _ZN3c10[^ ]+")
    found = explained(CAUGHT + INFORMED + UNRELATED)
    assert (found.matches, found.guess) == ((), None)
    assert explained(CAUGHT + UNRELATED).matches


def test_the_component_of_the_later_failure_is_named(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol: _ZN3c10[^ ]+")
    later = failure("ValueError: bad layout", "/venv/lib/site-packages/xformers/ops/fmha/common.py")
    guess = explained(CAUGHT + INFORMED + later).guess
    assert guess is not None
    assert guess.component == "xformers"


def test_what_a_process_reported_before_it_went_on_gives_way(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "gpu-too-old-for-flash", "Cannot use FA version 2")
    rule("a/c", "dtype-not-half", "only fp16")
    reported = "2026-01-02 10:00:01,007 ERROR fa_utils.py:57 Cannot use FA version 2\n"
    end = failure("RuntimeError: only fp16")
    found = explained(reported + INFORMED + end)
    assert [one.cause for one in found.matches] == ["dtype-not-half"]
    assert len(explained(reported + end).matches) == 2
    assert explained(reported + INFORMED + UNRELATED).matches == ()
    assert explained(reported + INFORMED).matches


def test_a_report_that_the_end_repeats_stays(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "gpu-too-old-for-flash", "Cannot use FA version 2")
    reported = "2026-01-02 10:00:01,007 ERROR fa_utils.py:57 Cannot use FA version 2\n"
    found = explained(reported + INFORMED + failure("RuntimeError: Cannot use FA version 2"))
    assert [one.line for one in found.matches] == [6]


def test_a_defect_that_stays_is_named_before_another_failure(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "xformers-torch-mismatch", "xFormers was built for")
    warned = (
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.0.1+cu118 with CUDA 1108 (you have 2.2.1+cu121)\n"
        "    Python  3.10.11 (you have 3.10.6)\n"
    )
    end = failure("KeyError: 'Sampler'")
    found = explained(warned + end)
    assert [one.cause for one in found.matches] == ["xformers-torch-mismatch"]
    last = len((warned + end).splitlines())
    words = f"The log ends in another failure (line {last}), which this does not explain."
    assert words in found.conflicts
    assert not any("python.version" in sentence for sentence in found.conflicts)
    assert words not in explained(warned).conflicts


STEPS = "".join(f"step {number}: loss=0.{40 - number}\n" for number in range(1, 21))
PROMPTS = (
    "$ python run.py\n",
    "(venv) me@host:~/app$ python3 run.py --steps 3\n",
    "(venv) $ CUDA_VISIBLE_DEVICES=0 torchrun run.py\n",
    "PS C:\\app> python run.py\n",
    "C:\\app>.venv\\Scripts\\python.exe run.py\n",
    "$ python -m app.run\n",
)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_another_run_of_a_program_leaves_the_failure_behind(prompt: str) -> None:
    assert of(CAUGHT + prompt + UNRELATED)
    absent = failure("ImportError: flash_attn_2_cuda is not available")
    assert not of(CAUGHT + prompt + absent)


@pytest.mark.parametrize(
    "prompt",
    [
        "$ python -c 'import torch; torch.version()'\n",
        "$ python --version\n",
        "$ python -m pip install flash-attn\n",
        "$ python -m torch.utils.collect_env\n",
        "$ pip list\n",
    ],
)
def test_a_question_about_the_environment_is_no_further_run(prompt: str) -> None:
    assert not of(CAUGHT + prompt + UNRELATED)


def test_a_prompt_does_not_continue_a_message(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    trace = TraceLog(NormalizedLog(1, (CAUGHT + "$ pip list\ntorch 2.8.0\n").encode()).lines)
    assert [line.number for line in trace.last_message()] == [4]
    assert explained(CAUGHT + "$ pip list\ntorch 2.8.0\n").matches


def test_what_pip_could_not_install_is_no_earlier_run(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "no-matching-wheel", "Failed building wheel for flash-attn")
    log = "ERROR: Failed building wheel for flash-attn\n$ python run.py\n"
    assert explained(log + failure("ImportError: flash_attn is not installed")).matches
    assert not explained(log + UNRELATED).matches


def test_a_person_stopped_a_run_that_went_on() -> None:
    stopped = failure("KeyboardInterrupt")
    assert of(CAUGHT + STEPS + stopped)
    assert not of(CAUGHT + "step 1: loss=0.4\n" + stopped)


@pytest.mark.parametrize("end", ["", "Killed\n", "Process exited with code 0\n"])
def test_many_steps_after_a_failure(rule: WriteRule, explained: Explain, end: str) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    found = explained(CAUGHT + STEPS + end)
    assert not found.matches
    assert found.note is not None
    assert found.note.rule == "a/b"


@pytest.mark.parametrize(
    "end", ["Process exited with code 1\n", "ERROR the run failed\n", "Segmentation fault\n"]
)
def test_steps_before_another_end(rule: WriteRule, explained: Explain, end: str) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    assert explained(CAUGHT + STEPS + end).matches
    assert explained(CAUGHT + STEPS[:60] + "Killed\n").matches


def test_what_is_used_instead_in_a_run_that_goes_on(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    warned = "WARNING attention.py: CUDA error: undefined symbol, using SDPA\n"
    assert explained(warned).matches
    assert not explained(warned + STEPS).matches
    assert explained(warned.replace(", using SDPA", "") + STEPS).matches


DEBUG = "2026-01-02 10:00:01,100 {}not available: ImportError: undefined symbol: _Z3f\n"


@pytest.mark.parametrize("level", ["DEBUG probe.py:12 ", "- DEBUG - ", "[DEBUG] ", "DEBUG: "])
def test_a_line_for_who_looks_for_faults(rule: WriteRule, explained: Explain, level: str) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    found = explained(DEBUG.format(level) + INFORMED)
    assert (found.matches, found.guess) == ((), None)
    assert found.note is not None
    assert found.note.rule == "a/b"
    assert explained(DEBUG.format("ERROR probe.py:12 ") + INFORMED).matches


def test_a_traceback_in_such_lines_is_a_failure(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    log = "".join(f"2026-01-02 10:00:01,100 DEBUG {line}\n" for line in CAUGHT.splitlines())
    assert explained(log).matches


def test_a_module_that_is_absent_does_not_follow_from_another_failure() -> None:
    absent = failure("ModuleNotFoundError: No module named 'sageattention'")
    assert of(CAUGHT + INFORMED + absent)
    assert not of(CAUGHT + INFORMED + failure("ImportError: attention is not installed"))
    about = "ImportError: cannot import name 'f' from 'torch.nn.attention'"
    assert of(failure(about) + INFORMED + failure("ValueError: attention mode 'a' is bad"))


@pytest.mark.parametrize(
    "line",
    [
        "I no longer get `FlashAttention only supports Ampere GPUs`.\n",
        'src/checks.py:41:        "FlashAttention backward requires A100"\n',
        "2026-01-02 10:00:01,100 DEBUG probe.py:12 error: FlashAttention is not available\n",
    ],
)
def test_such_lines_are_no_guess(rule: WriteRule, explained: Explain, line: str) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "a message that no log here has")
    assert explained(line).guess is None


def test_a_command_that_failed_is_an_exception() -> None:
    command = failure(
        "CalledProcessError: Command '['gcc', 'main.c']' returned non-zero exit status 1."
    )
    assert of(command + STEPS + UNRELATED)
    assert not of(command + UNRELATED)


BARS = "".join(f" {n * 5}%|#| {n}/20 [00:{n:02d}<00:19,  1.01s/it]\r" for n in range(1, 9)) + "\n"


def test_bars_show_that_a_run_went_on(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    assert not explained(CAUGHT + BARS + UNRELATED).matches
    assert explained(BARS + CAUGHT + UNRELATED).matches
    assert not explained(BARS + CAUGHT + BARS + UNRELATED).matches


def test_the_next_step_of_a_workflow(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    ended = "##[error]Process completed with exit code 1.\n"
    steps = f"##[group]Run python a.py\n{CAUGHT}{ended}##[group]Run python b.py\n{UNRELATED}{ended}"
    log = "".join(f"2026-01-02T10:00:00.1234567Z {line}\n" for line in steps.splitlines())
    assert not explained(log).matches
    assert explained(log.replace("##[group]Run python b.py", "the next part")).matches


@pytest.mark.parametrize(
    "said",
    [
        "After reinstalling it is gone. Now I get:\n",
        "That fixed it, but now I see another one:\n",
        "I no longer get this one.\n",
    ],
)
def test_a_person_shows_an_earlier_failure(said: str) -> None:
    assert of(f"I used to get this:\n\n{CAUGHT}\n{said}\n{UNRELATED}")
    assert not of(f"I get this:\n\n{CAUGHT}\nThen I reinstalled it:\n\n{UNRELATED}")


@pytest.mark.parametrize(
    "end",
    [
        "================ 39 passed, 2 skipped in 12.20s ================\n",
        "Ran 41 tests in 12.203s\n\nOK (skipped=1)\n",
        "$ python run.py\nloading the model\nSaved outputs/video.mp4\n",
    ],
)
def test_tests_that_pass_and_a_run_that_ends_well(
    rule: WriteRule, explained: Explain, end: str
) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    warned = "/app/a.py:31: UserWarning: a.so: undefined symbol: _Z3f\n"
    for log in (CAUGHT, warned):
        assert explained(log).matches
        assert not explained(f"{log}\n{end}").matches
    failed = end.replace("39 passed", "1 failed, 39 passed").replace("OK (", "FAILED (errors=1, ")
    assert explained(f"{CAUGHT}\n{failed.replace('Saved', 'ERROR: nothing saved:')}").matches


def test_a_test_that_was_left_out(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "ext-torch-abi-mismatch", "undefined symbol")
    assert not explained("test_f (tests.test_a.TestF) ... skipped 'undefined symbol'\n").matches
