"""A spec names what is built, and the name is the same everywhere."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from attn_doctor.record.spec import KernelSpec

FLUX = KernelSpec(heads=24, head_dim=128, lengths=(4608,), layout="bshd")


def test_the_id_is_that_of_other_machines_and_releases() -> None:
    """Manifests lie beside caches for months: a new field must not rename what is in them."""
    assert FLUX.id == "fd433ff7addc"
    assert len(FLUX.id) == 12


def test_where_a_spec_comes_from_is_no_part_of_it() -> None:
    assert replace(FLUX, preset="flux1").id == FLUX.id


@pytest.mark.parametrize(
    "change",
    [
        {"heads": 12},
        {"head_dim": 64},
        {"lengths": (4608, 1536)},
        {"lengths": (1536, 4608)},
        {"kv_heads": 8},
        {"kv_length": 512},
        {"value_dim": 64},
        {"batch": 2},
        {"dtype": "float16"},
        {"mask": "causal"},
        {"mask": "sliding-window", "window": 128},
        {"mask": "bool", "mask_rows": True},
        {"mask_rows": True},
        {"per_head": True},
        {"phase": "inference"},
        {"layout": "bhsd"},
        {"layout": "fused-v", "fused_width": 27648},
        {"scale": 0.1},
        {"dynamic": False},
        {"mode": "max-autotune"},
        {"kernel_options": {"BLOCK_M": 64}},
        {"block": "flux1"},
    ],
)
def test_whatever_decides_the_kernel_decides_the_id(change: dict[str, object]) -> None:
    changed = msgspec.convert({**msgspec.to_builtins(FLUX), **change}, KernelSpec)
    assert changed.id != FLUX.id
    # Two rows of a table that read alike would tell nothing.
    assert changed.title != FLUX.title


def test_the_order_of_options_is_none() -> None:
    one = replace(FLUX, kernel_options={"BLOCK_M": 64, "BLOCK_N": 32})
    other = replace(FLUX, kernel_options={"BLOCK_N": 32, "BLOCK_M": 64})
    assert one.id == other.id


def test_a_spec_survives_the_way_to_the_child_and_back() -> None:
    spec = replace(FLUX, kernel_options={"BLOCK_M": 64}, lengths=(1024, 2048), scale=0.5)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=KernelSpec) == spec


def test_titles_tell_what_is_special() -> None:
    assert FLUX.title == "24×128 bf16 none 4608 training bshd"
    special = replace(
        FLUX, kv_heads=8, lengths=(1024, 2048), kv_length=512, batch=2, dynamic=True, block="wan22"
    )
    assert special.title == (
        "block wan22 24/8×128 bf16 none 1024+2048←512 training bshd batch 2 dynamic=True"
    )
