"""The policy in force, for a person: where it comes from and what each entry does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from attn_doctor.policy.policy import Ignore, Policy
from attn_doctor.render.terminal import Terminal, clean


def policy_text(policy: Policy | None, today: date, terminal: Terminal) -> str:
    """One line an entry; what is not set shows its default."""
    if policy is None:
        none = (
            "No policy is in force: there is no attn-doctor.toml here or above, and no"
            " pyproject.toml with a [tool.attn-doctor] table."
        )
        default = 'check fails on errors (fail-on = "error") and accepts nothing.'
        return terminal.page([*terminal.wrap(none, 0), *terminal.wrap(default, 0)])
    return terminal.page(map(clean, (f"Policy: {policy.path}", *_lines(policy, today))))


def _lines(policy: Policy, today: date) -> Iterator[str]:
    default = "" if policy.fail_on else " (default)"
    least = policy.fail_on or "error"
    meaning = "never fails" if least == "never" else f"fails on problems from {least} upwards"
    yield f"  fail-on       {least}{default}: check {meaning}"
    if policy.require:
        purpose = "training" if policy.training else "inference"
        names = f" (names of {policy.framework})" if policy.framework else ""
        yield f"  require       {', '.join(policy.require)}: must be ready for {purpose}{names}"
    for name, version in policy.minimum.items():
        yield f"  minimum       {name} {version} or newer"
    if policy.allowed_gpus:
        yield f"  allowed-gpus  {', '.join(policy.allowed_gpus)}"
    for folder in policy.folders:
        yield f"  rules         {folder}" + ("" if folder.is_dir() else " (no such folder)")
    for one in policy.ignore:
        yield f"  ignore        {_ignored(one, today)}"


def _ignored(one: Ignore, today: date) -> str:
    left = (one.until - today).days
    state = f"{left} days left" if left >= 0 else "expired: itself a problem now"
    subject = f" ({one.subject})" if one.subject else ""
    return f"{one.rule}{subject} until {one.until} ({state}): {one.reason}"
