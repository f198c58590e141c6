"""A release of SimpleTuner that the table lacks, from its own source."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.configs.predict import predict
from attn_doctor.configs.prediction import Prediction
from attn_doctor.configs.readers.kinds import read
from attn_doctor.facts import Facts, Package
from tests.configs.machines import evaluated, machine, written

#: The model of a family, and its transformer. `sd3` takes a class of Diffusers, `flux` has its own
#: code, `sana` calls torch.
MODELS = {
    "flux": (
        "from simpletuner.helpers.models.flux.transformer import Own",
        "dispatch_attention_fn()",
    ),
    "sana": ("from .transformer import Own", "F.scaled_dot_product_attention()"),
    "sd3": ("from diffusers.models.transformers.transformer_sd3 import Own", ""),
}
BACKEND = 'x = getattr(config, "attention_mechanism", "diffusers")\n'
ADVANCED = 'attention_mechanisms = ["diffusers", "flex", "flash-attn", "moon-attn"]\n'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.fixture
def release(tmp_path: Path) -> Facts:
    """A machine with SimpleTuner 9.9 and a Diffusers beside it."""
    root = tmp_path / "site" / "simpletuner"
    for name, (line, body) in MODELS.items():
        folder = root / "helpers/models" / name
        write(folder / "model.py", f"{line}\nclass M:\n    MODEL_CLASS = Own\n")
        write(
            folder / "transformer.py", f"class Own:\n    def f(self):\n        {body or 'pass'}\n"
        )
    write(root / "helpers/training/attention_backend.py", BACKEND)
    sections = root / "simpletuner_sdk/server/services/field_registry/sections"
    write(sections / "advanced.py", ADVANCED)
    library = tmp_path / "site" / "diffusers"
    sd3 = "class Own:\n    def f(self):\n        dispatch_attention_fn()\n"
    write(library / "models/transformers/transformer_sd3.py", sd3)
    return replace(
        machine(),
        simpletuner=Package(installed=True, version="9.9", path=str(root)),
        diffusers=Package(installed=True, version="0.42.1", path=str(library)),
    )


def predicted(folder: Path, facts: Facts, **settings: str) -> Prediction:
    path = written(folder, **settings)
    return predict(read(path), facts, evaluated(facts))


@pytest.mark.parametrize(
    ("family", "backend"), [("flux", "flex"), ("sd3", "flex"), ("sana", "native")]
)
def test_the_source_decides_what_is_routed(
    family: str, backend: str, tmp_path: Path, release: Facts
) -> None:
    one = predicted(tmp_path, release, model_family=family, attention_mechanism="flex")
    assert [phase.backend for phase in one.phases] == [backend] * 2
    assert "from the source of SimpleTuner 9.9" in one.notes[0]


def test_a_family_that_the_source_lacks_is_undecided(tmp_path: Path, release: Facts) -> None:
    one = predicted(tmp_path, release, model_family="chroma", attention_mechanism="flex")
    assert "does not say whether Chroma 1 is routed" in one.phases[0].undecided


def test_a_mechanism_of_the_source_is_not_called_unknown(tmp_path: Path, release: Facts) -> None:
    one = predicted(tmp_path, release, model_family="flux", attention_mechanism="moon-attn")
    assert "has moon-attn, which is not known here" in one.phases[0].undecided
    assert one.findings == ()


def test_the_default_is_that_of_the_source(tmp_path: Path, release: Facts) -> None:
    one = predicted(tmp_path, release, model_family="flux")
    assert [phase.backend for phase in one.phases] == ["native", "native"]


def test_without_its_files_a_newer_release_is_undecided(tmp_path: Path, release: Facts) -> None:
    gone = replace(release, simpletuner=Package(installed=True, version="9.9", path="/nowhere"))
    one = predicted(tmp_path, gone, model_family="flux", attention_mechanism="flex")
    assert "newer than 4.10.1" in one.phases[0].undecided
