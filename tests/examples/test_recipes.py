"""The recipes that install attn-doctor, run as written, with a wheel of this source.

`pytest -m recipes` builds the wheel and installs it with its dependencies, which needs a package
index. The containers' paths become folders of the test, and nothing else of the text changes.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("check_jsonschema", reason="`tests.examples` reads YAML with its library")

from tests.command import run
from tests.examples.test_examples import EXAMPLES, ROOT, yaml

pytestmark = [
    pytest.mark.recipes,
    pytest.mark.skipif(not shutil.which("bash"), reason="the recipes are scripts of a shell"),
]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source."""
    folder = tmp_path_factory.mktemp("dist")
    build = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, timeout=300)
    (path,) = folder.iterdir()
    return path


def test_the_wheel_has_the_manual_page(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".1"))
        assert name.endswith(".data/data/share/man/man1/attn-doctor.1")
        assert archive.read(name).startswith(b".TH ATTN-DOCTOR 1")


@pytest.fixture(scope="session")
def address(wheel: Path) -> Iterator[str]:
    """Where a server offers the wheel."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=wheel.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{wheel.name}"
        server.shutdown()


class Container:
    """Runs the lines of a recipe, with the container's folders below a folder of the test."""

    def __init__(self, folder: Path, context: Path, **environ: str) -> None:
        self.root = folder / "root"
        self.context = context
        self.bin = self.root / "usr/local/bin"
        self.bin.mkdir(parents=True)
        (self.root / "opt").mkdir()
        (self.bin / "python").symlink_to(sys.executable)
        kept = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
        self.environ = {**kept, "PATH": f"{self.bin}:/usr/bin:/bin", **environ}

    def here(self, text: str) -> str:
        text = re.sub(r"(?<![\w.])/(opt|usr/local)/", rf"{self.root}/\1/", text)
        return re.sub(r"(?<![\w.])/context\b", str(self.context), text)

    def sh(self, line: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-e", "-c", self.here(line)]
        return subprocess.run(
            command, env=self.environ, cwd=self.root, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Each instruction and its text; comments are left out, continued lines are joined."""
    text = "\n".join(line for line in dockerfile.splitlines() if not line.startswith("#"))
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def build(container: Container, dockerfile: str) -> None:
    """Perform ARG with a default, RUN and COPY. Raises for a RUN that fails."""
    for word, rest in instructions(dockerfile):
        if word == "ARG" and "=" in rest:
            name, _, value = rest.partition("=")
            container.environ.setdefault(name, value)
        elif word == "COPY":
            source, target = rest.split()
            shutil.copy(ROOT / source, container.here(target))
        elif word == "RUN":
            done = container.sh(re.sub(r"^(--\S+ )+", "", rest))
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"


def test_the_image_is_built_from_a_wheel_in_its_context(wheel: Path, tmp_path: Path) -> None:
    container = Container(tmp_path, wheel.parent, ATTN_DOCTOR=f"./{wheel.name}")
    text = (EXAMPLES / "Dockerfile").read_text("utf-8")
    # The packages of this interpreter are examined, and torch is not among them.
    build(container, text.replace("gpu=${GPU}", "torch=2.13.0+cu130,gpu=${GPU}"))
    entry = json.loads(dict(instructions(text))["ENTRYPOINT"])
    refused = container.sh(f"{entry[0]} echo started")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "torch/not-installed" in refused.stderr
    container.environ["ATTN_DOCTOR_FAIL_ON"] = "never"
    done = container.sh(f"{entry[0]} echo started")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


def test_an_image_without_the_argument_says_what_is_needed(tmp_path: Path) -> None:
    container = Container(tmp_path, tmp_path)
    with pytest.raises(AssertionError, match="ATTN_DOCTOR: is needed, see above"):
        build(container, (EXAMPLES / "Dockerfile").read_text("utf-8"))


def test_the_stage_that_build_kernels_prints(address: str, tmp_path: Path) -> None:
    where = ["--target", "h200", "--cache-dir", "/opt/kernels"]
    done = run("build-kernels", "--docker", *where, "--preset", "flux1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    container = Container(tmp_path, tmp_path, ATTN_DOCTOR=address, PYTHON="python")
    installs, _, _ = done.stdout.partition("ENV ")
    build(container, installs)
    found = container.sh("/opt/attn-doctor/bin/attn-doctor build-kernels --list-targets")
    assert "NVIDIA H200" in found.stdout, found.stderr


def test_gitlab_s_job(address: str, tmp_path: Path) -> None:
    job = yaml(EXAMPLES / "gitlab-ci.yml")["attention"]
    container = Container(tmp_path, tmp_path)
    (container.root / "requirements.txt").write_text("")
    own = '[ "$1" = install ] && exec python -m pip --version >/dev/null\n'  # nothing to install
    (container.bin / "pip").write_text(f"#!/bin/sh\n{own}")
    (container.bin / "pip").chmod(0o755)
    script = "\n".join(job["script"])
    missing = container.sh(script)
    assert "ATTN_DOCTOR: is not set, see above" in missing.stderr
    container.environ |= {"ATTN_DOCTOR": address}
    done = container.sh(script)
    assert done.returncode in (0, 1), done.stderr
    for name in job["artifacts"]["reports"].values():
        assert (container.root / name).stat().st_size


def test_the_action_installs_its_own_source(tmp_path: Path) -> None:
    install = yaml(ROOT / "action.yml")["runs"]["steps"][0]["run"]
    output = tmp_path / "output"
    container = Container(
        tmp_path, tmp_path, PACKAGE="", GITHUB_ACTION_PATH=str(ROOT), GITHUB_OUTPUT=str(output),
        RUNNER_TEMP=str(tmp_path / "runner"),
    )  # fmt: skip
    done = container.sh(install)
    assert done.returncode == 0, done.stderr
    programs = output.read_text().strip().partition("=")[2]
    assert container.sh(f"{programs}/attn-doctor --version").returncode == 0


def test_readme_s_command_in_a_virtual_environment(wheel: Path, tmp_path: Path) -> None:
    """README's first command with the wheel in place of the checkout, which `.ci/run` runs."""
    container = Container(tmp_path, tmp_path)
    done = container.sh(
        f"python -m venv env && env/bin/pip install --quiet {wheel} && env/bin/attn-doctor check"
    )
    assert done.returncode in (0, 1), done.stderr
    assert "torch" in done.stdout
