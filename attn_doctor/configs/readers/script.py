"""A Python script, read as a tree and never run: which attention it asks for, and where.

Only plain text in the script is known: a name in a variable that is set once to a
text is followed, one from the command line is not. Each call is read with the branches that lead to
it, and with the object that it is called on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from attn_doctor.configs.readers.settings import Branch, Call, ConfigError

_T = TypeVar("_T", str, int)

#: Names of a guide that no torch has.
_HELPERS = ("build_flex_attention_kernels", "kernel_root")
#: What is called to choose a backend, and what that is called here.
_CHOICES = {
    "set_attention_backend": "set_attention_backend",
    "attention_backend": "attention_backend",
    "attention_provider": "attention_provider",
    "set_attn_implementation": "attn_implementation",
}
_ARGUMENTS = ("backend", "provider", "attention_backend", "attn_implementation")
#: Keywords and attributes with the name of a backend of Transformers.
_IMPLEMENTATION = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
)
#: Switches of torch's own kernels.
_SWITCHES = {
    "enable_flash_sdp": "_native_flash",
    "enable_mem_efficient_sdp": "_native_efficient",
    "enable_math_sdp": "_native_math",
    "enable_cudnn_sdp": "_native_cudnn",
}
_KERNELS = {
    "FLASH_ATTENTION": "_native_flash",
    "EFFICIENT_ATTENTION": "_native_efficient",
    "MATH": "_native_math",
    "CUDNN_ATTENTION": "_native_cudnn",
}
#: Arguments of `torch.backends.cuda.sdp_kernel` in their order; each is True by default.
_ENABLES = {
    "enable_flash": "_native_flash",
    "enable_math": "_native_math",
    "enable_mem_efficient": "_native_efficient",
    "enable_cudnn": "_native_cudnn",
}
#: Processors of Diffusers, by a part of their names, and the backend that they call.
_PROCESSORS = (
    ("XFormers", "xformers"),
    ("NPU", "_native_npu"),
    ("XLA", "_native_xla"),
    ("SlicedAttn", "_native_math"),
)
_PLAIN = (
    "AttnProcessor", "AttnAddedKVProcessor", "CustomDiffusionAttnProcessor", "LoRAAttnProcessor",
)  # fmt: skip
#: Objects whose attention is not that of the denoising model.
_PARTS = re.compile(r"(?:^|\.)(?:vae|\w*decoder|\w*encoder)$")
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_PRECISIONS |= {"float": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
#: Objects with options of the command line.
_OPTIONS = ("args", "opt", "opts", "options", "script_args", "training_args", "cli_args")
#: Variables that choose a backend by themselves.
VARIABLES = (
    "DIFFUSERS_ATTN_BACKEND",
    "FINETRAINERS_ATTN_PROVIDER",
    "VLLM_ATTENTION_BACKEND",
    "SGLANG_ATTENTION_BACKEND",
)
#: Words that concern attention, looked for where the text cannot be parsed.
_WORDS = re.compile(
    r"set_attention_backend|attention_backend|attention_provider|attn_implementation"
    r"|sdpa?_kernel|enable_xformers|set_attn_processor|use_flash_attention_2"
    r"|scaled_dot_product_attention\s*=|ATTN_BACKEND|ATTENTION_BACKEND|enable_parallelism"
)
#: Classes that compute attention by code of their own where they are not of Diffusers.
_MODELS = re.compile(r"Pipeline$|Transformer\w*Model$|UNet\w*Model$")
#: Nodes of a tree that are read. A larger file is generated.
_MOST = 1 << 20


class Script(Struct, frozen=True, kw_only=True):
    """What a script says."""

    calls: tuple[Call, ...]
    unread: tuple[tuple[int, int, str], ...] = ()
    """First and last line of each part that this Python cannot parse, and the reason."""


def read_script(text: str, name: str) -> Script:
    """Calls that matter, in their order; environment variables that it sets are among them.

    A script in newer syntax is read as far as it goes. Raises `ConfigError` if nothing of it can be
    parsed.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" in the user's strings is not our business
        try:
            trees, unread = [ast.parse(text)], list[tuple[int, int, str]]()
        except SyntaxError as error:
            trees, unread = _parts(text)
            if not trees:
                raise ConfigError(
                    f"{name}, line {error.lineno or 1}: no Python that can be parsed: {error.msg}"
                ) from None
        except (RecursionError, MemoryError, ValueError):
            raise ConfigError(f"{name}: expressions are nested too deeply to be read") from None
    reader = _Reader(trees, text.splitlines())
    found = [*reader.calls(), *_words(text, unread)]
    found.sort(key=lambda one: one.line)
    return Script(calls=tuple(found), unread=tuple(unread))


def _parts(text: str) -> tuple[list[ast.Module], list[tuple[int, int, str]]]:
    """The statements at the margin that can be parsed, and the lines of those that cannot."""
    lines = text.splitlines()
    if len(lines) > 20_000:
        return [], []
    starts = [
        number
        for number, line in enumerate(lines)
        if line[:1].strip()
        and not line.startswith((")", "]", "}", "else", "elif", "except"))
        and not line.startswith(("finally", "#"))
    ]
    trees: list[ast.Module] = []
    unread: list[tuple[int, int, str]] = []
    for first, last in pairwise([*starts, len(lines)]):
        try:
            # Empty lines before it keep its line numbers.
            trees.append(ast.parse("\n" * first + "\n".join(lines[first:last])))
        except SyntaxError as fault:
            unread.append((first + 1, last, fault.msg))
        except (RecursionError, MemoryError, ValueError):
            unread.append((first + 1, last, "nested too deeply"))
        if len(unread) > 20:
            return [], []
    return ([one for one in trees if one.body] if len(trees) > len(unread) else []), unread


def _words(text: str, unread: list[tuple[int, int, str]]) -> Iterator[Call]:
    """Names that concern attention in lines that cannot be parsed."""
    lines = text.splitlines()
    for first, last, _ in unread:
        for number in range(first, last + 1):
            match = _WORDS.search(lines[number - 1])
            if match:
                yield Call("unparsed", "", match[0], number)


class _Reader:
    def __init__(self, trees: list[ast.Module], lines: list[str]) -> None:
        self._lines = lines
        self._nodes = [*_walked(trees, self._test)]
        self._texts = self._constants(str)
        self._numbers = self._constants(int)
        self._named = self._given_once()
        self._defaults = self._option_defaults()

    def _constants(self, kind: type[_T]) -> dict[str, _T]:
        """Names that are given one value, and only once, where it is of this kind."""
        found: dict[str, list[_T | None]] = {}
        for node, _ in self._nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        value = node.value.value if isinstance(node.value, ast.Constant) else None
                        found.setdefault(target.id, []).append(
                            value if isinstance(value, kind) else None
                        )
        return {name: one[0] for name, one in found.items() if len(one) == 1 and one[0]}

    def _given_once(self) -> dict[str, ast.expr]:
        """Names and dotted names that are assigned once, with their values."""
        found: dict[str, list[ast.expr]] = {}
        for node, _ in self._nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, (ast.Name, ast.Attribute)):
                        found.setdefault(_written(target), []).append(node.value)
        return {name: values[0] for name, values in found.items() if name and len(values) == 1}

    # parser.add_argument("--attn", type=str, default="sdpa")
    def _option_defaults(self) -> dict[str, str]:
        """Options of argparse whose default is a text."""
        found = {}
        for node, _ in self._nodes:
            if isinstance(node, ast.Call) and _last(node.func) == "add_argument":
                names = [one.value for one in node.args if isinstance(one, ast.Constant)]
                default = next((one.value for one in node.keywords if one.arg == "default"), None)
                if isinstance(default, ast.Constant) and isinstance(default.value, str):
                    for name in names:
                        found[str(name).lstrip("-").replace("-", "_")] = default.value
        return found

    def calls(self) -> Iterator[Call]:
        for node, when in self._nodes:
            if isinstance(node, ast.Call):
                found = self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr in _HELPERS:
                found = iter([Call("helper", node.attr, _written(node.value), node.lineno)])
            elif isinstance(node, (ast.ImportFrom, ast.Import)):
                found = _imported(node)
            elif isinstance(node, ast.Assign):
                found = self._assignment(node)
            elif isinstance(node, ast.Dict):
                found = self._mapping(node)
            else:
                continue
            for call in found:
                yield call.under(when) if when else call

    def _assignment(self, node: ast.Assign) -> Iterator[Call]:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                if _written(target.value).endswith("environ"):
                    yield from self._variable(target.slice, node.value, node.lineno)
                elif self._text(target.slice) in _IMPLEMENTATION:
                    yield from self._chosen("attn_implementation", node.value, "", node.lineno)
            elif isinstance(target, ast.Attribute):
                yield from self._attribute(target, node)
        yield from self._loaded(node)

    def _attribute(self, target: ast.Attribute, node: ast.Assign) -> Iterator[Call]:
        value = node.value
        if target.attr == "flex_attention":
            if isinstance(value, ast.Call) and _last(value.func) == "compile":
                yield Call("flex compiled", "", _written(target), node.lineno)
        elif target.attr == "scaled_dot_product_attention":
            yield Call("sdpa replaced", _written(value), "", node.lineno)
        elif target.attr in _IMPLEMENTATION:
            on = _written(target.value)
            if _last(value) not in _IMPLEMENTATION:  # not a copy of another one's
                yield from self._chosen("attn_implementation", value, on, node.lineno)
        elif target.attr in ("attn_processor", "_attention_backend"):
            yield Call("set_attn_processor", self._processor(value), "", node.lineno)

    # pipe = WanPipeline.from_pretrained("…", torch_dtype=torch.bfloat16, vae=vae).to("cuda")
    def _loaded(self, node: ast.Assign) -> Iterator[Call]:
        """An object that is loaded, with its class and its dtype."""
        value, precision = node.value, ""
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr in ("from_pretrained", "from_single_file", "from_config"):
                break
            if value.func.attr in ("to", "half", "bfloat16", "float"):
                precision = precision or self._moved(value)
            value = value.func.value
        else:
            return
        given = next(
            (one.value for one in value.keywords if one.arg in ("torch_dtype", "dtype")), None
        )
        name = _last(value.func.value)
        if not name:
            return
        for target in node.targets:
            written = _written(target)
            dtype = precision or self._precision(given)
            if given is not None and not dtype:
                dtype = "unknown"
            yield Call("loaded", name, written, node.lineno, detail=dtype)

    def _moved(self, node: ast.Call) -> str:
        name = _last(node.func)
        if name != "to":
            return _PRECISIONS.get(name, "")
        given = [*node.args, *(one.value for one in node.keywords if one.arg == "dtype")]
        return next(filter(None, map(self._precision, given)), "")

    def _precision(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Name):
            node = self._named.get(node.id)
        if isinstance(node, ast.Constant):
            return _PRECISIONS.get(str(node.value), "")
        return _PRECISIONS.get(_last(node), "") if node is not None else ""

    # {"attn_implementation": "flash_attention_2"}
    def _mapping(self, node: ast.Dict) -> Iterator[Call]:
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if name in _IMPLEMENTATION:
                yield from self._chosen("attn_implementation", value, "", value.lineno)
            elif name == "use_flash_attention_2" and _true(value):
                yield Call("attn_implementation", "flash_attention_2", "", value.lineno)

    def _variable(self, key: ast.expr, value: ast.expr, line: int) -> Iterator[Call]:
        """The variable is set: `Call("variable", value, name)`; no value if it is not written."""
        name = self._text(key)
        if name in VARIABLES:
            yield from self._chosen("variable", value, name, line)

    def _chosen(self, what: str, value: ast.expr | None, on: str, line: int) -> Iterator[Call]:
        """A choice; of `a if test else b` both, each under its condition."""
        if isinstance(value, ast.IfExp):
            test = self._test(value.test)
            for each, branches in (
                (value.body, test),
                (value.orelse, tuple(one.opposite() for one in test)),
            ):
                for call in self._chosen(what, each, on, line):
                    yield call.under(branches)
            return
        if isinstance(value, ast.Constant) and value.value is None:
            return  # the default stays
        if isinstance(value, ast.Dict):  # one for each part of a model
            for each in value.values:
                yield from self._chosen(what, each, on, line)
            return
        text = self._text(value)
        if not text and isinstance(value, ast.Attribute) and _last(value.value) in _OPTIONS:
            text = self._defaults.get(value.attr, "")
            branch = Branch(kind="default", name=f"--{value.attr}", text="", line=line)
            yield Call(what, text, on, line, when=(branch,) if text else ())
            return
        yield Call(what, text, on, line)

    def _call(self, node: ast.Call) -> Iterator[Call]:
        name = _last(node.func)
        on = _on(node)
        yield from self._choosing(node, name, on)
        yield from self._changing_torch(node, name)
        yield from self._loading(node, name, on)
        yield from self._around(node, name, on)
        yield from self._keywords(node)

    def _choosing(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Calls on a model or a pipeline that choose its backend."""
        first = node.args[0] if node.args else None
        if name in _CHOICES:
            named = (one.value for one in node.keywords if one.arg in _ARGUMENTS)
            yield from self._chosen(_CHOICES[name], next(named, first), on, node.lineno)
        elif name == "enable_xformers_memory_efficient_attention" or (
            name == "set_use_memory_efficient_attention_xformers" and _true(first)
        ):
            yield Call("xformers", "xformers", on, node.lineno)
        elif name == "set_attn_processor" and not _PARTS.search(on):
            yield Call("set_attn_processor", self._processor(first), on, node.lineno)

    def _changing_torch(self, node: ast.Call, name: str) -> Iterator[Call]:
        """Calls that change torch's own attention."""
        first = node.args[0] if node.args else None
        if name == "sdpa_kernel":
            yield Call("sdpa_kernel", _kernels(first), "", node.lineno)
        elif name == "sdp_kernel":
            yield Call("sdpa_kernel", _enabled(node), "", node.lineno)
        elif name in _SWITCHES and isinstance(first, ast.Constant):
            yield Call("sdpa switch", _SWITCHES[name], str(bool(first.value)), node.lineno)
        elif name == "setattr" and len(node.args) == 3:
            if self._text(node.args[1]) == "scaled_dot_product_attention":
                yield Call("sdpa replaced", _written(node.args[2]), "", node.lineno)
        elif name == "compile_repeated_blocks":
            yield Call("compile", "", _on(node), node.lineno)
        elif name == "compile" and _on(node) not in ("re", "regex", "builtins", ""):
            what = _written(first) if first is not None and _on(node) == "torch" else _on(node)
            yield Call("compile", "", what, node.lineno)

    def _loading(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Calls that load objects, or move them to a dtype."""
        if name in ("from_pretrained", "from_single_file"):
            yield Call("pipeline", on.rpartition(".")[2], "", node.lineno)
        elif name in ("to", "half") and on:
            precision = self._moved(node)
            if precision:
                yield Call("moved", precision, on, node.lineno)
        elif name == "autocast":
            yield Call("autocast", "", on, node.lineno)

    def _around(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Variables, parallelism, training, and calls that no torch has."""
        if name in ("setdefault", "putenv") and on.rpartition(".")[2] in ("environ", "os"):
            if len(node.args) == 2:
                yield from self._variable(node.args[0], node.args[1], node.lineno)
        elif name == "update" and on.endswith("environ"):
            yield from self._variables(node)
        elif name in ("enable_parallelism", "ContextParallelConfig"):
            yield Call("context parallel", name, on, node.lineno)
        elif name in ("backward", "Accelerator", "GradScaler", "Trainer", "SFTTrainer"):
            yield Call("training", name, on, node.lineno)
        elif name in _HELPERS and isinstance(node.func, ast.Name):
            yield Call("helper", name, "", node.lineno)

    def _variables(self, node: ast.Call) -> Iterator[Call]:
        """`os.environ.update({"A": "b"})`."""
        for one in node.args:
            if isinstance(one, ast.Dict):
                for key, value in zip(one.keys, one.values, strict=True):
                    if key is not None:
                        yield from self._variable(key, value, value.lineno)

    def _processor(self, node: ast.expr | None) -> str:
        """The backend of a processor that is given to a model; empty if it is not known."""
        if isinstance(node, ast.Name):
            node = self._named.get(node.id, node)
        name = _last(node.func if isinstance(node, ast.Call) else node) if node else ""
        known = next((backend for part, backend in _PROCESSORS if part in name), "")
        if known:
            return known
        # In Diffusers, those of this suffix call torch's function, and the others before it do not.
        if name.endswith("2_0"):
            return "native"
        return "_native_math" if name in _PLAIN else ""

    def _keywords(self, node: ast.Call) -> Iterator[Call]:
        size = self._size(node) if "pipe" in _last(node.func).lower() else ""
        if size:
            yield Call("size", size, _written(node.func), node.lineno)
        if _last(node.func) in ("add_argument", "field", "Field", *_CHOICES):
            return
        for keyword in node.keywords:
            yield from self._keyword(keyword, _last(node.func))

    def _keyword(self, keyword: ast.keyword, function: str) -> Iterator[Call]:
        value, line = keyword.value, keyword.value.lineno
        if keyword.arg in _IMPLEMENTATION:
            if _last(value) not in _IMPLEMENTATION or _option(value):
                yield from self._chosen("attn_implementation", value, "", line)
            else:
                yield Call("attn_implementation", "", "", line, detail="option")
        elif keyword.arg == "use_flash_attention_2" and _true(value):
            yield Call("attn_implementation", "flash_attention_2", "", line)
        elif keyword.arg == "attention_backend" and function in ("LLM", "EngineArgs", "Engine"):
            yield from self._chosen("vllm", value, "", line)
        elif keyword.arg == "kernel_root":
            yield Call("helper", "kernel_root", "", line)
        elif keyword.arg in ("cp_degree", "context_parallel_size", "ring_degree"):
            alone = isinstance(value, ast.Constant) and value.value in (1, None)
            if not alone:
                yield Call("context parallel", keyword.arg, "", line)

    # pipe(prompt="a cat", height=480, width=848, num_frames=121)
    def _size(self, node: ast.Call) -> str:
        """Width, height and frames that a pipeline is called with; empty if they are not given."""
        given = {one.arg: self._number(one.value) for one in node.keywords}
        if not given.get("width") or not given.get("height"):
            return ""
        if "num_frames" in given and not given["num_frames"]:
            return ""
        parts = (given["width"], given["height"], given.get("num_frames"))
        return "x".join(str(one) for one in parts if one)

    def _number(self, node: ast.expr) -> int:
        """A positive number that is written; 0 for anything else."""
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self._numbers.get(node.id)
        return value if isinstance(value, int) and 0 < value < 1 << 20 else 0

    def _text(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._texts.get(node.id, "")
        if isinstance(node, ast.Attribute) and _written(node.value).endswith(
            ("AttentionBackendName", "AttentionProvider")
        ):
            return _member(node.attr)
        return ""

    def _test(self, node: ast.expr) -> tuple[Branch, ...]:
        """The conditions of a test that all have to hold."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            return tuple(one for value in node.values for one in self._test(value))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._test(node.operand)
            return (inner[0].opposite(),) if len(inner) == 1 else (self._other(node),)
        if isinstance(node, ast.Call):
            branch = self._other(node)
            return (Branch("call", branch.text, node.lineno, _written(node.func)),)
        if _option(node):
            return (Branch("option", f"--{_last(node)}", node.lineno, _last(node)),)
        if isinstance(node, ast.Compare) and _last(node.left) == "__name__":
            return ()
        return (self._other(node),)

    def _other(self, node: ast.expr) -> Branch:
        line, text = node.lineno, ""
        if node.end_lineno == line and line <= len(self._lines):
            # Columns count bytes of UTF-8.
            text = (
                self._lines[line - 1]
                .encode()[node.col_offset : node.end_col_offset]
                .decode(errors="replace")
            )
        return Branch("other", text if len(text) < 80 else f"the condition in line {line}", line)


_Found = Iterator[tuple[ast.AST, tuple[Branch, ...]]]


def _walked(trees: list[ast.Module], test: Callable[[ast.expr], tuple[Branch, ...]]) -> _Found:
    """Every node with the branches that lead to it, without recursion."""
    stack: list[tuple[ast.AST, tuple[Branch, ...]]] = [(one, ()) for one in reversed(trees)]
    count = 0
    while stack and count < _MOST:
        node, when = stack.pop()
        count += 1
        yield node, when
        if isinstance(node, ast.If):
            branches = test(node.test)
            stack += [(one, (*when, *_otherwise(branches))) for one in reversed(node.orelse)]
            stack += [(one, (*when, *branches)) for one in reversed(node.body)]
            stack.append((node.test, when))
        elif isinstance(node, ast.Try):
            tried = Branch("try", "", node.lineno)
            inside = (*when, tried) if node.handlers else when
            stack += [(one, when) for one in reversed((*node.orelse, *node.finalbody))]
            stack += [(one, (*when, tried.opposite())) for one in reversed(node.handlers)]
            stack += [(one, inside) for one in reversed(node.body)]
        else:
            stack += [(one, when) for one in reversed([*ast.iter_child_nodes(node)])]


def _otherwise(branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """What holds where one of `branches` does not."""
    if len(branches) == 1:
        return (branches[0].opposite(),)
    if not branches:
        return ()
    text = " and ".join(one.text for one in branches)
    return (Branch("other", text, branches[0].line, negated=True),)


def _imported(node: ast.ImportFrom | ast.Import) -> Iterator[Call]:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for one in node.names:
        if isinstance(node, ast.ImportFrom) and one.name in _HELPERS:
            yield Call("helper", one.name, module, node.lineno)
    names = [module] if module else [one.name for one in node.names]
    roots = [one.partition(".")[0] for one in names]
    if "diffusers" in roots:
        yield Call("import", "diffusers", "", node.lineno)
    elif isinstance(node, ast.ImportFrom):
        origin = "a module of the user" if node.level else roots[0]
        for one in node.names:
            if _MODELS.search(one.name):
                yield Call("foreign", one.asname or one.name, origin, node.lineno)


def _on(node: ast.Call) -> str:
    """The object that is called, as written."""
    return _written(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _kernels(node: ast.expr | None) -> str:
    """The kernels that `sdpa_kernel` allows, separated by spaces; empty if they are not written."""
    members = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node] if node else []
    names = [_KERNELS.get(_last(one), "") for one in members]
    return " ".join(names) if names and all(names) else ""


def _enabled(node: ast.Call) -> str:
    """The kernels that the older `sdp_kernel` leaves on; empty if an argument is not written."""
    given = dict(zip(_ENABLES, node.args, strict=False))
    given |= {one.arg: one.value for one in node.keywords if one.arg in _ENABLES}
    values = [one.value for one in given.values() if isinstance(one, ast.Constant)]
    if len(values) < len(given) or any(one.arg is None for one in node.keywords):
        return ""
    off = {key for key, one in given.items() if isinstance(one, ast.Constant) and not one.value}
    return " ".join(kernel for key, kernel in _ENABLES.items() if key not in off)


def _option(node: ast.expr) -> bool:
    """`args.name`."""
    return isinstance(node, ast.Attribute) and _last(node.value) in _OPTIONS


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _member(name: str) -> str:
    """`AttentionBackendName._NATIVE_CUDNN` is the name `_native_cudnn`."""
    return name.lower()


def _last(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _written(node: ast.expr) -> str:
    """A dotted name as written; empty for anything else and for absurdly long names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        if len(parts) > 20:
            return ""
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(reversed(parts))
    return ".".join([node.id, *reversed(parts)])
