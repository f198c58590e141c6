"""What the builder's record says of files that several of its entries use."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from attn_doctor.facts import BuiltKernels
from attn_doctor.kernels.caches.contents import State
from attn_doctor.kernels.caches.survey import recorded
from attn_doctor.record.manifest import Build, Entry, EntryState, Manifest, Warmup
from attn_doctor.record.spec import KernelSpec

SPEC = KernelSpec(heads=2, head_dim=16, lengths=(128,))


def entry(place: str, state: EntryState = "built") -> Entry:
    build = Build(at="2026-11-21T10:00:00Z", seconds=1.5, files={"fxgraph/x": 3}, verified=True)
    return Entry(spec=SPEC, device_slot=place, state=state, build=build)


LIVE = entry("live")
STALE = entry("stale")
UNKNOWN = [
    entry("unbuilt"),
    entry("elsewhere"),
    entry("not compared"),
    entry("live", "unverified"),
    entry("live", "not-reused"),
]
BUILT = (
    BuiltKernels(error="", device_slot="live", drift="", device_present=True),
    BuiltKernels(error="", device_slot="stale", drift="built for torch 2.10", device_present=True),
    BuiltKernels(error="", device_slot="elsewhere", drift="", device_present=False),
    BuiltKernels(error="", device_slot="not compared", drift=None, device_present=True),
)


def said(entries: Any, warmups: Any = ()) -> State:
    manifest = Manifest(
        schema=1,
        attn_doctor="0.1.0",
        entries={str(number): one for number, one in enumerate(entries)},
        warmups={str(number): one for number, one in enumerate(warmups)},
    )
    return recorded(manifest, BUILT)["fxgraph/x"][0]


@pytest.mark.parametrize("order", [*permutations([LIVE, STALE, UNKNOWN[0]])])
def test_a_live_user_keeps_a_file_live_in_any_order(order: tuple[Entry, ...]) -> None:
    assert said(order) is State.LIVE


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_an_unknown_user_keeps_a_file_from_being_stale_in_any_order(unknown: Entry) -> None:
    assert said([unknown]) is State.UNKNOWN
    assert said([STALE, unknown]) is State.UNKNOWN
    assert said([unknown, STALE]) is State.UNKNOWN


def test_a_file_is_stale_only_if_all_its_users_are() -> None:
    assert said([STALE, STALE]) is State.STALE
    assert said([LIVE]) is State.LIVE


@pytest.mark.parametrize(
    ("verified", "unverified", "state"),
    [
        (True, False, State.LIVE),
        (True, True, State.UNKNOWN),
        (False, False, State.UNKNOWN),
    ],
)
def test_a_warm_up_keeps_its_files(verified: bool, unverified: bool, state: State) -> None:
    warmup = Warmup(
        argv=("python", "train.py"),
        folder="/work",
        device_slot="live",
        at="2026-11-21T10:00:00Z",
        seconds=3.0,
        files={"fxgraph/x": 3},
        verified=verified,
        unverified=unverified,
    )
    assert said([], [warmup]) is state
    assert said([STALE], [warmup]) is state


def test_no_record_says_nothing() -> None:
    assert recorded(None, ()) == {}
