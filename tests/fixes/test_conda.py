"""What conda installed is left to conda."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Package
from attn_doctor.findings import Diagnosis, Safety
from attn_doctor.fixes import conda
from attn_doctor.fixes.distributions import Change, installed
from attn_doctor.fixes.plan import plan
from attn_doctor.fixes.steps import Step
from tests.environments import Environment
from tests.fixes.test_plan import H100, _finding, _fix

TRITON = "triton/torch-mismatch"
FORGE = "https://conda.anaconda.org/conda-forge/linux-64"


def _of_conda(env: Environment, name: str, record: str, installer: str | None) -> None:
    """Make a distribution of the environment look like conda's."""
    file = next(env.site.glob(f"{name}-*.dist-info")) / "INSTALLER"
    if installer is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(installer + "\n")
    if record:
        meta = env.prefix / "conda-meta"
        meta.mkdir(exist_ok=True)
        (meta / f"{record}.json").write_text(json.dumps({"channel": FORGE, "files": []}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "installer", "where"),
    [
        ("triton-3.5.0-cuda130py312h_1", None, "-c conda-forge "),
        ("triton-3.5.0-cuda130py312h_1", "conda", "-c conda-forge "),
        ("", "conda", ""),
    ],
)
def test_a_package_of_conda_is_not_overwritten(
    uv_env: Environment, record: str, installer: str | None, where: str
) -> None:
    _of_conda(uv_env, "triton", record, installer)
    before = uv_env.tree()
    ended = uv_env.fix(TRITON, "--yes", "--format", "json")
    assert ended.returncode == 1, ended.text
    (step,) = json.loads(ended.stdout)["plan"]["steps"]
    assert step["blocked_by"] == (
        "conda installed triton here, and pip would overwrite its files without"
        " conda's knowledge; use"
        f" conda: `conda install -p {uv_env.prefix} {where}triton=3.6.0`"
    )
    assert not step["ready"]
    assert uv_env.tree() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "installer"),
    [
        # pip has put its own over conda's; conda's record is of another version; or of another.
        ("triton-3.5.0-cuda130py312h_1", "uv"),
        ("triton-3.4.0-cuda130py312h_1", None),
        ("triton-extra-3.5.0-0", None),
    ],
)
def test_what_pip_installed_beside_conda_is_pips(
    uv_env: Environment, record: str, installer: str | None
) -> None:
    _of_conda(uv_env, "triton", record, installer)
    output = json.loads(uv_env.fix(TRITON, "--format", "json").stdout)
    assert not output["plan"]["steps"][0]["blocked_by"]


@pytest.mark.slow
def test_what_no_step_names_is_left_to_conda_too(uv_env: Environment) -> None:
    # bulk has no facts of its own: only its files show that conda installed it.
    _of_conda(uv_env, "bulk", "bulk-1.0-py_0", None)
    uv_env.rule("bulk", '["pip", "install", "bulk>=2"]')
    ended = uv_env.fix("own/bulk", "--yes")
    assert ended.returncode == 1
    assert f"conda install -p {uv_env.prefix} -c conda-forge 'bulk>=2'" in ended.text
    assert "bulk==1.0" in uv_env.freeze()


def test_changes_that_only_the_installer_knows_of() -> None:
    step = Step(
        rules=("a/a",),
        title="t",
        kind="install",
        safety=Safety.ASK,
        run=(("pip", "install", "diffusers>=0.36"),),
    )
    new, moved = Change("numpy", "", "2.4.0"), Change("numpy", "2.3.0", "2.4.0")
    assert conda.blocked_by(step, {"numpy": ""}, "/opt/env", [new]) == ""
    assert "`conda install -p /opt/env numpy`" in conda.blocked_by(
        step, {"numpy": ""}, "/opt/env", [moved]
    )


@pytest.mark.parametrize(
    ("run", "command"),
    [
        ("pip install torch==2.11.* --index-url https://x/cu130", "install -p /opt/e pytorch=2.11"),
        ("pip install torch==2.11.0+cu130", "install -p /opt/e pytorch=2.11.0"),
        ("pip install torch>=2.5,<3 xformers", "install -p /opt/e 'pytorch<3,>=2.5'"),
        ("pip uninstall -y torch", "remove -p /opt/e pytorch"),
        ("pip install git+https://github.com/pytorch/torch", "remove -p /opt/e pytorch"),
    ],
)
@pytest.mark.posix
def test_a_snapshot_tells_it_as_well(run: str, command: str) -> None:
    facts = replace(
        H100,
        torch=replace(H100.torch, source="conda"),
        python=replace(H100.python, prefix="/opt/e"),
    )
    found = plan(Diagnosis(facts=facts, findings=(_finding("a/a", _fix(run)),), rules=1))
    assert found.steps[0].blocked_by.endswith(f"use conda: `conda {command}`")
    ours = plan(Diagnosis(facts=H100, findings=(_finding("a/a", _fix(run)),), rules=1))
    assert "conda" not in ours.steps[0].blocked_by


def test_a_build_over_condas_package_is_blocked() -> None:
    facts = replace(H100, sageattention=Package(installed=True, version="2.2.0", source="conda"))
    run = "pip install --no-build-isolation git+https://github.com/thu-ml/SageAttention"
    found = plan(Diagnosis(facts=facts, findings=(_finding("s/s", _fix(run)),), rules=1))
    assert found.steps[0].kind == "build"
    assert "conda remove sageattention" in found.steps[0].blocked_by


def test_names_and_channels_of_records(tmp_path: Path) -> None:
    meta, site = tmp_path / "conda-meta", tmp_path / "site"
    meta.mkdir()
    for name, channel in (
        ("pytorch-2.11.0-cuda130_py312_300", FORGE),
        ("pyyaml-6.0.2-py312h_1", "https://me:secret@example.org/t/tk-1/own/noarch"),
        ("flash-attn-2.8.3-py312_0", None),
    ):
        (meta / f"{name}.json").write_text(json.dumps({"channel": channel}))
    (meta / "history").write_text("")
    (meta / "broken-1.0-0.json").write_text("{")
    for entry in ("torch-2.11.0", "PyYAML-6.0.2", "flash_attn-2.8.3", "broken-1.0", "kernels-0.12"):
        (site / f"{entry}.dist-info").mkdir(parents=True)
    facts = replace(
        H100, python=replace(H100.python, prefix=str(tmp_path), site_packages=(str(site),))
    )
    assert conda.owned(facts, installed([str(site)])) == {
        "torch": "conda-forge",
        "pyyaml": "own",
        "flash-attn": "",
        "broken": "",
    }
