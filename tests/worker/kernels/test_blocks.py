"""What a block is built from: inputs, weights and references, and every recipe in diffusers' eyes.

The latter needs an interpreter with diffusers; nothing is computed there, only shapes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.spec_requests import SpecArgs, requested_specs

PYTHON = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
ROOT = Path(__file__).parents[3]
START = f"import json, sys, torch\nsys.path.insert(0, {str(ROOT)!r})\n"


def run_in_torch(code: str, given: Any = None) -> Any:
    """What a program of the examined interpreter writes as its last line."""
    done = subprocess.run(
        [PYTHON, "-c", START + code], input=json.dumps(given),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.torch
def test_inputs_hold_what_their_recipe_says() -> None:
    code = """
from attn_doctor.worker.kernels.blocks.model_inputs import Feed
recipe = json.load(sys.stdin)
sizes = {"batch": 2, "text": 8, "frames": 3, "rows": 2, "columns": 4}
feed = Feed(torch, recipe, sizes)
once, again = (feed.inputs("cpu", one, torch.bfloat16) for one in (torch.bfloat16, torch.float64))
print(json.dumps({
    "same": bool((once["x"].double() == again["x"]).all() and once["x"].std() > 0.1),
    "lists": [list(one.shape) for one in once["many"]],
    "tuple": [one.tolist() for one in once["axes"]],
    "numbers": [once["height"], once["img_shapes"]],
    "held": {name: [str(once[name].dtype), once[name][-1].tolist()]
             for name in ("timestep", "t_own", "a_mask", "b_mask", "lens", "ids", "pos_ids")},
}))
"""
    found = run_in_torch(
        code,
        {
            "inputs": {
                "x": ["batch", 64],
                "timestep": ["batch"],
                "t_own": ["batch"],
                "a_mask": ["batch", "text"],
                "b_mask": ["batch", "text"],
                "lens": ["batch"],
                "ids": ["batch", "text"],
                "pos_ids": ["batch", 1],
            },
            "lists": {"many": ["text", 5]},
            "tuples": {"axes": [["frames"], ["rows*2"]]},
            "numbers": {"height": "rows"},
            "shapes": "img_shapes",
            "holds": {
                "t_own": "half own",
                "b_mask": "padded bool",
                "lens": "text*3/4",
                "ids": "index",
                "axes": "count",
            },
        },
    )
    assert found["same"]
    assert found["lists"] == [[8, 5], [8, 5]]
    assert found["tuple"] == [[0, 1, 2], [0, 1, 2, 3]]
    assert found["numbers"] == [2, [[[3, 2, 4]]] * 2]
    assert found["held"] == {
        "timestep": ["torch.float32", 0.5],
        "t_own": ["torch.bfloat16", 0.5],
        "a_mask": ["torch.int64", [1] * 6 + [0] * 2],
        "b_mask": ["torch.bool", [True] * 6 + [False] * 2],
        "lens": ["torch.int64", 6],
        "ids": ["torch.int64", [0] * 8],
        "pos_ids": ["torch.float32", [0.0]],
    }


@pytest.mark.torch
def test_weights_are_cast_as_a_checkpoint_is_and_let_attention_show() -> None:
    """`model.to()` would cast tables of rotations, and modules that stay in float32."""
    code = """
from attn_doctor.worker.kernels.blocks import weights

class Backend(str):
    pass

class Processor:
    _attention_backend = None

class Attention(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.processor = Processor()
        self.processor._attention_backend = Backend("flex")

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.norm1 = Attention(), torch.nn.LayerNorm(4)

class Model(torch.nn.Module):
    _keep_in_fp32_modules = ["norm1"]
    _repeated_blocks = ["Block"]
    def __init__(self):
        super().__init__()
        self.refiner, self.layers = Attention(), torch.nn.ModuleList([Block()])
        self.last = torch.nn.Linear(4, 4)
        torch.nn.init.zeros_(self.last.weight)
        self.register_buffer("table", torch.ones(2), persistent=False)
        self.register_buffer("scale", torch.ones(2))

def exact():
    model = Model()
    weights.cast(torch, model, torch.float64)
    return [str(one.dtype) for one in model.parameters()] + [str(model.last(torch.ones(4)).dtype)]

model = Model()
before = model.layers[0].attn.weight.detach().clone()
outside = weights.plain_outside(model)
weights.awaken(torch, model)
grown = (model.layers[0].attn.weight / before).mean().item()
weights.cast(torch, model, torch.bfloat16)
print(json.dumps({
    "dtypes": {name: str(one.dtype) for name, one in
               [*model.named_parameters(), *model.named_buffers()]},
    "outside": outside,
    "backends": [model.refiner.processor._attention_backend,
                 model.layers[0].attn.processor._attention_backend],
    "grown": grown,
    "woken": bool(model.last.weight.any()),
    "trained": all(one.requires_grad for one in model.parameters()),
    "exact": exact(),
}))
"""
    found = run_in_torch(code)
    kept = {name for name, dtype in found["dtypes"].items() if dtype == "torch.float32"}
    assert kept == {"layers.0.norm1.weight", "layers.0.norm1.bias", "table"}
    assert found["dtypes"]["scale"] == "torch.bfloat16"
    assert (found["outside"], found["backends"]) == (1, ["native", "flex"])
    assert found["grown"] == pytest.approx(2)
    assert found["woken"]
    assert found["trained"]
    assert set(found["exact"]) == {"torch.float64"}


@pytest.mark.torch
def test_rows_that_may_see_nothing_are_zeros_with_gradients_of_zero() -> None:
    code = """
from attn_doctor.worker.kernels.blocks.eager_attention import nothing, open_rows, replaced
from attn_doctor.worker.reference import scaled_dot_product
torch.manual_seed(0)
def given():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
valid = torch.tensor([True, True, True, False, False])
mask = (valid[:, None] & valid[None, :])[None, None]
def step(attention):
    tensors = given()
    out = attention(*tensors, attn_mask=mask)
    out.square().sum().backward()
    return out, [one.grad for one in tensors]
exact = open_rows(scaled_dot_product(torch), torch)
out, grads = step(exact)
true, wanted = step(torch.nn.functional.scaled_dot_product_attention)
before = torch.nn.functional.scaled_dot_product_attention
with replaced(torch, nothing):
    none = torch.nn.functional.scaled_dot_product_attention(*given())
print(json.dumps({
    "off": max(float((one - other).abs().max()) for one, other in
               [(out, true), *zip(grads, wanted)]),
    "hidden": float(out[:, :, 3:].abs().max()),
    "none": [list(none.shape), bool(none.any())],
    "back": torch.nn.functional.scaled_dot_product_attention is before,
}))
"""
    found = run_in_torch(code)
    assert found["off"] < 1e-12
    assert found["hidden"] == 0
    assert found["none"] == [[1, 2, 5, 4], False]
    assert found["back"]


@pytest.mark.torch
def test_an_output_that_hardly_depends_on_attention_is_reported() -> None:
    """It was seen with Flux 2: its attention was wrong on the CPU, and the output 0.3 % off."""
    code = """
from attn_doctor.worker.kernels.blocks import Block
block = Block.__new__(Block)
block.torch = torch
true = {"out": torch.ones(100).double()}
def share_limit(share):
    block._other = lambda state, dtype, attention: {"out": true["out"] * (1 - share)}
    return block._insensitive({}, true, 0.01)
print(json.dumps([share_limit(0.003), share_limit(0.2)]))
"""
    little, enough = run_in_torch(code)
    assert little.startswith("attention makes 0.003 of the output")
    assert enough == ""


@pytest.mark.torch
def test_a_wrong_row_of_a_block_is_found() -> None:
    """It does not show in the error of the whole output."""
    code = """
from attn_doctor.worker.kernels.blocks import _worst_row
torch.manual_seed(0)
true = torch.randn(4000, 64).double()
eager, seen = (true * (1 + 4e-3 * torch.randn(4000, 64)) for _ in range(2))
found = [_worst_row(torch, 64, seen.flatten(), eager.flatten(), true.flatten())]
for change in (lambda row: row * 0, lambda row: row * 1.05, lambda row: row * float("nan")):
    wrong = seen.clone()
    wrong[2000] = change(wrong[2000])
    found.append(_worst_row(torch, 64, wrong.flatten(), eager.flatten(), true.flatten()))
print(json.dumps(found))
"""
    right, *wrong = run_in_torch(code)
    assert right == ""
    assert all(one.startswith("row 2000 of the output differs from float64") for one in wrong)


@pytest.mark.torch
def test_diffusers_takes_every_recipe() -> None:
    """At full width on the device `meta`: every class, option, input and shape fits the others."""
    jobs = []
    for name, family in presets.families().items():
        recipe = presets.recipe(name)
        if not recipe:
            continue
        side = 8 * family["spatial"]
        size = f"{side}x{side}" + (f"x{2 * family['temporal'] + 1}" if "temporal" in family else "")
        (spec,) = requested_specs(SpecArgs(preset=[f"{name}@{size}"], block=True)).specs
        jobs.append({"spec": msgspec.to_builtins(spec), "block": recipe})
    code = """
try:
    import diffusers
except ImportError:
    print(json.dumps(None))
    sys.exit()
from attn_doctor.worker.kernels.blocks import Block, BlockError
import contextlib
torch.randn = lambda *shape, **options: torch.empty(*shape, device="meta")
torch.autocast = lambda *device, **options: contextlib.nullcontext()  # there is none for `meta`
found = {}
for job in json.load(sys.stdin):
    name = job["spec"]["block"]
    try:
        block = Block(torch, job, "meta")
    except BlockError as error:
        found[name] = str(error)
        continue
    block.training = False
    try:
        model = block._model(torch.bfloat16, "native")
        out = block._step(model, block._inputs(torch.bfloat16))["out"]
        found[name] = list(out.shape)
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"[:300]
print(json.dumps([diffusers.__version__, found]))
"""
    answer = run_in_torch(code, jobs)
    if answer is None:
        pytest.skip("the interpreter of ATTN_DOCTOR_TORCH_PYTHON has no diffusers")
    version, found = answer
    # What they keep of their text follows the values of masks, and `meta` has no values.
    for name, reason in (("hunyuanvideo15", "meta"), ("glm-image", "nonzero")):
        assert reason in found.pop(name)
    for name, got in found.items():
        # An older diffusers lacks some classes, and says so.
        assert isinstance(got, list) or f"{version} has no" in got, (name, got)
