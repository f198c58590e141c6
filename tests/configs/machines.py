"""Machines and configurations for the tests: an H100 with given releases, files written by us."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from attn_doctor.configs.predict import predict
from attn_doctor.configs.prediction import Phase, Prediction
from attn_doctor.configs.readers.kinds import read
from attn_doctor.examination import derive
from attn_doctor.facts import Driver, Facts, Gpu, Package, Python, System, Torch
from attn_doctor.findings import Finding
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules

#: Read once: without an index that takes a second.
RULES = library.load()


def machine(simpletuner: str = "4.8.0", diffusers: str = "0.40.0", sm: int = 90) -> Facts:
    """An NVIDIA machine in good order."""
    gpu = Gpu(
        index=0,
        name="NVIDIA H100",
        sm=sm,
        memory_total_mib=81559,
        visible=True,
        compute_mode="default",
        mig="disabled",
    )
    return derive(
        Facts(
            system=System(os="linux", wsl=0, container="", arch="x86_64"),
            python=Python(path="/srv/venv/bin/python", version="3.12.3", minor="3.12"),
            driver=Driver(
                state="ok",
                version="580.95.05",
                cuda_max="13.0",
                vendor="nvidia",
                libcuda="/usr/lib/libcuda.so.1",
                libcuda_compat=False,
            ),
            gpus=(gpu,),
            torch=Torch(
                installed=True,
                version="2.11.0+cu130",
                build="cuda",
                cuda="13.0",
                has_flex=True,
                has_build_helper=False,
            ),
            simpletuner=Package(installed=True, version=simpletuner),
            finetrainers=Package(installed=True, version="0.2.0"),
            diffusers=Package(installed=True, version=diffusers),
            extensions=(),
        )
    )


def predicted(path: Path, facts: Facts | None = None) -> Prediction:
    """What is said of a file on a machine."""
    facts = facts or machine()
    return predict(read(path), facts, evaluated(facts))


_EVALUATED: dict[bytes, tuple[Finding, ...]] = {}


def evaluated(facts: Facts) -> tuple[Finding, ...]:
    """What the rules say of a machine; of each machine once."""
    key = msgspec.json.encode(facts)
    if key not in _EVALUATED:
        _EVALUATED[key] = tuple(evaluate_rules(facts, RULES))
    return _EVALUATED[key]


def written(folder: Path, name: str = "config.json", **settings: object) -> Path:
    """A `config.json` of SimpleTuner with the settings that its examples have."""
    base: dict[str, object] = {
        "model_type": "lora",
        "mixed_precision": "bf16",
        "resolution": 1024,
        "train_batch_size": 1,
        "validation_resolution": "1024x1024",
        "gradient_checkpointing": True,
    }
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(base | settings, indent=2), encoding="utf-8")
    return path


def phase(one: Prediction, name: str) -> Phase:
    """One phase of a prediction."""
    return next(each for each in one.phases if each.phase == name)


def rules(one: Prediction) -> list[str]:
    """The rules of its findings."""
    return [each.rule for each in one.findings]
