"""Lines of a Python script that run or train a model, or take it out of a pipeline."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from attn_doctor.configs.readers.script_held import DENOISERS, SERVERS, held, of_name
from attn_doctor.configs.readers.script_tree import Node, dotted, last_name
from attn_doctor.configs.readers.settings import Call

#: Calls of scripts that train, and calls that scripts have which may also only run a model.
_TRAINS = re.compile(r"backward|\w*Trainer|training_step|clip_grad_norm_|train_on_responses_only")
_PREPARES = re.compile(
    r"Accelerator|GradScaler|\w*TrainingArguments|get_peft_model|enable_gradient_checkpointing"
    r"|gradient_checkpointing_enable|prepare_model_for_kbit_training|get_scheduler|add_adapter"
)
_OPTIMIZERS = re.compile(r"(?i)\w*(?:optim|scaler)\w*")
#: Calls that run a model, and calls that only prepare it for that.
_RUNS = re.compile(r"(?:fast_|batch_|stream_)?generate|generate_content|export_to_video")
_READIES = re.compile(r"eval|no_grad|inference_mode|enable_model_cpu_offload")
#: Names of pipelines, and arguments that only a call of a pipeline has.
_PIPES = re.compile(r"(?i)_?(?:\w*_)?pipe(?:line)?(?:_\w+)?")
_PROMPTED = ("prompt", "num_inference_steps", "guidance_scale", "prompt_embeds", "negative_prompt")
#: Clients of a server: their models run elsewhere.
_CLIENTS = re.compile(r"(?i)(?:^|[._])(?:client|openai|anthropic|genai|ollama|api)(?:$|[._])")


class Phases:
    """Says of a call whether it trains or runs a model."""

    def __init__(self, nodes: Sequence[Node], imported: Mapping[str, str]) -> None:
        self._held = held(nodes, imported)
        self._imported = imported
        self._functions = {
            one.tree.name
            for one in nodes
            if isinstance(one.tree, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        self.pipelines = {name for name, kind in self._held.items() if kind == "pipeline"}
        """Names that hold a pipeline of Diffusers."""

    def calls(self, node: ast.Call) -> Iterator[Call]:
        """What a call says, as `training` or `running`, with `detail` if it is not certain."""
        name, on = last_name(node.func), _on(node)
        steps = name == "step" and _OPTIMIZERS.fullmatch(on.rpartition(".")[2])
        learns = name in ("train", "fit") and "trainer" in on.lower()
        called = name or on or _below(node.func)
        if _TRAINS.fullmatch(name) or steps or learns:
            yield Call("training", name, on, node.lineno)
        elif _PREPARES.fullmatch(name):
            yield Call("training", name, on, node.lineno, detail="prepares")
        elif self._runs(node, name, on):
            what = on if _RUNS.fullmatch(name) else dotted(node.func)
            yield Call("running", called, what, node.lineno)
        elif self._server(node):
            open_ = any(one.arg is None for one in node.keywords)
            detail = "served open" if open_ else "served"
            yield Call("running", name, self._server(node), node.lineno, detail=detail)
        elif self._forward(node, name, on):
            yield Call("running", called, on, node.lineno, detail="forward")
        elif _READIES.fullmatch(name) and (name != "eval" or isinstance(node.func, ast.Attribute)):
            yield Call("running", name, on, node.lineno, detail="prepares")

    def _runs(self, node: ast.Call, name: str, on: str) -> bool:
        """The call runs a model: a pipeline, a server's class, or `generate` of a model."""
        called = dotted(node.func) or _below(node.func)
        given = bool(node.args or node.keywords)
        kind = self._held.get(called, "")
        if kind in ("pipeline", "runner"):
            return given
        last = called.rpartition(".")[2]
        # Pipe(…) of a class makes one.
        if _PIPES.fullmatch(last) and not last[0].isupper() and called not in self._functions:
            if self._imported.get(called, "").startswith("transformers"):
                return False
            prompted = any(one.arg in _PROMPTED for one in node.keywords)
            return prompted or (given and isinstance(node.func, ast.Name))
        if name == "export_to_video":
            return True
        if not _RUNS.fullmatch(name) or not isinstance(node.func, ast.Attribute):
            return False
        own = name in self._functions and on in ("self", "cls")
        made = node.func.value
        if isinstance(made, ast.Call) and self._server(made):
            return False
        return not own and self._held.get(on) != "server" and not _CLIENTS.search(on)

    def _server(self, node: ast.Call) -> str:
        """The program whose server the call makes; empty for any other call."""
        module = self._imported.get(dotted(node.func).partition(".")[0], "")
        if last_name(node.func) not in SERVERS:
            return ""
        return {"vllm": "vLLM", "sglang": "SGLang"}.get(module.partition(".")[0], "")

    def _forward(self, node: ast.Call, name: str, on: str) -> bool:
        """The call is one forward pass, or one step of denoising: a part of a training too."""
        called = dotted(node.func)
        if name == "step" and "scheduler" in on.lower() and len(node.args) >= 3:
            return True
        return bool(node.args or node.keywords) and of_name(called, self._held) == "model"

    # transformer = pipe.transformer
    def taken(self, node: ast.Assign | ast.Return) -> Iterator[Call]:
        """The denoising model of a pipeline that code takes out of it."""
        whole, _, part = dotted(node.value).rpartition(".") if node.value else ("", "", "")
        if part in DENOISERS and whole in self.pipelines:
            yield Call("taken", part, whole, node.lineno)


def _below(node: ast.expr) -> str:
    """`pipes` of `pipes["text"](…)`; empty for anything else."""
    return dotted(node.value) if isinstance(node, ast.Subscript) else ""


def _on(node: ast.Call) -> str:
    return dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""
