"""A real CUDA build of torch on the stub GPU: the interpreter of ATTN_DOCTOR_CUDA_TORCH_PYTHON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.version import Version

from attn_doctor import processes
from attn_doctor.examination import examine
from attn_doctor.facts import Facts
from attn_doctor.host.local import LocalHost
from attn_doctor.kernels.gpus import stub
from attn_doctor.kernels.gpus.descriptor import ATTRIBUTES
from attn_doctor.pool.pool import Pool

from .conftest import GPU as TEST_GPU

HERE = Path(__file__).parent
#: Code is generated for it, so it needs a compute capability that there is.
GPU = replace(TEST_GPU, minor=0)
PYTHON = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
pytestmark = [
    pytest.mark.cuda_torch,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="ATTN_DOCTOR_CUDA_TORCH_PYTHON names no CUDA torch"),
]


@pytest.fixture(scope="module")
def facts() -> Facts:
    return examine(LocalHost(), PYTHON, 30.0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache").resolve()
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="module")
def environ(facts: Facts, cache: Path) -> dict[str, str]:
    """A child's variables for two stub GPUs."""
    library = stub.make(facts, {"XDG_CACHE_HOME": str(cache)})
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return stub.environment(library, GPU, 2, plain)


def last_line(argv: list[str], environ: dict[str, str]) -> Any:
    ended = processes.run([PYTHON, *argv], 300.0, env=environ)
    assert ended.ok, f"{ended.status}\n{ended.out}\n{ended.err}"
    return json.loads(ended.out.splitlines()[-1])


@pytest.fixture(scope="module", params=["", "expandable_segments:True", "backend:cudaMallocAsync"])
def results(request: pytest.FixtureRequest, environ: dict[str, str]) -> dict[str, Any]:
    """What the program saw, under each of torch's allocators."""
    allocator = {"PYTORCH_CUDA_ALLOC_CONF": request.param} if request.param else {}
    names = ",".join(["name", "total_memory", *ATTRIBUTES])
    found: dict[str, Any] = last_line([str(HERE / "torch_program.py"), names], environ | allocator)
    return found


def test_torch_on_the_stub_gpu(results: dict[str, Any]) -> None:
    unknown = results.pop("unknown")
    properties, _ = results.pop("properties")
    assert len(properties) > 5
    assert properties == {name: getattr(GPU, name) for name in properties}
    memory, _ = results.pop("memory")
    assert memory.startswith("OutOfMemoryError")
    conv, _ = results.pop("conv")
    assert "cuDNN error" in conv
    assert "cudnnCreate" in unknown
    graph, _ = results.pop("graph")
    assert graph.partition(": ")[2] == (
        "CUDA error: the stub GPU cannot do cudaStreamBeginCapture: only a real GPU can answer"
    )
    refused, reads = results.pop("refused")
    assert refused.partition(": ")[2] == "CUDA error: not while compiling (train.py:12)"
    assert reads == [4]
    assert results == {
        "count": [2, []],
        "capability": [[9, 0], []],
        "known": [[10, 11, 12], []],
        "large": [[9_999_998, 9_999_999], []],
        "item": [0.0, [4]],
        "matmul": [[8, 7], []],
        "train": [["cuda:0", True], []],
        "hooked": [[False], [4]],
        "after": [1.5, []],
        "streams": [[0, 1, 2], []],
        "other": ["cuda:1", []],
        "peer": [[0, 1, 2], []],
    }


def test_a_second_make_is_quick(facts: Facts, environ: dict[str, str], cache: Path) -> None:
    start = time.monotonic()
    library = stub.make(facts, {"XDG_CACHE_HOME": str(cache)})
    assert time.monotonic() - start < 2.0
    assert environ["ATTN_DOCTOR_STUB_GPU"] == str(library)


def test_the_server_forks_workers_that_may_use_cuda(
    facts: Facts, environ: dict[str, str], tmp_path: Path
) -> None:
    if not facts.torch.has_flex:
        pytest.skip("the server imports FlexAttention, which this torch does not have")
    with Pool(PYTHON, environ, tmp_path, fresh=False) as pool:
        while not pool.hello:
            assert pool.wait(1.0) == []
    assert pool.hello["fork"]


FLEX = """
import json
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")
q, k, v = (torch.randn(1, 2, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
           for _ in range(3))
out = torch.compile(flex_attention)(q, k, v, block_mask=mask)
out.backward(torch.ones_like(out))
print(json.dumps([counters["aot_autograd"].get("autograd_cache_hit", 0),
                  counters["inductor"].get("fxgraph_cache_hit", 0),
                  counters["inductor"].get("fxgraph_cache_miss", 0)]))
"""


def test_a_second_process_finds_all_that_the_first_compiled(
    facts: Facts, environ: dict[str, str], tmp_path: Path
) -> None:
    if Version(facts.torch.version or "0") < Version("2.11"):
        pytest.skip("before torch 2.11 a graph with FlexAttention bypasses the cache")
    program = tmp_path / "flex.py"
    program.write_text(FLEX)
    environ = environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "kernels"),
        # torch's workers hang if the program ends before they are up (torch 2.11, Python 3.12).
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    assert last_line([str(program)], environ) == [0, 0, 2]
    assert last_line([str(program)], environ) == [1, 2, 0]
    cubins = list((tmp_path / "kernels").rglob("*.cubin"))
    assert len(cubins) >= 3
