"""Where a configuration is looked for: SimpleTuner's order, its variables, what lies here."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.configs.readers.locations import found_in, named
from attn_doctor.configs.readers.settings import ConfigError
from tests.configs.machines import written


def test_nothing_here(tmp_path: Path) -> None:
    assert found_in(tmp_path, {}) is None
    (tmp_path / "config.json").write_text('{"architectures": []}', encoding="utf-8")
    assert found_in(tmp_path, {}) is None


def test_the_order_of_simpletuner(tmp_path: Path) -> None:
    env = tmp_path / "config" / "config.env"
    env.parent.mkdir()
    env.write_text("MODEL_FAMILY=flux\n", encoding="utf-8")
    found = found_in(tmp_path, {})
    assert found is not None
    assert found[0] == env
    path = written(tmp_path, "config/config.json", model_family="flux")
    found = found_in(tmp_path, {})
    assert found == (path, "SimpleTuner reads it by default")
    found = found_in(tmp_path, {"SIMPLETUNER_CONFIG_BACKEND": "ENV"})
    assert found is not None
    assert found[0] == env


@pytest.mark.parametrize("name", ["SIMPLETUNER_ENVIRONMENT", "SIMPLETUNER_ENV", "ENV"])
def test_the_environment_chooses_a_folder(name: str, tmp_path: Path) -> None:
    written(tmp_path, "config/config.json", model_family="flux")
    path = written(tmp_path, "config/wan/config.json", model_family="wan")
    assert named(tmp_path, {name: "wan"}) == [(path, f"{name} is wan")]


def test_the_first_variable_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "config/a/config.json", model_family="flux")
    written(tmp_path, "config/b/config.json", model_family="wan")
    variables = {"ENV": "b", "SIMPLETUNER_ENVIRONMENT": "a"}
    assert named(tmp_path, variables)[0][0] == path


def test_config_path(tmp_path: Path) -> None:
    path = written(tmp_path, "mine/config.json", model_family="flux")
    assert named(tmp_path, {"CONFIG_PATH": "mine"}) == [(path, "CONFIG_PATH names it")]
    assert named(tmp_path, {"CONFIG_PATH": "mine/config"})[0][0] == path


def test_a_folder_without_any(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of its files chooses attention"):
        named(tmp_path, {})


def test_a_loose_file_that_speaks_of_a_model(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux")
    assert found_in(tmp_path, {}) == (path, "found here, with settings of SimpleTuner")
