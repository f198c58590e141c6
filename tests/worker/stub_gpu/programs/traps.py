"""Each trap in a fork of this process, which has torch imported and has touched no GPU.

    python traps.py FOLDER TRAP …      one JSON line: trap → its result

What a trap returns is its answer; its report is moved to FOLDER/<trap>.
"""

import contextlib
import json
import os
import sys
import traceback
from typing import Any

import torch
import torch._dynamo
import torch._functorch._aot_autograd.autograd_cache
import torch._inductor.compile_fx
import torch._inductor.config as inductor
import torch._inductor.fx_passes.joint_graph
from torch.nn.attention.flex_attention import flex_attention

FOLDER = sys.argv[1]
REPORTS = os.environ["ATTN_DOCTOR_STUB_GPU_REPORT"]


def twice(x: Any) -> Any:
    return x * 2 + 1


def vector(n: Any = 64) -> Any:
    return torch.randn(n, device="cuda")


def compiled(function: Any = twice, *args: Any, **options: Any) -> Any:
    return torch.compile(function, **options)(*(args or (vector(),)))


def flex(length: Any = 128) -> Any:
    q, k, v = (
        torch.randn(1, 1, length, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    out = torch.compile(flex_attention)(q, k, v)
    return out, torch.autograd.grad(out, (q, k, v), torch.ones_like(out))


# What has to work


def folded() -> Any:
    """What was folded on the way, by name of the operation."""
    values = []
    folder = torch._inductor.fx_passes.joint_graph.UniformValueConstantFolder
    before = folder.add_node_replacement

    def add_node_replacement(self: Any, node: Any, tensor: Any) -> Any:
        before(self, node, tensor)
        values.append([str(node.target), self.node_replacements[node], str(tensor.device)])

    folder.add_node_replacement = add_node_replacement
    flex()

    def constant(x: Any) -> Any:
        made = torch.full((8, 8), 2.0, device="cuda") * 3 + torch.ones(8, 8, device="cuda")
        return x * made * 0

    torch.compile(constant)(torch.randn(8, 8, device="cuda"))
    return values


def printed() -> Any:
    out = compiled()
    print("loss", out.sum().item(), file=sys.stderr)  # <- printed
    return True


def printed_between() -> Any:
    x = vector().requires_grad_()
    out = compiled(twice, x).sum()
    print("loss", out.item(), file=sys.stderr)  # <- printed_between
    out.backward()
    return sorted(torch._dynamo.utils.counters["aot_autograd"])


def known() -> Any:
    """A value that the host wrote is read truly."""
    n = torch.tensor([3], device="cuda").item()
    compiled()
    return n


def chosen() -> Any:
    """A kernel of several configurations; how many a fresh process gets from the cache."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    seen = []
    run = CachingAutotuner.run

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.launchers:
            self.precompile()
        seen.append([len(self.launchers), len(self.configs or self.compile_results)])
        return run(self, *args, **kwargs)

    CachingAutotuner.run = watched
    x = torch.randn(300, 5000, device="cuda", requires_grad=True)
    compiled(lambda x: torch.nn.functional.layer_norm(x.sin(), (5000,)), x).sum().backward()
    counters = torch._dynamo.utils.counters["aot_autograd"]
    return {"launchers": seen, "hit": counters["autograd_cache_hit"]}


def chosen_again() -> Any:
    return chosen()


def product(n: Any = 1003) -> Any:
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)

    def square(a: Any) -> Any:
        return a @ a  # <- padded

    return compiled(square, a)


def unpadded() -> Any:
    inductor.shape_padding = False
    product()
    return True


def unpadded_by_word() -> Any:
    os.environ["ATTN_DOCTOR_UNPADDED"] = "1"
    product(1005)
    return True


def aligned() -> Any:
    product(1024)
    return True


def attention_of_cudnn() -> Any:
    q = torch.randn(1, 2, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    out = compiled(torch.nn.functional.scaled_dot_product_attention, q, q, q)
    out.sum().backward()
    eager = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    return [list(out.shape), list(q.grad.shape), type(eager.grad_fn).__name__]


def convolution() -> Any:
    model = torch.nn.Conv2d(4, 4, 3, device="cuda")
    compiled(model, torch.randn(1, 4, 8, 8, device="cuda")).sum().backward()
    return True


def recorded() -> Any:
    compiled(twice, vector(), mode="reduce-overhead")
    out = compiled(twice, vector(), mode="reduce-overhead")
    return list(out.shape)


def trained() -> Any:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 64)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    run = torch.compile(model)
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(torch.randn(8, 64, device="cuda")).float().pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item(), file=sys.stderr)
    return True


# What has to be refused


def branch() -> Any:
    x = vector()
    if x.sum().item() >= 0:  # <- branch
        compiled(twice, x)


def branch_without_compiling() -> Any:
    return bool(vector().sum().item() >= 0)


def tracing() -> Any:
    x = vector()

    @torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
    def scale() -> Any:
        return int(x.sum().item())  # <- tracing

    compiled(lambda y: y * scale(), x)


def broken_graph() -> Any:
    def function(x: Any) -> Any:
        y = x * 2
        if y.sum().item() >= 0:  # <- broken_graph
            return y.sin()
        return y.cos()

    compiled(function)


def autotuned() -> Any:
    compiled(twice, vector(), mode="max-autotune-no-cudagraphs")


def padded() -> Any:
    product()


def frozen() -> Any:
    inductor.freezing = True
    with torch.no_grad():
        compiled(torch.nn.Linear(8, 8).cuda(), torch.randn(8, 8, device="cuda"))


def folded_otherwise() -> Any:
    from torch._inductor.constant_folding import constant_fold

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(4, device="cuda"))

        def forward(self, x: Any) -> Any:
            return x + self.weight * 2

    constant_fold(torch.fx.symbolic_trace(Module()))  # <- folded_otherwise


def descended() -> Any:
    inductor.coordinate_descent_tuning = True
    compiled()


def shared() -> Any:
    inductor.fx_graph_remote_cache = True
    compiled()


def moved() -> Any:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(FOLDER, "elsewhere")
    compiled()


def profiled() -> Any:
    """Chooses what to compute again in the backward, by timing it."""
    torch._functorch.config.activation_memory_budget = 0.3
    torch._functorch.config.activation_memory_budget_runtime_estimator = "profile"
    weights = [torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(4)]

    def chain(x: Any) -> Any:
        for weight in weights:
            x = torch.relu(x @ weight)
        return x

    compiled(chain, torch.randn(64, 64, device="cuda"))


def launched() -> Any:
    """A pass of the user's own that computes on the device; whatever it is for."""

    def custom(graph: Any) -> Any:
        torch.ones(4, device="cuda").mul(2)

    inductor.post_grad_custom_post_pass = custom
    compiled()


def timed() -> Any:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    if start.elapsed_time(end) < 1:  # <- timed
        compiled()


def swallowed() -> Any:
    with contextlib.suppress(Exception):
        branch()
    with contextlib.suppress(Exception):
        compiled(lambda x: x.tan() * 7)
    return True


def lying() -> Any:
    """It hides what it can, and goes on."""
    torch._dynamo.config.suppress_errors = True
    x = vector()
    n = x.sum().item()  # <- lying
    for _ in range(2):
        with contextlib.suppress(BaseException):
            compiled(lambda x: x.tan() * (n + 11), x)
    return True


def files() -> Any:
    found = []
    for folder, _, names in os.walk(os.environ["TORCHINDUCTOR_CACHE_DIR"]):
        found += [os.path.join(folder, name) for name in names]
    return sorted(found)


def one(name: Any) -> Any:
    """Run a trap in a fork; its answer, the error it ended with, and the files it left."""
    before = set(files())
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = {"error": "", "answer": None}
        try:
            answer["answer"] = globals()[name]()
        except BaseException as error:
            traceback.print_exc()
            answer["error"] = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer, default=repr).encode())
        sys.stderr.flush()
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    found = json.loads(text) if text else {"error": f"status {status}", "answer": None}
    cache = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    added = [os.path.relpath(path, cache) for path in files() if path not in before]
    graphs = ("fxgraph", "aotautograd")
    kept = [path for path in added if path.startswith(graphs) or "best_config" in path]
    os.mkdir(os.path.join(FOLDER, name))
    for prefix in ("guard-", "used-"):
        for path in os.listdir(REPORTS):
            if path.split(".")[0] == f"{prefix}{pid}":
                os.rename(os.path.join(REPORTS, path), os.path.join(FOLDER, name, path))
    return {**found, "kept": kept}


if __name__ == "__main__":
    print(json.dumps({name: one(name) for name in sys.argv[2:]}))
