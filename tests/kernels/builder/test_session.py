"""A whole build with real processes, and a child without torch: what is done, kept, cleared."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor import worker
from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.builder.manifest_writer import UNFINISHED
from attn_doctor.kernels.builder.plan import BuildRequest, plan_build
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.kernels.builder.rebuild_request import recorded
from attn_doctor.kernels.builder.report import Report
from attn_doctor.kernels.builder.session import BuildSession
from attn_doctor.kernels.builder.verification import verify_entries
from attn_doctor.pool.pool import PoolError
from attn_doctor.record import store
from attn_doctor.record.lock import Lock, LockLostError
from attn_doctor.record.manifest import Manifest
from tests.effort import at_most

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux alone")
Make = Callable[..., BuildRequest]


class Recorder(Watcher):
    """Keeps what a build tells."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.waits = 0

    def step(self, step: Step) -> None:
        self.steps.append((step.kernel.spec.mask, step.phase))

    def waiting(self, owner: object) -> None:
        self.waits += 1


def built(request: BuildRequest, watcher: Watcher | None = None) -> Report:
    build = BuildSession(request, watcher or Recorder())
    if build.plan.todo:
        build.run()
    return build.report()


def states(report: Report) -> list[str]:
    return [result.entry.state if result.entry else "none" for result in report.results]


def manifest(request: BuildRequest) -> Manifest:
    found = store.load(request.folder)
    assert found is not None
    return found


def test_built_verified_written_down_and_then_up_to_date(request_of: Make) -> None:
    request = request_of("none", "causal", "document")
    watcher = Recorder()
    report = built(request, watcher)
    assert states(report) == ["built"] * 3
    assert not report.failed
    # Each verification begins after its build, and the last thing is that all are done.
    for mask in ("none", "causal", "document"):
        assert [phase for name, phase in watcher.steps if name == mask] == [
            "build",
            "verify",
            "done",
        ]
    found = manifest(request)
    assert set(found.entries) == {f"{spec.id}@cpu" for spec in request.specs}
    assert found.environments["cpu"].torch == "2.13.0+cpu"
    for entry in found.entries.values():
        assert entry.build is not None
        assert entry.build.verified
        assert entry.build.files == {f"aa/{entry.spec.id}.so": 6}
        assert entry.build.errors == {"out": 1e-3}
    with at_most(0.5):
        plan = plan_build(request, found)
    assert [item.state for item in plan.kernels] == ["current"] * 3
    assert plan.seconds == 0
    again = built(request)
    assert again.start_seconds is None
    assert [result.kernel.todo for result in again.results] == [False] * 3


def test_what_fails_does_not_stop_the_rest(request_of: Make) -> None:
    masks = ("die:SIGSEGV", "none", "refuse", "forgetful", "exit:x3", "causal")
    report = built(request_of(*masks))
    assert states(report) == ["failed", "built", "failed", "not-reused", "failed", "built"]
    messages = [result.entry.message for result in report.results if result.entry]
    assert messages[0] == "was killed by SIGSEGV"
    assert messages[2] == "ValueError: no such thing"
    assert messages[3].endswith("differs: inductor")
    assert len(report.failed) == 4
    log = Path(report.results[2].log)
    assert "ValueError: no such thing" in log.read_text()
    assert "at work on verify" in Path(report.results[3].log).read_text()


def test_a_spec_that_hangs_fails_at_its_limit(request_of: Make) -> None:
    report = built(request_of("hang", "none", limit=2.0))
    assert states(report) == ["failed", "built"]
    assert report.results[0].entry is not None
    assert report.results[0].entry.message == "gave no result within 2 s"


def test_only_what_is_missing_is_built(request_of: Make) -> None:
    built(request_of("none", "refuse"))
    watcher = Recorder()
    report = built(request_of("none", "refuse", "causal"), watcher)
    assert {mask for mask, _ in watcher.steps} == {"refuse", "causal"}
    assert states(report) == ["built", "failed", "built"]


def test_a_file_that_is_gone_or_cut_is_built_again(request_of: Make) -> None:
    request = request_of("none", "causal")
    built(request)
    one, other = (request.folder / f"aa/{spec.id}.so" for spec in request.specs)
    one.unlink()
    other.write_text("ker")
    plan = plan_build(request, manifest(request))
    assert [item.state for item in plan.kernels] == ["damaged", "damaged"]
    # The cut one goes first, or it would be loaded as it is.
    assert [cleared.path for cleared in plan.cleared] == [str(other)]
    assert states(built(request)) == ["built", "built"]
    assert other.read_text() == "kernel"


def test_other_versions_are_stale_and_cleared(request_of: Make) -> None:
    request = request_of("none", "causal")
    built(request)
    old = manifest(request)
    was = replace(old.environments["cpu"], torch="2.12.0+cpu")
    store.save(request.folder, replace(old, environments={"cpu": was}))
    wanted = replace(request, specs=request.specs[:1])
    plan = plan_build(wanted, manifest(request))
    assert [item.state for item in plan.kernels] == ["stale"]
    assert "2.12.0" in plan.kernels[0].why
    # All that is stale goes, also what is not wanted today.
    assert {Path(one.path).name for one in plan.cleared} == {
        f"{spec.id}.so" for spec in request.specs
    }
    report = built(wanted)
    assert states(report) == ["built"]
    assert {one.path for one in report.cleared} == {one.path for one in plan.cleared}
    found = manifest(request)
    assert set(found.entries) == {f"{request.specs[0].id}@cpu"}
    assert found.environments["cpu"].torch == "2.13.0+cpu"


def test_force_builds_anew_and_shared_files_stay(request_of: Make) -> None:
    request = request_of("none", "causal")
    built(request)
    found = manifest(request)
    shared = f"aa/{request.specs[0].id}.so"
    entries = dict(found.entries)
    other = f"{request.specs[1].id}@cpu"
    build = entries[other].build
    assert build is not None
    entries[other] = replace(entries[other], build=replace(build, files={**build.files, shared: 6}))
    store.save(request.folder, replace(found, entries=entries))
    forced = replace(request, specs=request.specs[:1], force=True)
    plan = plan_build(forced, manifest(request))
    assert [item.state for item in plan.kernels] == ["forced"]
    assert plan.cleared == ()
    watcher = Recorder()
    built(forced, watcher)
    assert ("none", "build") in watcher.steps


@pytest.mark.parametrize("kind", ["memory", "verify-memory"])
@pytest.mark.thorough
def test_out_of_memory_beside_others_is_tried_again_alone(request_of: Make, kind: str) -> None:
    masks = (f"{kind}:a", f"{kind}:b", f"{kind}:c")
    report = built(request_of(*masks, jobs=3))
    assert states(report) == ["built"] * 3
    assert any(result.retried for result in report.results)


def test_verifications_do_not_wait_for_all_builds(request_of: Make) -> None:
    watcher = Recorder()
    built(request_of("none", "sleep:x20", jobs=2), watcher)
    order = [step for step in watcher.steps if step[1] != "build"]
    assert order.index(("none", "done")) < order.index(("sleep:x20", "verify"))


def test_an_interruption_keeps_what_is_finished(request_of: Make) -> None:
    request = request_of("none", "hang")

    class Interrupts(Recorder):
        def step(self, step: Step) -> None:
            if step.phase == "done":
                raise KeyboardInterrupt

    build = BuildSession(request, Interrupts())
    with pytest.raises(KeyboardInterrupt):
        build.run()
    assert states(build.report()) == ["built", "none"]
    plan = plan_build(request, manifest(request))
    assert [item.state for item in plan.kernels] == ["current", "again"]
    assert plan.kernels[1].why == UNFINISHED
    # The lock is free again.
    with Lock(request.folder, lambda _: pytest.fail("still locked")):
        pass


def test_after_an_ended_build_half_written_files_go(request_of: Make) -> None:
    request = request_of("none", "causal")
    half = request.folder / "bb" / "cbbk5xutgzvcwmrkdyt5tpfbr4lwwuhlxzkfqqfkrhbnmgvrcpd7.main.so"
    half.parent.mkdir()
    half.write_bytes(b"\x7fELF\x02\x01\x01")
    built(replace(request, specs=request.specs[:1]))
    # No build was interrupted: files of other programs stay.
    assert half.exists()
    (request.folder / "attn-doctor" / "unfinished").touch()
    report = built(request)
    assert not half.exists()
    assert [Path(one.path).name for one in report.cleared] == [half.name]
    assert report.cleared[0].why.startswith("damaged: ")
    assert not (request.folder / "attn-doctor" / "unfinished").exists()


@pytest.mark.thorough
def test_a_second_build_waits_and_then_finds_all_done(request_of: Make) -> None:
    request = request_of("sleep:x15", "none")
    first = threading.Thread(target=built, args=(request,))
    first.start()
    while not (request.folder / "attn-doctor" / "lock.1").exists():
        time.sleep(0.02)
    watcher = Recorder()
    build = BuildSession(request, watcher)
    assert build.plan.todo
    build.run()
    first.join()
    assert watcher.waits
    assert watcher.steps == []
    assert states(build.report()) == ["built", "built"]


def test_a_lock_that_was_taken_over_ends_the_build(request_of: Make) -> None:
    request = request_of("none")

    class Steals(Recorder):
        def begin(self, plan: object) -> None:
            lock = request.folder / "attn-doctor" / "lock.1"
            other = json.loads(lock.read_text()) | {"token": "another"}
            (lock.parent / "lock.2").write_text(json.dumps(other))

    with pytest.raises(LockLostError):
        BuildSession(request, Steals()).run()
    assert store.load(request.folder) is None


def test_what_the_record_names_is_built_again(request_of: Make) -> None:
    request = request_of("none", "causal", "refuse")
    with pytest.raises(AttnDoctorError, match=r"nothing was built in .* yet: say what to build"):
        recorded(request, "cpu")[0]
    built(request)
    (request.folder / f"aa/{request.specs[1].id}.so").unlink()
    known = recorded(request, "")[0]
    assert known.devices == ("cpu",)
    again = known
    assert {item.state for item in plan_build(again, manifest(request)).kernels} == {
        "current",
        "damaged",
        "again",
    }
    report = built(again)
    assert sorted(states(report)) == ["built", "built", "failed"]


def test_the_folder_of_a_mask_is_written_down(request_of: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def near(b, h, q, k): return q >= k\n")
    request = request_of("mine:near", "none", sys_path=(str(tmp_path / "no"), str(tmp_path)))
    built(request)
    entries = {one.spec.mask: one for one in manifest(request).entries.values()}
    assert entries["mine:near"].mask_folder == str(tmp_path)
    assert entries["none"].mask_folder == ""
    assert recorded(request, "")[0].sys_path == (str(tmp_path), os.getcwd())


def test_another_device_of_the_record_is_left_alone(request_of: Make) -> None:
    request = request_of("none")
    built(request)
    found = manifest(request)
    [entry] = found.entries.values()
    other = replace(entry, device_slot="cuda:0 NVIDIA H200")
    entries = {**found.entries, f"{entry.spec.id}@{other.device_slot}": other}
    store.save(request.folder, replace(found, entries=entries))
    assert recorded(request, "cpu")[0].only == frozenset(found.entries)
    with pytest.raises(DeviceError, match="build without CUDA"):
        recorded(request, "")[0]


def test_torch_that_cannot_be_imported(request_of: Make) -> None:
    request = request_of("none")
    broken = replace(request, environ={**request.environ, "FAKE_PREPARE": "raise"})
    with pytest.raises(PoolError, match=r"libcudart\.so\.13"):
        BuildSession(broken, Recorder()).run()


def test_entries_are_verified_again_without_a_change(request_of: Make) -> None:
    request = request_of("none", "causal")
    built(request)
    before = (request.folder / "attn-doctor" / "manifest.json").read_bytes()
    keys = list(manifest(request).entries)
    assert [entry.state for entry in verify_entries(request, keys).values()] == ["built", "built"]
    (request.folder / f"aa/{request.specs[0].id}.so").unlink()
    found = verify_entries(request, keys)
    gone, there = (found[f"{spec.id}@cpu"].state for spec in request.specs)
    assert (gone, there) == ("not-reused", "built")
    assert (request.folder / "attn-doctor" / "manifest.json").read_bytes() == before


def elsewhere(request: BuildRequest, serve: Path) -> None:
    """The build, in another process."""
    worker.LAUNCHER = str(serve)
    built(request)


def test_kill_9_leaves_a_folder_with_which_the_next_build_goes_on(
    request_of: Make, serve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other process finds this module by our path, on which an installed package is not enough.
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    request = request_of("none", "sleep:x12", "sleep:x13", "causal")
    context = multiprocessing.get_context("spawn")
    for delay in (0.3, 0.9, 1.6):
        started = context.Process(target=elsewhere, args=(request, serve))
        started.start()
        while started.is_alive() and not list((request.folder / "attn-doctor").glob("lock.*")):
            time.sleep(0.02)
        time.sleep(delay)
        started.kill()
        started.join()
        # It may have built all before it was killed.
        assert started.exitcode in (0, -signal.SIGKILL)
        found = store.load(request.folder)
        for entry in found.entries.values() if found else ():
            assert entry.state == "built" or entry.message == UNFINISHED
            for name, size in entry.build.files.items() if entry.build else ():
                assert (request.folder / name).stat().st_size == size
    assert states(built(request)) == ["built"] * 4
