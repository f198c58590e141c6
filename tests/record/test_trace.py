"""Cache lookups as torch 2.13 traced them; the components of keys are shortened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.record.trace import (
    Lookup,
    counted,
    differing,
    lookups,
    without_gradients,
)

TRACES = Path(__file__).parent / "traces"
FX = "fvxhxirv7ns53xb3cooypdqefwim5x6epssei4nbbefhocvrxmt6"
AOT = "ayy3bwu32efflubqp273l444udborox5sz62t3yfs6d3dhovo67e"


def read(folder: Path, *names: str) -> list[Lookup]:
    for name in names:
        shutil.copy(TRACES / f"{name}.log", folder / f"dedicated_log_{name}.log")
    return lookups(folder)


def test_a_first_run_misses(tmp_path: Path) -> None:
    found = read(tmp_path, "miss")
    assert [(one.kind, one.what, one.key) for one in found] == [
        ("aotautograd", "miss", AOT),
        ("fxgraph", "miss", FX),
    ]
    assert counted(found) == {"aotautograd.miss": 1, "fxgraph.miss": 1}


def test_a_second_run_hits_with_the_same_keys(tmp_path: Path) -> None:
    found = read(tmp_path, "hit")
    assert {(one.kind, one.what, one.key) for one in found} == {
        ("aotautograd", "hit", AOT),
        ("fxgraph", "hit", FX),
    }


def test_several_processes_count_together(tmp_path: Path) -> None:
    assert counted(read(tmp_path, "hit", "miss")) == {
        "aotautograd.hit": 1,
        "fxgraph.hit": 1,
        "aotautograd.miss": 1,
        "fxgraph.miss": 1,
    }


def test_what_differs_is_named(tmp_path: Path) -> None:
    known = read(tmp_path, "miss")
    graph = known[1]
    setting = "[abc] inductor_config[max_autotune]: False"
    other = replace(graph, components=(*graph.components, setting))
    moved = replace(graph, components=(*graph.components, setting.replace("abc", "abd")[:-5] + "x"))
    assert differing(moved, [other]) == ["inductor_config[max_autotune]: False → x"]
    assert differing(graph, [graph]) == []
    changed = (graph.components[0].replace("[4s7", "[5s7"), *graph.components[1:])
    assert differing(replace(graph, components=changed), known) == ["gm"]


def test_a_trace_that_ends_in_the_middle(tmp_path: Path) -> None:
    whole = (TRACES / "miss.log").read_text("utf-8")
    (tmp_path / "cut.log").write_text(whole[: whole.index('"components": ["[4s7') + 40])
    found = lookups(tmp_path)
    assert [one.what for one in found] == ["miss", "miss"]
    assert found[1].key == ""


def test_no_trace(tmp_path: Path) -> None:
    assert lookups(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "alone"),
    [([], False), (["False"], True), (["False", "True"], False), (["True"], False)],
)
def test_attention_that_no_backward_can_follow(options: list[str], alone: bool) -> None:
    found = [
        Lookup(
            kind="fxgraph",
            what="hit",
            key="f",
            components=(f"[ab] gm: {{'WRITE_DQ': True, 'OUTPUT_LOGSUMEXP': {one}}}",),
        )
        for one in options
    ]
    assert without_gradients([Lookup(kind="fxgraph", what="miss", key="g"), *found]) is alone
