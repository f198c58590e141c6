"""Programs as users write them, for kernels that are built without a GPU; without attn-doctor.

    python target_program.py CASE…          FlexAttention, forward and backward, one after another
    python target_program.py block          one real transformer block of Diffusers, three steps

It prints one JSON line for each: seconds of the first call, torch's own counters, and with
`--errors` how far the results are from float64. It serves in both roles: as the warm-up on the
machine that builds, and as the program on the GPU (`benchmarks/target.py`).
"""

# ruff: noqa: ARG001 (FlexAttention's functions take four arguments)
from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Case(NamedTuple):
    """One way to call FlexAttention: batch 2, bf16."""

    heads: int
    kv_heads: int
    length: int
    dim: int
    mask: str = ""
    softcap: float = 0.0
    dynamic: bool = False


CASES = {
    "hd64-none": Case(8, 8, 2048, 64),
    "hd64-causal": Case(8, 8, 2048, 64, "causal"),
    "hd128-none": Case(8, 8, 2048, 128),
    "hd128-causal": Case(8, 8, 2048, 128, "causal"),
    "hd128-document-gqa": Case(8, 2, 2048, 128, "document"),
    "hd64-softcap": Case(8, 8, 2048, 64, "causal", softcap=20.0),
    "hd128-dynamic": Case(8, 8, 1920, 128, "causal", dynamic=True),
}
BATCH = 2


def causal(batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Each row sees what came before it."""
    return q_idx >= kv_idx


def soft(score: Any, batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Scores bent so that none is larger than 20."""
    return 20.0 * torch.tanh(score / 20.0)


def attention(name: str, device: str) -> dict[str, Any]:
    """One case: compile, run once, and compare with float64 where something is computed."""
    case = CASES[name]
    torch.manual_seed(0)

    def tensor(heads: int) -> torch.Tensor:
        shape = (BATCH, heads, case.length, case.dim)
        return torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_()

    query, key, value = tensor(case.heads), tensor(case.kv_heads), tensor(case.kv_heads)
    more: dict[str, Any] = {}
    document = torch.arange(case.length, device=device, dtype=torch.int32) // 512

    def same_document(batch: Any, head: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)

    if case.mask:
        mask = {"causal": causal, "document": same_document}[case.mask]
        more["block_mask"] = create_block_mask(
            mask, None, None, case.length, case.length, device=device
        )
    if case.softcap:
        more["score_mod"] = soft
    if case.heads != case.kv_heads:
        more["enable_gqa"] = True
    compiled = torch.compile(flex_attention, dynamic=case.dynamic)
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = compiled(query, key, value, **more)
    gradient = torch.ones_like(out)
    grads = torch.autograd.grad(out, (query, key, value), gradient)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {
        "case": name,
        "seconds": seconds,
        "results": (case, query, key, value, document, out, grads),
    }


def errors(
    case: Case, query: Any, key: Any, value: Any, document: Any, out: Any, grads: Any
) -> dict[str, float]:
    """Relative error of the output and the gradients against plain attention in float64."""
    rows = torch.arange(case.length, device=query.device)
    seen = torch.ones(case.length, case.length, dtype=torch.bool, device=query.device)
    if case.mask:
        seen = rows[:, None] >= rows[None]
    if case.mask == "document":
        seen = seen & (document[:, None] == document[None])
    inputs = [one.detach().double().requires_grad_() for one in (query, key, value)]
    groups = case.heads // case.kv_heads
    keys, values = (one.repeat_interleave(groups, 1) for one in inputs[1:])
    scores = inputs[0] @ keys.transpose(-1, -2) * case.dim**-0.5
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    true = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values
    wanted = torch.autograd.grad(true, inputs, torch.ones_like(true))
    pairs = {"out": (out, true), **dict(zip(("dq", "dk", "dv"), zip(grads, wanted)))}  # noqa: B905
    return {
        name: float((seen.double() - exact).norm() / exact.norm())
        for name, (seen, exact) in pairs.items()
    }


def block(device: str) -> dict[str, Any]:
    """One layer of FLUX.1 at full width, compiled as Diffusers recommends, trained three steps."""
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    with torch.device(device):
        model = FluxTransformer2DModel(num_layers=1, num_single_layers=1, guidance_embeds=True)
    model = model.to(torch.bfloat16).train()
    model.set_attention_backend("flex")
    model.compile_repeated_blocks(fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16)

    text, image = 512, 1024
    inputs = {
        "hidden_states": randn(1, image, 64),
        "encoder_hidden_states": randn(1, text, 4096),
        "pooled_projections": randn(1, 768),
        "timestep": torch.full((1,), 0.5, device=device),
        "guidance": torch.full((1,), 3.5, device=device),
        "img_ids": torch.zeros(image, 3, device=device),
        "txt_ids": torch.zeros(text, 3, device=device),
    }
    target = randn(1, image, 64)
    losses, seconds = [], []
    for _ in range(3):
        start = time.perf_counter()
        out = model(**inputs, return_dict=False)[0]
        loss = (out - target).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.detach())
    return {
        "case": "block",
        "seconds": seconds[0],
        "later": seconds[1:],
        "losses": [float(one) for one in losses],
    }


def main() -> None:
    """Run what was named, in this order. With `--errors`, compare as well."""
    names = [name for name in sys.argv[1:] if name != "--errors"]
    for name in names:
        torch._dynamo.reset()
        counters.clear()
        torch.zeros(1, device="cuda")
        answer = block("cuda") if name == "block" else attention(name, "cuda")
        answer["counters"] = {
            f"{group}.{one}": number
            for group in ("aot_autograd", "inductor")
            for one, number in counters[group].items()
            if "cache" in one or "bundler" in one
        }
        results = answer.pop("results", None)
        if results is not None and "--errors" in sys.argv:
            answer["errors"] = errors(*results)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
