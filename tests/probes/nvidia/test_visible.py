"""CUDA_VISIBLE_DEVICES, as CUDA reads it."""

from __future__ import annotations

import pytest

from attn_doctor.probes.nvidia.gpus import Identity, visible

MIG = ("MIG-aaaa1111", "MIG-aaaa2222")
SAME = tuple(Identity(uuid=f"GPU-{n}0000000-{n}", model="H100 90") for n in range(4))
MIXED = (*SAME[:2], Identity(uuid="GPU-20000000-2", model="A2000 86"), *SAME[3:])
WITH_MIG = (SAME[0], Identity(uuid="GPU-10000000-1", model="H100 90", mig=MIG))


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, "0123"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("2,1", "12"),
        ("0,2,-1,1", "02"),  # the example of NVIDIA's manual
        ("0,9,1", "0"),
        ("1gpu, 3", "13"),
        ("1,1", ""),
        ("0,GPU-10000000-1", "0"),
        ("GPU-10000000-1", "1"),
        ("GPU-1,GPU-3", "13"),
        ("GPU-", ""),  # fits more than one
        ("GPU-1,GPU-7,GPU-2", "1"),
        ("GPU-1,GPU-1", ""),
        ("GPU-1,GPU-10000000", ""),
        ("GPU-1,2", "1"),
    ],
)
def test_gpus_of_one_kind(value: str | None, seen: str) -> None:
    assert visible(value, "", SAME) == (tuple(str(n) in seen for n in range(4)), "")


def test_gpus_of_several_kinds() -> None:
    unknown, reason = visible("2", "", MIXED)
    assert unknown == (None,) * 4
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in reason
    assert visible("2", "FASTEST_FIRST", MIXED)[0] == (None,) * 4
    assert visible("2", "PCI_BUS_ID", MIXED) == ((False, False, True, False), "")
    # All, none, or named by id: the order does not matter.
    assert visible("3,2,1,0", "", MIXED) == ((True,) * 4, "")
    assert visible("-1", "", MIXED) == ((False,) * 4, "")
    assert visible("GPU-2", "", MIXED) == ((False, False, True, False), "")


@pytest.mark.parametrize(
    "value", ["MIG-aaaa1111", "MIG-aaaa2222,MIG-aaaa1111", "MIG-GPU-10000000-1/7/0"]
)
def test_mig_instances_name_their_gpu(value: str) -> None:
    assert visible(value, "", WITH_MIG) == ((False, True), "")


def test_missing_and_unknown_mig_instances() -> None:
    assert visible("MIG-aaaa", "", WITH_MIG) == ((False, False), "")
    assert visible("MIG-aaaa1111", "", SAME)[0] == (None,) * 4


def test_ids_that_could_not_be_read() -> None:
    seen, reason = visible("GPU-1", "", (Identity(model="x"),))
    assert seen == (None,)
    assert reason
