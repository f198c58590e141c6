"""The stage of a Dockerfile that `--docker` prints: the same call, quoted, and nothing invented."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from attn_doctor.render.build_kernels.docker import Stage, dockerfile
from tests.command import Ended, run

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "rules" / "tables" / "targets" / "h200.toml"


def attn_doctor(*arguments: str, cwd: Path) -> Ended:
    return run("build-kernels", *arguments, cwd=cwd)


def stage(*arguments: str, cwd: Path) -> list[str]:
    """The instructions, each on one line."""
    done = attn_doctor("--docker", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    whole = done.stdout.replace("\\\n", " ")
    return [line for line in whole.splitlines() if line and not line.startswith("#")]


def command(instructions: list[str]) -> list[str]:
    """The words of the build, as the shell in the image reads them."""
    [line] = [one for one in instructions if "build-kernels" in one]
    return shlex.split(line.removeprefix("RUN "))


def test_the_same_call_at_the_same_path(tmp_path: Path) -> None:
    where = ["--target", "h200,t4", "--cache-dir", "/opt/my kernels", "--devices", "2"]
    what = ["--preset", "flux1", "--seq-len", "512+1024", "--option", "BLOCK_M=64", "--jobs", "2"]
    found = stage(*where, *what, "--python", "/env/bin/python", "-v", cwd=tmp_path)
    words = command(found)
    assert words[:2] == ["/opt/attn-doctor/bin/attn-doctor", "build-kernels"]
    given = {name: words[words.index(name) + 1] for name in words[2:] if name.startswith("--")}
    assert given == {
        "--target": "h200,t4", "--cache-dir": "/opt/my kernels", "--devices": "2",
        "--preset": "flux1", "--seq-len": "512+1024", "--option": "BLOCK_M=64", "--jobs": "2",
        "--python": "$(command -v $PYTHON)",
    }  # fmt: skip
    assert found.count('ENV TORCHINDUCTOR_CACHE_DIR="/opt/my kernels"') == 2
    assert found.count('ENV TRITON_HOME="/opt/my kernels"') == 2
    assert 'COPY --from=attention-kernels ["/opt/my kernels", "/opt/my kernels"]' in found
    assert [one for one in found if one.startswith("FROM")] == [
        "FROM ${BASE} AS attention-kernels",
        "FROM ${BASE}",
    ]
    # Which image that is, only the user knows.
    assert found[0] == "ARG BASE"


def test_files_come_from_the_build_context(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "my masks.py").write_text("")
    (tmp_path / "in" / "masks.py").write_text("def mine(b, h, q, k): return q >= k\n")
    (tmp_path / "in" / "k.toml").write_text(
        "[[kernel]]\nheads = 2\nhead_dim = 64\nseq_len = 128\nmask = 'masks:mine'\n"
    )
    own = '\n[software]\ntorch = "2.11.0+cu130"\nabi = "cp312"\n[environment]\nCXX = "/a b/$x"\n'
    (tmp_path / "gpu.toml").write_text(TABLE.read_text() + own)
    what = ["--target", "gpu.toml", "--spec", str(tmp_path / "in" / "k.toml")]
    found = stage(*what, "--cache-dir", "/opt/k", cwd=tmp_path)
    copied = [json.loads(one.removeprefix("COPY ")) for one in found if one.startswith("COPY [")]
    assert [name for name, _ in copied] == ["in/k.toml", "gpu.toml", "in/masks.py"]
    assert all(place == f"/opt/attn-doctor-build/{name}" for name, place in copied)
    assert "WORKDIR /opt/attn-doctor-build" in found
    words = command(found)
    assert words[words.index("--spec") + 1] == "in/k.toml"
    assert words[words.index("--target") + 1] == "gpu.toml"
    # What its machine has set is set where training runs.
    assert found[-1] == 'ENV CXX="/a b/\\$x"'


def test_a_warm_up_keeps_its_words(tmp_path: Path) -> None:
    program = ["python", "warm up.py", "--steps", "1", "it's $HOME"]
    where = ["--target", "h200", "--cache-dir", "/opt/k"]
    words = command(stage(*where, "--no-verify", "--", *program, cwd=tmp_path))
    assert words[words.index("--") + 1 :] == program
    assert "--no-verify" in words


def test_what_the_image_needs_is_said() -> None:
    text = dockerfile(
        Stage(
            targets=("NVIDIA H200",), arguments=("--target", "h200"), program=(), folder="/k",
            files=(), version="1.0", needs=("torch 2.11.0+cu130", "Python ABI cp312"),
        )
    )  # fmt: skip
    assert "# BASE is the image that trains, with torch 2.11.0+cu130, Python ABI cp312;" in text
    assert "attn-doctor cache verify --cache-dir /k" in text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--preset", "flux1"], "needs --cache-dir"),
        (["--preset", "flux1", "--cache-dir", "k"], "an absolute path"),
        (["--cache-dir", "/k"], "needs specs or a warm-up"),
        (["--spec", "../k.toml", "--cache-dir", "/k"], "outside of this folder"),
        (["--cache-dir", "/k", "--", "python", "-c", "a\nb"], "a line break"),
    ],
)
def test_what_an_image_cannot_have(tmp_path: Path, arguments: list[str], shown: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "k.toml").write_text("[[kernel]]\nheads = 2\nhead_dim = 64\nseq_len = 128\n")
    done = attn_doctor("--docker", "--target", "h200", *arguments, cwd=tmp_path / "in")
    assert done.returncode == 2
    assert shown in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--devices", "2"], "--devices has a meaning only with --target"),
        (["--docker"], "--docker has a meaning only with --target"),
        (["--fit"], "--fit has a meaning only with --target"),
        (["--target", "h200", "--device", "cuda:1"], "drop one of them"),
        (["--target", "h200", "--fit", "--check"], "--fit compiles specs"),
        (["--target", "h200", "--output", "f", "--dry-run"], "written after a build"),
        (["--target", "sm_90"], "a compute capability is not enough"),
        (["--target", "h20o"], "h200"),
        (["--target", "no/such.toml"], "such.toml"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], shown: str) -> None:
    done = attn_doctor(*arguments, "--preset", "flux1", cwd=tmp_path)
    assert done.returncode == 2
    assert shown in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_the_known_gpus_are_listed(tmp_path: Path) -> None:
    done = attn_doctor("--list-targets", cwd=tmp_path)
    assert done.returncode == 0
    assert "NVIDIA H200" in done.stdout
    assert json.loads(attn_doctor("--list-targets", "--format", "json", cwd=tmp_path).stdout)
