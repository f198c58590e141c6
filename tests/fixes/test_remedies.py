"""Which fix is applied, what `fix forget` keeps, and whether written requirements install."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.environments import Environment, until, wheel
from tests.fixes.test_fix import TRITON

pytestmark = pytest.mark.slow


def _two(env: Environment) -> None:
    env.rule("two", '["pip", "install", "other"]')
    path = env.rules / "own" / "two.toml"
    second = '[[fix]]\ntitle = "Fix it otherwise"\nsafety = "ask"\n'
    path.write_text(path.read_text() + second + 'run = [["pip", "install", "bulk>=2"]]\n')


@pytest.mark.parametrize(
    ("arguments", "brought"),
    [
        ((), "other==1.0"),
        pytest.param(("--choose", "1"), "other==1.0", marks=pytest.mark.thorough),
        (("--choose", "2"), "bulk==2.0"),
    ],
)
def test_the_chosen_remedy_is_carried_out_and_no_other(
    uv_env: Environment, arguments: tuple[str, ...], brought: str
) -> None:
    _two(uv_env)
    before = {*uv_env.freeze().splitlines()}
    uv_env.fix("own/two", "--yes", *arguments)
    assert {*uv_env.freeze().splitlines()} - before == {brought}


def test_fix_is_short_for_fix_apply_and_a_dry_run_for_fix_plan(uv_env: Environment) -> None:
    _two(uv_env)
    before = uv_env.tree()
    options = ("own/two", "--no-resolve", "--json")
    plans = [
        uv_env.fix(*words, *options)
        for words in (("-n",), ("apply", "-n"), ("apply", "--dry-run"), ("plan",))
    ]
    assert {plan.returncode for plan in plans} == {1}
    assert len({plan.stdout for plan in plans}) == 1, [plan.text for plan in plans]
    assert json.loads(plans[0].stdout)["plan"]["steps"][0]["remedies"] == [
        {"rule": "own/two", "remedy": 1}
    ]
    assert uv_env.tree() == before


def test_a_remedy_that_is_not_there_cannot_be_chosen(uv_env: Environment) -> None:
    _two(uv_env)
    before = uv_env.tree()
    ended = uv_env.fix("own/two", "--yes", "--choose", "3")
    assert ended.returncode == 2
    assert "own/two has no fix number 3" in ended.text
    ended = uv_env.fix("--yes", "--choose", "2")
    assert ended.returncode == 2
    assert "--choose belongs to a RULE" in ended.text
    assert uv_env.tree() == before


def test_an_interrupted_run_is_forgotten_and_what_it_did_stays(uv_env: Environment) -> None:
    env = uv_env
    env.rule("slow", '["pip", "install", "--no-build-isolation", "slow"]')
    env.rule("other", '["pip", "install", "other"]')
    running = env.started("own/other", "own/slow", "--yes", "--no-resolve")
    until(lambda: env.wrote("Building", "*.log"))
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=120)
    assert "fix forget" in env.fix(TRITON, "--yes", "--no-resolve").stdout
    copies = env.site.parent / ".attn-doctor-undo"
    copies = copies if copies.exists() else env.site / ".attn-doctor-undo"
    assert list(copies.iterdir())
    (run,) = json.loads(env.fix("history", "--format", "json", examine=False).stdout)["runs"]
    kept = env.freeze()
    assert "other==1.0" in kept
    forgotten = env.fix("forget", run["id"], examine=False)
    assert forgotten.returncode == 0, forgotten.text
    assert f"removing {copies}" in forgotten.text
    assert not copies.exists()
    # Unlike undo, it changes nothing, and afterwards there is nothing left to undo.
    assert env.freeze() == kept
    assert "kept" in env.fix("history", examine=False).stdout
    undone = env.fix("undo", run["id"], "--yes", examine=False)
    assert undone.returncode != 0
    assert env.freeze() == kept
    # And other runs may begin again.
    assert env.fix(TRITON, "--yes", "--no-resolve").returncode == 0
    assert "triton==3.6.0" in env.freeze()


def test_no_run_to_forget(uv_env: Environment) -> None:
    ended = uv_env.fix("forget", "20200101", examine=False)
    assert ended.returncode == 2
    assert "no run 20200101: `attn-doctor fix history` lists them" in ended.text


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.skipif(sys.platform != "linux", reason="the rule that is fixed is about Linux")
def test_written_requirements_install(
    request: pytest.FixtureRequest, tmp_path: Path, installer: str
) -> None:
    env: Environment = request.getfixturevalue("env" if installer == "pip" else "uv_env")
    more = tmp_path / "more"
    more.mkdir()
    wheel(more, "xformers", "0.0.35", {"xformers/__init__.py": ""}, ("torch>=2.10",))
    path = tmp_path / "requirements.txt"
    ended = env.fix("requirements", "-o", str(path))
    assert ended.returncode == 0, ended.text
    pip = [str(env.python), "-m", "pip", "install", "-q", "-f", str(more), "-r", str(path)]
    uv = [env.uv, "pip", "install", "-q", "--python", str(env.python)]
    uv += [
        "-f",
        str(more),
        "-f",
        env.variables["UV_FIND_LINKS"],
        "--index-strategy",
        "unsafe-best-match",
        "-r",
        str(path),
    ]
    argv = uv if env.uv else pip
    done = subprocess.run(argv, env=env.variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, path.read_text() + done.stderr
    frozen = dict(line.split("==") for line in env.freeze().splitlines() if "==" in line)
    wanted = [line for line in path.read_text().splitlines() if line and line[0] not in "#-"]
    assert "triton==3.6.0" in wanted  # 3.5.0 was there
    requirements = map(Requirement, wanted)
    assert all(frozen[one.name] in one.specifier for one in requirements), wanted
