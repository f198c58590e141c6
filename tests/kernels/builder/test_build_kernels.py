"""The command as a user types it; one build at the end is real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.kernels.builder.plan import BuildRequest, plan_build
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.builder.session import BuildSession
from attn_doctor.record import store
from attn_doctor.render.build_kernels.json import plan_json, report_json
from attn_doctor.render.build_kernels.progress import Bar, Lines
from attn_doctor.render.build_kernels.text import plan_text, report_text
from attn_doctor.render.humanize import span
from attn_doctor.render.terminal import Terminal
from tests.command import Ended, run

ROOT = Path(__file__).parents[3]
TORCH = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
Make = Callable[..., BuildRequest]


def attn_doctor(*arguments: str, **variables: str) -> Ended:
    return run("build-kernels", *arguments, environ={**os.environ, **variables})


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], "say what to build"),
        (["--heads", "24"], "--head-dim is missing"),
        (["--heads", "x", "--head-dim", "64", "--seq-len", "128"], "whole number"),
        (["--preset", "flux9"], "flux"),
        (["--heads", "2", "--", "python", "x.py"], "drop the options under"),
        (["--spec", "no/such.toml"], "such.toml"),
        (
            ["--heads", "2", "--head-dim", "64", "--seq-len", "128", "--device", "gpu"],
            "--device gpu",
        ),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_usage(arguments: list[str], shown: str) -> None:
    done = attn_doctor(*arguments)
    assert done.returncode == 2
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.torch
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spec = ["--heads", "2", "--head-dim", "16", "--seq-len", "128", "--device", "cpu"]
    done = attn_doctor(*spec, "--python", TORCH, "--cache-dir", str(tmp_path / "file" / "R"))
    assert done.returncode == 2
    assert "Not a directory; name another --cache-dir" in done.stderr


def test_presets_are_listed() -> None:
    done = attn_doctor("--list-presets")
    assert done.returncode == 0
    assert "flux1" in done.stdout
    assert json.loads(attn_doctor("--list-presets", "--format", "json").stdout)


def test_help_argues_with_no_text_that_its_reader_does_not_know() -> None:
    done = attn_doctor("--help")
    assert "--seq-len" in done.stdout
    assert "build_flex_attention_kernels" not in done.stdout


def built(request: BuildRequest) -> BuildSession:
    build = BuildSession(request, Watcher())
    if build.plan.todo:
        build.run()
    return build


@pytest.mark.posix
def test_a_report_in_words(request_of: Make) -> None:
    request = request_of("none", "die:SIGSEGV", "forgetful")
    report = built(request).report()
    text = report_text(report, Terminal(width=100))
    assert "✓ built          0.50 s   0.50 s  1.0e-03  2×16 bf16 none 128 inference bhsd" in text
    assert "✗ failed              -        -        -  2×32 bf16 die:SIGSEGV" in text
    assert "  was killed by SIGSEGV\n" in text
    assert "built, but not reused: the FX graph was compiled again; differs: inductor" in text
    assert "3 kernels: 1 built, 1 failed, 1 not reused; " in text
    assert re.search(r" s \(importing torch [\d.]+, compiling [\d.]+, verifying [\d.]+\)\n", text)
    assert "run the same command again" in text
    log = next(line for line in text.splitlines() if line.startswith("  log"))
    assert Path(log.split()[1]).exists()
    plain = report_text(report, Terminal(width=100, unicode=False))
    assert plain.isascii()


@pytest.mark.posix
def test_the_same_for_programs(request_of: Make) -> None:
    request = request_of("none", "refuse")
    shown = json.loads(report_json(built(request).report(), 1))
    assert (shown["exit_code"], shown["jobs"]) == (1, 2)
    good, bad = shown["kernels"]
    assert (good["state"], good["verified"], good["reuse_seconds"]) == ("built", True, 0.5)
    assert (bad["state"], bad["message"]) == ("failed", "ValueError: no such thing")
    assert set(good["stages"]) == {"build", "verify"}
    assert good["stages"]["build"]["seconds"] == 0.5
    assert good["stages"]["build"]["ended"] <= good["stages"]["verify"]["ended"]
    assert set(bad["stages"]) == {"build"}
    phases = shown["phases"]
    order = ["prepared", "torch_imported", "first_build_ended", "first_verify_started"]
    order += ["last_verify_ended", "all_done", "end"]
    assert sorted(order, key=phases.__getitem__) == order
    assert phases["end"] <= shown["seconds"] + 0.001
    again = json.loads(report_json(BuildSession(request, Watcher()).report(), 1))
    assert [one["state"] for one in again["kernels"]] == ["up-to-date", "not-begun"]


def test_a_plan_in_words(request_of: Make) -> None:
    request = request_of("none", "causal")
    manifest = store.empty()
    text = plan_text(plan_build(request, manifest), str(request.folder), request.facts, Terminal())
    assert text.count("would build") == 2
    assert "2 of 2 kernels to build, 2 at once (specs), about " in text
    built(request)
    found = store.load(request.folder)
    assert found is not None
    plan = plan_build(request, found)
    assert "2 kernels, all up to date" in plan_text(plan, "/c", request.facts, Terminal())
    stale = replace(found, environments={"cpu": replace(found.environments["cpu"], torch="2.12.0")})
    plan = plan_build(request, stale)
    text = plan_text(plan, "/c", request.facts, Terminal())
    assert "would clear" in text
    assert "2.12.0" in text
    shown = json.loads(plan_json(plan, "/c", 1))
    assert len(shown["would_clear"]) == 2
    assert [one["state"] for one in shown["kernels"]] == ["stale", "stale"]


def test_a_plan_tells_what_torch_will_refuse(request_of: Make) -> None:
    request = request_of("none", "causal")
    odd = replace(request.specs[1], heads=4, kv_heads=3)
    plan = plan_build(replace(request, specs=(request.specs[0], odd)), store.empty())
    text = plan_text(plan, "/c", request.facts, Terminal())
    assert "✗ will fail    at once        4/3×32 bf16 causal" in text
    assert "4 query heads are not a multiple of 3 key heads" in text
    assert "1 of 2 kernels to build, 1 at once (specs), about " in text
    assert "; 1 cannot be built\n" in text
    assert [bool(one["refused"]) for one in json.loads(plan_json(plan, "/c", 1))["kernels"]] == [
        False,
        True,
    ]
    plan = plan_build(replace(request, specs=(odd,)), store.empty())
    text = plan_text(plan, "/c", request.facts, Terminal())
    assert text.endswith("\n1 of 1 kernel cannot be built\n")


def test_plain_lines_without_a_terminal(
    request_of: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lines(Terminal()) as lines:
        BuildSession(request_of("none", "refuse"), lines).run()
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("building 2 kernels, 2 at once, about ")
    assert {line[:5] for line in shown[1:]} == {"[1/2]", "[2/2]"}
    assert any("failed" in line and "no such thing" in line for line in shown)


def test_a_bar_on_a_terminal(
    request_of: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Bar(Terminal(colour=True)) as bar:
        BuildSession(request_of("sleep:x8", "refuse"), bar).run()
        assert bar.done == 2
        assert bar.left() == 0
    shown = capsys.readouterr().err
    assert "compiling" in shown
    assert "verifying" in shown
    assert "no such thing" in shown
    assert " left" in shown


def test_spans() -> None:
    assert [span(n) for n in (0.2, 40, 100, 5000, 8000)] == [
        "1 s", "40 s", "1.5 min", "83 min", "2 h 13 min",
    ]  # fmt: skip


# Real kernels, with torch


SMALL = (
    "--python",
    TORCH,
    "--device",
    "cpu",
    "--heads",
    "2",
    "--seq-len",
    "128",
    "--dtype",
    "fp32",
)


@pytest.mark.torch
@pytest.mark.slow
def test_real_kernels(tmp_path: Path) -> None:
    (tmp_path / "mymasks.py").write_text(
        "def broken(b, h, q, k):\n    raise ValueError('broken on purpose')\n"
    )
    (tmp_path / "specs.toml").write_text(
        "[defaults]\nheads = 2\nseq_len = 128\ndtype = 'fp32'\n"
        "[[kernel]]\nhead_dim = 16\nmask = 'causal'\n"
        "[[kernel]]\nhead_dim = 16\nmask = 'mymasks:broken'\n"
    )
    where = ["--python", TORCH, "--device", "cpu", "--spec", str(tmp_path / "specs.toml")]
    where += ["--cache-dir", str(tmp_path / "R"), "--format", "json"]
    check = attn_doctor(*where, "--check")
    assert check.returncode == 1
    assert not (tmp_path / "R").exists()
    done = attn_doctor(*where, "--jobs", "2")
    assert done.returncode == 1, done.stderr
    good, bad = json.loads(done.stdout)["kernels"]
    assert good["state"] == "built", good
    assert good["verified"]
    assert max(good["errors"].values()) < 1e-5
    assert bad["state"] == "failed"
    assert "broken on purpose" in bad["message"]
    again = json.loads(attn_doctor(*where, "--dry-run").stdout)
    assert [one["state"] for one in again["kernels"]] == ["current", "again"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_torch_is_imported(tmp_path: Path, number: int, code: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this signal is ignored here, as in the background of a shell script")
    argv = [sys.executable, "-m", "attn_doctor", "build-kernels", *SMALL, "--head-dim", "16"]
    with subprocess.Popen(
        [*argv, "--cache-dir", str(tmp_path / "R")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as started:
        end = time.monotonic() + 300
        # The first process of the pool has a log as soon as it is started.
        while not list((tmp_path / "R" / "attn-doctor" / "logs").glob("kernels-*-0.log")):
            assert time.monotonic() < end
            time.sleep(0.02)
        started.send_signal(number)
        out, err = started.communicate(timeout=30)
    assert started.returncode == code
    assert "not begun" in out
    assert "Traceback" not in err
