"""Predicts what a configuration of any kind does."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.configs.prediction import Prediction, Wanted
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """The prediction for one configuration. `findings`: what the rules say of `facts`.

    `wanted`: the phases to predict; a file that may serve both is predicted for this one.
    """
    if reading.kind == "simpletuner":
        from attn_doctor.configs.simpletuner import predict as simpletuner

        return simpletuner.predict(reading, facts, findings, wanted)
    if reading.kind == "finetrainers":
        from attn_doctor.configs.finetrainers import predict as finetrainers

        return finetrainers.predict(reading, facts, findings, wanted)
    if reading.kind == "format":
        from attn_doctor.configs import format_prediction

        return format_prediction.predict(reading, facts, findings, wanted)
    from attn_doctor.configs.diffusers import predict as diffusers

    return diffusers.predict(reading, facts, findings, wanted)
