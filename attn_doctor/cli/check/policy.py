"""The policy and the baseline of a check: finding them, applying them, showing the policy."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

from attn_doctor.cli.rules_option import here
from attn_doctor.findings import Diagnosis
from attn_doctor.policy.policy import Policy, find, read


def in_force(option: str) -> Policy | None:
    """The policy that `--policy` names, the nearest one without it, or None."""
    if option == "none":
        return None
    path = Path(option) if option else find(here())
    return read(path) if path else None


def applied(diagnosis: Diagnosis, policy: Policy | None, baseline: str) -> Diagnosis:
    """The diagnosis held against both. Raises `AttnDoctorError` for a baseline that is none."""
    if policy is not None:
        from attn_doctor.policy.evaluate import judged

        diagnosis = judged(diagnosis, policy, date.today())
    if baseline:
        from attn_doctor.policy.baseline import against, read

        diagnosis = against(diagnosis, read(Path(baseline)), baseline)
    return diagnosis


def show(policy: Policy | None) -> None:
    """Print what is in force, and why."""
    from attn_doctor.render.findings.policy import policy_text

    sys.stdout.write(policy_text(policy, date.today()))
