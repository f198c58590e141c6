"""The variables that are read, and what of them is shown."""

from __future__ import annotations

from attn_doctor.env_vars import VARIABLES
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine import environment
from tests.probes.tree import machine


def read(**variables: str) -> dict[str, str]:
    host = machine(env=variables)
    site = Site(folders=(), distributions=Distributions(host, ()))
    found: dict[str, str] = environment.read(host, site, Gaps())["env"]
    return found


def test_only_listed_variables_that_are_set() -> None:
    found = read(MAX_JOBS="4", AWS_SECRET_ACCESS_KEY="x", HOSTNAME="box", PATH="/usr/bin")
    assert found == {"MAX_JOBS": "4"}


def test_set_to_nothing_is_still_set() -> None:
    """An empty CUDA_VISIBLE_DEVICES hides every GPU."""
    assert read(CUDA_VISIBLE_DEVICES="") == {"CUDA_VISIBLE_DEVICES": ""}


def test_secrets_are_removed() -> None:
    found = read(TORCHINDUCTOR_REDIS_URL="redis://:hunter2@cache:6379/0")
    assert found == {"TORCHINDUCTOR_REDIS_URL": "redis://***@cache:6379/0"}


def test_every_variable_has_one_sentence() -> None:
    for name, sentence in VARIABLES.items():
        assert name == name.upper()
        assert sentence.endswith("."), name
        assert "\n" not in sentence


def test_variables_that_probes_read_are_listed() -> None:
    wanted = "CUDA_HOME CUDA_PATH LD_LIBRARY_PATH LD_PRELOAD VIRTUAL_ENV CONDA_PREFIX PYTHONPATH"
    assert set(wanted.split()) <= set(VARIABLES)
