"""What programs on the stub GPU begin with: CUDA's functions, by ctypes, and what it reports."""

from __future__ import annotations

import ctypes
import json  # noqa: F401 (all of these are for the program that follows)
import os
import random  # noqa: F401
import threading  # noqa: F401
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from ctypes import c_float as c_float
from typing import Any

cuda = ctypes.CDLL(os.environ["ATTN_DOCTOR_STUB_GPU"])
cuda.stub_gpu_launches.restype = ctypes.c_ulong
cuda.stub_gpu_unknown.restype = c_char_p
cuda.stub_gpu_known.argtypes = [c_void_p, c_size_t]
cuda.stub_gpu_refuse.argtypes = [c_char_p]
cuda.cudaGetErrorString.restype = c_char_p
cuda.cudaGetErrorName.restype = c_char_p
cuda.cudaLaunchKernel.argtypes = [c_void_p]
cuda.cudaFree.argtypes = [c_void_p]
cuda.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
cuda.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
cuda.cudaMemset.argtypes = [c_void_p, c_int, c_size_t]

UP, DOWN, AROUND, DEFAULT = 1, 2, 3, 4
out: Any = None
reads: list[list[Any]] = []
timings: list[str] = []
refuse: list[bytes] = []


def _read(function: bytes, address: int | None, size: int) -> None:
    reads.append([function.decode(), address or 0, size])
    if refuse:
        cuda.stub_gpu_refuse(refuse[0])


def _timed(function: bytes) -> None:
    timings.append(function.decode())
    if refuse:
        cuda.stub_gpu_refuse(refuse[0])


on_read = CFUNCTYPE(None, c_char_p, c_void_p, c_size_t)(_read)
on_timing = CFUNCTYPE(None, c_char_p)(_timed)
cuda.stub_gpu_on_read(on_read)
cuda.stub_gpu_on_timing(on_timing)


def malloc(size: int) -> int:
    """The address of new memory of the device."""
    pointer = c_void_p()
    code = cuda.cudaMalloc(byref(pointer), size)
    assert code == 0, words(code)
    assert pointer.value
    return pointer.value


def up(address: int, data: bytes) -> None:
    """Copy bytes to the device."""
    assert cuda.cudaMemcpy(address, data, len(data), UP) == 0


def down(address: int, size: int, kind: int = DOWN) -> list[int]:
    """Bytes as the host gets them."""
    buffer = ctypes.create_string_buffer(b"\xee" * size, size)
    code = cuda.cudaMemcpy(buffer, address, size, kind)
    assert code == 0, words(code)
    return list(buffer.raw)


def launch() -> None:
    """An unknown kernel."""
    assert cuda.cudaLaunchKernel(None) == 0


def words(code: int) -> str:
    """The text of an error."""
    return str(cuda.cudaGetErrorString(code), "utf-8")


def unknown() -> list[str]:
    """Names of what only a GPU could have answered."""
    return str(cuda.stub_gpu_unknown(), "utf-8").split()
