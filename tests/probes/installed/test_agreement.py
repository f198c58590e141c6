"""What several installed packages require of the same distribution."""

from __future__ import annotations

from attn_doctor.facts import UnmetRequirement
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import packages
from tests.probes.environments import distribution, environment


def unmet(*installed: tuple[str, str, tuple[str, ...]]) -> dict[str, UnmetRequirement]:
    """The unmet requirements of an environment, by what is required."""
    parts = (distribution(name, version, requires=needs) for name, version, needs in installed)
    host, site = environment(*parts)
    found = packages.read(host, site, Gaps())["unmet_requirements"]
    return {one.needs: one for one in found}


def test_what_all_accept() -> None:
    found = unmet(
        ("diffusers", "0.42.1", ("huggingface-hub<3.0,>=1.32.0",)),
        ("peft", "0.19", ("huggingface-hub>=1.40,<4",)),
        ("huggingface_hub", "1.30.0", ()),
    )["huggingface-hub<3.0,>=1.32.0"]
    assert (found.together, found.rival) == ("huggingface-hub<3.0,>=1.40", "")
    assert found.renewed == ""


def test_two_packages_exclude_each_other() -> None:
    found = unmet(
        ("diffusers", "0.42.1", ("huggingface-hub<3.0,>=1.32.0",)),
        ("transformers", "4.57.1", ("huggingface-hub<1.0,>=0.34.0", "tokenizers<=0.23.0,>=0.22.0")),
        ("huggingface_hub", "1.33.0", ()),
        ("tokenizers", "0.23.1", ()),
    )
    hub = found["huggingface-hub<1.0,>=0.34.0"]
    assert hub.rival == "huggingface-hub<3.0,>=1.32.0 for diffusers 0.42.1"
    # Its other requirements are gone with its release.
    other = found["tokenizers<=0.23.0,>=0.22.0"]
    assert other.rival == ""
    for one in (hub, other):
        assert (one.together, one.renewed, one.beside) == (
            "", "transformers>4.57.1", "diffusers==0.42.1",
        )  # fmt: skip
        assert (one.lowered, one.unchanged) == ("diffusers<0.42.1", "transformers==4.57.1")


def test_both_are_unmet_and_get_one_command() -> None:
    found = unmet(
        ("diffusers", "0.42.1", ("huggingface-hub>=1.32.0",)),
        ("transformers", "4.57.1", ("huggingface-hub<1.0,>=0.34.0",)),
        ("huggingface_hub", "0.10.0", ()),
    )
    assert len(found) == 2
    assert {(one.renewed, one.beside) for one in found.values()} == {
        ("transformers>4.57.1", "diffusers==0.42.1")
    }


def test_a_package_that_another_one_holds_back_is_not_renewed_alone() -> None:
    found = unmet(
        ("diffusers", "0.42.1", ("huggingface-hub<3.0,>=1.32.0",)),
        ("tokenizers", "0.21.4", ("huggingface-hub<1.0,>=0.16.4",)),
        ("transformers", "4.49.0", ("huggingface-hub<1.0,>=0.26.0", "tokenizers<0.22,>=0.21")),
        ("huggingface_hub", "0.36.2", ()),
    )["huggingface-hub<3.0,>=1.32.0"]
    assert found.rival == "huggingface-hub<1.0,>=0.26.0 for transformers 4.49.0"
    assert (found.renewed, found.beside) == ("transformers>4.49.0", "diffusers==0.42.1")


def test_requirements_of_a_package_that_has_to_be_replaced() -> None:
    found = unmet(
        ("transformers", "4.51.3", ("huggingface-hub<1.0,>=0.30.0",)),
        ("huggingface_hub", "2.4.0", ("click<9.0.0,>=8.4.2",)),
    )
    assert {one.together for one in found.values()} == {"huggingface-hub<1.0,>=0.30.0"}


def test_what_a_package_needs_without_saying_so() -> None:
    host, site = environment(
        distribution(
            "diffusers",
            "0.25.0",
            requires=("huggingface-hub>=0.20.2",),
            texts={
                "diffusers/utils/dynamic_modules_utils.py": (
                    "from huggingface_hub import HfFolder, cached_download\n"
                )
            },
        ),
        distribution("peft", "0.21.2", requires=("huggingface-hub<1.0,>=0.25.0",)),
        distribution(
            "huggingface_hub", "0.24.5", texts={"huggingface_hub/__init__.py": "cached_download"}
        ),
    )
    (found,) = packages.read(host, site, Gaps())["unmet_requirements"]
    assert found.together == "huggingface-hub<0.26,>=0.25.0"


def test_one_command_renews_what_holds_back_and_keeps_what_others_want() -> None:
    found = unmet(
        ("kernels", "0.17.2", ("huggingface-hub>=1.10.0",)),
        ("tokenizers", "0.21.4", ("huggingface-hub<1.0,>=0.16.4",)),
        ("transformers", "4.51.3", ("tokenizers<0.22,>=0.21",)),
        ("accelerate", "1.7.0", ("huggingface-hub>=0.21",)),
        ("huggingface_hub", "0.33.2", ()),
    )["huggingface-hub>=1.10.0"]
    assert (found.renewed, found.beside) == ("transformers>4.51.3", "kernels==0.17.2")
    assert found.along == "tokenizers>0.21.4 huggingface-hub>=1.10.0"


def test_a_release_that_rules_know_is_a_bound_that_leaves_room() -> None:
    found = unmet(
        ("datasets", "5.2.0", ("huggingface-hub<3.0,>=1.31.0",)),
        ("kernels", "0.9.0", ("huggingface-hub<1.0,>=0.26.0",)),
        ("transformers", "5.12.1", ("huggingface-hub<2.0,>=1.5.0",)),
        ("huggingface_hub", "1.33.0", ()),
    )["huggingface-hub<1.0,>=0.26.0"]
    assert (found.renewed, found.beside) == ("kernels<0.15,>0.9.0", "datasets==5.2.0")
    assert found.along == "huggingface-hub<2.0,>=1.31.0"


def test_what_a_release_brings_is_excluded_too() -> None:
    """Transformers 4 requires huggingface-hub<1.0."""
    (found,) = unmet(
        ("diffusers", "0.34.0", ("transformers<5",)),
        ("kernels", "0.14.1", ("huggingface-hub>=1.10.0",)),
        ("transformers", "5.5.4", ("huggingface-hub<2.0,>=1.5.0",)),
        ("huggingface_hub", "1.11.0", ()),
    ).values()
    assert (found.rival, found.renewed, found.beside) == (
        "", "diffusers>0.34.0", "kernels==0.14.1",
    )  # fmt: skip
    assert found.along == "huggingface-hub<2.0,>=1.10.0"


def test_a_package_that_is_replaced_keeps_the_hub_of_the_others() -> None:
    """pip install 'diffusers>=0.37' alone brought huggingface-hub 2.4 beside Transformers 5.5."""
    (found,) = unmet(
        ("peft", "0.19.1", ("diffusers>=0.37",)),
        ("diffusers", "0.34.0", ("huggingface-hub>=0.27.0",)),
        ("transformers", "5.5.4", ("huggingface-hub<2.0,>=1.5.0",)),
        ("huggingface_hub", "1.11.0", ()),
    ).values()
    assert (found.together, found.along) == ("diffusers>=0.37", "huggingface-hub<2.0,>=1.5.0")
