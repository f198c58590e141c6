"""What a report must not tell about the machine and its user."""

from __future__ import annotations

from typing import Any

import pytest

from attn_doctor.anonymize import anonymous, rewritten, walk
from attn_doctor.facts import Facts, Gpu, Python
from attn_doctor.host.recorded import RecordedHost


def _host(**platform: Any) -> RecordedHost:
    known = {"os": "linux", "machine": "x86_64", "release": "6.1", "user": "hanna"}
    return RecordedHost(
        {
            "platform": {"answer": {**known, "home": "/home/hanna", **platform}},
            "environ": {"answer": {}},
            "read /proc/sys/kernel/hostname": {"answer": "gpu-box-7\n"},
        }
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/hanna/venv/bin/python", "/home/user/venv/bin/python"),
        ("/home/hanna", "/home/user"),
        ("/home/hannah/x", "/home/hannah/x"),
        ("/home/hanna-2/x", "/home/hanna-2/x"),
        ("/tmp/torchinductor_hanna/aotautograd", "/tmp/torchinductor_user/aotautograd"),
        ("/scratch/hanna/cache", "/scratch/user/cache"),
        ("lost contact to gpu-box-7: retry", "lost contact to host: retry"),
        ("gpu-box-71", "gpu-box-71"),
        ("GPU-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d", "GPU-0"),
        ("MIG-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d", "MIG-0"),
        ("joanna", "joanna"),
    ],
)
def test_identity_is_replaced_and_nothing_else(text: str, shown: str) -> None:
    assert anonymous(_host())(text) == shown


@pytest.mark.parametrize("user", ["root", "user", "torch", "x"])
def test_an_ordinary_word_as_user_name_mangles_nothing(user: str) -> None:
    replaced = anonymous(_host(user=user, home="/root"))
    for text in ("/root/venv", "/usr/lib/python3/torch", "the torch package", "/opt/x86_64"):
        assert replaced(text) == text or f"/{user}" in text


def test_every_text_of_the_facts_is_reached() -> None:
    facts = Facts(
        python=Python(path="/home/hanna/v/bin/python", site_packages=("/home/hanna/v/lib",)),
        gpus=(Gpu(uuid="GPU-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d"),),
        env={"CC": "/home/hanna/gcc"},
        gaps={"torch": "/home/hanna/v cannot be read"},
    )
    shown = rewritten(facts, anonymous(_host()))
    assert "hanna" not in repr(shown)
    assert shown.python.site_packages == ("/home/user/v/lib",)
    assert shown.gpus is not None
    assert shown.gpus[0].uuid == "GPU-0"


def test_walk_reaches_keys_too() -> None:
    assert walk({"a": ["a", {"a": ("a", 1, None)}]}, str.upper) == {
        "A": ["A", {"A": ["A", 1, None]}]
    }
