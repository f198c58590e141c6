"""A user's program as the warm-up: run unchanged, recorded, and verified by running it again.

The programs here write what torch writes, traces included, without torch; one at the end is real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Cache, Facts, Python, Torch
from attn_doctor.kernels.builder.program_run import Program, program_of
from attn_doctor.kernels.builder.warmup import outdated, warm_up
from attn_doctor.record import store
from attn_doctor.record.manifest import NOT_REQUESTED, BuildEnvironment, Manifest
from attn_doctor.render.build_kernels.warmup_json import planned_json
from attn_doctor.render.build_kernels.warmup_text import planned_text, warmup_text
from attn_doctor.render.terminal import Terminal

TRACES = Path(__file__).parents[2] / "record" / "traces"
#: A program that compiles once: an entry that is not there is made, one that is there is found.
COMPILES = f"""
import os, shutil, sys
from pathlib import Path
cache, trace = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]), Path(os.environ["TORCH_TRACE"])
entry = cache / "fxgraph" / "vx" / "fvxhxirv7ns53xb3cooypdqefwim5x6epssei4nbbefhocvrxmt6" / "a"
name = "hit" if entry.exists() else "miss"
shutil.copy(Path({str(TRACES)!r}) / f"{{name}}.log", trace / "dedicated_log.log")
entry.parent.mkdir(parents=True, exist_ok=True)
entry.write_text("graph")
(cache / "locks").mkdir(exist_ok=True)
(cache / "locks" / f"{{os.getpid()}}.lock").touch()
"""
FORGETS = COMPILES + "entry.unlink()\n"
WRITES = COMPILES + "(cache / f'{os.getpid()}.so').touch()\n"


def program(cache: Path, source: str, *arguments: str, **fields: object) -> Program:
    facts = Facts(
        python=Python(path=sys.executable, version="3.11.7"),
        torch=Torch(installed=True, version="2.13.0+cpu", build="cpu"),
        caches=(Cache(kind="inductor", path=str(cache)),),
    )
    found = Program(
        argv=(sys.executable, "-c", source, *arguments),
        facts=facts,
        device="cpu",
        folder=cache,
        environ={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
    )
    return replace(found, **fields)


def manifest(cache: Path) -> Manifest:
    found = store.load(cache)
    assert found is not None
    return found


def test_recorded_and_verified(cache: Path) -> None:
    phases: list[str] = []
    ran = warm_up(program(cache, COMPILES), verify=True, begin=phases.append)
    assert (ran.code, phases) == (0, ["run", "verify"])
    assert ran.first == {"aotautograd.miss": 1, "fxgraph.miss": 1}
    [warmup] = manifest(cache).warmups.values()
    assert warmup == ran.warmup
    assert warmup.verified
    assert warmup.hits == {"aotautograd.hit": 1, "fxgraph.hit": 1}
    [file] = warmup.files
    assert file.endswith("/a")
    assert warmup.keys["fxgraph"] == [file.split("/")[2]]
    # What was there already belongs to it as well.
    again = warm_up(program(cache, COMPILES), verify=True).warmup
    assert again is not None
    assert again.files == warmup.files
    assert not list((cache / "attn-doctor").glob("trace-*"))


def test_not_verified_if_not_asked(cache: Path) -> None:
    phases: list[str] = []
    ran = warm_up(program(cache, COMPILES), verify=False, begin=phases.append)
    assert phases == ["run"]
    assert ran.warmup is not None
    assert (ran.warmup.verified, ran.warmup.reuse_seconds) == (False, None)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FORGETS, "2 graphs were compiled again"),
        (WRITES, "the second run wrote "),
        (COMPILES + "sys.exit(3 if name == 'hit' else 0)", "the second run ended with exit code 3"),
    ],
)
def test_a_miss_is_named(cache: Path, source: str, said: str) -> None:
    warmup = warm_up(program(cache, source), verify=True).warmup
    assert warmup is not None
    assert not warmup.verified
    assert said in warmup.message


LIMIT = (
    "W1122 00:19 torch/_dynamo/convert_frame.py:1994] [0/2] torch._dynamo hit"
    " config.recompile_limit (8)\n"
    "W1122 00:19 torch/_dynamo/convert_frame.py:1994] [0/2]    function: '{name}' ({place}:2236)\n"
)
EAGER = "UserWarning: flex_attention called without torch.compile() - this will use an unfused"


def printing(text: str) -> str:
    return COMPILES + f"sys.stderr.write({text!r})\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("pass", "nothing was compiled by torch.compile"),
        (
            printing(LIMIT.format(name="flex_attention", place="/t/flex_attention.py")),
            "its limit of recompilations for flex_attention",
        ),
        (printing(LIMIT.format(name="forward", place="/t/block.py") + EAGER), "for forward"),
        (
            printing("UserWarning: Tesla T4 does not support bfloat16 compilation natively, skipp"),
            "this GPU has no bfloat16",
        ),
    ],
)
def test_what_no_cache_can_serve_is_not_written_down(cache: Path, source: str, said: str) -> None:
    """A program that ran unfused fails, though a second run would find all its graphs."""
    warm_up(program(cache, COMPILES), verify=True)
    phases: list[str] = []
    before = manifest(cache)
    ran = warm_up(program(cache, source), verify=True, begin=phases.append)
    assert said in ran.wrong
    assert phases == ["run"]
    assert manifest(cache) == before
    text = warmup_text(ran, program(cache, source), None, Terminal())
    assert text.lstrip().startswith("✗")
    assert "start training" not in text
    assert " ".join(text.split()).count(said) == 1


def test_a_program_that_compiles_nothing_any_more_is_forgotten(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = COMPILES + "if os.path.exists('off'): shutil.rmtree(trace)\n"
    warm_up(program(cache, source), verify=True)
    assert manifest(cache).warmups
    Path("off").touch()
    warm_up(program(cache, source), verify=True)
    assert not manifest(cache).warmups


@pytest.mark.parametrize(
    "text", [LIMIT.format(name="tokens", place="/t/data.py"), EAGER], ids=["limit", "eager"]
)
def test_what_need_not_be_attention_is_a_note(cache: Path, text: str) -> None:
    ran = warm_up(program(cache, printing(text)), verify=True)
    assert ran.warmup is not None
    assert (ran.wrong, ran.warmup.verified, len(ran.notes)) == ("", True, 1)


@pytest.mark.posix
def test_what_would_be_run_in_words_and_for_programs(cache: Path) -> None:
    asked = program(cache.parent / "my cache", "pass", "a b")
    said = planned_text(asked, "it was not run yet", Terminal()).splitlines()
    assert said[0].startswith("would run, with TORCHINDUCTOR_CACHE_DIR='")
    assert said[1].endswith(" -c pass 'a b'")
    assert said[2] == "  it was not run yet"
    assert planned_text(asked, "", Terminal()).startswith("up to date, ")
    data = json.loads(planned_json([(asked, "it was not run yet")], 1))
    assert (data["state"], data["exit_code"], data["argv"][-1]) == ("would-run", 1, "a b")
    assert [one["state"] for one in json.loads(planned_json([(asked, "")] * 2, 0))] == [
        "up-to-date",
        "up-to-date",
    ]


def test_whether_it_has_to_be_run(cache: Path) -> None:
    asked = program(cache, COMPILES)
    assert outdated(asked) == "it was not run for this cache yet"
    warm_up(asked, verify=False)
    assert outdated(asked, verify=False) == ""
    assert outdated(asked) == NOT_REQUESTED
    warm_up(asked, verify=True)
    assert outdated(asked) == ""
    newer = replace(asked.facts.torch, version="2.14.0+cpu")
    assert "2.14.0" in outdated(replace(asked, facts=replace(asked.facts, torch=newer)))
    [warmup] = manifest(cache).warmups.values()
    (cache / next(iter(warmup.files))).unlink()
    assert outdated(asked).endswith("is missing or has another size")
    missing = program(cache, FORGETS)
    warm_up(missing, verify=True)
    assert outdated(missing) != ""


def test_its_own_failure_is_passed_on(cache: Path) -> None:
    shown: list[bytes] = []
    source = "import sys; sys.stderr.write('it broke'); sys.exit(7)"
    ran = warm_up(program(cache, source), verify=True, show=shown.append)
    assert (ran.code, ran.warmup) == (7, None)
    assert b"".join(shown) == b"it broke"
    assert Path(ran.log).read_text() == "it broke"
    assert store.load(cache) is None


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_killed_by_a_signal(cache: Path) -> None:
    source = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert warm_up(program(cache, source), verify=True).code == 128 + 11


def test_ended_at_its_limit(cache: Path) -> None:
    ran = warm_up(program(cache, "import time; time.sleep(60)", limit=0.5), verify=True)
    assert ran.late
    assert ran.code != 0


def test_arguments_and_input_arrive_unchanged(cache: Path, tmp_path: Path) -> None:
    """Also in the second run, where the input is a file."""
    script = tmp_path / "run.py"
    source = COMPILES + (
        "out = Path(sys.argv[1]); "
        "out.write_text((out.read_text() if out.exists() else '') + repr(sys.argv[2:]) "
        "+ sys.stdin.read())\n"
    )
    script.write_text(
        "import sys; from pathlib import Path\n"
        "from attn_doctor.kernels.builder.warmup import warm_up\n"
        "from tests.kernels.builder.test_warmup import program\n"
        f"arguments = {[str(tmp_path / 'seen'), '--a', 'b c']!r}\n"
        f"one = program(Path({str(cache)!r}), {source!r}, *arguments)\n"
        "print(warm_up(one, verify=True).code)\n"
    )
    root = Path(__file__).parents[3]
    (tmp_path / "input").write_text("typed\n")
    with (tmp_path / "input").open() as typed:
        done = subprocess.run(
            [sys.executable, str(script)],
            stdin=typed,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
    assert done.stdout == "0\n"
    assert (tmp_path / "seen").read_text() == "['--a', 'b c']typed\n" * 2


def test_stale_ones_go_first(cache: Path) -> None:
    warm_up(program(cache, COMPILES), verify=True)
    found = manifest(cache)
    was = replace(found.environments["cpu"], torch="2.12.0+cpu")
    store.save(cache, replace(found, environments={"cpu": was}))
    ran = warm_up(program(cache, COMPILES), verify=True)
    assert [Path(one.path).name for one in ran.cleared] == ["a"]
    assert ran.first["fxgraph.miss"] == 1
    assert manifest(cache).environments["cpu"].torch == "2.13.0+cpu"


def test_an_environment_that_torch_reported_stays(cache: Path) -> None:
    said = BuildEnvironment(torch="2.13.0+cpu", torch_key="abc", device="cpu")
    store.save(cache, replace(store.empty(), environments={"cpu": said}))
    warm_up(program(cache, COMPILES), verify=False)
    assert manifest(cache).environments["cpu"] == said


@pytest.mark.posix
def test_programs_of_the_examined_environment_come_first(tmp_path: Path) -> None:
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "torchrun"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    facts = Facts(
        python=Python(path=str(folder / "python"), environment="venv", prefix=str(tmp_path / "env"))
    )
    argv, environ = program_of(["torchrun", "x.py"], facts, {"PATH": os.defpath})
    assert argv == (str(folder / "torchrun"), "x.py")
    assert environ["PATH"].split(os.pathsep)[0] == str(folder)
    assert environ["VIRTUAL_ENV"] == str(tmp_path / "env")
    with pytest.raises(AttnDoctorError, match="no-such-program: no such program"):
        program_of(["no-such-program"], facts, {"PATH": os.defpath})
    script = tmp_path / "warmup.py"
    script.write_text("pass")
    with pytest.raises(AttnDoctorError, match=f"as in -- python {script}$"):
        program_of([str(script)], facts, {"PATH": os.defpath})


REAL = """
import torch
from torch.nn.attention.flex_attention import flex_attention
query, key, value = (torch.randn(1, 2, 128, 16) for _ in range(3))
with torch.no_grad():
    print(tuple(torch.compile(flex_attention)(query, key, value).shape))
"""


@pytest.mark.slow
def test_a_real_program(tmp_path: Path, torch_python: str) -> None:
    (tmp_path / "warm.py").write_text(REAL)
    argv = [sys.executable, "-m", "attn_doctor", "build-kernels", "--python", torch_python]
    argv += ["--device", "cpu", "--cache-dir", str(tmp_path / "R"), "--format", "json"]
    done = subprocess.run(
        [*argv, "--", "python", str(tmp_path / "warm.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["warmup"]["verified"]
    assert said["first"]["fxgraph.miss"] == 1
    assert said["warmup"]["hits"]["fxgraph.hit"] == 1
    # The program's own output went where standard output was not in the way.
    assert "(1, 2, 128, 16)" in done.stderr
