"""Failures of other software that share words with a rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.explanation import Explanation
from attn_doctor.rulebook import library

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

SITE = "/py/lib/python3.12/site-packages"
MESSAGE = "RuntimeError: the device has no kernel for this launch"


def traceback(*frames: tuple[str, str], message: str = MESSAGE) -> str:
    """A traceback with a file and a line of code for each frame, the outermost first."""
    lines = (f'  File "{path}", line 7, in call\n    {code}\n' for path, code in frames)
    return "".join(("Traceback (most recent call last):\n", *lines, message))


TRAIN = ("/work/train.py", "model(x)")
TORCH = (f"{SITE}/torch/nn/modules/module.py", "return forward_call(*args)")


@pytest.mark.parametrize(
    "frames",
    [
        [TRAIN, (f"{SITE}/bitsandbytes/functional.py", "lib.cgemm(a)")],
        [TRAIN, (f"{SITE}/flash_attn/modules/mlp.py", "fc(x)"), (f"{SITE}/apex/mlp.py", "run(x)")],
        [TRAIN, (f"{SITE}/some_model/blocks.py", "scan(x)"), TORCH],
    ],
    ids=["no part of attention", "below a frame of the rule's package", "any package"],
)
def test_another_package_that_raises_the_same_message(
    rule: WriteRule, explained: Explain, frames: list[tuple[str, str]]
) -> None:
    rule("flash/a", "torch-cpu-only", "the device has no kernel for this launch")
    assert not explained(traceback(*frames)).matches


@pytest.mark.parametrize(
    "frames",
    [
        [TRAIN],
        [TRAIN, TORCH],
        [TRAIN, (f"{SITE}/flash_attn/flash_attn_interface.py", "fwd(q)"), TORCH],
        [TRAIN, (f"{SITE}/flash_attn-2.8.3-py3.12-linux-x86_64.egg/flash_attn/a.py", "fwd(q)")],
        [TRAIN, (f"{SITE}/some_model/blocks.py", "y = flash_attn_func(q)")],
        [TRAIN, (f"{SITE}/transformers/trainer.py", "outputs = model(**inputs)")],
    ],
    ids=["a program", "torch", "the package", "its egg", "its caller", "a library that calls it"],
)
def test_a_failure_that_can_be_of_the_package(
    rule: WriteRule, explained: Explain, frames: list[tuple[str, str]]
) -> None:
    rule("flash/a", "torch-cpu-only", "the device has no kernel for this launch")
    assert explained(traceback(*frames)).matches


@pytest.mark.parametrize(
    ("frames", "message", "other"),
    [
        ([("/work/mlp.py", "mlp_kernel(x)"), (f"{SITE}/triton/runtime/jit.py", "run()")], "", True),
        (
            [("/work/mine.py", "attention(x)"), (f"{SITE}/triton/runtime/jit.py", "run()")],
            "",
            False,
        ),
        ([TRAIN], "triton_tem_fused_addmm_relu_0", True),
        ([TRAIN], "triton_tem_fused_flex_attention_0", False),
        ([TRAIN], "", False),
    ],
)
def test_other_kernels_print_what_those_of_attention_print(
    rule: WriteRule, explained: Explain, frames: list[tuple[str, str]], message: str, other: bool
) -> None:
    rule("flex/a", "torch-cpu-only", "the device has no kernel for this launch")
    found = explained(traceback(*frames, message=f"{MESSAGE} {message}")).matches
    assert (not found) is other


def test_a_message_about_attention_counts_wherever_it_is_raised(
    rule: WriteRule, explained: Explain
) -> None:
    rule("flash/a", "torch-cpu-only", "FlashAttention only works on a GPU")
    frame = (f"{SITE}/bitsandbytes/nn.py", "y = op(x)")
    message = "RuntimeError: FlashAttention only works on a GPU"
    assert explained(traceback(TRAIN, frame, message=message)).matches


def test_a_rule_that_names_the_package(rule: WriteRule, explained: Explain) -> None:
    rule("torch/a", "torch-cpu-only", "bitsandbytes has no kernel")
    frame = (f"{SITE}/bitsandbytes/functional.py", "lib.cgemm(a)")
    assert explained(traceback(frame, message="RuntimeError: bitsandbytes has no kernel")).matches


def test_a_package_that_is_only_listed_did_not_fail(rule: WriteRule, explained: Explain) -> None:
    near = "pattern = 'no kernel for this launch'\nnear = ['flash_attn']\nlogs = ['x']"
    rule("a/b", "torch-cpu-only", tail=f"[[symptom]]\n{near}")
    assert explained(f"import flash_attn\n{MESSAGE}").matches
    for listed in ("flash_attn==2.8.3", "flash_attn   2.8.3", "[pip3] flash_attn==2.8.3"):
        assert not explained(f"{listed}\n{MESSAGE}").matches


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("ValueError: bad head size", True),
        ('  File "/v/sage/core.py", line 3, in fwd\n    check(q)\nValueError: bad head size', True),
        ('  File "C:\\v\\sage\\core.py", line 3, in fwd\nValueError: bad head size', True),
        (
            (
                '  File "/v/sage/core.py", line 3, in fwd\n    return op(q)\n'
                '  File "/v/torch/_ops.py", line 9, in __call__\nValueError: bad head size'
            ),
            True,
        ),
        ('  File "/v/mine.py", line 3, in fwd\nValueError: bad head size', False),
        (
            (
                '  File "/v/sage/core.py", line 3, in fwd\n    return mine(q)\n'
                '  File "/v/mine.py", line 3, in fwd\nValueError: bad head size'
            ),
            False,
        ),
    ],
)
def test_a_symptom_can_ask_for_the_frame_that_raised(
    rule: WriteRule, explained: Explain, log: str, found: bool
) -> None:
    rule("torch/b", "torch-cpu-only", "bad head size'''\nframe = '''sage/core.* fwd")
    traceback = f"Traceback (most recent call last):\n{log}" if "File" in log else log
    assert bool(explained(traceback).matches) == found


@pytest.mark.parametrize("place", ["bitsandbytes/functional.py", "gsplat/cuda/_wrapper.py"])
def test_kernels_of_other_packages_are_not_those_of_torch(place: str) -> None:
    message = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    log = traceback(TRAIN, (f"{SITE}/{place}", "run(x)"), message=message)
    found = explain([], library.load(), texts=[log])
    assert not {"torch/lacks-gpu-arch", "torch/no-kernel-image"} & {m.rule for m in found.matches}


#: Failures of any program.
GENERAL = (
    "RuntimeError: The size of tensor a (77) must match the size of tensor b (64)",
    "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
    "KeyError: 'attention_mask'",
    "TypeError: forward() got an unexpected keyword argument 'mask'",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "ImportError: cannot import name 'load_model' from 'utils' (/home/me/utils.py)",
    "ModuleNotFoundError: No module named 'einops'",
    "RuntimeError: CUDA error: device-side assert triggered",
    "ValueError: not enough values to unpack (expected 4, got 3)",
    "AssertionError",
    "OSError: [Errno 28] No space left on device",
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "RuntimeError: Trying to backward through the graph a second time",
    "AssertionError: dim must be divisible by num_heads",
    "RuntimeError: shape '[1, 77, 8, 64]' is invalid for input of size 39424",
    "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
    "error: unrecognized arguments: --foo",
)
#: Folders of projects that are named after a package or a program.
FOLDERS = ("flash_attn_bench", "SageAttention/bench", "xformers-test", "diffusers/examples", "vllm")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_named_after_a_package_does_not_name_it(folder: str) -> None:
    frames = [(f"/home/me/{folder}/{name}.py", "x = self.block(x)") for name in ("a", "attention")]
    logs = [traceback(*frames, message=f"{message}\n") for message in GENERAL]
    found = [explain([], library.load(), texts=[log]).matches for log in logs]
    assert not any(found)
