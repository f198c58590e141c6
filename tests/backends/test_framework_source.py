"""Names of backends from the source of an installed framework."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.framework_source import names_in_source, package_of
from attn_doctor.backends.matrix import matrix, requirements
from attn_doctor.backends.readiness import Outcome, Readiness
from attn_doctor.facts import Facts
from attn_doctor.facts.installed import Package
from attn_doctor.render.backends.text import text
from attn_doctor.render.terminal import Terminal
from tests.backends import scenario

H200 = "h200-torch-2.11-cu130"
CALL = (AttentionCall(),)
#: Each as Transformers wrote it in some release.
MAPPINGS = {
    "5.23.0": '_global_mapping = {"sdpa": f, "flash_attention_2": f, "paged|eager": f}\n',
    "4.48.0": 'ALL.update({"flash_attention_2": f, "sdpa": f})\n',
    "4.36.0": 'if x not in ["eager", "sdpa", "flash_attention_2"]:\n    pass\n',
}


def with_source(tmp_path: Path, source: str, version: str = "9.0") -> Facts:
    facts, _ = scenario.machine(H200)
    (tmp_path / "modeling_utils.py").write_text(source)
    package = Package(installed=True, version=version, path=str(tmp_path), import_error="")
    return replace(facts, transformers=package)


@pytest.mark.parametrize("source", MAPPINGS.values(), ids=MAPPINGS)
def test_names_of_transformers_are_those_of_the_source(tmp_path: Path, source: str) -> None:
    found = names_in_source(with_source(tmp_path, source), "transformers")
    assert found is not None
    assert {*found} == {"eager", "sdpa", "flash_attention_2"}


@pytest.mark.parametrize("source", ["", "x = (", 'NAMES = {"sdpa": f}'])
def test_a_source_without_names_decides_nothing(tmp_path: Path, source: str) -> None:
    facts = with_source(tmp_path, source)
    assert names_in_source(facts, "transformers") is None
    assert matrix(facts, (), CALL, "transformers").row("flex_attention").known


def test_the_source_of_a_release_that_was_not_compared_decides(tmp_path: Path) -> None:
    source = 'ALL.update({"flash_attention_2": f, "sdpa": f, "flash_attention_5": f})\n'
    facts = with_source(tmp_path, source)
    found = matrix(facts, (), CALL, "transformers")
    assert found.row("sdpa").known
    assert found.row("kernels-community/flash-attn2").known  # the source lists none of the Hub
    flex = found.row("flex_attention")
    assert not flex.known
    assert flex.answers[0].state is Readiness.NOT_READY
    assert flex.answers[0].reasons[0].text.startswith("Transformers 9.0 has no flex_attention")
    assert "The installed release also has flash_attention_5." in found.note


def test_a_release_of_the_table_is_not_read_again(tmp_path: Path) -> None:
    facts = with_source(tmp_path, MAPPINGS["4.36.0"], "5.23.0")
    assert matrix(facts, (), CALL, "transformers").row("flex_attention").known


def test_a_hub_kernel_takes_the_place_of_a_missing_package() -> None:
    plain, findings = scenario.machine(H200)
    found = matrix(plain, findings, CALL, "transformers")
    assert found.row("flash_attention_2").backend == "flash"
    assert (
        "flash-attn is not installed" in found.row("flash_attention_2").answers[0].reasons[0].text
    )
    facts, findings = scenario.machine(H200, "kernels=0.12.3")
    found = matrix(facts, findings, CALL, "transformers")
    assert found.row("flash_attention_2").backend == "transformers_flash_hub"
    assert found.row("flash_attention_2").answers[0].state is Readiness.UNKNOWN
    shown = text(found, facts, Terminal(width=100, colour=False, unicode=True))
    assert "otherwise: flash_attention_2: without flash-attn, the Hub's flash-attn2 runs" in shown
    both, findings = scenario.machine(H200, "kernels=0.12.3", "flash-attn=2.8.3")
    assert matrix(both, findings, CALL, "transformers").row("flash_attention_2").backend == "flash"


def test_an_additive_mask_leaves_flash_attention_unknown() -> None:
    facts, findings = scenario.machine(H200, "flash-attn=2.8.3")
    calls = (AttentionCall(mask="float"), AttentionCall(mask="bool"))
    _, results = requirements(facts, findings, calls, "flash_attention_2", "transformers")
    outcomes = [{one.id: one.outcome for one in each} for each in results]
    assert outcomes[0]["transformers-flash-mask"] is Outcome.UNSATISFIED
    assert outcomes[1]["transformers-flash-mask"] is Outcome.SATISFIED
    # Diffusers' dispatcher refuses masks here; Transformers does not go through it.
    assert "mask-refused" not in outcomes[1]


@pytest.mark.parametrize("beside", ["venv", "ComfyUI/venv", "python_embeded"])
def test_comfyui_is_found_around_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.chdir("/")
    folder = tmp_path / "ComfyUI" if beside != "venv" else tmp_path
    attention = folder / "comfy/ldm/modules/attention.py"
    attention.parent.mkdir(parents=True)
    attention.write_text('if A:\n    register_attention_function("sage", f)\n')
    (folder / "comfyui_version.py").write_text('# made\n__version__ = "0.99.1"\n')
    facts, findings = scenario.machine(H200)
    facts = replace(facts, python=replace(facts.python, prefix=str(tmp_path / beside)))
    assert package_of(facts, "comfyui").version == "0.99.1"
    found = matrix(facts, findings, CALL, "comfyui")
    assert (found.version, found.installed) == ("0.99.1", True)
    assert [row.name for row in found.rows if row.known] == ["sage"]


def test_comfyui_is_for_inference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    facts, findings = scenario.machine(H200)
    both = (AttentionCall(), AttentionCall(phase="training"))
    found = matrix(facts, findings, both, "comfyui")
    assert [call.phase for call in found.calls] == ["inference"]
    assert found.installed is False
    assert len(requirements(facts, findings, both, "sage", "comfyui")[1]) == 1
    training = matrix(facts, findings, both[1:], "comfyui")
    assert [call.phase for call in training.calls] == ["training"]


@pytest.mark.parametrize(
    ("name", "mask", "state", "silent"),
    [
        ("sage", "bool", Readiness.NOT_READY, True),
        ("sage", "none", Readiness.READY, False),
        ("xformers", "bool", Readiness.NOT_READY, True),
        ("xformers", "float", Readiness.READY, False),
        ("flash", "bool", Readiness.SLOW, False),
        ("flash", "none", Readiness.READY, False),
    ],
)
def test_masks_in_comfyui(name: str, mask: str, state: Readiness, silent: bool) -> None:
    packages = ("sageattention=2.2.0", "flash-attn=2.8.3", "xformers=0.0.35")
    facts, findings = scenario.machine(H200, *packages)
    found = matrix(facts, findings, (AttentionCall(mask=mask),), "comfyui")
    answer = found.row(name).answers[0]
    assert (answer.state, answer.wrong) == (state, silent)


def test_comfyui_here_says_nothing_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "comfyui_version.py").write_text('__version__ = "0.99.1"\n')
    monkeypatch.chdir(tmp_path)
    facts, _ = scenario.machine(H200)
    assert package_of(facts, "comfyui").installed is False
    here = replace(facts, python=replace(facts.python, path=str(tmp_path)))
    assert package_of(here, "comfyui").version == "0.99.1"
