"""Every block of code in the documents: a test runs it, or a table says why and where it runs.

Commands run as they are written, in a folder that has the files they name. Those of the second
table need torch: they run in the environment that `ATTN_DOCTOR_TORCH_PYTHON` names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import jsonschema
import pytest

import attn_doctor
from attn_doctor.host.recorded import RecordedHost
from attn_doctor.toml_files import parse_toml
from tests.command import process, run

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    ROOT / "rules" / "README.md",
    ROOT / "examples" / "README.md",
]
TORCH = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")

LOG = """\
Traceback (most recent call last):
  File "/workspace/train.py", line 3, in <module>
    from flash_attn import flash_attn_func
  File "/venv/lib/python3.11/site-packages/flash_attn/__init__.py", line 3, in <module>
    from flash_attn.flash_attn_interface import (
  File "/venv/lib/python3.11/site-packages/flash_attn/flash_attn_interface.py", line 15, in <module>
    import flash_attn_2_cuda as flash_attn_gpu
ImportError: /venv/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: \
undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcE\
SaIcEEE
"""

#: Commands that read files only, and their exit code in an environment without torch; None: 0 or 1,
#: by the machine.
READS: dict[str, int | None] = {
    "attn-doctor explain train.log": 1,
    'attn-doctor explain "undefined symbol: _ZN3c104cuda9SetDeviceEi"': 1,
    "attn-doctor explain \"module 'torch.nn.attention.flex_attention' has no attribute"
    " 'build_flex_attention_kernels'\"": 1,
    "attn-doctor check": None,
    "attn-doctor check --require native --format github --format sarif:attn.sarif"
    " --format junit:attn.xml": 1,
    "attn-doctor check --require flash --for training --format json:node.json": 1,
    "attn-doctor check --facts snapshots": None,
    "attn-doctor check --config config.json --for training": None,
    "attn-doctor check --format agent": None,
    "attn-doctor backends --for training --mask bool": 0,
    "attn-doctor backends --pretend gpu=rtx4090,torch=2.9.1+cu128": 0,
    "attn-doctor report --record tests/machines/wsl-rtx4090-torch28": 0,
}
#: Commands that need torch, the words that are added here, and their exit code.
WITH_TORCH = {
    "attn-doctor audit": ("--minutes 0.1", (0, 1, 4)),
    "attn-doctor audit native flex --for training": ("--minutes 0.1", (0, 1, 4)),
    "attn-doctor audit --minutes 3 --resume audit.json": ("--minutes 0.1", (0, 1, 4)),
    "attn-doctor audit flex": ("--minutes 0.1", (0, 1, 4)),
    "attn-doctor audit flex --format markdown -o issue.md": ("--minutes 0.1", (0, 1, 4)),
    "attn-doctor backends --live": ("native", (0,)),
    "attn-doctor build-kernels --preset flux1@1024x1024": ("--device cpu --dry-run", (0,)),
    "attn-doctor build-kernels --heads 24 --head-dim 128 --seq-len 4608 --mask none,causal": (
        "--device cpu --dry-run",
        (0,),
    ),
}
#: The commands of an artifact, in the order in which they run after a small kernel was built.
ARTIFACT = (
    "attn-doctor cache verify --cache-dir /opt/kernels",
    "attn-doctor cache why --cache-dir /opt/kernels",
    "attn-doctor cache export -o kernels.tar.gz --cache-dir /opt/kernels",
    "attn-doctor cache import kernels.tar.gz --sha256 HEX --cache-dir /opt/kernels",
)
_CI = ".ci/run"
_TARGET = "tests/kernels/bundle/test_stub_gpu.py"
_WARMUP = "tests/kernels/builder/test_build_kernels.py"
#: Commands that do not run here: the file that runs them, or why nothing does.
ELSEWHERE = {
    "pip install . && attn-doctor check": _CI,
    "pip install .": _CI,
    'pip install ".[test]" && pytest': _CI,
    'pip install -e ".[test]"': _CI,
    "python -m venv .venv && source .venv/bin/activate": _CI,
    "pytest": _CI,
    "ruff check . && ruff format --check .": _CI,
    "mypy": _CI,
    "zizmor --offline .": _CI,
    "python tools/plain_words.py": _CI,
    "attn-doctor rules lint": _CI,
    "attn-doctor fix": "tests/fixes/test_fix.py",
    "attn-doctor fix undo": "tests/fixes/test_undo.py",
    "attn-doctor install flash -n": "tests/install/test_install_command.py",
    "attn-doctor install flash": "tests/install/test_install_command.py",
    "attn-doctor mcp": "tests/cli/test_mcp.py",
    "attn-doctor build-kernels -- python warmup.py": _WARMUP,
    "attn-doctor build-kernels --target h200 --cache-dir /opt/kernels --preset flux1": _TARGET,
    "attn-doctor build-kernels --target h200 --cache-dir /opt/kernels --preset flux1@1024x1024": (
        _TARGET
    ),
    "attn-doctor build-kernels --target h200,h100-80gb-hbm3 --cache-dir /opt/kernels -- python"
    " warmup.py": _TARGET,
    "attn-doctor build-kernels --target h200 --cache-dir /opt/kernels --preset flux1 --docker": (
        "tests/kernels/builder/test_docker.py"
    ),
    "attn-doctor build-kernels --target rtx4090 --dry-run --fit --heads 24 --head-dim 256"
    " --seq-len 4608": "tests/kernels/builder/test_fit.py",
    "attn-doctor backends --live --audit": "takes ten minutes; both parts run alone",
    "attn-doctor build-kernels --preset flux1 --block": "needs an NVIDIA GPU and Diffusers",
    'pip install -e ".[test]" mutmut': "mutation tests take hours",
    "mutmut run --max-children 2": "mutation tests take hours",
    'mutmut run "attn_doctor.policy*"': "mutation tests take hours",
    "mutmut results": "mutation tests take hours",
    "mutmut show attn_doctor.policy.policy.x_read__mutmut_25": "mutation tests take hours",
    "pip install atheris": "atheris has no wheel for every Python and system",
    "python -m tests.attacks.fuzz.guided dockerfile --seconds 600": "fuzzes for ten minutes",
    "python benchmarks/claims.py ENVIRONMENT --work /tmp/claims --jobs 4": (
        "compares with environments that someone has made"
    ),
    "python benchmarks/claims.py --make 3.12 torch==2.6.0 torchvision torchaudio"
    " --work /tmp/claims --commands": "installs some GB from a package index",
    'python benchmarks/claims.py --list benchmarks/claims.toml --select "2.13 CPU"'
    " --work /tmp/claims --commands": "installs some GB from a package index",
    "python benchmarks/config_dispatch.py FOLDER --python PYTHON --comfyui ComfyUI": (
        "needs checkouts of four trainers"
    ),
    "python benchmarks/example_configs.py CHECKOUTS": "needs checkouts of the programs",
}
#: Python of a page, by a line that it has, and the file that runs it, or why nothing does.
PYTHON = {
    "docs/api.md": "tests/test_api.py",
    "docs/upstream/cudnn-": "needs an NVIDIA GPU",
    "docs/upstream/sageattention-": "needs an NVIDIA GPU and SageAttention",
}


class Block(NamedTuple):
    """A block of code."""

    page: str
    line: int
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The commands of a block for a shell, without comments."""
        lines = (re.sub(r"\s+#.*", "", line) for line in self.text.splitlines())
        return [line.strip() for line in lines if line.strip()]


def blocks() -> Iterator[Block]:
    for page in sorted(PAGES):
        begun, fence, lines = 0, "", [""]
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            mark = re.match(r"\s*(`{3,})(\S*)$", line)
            if mark and not fence:
                begun, fence, lines = number, mark[1], [mark[2]]
            elif fence and line.strip() == fence:
                name = page.relative_to(ROOT).as_posix()
                yield Block(name, begun, lines[0], "\n".join(lines[1:]) + "\n")
                fence = ""
            elif fence:
                lines.append(line)
        assert not fence, f"{page}: a block does not end"


BLOCKS = list(blocks())
SHELL = [one for one in BLOCKS if one.language in ("sh", "console") and "$ " not in one.text]


def test_each_command_has_a_place_where_it_runs() -> None:
    written = {line for block in SHELL for line in block.lines}
    known = [*READS, *WITH_TORCH, *ARTIFACT, *ELSEWHERE]
    assert sorted(known) == sorted(set(known))
    assert {*known} ^ written == set()


def test_each_place_exists() -> None:
    for command, place in {**ELSEWHERE, **PYTHON}.items():
        if "/" in place.partition(" ")[0]:
            assert (ROOT / place).exists(), command
    script = (ROOT / _CI).read_text("utf-8")
    for command in ("ruff check .", "ruff format --check .", "mypy", "zizmor --offline"):
        assert f'"{command}' in script


def test_each_language_is_one_that_a_test_knows() -> None:
    known = {"sh", "console", "python", "toml", "json", "text"}
    assert {f"{one.page}:{one.line}" for one in BLOCKS if one.language not in known} == set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that commands name."""
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "config.json").write_text('{"model_family": "flux", "attention_mechanism": "flex"}')
    (tmp_path / "snapshots").mkdir()
    for machine in sorted((ROOT / "tests" / "machines").iterdir())[:3]:
        copy = tmp_path / "snapshots" / f"{machine.name}.json"
        copy.write_bytes((machine / "facts.json").read_bytes())
    return tmp_path


@pytest.mark.parametrize("command", READS)
def test_a_command_that_reads(command: str, folder: Path, empty_environment: str) -> None:
    ended = run(*shlex.split(command)[1:], cwd=folder, VIRTUAL_ENV=empty_environment)
    code = READS[command]
    assert ended.returncode in ((0, 1) if code is None else (code,)), ended.text
    assert ended.stdout or (folder / "node.json").exists()
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of an environment without packages."""
    import venv

    path = tmp_path_factory.mktemp("environment")
    venv.create(path, symlinks=os.name == "posix")
    return str(path)


def test_the_first_page_shows_what_explain_prints(folder: Path) -> None:
    (shown,) = (one.text for one in BLOCKS if one.page == "docs/index.md" and "$ " in one.text)
    command, *lines = shown.splitlines()
    printed = run(*shlex.split(command)[2:], cwd=folder).stdout.splitlines()
    places = [printed.index(line) for line in lines if line.strip() not in ("", "…")]
    assert len(places) > 4
    assert places == sorted(places)


def _torch_run(command: str, more: str, cwd: Path) -> tuple[int, str]:
    """Run a command with options that make it short; they take the place of its own."""
    path = f"{Path(TORCH).parent}{os.pathsep}{os.environ['PATH']}"
    option = more.partition(" ")[0]
    own = re.sub(rf" {option} \S+", "", command) if option else command
    words = shlex.split(f"{own} {more}")[1:]
    ended = process(*words, cwd=cwd, PATH=path, VIRTUAL_ENV="", timeout=400)
    return ended.returncode, ended.text


@pytest.mark.torch
@pytest.mark.parametrize("command", WITH_TORCH)
def test_a_command_that_runs_torch(command: str, folder: Path) -> None:
    more, codes = WITH_TORCH[command]
    code, text = _torch_run(command, more, folder)
    assert code in codes, text


@pytest.mark.torch
def test_kernels_are_carried_as_the_pages_say(folder: Path) -> None:
    kernels = folder / "kernels"
    build = "attn-doctor build-kernels --device cpu --heads 2 --head-dim 64 --seq-len 128"
    sum = ""
    for command in (f"{build} --cache-dir /opt/kernels", *ARTIFACT):
        command = command.replace("/opt/kernels", str(kernels)).replace("HEX", sum)
        code, text = _torch_run(command, "", folder)
        assert code == 0, f"{command}: {text}"
        sum = "".join(re.findall(r"\b[0-9a-f]{64}\b", text)[:1])


def python_blocks() -> list[Block]:
    found = [one for one in BLOCKS if one.language == "python"]
    return [one for one in found if not any(map(one.page.startswith, PYTHON))]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            one,
            id=f"{one.page}:{one.line}",
            marks=pytest.mark.torch if "import torch" in one.text else (),
        )
        for one in python_blocks()
    ],
)
def test_python_of_a_page(block: Block, tmp_path: Path) -> None:
    if "require_hit()" in block.text:
        with (
            pytest.raises(attn_doctor.CacheMiss),
            mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)),
        ):
            exec(block.text, {})
        return
    if "import torch" not in block.text:
        exec(block.text, {"RecordedHost": RecordedHost})
        return
    done = subprocess.run(
        [TORCH, "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    off = re.fullmatch(r"off by ([\d.]+)\n", done.stdout)
    assert off, done.stdout + done.stderr
    assert float(off[1]) > 0.1


def test_a_rule_of_the_page_has_the_form_of_a_rule() -> None:
    texts = [one.text for one in BLOCKS if one.page == "rules/README.md" and one.language == "toml"]
    schema = json.loads((ROOT / "rules" / "rule.schema.json").read_text("utf-8"))
    rule, advisory, requires = (parse_toml(text, "a rule") for text in texts)
    for changed in (rule, {**rule, **advisory}, {**rule, **requires}):
        data = json.loads(json.dumps(changed, default=str))
        jsonschema.validate(data, schema)


def test_the_configuration_of_an_agent_starts_the_server() -> None:
    (text,) = (one.text for one in BLOCKS if one.language == "json")
    (server,) = json.loads(text)["mcpServers"].values()
    assert [server["command"], *server["args"]] == ["attn-doctor", "mcp"]
    assert "attn-doctor mcp" in ELSEWHERE


def test_specs_of_the_page_are_read_elsewhere() -> None:
    found = {one.page for one in BLOCKS if one.language == "toml"}
    assert found == {"docs/kernels.md", "rules/README.md"}
    reader = ROOT / "tests" / "kernels" / "builder" / "test_spec_requests.py"
    assert '"docs" / "kernels.md"' in reader.read_text("utf-8")
