"""Names of a Python script that hold a pipeline or a model which the script loads.

A name gets one by an assignment, from a function of the script that returns one, or as an argument.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attn_doctor.configs.readers.script_tree import Node, dotted, last_name

#: Parts of a pipeline that are its denoising model.
DENOISERS = ("unet", "transformer", "transformer_2", "model")
#: Methods and functions that give back what they are called on, or their first argument.
_SAME = ("to", "half", "bfloat16", "float", "cuda", "cpu", "eval", "train", "requires_grad_")
_WRAPS = ("compile", "prepare", "get_peft_model", "DataParallel", "DistributedDataParallel")
_LOADS = ("from_pretrained", "from_single_file", "from_config", "from_pipe", "load_file")
_MODELS = re.compile(r"Model|For(?:CausalLM|ConditionalGeneration|\w+Classification)|LMHead")
#: Classes of vLLM and SGLang, which only run models.
SERVERS = ("LLM", "AsyncLLMEngine", "Engine")
#: Models beside the one that denoises or writes.
_BESIDE = re.compile(r"CLIP|T5Encoder|Autoencoder|Vision|Encoder|ControlNet|Siglip|VAE")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Rounds in which one name leads to another.
_ROUNDS = 4

Held = Mapping[str, str]
"""Names with what they hold: `pipeline`, `model`, `server`, or `runner` of Transformers."""


class _Code(NamedTuple):
    """What leads from one name to another."""

    assigned: Sequence[tuple[ast.expr, ast.expr]]
    """Targets and values."""
    calls: Sequence[ast.Call]
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    returned: Sequence[tuple[str, ast.expr]]
    """Functions and what they return."""
    imported: Mapping[str, str]
    """The module of each name that is imported."""
    names: Mapping[str, str]
    """The own name of each that is imported under another."""


def held(nodes: Sequence[Node], imported: Mapping[str, str]) -> Held:
    """The names of a script that hold a pipeline or a model."""
    code = _code(nodes, imported)
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        before = len(found)
        for target, value in code.assigned:
            _hold(target, value, found, code)
        for call in code.calls:
            _given(call, found, code)
        for name, value in code.returned:
            _return(name, value, found, code)
        if len(found) == before:
            break
    return found


def _code(nodes: Sequence[Node], imported: Mapping[str, str]) -> _Code:
    assigned: list[tuple[ast.expr, ast.expr]] = []
    returned: list[tuple[str, ast.expr]] = []
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    calls: list[ast.Call] = []
    names: dict[str, str] = {}
    for node, _, scope in nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.Assign):
            assigned += [(target, node.value) for target in node.targets]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            assigned.append((node.target, node.value))
        elif isinstance(node, ast.Call):
            calls.append(node)
        elif isinstance(node, _FUNCTION):
            functions[node.name] = node
        elif isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            returned += [(scope.name, node.value)] if isinstance(scope, _FUNCTION) else []
    return _Code(assigned, calls, functions, returned, imported, names)


def _hold(target: ast.expr, value: ast.expr, found: dict[str, str], code: _Code) -> None:
    """Note what a target holds; of several at once, each by its place."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for at, one in enumerate(target.elts):
            _note(dotted(one), _part(value, at, found, code), found)
    else:
        into = target.value if isinstance(target, ast.Subscript) else target
        _note(dotted(into), _kind(value, found, code), found)


def _part(value: ast.expr, at: int, found: Held, code: _Code) -> str:
    """What one of several values holds."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return _kind(value.elts[at], found, code) if at < len(value.elts) else ""
    if not isinstance(value, ast.Call):
        return ""
    if last_name(value.func) == "prepare" and at < len(value.args):
        return _kind(value.args[at], found, code)
    return found.get(f"{last_name(value.func)}() {at}", "")


def _return(function: str, value: ast.expr, found: dict[str, str], code: _Code) -> None:
    """Note what a function returns, as `load()`, or as `load() 0` where it returns several."""
    if isinstance(value, ast.Tuple):
        for at, one in enumerate(value.elts):
            _note(f"{function}() {at}", _kind(one, found, code), found)
    else:
        _note(f"{function}()", _kind(value, found, code), found)


def _note(name: str, kind: str, found: dict[str, str]) -> None:
    if name and kind:
        found.setdefault(name, kind)


def _kind(value: ast.expr, found: Held, code: _Code) -> str:
    """What an expression holds; empty if it is not known."""
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.IfExp):
        return _kind(value.body, found, code) or _kind(value.orelse, found, code)
    if isinstance(value, ast.Subscript):
        inside = found.get(dotted(value.value), "")
        return "" if inside == "model" else inside  # model["id"] of a configuration
    if not isinstance(value, ast.Call):
        return of_name(dotted(value), found)
    return _made(value, code) or _passed_on(value, found, code)


def _made(value: ast.Call, code: _Code) -> str:
    """What a call makes or loads; empty for another call."""
    name, module = last_name(value.func), code.imported.get(dotted(value.func), "")
    if name in _LOADS and isinstance(value.func, ast.Attribute):
        return _of_class(last_name(value.func.value))
    if "Pipeline" in code.names.get(name, name) and name[:1].isupper():
        return "pipeline"  # FluxPipeline(…)
    if name in SERVERS and module.startswith(("vllm", "sglang")):
        return "server"
    return "runner" if name == "pipeline" and module.startswith("transformers") else ""


def _passed_on(value: ast.Call, found: Held, code: _Code) -> str:
    """What a call gives back of what it is called on, or of its first argument."""
    name = last_name(value.func)
    if name in _SAME and isinstance(value.func, ast.Attribute):
        return _kind(value.func.value, found, code)
    peft = name in _LOADS and "Peft" in dotted(value.func)  # PeftModel.from_pretrained(model, …)
    if (name in _WRAPS or peft) and value.args:
        return _kind(value.args[0], found, code)
    return found.get(f"{name}()", "")


def of_name(name: str, found: Held) -> str:
    """What a dotted name holds; the denoising model of a pipeline is a model."""
    whole, _, part = name.rpartition(".")
    if part in DENOISERS and found.get(whole) in ("pipeline", "model"):
        return "model"
    return found.get(name, "")


def _of_class(name: str) -> str:
    if "Pipeline" in name:
        return "pipeline"
    return "model" if _MODELS.search(name) and not _BESIDE.search(name) else ""


def _given(call: ast.Call, found: dict[str, str], code: _Code) -> None:
    """Note the parameters of a function of the script that get what is held."""
    function = code.functions.get(last_name(call.func))
    if function is None:
        return
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    pairs = [*zip(names, call.args, strict=False)]
    pairs += [(one.arg, one.value) for one in call.keywords if one.arg]
    for name, value in pairs:
        _note(name, _kind(value, found, code), found)
