"""Misses in words, with both values and a way out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from attn_doctor.kernels.verify.why import misses, of_factor, short
from attn_doctor.record.manifest import BuildEnvironment

MISSED = "AOTAutograd: 0 hits, 1 misses, 0 bypassed"
WAS = BuildEnvironment(torch="2.11.0", device="NVIDIA H200", sm=90)


@pytest.mark.parametrize(
    ("part", "what", "todo"),
    [
        (
            "inductor_config[cpp.cxx]: (None, '/opt/gcc/bin/g++') → (None, 'g++')",
            "cpp.cxx: g++ here, /opt/gcc/bin/g++ there",
            "set CXX=/opt/gcc/bin/g++, or build again: `attn-doctor build-kernels` on the GPU",
        ),
        (
            "inductor_config[cpp.cxx]: (None, 'g++') → (None, '/usr/bin/clang++')",
            "cpp.cxx: /usr/bin/clang++ here, g++ there",
            "unset CXX, or build again",
        ),
        (
            "inductor_config[max_autotune]: False → True",
            "Inductor's setting max_autotune: True here, False there",
            "set it in the program as in the build (TORCHINDUCTOR_MAX_AUTOTUNE",
        ),
        (
            "system_info[device]: {'name': 'NVIDIA H200'} → {'name': 'NVIDIA H100 PCIe'}",
            "GPU: NVIDIA H100 PCIe here, NVIDIA H200 there",
            "build for this GPU too",
        ),
        (
            "torch's own code: b'abc' → b'def'",
            "torch's own files: not those of the build",
            "install the wheels it was built with",
        ),
        (
            "the traced graph (mask, sizes, options): …q >= kv → …q > kv",
            "the traced graph (mask, sizes, options): …q > kv here, …q >= kv there",
            "build again with the program and the files that run here",
        ),
    ],
)
def test_the_parts_of_a_key(part: str, what: str, todo: str) -> None:
    (one,) = misses(f"{MISSED}; differs: {part}")
    assert one.what == what
    assert one.fix.startswith(todo)


def test_each_reason_once_and_no_digests() -> None:
    message = (
        f"{MISSED}; differs: system_info[device]: {{'name': 'NVIDIA H200'}} → {{'name': 'NVIDIA"
        " H20'}; system_info[hash]: c33f → e97d; 2 more"
    )
    now = replace(WAS, device="NVIDIA H20")
    assert [one.what for one in misses(message, WAS, now)] == [
        "GPU: NVIDIA H20 here, NVIDIA H200 there"
    ]
    assert short(message) == MISSED


def test_the_record_tells_where_the_key_does_not() -> None:
    now = replace(WAS, torch="2.12.0", environment={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"})
    first, second = misses(MISSED, WAS, now)
    assert first.what == "torch: 2.12.0 here, 2.11.0 there"
    assert second.what == "TORCHINDUCTOR_MAX_AUTOTUNE: 1 here, not set there"
    assert second.fix.startswith("unset TORCHINDUCTOR_MAX_AUTOTUNE, or build again")
    assert misses(MISSED, WAS, WAS) == ()
    assert misses(MISSED) == ()


def test_parts_under_torchs_own_names() -> None:
    assert of_factor("torch_version", "b'a'", "b'b'").what.startswith("torch's own files")
    found = of_factor("system_info[device]", "{'name': 'A'}", "{'name': 'B'}")
    assert found.what == "GPU: B here, A there"
