"""Predicts what a configuration of any kind does."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.configs.prediction import Prediction
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding


def predict(reading: Reading, facts: Facts, findings: Sequence[Finding]) -> Prediction:
    """The prediction for one configuration. `findings`: what the rules say of `facts`."""
    if reading.kind == "simpletuner":
        from attn_doctor.configs.simpletuner import predict as simpletuner

        return simpletuner.predict(reading, facts, findings)
    if reading.kind == "finetrainers":
        from attn_doctor.configs.finetrainers import predict as finetrainers

        return finetrainers.predict(reading, facts, findings)
    if reading.kind == "format":
        from attn_doctor.configs import formats

        return formats.predict(reading, facts, findings)
    from attn_doctor.configs.diffusers import predict as diffusers

    return diffusers.predict(reading, facts, findings)
