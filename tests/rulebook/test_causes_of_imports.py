"""Which finding explains that a package cannot be imported."""

from __future__ import annotations

import pytest

from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.facts import Extension, Facts, Package, System, Torch, UnmetRequirement


@pytest.mark.parametrize(
    ("package", "explained"),
    [("torchvision", "torch/extension-library-missing"), ("xformers", "")],
)
def test_only_the_package_that_the_import_names_explains_it(package: str, explained: str) -> None:
    broken = Extension(
        package=package,
        name="_C",
        path=f"/site/{package}/_C.so",
        fault="",
        missing_libraries=("libcudart.so.12",),
        missing_found_at=(),
        outdated_libraries=(),
    )
    facts = Facts(
        system=System(os="linux"),
        torch=Torch(installed=True, version="2.9.1"),
        transformers=Package(
            installed=True,
            import_error="it imports torchvision, which fails: libcudart.so.12 cannot be found",
        ),
        extensions=(broken,),
        unmet_requirements=(),
        duplicates=(),
    )
    found = {
        one.rule: one for one in diagnosis_of(facts).findings if one.verdict.value == "problem"
    }
    assert "torch/extension-library-missing" in found
    assert found["transformers/cannot-be-imported"].caused_by == explained


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        ("it uses torch.accelerator, which torch has since 2.6", "diffusers/torch-too-old"),
        (
            "diffusers/utils/x.py imports safetensors, which is not installed",
            "python/requirement-unmet",
        ),
        ("it requires torch>=9 and finds none", "python/requirement-unmet"),
    ],
)
def test_an_old_torch_explains_only_an_error_that_names_it(error: str, explained: str) -> None:
    unmet = UnmetRequirement(
        package="diffusers", needs="safetensors", installed="", together="safetensors", rival=""
    )
    facts = Facts(
        system=System(os="linux"),
        torch=Torch(installed=True, version="2.5.1"),
        diffusers=Package(installed=True, version="0.42.1", import_error=error, expected="<0.41"),
        unmet_requirements=(unmet,),
        duplicates=(),
    )
    found = {
        one.rule: one for one in diagnosis_of(facts).findings if one.verdict.value == "problem"
    }
    assert "diffusers/torch-too-old" in found
    assert found["diffusers/cannot-be-imported"].caused_by == explained
