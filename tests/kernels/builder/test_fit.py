"""Whether a kernel fits another GPU, and what does if it does not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts, Python, Torch
from attn_doctor.kernels.builder.fit import Fit, fit, fitted
from attn_doctor.kernels.gpus import known
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.pool.pool import Pool
from attn_doctor.record.spec import KernelSpec
from attn_doctor.render.build_kernels.fits import fit_json, fit_text
from attn_doctor.render.terminal import Terminal

CUDA_TORCH = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
needs_cuda_torch = pytest.mark.skipif(not CUDA_TORCH, reason="needs a CUDA build of torch")
GPU = known.find("rtx4090")


def spec(head_dim: int, **fields: Any) -> KernelSpec:
    return KernelSpec(heads=2, head_dim=head_dim, lengths=(512,), **fields)


@pytest.fixture
def tried(tmp_path: Path, child_with: Callable[[Path], Path]) -> Callable[..., tuple[Fit, ...]]:
    """`fitted` with the real server, and kernels that need head_dim × rows × stages."""
    if sys.platform != "linux":
        pytest.skip("forks are used on Linux alone")
    child_with(Path(__file__).parent / "tiles_job.py")

    def run(limit: int, *specs: KernelSpec, torch: str = "2.11.0", **more: Any) -> tuple[Fit, ...]:
        env = {**os.environ, "LIMIT": str(limit), "GPU": more.pop("gpu", GPU.name)}
        with Pool(sys.executable, env, tmp_path, cuda=False) as processes:
            return fitted(processes, specs, GPU, torch, **more)

    return run


def test_what_fits_is_not_tried_smaller(tried: Callable[..., tuple[Fit, ...]]) -> None:
    lines: list[str] = []
    (one,) = tried(64 * 64 * 3, spec(64), progress=lines.append)
    assert one.fits is True
    assert one.smaller == ()
    assert one.remedy is None
    assert lines == [f"{GPU.name}: {spec(64).title}"]


def test_both_kernels_are_made_to_fit_one_after_the_other(
    tried: Callable[..., tuple[Fit, ...]],
) -> None:
    # 3 stages of 64 rows need 24576; one stage of 64 needs 8192, of 32 rows 4096.
    (one,) = tried(5000, spec(128))
    assert one.fits is False
    assert (one.first.kernel, one.first.needed, one.first.limit) == ("forward", 24576, 5000)
    assert [(two.kernel, two.needed) for two in one.smaller] == [
        ("forward", 8192),
        ("backward", 24576),
        ("backward", 8192),
        ("", None),
    ]
    tiles = {"fwd_BLOCK_M": 32, "fwd_BLOCK_N": 32}
    tiles |= {f"bwd_BLOCK_{name}": 32 for name in ("M1", "N1", "M2", "N2")}
    assert one.remedy == {"fwd_num_stages": 1, "bwd_num_stages": 1, **tiles}


def test_stages_go_first_since_they_keep_the_tiles(tried: Callable[..., tuple[Fit, ...]]) -> None:
    (one,) = tried(9000, spec(128))
    assert one.remedy == {"fwd_num_stages": 1, "bwd_num_stages": 1}


def test_what_can_never_fit_is_given_up(tried: Callable[..., tuple[Fit, ...]]) -> None:
    (one,) = tried(1000, spec(128))
    assert one.fits is False
    assert one.remedy is None
    assert [two.needed for two in one.smaller] == [8192, 4096, 2048]
    text = fit_text([one], GPU, Terminal(width=200))
    assert "Nothing smaller that was tried fits either." in text


def test_the_users_own_options_stay(tried: Callable[..., tuple[Fit, ...]]) -> None:
    own = spec(128, kernel_options={"BLOCK_M1": 16, "num_warps": 8})
    (one,) = tried(9000, own)
    assert one.remedy == {"fwd_num_stages": 1}
    text = fit_text([one], GPU, Terminal(width=200))
    assert 'kernel_options={"BLOCK_M1": 16, "num_warps": 8, "fwd_num_stages": 1}' in text
    assert "\n      --option fwd_num_stages=1\n" in text


def test_torch_without_prefixes_gets_options_for_both_kernels(
    tried: Callable[..., tuple[Fit, ...]],
) -> None:
    (one,) = tried(9000, spec(128), torch="2.6.0+cu126")
    assert one.remedy == {"num_stages": 1}


def test_another_failure_is_none_of_shared_memory(tried: Callable[..., tuple[Fit, ...]]) -> None:
    died, ended, fits = tried(10**6, spec(64, mask="document"), spec(64, mask="causal"), spec(64))
    assert died.fits is None
    assert "ptxas died" in died.first.why
    assert ended.fits is None
    assert ended.first.why
    assert fits.fits is True
    text = fit_text([died, ended, fits], GPU, Terminal(width=200))
    assert "ptxas died" in text
    assert "1 of 3 kernels fits; 2 unknown" in text


def test_what_torch_refuses_is_not_compiled(tried: Callable[..., tuple[Fit, ...]]) -> None:
    lines: list[str] = []
    (one,) = tried(10**6, spec(8), progress=lines.append)
    assert lines == []
    assert one.fits is False
    assert "head size 8 is below 16" in fit_text([one], GPU, Terminal(width=200))


def test_a_models_block_takes_no_options(tried: Callable[..., tuple[Fit, ...]]) -> None:
    (one,) = tried(5000, spec(128, block="flux1"))
    assert one.fits is False
    assert one.smaller == ()
    assert "no kernel_options" in fit_text([one], GPU, Terminal(width=200))


def test_the_numbers_are_shown(tried: Callable[..., tuple[Fit, ...]]) -> None:
    found = tried(9000, spec(128), spec(16))
    text = fit_text(found, GPU, Terminal(width=200))
    assert "a block may take 101376 bytes of shared memory (99 KiB)" in text
    assert "the forward kernel needs 24576 bytes of shared memory a block" in text
    assert "has 9000" in text
    assert "1 of 2 kernels fits" in text
    shown = json.loads(fit_json([(GPU, found)], 1))
    assert shown["exit_code"] == 1
    (target,) = shown["targets"]
    assert target["target"] == "rtx4090"
    assert [kernel["fits"] for kernel in target["kernels"]] == [False, True]
    assert target["kernels"][0]["tried"][0]["needed"] == 24576
    assert target["kernels"][0]["remedy"] == {"fwd_num_stages": 1, "bwd_num_stages": 1}


def test_what_fits_another_gpu_says_nothing(tried: Callable[..., tuple[Fit, ...]]) -> None:
    with pytest.raises(AttnDoctorError, match=r"RTX 4090 torch sees NVIDIA H200"):
        tried(10**6, spec(64), gpu="NVIDIA H200")


def test_without_a_limit_there_is_nothing_to_hold_against() -> None:
    unknown = Descriptor(name="NVIDIA X", major=9, minor=0)
    with pytest.raises(AttnDoctorError, match="how much shared memory"):
        fit(unknown, [spec(64)], Facts(), os.environ)


@pytest.mark.cuda_torch
@needs_cuda_torch
def test_heads_of_256_fit_an_h200_and_no_rtx_4090(tmp_path: Path) -> None:
    """By torch's own compiler; the numbers are those that Inductor gave on 2026-11-21."""
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost

    facts = examine(LocalHost(), CUDA_TORCH)
    wanted = [spec(256, phase="inference")]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    (small,) = fit(GPU, wanted, facts, environ)
    assert small.fits is False
    assert small.first.kernel == "forward"
    assert small.first.limit == 101376
    assert small.first.needed is not None
    assert small.first.needed > 101376
    if (facts.torch.version or "").startswith("2.11."):
        assert small.first.needed == 151552
        assert small.remedy == {"fwd_num_stages": 1}
    (large,) = fit(known.find("h200"), wanted, facts, environ)
    assert large.fits is True
    # A GPU of which not all is known: its limit is enough.
    blackwell = known.find("rtx-pro-6000-blackwell-server-edition")
    assert not blackwell.complete
    (one,) = fit(blackwell, [spec(64, phase="inference")], facts, environ)
    assert one.fits is True


def test_facts_without_an_interpreter_are_no_excuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch without CUDA cannot serve, and that is said before anything runs."""
    facts = Facts(
        python=Python(path=sys.executable),
        torch=Torch(installed=True, version="2.13.0+cpu", build="cpu", has_flex=True),
    )
    with pytest.raises(AttnDoctorError):
        fit(GPU, [spec(64)], facts, os.environ)
