"""A program of plain torch that shows a fault: it does not use attn-doctor.

It makes the inputs with the same lines as the worker, calls the backend by its library, and
compares with attention in float64. It ends with 1 where a result is wrong, and with 0 where all are
right, so that it can be run again with other versions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from attn_doctor.worker.audit.case import Case
from attn_doctor.worker.audit.lines import inputs
from attn_doctor.worker.audit.ways import WAYS, definition

#: Scores of which the program holds all in float64.
_SCORES = 1 << 26


class Bound(NamedTuple):
    """What a result must not exceed."""

    result: str
    """`out`, `dq`, `dk` or `dv`."""
    figure: str
    """`finite`, `whole` or `row`; others are not compared by a program."""
    allowed: float
    place: tuple[int, ...] = ()
    """Batch, head and row, for `row`."""


_EXACT = """\
def exact(q, k, v, mask):
    scores = q @ k.repeat_interleave(heads // kv_heads, 1).mT * size**-0.5
    seen = torch.ones(length, keys, dtype=torch.bool, device=device)
    seen = seen.tril() if causal else seen
    if mask is not None:
        scores = scores if mask.dtype == torch.bool else scores + mask.double()
        seen = seen & (mask if mask.dtype == torch.bool else mask > -torch.inf)
    weights = torch.softmax(scores.masked_fill(~seen, -1e300), -1) * seen
    return weights @ v.repeat_interleave(heads // kv_heads, 1)"""
_PLAIN = """\
def exact(q, k, v, mask):
    weights = torch.softmax(q @ k.repeat_interleave(heads // kv_heads, 1).mT * size**-0.5, -1)
    return weights @ v.repeat_interleave(heads // kv_heads, 1)"""
_ROWS = """\
def exact(q, k, v, mask):
    scores = q[:, :, rows] @ k.repeat_interleave(heads // kv_heads, 1).mT * size**-0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.expand(batch, heads, length, keys)[:, :, rows], -1e300)
    if causal:
        scores = scores.masked_fill(torch.arange(keys, device=device) > rows[:, None], -1e300)
    return torch.softmax(scores, -1) @ v.repeat_interleave(heads // kv_heads, 1)"""


def program(
    cases: Sequence[Case], name: str, route: str, device: str, bound: Bound, title: str
) -> str:
    """The program for calls of which the last one is wrong."""
    case, hides = cases[-1], any(one.causal or one.mask != "none" for one in cases)
    sampled = case.scores > _SCORES and not case.training
    exact = _ROWS if sampled else _EXACT if hides else _PLAIN
    lines = [*heading(title, device), *definition(name, route, hides=hides).splitlines()]
    lines += WAYS[case.how].code.splitlines()
    lines += ["", *exact.splitlines()]
    for number, one in enumerate(cases):
        last = number == len(cases) - 1
        lines += ["", *inputs(one).splitlines()]
        if one.training:
            lines += [
                "out = attention(q, k, v, mask)",
                "found = [out, *torch.autograd.grad(out, (q, k, v), upstream)]",
            ]
        else:
            lines += ["with torch.no_grad():", "    found = [attention(q, k, v, mask)]"]
        if not last:
            lines[-1] += "  # right, and needed for the fault"
    lines += ["", *_compared(case, bound, sampled=sampled).splitlines()]
    return "\n".join(lines) + "\n"


def heading(title: str, device: str) -> list[str]:
    """The first lines of a program."""
    words = textwrap.wrap(title.replace('"', "'").replace("\\", "/"), 96)
    return [f'"""{words[0]}', *words[1:], '"""', "import sys", "", "import torch", "",
            f'device = "{device}"']  # fmt: skip


def _compared(case: Case, bound: Bound, *, sampled: bool) -> str:
    lines = ["rows = torch.linspace(0, length - 1, 64).long().to(device)"] if sampled else []
    lines += ["wide = [x.detach().double().requires_grad_() for x in (q, k, v)]"]
    lines += ["right = [exact(*wide, mask)]"]
    if case.training:
        lines += ["right += torch.autograd.grad(right[0], wide, upstream.double())"]
    elif sampled:
        lines += ["found[0] = found[0][:, :, rows]"]
    lines += [
        "found, right = ([x.detach() for x in all] for all in (found, right))",
        "wrong = False",
        'for name, x, y in zip(("out", "dq", "dk", "dv"), found, right):',
        "    off = float((x - y).norm() / y.norm().clamp_min(1e-30))",
        "    strange = int((~x.isfinite()).sum())",
        '    print(f"{name}: off by {off:.2g}, {strange} values are not finite")',
    ]
    own = f'    if name == "{bound.result}":'
    if bound.figure == "finite":
        lines += [own, "        wrong = strange > 0"]
    elif bound.figure == "row":
        batch, head, row = bound.place
        lines += [
            own,
            "        usual = y.norm() / y[..., 0].numel() ** 0.5",
            f"        x, y = x[{batch}, {head}, {row}], y[{batch}, {head}, {row}]",
            "        off = float((x - y).norm() / torch.maximum(y.norm(), usual))",
            f'        print(f"row {row} of head {head} is off by {{off:.2g}}")',
        ]
    if bound.figure != "finite":
        lines += [
            own,
            f"        wrong = not off <= {bound.allowed:.2g}  # more than rounding explains",
        ]
    lines += ["sys.exit(int(wrong))"]
    return "\n".join(lines)
