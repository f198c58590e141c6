"""What is read from kernels' files, that launches are counted, what is refused by its name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from .conftest import Program

REGISTERS, STACK = 0x2F, 0x11

LOAD = """
module, function, value = c_void_p(), c_void_p(), c_int(-1)
image = open(os.environ["CUBIN"], "rb").read()
code = cuda.cuModuleLoadData(byref(module), image)
text = c_char_p()
cuda.cuGetErrorString(code, byref(text))
def attribute(number):
    assert cuda.cuFuncGetAttribute(byref(value), number, function) == 0
    return value.value
"""


def cubin(
    name: str = "kernel", registers: int = 128, stack: int = 24, shared: int = 4096, data: int = 40
) -> bytes:
    """A module as NVIDIA's assembler lays it out, with one kernel and one variable `table`."""
    strings = b"\0" + name.encode() + b"\0table\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 16)
    symbols += struct.pack("<IBBHQQ", 2 + len(name), 0x11, 0, 1, 0, data)
    info = b"".join(
        struct.pack("<BBHII", 4, kind, 8, 1, value)
        for kind, value in ((REGISTERS, registers), (STACK, stack))
    )
    sections: list[tuple[bytes, int, bytes, int, int, int]] = [
        (b"", 0, b"", 0, 0, 0),
        (b".text." + name.encode(), 1, bytes(16), 0, 0, registers << 24),
        (b".nv.info", 0x70000000, b"\x01\x02\0\0" + info, 0, 0, 0),
        (b".nv.shared." + name.encode(), 8, b"", shared, 0, 0),
        (b".symtab", 2, symbols, 0, 5, 0),
        (b".strtab", 3, strings, 0, 0, 0),
    ]
    titles = b""
    places = []
    for title in [*(one[0] for one in sections), b".shstrtab"]:
        places.append(len(titles))
        titles += title + b"\0"
    sections.append((b".shstrtab", 3, titles, 0, 0, 0))
    body, headers = b"", b""
    for place, (_, kind, content, size, link, extra) in zip(places, sections, strict=True):
        headers += struct.pack(
            "<IIQQQQIIQQ",
            place,
            kind,
            0,
            0,
            64 + len(body),
            size or len(content),
            link,
            extra,
            1,
            0,
        )
        body += content
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections), 6
    )
    return head + body + headers


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file with the module."""
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin())
    return path


def test_registers_and_memory_come_from_the_file(on_stub_gpu: Program, module: Path) -> None:
    out = on_stub_gpu(
        LOAD
        + """
assert code == 0, text.value
assert cuda.cuModuleGetFunction(byref(function), module, b"kernel") == 0
out = {number: attribute(number) for number in (0, 1, 3, 4, 5, 6)}
out = [out, cuda.cuModuleGetFunction(byref(function), module, b"other"), unknown()]
""",
        CUBIN=str(module),
    )
    found, missing, names = out
    assert found == {"0": 1024, "1": 4096, "3": 24, "4": 128, "5": 91, "6": 91}
    assert (missing, names) == (500, [])


@pytest.mark.parametrize(
    ("registers", "threads", "dynamic", "blocks"),
    [
        # 65536 registers, 2048 threads; of 228 KiB a block takes 4096 bytes, the asked and 1024.
        (128, 256, 0, 2),
        (32, 256, 0, 8),
        (32, 1024, 0, 2),
        (32, 64, 120_000, 1),
        (32, 64, 60_000, 3),
        (255, 1024, 0, 0),
    ],
)
def test_occupancy_is_reckoned_from_the_file(
    on_stub_gpu: Program, tmp_path: Path, registers: int, threads: int, dynamic: int, blocks: int
) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin(registers=registers))
    out = on_stub_gpu(
        LOAD
        + f"""
assert cuda.cuModuleGetFunction(byref(function), module, b"kernel") == 0
code = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
    byref(value), function, {threads}, c_size_t({dynamic})
)
out = [code, value.value]
""",
        CUBIN=str(path),
    )
    assert out == [0, blocks]


def test_a_variable_of_a_module_is_memory(on_stub_gpu: Program, module: Path) -> None:
    out = on_stub_gpu(
        LOAD
        + """
at, size = c_void_p(), c_size_t()
assert cuda.cuModuleGetGlobal_v2(byref(at), byref(size), module, b"table") == 0
up(at.value, b"xyz")
out = [size.value, down(at.value, 3), reads]
""",
        CUBIN=str(module),
    )
    assert out == [40, list(b"xyz"), []]


@pytest.mark.parametrize("cut", [40, 100, 300, -1])
def test_a_damaged_file_is_refused(on_stub_gpu: Program, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin()[:cut])
    out = on_stub_gpu(
        """
        module = c_void_p()
        code = cuda.cuModuleLoad(byref(module), os.environ["CUBIN"].encode())
        out = [code, module.value]
        """,
        CUBIN=str(path),
    )
    assert out == [200, None]


def test_ptx_is_refused(on_stub_gpu: Program, tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(b".version 8.0\n.target sm_90\n\0")
    code, text, names = on_stub_gpu(
        LOAD + "out = [code, text.value.decode(), unknown()]", CUBIN=str(path)
    )
    assert code == 801
    assert "loading PTX" in text
    assert names == ["loading", "PTX"]


def test_more_shared_memory_than_the_gpu_has(on_stub_gpu: Program, module: Path) -> None:
    out = on_stub_gpu(
        LOAD
        + """
assert cuda.cuModuleGetFunction(byref(function), module, b"kernel") == 0
out = [cuda.cuFuncSetAttribute(function, 8, size) for size in (200_000, 200_001)]
""",
        CUBIN=str(module),
    )
    assert out == [0, 1]


REFUSED = {
    "cudaStreamBeginCapture": "cuda.cudaStreamBeginCapture(None, 0)",
    "cudaGraphCreate": "cuda.cudaGraphCreate(byref(p), 0)",
    "cudaMallocManaged": "cuda.cudaMallocManaged(byref(p), c_size_t(4), 1)",
    "cudaIpcGetMemHandle": "cuda.cudaIpcGetMemHandle(byref(p), None)",
    "cudaMallocArray": "cuda.cudaMallocArray(byref(p), None, c_size_t(4), c_size_t(4), 0)",
    "cudaDeviceGetLimit": "cuda.cudaDeviceGetLimit(byref(p), 0)",
    "cuStreamBeginCapture_v2": "cuda.cuStreamBeginCapture_v2(None, 0)",
    "cuGetExportTable": "cuda.cuGetExportTable(byref(p), None)",
    "cuLinkCreate_v2": "cuda.cuLinkCreate_v2(0, None, None, byref(p))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_is_refused_by_name(on_stub_gpu: Program, name: str) -> None:
    code, runtime, driver, last, names = on_stub_gpu(
        f"""
        p = c_void_p()
        code = {REFUSED[name]}
        text = c_char_p()
        cuda.cuGetErrorString(code, byref(text))
        out = [code, words(code), text.value.decode(), cuda.cudaGetLastError(), unknown()]
        """
    )
    assert code == 801
    assert runtime == driver == (f"the stub GPU cannot do {name}: only a real GPU can answer")
    assert last == (801 if name.startswith("cuda") else 0)
    assert names == [name]


def test_other_libraries_are_refused_at_their_first_call(on_stub_gpu: Program) -> None:
    first = ["cudnnCreate", "cusolverDnCreate", "cusparseCreate", "cufftPlan1d", "ncclCommInitAll"]
    codes, names = on_stub_gpu(
        f"""
        p = c_void_p()
        out = [[getattr(cuda, name)(byref(p)) for name in {first}], unknown()]
        """
    )
    assert 0 not in codes
    assert names == first


def test_the_driver_is_asked_for_functions_by_name(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def found(name):
            p, state = c_void_p(), c_int(-1)
            code = cuda.cuGetProcAddress_v2(name, byref(p), 12000, ctypes.c_uint64(0), byref(state))
            return code, state.value, p.value
        def own(name):
            return ctypes.cast(getattr(cuda, name), c_void_p).value
        assert found(b"cuMemAlloc")[2] == own("cuMemAlloc_v2")
        assert found(b"cuCtxGetDevice")[2] == own("cuCtxGetDevice")
        assert found(b"cuMemcpyDtoHAsync")[2] == own("cuMemcpyDtoHAsync_v2")
        assert found(b"cuInit")[2] == own("cuInit")
        out = found(b"cuNoSuchFunction")
        """
    )
    assert out == [500, 1, None]


def test_launches_are_counted_from_all_threads(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def work():
            for _ in range(500):
                at = malloc(4096)
                up(at, b"z" * 64)
                launch()
                assert cuda.cudaFree(at) == 0
        threads = [threading.Thread(target=work) for _ in range(8)]
        for one in threads: one.start()
        children = []
        for _ in range(20):
            pid = os.fork()
            if not pid:  # the locks are free in a fork, whatever the other threads did
                at = malloc(8)
                up(at, b"fork")
                os._exit(0 if down(at, 4) == list(b"fork") else 1)
            children.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in children]
        for one in threads: one.join()
        out = [cuda.stub_gpu_launches(), codes]
        """
    )
    assert out == [4000, [0] * 20]


def test_a_host_function_runs_in_its_turn(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        seen = []
        @CFUNCTYPE(None, c_void_p)
        def call(data): seen.append(data)
        cuda.cudaLaunchHostFunc(None, call, c_void_p(5))
        out = seen
        """
    )
    assert out == [5]


def test_a_process_tells_that_it_used_the_gpu(on_stub_gpu: Program, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    out = on_stub_gpu(
        """
        folder = os.environ["ATTN_DOCTOR_STUB_GPU_REPORT"]
        before = os.listdir(folder)
        malloc(1)
        launch()
        pid = os.fork()
        if not pid:
            launch()
            os._exit(0)
        os.waitpid(pid, 0)
        wanted = {f"used-{one}" for one in (os.getpid(), pid)}
        out = [before, set(os.listdir(folder)) == wanted]
        """,
        ATTN_DOCTOR_STUB_GPU_REPORT=str(folder),
    )
    assert out == [[], True]
