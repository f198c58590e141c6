"""Live, stale, unknown: only what an entry itself tells decides."""

from __future__ import annotations

import json
import pickle
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts, Gpu, Python, Torch, Triton
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.kernels.caches.contents import State, sort
from attn_doctor.kernels.caches.file_tree import Tree, read_tree
from attn_doctor.kernels.caches.integrity import damage
from attn_doctor.kernels.caches.states import (
    CurrentEnvironment,
    current_environment,
    evaluate_entries,
    prevailing,
)

HERE = CurrentEnvironment(
    torch="2.11.0+cu130",
    cuda="13.0",
    triton="3.6.0",
    python="312",
    sms=(90,),
    gpus=("NVIDIA H200",),
)


def states(
    kind: CacheFolder, root: Path, today: CurrentEnvironment = HERE, **more: Any
) -> dict[str, tuple[str, str]]:
    tree = read_tree(str(root))
    found = evaluate_entries(sort(kind, tree), tree, today, **more)
    return {one.entry.part: (one.state.value, one.why) for one in found}


@pytest.mark.parametrize(
    ("arch", "version", "state", "why"),
    [
        (90, "3.6.0", "live", "built by Triton 3.6.0 for this GPU"),
        (90, "3.5.1", "stale", "built by Triton 3.5.1, this is 3.6.0"),
        (80, "3.6.0", "stale", "built for sm_80, the GPU here is sm_90"),
    ],
)
def test_a_kernel_tells_its_triton_and_gpu(
    tmp_path: Path, make: Any, arch: int, version: str, state: str, why: str
) -> None:
    make.kernel(tmp_path, arch=arch, version=version)
    assert states("triton", tmp_path) == {"triton": (state, why)}


def test_windows_counts_its_builds_of_triton(tmp_path: Path, make: Any) -> None:
    make.kernel(tmp_path, version="3.5.0")
    today = CurrentEnvironment(triton="3.5.0.post21", sms=(90,))
    assert states("triton", tmp_path, today)["triton"][0] == "live"


@pytest.mark.parametrize(
    "today",
    [
        CurrentEnvironment(triton="3.6.0", sms=None),
        CurrentEnvironment(triton="3.6.0", sms=()),
        CurrentEnvironment(triton=None, sms=(90,)),
        CurrentEnvironment(triton="", sms=(90,)),
    ],
)
def test_what_is_not_known_of_today_makes_nothing_stale(
    tmp_path: Path, make: Any, today: CurrentEnvironment
) -> None:
    make.kernel(tmp_path)
    make.kernel(tmp_path, make.OTHER, arch=80)
    found = [one for one in [states("triton", tmp_path, today)] if one]
    if today.sms != (90,):
        assert found[0]["triton"][0] == "unknown"
    assert "live" not in {state for state, _ in found[0].values()}


@pytest.mark.parametrize(("triton", "state"), [("3.6.0", "stale"), ("3.0.0", "unknown")])
def test_older_tritons_leave_no_version(tmp_path: Path, make: Any, triton: str, state: str) -> None:
    folder = make.kernel(tmp_path)
    make.write(folder / "k.json", '{"target": {"backend": "cuda", "arch": 90}, "name": "k"}')
    assert (
        states("triton", tmp_path, CurrentEnvironment(triton=triton, sms=(90,)))["triton"][0]
        == state
    )


def test_a_graph_is_stale_with_the_kernels_in_it_and_takes_its_code_along(
    tmp_path: Path, make: Any
) -> None:
    found = states("inductor", make.inductor(tmp_path, version="3.5.1"))
    assert found["fxgraph"] == ("stale", "built by Triton 3.5.1, this is 3.6.0")
    assert found["code"] == ("stale", "only stale entries use it")


@pytest.mark.parametrize(("python", "state"), [("312", "unknown"), ("311", "stale")])
def test_tritons_helpers_tell_their_python(
    tmp_path: Path, make: Any, python: str, state: str
) -> None:
    name = f"cuda_utils.cpython-{python}-x86_64-linux-gnu.so"
    make.write(tmp_path / make.KEY / name, make.elf())
    found = states("triton", tmp_path)["triton"]
    assert found[0] == state
    assert found[1].startswith("Triton's helper cuda_utils, not a kernel")


def test_fitting_kernels_do_not_prove_a_graph_live(tmp_path: Path, make: Any) -> None:
    found = states("inductor", make.inductor(tmp_path))
    assert found["fxgraph"][0] == found["code"][0] == "unknown"
    assert found["triton"][0] == "live"


def test_the_record_decides_before_anything_else(tmp_path: Path, make: Any) -> None:
    path = f"fxgraph/{make.FX[1:3]}/{make.FX}/{make.FILE}"
    said = {path: (State.LIVE, "built and verified 2026-11-21")}
    found = states("inductor", make.inductor(tmp_path), recorded=said)
    assert found["fxgraph"] == ("live", "built and verified 2026-11-21")


def test_generated_code_tells_its_gpu(tmp_path: Path, make: Any) -> None:
    text = "triton_meta={'device': DeviceProperties(type='cuda', index=0, cc=80, major=8)}"
    make.write(tmp_path / make.CODE[1:3] / f"{make.CODE}.py", text)
    assert states("inductor", tmp_path)["code"][0] == "stale"


@pytest.mark.parametrize(
    ("folder", "state"),
    [
        ("py312_cu130", "unknown"),
        ("py311_cu130", "stale"),
        ("py312_cu128", "stale"),
        ("", "unknown"),
    ],
)
def test_extensions_tell_python_and_cuda_by_their_folder(
    tmp_path: Path, make: Any, folder: str, state: str
) -> None:
    make.extension(tmp_path, folder)
    assert states("extensions", tmp_path)["extension"][0] == state


@pytest.mark.parametrize(
    ("arch", "nvrtc", "state"),
    [("9.0", "13.0", "live"), ("8.0", "13.0", "stale"), ("9.0", "12.8", "stale")],
)
def test_small_kernels_tell_gpu_and_cuda_by_their_name(
    tmp_path: Path, make: Any, arch: str, nvrtc: str, state: str
) -> None:
    make.small_kernel(tmp_path, arch, nvrtc)
    assert states("jiterator", tmp_path)["kernel"][0] == state


@pytest.mark.symlinks
def test_downloaded_kernels_without_a_variant_for_this_torch_are_stale(
    tmp_path: Path, make: Any
) -> None:
    make.hub(tmp_path)
    assert states("hub", tmp_path)["download"][0] == "stale"
    assert states("hub", tmp_path, CurrentEnvironment(torch="2.9.1"))["download"][0] == "unknown"


def test_when_the_time_is_up_entries_stay_unknown(tmp_path: Path, make: Any) -> None:
    make.kernel(tmp_path, arch=80)
    assert states("triton", tmp_path, seconds=-1)["triton"] == (
        "unknown",
        "not examined: the time limit was reached",
    )


def test_today_comes_from_the_facts() -> None:
    facts = Facts(
        torch=Torch(installed=True, version="2.11.0+cu130", build="cuda", cuda="13.0"),
        triton=Triton(installed=True, version="3.6.0"),
        gpus=(Gpu(name="A", sm=90), Gpu(name="B", sm=80, visible=False)),
    )
    assert current_environment(facts) == CurrentEnvironment(
        torch="2.11.0+cu130", cuda="13.0", triton="3.6.0", sms=(90,), gpus=("A",)
    )
    assert current_environment(Facts()) == CurrentEnvironment()
    assert (
        current_environment(
            Facts(torch=Torch(installed=False), triton=Triton(installed=False))
        ).triton
        == ""
    )
    assert current_environment(Facts(gpus=(Gpu(name="A"),))).sms is None


#: What a file may hold in place of the JSON object that is expected.
ODD = (
    "", "null", "3", "-1.5", '"text"', "[]", "[1, 2]", "{}", "true", "NaN", "{", "[" * 100_000,
    '{"system": null}', '{"system": []}', '{"system": {"device": [1], "version": "x"}}',
    '{"system": {"device": {"name": ["NVIDIA H100"]}, "version": {"cuda": 13.0}}}',
    '{"system": {"device": {"name": 3}, "version": null}}',
    '{"key": ["fp16", "fp16"], "configs_timings": [[{"num_warps": 4}, 0.1]]}',
    '{"XBLOCK": 64, "num_warps": 4, "num_stages": 1, "configs_hash": "x"}',
    '{"target": "cuda", "triton_version": 3}', '{"target": [90], "triton_version": null}',
    '{"target": {"backend": "cuda", "arch": "90"}, "triton_version": "3.6.0"}',
    '{"target": {"backend": "cuda", "arch": null}, "triton_version": ["3.5.0"]}',
    '{"child_paths": null}', '{"child_paths": {"a": null}}', '{"child_paths": ["a"]}',
)  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:24])
def test_odd_json_never_fails_and_is_never_stale(tmp_path: Path, make: Any, text: str) -> None:
    """The autotuners of Triton and Inductor write JSON of their own beside kernels and graphs."""
    root = make.inductor(tmp_path)
    kernel = make.kernel(root / "triton" / "0", make.OTHER)
    make.write(kernel / "k.json", text)
    make.write(root / "triton" / "0" / make.KEY / "k.autotune.json", text)
    make.write(kernel / "__grp__k.json", text)
    make.write(root / "ab" / "k.best_config", text)
    make.write(root / "cache" / ("d" * 51), text)
    tree = read_tree(str(root))
    contents = sort("inductor", tree)
    assert not [path for path in contents.unrelated_files if path.endswith(("json", "config"))]
    found = evaluate_entries(contents, tree, HERE)
    assert State.STALE not in {one.state for one in found}
    assert all(one.what for one in damage("inductor", str(root)))


@pytest.mark.parametrize("states_", [*permutations(State)])
def test_the_state_of_a_shared_file_does_not_depend_on_order(states_: tuple[State, ...]) -> None:
    said = [(state, state.value) for state in states_]
    assert prevailing(said)[0] is State.LIVE
    assert prevailing([one for one in said if one[0] is not State.LIVE])[0] is State.UNKNOWN
    assert prevailing([one for one in said if one[0] is State.STALE])[0] is State.STALE


@pytest.mark.parametrize("order", [*permutations(["a", "b"])])
@pytest.mark.parametrize("other", [State.LIVE, State.UNKNOWN])
def test_an_entry_with_one_file_that_is_not_stale_is_not_stale(
    tmp_path: Path, make: Any, other: State, order: tuple[str, str]
) -> None:
    folder = tmp_path / "fxgraph" / make.FX[1:3] / make.FX
    names = {name: f"{make.FILE[:-1]}{name}" for name in order}
    recorded = {}
    for name, state in zip(order, (State.STALE, other), strict=True):
        path = make.write(folder / names[name], pickle.dumps({}, 5))
        recorded[path.relative_to(tmp_path).as_posix()] = (state, "as recorded")
    found = states("inductor", tmp_path, recorded=recorded)
    assert found["fxgraph"] == (other.value, "as recorded")


def test_a_graph_that_the_record_does_not_name_keeps_its_key(tmp_path: Path, make: Any) -> None:
    """Another program wrote it under the same key; the record knows only the builder's."""
    path = f"fxgraph/{make.FX[1:3]}/{make.FX}/{make.FILE}"
    root = make.inductor(tmp_path)
    stale = {path: (State.STALE, "built for torch 2.10")}
    assert states("inductor", root, recorded=stale)["fxgraph"][0] == "stale"
    make.write((root / path).with_name(make.FILE[:-1] + "a"), pickle.dumps({}, 5))
    assert states("inductor", root, recorded=stale)["fxgraph"][0] == "unknown"


def test_other_json_in_a_graph_does_not_hide_the_kernels_description(
    tmp_path: Path, make: Any
) -> None:
    kernel = json.dumps({"target": {"backend": "cuda", "arch": 90}, "triton_version": "3.5.1"})
    graph = {"settings": b'{"x": 1}', "bundle": [kernel.encode()]}
    path = tmp_path / "fxgraph" / make.FX[1:3] / make.FX / make.FILE
    make.write(path, pickle.dumps(graph, 5))
    assert states("inductor", tmp_path)["fxgraph"][0] == "stale"


@pytest.mark.parametrize(
    ("gpu", "cuda", "today", "state"),
    [
        ("NVIDIA H200", "13.0", HERE, "unknown"),
        ("NVIDIA A100", "13.0", HERE, "stale"),
        ("NVIDIA H200", "12.8", HERE, "stale"),
        ("NVIDIA A100", "12.8", CurrentEnvironment(), "unknown"),
        ("NVIDIA A100", "13.0", CurrentEnvironment(gpus=(), cuda="13.0"), "unknown"),
    ],
)
def test_timings_name_their_gpu_and_cuda(
    tmp_path: Path, make: Any, gpu: str, cuda: str, today: CurrentEnvironment, state: str
) -> None:
    system = {"device": {"name": gpu}, "version": {"cuda": cuda}}
    make.write(tmp_path / "cache" / ("d" * 51), json.dumps({"system": system}))
    assert states("inductor", tmp_path, today)["autotune"][0] == state


def test_timings_in_another_folder_are_not_read(tmp_path: Path, make: Any) -> None:
    system = {"device": {"name": "NVIDIA A100"}, "version": {"cuda": "12.8"}}
    make.write(tmp_path / "ab" / "k.best_config", json.dumps({"system": system}))
    assert states("inductor", tmp_path)["autotune"][0] == "unknown"


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("cuda_utils.so", HERE),
        ("cuda_utils.cpython-311-x86_64-linux-gnu.so", CurrentEnvironment(triton="3.6.0")),
    ],
)
def test_a_helper_without_a_known_python_is_unknown(
    tmp_path: Path, make: Any, name: str, today: CurrentEnvironment
) -> None:
    make.write(tmp_path / make.KEY / name, make.elf())
    assert states("triton", tmp_path, today)["triton"][0] == "unknown"


@pytest.mark.parametrize(
    ("folder", "today"),
    [
        ("py312_cpu", HERE),
        ("py312_cu128", CurrentEnvironment(python="312")),
        ("py312_cu128", CurrentEnvironment(python="312", cuda="")),
        ("py311_cpu", CurrentEnvironment(cuda="13.0")),
    ],
)
def test_an_extension_that_another_torch_may_use_is_unknown(
    tmp_path: Path, make: Any, folder: str, today: CurrentEnvironment
) -> None:
    make.extension(tmp_path, folder)
    assert states("extensions", tmp_path, today)["extension"][0] == "unknown"


@pytest.mark.parametrize(
    ("arch", "today"),
    [
        ("gfx942:sramecc+", HERE),
        ("9.0", CurrentEnvironment(cuda="", sms=(90,))),
        ("8.0", CurrentEnvironment(cuda="13.0")),
    ],
)
def test_a_small_kernel_of_unknown_use_is_unknown(
    tmp_path: Path, make: Any, arch: str, today: CurrentEnvironment
) -> None:
    make.small_kernel(tmp_path, arch)
    assert states("jiterator", tmp_path, today)["kernel"][0] == "unknown"


def test_without_a_known_torch_downloads_are_unknown(tmp_path: Path, make: Any) -> None:
    make.hub(tmp_path)
    assert states("hub", tmp_path, CurrentEnvironment())["download"][0] == "unknown"


@pytest.mark.parametrize("state", [State.LIVE, State.UNKNOWN])
def test_recorded_code_keeps_its_state_although_only_a_stale_graph_uses_it(
    tmp_path: Path, make: Any, state: State
) -> None:
    root = make.inductor(tmp_path, version="3.5.1")
    files = [f"{make.CODE[1:3]}/{make.CODE}{end}" for end in (".py", ".main.so")]
    found = states("inductor", root, recorded=dict.fromkeys(files, (state, "recorded")))
    assert found["fxgraph"][0] == "stale"
    assert found["code"] == (state.value, "recorded")


@pytest.mark.parametrize("state", [None, State.LIVE, State.UNKNOWN, State.STALE], ids=str)
def test_code_that_another_graph_uses_too(tmp_path: Path, make: Any, state: State | None) -> None:
    """The other graph's state comes from the record, or (None) it shows none."""
    root = make.inductor(tmp_path, version="3.5.1")
    other = "f" + make.FX[1:-1] + "a"
    path = make.write(
        root / "fxgraph" / other[1:3] / other / make.FILE, pickle.dumps({"cache_key": make.CODE}, 5)
    )
    name = path.relative_to(root).as_posix()
    found = states("inductor", root, recorded={name: (state, "recorded")} if state else {})
    assert found["code"][0] == ("stale" if state is State.STALE else "unknown")


def test_code_stays_unknown_while_a_graph_cannot_be_read(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path, version="3.5.1")
    other = "f" + make.FX[1:-1] + "a"
    lost = make.write(root / "fxgraph" / other[1:3] / other / make.FILE)
    tree = read_tree(str(root))
    contents = sort("inductor", tree)
    lost.unlink()
    found = {one.entry.name: one.state for one in evaluate_entries(contents, tree, HERE)}
    assert found[make.FX] is State.STALE
    assert found[make.CODE] is State.UNKNOWN


@pytest.mark.parametrize(
    ("torch", "cuda"),
    [
        (Torch(installed=True, build="cuda", cuda="13.0"), "13.0"),
        (Torch(installed=True, build="cpu", cuda="13.0"), ""),
        (Torch(installed=True), None),
        (Torch(installed=False), ""),
        (Torch(), None),
    ],
)
def test_the_cuda_of_today(torch: Torch, cuda: str | None) -> None:
    assert current_environment(Facts(torch=torch)).cuda == cuda


def test_the_torch_and_the_python_of_today() -> None:
    assert current_environment(Facts(torch=Torch(installed=False, version="2.11"))).torch == ""
    assert current_environment(Facts(python=Python(minor="3.12"))).python == "312"
    assert current_environment(Facts()).python is None


def test_code_stays_unknown_when_the_time_is_up(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that were not read may use the code, so that it must not become stale."""
    root = make.inductor(tmp_path, version="3.5.1")
    tree = read_tree(str(root))
    contents = sort("inductor", tree)
    order = {"code": 0, "fxgraph": 1}
    entries = sorted(contents.entries, key=lambda entry: order.get(entry.part, 2))
    contents = replace(contents, entries=tuple(entries))
    clock = iter([0.0, 1.0, 1.0, *[9.0] * len(entries)])
    monkeypatch.setattr("attn_doctor.kernels.caches.states.time.monotonic", lambda: next(clock))
    found = evaluate_entries(contents, tree, HERE, seconds=5)
    states_ = {one.entry.part: one.state for one in found}
    assert states_["fxgraph"] is State.STALE
    assert states_["code"] is State.UNKNOWN


@pytest.mark.parametrize("place", ["before", "after"])
def test_one_stale_kernel_makes_a_graph_stale_wherever_it_is(
    tmp_path: Path, make: Any, place: str
) -> None:
    def described(version: str) -> bytes:
        target = {"backend": "cuda", "arch": 90}
        return json.dumps({"target": target, "triton_version": version}).encode()

    versions = ["3.6.0", "3.5.1"] if place == "after" else ["3.5.1", "3.6.0"]
    graph = {"bundle": [described(version) for version in versions]}
    path = tmp_path / "fxgraph" / make.FX[1:3] / make.FX / make.FILE
    make.write(path, pickle.dumps(graph, 5))
    assert states("inductor", tmp_path)["fxgraph"] == (
        "stale",
        "built by Triton 3.5.1, this is 3.6.0",
    )


def test_a_recorded_graph_is_read_so_that_its_code_does_not_become_stale(
    tmp_path: Path, make: Any
) -> None:
    root = make.inductor(tmp_path)
    text = "DeviceProperties(type='cuda', index=0, cc=90, major=9)"
    make.write(root / make.CODE[1:3] / f"{make.CODE}.py", text)
    assert states("inductor", root)["code"][0] == "unknown"


@pytest.mark.parametrize(
    ("described", "today", "why"),
    [
        ({"triton_version": "3.6.0"}, HERE, "it was not built for an NVIDIA GPU"),
        (
            {"target": {"backend": "cuda", "arch": 90}},
            CurrentEnvironment(triton="3.0.0", sms=(90,)),
            "its Triton wrote no version into it",
        ),
        (
            {"target": {"backend": "cuda", "arch": 90}, "triton_version": "3.6.0"},
            CurrentEnvironment(triton="", sms=(90,)),
            "built by Triton 3.6.0, and no Triton is installed",
        ),
        (
            {"target": {"backend": "cuda", "arch": 90}, "triton_version": "3.6.0"},
            CurrentEnvironment(sms=(90,)),
            "built by Triton 3.6.0; the installed version is unknown",
        ),
    ],
)
def test_why_a_kernel_is_unknown(
    tmp_path: Path, make: Any, described: dict[str, Any], today: CurrentEnvironment, why: str
) -> None:
    folder = make.kernel(tmp_path)
    make.write(folder / "k.json", json.dumps(described))
    assert states("triton", tmp_path, today)["triton"] == ("unknown", why)


@pytest.mark.parametrize("version", ["3.6.0", "3.6.0+git1", "3.6.0.post1", "3.6.0-rc"])
def test_builds_of_one_release_of_triton_are_the_same(
    tmp_path: Path, make: Any, version: str
) -> None:
    make.kernel(tmp_path, version=version)
    assert states("triton", tmp_path)["triton"][0] == "live"


@pytest.mark.parametrize(
    ("triton", "state"),
    [("3.5.9", "unknown"), ("3.6.0", "stale"), ("3.10.0", "stale"), ("4.0.0", "stale")],
)
def test_since_when_triton_writes_its_version(
    tmp_path: Path, make: Any, triton: str, state: str
) -> None:
    folder = make.kernel(tmp_path)
    make.write(folder / "k.json", '{"target": {"backend": "cuda", "arch": 90}}')
    today = CurrentEnvironment(triton=triton, sms=(90,))
    assert states("triton", tmp_path, today)["triton"][0] == state


@pytest.mark.parametrize(
    ("cuda", "state"), [("13.0", "live"), ("13.0.1", "live"), ("13.1", "stale")]
)
def test_two_numbers_of_cuda_count_for_a_small_kernel(
    tmp_path: Path, make: Any, cuda: str, state: str
) -> None:
    make.small_kernel(tmp_path)
    today = CurrentEnvironment(cuda=cuda, sms=(90,))
    assert states("jiterator", tmp_path, today)["kernel"][0] == state


def test_a_helper_for_windows_is_recognised(tmp_path: Path, make: Any) -> None:
    make.write(tmp_path / make.KEY / "__triton_launcher.cp311-win_amd64.pyd", make.elf())
    assert states("triton", tmp_path)["triton"] == (
        "stale",
        "Triton's helper __triton_launcher, not a kernel, built for Python 3.11, this is 3.12",
    )


@pytest.mark.posix
def test_a_cache_under_another_path_is_never_stale(tmp_path: Path, make: Any) -> None:
    """A container mounts it as /cache, and its versions are not those of this environment."""
    root = make.inductor(tmp_path, version="3.5.1")
    make.kernel(root / "triton" / "0", make.OTHER, version="3.5.1")
    group = root / "triton" / "0" / make.KEY / "__grp__k.json"
    assert states("inductor", root)["fxgraph"][0] == "stale"
    group.write_text(group.read_text().replace(str(root), "/cache"))
    found = read(root)
    assert found[make.KEY][0] == found[make.FX][0] == found[make.CODE][0] == "unknown"
    assert found[make.KEY][1] == (
        f"written under /cache/triton/0/{make.KEY}, where another environment may use it"
    )
    # This one was written under the path of today, so its versions are those of this environment.
    assert found[make.OTHER][0] == "stale"


@pytest.mark.posix
def test_a_record_does_not_make_a_cache_under_another_path_stale(tmp_path: Path, make: Any) -> None:
    root = make.inductor(tmp_path)
    group = root / "triton" / "0" / make.KEY / "__grp__k.json"
    group.write_text(group.read_text().replace(str(root), "/cache"))
    path = f"fxgraph/{make.FX[1:3]}/{make.FX}/{make.FILE}"
    kernel = f"triton/0/{make.KEY}/k.json"
    said = {path: (State.STALE, "torch 2.9"), kernel: (State.STALE, "torch 2.9")}
    found = states("inductor", root, recorded=said)
    assert found["fxgraph"][0] == found["triton"][0] == "unknown"


STALE_TEXT, LIVE_TEXT, ODD_TEXT = (
    json.dumps({"target": {"backend": "cuda", "arch": arch}, "triton_version": "3.6.0"}).encode()
    for arch in (80, 90, "sm_90")
)


@pytest.mark.parametrize("order", [*permutations([STALE_TEXT, LIVE_TEXT, ODD_TEXT])])
def test_an_unknown_kernel_in_a_graph_wins_in_every_order(
    tmp_path: Path, make: Any, order: tuple[bytes, ...]
) -> None:
    root = make.inductor(tmp_path)
    graph = root / "fxgraph" / make.FX[1:3] / make.FX / make.FILE
    unknown = json.dumps(
        {"target": {"backend": "hip", "arch": "gfx942"}, "triton_version": "3.6.0"}
    )
    bundle = [unknown.encode() if text == ODD_TEXT else text for text in order]
    graph.write_bytes(pickle.dumps({"bundle": bundle}, 5))
    assert states("inductor", root)["fxgraph"][0] == "unknown"
    graph.write_bytes(pickle.dumps({"bundle": [one for one in order if one != ODD_TEXT]}, 5))
    assert states("inductor", root)["fxgraph"][0] == "stale"


def read(root: Path) -> dict[str, tuple[str, str]]:
    """Name of an entry → its state and the reason."""
    tree = read_tree(str(root))
    found = evaluate_entries(sort("inductor", tree), tree, HERE)
    return {one.entry.name: (one.state.value, one.why) for one in found}


def test_a_result_of_aotautograd_shows_its_kernels(tmp_path: Path, make: Any) -> None:
    old = make.kernel(tmp_path / "elsewhere", version="3.5.1") / "k.json"
    root = make.inductor(tmp_path / "r")
    result = root / "aotautograd" / make.AOT / make.FILE
    result.write_bytes(pickle.dumps({"bundle": [old.read_bytes()]}, 5))
    assert states("inductor", root)["aotautograd"] == (
        "stale",
        "built by Triton 3.5.1, this is 3.6.0",
    )


def test_the_drivers_cache_shows_nothing(tmp_path: Path, make: Any) -> None:
    make.driver(tmp_path)
    assert {state for state, _ in states("driver", tmp_path).values()} == {"unknown"}


def test_a_group_that_cannot_be_read_names_no_folder(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make.kernel(tmp_path)
    tree = read_tree(str(tmp_path))
    read = type(tree).read

    def fail(self: Tree, path: str, *more: Any) -> bytes:
        if "__grp__" in path:
            raise OSError(5, "Input/output error")
        return read(self, path, *more)

    monkeypatch.setattr(Tree, "read", fail)
    (found,) = evaluate_entries(sort("triton", tree), tree, HERE)
    assert (found.state, folder.exists()) == (State.LIVE, True)


@pytest.mark.parametrize(
    ("cuda", "gpus", "why"),
    [
        (
            "13.0",
            ("NVIDIA T4", "NVIDIA L4"),
            "measured on NVIDIA H200, here is NVIDIA T4, NVIDIA L4",
        ),
        ("12.8", ("NVIDIA H200",), "measured with CUDA 13.0, torch has 12.8"),
        ("", ("NVIDIA H200",), "measured with CUDA 13.0, torch has none"),
    ],
)
def test_timings_say_what_they_were_measured_with(
    tmp_path: Path, make: Any, cuda: str, gpus: tuple[str, ...], why: str
) -> None:
    system = {"device": {"name": "NVIDIA H200"}, "version": {"cuda": "13.0"}}
    make.inductor(tmp_path)
    make.write(tmp_path / "cache" / ("a" * 64), json.dumps({"system": system}))
    today = replace(HERE, cuda=cuda, gpus=gpus)
    assert states("inductor", tmp_path, today)["autotune"] == ("stale", why)


@pytest.mark.posix
def test_variants_of_downloads_are_named(tmp_path: Path, make: Any) -> None:
    for variant in ("torch28-cxx11-cu128-x86_64-linux", "torch29-cxx11-cu128-x86_64-linux"):
        make.hub(tmp_path, variant)
    assert states("hub", tmp_path)["download"] == (
        "stale",
        (
            "it has no variant for torch 2.11: torch28-cxx11-cu128-x86_64-linux,"
            " torch29-cxx11-cu128-x86_64-linux"
        ),
    )
    assert states("hub", tmp_path, CurrentEnvironment(torch="2.9.1"))["download"] == (
        "unknown",
        "it has a variant for torch 2.9",
    )
