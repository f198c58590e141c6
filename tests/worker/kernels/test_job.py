"""The child side: what it watches, what it counts as reuse, and one real build on the CPU.

The builds need an interpreter with torch, named by ATTN_DOCTOR_TORCH_PYTHON.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from attn_doctor import worker
from attn_doctor.record.manifest import BuildEnvironment
from attn_doctor.worker.kernels import cache_keys, job, torch_builder
from attn_doctor.worker.kernels.blocks import Block, BlockError
from attn_doctor.worker.kernels.blocks.eager_attention import without_cudnn
from attn_doctor.worker.kernels.compiler_watch import (
    Watch,
    files_below,
    mapped,
    vector_checks,
)
from attn_doctor.worker.kernels.fusion_check import switched_off
from attn_doctor.worker.kernels.spec_inputs import own_mask
from attn_doctor.worker.kernels.torch_versions import minor, reuse

PYTHON = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
ROOT = Path(__file__).parents[3]
HIT = {"aot_autograd.autograd_cache_hit": 1, "inductor.fxgraph_cache_hit": 1}


@pytest.mark.parametrize(
    ("argv", "counts"),
    [
        (["g++", "a.cpp", "-o", "/r/a.so"], True),
        (["/usr/bin/x86_64-linux-gnu-g++-12", "a.cpp", "-o", "a.so"], True),
        (["/site/triton/backends/nvidia/bin/ptxas", "-v", "--gpu-name=sm_90", "a.ptx"], True),
        (["ptxas-blackwell", "a.ptx", "-o", "a.cubin"], True),
        (["clang", "main.c", "-shared"], True),
        (["cl.exe", "/c", "a.cpp"], True),
        (["/conda/bin/x86_64-conda-linux-gnu-c++", "a.cpp", "-o", "a.so"], True),
        (["aarch64-unknown-linux-gnu-clang++-17", "-c", "a.cpp"], True),
        (["ccache", "g++", "a.cpp", "-o", "a.so"], True),
        (["/usr/bin/env", "LC_ALL=C", "sccache", "clang", "a.c"], True),
        (["x86_64-linux-gnu-ld.gold", "a.o"], True),
        (["ld", "a.o"], True),
        (["nvc++", "a.cpp"], True),
        (["zig", "c++", "a.cpp"], True),
        (["/bin/sh", "-c", "cd /tmp && g++ a.cpp -o a.so"], True),
        (["/bin/sh", "-c", "export LC_ALL=C; g++ a.cpp"], True),
        (["/opt/vendor/wrapped", "a.cpp", "-o", "/cache/a.so"], True),
        (["python", "build.py", "--output", "kernel.cubin"], True),
        (["ccache", "g++", "--version"], False),
        (["/usr/bin/lscpu"], False),
        (["tar", "-c", "a.cpp"], False),
        (["nvidia-smi", "-o", "list.txt"], False),
        (["g++", "--version"], False),
        (["ptxas", "--version"], False),
        (["gcc", "-print-file-name=include"], False),
        (["g++", "header.hpp", "-E", "-P", "-o", "/r/header.i"], False),
        (["/sbin/ldconfig", "-p"], False),
        (["python", "-c", "g++"], False),
    ],
)
def test_only_what_compiles_counts(argv: list[str], counts: bool) -> None:
    watch = Watch()
    watch.event("subprocess.Popen", (argv[0], argv, None, None))
    assert bool(watch.compilers) is counts


@pytest.mark.posix
@pytest.mark.symlinks
def test_a_compiler_is_known_by_its_file(tmp_path: Path) -> None:
    """Whatever it is called by."""
    real = tmp_path / "g++-12"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    link = tmp_path / "compile"
    link.symlink_to(real)
    watch = Watch()
    watch.event("subprocess.Popen", (str(link), ["compile", "a.cpp"], None, None))
    watch.event("os.system", (b"g++ a.cpp",))
    watch.event("os.spawn", (1, "/usr/bin/cc", ["cc", "a.c"], None))
    watch.event("os.posix_spawn", ("/usr/bin/gcc", ["x", "a.c"], None))
    assert watch.compilers == ["compile", "g++", "cc", "gcc"]


def test_a_library_that_was_written_meanwhile_was_compiled(tmp_path: Path) -> None:
    old, new = tmp_path / "old.so", tmp_path / "new.so"
    old.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    watch = Watch()
    new.write_bytes(b"x")
    os.utime(new, (4e9, 4e9))
    watch.written(str(tmp_path), ["old.so", "gone.so"])
    assert watch.compilers == []
    watch.written(str(tmp_path), ["old.so", "new.so"])
    assert watch.compilers == ["what wrote new.so"]


def test_a_compiler_behind_the_name_of_a_shell_command_counts() -> None:
    watch = Watch()
    watch.event("subprocess.Popen", (None, "g++ a.cpp -o a.so", None, None))
    assert watch.compilers == ["g++"]
    assert "a.so" in watch.touched


def test_a_program_that_subprocess_spawns_counts_once() -> None:
    watch = Watch()
    argv = ["gcc", "a.c"]
    for _ in range(2):
        watch.event("subprocess.Popen", ("/usr/bin/gcc", argv, None, None))
        watch.event("os.posix_spawn", ("/usr/bin/gcc", argv, None))
    watch.event("os.posix_spawn", ("/usr/bin/gcc", ["gcc", "a.c"], None))
    assert watch.compilers == ["gcc"] * 3


@pytest.mark.posix
def test_the_hook_sees_real_programs_and_files(tmp_path: Path) -> None:
    """In a process of its own, since an audit hook stays."""
    source = tmp_path / "a.c"
    source.write_text("int f(void) { return 1; }\n")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    code = f"""
import json, os, subprocess
from attn_doctor.worker.kernels.compiler_watch import files_below, watching
root = {str(tmp_path)!r}
watch = watching()
subprocess.run([{compiler!r}, "--version"], capture_output=True, check=True)
os.makedirs(root + "/triton/0/ABC")
subprocess.run([{compiler!r}, "-c", root + "/a.c", "-o", root + "/a.o"], check=True)
with open(root + "/triton/0/ABC/k.tmp", "w") as file: file.write("x")
with open(root + "/triton/0/ABC/k.cubin", "w") as file: file.write("x")
os.replace(root + "/triton/0/ABC/k.tmp", root + "/triton/0/ABC/k.json")
print(json.dumps([watch.compilers, files_below(root, watch.touched)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    programs, files = json.loads(done.stdout)
    assert programs == [os.path.basename(compiler)]
    assert set(files) == {"a.o", "triton/0/ABC/k.cubin", "triton/0/ABC/k.json"}


def test_files_of_others_and_outside_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    for name in ("xx/kernel.so", "locks/a.lock", "attn-doctor/manifest.json", "fxgraph/ab/k/one"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("12345")
    (root / "fxgraph/ab/k/two").write_text("1")
    (tmp_path / "cache-of-another").mkdir()
    (tmp_path / "cache-of-another/k").write_text("1")
    touched = {str(path) for path in root.rglob("*") if path.name != "two"}
    touched |= {str(tmp_path / "cache-of-another/k"), "/nonexistent/x", "relative"}
    found = files_below(str(root), touched)
    assert {name.replace(os.sep, "/"): size for name, size in found.items()} == {
        "fxgraph/ab/k/one": 5,
        "fxgraph/ab/k/two": 1,
        "xx/kernel.so": 5,
    }


def test_what_a_kernel_needs_belongs_to_it_if_another_made_it(tmp_path: Path) -> None:
    for name, text in (
        ("th/abc.cpp", 'extern "C" void __avx_chk_kernel() {}'),
        ("th/abc.so", "elf"),
        ("3z/def.cpp", "void kernel() {}"),
        ("3z/def.so", "elf"),
        ("zz/large.cpp", "__avx_chk_kernel" + " " * 5000),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    root = str(tmp_path)
    found = files_below(root, vector_checks(root))
    assert {name.replace(os.sep, "/") for name in found} == {"th/abc.cpp", "th/abc.so"}
    if sys.platform == "linux":
        library = tmp_path / "3z" / "def.so"
        library.write_bytes(b"x" * 4096)
        with library.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            assert set(files_below(root, mapped())) == {"3z/def.so"}
        assert files_below(root, mapped()) == {}


def test_the_part_of_a_key_that_moved_is_named(tmp_path: Path) -> None:
    was = {
        "aotautograd": [
            {
                "key": "a1",
                "lines": [
                    "[h1] gm: graph()",
                    "[h2] inductor_config[max_autotune]: False",
                    "[h3] torch_version: b'abc'",
                ],
            }
        ],
        "fxgraph": [{"key": "f1", "lines": []}],
    }
    now: dict[str, Any] = json.loads(json.dumps(was))
    assert cache_keys.difference(was, now) == []
    now["aotautograd"][0]["key"] = "a2"
    now["aotautograd"][0]["lines"][1] = "[h9] inductor_config[max_autotune]: True"
    now["aotautograd"][0]["lines"].append("[h5] inductor_config[new]: 1")
    assert cache_keys.difference(was, now) == [
        "inductor_config[max_autotune]: False → True",
        "inductor_config[new]: new",
    ]
    now["aotautograd"][0]["lines"][0] = "[h7] gm: graph(a)"
    now["aotautograd"][0]["lines"].insert(0, "[i1] example_inputs[0]: t")
    assert cache_keys.difference(was, now)[2:] == [
        "inputs: 0 → 1",
        "the traced graph (mask, sizes, options): graph() → graph(a)",
    ]
    assert cache_keys.difference({}, now) == []
    path = cache_keys.save(str(tmp_path), "abc", was)
    assert cache_keys.load(str(tmp_path), "abc") == was
    Path(path).write_text('{"keys": [')
    assert cache_keys.load(str(tmp_path), "abc") == {}
    assert cache_keys.load(str(tmp_path / "absent"), "abc") == {}


@pytest.mark.parametrize(
    ("version", "training", "counters", "compilers", "missed"),
    [
        ("2.11.0+cu130", True, HIT, 0, ""),
        ("2.11.0+cu130", True, HIT, 1, "1 compiler ran"),
        ("2.11.0+cu130", True, {}, 0, "AOTAutograd: 0 hits"),
        ("2.10.0", True, {**HIT, "aot_autograd.autograd_cache_miss": 1}, 0, "1 misses"),
        ("2.10.0", True, {**HIT, "aot_autograd.autograd_cache_bypass": 1}, 0, "1 bypassed"),
        ("2.13.0", False, {**HIT, "inductor.fxgraph_cache_miss": 1}, 0, "FX graph: 1 hits, 1 m"),
        ("2.9.1", True, {"inductor.fxgraph_cache_hit": 1}, 0, ""),
        ("2.9.1", True, {}, 0, "FX graph: 0 hits"),
        ("2.9.1", False, {"inductor.fxgraph_cache_hit": 1}, 0, "AOTAutograd: 0 hits"),
        ("2.5.1", True, {}, 0, ""),
        ("2.5.1", True, {}, 2, "2 compilers ran"),
    ],
)
def test_what_counts_as_reused(
    version: str, training: bool, counters: dict[str, int], compilers: int, missed: str
) -> None:
    answer = reuse(version, training, "cuda:0").missed(counters, compilers)
    assert missed in answer
    assert bool(answer) == bool(missed)


def test_what_a_release_cannot_reuse_is_said() -> None:
    assert reuse("2.11.0", True, "cuda:0").limits == []
    assert "torch 2.9 lowers the backward again" in reuse("2.9.0", True, "cuda:0").limits[0]
    assert "torch 2.5 caches no graph" in reuse("2.5.0", False, "cuda:0").limits[0]
    assert minor("2.11.0+cu130") == (2, 11)
    assert minor("nightly") == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "TORCHDYNAMO_DISABLE",
        "TORCH_COMPILE_DISABLE",
        "TORCHDYNAMO_SUPPRESS_ERRORS",
        "TORCH_CACHING_PRECOMPILE",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES",
    ],
)
def test_settings_that_spoil_a_build_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "0")
    assert switched_off() == ""
    monkeypatch.setenv(name, "1")
    assert name in switched_off()
    answer = job.run_job({"action": "build", "spec": {}, "device": "cpu"})
    assert not answer["ok"]
    assert name in answer["failure"]["message"]


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE"])
def test_a_cache_that_is_off_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert switched_off() == ""
    monkeypatch.setenv(name, "0")
    assert f"{name}=0 is set" in switched_off()


def test_what_a_compiler_said_is_cut_to_what_matters() -> None:
    try:
        raise RuntimeError(
            "C++ compile error\nCommand:\ng++ "
            + "x" * 2000
            + "\na.cpp:1:2: error: ‘y’ was not declared\nmore"
        )
    except RuntimeError as error:
        answer = job._last_words(error)
    assert answer == "RuntimeError: C++ compile error a.cpp:1:2: error: ‘y’ was not declared"


def test_only_requested_and_free_memory_are_reported() -> None:
    asked = (
        "CUDA out of memory. Tried to allocate 133.07 GiB. GPU 0 has a total capacity of 139.80 GiB"
        " of which 125.43 GiB is free."
    )
    rest = " Including non-PyTorch memory, this process has 10.67 GiB memory in use. Process 4582"
    assert job._last_words(RuntimeError(asked + rest)) == f"RuntimeError: {asked}"


def test_a_patched_torch_is_asked_with_what_it_wants() -> None:
    def build(head_dim: int, dtype: str, extra: int = 3) -> None: ...

    def strange(head_dim: int, colour: str) -> None: ...

    known = {"head_dim": 128, "dtype": "bf16"}
    assert torch_builder.fitting(build, known) == known
    assert torch_builder.fitting(strange, known) is None
    assert torch_builder.fitting(lambda **_: None, known) == {}


def test_a_patched_torch_builds_itself_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No release has the function, so a fake module has it here."""
    asked: dict[str, Any] = {}

    def build_flex_attention_kernels(num_heads: int, head_dims: list[int], dtype: str) -> None:
        asked.update(num_heads=num_heads, head_dims=head_dims, dtype=dtype)

    flex = types.ModuleType("torch.nn.attention.flex_attention")
    attention = types.ModuleType("torch.nn.attention")
    attention.flex_attention = flex  # type: ignore[attr-defined]
    for name in ("torch", "torch.nn"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch.nn.attention", attention)
    torch = types.SimpleNamespace(bfloat16="bf16", device=str)
    spec = {"heads": 24, "head_dim": 128, "lengths": [512]}
    assert torch_builder.ask(torch, spec, "cuda:0") == (False, "")
    flex.build_flex_attention_kernels = build_flex_attention_kernels  # type: ignore[attr-defined]
    assert torch_builder.ask(torch, spec, "cuda:0") == (True, "")
    assert asked == {"num_heads": 24, "head_dims": [128], "dtype": "bf16"}
    flex.build_flex_attention_kernels = lambda colour: None  # type: ignore[attr-defined]
    built, limit = torch_builder.ask(torch, spec, "cuda:0")
    assert not built
    assert "asks for arguments that are not known here" in limit


def test_a_block_that_cannot_be_built_is_said_to() -> None:
    torch = types.SimpleNamespace(bfloat16="bf16")
    spec = {"block": "flux1", "heads": 24, "head_dim": 128}
    for recipe, message in (
        ({"class": "no_such_package:Model"}, "--block needs no_such_package in the environment"),
        ({"class": "json:NoSuchModel"}, "json 2.0.9 has no NoSuchModel"),
        ({}, "no way is known to build a block of flux1"),
    ):
        with pytest.raises(BlockError, match=message):
            Block(torch, {"spec": spec, "block": recipe}, "cpu")


def test_cudnn_is_kept_out_of_the_reference_and_then_as_before() -> None:
    seen: list[bool] = []
    cuda = types.SimpleNamespace(cudnn_sdp_enabled=lambda: True, enable_cudnn_sdp=seen.append)
    torch = types.SimpleNamespace(backends=types.SimpleNamespace(cuda=cuda))
    inside: list[bool] = []
    with contextlib.suppress(KeyError), without_cudnn(torch):
        inside += seen
        raise KeyError
    assert (inside, seen) == ([False], [False, True])
    with without_cudnn(types.SimpleNamespace(backends=types.SimpleNamespace(cuda=None))):
        pass  # before torch 2.5 there is no such switch


def run(tmp_path: Path, job: dict[str, Any], **variables: str) -> dict[str, Any]:
    """One job in the examined interpreter, started by path as the server's children are."""
    job = {"device": "cpu", "spec_id": "one", "cache_dir": str(tmp_path / "cache"), **job}
    environment = {**os.environ, **variables}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        worker.command(PYTHON or sys.executable, "kernels.job"),
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.stdout.count("\n") == 1, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


SPEC = {
    "heads": 2,
    "head_dim": 32,
    "lengths": [256],
    "phase": "inference",
    "dtype": "float32",
    "mask": "masks:mine",
}


@pytest.mark.torch
@pytest.mark.slow
def test_build_prove_and_what_must_not_pass(tmp_path: Path) -> None:
    """One real kernel on the CPU: built, reused, missed when the mask changes, and wrong."""
    mask = tmp_path / "masks.py"
    mask.write_text("def mine(b, h, q, kv):\n    return q >= kv\n")
    job = {"spec": SPEC, "sys_path": [str(tmp_path)]}
    built = run(tmp_path, {"action": "build", **job})
    assert built["ok"], built
    assert built["compilers"] > 0
    assert built["errors"]["out"] < 1e-3
    assert built["fused"]
    assert built["keys"]["fxgraph"]
    assert any(name.endswith(".so") for name in built["files"])
    assert len(built["mask_source"]) == 64

    verified = run(tmp_path, {"action": "verify", **job})
    assert verified["ok"], verified
    assert verified["compilers"] == 0
    assert verified["counters"]["inductor.fxgraph_cache_hit"] == 1
    assert verified["seconds"] < built["seconds"]
    assert set(verified["files"]) <= set(built["files"])

    wrong = run(tmp_path, {"action": "verify", **job}, ATTN_DOCTOR_TEST_WRONG="one")
    assert not wrong["ok"]
    assert wrong["failure"]["type"] == "Wrong"
    assert "the output is off by" in wrong["failure"]["message"]
    assert "it is that of a scale +" in wrong["failure"]["message"]
    assert built["compared"]["calls"] == 5
    assert built["compared"]["heads"] == 2
    assert built["compared"]["rows"] >= 256

    mask.write_text("def mine(b, h, q, kv):\n    return q - kv >= 0\n")
    changed = run(tmp_path, {"action": "verify", **job})
    assert changed["failure"]["type"] == "NotReused"
    assert changed["moved"]
    assert changed["mask_source"] != built["mask_source"]


@pytest.mark.torch
def test_attention_that_ran_without_compiling_is_seen(tmp_path: Path) -> None:
    code = f"""
import json, sys, torch
sys.path.insert(0, {str(ROOT)!r})
from attn_doctor.worker.kernels.fusion_check import Fused
from torch.nn.attention.flex_attention import flex_attention
q = torch.randn(1, 2, 64, 16)
spec = {{"heads": 2, "head_dim": 16}}
with Fused(torch) as fused: flex_attention(q, q, q)
first = fused.reason(spec, 64, None)
with Fused(torch) as fused: torch.softmax(q, -1)
print(json.dumps([first, fused.reason(spec, 64, None), fused.reason(spec, 65536, 1 << 40)]))
"""
    done = subprocess.run(
        [PYTHON, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300
    )
    unfused, fine, large = json.loads(done.stdout.splitlines()[-1])
    assert unfused
    assert fine == ""
    assert "matrix of scores" in large


@pytest.mark.torch
def test_attention_in_float64_is_torchs_own_a_few_rows_at_a_time(tmp_path: Path) -> None:
    code = f"""
import json, sys, torch
sys.path.insert(0, {str(ROOT)!r})
from attn_doctor.worker import reference
reference._CHUNK = 1000  # nine rows at once
ours = reference.scaled_dot_product(torch)
theirs = torch.nn.functional.scaled_dot_product_attention
def made(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)
found = {{}}
for name, heads, more in (
    ("plain", 4, {{}}), ("scale", 4, {{"scale": 0.3}}), ("causal", 4, {{"is_causal": True}}),
    ("gqa", 2, {{"enable_gqa": True}}),
    ("bool", 4, {{"attn_mask": torch.rand(2, 1, 70, 50) > 0.3}}),
    ("broadcast", 4, {{"attn_mask": torch.rand(2, 1, 1, 50) > 0.3}}),
    ("float", 4, {{"attn_mask": torch.randn(70, 50, dtype=torch.float64)}}),
):
    inputs = made(2, 4, 70, 16), made(2, heads, 50, 16), made(2, heads, 50, 8)
    out, true = ours(*inputs, **more), theirs(*inputs, **more)
    grad = torch.randn_like(out)
    pairs = [(out, true), *zip(*(torch.autograd.grad(one, inputs, grad) for one in (out, true)))]
    found[name] = [float((a - b).detach().abs().max()) for a, b in pairs]
print(json.dumps(found))
"""
    done = subprocess.run(
        [PYTHON, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 7
    for name, off in found.items():
        assert len(off) == 4, name
        assert max(off) < 1e-12, name


@pytest.mark.torch
def test_processes_compile_and_end(tmp_path: Path) -> None:
    code = f"""
import json, os, sys, torch
sys.path.insert(0, {str(ROOT)!r})
import torch._inductor.config as config
from attn_doctor.worker.kernels.compile_processes import compile_processes
config.compile_threads = 1
def children():
    with open(f"/proc/self/task/{{os.getpid()}}/children") as file:
        return len(file.read().split())
seen = []
for count in (1, 3):
    with compile_processes(torch, count):
        out = torch.compile(lambda x: x.sin() + count)(torch.ones(8))
        seen.append([config.compile_threads, children(), float(out[0])])
print(json.dumps([seen, config.compile_threads, children()]))
"""
    done = subprocess.run(
        [PYTHON, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300
    )
    (alone, three), threads, left = json.loads(done.stdout.splitlines()[-1])
    assert alone[:2] == [1, 0]
    assert three[:2] == [3, 3]
    assert three[2] == pytest.approx(math.sin(1) + 3)
    assert (threads, left) == (1, 0)


@pytest.mark.torch
def test_a_small_gradient_that_is_all_wrong_is_found(tmp_path: Path) -> None:
    """It would not show in the norm of all; and what rounds much in any case is let be."""
    code = f"""
import json, sys, torch
sys.path.insert(0, {str(ROOT)!r})
from attn_doctor.worker.kernels.blocks.gradients import compare
counts = {{"big.weight": 1000, "table": 10, "noisy": 10, "unused": 5}}
def named(one):
    return dict(zip(counts, one.split(list(counts.values()))))
torch.manual_seed(0)
true = torch.cat([torch.randn(1000), torch.randn(20) * 1e-2, torch.zeros(5)]).double()
def rounded(by=1.0):
    off = torch.randn(1025).double() * 1e-3 * true.abs()
    off[1010:1020] = torch.randn(10).double() * 5e-3 * by
    return (true + off).float()
eager, good = rounded(), rounded(0.5)
lost = good.clone(); lost[1000:1010] = 0
stale = good.clone(); stale[1003] = float("nan")
print(json.dumps([
    compare(named(one), named(eager), named(true))[2:] for one in (good, lost, stale)
]))
"""
    done = subprocess.run(
        [PYTHON, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300
    )
    good, lost, stale = json.loads(done.stdout.splitlines()[-1])
    assert good[0] < 0.08
    assert lost[0] > 0.5
    assert lost[1] == "table"
    assert math.isnan(stale[0])
    assert stale[1] == "table"


@pytest.mark.parametrize(
    ("name", "source", "answer"),
    [
        ("lost_mask:near", "", "No module named 'lost_mask'; it is looked for beside the spec fi"),
        ("broken_mask:near", "def near(", "mask broken_mask:near: SyntaxError: "),
        ("dying_mask:near", "1 / 0", "mask dying_mask:near: ZeroDivisionError: division by zero"),
        ("needy_mask:near", "import no_such_thing", "No module named 'no_such_thing'"),
    ],
)
def test_a_mask_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, answer: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    if source:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(source)
    with pytest.raises(ValueError, match=r"^mask ") as caught:
        own_mask(name)
    assert answer in str(caught.value)
    assert ("beside the spec" in str(caught.value)) is (not source)


@pytest.mark.torch
def test_torch_itself_reports_what_decides_reuse(tmp_path: Path) -> None:
    answer = run(tmp_path, {"action": "environment"}, OMP_NUM_THREADS="1", TRITON_CACHE_DIR="/x")
    found = convert(answer["environment"], BuildEnvironment)
    assert found.torch
    assert found.torch[0].isdigit()
    assert found.python.count(".") == 2 if found.python else False
    assert found.torch_key
    assert found.device == "cpu"
    assert found.cpu
    assert found.cxx is not None
    assert found.environment["OMP_NUM_THREADS"] == "1"
    assert "TRITON_CACHE_DIR" not in found.environment
    assert len(found.settings["inductor"]) == 32
    again = run(tmp_path, {"action": "environment"}, OMP_NUM_THREADS="1")
    assert again["environment"] == answer["environment"]


FLUX = {"heads": 24, "head_dim": 128, "lengths": [1024], "layout": "bshd"}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "spec",
    [
        FLUX,
        {**FLUX, "mask": "causal", "lengths": [1024, 1536, 640]},
        {**FLUX, "mask": "bool", "phase": "inference"},
        {**FLUX, "mask": "float", "kv_length": 128},
        {**FLUX, "layout": "fused-v", "fused_width": 27648},
        {**FLUX, "layout": "fused-qkv", "kv_heads": 8, "mask": "sliding-window", "window": 200},
        {**FLUX, "mask": "document", "dtype": "float16", "lengths": [1000]},
    ],
)
def test_on_a_gpu_each_kind_is_right_and_reused(tmp_path: Path, spec: dict[str, Any]) -> None:
    job = {"spec": spec, "device": "cuda:0"}
    built = run(tmp_path, {"action": "build", **job})
    assert built["ok"], built["failure"]
    assert built["compilers"] > 0
    assert built["keys"]["triton"]
    names = {"out"} if spec.get("phase") else {"out", "dq", "dk", "dv"}
    assert set(built["errors"]) == names
    assert max(built["errors"].values()) < 1e-2
    verified = run(tmp_path, {"action": "verify", **job})
    assert verified["ok"], verified["failure"]
    assert verified["compilers"] == 0


@pytest.mark.gpu
def test_on_a_gpu_what_must_not_pass_does_not(tmp_path: Path) -> None:
    job = {"spec": FLUX, "device": "cuda:0"}
    wrong = run(tmp_path, {"action": "build", **job}, ATTN_DOCTOR_TEST_WRONG="1")
    assert wrong["failure"]["type"] == "Wrong"
    nine = {**FLUX, "dynamic": False, "lengths": [256 + 128 * i for i in range(9)]}
    unfused = run(tmp_path, {"action": "build", "spec": nine, "device": "cuda:0"})
    assert unfused["failure"]["type"] == "Unfused"
    assert "length 1280" in unfused["failure"]["message"]
    assert "limit of recompilations" in unfused["failure"]["message"]
    strides = {**FLUX, "layout": "bhsd"}
    run(tmp_path, {"action": "build", **job})
    other = run(tmp_path, {"action": "verify", "spec": strides, "device": "cuda:0"})
    assert other["failure"]["type"] == "NotReused"
    assert other["moved"]


@pytest.mark.gpu
def test_on_a_gpu_many_are_compiled_without_contexts(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "attn_doctor", "build-kernels", "--python", PYTHON]
    argv += ["--device", "cuda:0", "--cache-dir", str(tmp_path), "--format", "json"]
    argv += ["--jobs", "6", "--heads", "4", "--head-dim", "64", "--seq-len", "256,384,512"]
    done = subprocess.run(
        [*argv, "--mask", "none,causal"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [one["state"] for one in answer["kernels"]] == ["built"] * 6
    assert "compilers_started" in answer["phases"]
    for one in answer["kernels"]:
        assert one["verified"]
        assert max(one["errors"].values()) < 1e-2
        # Making a context takes ten times as long.
        assert one["stages"]["build"]["context"] < 0.05
