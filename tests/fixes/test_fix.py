"""`attn-doctor fix` on real environments with real installers: plan, apply, undo, and mishaps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import installed
from tests.environments import Environment, until

pytestmark = pytest.mark.slow
TRITON = "triton/torch-mismatch"


@pytest.fixture(params=[pytest.param("pip", marks=pytest.mark.thorough), "uv"])
def either(request: pytest.FixtureRequest) -> Environment:
    found: Environment = request.getfixturevalue("env" if request.param == "pip" else "uv_env")
    return found


def test_a_plan_is_shown_and_not_carried_out_without_a_terminal(uv_env: Environment) -> None:
    before = uv_env.tree()
    ended = uv_env.fix(TRITON)
    assert ended.returncode == 1, ended.stderr
    assert "~ triton 3.5.0 → 3.6.0" in ended.stdout
    assert "run the same command with --yes" in ended.stdout
    output = json.loads(uv_env.fix(TRITON, "--format", "json").stdout)
    assert output["exit_code"] == 1
    assert output["plan"]["steps"][0]["changes"] == [
        {"name": "triton", "old": "3.5.0", "new": "3.6.0"}
    ]
    assert uv_env.tree() == before
    assert not uv_env.state.exists()


@pytest.mark.posix
def test_a_step_is_applied_and_undone_exactly(either: Environment) -> None:
    frozen, before = either.freeze(), either.tree()
    ended = either.fix(TRITON, "--yes")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "~ triton 3.5.0 → 3.6.0" in ended.stdout
    assert "resolved: Triton 3.5.0 does not fit" in ended.stdout
    assert either.freeze() == frozen.replace("triton==3.5.0", "triton==3.6.0")
    undone = either.fix("undo", "--yes", examine=False)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert "all that it changed is restored" in undone.stdout
    assert either.freeze() == frozen
    assert either.tree() == before
    assert "undone" in either.fix("history", examine=False).stdout
    again = either.fix("undo", "--yes", examine=False)
    assert again.returncode == 2
    assert "nothing to undo" in again.stderr
    redone = either.fix("redo", "--yes", examine=False)
    assert redone.returncode == 0, redone.text
    assert either.freeze() == frozen.replace("triton==3.5.0", "triton==3.6.0")
    assert either.fix("undo", "--yes", examine=False).returncode == 0
    assert either.tree() == before
    id = json.loads(either.fix("history", "--json", examine=False).stdout)["runs"][0]["id"]
    assert either.fix("forget", id, examine=False).returncode == 0
    assert not list(either.site.parent.glob(".attn-doctor-undo"))


def test_an_undo_without_a_terminal_is_only_planned(uv_env: Environment) -> None:
    assert uv_env.fix(TRITON, "--yes").returncode == 0
    after = uv_env.tree()
    for more in ((), ("--dry-run",), ("--json",), ("--dry-run", "--yes")):
        planned = uv_env.fix("undo", *more, examine=False)
        assert planned.returncode == 1, planned.text
        assert "3.5.0" in planned.stdout
        assert uv_env.tree() == after
    assert "run the same command with --yes" in uv_env.fix("undo", examine=False).text
    assert uv_env.fix("undo", "--yes", "--json", examine=False).returncode == 0
    assert "triton==3.5.0" in uv_env.freeze()


def test_without_the_newest_run_the_one_before_is_undone(uv_env: Environment) -> None:
    uv_env.rule("other", '["pip", "install", "other"]')
    before = uv_env.tree()
    assert uv_env.fix(TRITON, "--yes").returncode == 0
    uv_env.fix("own/other", "--yes")
    runs = json.loads(uv_env.fix("history", "--json", examine=False).stdout)["runs"]
    newest, first = (run["id"] for run in runs)
    assert uv_env.fix("forget", newest, examine=False).returncode == 0
    named = uv_env.fix("undo", newest, "--yes", examine=False)
    assert named.returncode == 2
    assert f"run {newest} cannot be undone: `fix forget` deleted its copies" in named.text
    undone = uv_env.fix("undo", "--yes", examine=False)
    assert first in undone.stdout
    assert "triton==3.5.0" in uv_env.freeze()
    left = uv_env.tree().keys() - before.keys()
    assert {"other.py"} == {Path(path).name for path in left if "dist-info" not in path}


def test_after_another_torch_the_chosen_fix_is_applied(uv_env: Environment) -> None:
    torch = '["pip", "install", "--no-deps", "torch==2.12.0"]'
    uv_env.rule("a-torch", '["pip", "install", "bulk>=2"]', torch)
    uv_env.rule("b-other", '["pip", "install", "bulk>=2"]', '["pip", "install", "other"]')
    uv_env.fix("own/a-torch", "own/b-other", "--choose", "2", "--yes")
    packages = uv_env.freeze()
    assert "torch==2.12.0" in packages
    assert "other==1.0" in packages
    assert "bulk==1.0" in packages


def test_torch_is_not_moved_by_a_step_that_does_not_name_it(uv_env: Environment) -> None:
    uv_env.rule("up", '["pip", "install", "--upgrade", "diffusers>=0.36"]')
    before = uv_env.tree()
    ended = uv_env.fix("own/up", "--yes")
    assert ended.returncode == 1
    assert "no set of releases fits together" in ended.text
    assert uv_env.tree() == before


def test_a_step_that_does_not_keep_its_promise_has_failed(uv_env: Environment) -> None:
    uv_env.rule("other", '["pip", "install", "other"]', done="'triton.version >= \"3.6\"'")
    ended = uv_env.fix("own/other", "--yes", "--format", "json")
    assert ended.returncode == 1
    step = json.loads(ended.stdout)["applied"]["steps"][0]
    assert step["state"] == "failed"
    assert step["detail"] == "it ran, but triton.version is 3.5.0, wanted ≥ 3.6"


def test_two_rules_that_want_different_releases_are_both_blocked(uv_env: Environment) -> None:
    uv_env.rule("old", '["pip", "install", "triton<3.6"]')
    ended = uv_env.fix("own/old", TRITON, "--yes")
    assert ended.returncode == 1
    assert "Two rules need different triton" in ended.text
    named = f"attn-doctor fix --python {uv_env.python}"
    assert f"`{named} own/old`" in ended.text
    assert f"`{named} {TRITON}`" in ended.text
    assert not uv_env.state.exists()


def test_a_failed_step_leaves_nothing_and_the_next_is_not_reached(uv_env: Environment) -> None:
    uv_env.rule("a-broken", '["pip", "install", "--no-build-isolation", "broken"]')
    uv_env.rule("b-other", '["pip", "install", "other"]')
    before = uv_env.tree()
    ended = uv_env.fix("own/a-broken", "own/b-other", "--yes", "--no-resolve")
    assert ended.returncode == 1, ended.stderr
    assert "its changes were undone" in ended.text
    assert "not reached" in ended.text
    assert "cause: " in ended.text
    assert "[flash/build-isolation]" in ended.text
    assert "log: " in ended.text
    assert uv_env.tree() == before


def test_what_others_changed_since_is_left(uv_env: Environment) -> None:
    uv_env.rule("other", '["pip", "install", "other"]')
    assert uv_env.fix(TRITON, "--yes").returncode == 0
    assert uv_env.fix("own/other", "--yes").returncode == 1  # the rule still finds its problem
    (uv_env.site / "mine.pth").write_text("# mine\n")
    first = json.loads(uv_env.fix("history", "--format", "json", examine=False).stdout)["runs"][1]
    undone = uv_env.fix("undo", first["id"], "--yes", examine=False)
    assert undone.returncode == 0, undone.text
    assert "triton==3.5.0" in uv_env.freeze()
    assert "other==1.0" in uv_env.freeze()
    assert (uv_env.site / "mine.pth").exists()


def test_a_distribution_that_was_changed_again_is_left(uv_env: Environment) -> None:
    assert uv_env.fix(TRITON, "--yes").returncode == 0
    remove = [uv_env.uv, "pip", "uninstall", "-q", "--python", str(uv_env.python), "triton"]
    subprocess.run(remove, check=True, env=uv_env.variables)
    undone = uv_env.fix("undo", "--yes", examine=False)
    assert undone.returncode == 1
    assert "triton was changed again since" in undone.stdout
    assert "triton" not in uv_env.freeze()


@pytest.mark.parametrize(
    ("how", "where"),
    [
        pytest.param(how, where, marks=[pytest.mark.thorough] * (where != "building"))
        for how in ("kill", "interrupt")
        for where in ("keeping", "building", "installing")
    ],
)
@pytest.mark.posix
def test_a_run_that_is_cut_off_is_undone(
    request: pytest.FixtureRequest, how: str, where: str
) -> None:
    # uv installs too quickly to be caught at it.
    env: Environment = request.getfixturevalue("env" if where == "installing" else "uv_env")
    env.rule("slow", '["pip", "install", "--no-build-isolation", "slow"]')
    env.rule("bulk", '["pip", "install", "bulk>=2"]')
    frozen, before = env.freeze(), env.tree()
    rule = "own/bulk" if where == "installing" else "own/slow"
    running = env.started(rule, "--yes", "--no-resolve")
    if where == "keeping":
        until(lambda: env.wrote('"packages"', "journal.jsonl"))
    elif where == "building":
        until(lambda: env.wrote("Building", "*.log"))
    else:
        until((env.site / "bulk" / "m5.py").exists)
    os.kill(running.pid, signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    out, err = running.communicate(timeout=120)
    if how == "interrupt":
        assert running.returncode == 130, out + err
        assert "Stopped" in err
        assert env.tree() == before
        assert "stopped" in env.fix("history", examine=False).stdout
        return
    history = env.fix("history", examine=False).stdout
    assert "interrupted" in history or "running" in history
    refused = env.fix(TRITON, "--yes", "--no-resolve")
    assert refused.returncode == 1
    assert "undo" in refused.stdout
    undone = env.fix("undo", "--yes", examine=False)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert env.freeze() == frozen
    assert env.tree() == before


def test_two_runs_do_not_change_one_environment_at_once(
    uv_env: Environment, tmp_path: Path
) -> None:
    env = uv_env
    env.rule("slow", '["pip", "install", "--no-build-isolation", "slow"]')
    before = env.tree()
    running = env.started("own/slow", "--yes", "--no-resolve")
    until(lambda: env.wrote("Building", "*.log"))
    known = env.fix(TRITON, "--yes", "--no-resolve")
    assert (known.returncode, "is running in this environment" in known.text) == (1, True)
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "other-state")}
    refused = env.fix(TRITON, "--yes", "--no-resolve", variables=elsewhere)
    assert refused.returncode == 2
    assert f"another run of fix is changing {env.site}; wait until it has ended" in refused.text
    undone = env.fix("undo", "--yes", examine=False)
    assert (undone.returncode, "still running" in undone.text) == (2, True)
    assert env.tree() == before
    os.kill(running.pid, signal.SIGINT)
    running.communicate(timeout=60)
    assert env.fix(TRITON, "--yes", "--no-resolve").returncode == 0
    assert len(list(env.site.glob("triton-*.dist-info"))) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such terminals")
def test_what_changed_while_the_user_thought_is_planned_again(uv_env: Environment) -> None:
    """The user agrees to a plan for packages that are not there any more."""
    terminal, theirs = os.openpty()
    with subprocess.Popen(
        [*installed(), *uv_env.argv(TRITON, "--no-resolve")],
        env=uv_env.variables,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stderr is not None
        while b"[y/N]" not in (asked := os.read(running.stderr.fileno(), 4096)):
            assert asked
        argv = [uv_env.uv, "pip", "install", "-q", "--python", str(uv_env.python), "triton==3.6.0"]
        subprocess.run(argv, check=True, env=uv_env.variables)
        os.write(terminal, b"y\n")
        text = " ".join(running.stderr.read().decode().split())
        assert running.wait(60) == 2
    assert "changed since the plan was made; nothing was changed" in text
    for handle in (terminal, theirs):
        os.close(handle)


def test_history_changes_nothing(uv_env: Environment) -> None:
    assert uv_env.fix(TRITON, "--yes").returncode == 0

    def state() -> dict[Path, tuple[int, int]]:
        paths = [uv_env.state, *uv_env.state.rglob("*")]
        return {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths}

    before = state()
    assert "done" in uv_env.fix("history", examine=False).stdout
    assert state() == before


def test_an_undo_that_is_cut_off_can_be_run_again(uv_env: Environment) -> None:
    env = uv_env
    env.rule("bulk", '["pip", "install", "bulk>=2"]')
    frozen, before = env.freeze(), env.tree()
    assert env.fix("own/bulk", "--yes", "--no-resolve").returncode == 1  # the rule finds it still
    running = env.started("undo", "--yes", examine=False)
    until(lambda: env.wrote('"undoing"', "journal.jsonl"))
    running.kill()
    running.communicate()
    undone = env.fix("undo", "--yes", examine=False)
    assert undone.returncode == 0, undone.text
    assert env.freeze() == frozen
    assert env.tree() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the rule that is fixed is about Linux")
def test_no_network(env: Environment) -> None:
    nowhere = {
        "PIP_NO_INDEX": "",
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "1",
    }
    before = env.tree()
    tried = env.fix(TRITON, "--yes", "--no-resolve", variables=nowhere)
    assert tried.returncode == 1
    assert "the package index, or GitHub, cannot be reached" in tried.text
    planned = env.fix(TRITON, "--yes", variables={**nowhere, "PIP_RETRIES": "0"})
    assert planned.returncode == 1, planned.stderr
    assert "it cannot be reached, or it does not have the package" in planned.text
    assert env.tree() == before


@pytest.mark.skipif(os.path.exists("/usr/local/bin/uv"), reason="uv is found there without PATH")
def test_no_installer(uv_env: Environment) -> None:
    ended = uv_env.fix(TRITON, "--yes", variables={"PATH": "/nonexistent"})
    assert ended.returncode == 1
    assert "has no pip, and no uv is on PATH" in ended.text


def test_no_home(uv_env: Environment) -> None:
    frozen, given = uv_env.freeze(), uv_env.variables
    uv_env.variables = {key: value for key, value in given.items() if "HOME" not in key}
    ended = uv_env.fix(TRITON, "--yes")
    assert ended.returncode == 2
    assert "set XDG_STATE_HOME" in ended.stderr
    uv_env.variables = given
    assert uv_env.freeze() == frozen


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_takes_nothing(uv_env: Environment, tmp_path: Path, fault: str) -> None:
    env = uv_env
    env.rule("bulk", '["pip", "install", "bulk>=2"]')
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "attn-doctor-test", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this container cannot mount")
    try:
        shutil.copytree(env.prefix, disk / "env", symlinks=True)
        env.prefix = disk / "env"
        env.python = env.prefix / "bin" / "python"
        env.rule("bulk", '["pip", "install", "bulk>=2"]')
        if fault == "full":
            free = shutil.disk_usage(disk).free
            (disk / "fill").write_bytes(b"x" * (free - (3 << 20)))
        before = env.tree()
        if fault == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        ended = env.fix("own/bulk", "--yes", "--no-resolve")
        text = ended.text
        assert ended.returncode in (1, 2)
        wanted = "No space left" if "copied for undo" in text else "the disk is full"
        assert (wanted if fault == "full" else "cannot be written by this user") in text
        assert env.tree() == before
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
