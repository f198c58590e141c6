"""A failure that no rule knows: the component, the kind, the place and the values."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

import json as parser
import re
from collections.abc import Callable

import pytest

from attn_doctor.explain.components import component_table
from attn_doctor.explain.explanation import Explanation, Guess, Outcome
from attn_doctor.render.explanation.json import json
from attn_doctor.render.explanation.markdown import markdown
from attn_doctor.render.explanation.text import guess_in_words, text
from attn_doctor.render.terminal import Terminal

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

HEAD = "Traceback (most recent call last):\n"
SITE = "/home/me/venv/lib/python3.11/site-packages"
FLASH = f'''{HEAD}  File "/home/me/train.py", line 3, in <module>
    loss.backward()
  File "{SITE}/torch/autograd/function.py", line 288, in apply
    return user_fn(self, *args)
  File "{SITE}/flash_attn/flash_attn_interface.py", line 79, in _flash_attn_varlen_backward
    dq, dk, dv, softmax_d, = flash_attn_cuda.varlen_bwd(
'''
SDPA = f"""{HEAD}  File "/home/me/a.py", line 3, in forward
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
"""


@pytest.fixture
def guessed(rule: WriteRule, explained: Explain) -> Callable[[str], Guess | None]:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    return lambda log: explained(log).guess


@pytest.mark.parametrize(
    ("log", "component", "kind"),
    [
        (FLASH + "RuntimeError: Expected a == b to be true, but got false.", "flash-attn-2", "input"),
        (FLASH + "RuntimeError: CUDA error: an illegal memory access was encountered", "flash-attn-2", "died"),
        (
            FLASH.replace("flash_attn/flash_attn_interface", "flash_attn_interface")
            + "RuntimeError: batch must be 1",
            "flash-attn-3",
            "input",
        ),
        (
            (f'{HEAD}  File "{SITE}/flash_attn/cute/utils.py", line 2, in fmax\n    nvvm.fmax(\n'
            "TypeError: fmax() takes 2 positional arguments but 3 positional arguments were given"),
            "flash-attn-4",
            "version",
        ),
        (
            ("tvm.error.InternalError: Check failed: (status == cudaSuccess) is false:\n"
            "  BatchPrefillWithPagedKVCache failed with error invalid resource handle"),
            "flashinfer",
            "died",
        ),
        ("Assertion failed: FMHA kernels are not found", "tensorrt-llm", "other"),
        (
            "CUDA error (_deps/x-flash-attention-src/hopper/flash_fwd_launch_template.h:203): invalid argument",
            "flash-attn-3",
            "died",
        ),
        (
            (f'{HEAD}  File "{SITE}/spas_sage_attn/core.py", line 1, in f\n    qattn.run(q)\n'
            "RuntimeError: Tensor query_scale must have shape (1, 2)"),
            "sparge",
            "input",
        ),
        (SDPA + "RuntimeError: cuDNN Frontend error: No execution plans support it", "cudnn", "died"),
        (
            SDPA + "NotImplementedError: The operator is not currently implemented for the XPU device.",
            "xpu",
            "platform",
        ),
        (SDPA + "RuntimeError: something about it", "sdpa", "other"),
        (SDPA + "RuntimeError: Invalid buffer size: 512.25 GB", "mps", "platform"),
        # The package around a vendored one is at fault, as its name says where it comes from.
        (
            (f'{HEAD}  File "{SITE}/vllm/vllm_flash_attn/flash_attn_interface.py", line 9, in f\n    g(\n'
            "RuntimeError: CUDA error: device-side assert triggered"),
            "vllm",
            "died",
        ),
        (
            (f'{HEAD}  File "{SITE}/xformers/flash_attn_3/_C.py", line 3, in <module>\n'
            "ImportError: DLL load failed while importing _C: it could not be found."),
            "xformers",
            "version",
        ),
        # Another process only passes the exception on.
        (
            (f'{HEAD}  File "{SITE}/flashinfer/a.py", line 9, in f\n    raise RuntimeError(\n'
            f'RuntimeError: it broke\nProcess EngineCore:\n{HEAD}  File "{SITE}/b.py", line 2, in run\n'
            "    raise e"),
            "flashinfer",
            "other",
        ),
        (
            (f'{HEAD}  File "{SITE}/lightning_attn/ops/a.py", line 9, in f\n    kernel()\n'
            "ValueError: it broke"),
            "other-attention",
            "other",
        ),
        (
            "ImportError: /py/radial_attn_ext.cpython-311-x86_64-linux-gnu.so: undefined symbol: _Z1f",
            "other-attention",
            "version",
        ),
        (
            ("  Building wheel for pixel_attention (setup.py) ... error\n"
            "ERROR: Failed building wheel for pixel_attention"),
            "other-attention",
            "build",
        ),
        # A report that ends with the line that raises, or with an exception of another name.
        (
            (f'  File "{SITE}/sageattention/core.py", line 90, in sageattn_qk\n'
            '    assert head_dim in [1, 2], "only head_dim 1 or 2."'),
            "sage",
            "input",
        ),
        (
            (f'{HEAD}  File "{SITE}/transformer_engine/pytorch/__init__.py", line 52, in load\n'
            "    so_path = next(found)\nStopIteration"),
            "transformer-engine",
            "other",
        ),
        (
            "OSError: /opt/libtransformer_engine.so: undefined symbol: _ZNKSt10filesystem4path5emptyEv",
            "transformer-engine",
            "version",
        ),
        # A build that ends with the command that failed.
        (
            (f'{HEAD}  File "{SITE}/torch/utils/cpp_extension.py", line 2556, in _run_ninja_build\n'
            "    subprocess.run(\n"
            "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            f'{HEAD}  File "/src/SageAttention/setup.py", line 175, in <module>\n    setup('),
            "sage",
            "build",
        ),
        # The lines around a failure name the component that it does not name itself.
        (
            ("error: 'cute.copy' op expects pred to have compatible shape\n"
            "  (flash_attn/cute/flash_bwd_preprocess.py:311)"),
            "flash-attn-4",
            "input",
        ),
        (
            ("ImportError:\n[sgl_kernel] CRITICAL: Could not load it!\n\n"
            "- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory"),
            "sglang",
            "version",
        ),
        (
            ("# ComfyUI Error Report\n- **Exception Message:** Command '['cl.EXE', 'cuda_utils.c', "
            "'/IC:\\venv\\site-packages\\triton\\include']' returned non-zero exit status 2."),
            "triton",
            "build",
        ),
        (
            "CUDA Exception: Warp Illegal Address in void flash_bwd_dot_do_o_kernel<true>",
            "flash-attn-2",
            "died",
        ),
        (
            "NotImplementedError: flash_attn at sgl-kernel is only supported on sm90 and above",
            "sglang",
            "platform",
        ),
        (
            "[AITER] /x/asm_fmha_fwd_v3_gfx942.cpp:141 fail to call hipModuleLaunchKernel(f)",
            "aiter",
            "died",
        ),
        (
            "ValueError: Selected backend AttentionBackendEnum.TRITON is not valid for this configuration",
            "vllm",
            "backend",
        ),
        (
            ("- **Exception Type:** triton.compiler.errors.CompilationError\n"
            "- **Exception Message:** at 36:15:\n## Stack Trace\n"
            '  File "D:\\c\\lib\\site-packages\\sageattention\\attn.py", line 113, in forward\n'
            "    _attn_fwd[grid](\n"),
            "sage",
            "compile",
        ),
        (
            ("      flash_api.cpp:1:10: fatal error: cutlass/cutlass.h: No such file\n"
            "  ERROR: Failed building wheel for flash-attn\n"),
            "flash-attn-2",
            "build",
        ),
        (
            (f'{HEAD}  File "/x.py", line 1, in f\n    _fwd_kernel[grid](\n'
            f'  File "{SITE}/triton/compiler.py", line 942, in build\n    raise CompilationError(fn.src, node)\n'
            "triton.compiler.CompilationError: at 118:24:\ndef _fwd_kernel("),
            "triton",
            "compile",
        ),
        # The stack of a crash: its modules, or its frames with the innermost one first.
        (
            ("Exception Code: 0x80000003\n"
            "0x00007FF8A0E6D8B5, G:\\py\\Lib\\site-packages\\triton\\_C\\libtriton.pyd(0x00007FF89D760000) + 0x3 byte(s)\n"
            "0x00007FFA908B1989, C:\\WINDOWS\\System32\\ucrtbase.dll(0x00007FFA907F0000) + 0xC1989 byte(s), raise()"),
            "triton",
            "died",
        ),
        (
            ("Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
            f'  File "{SITE}/sageattention/core.py", line 270 in sageattn\n  File "/home/me/a.py", line 3 in <module>'),
            "sage",
            "died",
        ),
        (
            ("AssertionError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C or"
            " _vllm_fa3_C). On ROCm, use upstream flash_attn."),
            "vllm",
            "platform",
        ),
        # torch's tracer shows the program that it traced below its message.
        (
            (f'{HEAD}  File "{SITE}/torch/_dynamo/exc.py", line 439, in unimplemented\n    raise Unsupported(msg)\n'
            "torch._dynamo.exc.Unsupported: call_id with args (NestedUserFunctionVariable(),)\n\nfrom user code:\n"
            '   File "/home/me/model.py", line 231, in forward\n    mask = create_block_mask(f)'),
            "flex",
            "input",
        ),
    ],
)  # fmt: skip
def test_the_component_and_the_kind(
    guessed: Callable[[str], Guess | None], log: str, component: str, kind: str
) -> None:
    found = guessed(log)
    assert found is not None
    assert (found.component, found.kind) == (component, kind)


@pytest.mark.parametrize(
    "log",
    [
        f'{HEAD}  File "/home/me/train.py", line 3, in <module>\n    f()\nKeyError: 1',
        (f'{HEAD}  File "{SITE}/xformers/ops/fmha/cutlass.py", line 3, in apply\n    f()\n'
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB"),
        FLASH + "RuntimeError: a\n" + "step\n" * 500,
        "sparge_attn not found, please install sparge_attn first\nstep 1\nsaved a.mp4\n",
        "flex_attention benchmark: error 1e-3\n",
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework does not",
        SDPA + "torch.onnx.errors.UnsupportedOperatorError: aten::scaled_dot_product_attention",
        "UserWarning: flash_attn: error: it is slow",
        "INFO: Creating cudnn tensors for node named 'sdpa'",
        ("subprocess.CalledProcessError: Command '['C:/v/python.exe', 'C:/a/train.py', '--xformers']' "
        "returned non-zero exit status 1."),
        "PermissionError: [Errno 13] Permission denied: '/home/triton-server'",
        "Launching with arguments: --xformers\nTimeoutError: timed out",
        (f'{HEAD}  File "/app/attention.py", line 3, in forward\n    x = self.project(x)\n'
        f'  File "{SITE}/torch/nn/modules/conv.py", line 460, in _conv_forward\n    return F.conv2d(x)\n'
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        (f'Failed to import flash_attn\n{HEAD}  File "{SITE}/accelerate/accelerator.py", line 3, in load_state\n'
        '    raise ValueError(f"Tried to find {folder}")\nValueError: Tried to find false'),
        "UserWarning: xFormers is available (Attention)\nDevice: cuda\nSegmentation fault (core dumped)",
    ],
    ids=[
        "own code", "memory", "the run went on", "optional", "a number", "no attention", "export",
        "warning", "information", "launcher", "server", "option", "convolution",
        "a line of code that raises", "available",
    ],
)  # fmt: skip
def test_no_component(guessed: Callable[[str], Guess | None], log: str) -> None:
    assert guessed(log) is None


@pytest.mark.parametrize("file", ["my_attention.py", "attn_processor.py"])
def test_a_file_with_attention_of_the_program_passes_a_call_on(
    guessed: Callable[[str], Guess | None], file: str
) -> None:
    log = FLASH + f'  File "/app/{file}", line 3, in mask\n    return q[9]\n'
    guess = guessed(log + "IndexError: index 9 is out of bounds")
    assert guess is not None
    assert guess.component == "flash-attn-2"
    other = log.replace(file, "optimizer.py")
    assert guessed(other + "IndexError: index 9 is out of bounds") is None


WORKER = "(VllmWorker rank=1 pid=91) ERROR 11-21 10:00:00 [core.py:700] "
SERVER = "(APIServer pid=1) "


def test_a_server_reports_that_its_worker_failed(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        "".join(f"{WORKER}{line}\n" for line in FLASH.splitlines())
        + f"{WORKER}ValueError: a == b\n{SERVER}{HEAD}"
        + f'{SERVER}  File "{SITE}/vllm/v1/engine/core_client.py", line 644, in __init__\n'
        + f"{SERVER}RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    found = guessed(log)
    assert found is not None
    assert (found.component, found.line) == ("flash-attn-2", 8)


def test_a_lost_connection_does_not_hide_the_failure_before_it(
    guessed: Callable[[str], Guess | None],
) -> None:
    lost = f'\n{HEAD}  File "/app/serve.py", line 2, in get\n    recv()\nConnectionResetError: [Errno 104] Connection reset by peer'
    found = guessed(FLASH + "ValueError: a == b\n" + lost)
    assert found is not None
    assert (found.component, found.line) == ("flash-attn-2", 8)


@pytest.mark.parametrize(
    ("log", "component"),
    [
        (
            "[csrc/py_itfs_cu/asm_mha_v4_fwd.cu:220] Check failed: MHA v4 requires non-empty inputs",
            "aiter",
        ),
        (
            "/home/me/flash-attention/hopper/flash_api.cpp(298): error: static assertion failed",
            "flash-attn-3",
        ),
        (
            "C:\\b\\TransformerEngine\\transformer_engine\\common\\fused_attn\\fused_attn_fp8.cu(310): error C2398: no",
            "transformer-engine",
        ),
        (
            "/tmp/pip-install-1/natten_0123456789abcdef0123456789abcdef/csrc/src/blackwell_fmha.cu(3): error: no",
            "natten",
        ),
        ("/src/aten/src/ATen/native/cudnn/MHA.cpp:748: Assertion `ok' failed.", "cudnn"),
        (
            "[TensorRT-LLM][ERROR] Assertion failed: no (/cpp/tensorrt_llm/kernels/contextFusedMultiHeadAttention/fmhaRunner.cpp:87)",
            "tensorrt-llm",
        ),
    ],
)
def test_the_file_that_a_message_names(
    guessed: Callable[[str], Guess | None], log: str, component: str
) -> None:
    found = guessed(f"start\n{log}\nAborted (core dumped)\n")
    assert found is not None
    assert (found.component, found.line) == (component, 2)


def test_a_library_that_cannot_be_loaded_is_reported_without_an_exception(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "Loading extension module evoformer_attn...\n"
        "[Rank 0]7pzb /home/me/.cache/evoformer_attn.so: cannot open shared object file: No such file:\n"
        + HEAD
        + '  File "/app/run.py", line 187, in main\n    predict(data)\n'
    )
    assert found is not None
    assert (found.component, found.line) == ("deepspeed", 2)


def test_an_assembler_is_shown_at_its_first_error(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        'FLASHINFER_CUDA_ARCH_LIST: "8.0 12.0"\n'
        "ptxas /tmp/a.ptx, line 15870; error   : Instruction 'cvt with .e2m1x2' not supported\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    assert found is not None
    assert (found.component, found.line) == ("flashinfer", 2)


def test_an_assembler_that_fails_is_no_failure_on_the_gpu(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed("`ptxas` failed with error code 4294967295\n`ptxas` stderr:\n")
    assert found is not None
    assert (found.component, found.kind) == ("triton", "compile")


def test_a_failed_test_is_shown_at_its_exception(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        "____ test_attn[64-True] ____\n\n    def forward(self):\n>       return call(q)\n\n"
        f"tests/test_x.py:9: \n_ _ _ _ _ _ _ _ _\n    def call(q):\n>       raise ValueError(\n"
        f"E       ValueError: it broke\n\n{SITE}/kernels/layer.py:12: ValueError\n"
        "==== short test summary info ====\nFAILED tests/test_x.py::test_attn[64-True] - ValueError: it broke\n"
    )
    assert found is not None
    assert (found.component, found.line) == ("hub-kernels", 10)
    assert found.frame == f"{SITE}/kernels/layer.py, line 12"


def test_llvm_says_the_reason_above(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        "start\nUnsupported conversion from bf16 to f16\n\nUNREACHABLE executed at "
        "/project/lib/Conversion/TritonGPUToLLVM/ElementwiseOpToLLVM.cpp:816!\nAborted\n"
    )
    assert found is not None
    assert (found.component, found.line) == ("triton", 2)


def test_triton_says_the_reason_below_the_source(guessed: Callable[[str], Guess | None]) -> None:
    source = "".join(f"    x{n} = tl.load(p)\n\n" for n in range(20))
    found = guessed(
        "out = spas_sage2_attn_meansim_cuda(q, k, v)\n\n"
        f'CompilationError: at 33:37:\n{source}       ^\nTypeError("sum() got it")\n'
    )
    assert found is not None
    assert (found.component, found.line) == ("sparge", 45)


def test_the_stack_between_a_message_and_the_end_of_a_process(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  Tensor 3 must have dimension number (3)\n"
        "Exception raised from run at utils.cuh:7 (most recent call first):\n"
        f"frame #0: c10::Error::Error() + 0x96 (0x7f in {SITE}/torch/lib/libc10.so)\n"
        f"frame #1: <unknown function> + 0x1 (0x7f in {SITE}/spas_sage_attn/_qattn.cpython-311.so)\n"
        "\nAborted (core dumped)\n"
    )
    assert found is not None
    assert (found.component, found.line) == ("sparge", 2)


@pytest.mark.parametrize("package", ["transformer_engine_torch", "vllm"])
def test_the_build_of_a_package_with_attention_is_called_by_its_name(
    guessed: Callable[[str], Guess | None], package: str
) -> None:
    found = guessed(
        f"  Building wheel for {package} (pyproject.toml) ... error\n"
        "  error: subprocess-exited-with-error\n"
        "      /usr/include/x.h(34): error: expected an identifier\n"
        f"  ERROR: Failed building wheel for {package}\n"
    )
    assert found is not None
    assert (found.kind, found.line) == ("build", 3)
    assert found.title == f"The build of {package} failed"


def test_nvcc_sets_its_errors_off_with_blanks(guessed: Callable[[str], Guess | None]) -> None:
    log = """\
In file included from /tmp/build/csrc/qattn/qk_int_sv_f16_cuda_sm80.cu:17:
fatal   : Could not open input file /tmp/tmpxft.ii
[1/2] /usr/local/cuda/bin/nvcc -c /tmp/build/csrc/fused.cu -o /tmp/sageattention._fused/fused.o
"""
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == ("sage", 2)


def test_the_exception_below_a_frame_is_not_its_code(
    guessed: Callable[[str], Guess | None],
) -> None:
    frame = 'File "/app/run.py", line 3, in run\n'
    log = f"{frame}RuntimeError: scaled_dot_product_attention( got no query"
    guess = guessed(log)
    assert guess is not None
    assert guess.line == 2


def test_a_log_that_ends_before_the_message(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        FLASH + f'  File "{SITE}/torch/_ops.py", line 5, in __call__\n    return self._op(*args)\n'
    )
    found = guessed(log)
    assert found is not None
    assert (found.component, found.kind, found.line) == ("flash-attn-2", "cut", 7)
    notebook = (
        "File c:\\a\\mine.py:4, in <module>\n----> 4 run()\n\n"
        "File c:\\site-packages\\xformers\\ops\\fmha\\__init__.py:311, in attention(query)\n"
    )
    found = guessed(notebook)
    assert found is not None
    assert (found.component, found.kind, found.line) == ("xformers", "cut", 4)


def test_a_traceback_with_its_message_is_not_cut(guessed: Callable[[str], Guess | None]) -> None:
    frames = (
        'Traceback (most recent call last):\n  File "C:\\flash_attention\\test.py", line 4\n'
        '    from mha import FlashAttention\n  File "C:\\flash_attention\\a.py", line 4, in <module>\n    torch.cuda\n'
    )
    assert guessed(frames) is not None
    assert guessed(frames + "AttributeError: module 'torch' has no attribute 'cuda'\n") is None


def test_the_stack_that_python_prints_when_it_crashes(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "Stack (most recent call first):\n"
        '  File "D:\\comfy\\ldm\\modules\\attention.py", line 578 in attention_sage\n'
        '  File "D:\\comfy\\ldm\\minimax\\model.py", line 181 in forward\n'
        '  File "D:\\site-packages\\torch\\nn\\modules\\module.py", line 1789 in _call_impl\n'
    )
    assert found is not None
    assert (found.component, found.line) == ("sage", 2)


def test_a_crash_is_shown_with_its_message(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        "Using SageAttention\nterminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: unspecified launch failure\n\n"
        "Exception raised from c10_cuda_check at CUDAException.cpp:43 (most recent call first):\n"
        "frame #0: c10::Error::Error() + 0x98 (0x7fab in /a/libc10.so)\n"
    )
    found = guessed(log)
    assert found is not None
    assert (found.component, found.kind, found.line) == ("sage", "died", 3)
    found = guessed(log.split("  what", maxsplit=1)[0])
    assert found is not None
    assert (found.component, found.line) == ("sage", 2)


def test_a_report_is_shown_with_its_message(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        "- **Exception Type:** ValueError\n- **Exception Message:** Can't use SageAttention: no\n"
    )
    assert found is not None
    assert (found.component, found.line) == ("sage", 2)


def test_what_a_program_says_it_does_names_no_component(
    guessed: Callable[[str], Guess | None],
) -> None:
    said = "[2024-01-19 08:19:55,637] [INFO] [model:264] patching with flash attention\n"
    assert (
        guessed(said + "RuntimeError: !grad_accumulator_.expired() INTERNAL ASSERT FAILED") is None
    )


def test_a_build_from_a_checkout_names_its_package(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        f'{HEAD}  File "{SITE}/torch/utils/cpp_extension.py", line 1893, in _run_ninja_build\n    subprocess.run(\n'
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        f'{HEAD}  File "/home/me/flash-attention/setup.py", line 163, in <module>\n    setup(\n'
        f'  File "{SITE}/torch/utils/cpp_extension.py", line 1909, in _run_ninja_build\n    raise RuntimeError(message) from e\n'
        "RuntimeError: Error compiling objects for extension"
    )
    found = guessed(log)
    assert found is not None
    assert found.component == "flash-attn-2"


def test_the_root_of_a_chain_comes_first(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        FLASH
        + "RuntimeError: a == b expected\n\n"
        + "During handling of the above exception, another exception occurred:\n\n"
        + SDPA
        + "RuntimeError: it failed\n"
    )
    found = guessed(log)
    assert found is not None
    assert (found.component, found.line) == ("flash-attn-2", 8)


def test_the_place_the_condition_and_the_values(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        f'{HEAD}  File "{SITE}/flash_attn/cute/interface.py", line 7, in fwd\n'
        '    assert arch >= 100 and d <= 128, "must be small"\n'
        "AssertionError: head_dim must be at most 128, but got 256"
    )
    assert found is not None
    assert found.frame == f"{SITE}/flash_attn/cute/interface.py, line 7, in fwd"
    assert found.condition == "not (arch >= 100 and d <= 128)"
    assert guess_in_words(found).endswith("The code wants `arch >= 100 and d <= 128`.")
    assert (found.wanted, found.seen) == ("at most 128", "256")


def test_a_call_is_part_of_the_value(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed("ValueError: xformers expected a tensor with rank 4, got x.dim()=3.")
    assert found is not None
    assert (found.wanted, found.seen) == ("a tensor with rank 4", "x.dim()=3")


def test_a_version_range_becomes_a_command(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        "ImportError: xformers: Requires Flash-Attention version >=2.7.1,<=2.7.4 but got 2.8.0"
    )
    assert found is not None
    assert (found.kind, found.seen) == ("version", "2.8.0")
    assert found.fixes[0].run == (("pip", "install", "flash-attn>=2.7.1,<=2.7.4"),)


def test_a_rule_counts_more_than_a_guess(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "Expected a == b")
    found = explained(FLASH + "RuntimeError: Expected a == b to be true")
    assert (found.outcome, found.guess) == (Outcome.CAUSE, None)


def test_how_it_is_shown(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    found = explained(FLASH + "RuntimeError: q must have shape (1, 2), got (3, 4)")
    assert found.outcome is Outcome.COMPONENT
    shown = text(found, Terminal(width=90))
    for part in (
        "? FlashAttention 2 seems to refuse this input",
        "This is a guess",
        "  wanted shape (1, 2)",
        "  found  (3, 4)",
        "  try    Print shape",
        "cause  unknown  [flash-attn-2, input]",
    ):
        assert part in shown
    data = parser.loads(json(found, 5))
    assert (data["outcome"], data["matches"]) == ("component", [])
    assert data["guess"]["component"] == "flash-attn-2"
    assert "component `flash-attn-2`, cause unknown" in markdown(found)


def test_the_table() -> None:
    table = component_table()
    ids = [one.id for one in table.component]
    assert len(set(ids)) == len(ids)
    for one in table.component:
        assert set(one.before) <= set(ids)
        for pattern in (*one.frames, *one.calls, *one.messages):
            assert re.compile(pattern).search("") is None, (one.id, pattern)
    assert table.kind_of("whatever").id == "other"
    assert all("{name}" in kind.title and kind.advice for kind in table.kind)


def test_the_line_that_names_the_component_comes_before_one_beside_it(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "NotImplementedError: flash_attn at sgl-kernel is only supported on sm90 and above\n"
        "TypeError: 'NoneType' object is not subscriptable"
    )
    assert found is not None
    assert (found.component, found.line) == ("sglang", 1)


def test_a_kernel_that_is_compiled_at_run_time_is_named_by_its_folder(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "Error limit reached.\n"
        '100 errors detected in the compilation of "/home/me/.cache/flashinfer/120/a.cu".\n'
        "Compilation terminated.\nninja: build stopped: subcommand failed.\n"
        "subprocess.CalledProcessError: Command '['ninja', '-v', '-C', '/home/me/.cache/x']'\n"
    )
    assert found is not None
    assert found.component == "flashinfer"


def test_a_late_failure_of_the_gpu_is_traced_up_the_frames(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        f'{HEAD}  File "/ComfyUI/nodes.py", line 85, in qwen_sage_forward\n    out = self.to_out(x)\n'
        '  File "/ComfyUI/comfy/ops.py", line 109, in forward\n    return linear(x, weight)\n'
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    assert found is not None
    assert (found.component, found.kind) == ("sage", "died")


def test_a_build_that_stopped_early_names_the_package_that_pip_fetched(
    guessed: Callable[[str], Guess | None],
) -> None:
    log = (
        "Collecting {}==2.2.0\n  Preparing metadata (pyproject.toml) ... error\n"
        "  error: subprocess-exited-with-error\n"
        "  × Preparing metadata (pyproject.toml) did not run successfully.\n"
        '        File "/py/pip/_in_process.py", line 149, in prepare_metadata_for_build_wheel\n'
        "          return hook(metadata_directory, config_settings)\n"
    )
    found = guessed("Collecting numpy\n" + log.format("sageattention"))
    assert found is not None
    assert (found.component, found.kind, found.line) == ("sage", "build", 5)
    assert guessed("Collecting sageattention\n" + log.format("numpy")) is None


def test_a_package_within_a_general_failure_is_named(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "triton.compiler.errors.CompilationError: at 128:4:\n"
        "    # Get HZ offsets for KV_NUM_BLKS and KV_IDX\n    ^\nIndexError('list index')\n"
    )
    assert found is not None
    assert (found.component, found.kind) == ("flex", "compile")


def test_a_log_that_ends_in_torchs_tracer_names_the_caller(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        f'{HEAD}  File "/nodes/model_nodes.py", line 98, in attention_sage\n'
        "    out = sage_func(q, k, v)\n"
        f'  File "{SITE}/torch/_dynamo/eval_frame.py", line 929, in _fn\n'
    )
    assert found is not None
    assert (found.component, found.kind, found.line) == ("sage", "cut", 3)


def test_what_surrounds_an_exception_with_frames_names_no_component(
    guessed: Callable[[str], Guess | None],
) -> None:
    banner = "    Bfloat16 = TRUE. FA [Xformers = 0.0.29. FA2 = False]\n"
    log = f'{banner}{HEAD}  File "/home/me/train.py", line 3, in main\n    trainer.train()\n'
    assert guessed(log + "ValueError: The model did not return a loss\n") is None


@pytest.mark.parametrize(
    "command",
    [
        f"'/usr/bin/gcc', '/tmp/a/main.c', '-I{SITE}/triton/common/../third_party/cuda/include'",
        r"'D:\\Programs\\launcher\\api\\wan.git\\app\\venv\\Lib\\site-packages\\triton\\runtime\\tcc\\tcc.exe', 'a.c'",
        r"'C:\\VC\\bin\\cl.exe', 'C:\\tmp\\cuda_utils.c', '/LIBPATH:D:\\py\\triton\\lib'",
        # It compiles for a kernel that is not about attention. The compiler is that of Triton.
        rf"'C:\\bin\\gcc.EXE', 'C:\\tmp\\main.c', '-I{SITE}/triton/include', '_rms_layernorm.pyd'",
    ],
)
@pytest.mark.parametrize("mark", ["", "`"])
def test_a_compiler_that_triton_called_names_triton(
    guessed: Callable[[str], Guess | None], command: str, mark: str
) -> None:
    said = f"{mark}subprocess.CalledProcessError: Command '[{command}]' returned non-zero exit status 1."
    found = guessed(f"The build ends with\n{said}\n")
    assert found is not None
    assert (found.component, found.kind, found.line) == ("triton", "build", 2)


def test_a_check_that_quotes_the_command_reports_the_failure(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        "clang: error: linker command failed with exit code 1104\n"
        "  ::  Triton error: Command '['C:\\\\bin\\\\clang.exe', 'C:\\\\tmp\\\\main.c', '-shared', "
        "'-IC:\\\\py\\\\triton\\\\include']' returned non-zero exit status 1104.\n"
        "Using HIP SDK Clang.\n"
    )
    assert found is not None
    assert (found.component, found.kind, found.line) == ("triton", "build", 1)


def test_the_summary_of_an_installer_names_what_failed(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed("Installation Summary\n  cumesh: [OK]\n  flash_attn: [FAILED]\n")
    assert found is not None
    assert (found.component, found.line) == ("flash-attn-2", 3)
    assert guessed("  cumesh: [FAILED]\n  flash_attn: [OK]\n") is None


@pytest.mark.parametrize("line", ["Collecting sageattention", "sageattention      1.0.6"])
def test_a_package_that_pip_only_lists_did_not_fail(
    guessed: Callable[[str], Guess | None], line: str
) -> None:
    log = "error: can't find Rust compiler\n  ERROR: Failed building wheel for tokenizers\n"
    assert guessed(f"{line}\n{log}") is None


def test_the_script_that_builds_a_package_names_it(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        f'{HEAD}  File "/home/me/SpargeAttn/setup.py", line 143, in <module>\n    setup(\n'
        f'  File "{SITE}/torch/utils/cpp_extension.py", line 2120, in _run_ninja_build\n'
        "    raise RuntimeError(message) from e\n"
        "RuntimeError: Error compiling objects for extension\n"
    )
    assert found is not None
    assert (found.component, found.kind, found.line) == ("sparge", "build", 6)


@pytest.mark.parametrize(
    "message",
    [
        "ERROR: Could not build wheels for flash-attn, which is required to install pyproject.toml",
        "ERROR: Failed to build installable wheels for some pyproject.toml based projects (flash-attn)",
        "FAILED: /tmp/pip-install-a/flash-attn_7b/build/csrc/src/flash_bwd_bf16_sm80.o",
    ],
)
def test_what_introduces_an_error_is_not_the_error(
    guessed: Callable[[str], Guess | None], message: str
) -> None:
    found = guessed(f"When I run `pip install flash-attn`, it raises an error:\n{message}\n")
    assert found is not None
    assert (found.component, found.kind, found.line) == ("flash-attn-2", "build", 2)


def test_a_call_of_a_method_named_after_flex_attention_names_it(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed(
        f'{HEAD}  File "/home/me/attention_processor.py", line 344, in __call__\n'
        "    hidden_states = self.flex_attn(query, key, value)\n"
        f'  File "{SITE}/torch/_dynamo/eval_frame.py", line 465, in _fn\n'
    )
    assert found is not None
    assert found.component == "flex"


def test_an_unknown_scaling_of_positions_is_not_about_attention(
    guessed: Callable[[str], Guess | None],
) -> None:
    log = f'{HEAD}  File "/home/me/llama.py", line 71, in f\n    x = LlamaFlexAttention(c)\n'
    assert guessed(log + "ValueError: Unknown RoPE scaling type default\n") is None


@pytest.mark.parametrize(
    ("log", "component", "line"),
    [
        # One frame is enough where the log ends with it.
        (f'    wrapper = Attention(\n  File "{SITE}/vllm/model_executor/layers/mla.py", line 95, in __ini', "vllm", 2),
        # A place in sources of C++ that says what it cannot do.
        ("[AITER] /app/csrc/asm_mla.cu:193 get_kernel: cannot get heuristic kernel! q_type:bf16", "aiter", 1),
        ("nvcc fatal   : A single input file is required\n/root/.cache/flashinfer/0.6/89/build.ninja", "flashinfer", 1),
        ("  × Failed to download and build `flash-attn==2.8.1`\n  ╰─▶ no static metadata", "flash-attn-2", 1),
        ("  error: subprocess-exited-with-error\n  error: [WinError 2] file not found\n  ERROR: Failed building wheel for sageattention", "sage", 2),
        ("Error occurred when executing KSampler:\n\nodd value in 'attention_sage'\n", "sage", 3),
        # What a C++ exception says comes before the lines that report its end.
        ("  what():  Expected a > b to be true\nException raised from mha_varlen_fwd at /src/flash-attention/a.cpp:5\nAborted (core dumped)", "flash-attn-2", 1),
        (
            ("CUDA error: an illegal memory access was encountered\n"
            "Exception raised from c10_cuda_check_implementation at /c10/a.cpp:4 (most recent call first):\n"
            f"frame #3: flash::run_mha_fwd(a&) + 0x2 (0x7f in {SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so)"),
            "flash-attn-2",
            1,
        ),
        (
            (f'{HEAD}  File "{SITE}/torch/nn/attention/varlen.py", line 88, in _varlen_attn\n'
            "    out = torch.ops.aten._flash_attention_forward(\nRuntimeError: odd"),
            "sdpa",
            4,
        ),
        # rich breaks the line of a frame before the name of the function.
        (
            (f"│ {SITE}/xformers/ops/fmha/__init__.py:193 in     │\n│ memory_efficient_attention │\n"
            "│   190 │   and options. │\n│ ❱ 193 │   return _memory_efficient_attention( │"),
            "xformers",
            4,
        ),
        # The nearest line names the component, and a compiler only on a line with an error.
        (
            ("[aiter] Triton ops only.\n"
            f"{SITE}/triton/backends/amd/include/hip/hip_runtime.h(49,10): fatal error:\n"
            "      'stdlib.h' file not found\nFailed to compile. cc_cmd: ['clang-cl.exe']"),
            "triton",
            4,
        ),
        (
            ("error: subprocess-exited-with-error\n× python setup.py develop did not run successfully.\n"
            "╰─> [113 lines of output]\n    Detect GPUs with compute capabilities: {'12.0'}\n    running develop"),
            "sage",
            2,
        ),
        ("#15 312.4 error: command 'nvcc' failed\n#15 312.5   ERROR: Failed building wheel for xformers\n#15 ERROR: process \"/bin/sh -c pip install xformers\" did not complete", "xformers", 1),
        (f"Cell In[4], line 2\n----> 2 model = A.from_pretrained('m', attn_implementation='flash_attention_2')\n\nFile {SITE}/transformers/models/auto/auto_factory.py:387, in f(cls)\n--> 387     return g()", "transformers", 2),
        (f'{HEAD}  File "{SITE}/block_sparse_attn/a.py", line 5, in f\nRuntimeError: block size must be 128', "block-sparse-attn", 3),
    ],
)  # fmt: skip
def test_the_line_that_is_shown(
    guessed: Callable[[str], Guess | None], log: str, component: str, line: int
) -> None:
    found = guessed(log)
    assert found is not None
    assert (found.component, found.line) == (component, line)


@pytest.mark.parametrize("message", ["", "RuntimeError: Unsupported config for moe dispatch\n"])
def test_experts_and_products_of_matrices_are_no_attention(
    guessed: Callable[[str], Guess | None], message: str
) -> None:
    frames = (
        f'{HEAD}  File "{SITE}/vllm/_aiter_ops.py", line 125, in _rocm_aiter_fused_moe_impl\n'
        "    return fused_moe(\n"
        f'  File "{SITE}/aiter/fused_moe.py", line 292, in fused_moe\n    run(a)\n'
    )
    assert guessed(frames + message) is None
    assert guessed(frames.replace("moe", "mla") + message.replace("moe", "mla")) is not None


def test_the_linker_of_microsoft_reports_a_failure(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        "LINK : error LNK2001: unresolved external symbol PyInit__qattn_sm80\n"
        "C:\\t\\sageattention._qattn_sm80.lib : fatal error LNK1120: 1 unresolved externals\n"
        "error: command 'C:\\VC\\link.exe' failed with exit code 1120\n"
    )
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == ("sage", 2)


def test_the_name_of_a_function_names_the_component(guessed: Callable[[str], Guess | None]) -> None:
    log = f"""{HEAD}  File "{SITE}/vllm/platforms/cuda.py", line 271, in get_attn_backend_cls
    and kv_cache_dtype.startswith("fp8"))
AttributeError: 'torch.dtype' object has no attribute 'startswith'
"""
    guess = guessed(log)
    assert guess is not None
    assert guess.component == "vllm"


@pytest.mark.parametrize(
    ("log", "component", "line"),
    [
        # A message of the index, given without its traceback.
        ("Cascade attention under MLA CP is not supported.", "sglang", 1),
        ("\nseq_lens.dtype needs to be int32 but got torch.int64.\n", "vllm", 2),
        # A file of the component is missing: an incomplete build.
        (
            (f'{HEAD}  File "{SITE}/xformers/_cpp_lib.py", line 114, in _register_extensions\n'
            f"FileNotFoundError: [Errno 2] No such file or directory: '{SITE}/xformers/cpp_lib.json'"),
            "xformers",
            3,
        ),
        # The first error of a compiler says more than the report of the build that follows.
        (
            ('/usr/include/cuda/std/__cccl/cuda_toolkit.h:41:4: error: #error "incompatible"\n'
            "ninja: build stopped: subcommand failed.\n"
            "RuntimeError: Ninja build failed. Ninja output: flashinfer/cached_ops/sampling"),
            "flashinfer",
            1,
        ),
        (
            (f'{HEAD}  File "{SITE}/sageattention/setup.py", line 1, in build\n'
            "RuntimeError: Error building extension 'x': [1/2] nvcc -c x.cu\n"
            "x.cu(7): error: identifier is undefined\nninja: build stopped"),
            "sage",
            4,
        ),
        # The exception above the end of a build says more than the end.
        ("ModuleNotFoundError: No module named 'torch'\nFailed to build flash-attn==2.8.3", "flash-attn-2", 1),
        ("AttributeError: '_OpNamespace' 'vllm' object has no attribute 'unified_attention'", "vllm", 1),
        (
            (f'{HEAD}  File "{SITE}/torch/nn/functional.py", line 5786, in _mha_shape_check\n'
            "AssertionError: For batched (3-D) `query`, expected `key` to be 3-D but found 4-D"),
            "mha",
            3,
        ),
        # A radial mask fails, and only the name of its function says whose it is.
        (
            (f'{HEAD}  File "/x/attn_mask.py", line 276, in SpargeSageAttnBackend\n    k=key[:n],\n'
            "RuntimeError: CUDA error: an illegal memory access was encountered"),
            "sparge",
            4,
        ),
        (("pip list\ntransformer_engine failed to import with exception libcudnn_adv.so.9: cannot"
         " open shared object file: No such file"), "transformer-engine", 2),
        ("[TensorRT-LLM][WARNING] Fall back to unfused MHA for data_type = e4m3 in sm_89.",
         "tensorrt-llm", 1),
        (("[TM][FATAL] kernels/attention/decoding.cu(34): Check failed: kernel No decoding kernel"
         " found: decode_d256_f16_gs4"), "lmdeploy", 1),
        ("Tesla V100\nLLVM ERROR: Failed to compute parent layout for slice layout.", "triton", 2),
        ("AttributeError: module 'transformer_engine' has no attribute 'pytorch'",
         "transformer-engine", 1),
        # Kernels of models, and of state-space models.
        (
            ("NameError: name '_C' is not defined\n"
            "UserWarning: Failed to load custom C++ ops. Running on CPU mode Only!"),
            "deformable-attention",
            1,
        ),
        ("'RuntimeError: attn_softmax_inplace_forward_ not implemented on CPU'", "other-attention", 1),
        (
            (f'{HEAD}  File "{SITE}/st_attn-0.0.4-py3.10.egg/st_attn/__init__.py", line 46, in run\n'
            "TypeError: 'NoneType' object is not callable"),
            "fastvideo",
            3,
        ),
        ("CUDA Runtime Error at: csrc/attn/st_attn/st_attn_h100.cu:834\nunknown error", "fastvideo", 1),
        (
            (f'{HEAD}  File "/x/vllm/utils/deep_gemm.py", line 300, in fp8_paged_mqa_logits\n'
            "RuntimeError: Assertion error (csrc/apis/attention.hpp:225): Unsupported architecture"),
            "deepgemm",
            3,
        ),
        # pytest within a quoted report, with an indent.
        (
            ("    dropout_p=dropout,\n  E   RuntimeError: The size of tensor a (4) must match 8\n\n"
            "  .venv/lib/transformers/integrations/sdpa_attention.py:93: RuntimeError"),
            "transformers",
            2,
        ),
        ("RuntimeError: Attention mask should be of size (1, 1, 33, 33), but is (1, 1, 9, 9)", "transformers", 1),
        (
            (f'{HEAD}  File "{SITE}/vllm_xpu_kernels/flash_attn_interface.py", line 170, in run\n'
            "RuntimeError: Only XE2 cutlass kernel is supported currently."),
            "vllm",
            3,
        ),
        ("flashinfer_kernels.abi3.so出现错误undefined symbol: _Z13gemma_rmsnormRN2at6TensorES1_db", "flashinfer", 1),
        ("Triton throws either `IndexError: map::at` or nothing", "triton", 1),
        ("ImportError: Error importing triangle_multiplicative_update from cuequivariance_ops_torch.", "cuequivariance", 1),
        ("[aiter] failed jit build [module_aiter_core]", "aiter", 1),
        ("StopIteration: Could not find libtransformer_engine.so", "transformer-engine", 1),
        ("TypeError: AiterFlashAttentionImpl.__init__() got multiple values for argument 'x'", "aiter", 1),
        (
            (f'{HEAD}  File "{SITE}/vllm/attention/backends/flash_attn.py", line 467, in build\n'
             "    input_block_tables[i] = block_table\n"
             "ValueError: could not broadcast input array from shape (513,) into shape (512,)\n"
             "ERROR 09-12 19:15:10 client.py:412] AsyncEngineDeadError('Background loop is stopped.')\n"),
            "vllm",
            5,
        ),
        ("[cudnn_frontend] Error: No execution plans support the graph.", "cudnn", 1),
        (
            (f'{HEAD}  File "{SITE}/vllm/model_executor/layers/quantization/kv_cache.py", line 9, in f\n'
            "AttributeError: 'Attention' object has no attribute 'q_scale'."),
            "vllm",
            3,
        ),
        # A module that cannot be loaded fails in whatever file imports it.
        (
            (f'{HEAD}  File "{SITE}/sglang/srt/layers/moe/fused_moe.py", line 14, in <module>\n'
            "ModuleNotFoundError: No module named 'sgl_kernel'"),
            "sglang",
            3,
        ),
        (
            (f'{HEAD}  File "/x/ms_deform_attn.py", line 53, in forward\n'
            "    output = _C.ms_deform_attn_forward(\nNameError: name '_C' is not defined"),
            "deformable-attention",
            4,
        ),
        ("error in ms_deformable_im2col_cuda: invalid argument", "deformable-attention", 1),
        ("NameError: name 'selective_scan_cuda_core' is not defined,but I have it", "mamba", 1),
        ("AttributeError: '_OpNamespace' 'rwkv' object has no attribute 'wkv'", "rwkv", 1),
        (
            (f'{HEAD}  File "{SITE}/nunchaku/models/text_encoders/linear.py", line 10, in <module>\n'
            "    from ..._C.ops import gemm_awq, gemv_awq\nImportError: DLL load failed while importing _C"),
            "nunchaku",
            4,
        ),
        (
            (f'{HEAD}  File "/x/st_attn/__init__.py", line 12, in sliding_tile_attention\n'
            "    st_attn_cuda.sta_fwd(q, k, v, o)\nRuntimeError: CUDA error: an illegal memory access"),
            "fastvideo",
            4,
        ),
        ("ModuleNotFoundError: No module named 'attn_core_inplace_cuda'\nModuleNotFoundError: No module named 'fmhalib'", "apex", 2),
        ("pass 2\nAssertion `n >= div_ceil(kv_len, CTA_K) * CTA_K' failed.", "sage", 2),
    ],
)  # fmt: skip
def test_a_failure_that_few_lines_show(
    guessed: Callable[[str], Guess | None], log: str, component: str, line: int
) -> None:
    found = guessed(log)
    assert found is not None
    assert (found.component, found.line) == (component, line)


@pytest.mark.parametrize(
    "log",
    [
        # A warning, a message in a longer log, and a kernel that is not attention.
        "UserWarning: Cascade attention under MLA CP is not supported.",
        "step 1\n" * 9 + "Cascade attention under MLA CP is not supported.",
        (
            f'{HEAD}  File "/x/moe.py", line 1, in reduce\n    _reduce_kernel[grid](\n'
            f'  File "{SITE}/triton/compiler/compiler.py", line 1, in make_ir\n'
            "triton.compiler.errors.CompilationError: at 43:8:\n    o = wh.sum(axis=0)\n"
        ),
        (
            f'{HEAD}  File "{SITE}/diffusers/models/attention_processor.py", line 1, in __call__\n'
            "    query = attn.to_q(hidden_states)\n"
            "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx`"
        ),
        "main.py: error: unrecognized arguments: --force-enable-xformers",
        (
            "ERROR: dependency conflicts: a 1.0 requires flash-attn==2.8, but you have 2.6\n"
            "Successfully installed flash-attn-2.6.3"
        ),
        # Settings and releases near a failure, what ran before it, and code without a failure.
        (
            "llama_new_context_with_model: flash_attn = 0\nflash_attn: Module Not Found\n"
            "/src/ggml.c:2420: error: ASSERT(a->ne[d] == b->ne[d]) failed"
        ),
        (
            "flashinfer is used\npython: Error while finding module specification for 'check.env'"
            " (ModuleNotFoundError: No module named 'check')"
        ),
        "try:\n    from xformers import ops\nexcept ImportError:\n    USE_XFORMERS = False",
        (
            f'{HEAD}  File "{SITE}/flashinfer/a.py", line 1, in wait\n    f()\n```\n\n'
            "### Environment\n\nPython: 3.10.12 (main, Nov 6 2024)\nflashinfer: 0.1.6\n" + "x\n" * 9
        ),
        (
            f'{HEAD}  File "{SITE}/torch/_ops.py", line 1, in __call__\n    attention(\n'
            "NotImplementedError: Could not run 'a::b' with arguments from the 'CPU' backend. 'a::b'"
            " is only available for these backends: [CUDA, Meta].\n\nAutogradXPU: registered\n"
        ),
    ],
)
def test_no_guess_where_attention_does_not_fail(
    guessed: Callable[[str], Guess | None], log: str
) -> None:
    assert guessed(log) is None


def test_the_condition_of_a_known_message_is_in_words(
    guessed: Callable[[str], Guess | None],
) -> None:
    found = guessed("FlashInfer: cum_seq_lens_q must have dtype torch.int32, got torch.int64")
    assert found is not None
    assert (found.wanted, found.seen) == ("dtype torch.int32", "torch.int64")


def test_the_title_names_the_component_of_a_failure_that_says_nothing(
    guessed: Callable[[str], Guess | None],
) -> None:
    log = (
        f'# flash-attention: assert seqlen_k == seqlen_q\n{HEAD}  File "/home/me/model.py", line 180, in'
        " forward\n    assert seqlen_k == seqlen_q\nAssertionError"
    )
    guess = guessed(log)
    assert guess is not None
    assert guess.component == "flash-attn-2"
    assert guessed(f"{log}: 12 and 13") is None


def test_a_title_that_names_the_error_stands_for_the_line_that_is_missing(
    guessed: Callable[[str], Guess | None],
) -> None:
    cut = f'{HEAD}  File "{SITE}/flash_attn/flash_attn_interface.py", line 79, in f\n    fwd(\n'
    found = guessed(f"# RuntimeError: head size must be a multiple of 8\n{cut}")
    assert found is not None
    assert (found.component, found.kind, found.line) == ("flash-attn-2", "input", 1)
    assert guessed(f"# CUDA error: out of memory\n{cut}") is None


@pytest.mark.parametrize(
    ("log", "component", "kind"),
    [
        (
            "AssertionError: Paged attention required Flash Attention 2.5.7 or later",
            "flash-attn-2",
            "version",
        ),
        (
            (
                "CalledProcessError: Command '['C:\\\\VC\\\\cl.exe', 'C:\\\\Temp\\\\main.c',"
                " '/OUT:C:\\\\Temp\\\\cuda_utils.cp311-win_amd64.pyd']' returned non-zero exit status 2."
            ),
            "triton",
            "build",
        ),
        (
            (
                "run --flash true\nError: shape '[3, 1, 20, 64]' is invalid for input of size 5760000\n"
                "You are attempting to use Flash Attention 2.0 with a model not initialized on GPU."
            ),
            "flash-attn-2",
            "input",
        ),
        (
            "RuntimeError: Expected dout_seq_stride == out_seq_stride to be true, but got false.",
            "flash-attn-2",
            "input",
        ),
    ],
)
def test_the_message_alone_names_the_component(
    guessed: Callable[[str], Guess | None], log: str, component: str, kind: str
) -> None:
    found = guessed(log)
    assert found is not None
    assert (found.component, found.kind) == (component, kind)


def test_a_server_that_starts_without_a_plugin_has_no_failure_of_its_own(
    guessed: Callable[[str], Guess | None],
) -> None:
    log = (
        f'{HEAD}  File "/comfy/custom_nodes/a.py", line 5, in <module>\n'
        "ImportError: cannot import name 'attention_basic' from 'comfy.ldm.modules.attention'\n"
    )
    assert guessed(log) is not None
    assert guessed(f"{log}Starting server\nTo see the GUI go to: http://127.0.0.1:8188\n") is None


def test_what_pip_says_of_two_packages_is_explained(guessed: Callable[[str], Guess | None]) -> None:
    said = "vllm 0.6.3 requires xformers==0.0.27.post2, but you have xformers 0.0.28 which is incompatible.\n"
    found = guessed(said)
    assert found is not None
    assert (found.component, found.kind, found.seen) == ("xformers", "version", "xformers 0.0.28")
    assert guessed(f"{said}Successfully installed xformers-0.0.28\n") is None


@pytest.mark.parametrize(
    ("log", "component"),
    [
        # Only its logger says that it is an error.
        ("ERROR 10-31 00:28:52 [a.py:120] flash-attn cannot serve a head size of 96\n", "flash-attn-2"),
        ("ERROR:app.runner:CUTLASS_PATH is not set to a valid path, and cutlass_library is not installed\n", "deepspeed"),
        (
            ("Traceback (most recent call last):\n"
            '  File "/venv/lib/python3.11/site-packages/cuequivariance_torch/primitives/triangle.py", line 9, in f\n'
            "    return f(q, k, v)\n"
            "RuntimeError: CUDA error: invalid argument\n"),
            "cuequivariance",
        ),
        # The code of the program around a kernel that failed on the GPU.
        (
            ("Traceback (most recent call last):\n"
            '  File "/home/me/model/attention.py", line 9, in forward\n'
            "    out = torch.einsum(a, b)\n"
            "RuntimeError: CUDA error: misaligned address\n"),
            "own-attention",
        ),
        ("  x Failed to build `nunchaku==1.0.0`\n  error: something odd\n", "nunchaku"),
        (
            ("Traceback (most recent call last):\n"
            '  File "/src/fla/ops/common/backends/tilelang/chunk_bwd.py", line 320, in chunk_bwd_dqkwg\n'
            "    kernel(q)\n"
            '  File "/venv/tilelang/tileop/gemm/__init__.py", line 143, in _select_gemm_instruction\n'
            "    return GemmInst(x)\n"
            '  File "<unknown>", line 0, in tvm::tl::GemmPyNode::getGemmInst(int) const\n'
            "tvm.error.InternalError: Check failed: (0) is false: Unsupported target for gemm: hip\n"),
            "fla",
        ),
        ("Exception during processing !!! AttnProcessor2_0.__call__() got multiple values for argument 'x'\n", "diffusers"),
        ("# SDPA not implemented error\n  File \"/a/b.py\", line 3, in f\n    g(x)\n", "sdpa"),
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  Assertion fail: /src/layers/FusedAttentionLayer.cu:178\n", "other-attention"),
    ],
)  # fmt: skip
def test_what_names_a_component(
    rule: Callable[..., None], explained: Callable[..., Explanation], log: str, component: str
) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    guess = explained(log).guess
    assert guess is not None
    assert guess.component == component


@pytest.mark.parametrize(
    "log",
    [
        "ERROR 10-31 00:28:52 [a.py:120] ['python', 'train.py', '--flash_attn', 'on'] ended\n",
        "ERROR 10-31 00:28:52 [a.py:120] flash-attn is not installed, falling back to SDPA\nstep 1\nstep 2\nstep 3\n",
        "using flash-attn\nERROR 10-31 00:28:52 [a.py:120] the job ended without an answer\n",
    ],
)  # fmt: skip
def test_an_error_of_a_logger_that_names_no_failure_of_attention(
    rule: Callable[..., None], explained: Callable[..., Explanation], log: str
) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    assert explained(log).guess is None


def test_the_first_of_exceptions_that_follow_each_other(
    rule: Callable[..., None], explained: Callable[..., Explanation]
) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    log = (
        "TypeError: _scaled_dot_product_attention_math() got an unexpected keyword argument 'gqa'\n"
        "RuntimeError: aten::_scaled_dot_product_attention_math() takes 7 positional arguments\n"
    )
    guess = explained(log).guess
    assert guess is not None
    assert (guess.component, guess.line) == ("sdpa", 1)


def test_the_marked_line_of_a_notebook(
    rule: Callable[..., None], explained: Callable[..., Explanation]
) -> None:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    log = (
        "[/usr/lib/python3.11/dist-packages/flash_attn/a.py](https://localhost:8080/#) in f(q, k)\n"
        "    10     x = prepare(q)\n"
        "---> 11     return flash_attn_func(x, k)\n"
        "    12 \n"
    )
    guess = explained(log).guess
    assert guess is not None
    assert (guess.component, guess.kind, guess.line) == ("flash-attn-2", "cut", 3)
