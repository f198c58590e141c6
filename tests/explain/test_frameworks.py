"""Another framework than torch that cannot use the GPU: its name and the line, as a guess."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Explanation, Guess

CUINIT = "2024-05-31 11:19:20.168268: W tensorflow/stream_executor/cuda/cuda_driver.cc:269] failed call to cuInit: UNKNOWN ERROR (303)"
ORT = "FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file: No such file or directory"


@pytest.fixture
def guessed(
    rule: Callable[..., None], explained: Callable[..., Explanation]
) -> Callable[[str], Guess | None]:
    rule("a/b", "torch-cpu-only", "a message that no log here has")
    return lambda log: explained(log).guess


@pytest.mark.parametrize(
    ("log", "framework", "line"),
    [
        (
            ("E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
            "Traceback (most recent call last):\n"
            '  File "/venv/lib/python3.11/site-packages/jax/_src/random.py", line 139, in key\n'
            "    return prng.seed_with_impl(impl, seed)\n"
            "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details."),
            "jax",
            1,
        ),
        (f"loading\n2025-11-08 19:02:18.4 [E:onnxruntime:Default, provider_bridge_ort.cc:1546] {ORT}", "onnxruntime", 2),
        (
            ("ggml_cuda_compute_forward: RMS_NORM failed\n"
            "CUDA error: no kernel image is available for execution on the device\n"
            "  current device: 0, in function ggml_cuda_compute_forward at /src/ggml-cuda.cu:2353\n  err"),
            "ggml",
            2,
        ),
        ("ValueError: This CTranslate2 package was not compiled with CUDA support", "ctranslate2", 1),
        ('Error: DriverError(CUDA_ERROR_NOT_FOUND, "named symbol not found") when loading cast_f32_bf16', "candle", 1),
        ("ExternalError:  Cudnn error, CUDNN_STATUS_INTERNAL_ERROR  at (/paddle/paddle/fluid/platform/device_context.h:165)", "paddlepaddle", 1),
        (CUINIT, "tensorflow", 1),
        ("numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)", "numba", 1),
        ("ImportError: CuPy failed to load libnvrtc.so.11.2: libnvrtc.so.11.2: cannot open shared object file: No such file or directory", "cupy", 1),
        # The attention of another framework is a component.
        ('Traceback (most recent call last):\n  File "/a/run.py", line 3, in main\nonnxruntime.capi.onnxruntime_pybind11_state.NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Non-zero status code returned while running MultiHeadAttention node. Status Message: packed QKV format is not implemented', "onnxruntime-attention", 3),
        ("/src/ggml/src/ggml-cuda/fattn.cu:304: fatal error: unsupported head size", "ggml-attention", 1),
    ],
)  # fmt: skip
def test_the_framework_and_its_line(
    guessed: Callable[[str], Guess | None], log: str, framework: str, line: int
) -> None:
    guess = guessed(log)
    assert guess is not None
    assert (guess.component, guess.line) == (framework, line)


@pytest.mark.parametrize(
    "log",
    [
        # It uses the CPU and goes on.
        f'{CUINIT}\nModel: "sequential"\n Layer (type)   Output Shape\nTotal params: 3',
        f"{CUINIT}\n2026-03-31 23:22:43,883 - INFO - MobileNetV2 model built\nTrainable params: 164,097",
        f"{CUINIT}\nEpoch 1/5 loss: 0.31",
        "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered\nusing tensorflow",
        # The run ends in a failure of another kind.
        (
            f"[E:onnxruntime:Default] {ORT}\n"
            'Traceback (most recent call last):\n  File "/a/run.py", line 1, in f\nValueError: no face in this picture'
        ),
        # Only torch is named around it.
        "import torch\nCUDA error: no kernel image is available for execution on the device\nusing onnxruntime",
    ],
)
def test_no_framework_failed(guessed: Callable[[str], Guess | None], log: str) -> None:
    guess = guessed(log)
    assert guess is None or guess.kind != "framework"
