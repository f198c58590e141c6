"""Known bytes come back as they are; every other byte that reaches the host is reported."""

from __future__ import annotations

import pytest

from .conftest import GPU, Program


def test_a_copy_comes_back_until_something_is_launched(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        at = malloc(64)
        up(at, b"abcdef")
        before = down(at, 6), list(reads)
        launch()
        after = down(at, 6), list(reads)
        out = [before, after, at, cuda.stub_gpu_launches()]
        """
    )
    before, after, address, launches = out
    assert before == [list(b"abcdef"), []]
    assert after == [[0] * 6, [["cudaMemcpy", address, 6]]]
    assert launches == 1


def test_memory_without_a_write_is_unknown(on_stub_gpu: Program) -> None:
    assert on_stub_gpu("at = malloc(8); down(at, 8); out = len(reads)") == 1


def test_what_is_copied_within_the_device_stays_as_known_as_it_was(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        a, b = malloc(64), malloc(64)
        up(a, bytes(range(10)))
        assert cuda.cudaMemcpy(b + 5, a + 2, 6, AROUND) == 0
        out = [down(b + 5, 6), len(reads)]
        assert cuda.cudaMemcpy(b, a, 64, DEFAULT) == 0
        out += [down(b, 10), len(reads)]
        """
    )
    assert out == [[2, 3, 4, 5, 6, 7], 0, [0] * 10, 1]


#: Every way from the device to the host, as a call with `host`, `at` and a size of 8.
WAYS = {
    "cudaMemcpy": "cuda.cudaMemcpy(host, at, 8, DOWN)",
    "cudaMemcpy by address": "cuda.cudaMemcpy(host, at, 8, DEFAULT)",
    "cudaMemcpyAsync": "cuda.cudaMemcpyAsync(host, p(at), n(8), DOWN, None)",
    "cudaMemcpyPeer": "cuda.cudaMemcpyPeer(host, 0, p(at), 0, n(8))",
    "cudaMemcpyPeerAsync": "cuda.cudaMemcpyPeerAsync(host, 0, p(at), 0, n(8), None)",
    "cudaMemcpy2D": "cuda.cudaMemcpy2D(host, n(4), p(at), n(4), n(4), n(2), DOWN)",
    "cudaMemcpy2DAsync": "cuda.cudaMemcpy2DAsync(host, n(4), p(at), n(4), n(4), n(2), DOWN, None)",
    "cudaMemcpy3D": "cuda.cudaMemcpy3D(byref(box))",
    "cudaMemcpy3DAsync": "cuda.cudaMemcpy3DAsync(byref(box), None)",
    "cudaMemcpyBatchAsync": (
        "cuda.cudaMemcpyBatchAsync((c_void_p * 1)(a(host)), (c_void_p * 1)(at), (c_size_t * 1)(8),"
        " n(1), None, None, n(0), None, None)"
    ),
    "cuMemcpyDtoH_v2": "cuda.cuMemcpyDtoH_v2(host, p(at), n(8))",
    "cuMemcpyDtoHAsync_v2": "cuda.cuMemcpyDtoHAsync_v2(host, p(at), n(8), None)",
    "cuMemcpy": "cuda.cuMemcpy(p(a(host)), p(at), n(8))",
    "cuMemcpyAsync": "cuda.cuMemcpyAsync(p(a(host)), p(at), n(8), None)",
    "cuMemcpyPeer": "cuda.cuMemcpyPeer(p(a(host)), None, p(at), None, n(8))",
    "cuMemcpyBatchAsync": (
        "cuda.cuMemcpyBatchAsync((c_void_p * 1)(a(host)), (c_void_p * 1)(at), (c_size_t * 1)(8),"
        " n(1), None, None, n(0), None)"
    ),
    "cuMemcpy2D_v2": "cuda.cuMemcpy2D_v2(flat)",
    "cuMemcpy2DUnaligned_v2": "cuda.cuMemcpy2DUnaligned_v2(flat)",
    "cuMemcpy2DAsync_v2": "cuda.cuMemcpy2DAsync_v2(flat, None)",
    "cudaMemcpyFromSymbol": "cuda.cudaMemcpyFromSymbol(host, symbol, n(8), n(0), DOWN)",
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_host_is_watched(on_stub_gpu: Program, way: str) -> None:
    known, first, unknown, second = on_stub_gpu(
        f"""
        p, n, a = c_void_p, c_size_t, ctypes.addressof
        host = ctypes.create_string_buffer(8)
        symbol = ctypes.create_string_buffer(8)
        cuda.__getattr__("__cudaRegisterVar")(None, symbol, None, b"s", 0, n(8), 0, 0)
        there = c_void_p()
        assert cuda.cudaGetSymbolAddress(byref(there), symbol) == 0
        at = there.value

        class Pitched(ctypes.Structure):
            _fields_ = [("ptr", p), ("pitch", n), ("xsize", n), ("ysize", n)]

        class Box(ctypes.Structure):
            _fields_ = [("from_array", p), ("from_at", n * 3), ("from_", Pitched),
                        ("to_array", p), ("to_at", n * 3), ("to", Pitched),
                        ("extent", n * 3), ("kind", c_int)]

        class Flat(ctypes.Structure):
            _fields_ = [("x", n), ("y", n), ("type", c_int), ("host", p), ("device", p),
                        ("array", p), ("pitch", n), ("to_x", n), ("to_y", n), ("to_type", c_int),
                        ("to_host", p), ("to_device", p), ("to_array", p), ("to_pitch", n),
                        ("width", n), ("height", n)]

        box = Box(from_=Pitched(at, 4, 4, 1), to=Pitched(a(host), 4, 4, 1), extent=(4, 1, 2),
                  kind=2)
        flat = byref(Flat(type=2, device=at, pitch=4, to_type=1, to_host=a(host), to_pitch=4,
                          width=4, height=2))
        up(at, b"12345678")
        assert {WAYS[way]} == 0
        out = [host.raw.decode(), len(reads)]
        launch()
        assert {WAYS[way]} == 0
        out += [host.raw.hex(), [one[1:] for one in reads] == [[at, 8]]]
        """
    )
    assert (known, first) == ("12345678", 0)
    assert (unknown, second) == ("00" * 8, True)


def test_rows_apart_from_one_another(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        n = c_size_t
        at = malloc(100)
        up(at, bytes(range(100)))
        host = ctypes.create_string_buffer(6)
        assert cuda.cudaMemcpy2D(host, n(3), c_void_p(at + 11), n(20), n(3), n(2), DOWN) == 0
        wrong = cuda.cudaMemcpy2D(host, n(2), c_void_p(at), n(20), n(3), n(2), DOWN)
        out = [list(host.raw), reads, words(wrong)]
        """
    )
    assert out == [[11, 12, 13, 31, 32, 33], [], "invalid pitch argument"]


def test_a_refused_read_fails_with_the_reason(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        at = malloc(8)
        refuse.append(b"read while compiling, at train.py:12")
        host = ctypes.create_string_buffer(8)
        code = cuda.cudaMemcpy(host, at, 8, DOWN)
        out = [code, words(code), cuda.cudaGetLastError()]
        code = cuda.cuMemcpyDtoH_v2(host, c_void_p(at), c_size_t(8))
        text = c_char_p()
        cuda.cuGetErrorString(code, byref(text))
        refuse.clear()
        out += [text.value.decode(), cuda.cudaMemcpy(host, at, 8, DOWN)]
        """
    )
    words = "read while compiling, at train.py:12"
    assert out == [800, words, 800, words, 0]


def test_times_are_reported_and_may_be_refused(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        ms = c_float()
        first = cuda.cudaEventElapsedTime(byref(ms), None, None), round(ms.value, 3)
        cuda.cuEventElapsedTime(byref(ms), None, None)
        refuse.append(b"no clock")
        code = cuda.cudaEventElapsedTime(byref(ms), None, None)
        out = [first, timings, words(code)]
        """
    )
    assert out[0] == [0, 0.1]
    assert out[1] == ["cudaEventElapsedTime", "cuEventElapsedTime", "cudaEventElapsedTime"]
    assert out[2] == "no clock"


def test_memory_is_as_large_as_the_gpus(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        def free():
            one, two = c_size_t(), c_size_t()
            assert cuda.cudaMemGetInfo(byref(one), byref(two)) == 0
            return one.value
        all_ = free()
        pointer = c_void_p()
        first = malloc(3 << 30)
        second = malloc(5 << 30)
        code = cuda.cudaMalloc(byref(pointer), 1)
        out = [all_, free(), code, words(code)]
        cuda.cudaFree(first)
        out += [free(), cuda.cudaFree(first), words(1), cuda.cudaMalloc(byref(pointer), 1 << 40)]
        """
    )
    text = f"out of memory: 4096 bytes asked, {GPU.total_memory} of {GPU.total_memory} in use"
    assert out[:4] == [GPU.total_memory, 0, 2, text]
    assert out[4] == 3 << 30
    assert out[5] == 1
    assert "was not allocated" in out[6]
    assert out[7] == 2


def test_a_copy_beyond_the_end_is_an_error(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        at = malloc(4096)
        data = b"x" * 5000
        out = [cuda.cudaMemcpy(at, data, 5000, UP), cuda.cudaMemset(at + 4000, 1, 97)]
        out += [cuda.cudaMemset(at + 4000, 1, 96)]
        """
    )
    assert out == [1, 1, 0]


def test_pinned_memory_is_the_hosts(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        class Attributes(ctypes.Structure):
            _fields_ = [("type", c_int), ("device", c_int), ("device_at", c_void_p),
                        ("host_at", c_void_p), ("more", c_void_p * 8)]

        def kind(address):
            found = Attributes()
            assert cuda.cudaPointerGetAttributes(byref(found), c_void_p(address)) == 0
            return found.type
        pinned = c_void_p()
        assert cuda.cudaHostAlloc(byref(pinned), c_size_t(100), 0) == 0
        plain = ctypes.create_string_buffer(100)
        out = [kind(pinned.value), kind(malloc(1)), kind(ctypes.addressof(plain))]
        cuda.cudaHostRegister(plain, c_size_t(100), 0)
        out.append(kind(ctypes.addressof(plain)))
        launch()
        ctypes.memset(pinned, 7, 100)
        assert cuda.cudaMemcpy(plain, pinned, 100, DEFAULT) == 0
        out += [plain.raw[99], reads, cuda.cudaFreeHost(pinned), cuda.cudaFreeHost(pinned)]
        """
    )
    assert out == [1, 2, 0, 1, 7, [], 0, 1]


def test_more_than_is_kept_counts_as_unknown(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        size = 300 << 20  # one copy beyond the bound
        at = malloc(size)
        up(at, bytes(size))
        assert not cuda.stub_gpu_known(at, 1)
        assert cuda.cudaMemset(at, 0, size) == 0  # zeros cost nothing
        assert cuda.stub_gpu_known(at, size)
        piece = bytes([5]) * (200 << 20)
        parts = [malloc(len(piece)) for _ in range(7)]
        for one in parts:
            up(one, piece)
        out = [bool(cuda.stub_gpu_known(one, len(piece))) for one in parts]
        launch()
        up(parts[-1], piece)
        out.append(bool(cuda.stub_gpu_known(parts[-1], len(piece))))
        """
    )
    assert out == [True] * 5 + [False] * 2 + [True]


def test_addresses_and_memory_apart(on_stub_gpu: Program) -> None:
    out = on_stub_gpu(
        """
        n, p = c_size_t, c_void_p
        class Properties(ctypes.Structure):
            _fields_ = [("type", c_int), ("handles", c_int), ("place", c_int), ("id", c_int),
                        ("more", c_void_p * 4)]
        wanted = Properties(type=1, place=1, id=0)
        step = 2 << 20
        at = p()
        assert cuda.cuMemAddressReserve(byref(at), n(1 << 36), n(0), p(0), 0) == 0
        handles = []
        for i in range(2):
            handle = p()
            assert cuda.cuMemCreate(byref(handle), n(step), byref(wanted), 0) == 0
            assert cuda.cuMemMap(p(at.value + i * step), n(step), n(0), handle, 0) == 0
            handles.append(handle)
        across = at.value + step - 3
        up(across, b"abcdef")
        out = [down(across, 6), reads]
        many = p()
        out.append(cuda.cuMemCreate(byref(many), n(1 << 33), byref(wanted), 0))
        assert cuda.cuMemUnmap(p(at.value + step), n(step)) == 0
        assert cuda.cuMemRelease(handles[1]) == 0
        out.append(bool(cuda.stub_gpu_known(at.value + step, 1)))
        out.append(cuda.cuMemAddressFree(at, n(1 << 36)))
        """
    )
    assert out == [list(b"abcdef"), [], 2, False, 0]


@pytest.mark.parametrize("seed", range(4))
def test_known_bytes_against_a_model(on_stub_gpu: Program, seed: int) -> None:
    """Random copies, fills, copies within and launches; a model keeps each byte's value or None."""
    out = on_stub_gpu(
        f"""
        dice = random.Random({seed})
        SIZE = 96
        blocks = [malloc(SIZE), malloc(SIZE)]
        model = [[None] * SIZE, [None] * SIZE]

        def span():
            start = dice.randrange(SIZE)
            return start, dice.randrange(1, SIZE - start + 1)

        reported = 0
        for step in range(4000):
            which = dice.randrange(2)
            start, size = span()
            deed = dice.random()
            if deed < 0.25:
                data = dice.randbytes(size)
                up(blocks[which] + start, data)
                model[which][start:start + size] = list(data)
            elif deed < 0.4:
                value = dice.choice([0, 0, 7])
                assert cuda.cudaMemset(blocks[which] + start, value, size) == 0
                model[which][start:start + size] = [value] * size
            elif deed < 0.6:
                to = dice.randrange(SIZE - size + 1)
                other = dice.randrange(2)
                if which == other:
                    continue
                code = cuda.cudaMemcpy(blocks[other] + to, blocks[which] + start, size, AROUND)
                assert code == 0
                moved = model[which][start:start + size]
                whole = None not in moved
                model[other][to:to + size] = moved if whole else [None] * size
            elif deed < 0.97:
                got = down(blocks[which] + start, size)
                wanted = model[which][start:start + size]
                if None in wanted:
                    reported += 1
                    wanted = [0] * size
                assert got == wanted, (step, which, start, size)
                assert len(reads) == reported, (step, which, start, size)
            else:
                launch()
                model = [[None] * SIZE, [None] * SIZE]
        out = reported
        """
    )
    assert 100 < out < 3000
