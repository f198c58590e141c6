"""Where a command fits, in words that readers of a log know."""

from __future__ import annotations

import pytest

from attn_doctor.explain.where_it_fits import there_are_no, where_it_fits
from attn_doctor.rulebook.conditions import parse
from attn_doctor.rulebook.fact_catalogue import catalogue


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['system.os == "linux"'], "on Linux"),
        (['system.os in ["linux", "windows"]'], "on Linux or Windows"),
        (
            ['system.os == "linux"', 'torch.build == "cuda"'],
            "if the system is Linux and torch is a CUDA build",
        ),
        (
            ['system.container == ""', "system.wsl == 0"],
            "if it runs outside a container and it is not WSL",
        ),
        (['build.nvcc != ""'], "if nvcc is found"),
        (['env.CUDA_HOME == ""'], "if CUDA_HOME is not set"),
        (['env.CC in ["gcc", "clang"]'], "if CC is gcc or clang"),
        (["flash_attn.installed == false"], "if flash-attn is not installed"),
        (
            ['torch.version < "2.6"', 'torch.newest_index != ""'],
            "if the version of torch is below 2.6",
        ),
        (['driver.vendor == ""'], "if the maker of the GPU is unknown"),
        (["driver.best_sm >= 80"], "if the compute capability of the best GPU is at least 8.0"),
        (
            ["driver.best_sm not in [50, 52]"],
            "if the compute capability of the best GPU is not 5.0 or 5.2",
        ),
        (
            ["driver.best_sm not in [50, 52, 53, 60, 61, 62, 70, 72, 75, 87, 110]"],
            "if the compute capability of the best GPU is at least 8.0, but not 8.7 or 11.0",
        ),
        (
            ["driver.best_sm in [50, 52, 53, 60]"],
            "if the compute capability of the best GPU is below 6.1",
        ),
        (
            ["driver.best_sm in [50, 52, 53, 90]"],
            "if the compute capability of the best GPU is 5.0, 5.2, 5.3 or 9.0",
        ),
        (['transformers.version < "5"'], "if the version of transformers is below 5"),
        # Without words of its own, a fact keeps its name.
        (["torch.debug == true"], "if torch.debug is yes"),
        (["torch.from_pypi == false"], "if torch does not come from PyPI"),
        (["system.wsl == 2"], "if it is WSL 2"),
        (['torch.build != "cuda"'], "if torch is not a CUDA build"),
        (["driver.best_sm == 0"], "if CUDA sees no GPU"),
        (['transformers.version satisfies ">=5,<6"'], "if the version of transformers fits >=5,<6"),
        (['system.distribution == "rhel"'], "if the system is RHEL"),
    ],
)
def test_words(lines: list[str], expected: str) -> None:
    assert (
        where_it_fits([parse(line, catalogue()) for line in lines]) == f"Do this only {expected}."
    )


@pytest.mark.parametrize("line", ["torchaudio.again == []", 'xformers.index == ""'])
def test_what_a_reader_cannot_tell_is_no_condition(line: str) -> None:
    assert where_it_fits([parse(line, catalogue())]) == ""


def test_an_empty_list() -> None:
    assert there_are_no("pci") == "there are no GPUs on the PCI bus"
    assert there_are_no("caches") == "there are no caches"
