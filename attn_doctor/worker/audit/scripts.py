"""Probes that are more than one call compared with float64: each is a few lines of plain torch.

The lines set `wrong`: what is wrong, empty if nothing is. They use `attention(q, k, v, mask)`, the
backend that is examined, or call a library. `device` is set; other names are as in `lines.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from attn_doctor.worker.audit.program import heading
from attn_doctor.worker.audit.ways import definition


class Script(NamedTuple):
    """One probe."""

    code: str
    why: str
    tolerance: str
    """The bound in the lines, and its reason."""
    backends: tuple[str, ...] = ()
    """For which backends it is; empty: all."""
    routes: tuple[str, ...] = ()
    device: str = ""
    training: bool = True


_NATIVE = ("native", "_native_cudnn", "_native_efficient", "_native_flash", "_native_math")
_SIZES = """\
batch, heads, kv_heads, length, keys, size = 2, 2, 2, {length}, {length}, 64
dtype, causal = torch.bfloat16, False
torch.manual_seed(0)
q, k, v = (torch.randn(2, 2, {length}, 64).to(device, dtype) for _ in range(3))
"""
_GRADIENTS = _SIZES + "q, k, v = (x.requires_grad_() for x in (q, k, v))\n"
SCRIPTS = {
    "the same result twice": Script(
        _GRADIENTS.format(length=192)
        + """\
upstream = torch.randn(2, 2, 192, 64).to(device, dtype)
torch.use_deterministic_algorithms(True)
found = []
for _ in range(3):
    out = attention(q, k, v, None)
    found.append([out, *torch.autograd.grad(out, (q, k, v), upstream)])
torch.use_deterministic_algorithms(False)
names = [name for name, *all in zip(("out", "dq", "dk", "dv"), *found)
         if not all[0].equal(all[1]) or not all[0].equal(all[2])]
wrong = f"{', '.join(names)} differ from call to call, although they must not" if names else ""
""",
        "sums whose order changes although `use_deterministic_algorithms` forbids it",
        "none: equal in every bit",
    ),
    "outputs are not overwritten": Script(
        _SIZES.format(length=192)
        + """\
out = attention(q, k, v, None)
kept = out.detach().clone()
later = [attention(k, v, q, None) for _ in range(3)]
wrong = "" if out.equal(kept) else "the output of one call is overwritten by later calls"
""",
        "a buffer that calls share",
        "none: equal in every bit",
        training=False,
    ),
    "inputs are not changed": Script(
        _GRADIENTS.format(length=192)
        + """\
upstream = torch.randn(2, 2, 192, 64).to(device, dtype)
kept = [x.detach().clone() for x in (q, k, v, upstream)]
out = attention(q, k, v, None)
torch.autograd.grad(out, (q, k, v), upstream)
names = [name for name, x, y in zip(("q", "k", "v", "the gradient"), (q, k, v, upstream), kept)
         if not x.equal(y)]
wrong = f"{', '.join(names)} changed in place" if names else ""
""",
        "inputs that are scaled or converted in place",
        "none: equal in every bit",
    ),
    "gradients add up": Script(
        _GRADIENTS.format(length=192)
        + """\
one, two = attention(q, k, v, None), attention(q, k, v, None)
both = torch.autograd.grad(one.sum() + two.sum(), (q, k, v))
single = torch.autograd.grad(attention(q, k, v, None).sum(), (q, k, v))
off = max(float((x - 2 * y).norm() / (2 * y).norm()) for x, y in zip(both, single))
wrong = f"gradients of two calls are not twice those of one: {off:.2g}" if off > 2**-6 else ""
""",
        "memory that two calls of one graph share",
        "2**-6: a sum of two gradients in bfloat16, 2**-9 for each of them and their sum",
    ),
    "dropout": Script(
        """\
batch, heads, kv_heads, length, keys, size, causal = 2, 4, 4, 64, 64, 64, False
dtype, drop = torch.float32, 0.25
torch.manual_seed(0)
q, k = (torch.randn(2, 4, 64, 64, device=device, requires_grad=True) for _ in range(2))
v = torch.eye(64, device=device).expand(2, 4, 64, 64).clone().requires_grad_()
upstream = torch.randn(2, 4, 64, 64, device=device)
def run(seed):
    torch.manual_seed(seed)
    out = dropped(q, k, v, drop)
    return [out, *torch.autograd.grad(out, (q, k, v), upstream)]
first, again, other = run(1), run(1), run(2)
# The values are the unit matrix, so that the output is the matrix of weights.
weights = torch.softmax(q @ k.mT / 8, -1)
kept = first[0] != 0
limit = 2e-2
right = torch.where(kept, weights / (1 - drop), 0)
# The gradients of the same weights, in float32.
grad_q, grad_k = torch.autograd.grad((right * (upstream @ v.mT).detach()).sum(), (q, k))
grad_v = right.detach().mT @ upstream
share = float((~kept).float().mean())
def off(x, y):
    return float((x - y).norm() / y.norm())
wrong = ""
if not all(x.equal(y) for x, y in zip(first, again)):
    wrong = "the same seed drops other weights"
elif other[0].equal(first[0]):
    wrong = "another seed drops the same weights"
elif abs(share - drop) > 0.02:
    wrong = f"{share:.1%} of the weights are dropped, not {drop:.0%}"
elif kept[0, 0].equal(kept[0, 1]) or kept[0, 0].equal(kept[1, 0]):
    wrong = "all heads or samples drop the same weights"
elif off(first[0], right) > limit:
    wrong = f"kept weights are off by {off(first[0], right):.2g}"
else:
    for name, x, y in zip(("dq", "dk", "dv"), first[1:], (grad_q, grad_k, grad_v)):
        if off(x, y) > limit:
            wrong = f"{name} is off by {off(x, y):.2g}: the backward drops other weights"
""",
        "seeds, the scale of what is kept, and the weights that the backward drops",
        "2e-2: float32, or TF32 on a GPU (2**-11 for each product); 2 points of the share are four"
        " standard deviations of 32768 weights",
        backends=("native", "_native_efficient", "_native_math"),
    ),
    "log-sum-exp of FlexAttention": Script(
        _SIZES.format(length=192)
        + """\
from torch.nn.attention import flex_attention as flex
run = torch.compile(flex.flex_attention) if compiled else flex.flex_attention
found = run(q, k, v, return_lse=True)[1]
right = torch.logsumexp(q.double() @ k.double().mT / 8, -1)
off = float((found - right).abs().max())
wrong = f"log-sum-exp is off by {off:.2g}" if off > 0.05 else ""
""",
        "a log-sum-exp in another base, or without the scale",
        "0.05: unfused scores are rounded to bfloat16, by 2**-9 of up to 4",
        backends=("flex",),
        training=False,
    ),
    "captured buffers of FlexAttention": Script(
        _SIZES.format(length=192)
        + """\
from torch.nn.attention import flex_attention as flex
run = torch.compile(flex.flex_attention) if compiled else flex.flex_attention
wrong = ""
bias = torch.zeros(2, 192, device=device)
ends = torch.tensor([100, 150], device=device)
for turn in range(3):
    bias.copy_(torch.randn(2, 192))
    ends.copy_(torch.tensor([100 - 30 * turn, 150 + 20 * turn]))
    def seen(b, h, row, column):
        return column < ends[b]
    def biased(score, b, h, row, column):
        return score + bias[h, column]
    block = flex.create_block_mask(seen, 2, 2, 192, 192, device=device)
    out = run(q, k, v, score_mod=biased, block_mask=block)
    scores = q.double() @ k.double().mT / 8 + bias.double()[None, :, None]
    hidden = torch.arange(192, device=device) >= ends[:, None]
    right = torch.softmax(scores.masked_fill(hidden[:, None, None], -1e300), -1) @ v.double()
    off = float((out - right).norm() / right.norm())
    if off > 2**-6:
        wrong = wrong or f"call {turn + 1} is off by {off:.2g}: its bias or mask is that of another"
""",
        "tensors that a function captures, changed in place between calls",
        "2**-6: scores, weights and output in bfloat16, 2**-9 each",
        backends=("flex",),
        training=False,
    ),
    "blocks without a function": Script(
        _SIZES.format(length=256)
        + """\
from torch.nn.attention import flex_attention as flex
run = torch.compile(flex.flex_attention) if compiled else flex.flex_attention
count = torch.ones(1, 1, 2, device=device, dtype=torch.int32)
index = torch.tensor([[[[0, 1], [1, 0]]]], device=device, dtype=torch.int32)
block = flex.BlockMask.from_kv_blocks(count * 0, index, count, index, BLOCK_SIZE=128)
out = run(q, k, v, block_mask=block)
scores = q.double() @ k.double().mT / 8
tile = torch.arange(256, device=device) // 128
right = torch.softmax(scores.masked_fill(tile != tile[:, None], -1e300), -1) @ v.double()
off = float((out - right).norm() / right.norm())
wrong = f"the blocks of the mask are not used: off by {off:.2g}" if off > 2**-6 else ""
""",
        "masks that are made of blocks alone, as sparse video attention has them",
        "2**-6: scores, weights and output in bfloat16, 2**-9 each",
        backends=("flex",),
        training=False,
    ),
    "tokens behind the last sequence": Script(
        """\
ends = torch.tensor([0, 40, 120, 190], dtype=torch.int32, device=device)
torch.manual_seed(0)
x = torch.randn(3, 200, 2, 64, device=device).to(torch.bfloat16).requires_grad_()
q, k, v = x
causal = False
poison = [torch.full((200, 2, 64), float("nan"), device=device, dtype=x.dtype) for _ in range(20)]
del poison  # the next tensors lie in its memory
out = varlen(q, k, v, ends, 80)
grad, = torch.autograd.grad(out[:190].float().sum(), x)
strange = int((~grad[:, :190].isfinite()).sum()) + int((~out[:190].isfinite()).sum())
spread = int((~grad[:, 190:].isfinite()).sum())
right = torch.cat([
    torch.nn.functional.scaled_dot_product_attention(
        *(y[a:b].transpose(0, 1).double() for y in (q, k, v))).transpose(0, 1)
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist())])
off = float((out[:190].detach() - right).norm() / right.norm())
wrong = ""
if strange or spread:
    wrong = f"{strange} values are NaN, and {spread} gradients of tokens behind the last sequence"
elif off > 2**-6:
    wrong = f"sequences are off by {off:.2g}: they see tokens of others"
""",
        "padding behind cu_seqlens[-1]: gradients of memory that no kernel writes",
        "2**-6: weights and output in bfloat16, 2**-9 each",
        backends=("flash_varlen", "_flash_varlen_3", "_native_flash"),
        device="cuda",
    ),
}
_DROPPED = """\
def dropped(q, k, v, p):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
"""
_DROPPED_WITH = """\
from torch.nn.attention import SDPBackend, sdpa_kernel
def dropped(q, k, v, p):
    with sdpa_kernel(SDPBackend.{kernel}):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
"""
_VARLEN = """\
from {module} import flash_attn_varlen_func
def varlen(q, k, v, ends, longest):
    out = flash_attn_varlen_func(q, k, v, ends, ends, longest, longest, causal=causal)
    return out[0] if isinstance(out, tuple) else out
"""
_TORCH_VARLEN = """\
from torch.nn.attention.varlen import varlen_attn
def varlen(q, k, v, ends, longest):
    return varlen_attn(q, k, v, ends, ends, longest, longest)
"""


def applies(script: Script, name: str, route: str, device: str, *, training: bool) -> bool:
    """Whether a script is for a backend on a device."""
    return (
        (not script.backends or name in script.backends)
        and (not script.routes or route in script.routes)
        and device.startswith(script.device)
        and (training or not script.training)
    )


def prelude(name: str, route: str, code: str) -> str:
    """The lines that define what a script uses of a backend."""
    lines = [f"compiled = {route == 'compiled'}"] if "compiled" in code else []
    if "attention(q" in code or "attention(k" in code:
        lines.append(definition(name, route, hides=False))
    if "dropped(" in code:
        kernel = {"_native_efficient": "EFFICIENT_ATTENTION", "_native_math": "MATH"}.get(name)
        lines.append(_DROPPED_WITH.format(kernel=kernel) if kernel else _DROPPED)
    if "varlen(" in code and name == "_native_flash":
        lines.append(_TORCH_VARLEN)
    elif "varlen(" in code:
        module = "flash_attn" if name == "flash_varlen" else "flash_attn_interface"
        lines.append(_VARLEN.format(module=module))
    return "\n".join(lines)


def program(script: Script, name: str, route: str, device: str, title: str) -> str:
    """The script as a program of its own, which ends with 1 where something is wrong."""
    lines = [
        *heading(title, device),
        *prelude(name, route, script.code).splitlines(),
        "",
        *script.code.splitlines(),
        'print(wrong or "right")',
        "sys.exit(int(bool(wrong)))",
    ]
    return "\n".join(lines) + "\n"
