"""A failure of the GPU's software that ends a log before attention begins."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from attn_doctor.explain.components import component_table
from attn_doctor.explain.explanation import Explanation, Guess

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

HEAD = 'Traceback (most recent call last):\n  File "/home/me/run.py", line 3, in main\n    y = model(x)\n'


@pytest.fixture
def guessed(rule: WriteRule, explained: Explain) -> Callable[[str], Guess | None]:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    return lambda log: explained(log).guess


@pytest.mark.parametrize(
    ("log", "part", "line"),
    [
        (HEAD + "RuntimeError: could not create a primitive", "onednn", 4),
        (
            "INFO: loading the model\nMemory access fault by GPU node-1 (Agent handle: 0x1b) on address 0x7f. Reason: Page not present.\nAborted (core dumped)",
            "rocm",
            2,
        ),
        (
            "MIOpen Error: /src/hipoc_program.cpp:299: Code object build failed. Source: naive_conv.cpp\n"
            + HEAD
            + "RuntimeError: miopenStatusUnknownError",
            "miopen",
            5,
        ),
        (HEAD + "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "level-zero", 4),
        (HEAD + "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH", "cudnn-library", 4),
        (HEAD + "RuntimeError: CUDA driver error: operation not supported", "driver", 4),
        (HEAD + "RuntimeError: could not create an engine", "onednn", 4),
        (HEAD + "torch.AcceleratorError: CUDA error: invalid argument\nSearch for `hipErrorInvalidValue' in https://rocm.docs.amd.com/projects/HIP/en/latest/index.html for more information.", "rocm", 4),
        ("loading\nCUDA Error: no kernel image is available for execution on the device", "device-code", 2),
        ("loading\nOMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.", "openmp", 2),
        (HEAD + "AssertionError: Torch not compiled with XPU enabled", "torch-build", 4),
        (HEAD + "RuntimeError: CUDA must not be initialized in the main process on Spaces with Stateless GPU environment.", "zerogpu", 4),
        (HEAD + "ImportError: cannot import name '_C' from 'sam2' (/home/me/sam2/sam2/__init__.py)", "extension-missing", 4),
        (HEAD + "ModuleNotFoundError: No module named 'pcdet.ops.iou3d_nms.iou3d_nms_cuda'", "extension-missing", 4),
        ('Traceback (most recent call last):\n  File "/a/fused_moe.py", line 3, in fused_moe\n    kernel[grid](a)\nRuntimeError: PassManager::run failed', "triton-compiler", 4),
        (HEAD + "RuntimeError: Tensor size for `masked_fill` exceeds the limit supported by the MPS backend: must be less than 2**32 elements", "metal", 4),
        (HEAD + "RuntimeError: npuSynchronizeDevice:NPUStream.cpp:627 NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507015", "cann", 4),
        (
            HEAD + "RuntimeError: Error building extension 'cpu_adam': [1/2] c++ -c x.cpp\nx.cpp(7): error: identifier is undefined\nninja: build stopped",
            "extension-build",
            5,
        ),
        ("torch/include/c10/util/C++17.h:27:2: error: #error You need C++17 to compile PyTorch", "extension-build", 1),
        (HEAD + "RuntimeError: CUDA error: invalid device function", "device-code", 4),
        (HEAD + "RuntimeError: CUDA driver error: PTX JIT compilation failed", "device-code", 4),
        (HEAD + "RuntimeError: MUSA error: invalid device function", "musa", 4),
        ("nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)", "extension-build", 1),
        (HEAD + "RuntimeError: [TM][ERROR] CUDA runtime error: operation not supported", "driver", 4),
        ("ptxas /tmp/tmpxft_0-7_a.ptx, line 17; error   : Instruction 'wgmma.fence' not supported on .target 'sm_90'", "extension-build", 1),
        ("python setup.py build\nError:command 'C:\\\\CUDA\\\\bin\\\\nvcc.exe' failed with exit status 2", "extension-build", 2),
        ("/Types/MPSNDArray.mm:829: failed assertion `[MPSNDArray initWithDevice:] Error: NDArray dimension length > INT_MAX'", "metal", 1),
        (HEAD + "OSError: ROCM_HOME environment variable is not set. Please set it", "rocm", 4),
        ('failed to get sandbox runtime: no runtime for "nvidia" is configured', "container", 1),
        (HEAD + "RuntimeError: CUDA error: named symbol not found", "driver", 4),
        ("loading NVML\nFailed to start nvml with error:  could not load NVML library", "driver", 2),
        ("Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device", "container", 1),
        (HEAD + "ImportError: /a/libs/__ext.so: undefined symbol: __cudaPopCallConfiguration", "extension-symbols", 4),
        (HEAD + "ImportError: /a/ops.cpython-310-x86_64-linux-gnu.so: undefined symbol: _Z16deform_cuda_backRKN2at6TensorE", "extension-symbols", 4),
        (HEAD + "ImportError: /a/vllm/_C.abi3.so: undefined symbol: cuTensorMapEncodeTiled", "driver", 4),
        (HEAD + "RuntimeError: Unrecognized tensor type ID: Autocast", "extension-other-torch", 4),
        ("building\nnvcc fatal   : Unsupported gpu architecture 'compute_61'\nninja: build stopped", "extension-build", 2),
        ("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.", "extension-build", 1),
        ("ValueError: GPUs with compute capability < 8.0 are not supported.", "gpu-unsupported", 1),
        ("!!! Exception during processing !!! UR error\n" + HEAD, "level-zero", 1),
        # The title of a report says what its traceback, which is cut, does not.
        ("# RuntimeError: src/indice.cu 120 cuda execution failed with error 98\n" + HEAD, "device-code", 1),
        (
            r'OSError: [WinError 1114] Error loading "C:\venv\Lib\site-packages\torch\lib\c10.dll" or one of its dependencies.',
            "library",
            1,
        ),
        (
            "[E 12/20/24 08:45:40.689 2984] [cuda_driver.h:operator()@92] CUDA Error CUDA_ERROR_NO_DEVICE: no CUDA-capable device",
            "driver",
            1,
        ),
    ],
)  # fmt: skip
def test_the_part_and_its_line(
    guessed: Callable[[str], Guess | None], log: str, part: str, line: int
) -> None:
    found = guessed(log)
    assert found is not None
    assert (found.component, found.kind, found.line) == (part, "outside", line)


@pytest.mark.parametrize(
    "log",
    [
        # Another framework failed.
        "I tensorflow/core/common_runtime/gpu_device.cc:1532] Created device\nMemory access fault by GPU node-2 on address 0x1000.",
        "main: build = 1641 (6744dbe)\nrocBLAS error: Cannot read TensileLibrary.dat: Illegal seek for GPU arch : gfx1103",
        # A library of another package, and a compiler of another build.
        "Could not load bitsandbytes native library: libcusparse.so.11: cannot open shared object file",
        "nvcc fatal   : Unknown option '-mavx'",
        HEAD + "ImportError: /usr/lib/libgdal.so.26: undefined symbol: TIFFReadRGBATileExt",
        # The memory is full.
        HEAD + "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY), out of memory",
        # The run went on, and ended in another failure.
        "MIOpen Error: cannot open the database\n" + HEAD + "KeyError: 'prompt'",
        HEAD + "ValueError: the file has no such key",
    ],
)  # fmt: skip
def test_other_failures(guessed: Callable[[str], Guess | None], log: str) -> None:
    assert guessed(log) is None


def test_a_component_of_attention_comes_first(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        'Traceback (most recent call last):\n  File "/venv/lib/python3.11/site-packages/flash_attn/a.py", line 7, in f\n'
        "    flash_attn_cuda.fwd(q)\nRuntimeError: HIP error: invalid argument"
    )
    assert found is not None
    assert found.component == "flash-attn-2"


def test_a_compiler_of_triton_that_fails_is_shown(guessed: Callable[[str], Guess | None]) -> None:
    found = guessed(
        '  File "E:\\python\\lib\\site-packages\\triton\\backends\\nvidia\\compiler.py", line 374, in make_cubin\n'
        "    subprocess.run(ptxas_cmd, check=True)\n"
        '  File "E:\\python\\lib\\subprocess.py", line 526, in run\n'
        "    raise CalledProcessError(retcode, process.args,\n"
        "subprocess.CalledProcessError: Command '['C:\\\\bin\\\\ptxas.exe', '--gpu-name=sm_75']' returned non-zero exit status 4294967295."
    )
    assert found is not None
    assert (found.component, found.line) == ("triton", 5)


def test_the_table() -> None:
    table = component_table()
    ids = [one.id for part in (table.component, table.outside, table.framework) for one in part]
    assert len(set(ids)) == len(ids)
    for one in table.outside:
        assert one.advice.endswith(".")
        assert all(re.compile(pattern).search("") is None for pattern in one.messages)


def test_the_first_of_lines_that_follow_each_other(guessed: Callable[[str], Guess | None]) -> None:
    place = 'loc("mps_matmul"("(mpsFileLoc): /a/MPSGraphUtilities.mm":43:0)): error: '
    log = f"loading\n{place}incompatible dimensions\n{place}invalid shape\nLLVM ERROR: Failed to infer result type(s)."
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == ("metal", 2)


def test_a_module_that_was_not_built(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        "RuntimeError: Error building extension 'fused_adam'\n\n"
        "ImportError: /home/me/.cache/torch_extensions/py310_cu118/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory\n\n"
        "failed (exitcode: 1) local_rank: 0 (pid: 32) of binary: /home/me/bin/python3.10"
    )
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == ("extension-build", 1)


def test_a_crash_at_the_exit_of_python(guessed: Callable[[str], Guess | None]) -> None:
    log = (
        "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9, libcudnn_ops.so}\n"
        "Traceback (most recent call last):\n"
        '  File "<string>", line 1, in <module>\n'
        '  File "<frozen posixpath>", line 181, in dirname\n'
        "TypeError: expected str, bytes or os.PathLike object, not NoneType"
    )
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == ("cudnn-library", 1)
