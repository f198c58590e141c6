"""A Python script, read as a tree and never run: which attention it asks for, and where.

Only plain text in the script is known: a name in a variable that is set once to a
text is followed, one from the command line is not. Each call is read with the branches that lead to
it, and with the object that it is called on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.configs.readers.script_choices import (
    ACCELERATE,
    ARGUMENTS,
    ATTENTION,
    BRINGS,
    CHOICES,
    ENABLES,
    HARMLESS,
    HELPERS,
    IMPLEMENTATION,
    KERNELS,
    LANGUAGE,
    MODELS,
    PARTS,
    PATCHES,
    PLAIN,
    PROCESSORS,
    SERVERS,
    SWITCHES,
    UNSLOTH,
    VARIABLES,
)
from attn_doctor.configs.readers.script_held import DENOISERS
from attn_doctor.configs.readers.script_names import Names
from attn_doctor.configs.readers.script_running import Phases
from attn_doctor.configs.readers.script_text import parts, words
from attn_doctor.configs.readers.script_tree import (
    Node,
    Way,
    dotted,
    is_true,
    last_name,
    otherwise,
    tested,
    walked,
)
from attn_doctor.configs.readers.settings import Branch, Call, ConfigError, plain


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
            trees, unread = parts(text)
            if not trees:
                raise ConfigError(
                    f"{name}, line {error.lineno or 1}: no Python that can be parsed: {error.msg}"
                ) from None
        except (RecursionError, MemoryError, ValueError):
            raise ConfigError(f"{name}: expressions are nested too deeply to be read") from None
    reader = _Reader(trees, text.splitlines())
    found = [*reader.calls(), *words(text, unread)]
    found.sort(key=lambda one: one.line)
    return Script(calls=tuple(found), unread=tuple(unread))


class _Reader:
    def __init__(self, trees: list[ast.Module], lines: list[str]) -> None:
        self._lines = lines
        self._nodes = [*walked(trees, lines)]
        self._names = Names(self._nodes)
        self._scope: ast.AST | None = None
        """The function around what is read."""
        self._idle = {*_never_called(trees, self._nodes)}
        self._imported = dict(_origins(one.tree for one in self._nodes))
        """The modules of names that are imported."""
        self._phases = Phases(self._nodes, self._imported)
        self._pipelines = self._phases.pipelines
        """Names that hold a pipeline."""

    def _test(self, node: ast.expr) -> Way:
        return tested(node, self._lines)

    def calls(self) -> Iterator[Call]:
        for node, when, scope in self._nodes:
            self._scope = scope
            if scope in self._idle and isinstance(scope, ast.FunctionDef):
                when = (Branch("called", scope.name, scope.lineno), *when)
            for call in self._found(node):
                reached = plain((*when, *call.when))
                if reached is not None:
                    yield replace(call, when=reached)

    def _found(self, node: ast.AST) -> Iterator[Call]:
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute) and node.attr in HELPERS:
            return iter([Call("helper", node.attr, dotted(node.value), node.lineno)])
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            return _imported(node)
        if isinstance(node, ast.Assign):
            return self._assignment(node)
        if isinstance(node, ast.Dict):
            return self._mapping(node)
        if isinstance(node, ast.Return):
            return self._phases.taken(node)
        if isinstance(node, ast.FunctionDef) and node.name == "training_step":
            return iter([Call("training", node.name, "", node.lineno)])
        return iter([])

    def _assignment(self, node: ast.Assign) -> Iterator[Call]:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                if dotted(target.value).endswith("environ"):
                    yield from self._variable(target.slice, node.value, node.lineno)
                elif self._names.text(target.slice) in IMPLEMENTATION:
                    yield from self._chosen("attn_implementation", node.value, "", node.lineno)
            elif isinstance(target, ast.Attribute):
                yield from self._attribute(target, node)
        yield from self._loaded(node)
        yield from self._phases.taken(node)

    def _attribute(self, target: ast.Attribute, node: ast.Assign) -> Iterator[Call]:
        value = node.value
        if target.attr == "flex_attention":
            if isinstance(value, ast.Call) and last_name(value.func) == "compile":
                yield Call("flex compiled", "", dotted(target), node.lineno)
        elif target.attr == "scaled_dot_product_attention":
            yield Call("sdpa replaced", dotted(value), "", node.lineno)
        elif target.attr == "attn_implementation" and self._is_config(target.value):
            yield Call("no effect", dotted(target), "", node.lineno)
        elif target.attr in IMPLEMENTATION:
            on = dotted(target.value)
            if last_name(value) not in IMPLEMENTATION:  # not a copy of another one's
                yield from self._chosen("attn_implementation", value, on, node.lineno)
        elif target.attr == "forward" and (
            self._pipelines & {*_bases(target.value)} or ATTENTION.search(dotted(target.value))
        ):
            yield Call("own code", "a new forward", "", node.lineno)
        elif target.attr in ("attn_processor", "_attention_backend") or (
            target.attr == "processor" and "Attn" in _class_of(value)
        ):
            yield Call("set_attn_processor", self._processor(value), "", node.lineno)

    def _is_config(self, node: ast.expr) -> bool:
        """The configuration of a model, of which only `_attn_implementation` is read."""
        value = self._names.value(dotted(node))
        loaded = isinstance(value, ast.Call) and last_name(value.func) == "from_pretrained"
        whose = dotted(value.func) if isinstance(value, ast.Call) else ""
        return (isinstance(node, ast.Attribute) and node.attr == "config") or (
            loaded and "Config" in whose
        )

    # pipe = WanPipeline.from_pretrained("…", torch_dtype=torch.bfloat16, vae=vae).to("cuda")
    def _loaded(self, node: ast.Assign) -> Iterator[Call]:
        """An object that is loaded, with its class and its dtype."""
        value, precision = node.value, ""
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr in ("from_pretrained", "from_single_file", "from_config"):
                break
            if value.func.attr in ("to", "half", "bfloat16", "float"):
                precision = precision or self._names.moved(value)
            value = value.func.value
        else:
            return
        given = next(
            (one.value for one in value.keywords if one.arg in ("torch_dtype", "dtype")), None
        )
        name = last_name(value.func.value)
        if not name:
            return
        for target in node.targets:
            written = dotted(target)
            dtype = precision or self._names.precision(given)
            if given is not None and not dtype:
                dtype = "unknown"
            yield Call("loaded", name, written, node.lineno, detail=dtype)

    # {"attn_implementation": "flash_attention_2"}
    def _mapping(self, node: ast.Dict) -> Iterator[Call]:
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if name in IMPLEMENTATION:
                yield from self._chosen("attn_implementation", value, "", value.lineno)
            elif name == "use_flash_attention_2" and is_true(value):
                yield Call("attn_implementation", "flash_attention_2", "", value.lineno)

    def _variable(self, key: ast.expr, value: ast.expr, line: int) -> Iterator[Call]:
        """The variable is set: `Call("variable", value, name)`; no value if it is not written."""
        name = self._names.text(key)
        if name in VARIABLES:
            yield from self._chosen("variable", value, name, line)

    def _chosen(self, what: str, value: ast.expr | None, on: str, line: int) -> Iterator[Call]:
        """A choice; of `a if test else b` both, each under its condition."""
        several = [*self._names.values(value, self._scope)] if value is not None else []
        if len(several) > 1 or any(one is not value for one, _ in several):
            for each, branches in several:
                at = each.lineno if len(several) > 1 else line
                for call in self._written(what, each, on, at):
                    yield call.under(branches)
        else:
            yield from self._written(what, value, on, line)

    def _written(self, what: str, value: ast.expr | None, on: str, line: int) -> Iterator[Call]:
        """A choice whose value is not a name that the script sets."""
        if isinstance(value, ast.IfExp):
            test = self._test(value.test)
            for each, branches in ((value.body, test), (value.orelse, otherwise(test))):
                for call in self._chosen(what, each, on, line):
                    yield call.under(branches)
            return
        if isinstance(value, ast.Constant) and value.value is None:
            return  # the default stays
        if isinstance(value, ast.Dict):  # one for each part of a model
            for each in value.values:
                yield from self._chosen(what, each, on, line)
            return
        text = self._names.text(value)
        if not text and isinstance(value, ast.Attribute) and self._names.is_option(value):
            yield self._optional(what, value, on)
            return
        yield Call(what, text, on, line)

    def _optional(self, what: str, value: ast.Attribute, on: str) -> Call:
        """An option of the command line, with its default where the script has it."""
        default, line = self._names.defaults.get(value.attr), value.lineno
        if default is None:
            return Call(what, "", on, line, detail="option")
        branch = Branch(kind="default", name=f"--{value.attr}", text="", line=line)
        return Call(what, default, on, line, when=(branch,), detail="option" if default else "none")

    def _call(self, node: ast.Call) -> Iterator[Call]:
        name = last_name(node.func)
        on = _on(node)
        yield from self._choosing(node, name, on)
        yield from self._changing_torch(node, name)
        yield from self._loading(node, name, on)
        yield from self._around(node, name, on)
        yield from self._phases.calls(node)
        yield from self._handing_over(node)
        yield from self._keywords(node)

    def _choosing(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Calls on a model or a pipeline that choose its backend."""
        first = node.args[0] if node.args else None
        if name in CHOICES:
            named = (one.value for one in node.keywords if one.arg in ARGUMENTS)
            yield from self._chosen(CHOICES[name], next(named, first), on, node.lineno)
        elif name == "enable_xformers_memory_efficient_attention" or (
            name == "set_use_memory_efficient_attention_xformers" and is_true(first)
        ):
            yield Call("xformers", "xformers", on, node.lineno)
        elif name in ("enable_attention_slicing", "set_attention_slice"):
            if not (isinstance(first, ast.Constant) and first.value is None):
                yield Call("set_attn_processor", "", on, node.lineno, detail="sliced")
        elif name == "set_attn_processor" and not PARTS.search(on):
            yield Call("set_attn_processor", self._processor(first), on, node.lineno)

    # apply_cache_on_pipe(pipe)
    def _handing_over(self, node: ast.Call) -> Iterator[Call]:
        """A pipeline, or its denoising model, that a function of another package gets."""
        root = dotted(node.func).partition(".")[0]
        module = self._imported.get(root, "")
        if not module or module.partition(".")[0] in HARMLESS:
            return
        if PATCHES.match(last_name(node.func)):
            yield Call("own code", dotted(node.func), module, node.lineno)
            return
        for one in (*node.args, *(each.value for each in node.keywords)):
            given = dotted(one)
            whole, _, part = given.rpartition(".")
            if given in self._pipelines or (whole in self._pipelines and part in DENOISERS):
                yield Call("handed over", dotted(node.func), module, node.lineno)
                return

    def _changing_torch(self, node: ast.Call, name: str) -> Iterator[Call]:
        """Calls that change torch's own attention."""
        first = node.args[0] if node.args else None
        if name == "sdpa_kernel":
            yield Call("sdpa_kernel", _kernels(first), "", node.lineno)
        elif name == "sdp_kernel":
            yield Call("sdpa_kernel", _enabled(node), "", node.lineno)
        elif name in SWITCHES and isinstance(first, ast.Constant):
            yield Call("sdpa switch", SWITCHES[name], str(bool(first.value)), node.lineno)
        elif name == "setattr" and len(node.args) == 3:
            if self._names.text(node.args[1]) == "scaled_dot_product_attention":
                yield Call("sdpa replaced", dotted(node.args[2]), "", node.lineno)
        elif name == "compile_repeated_blocks":
            yield Call("compile", "", _on(node), node.lineno)
        elif name == "compile" and _on(node) not in ("re", "regex", "builtins", ""):
            what = dotted(first) if first is not None and _on(node) == "torch" else _on(node)
            yield Call("compile", "", what, node.lineno)

    def _loading(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Calls that load objects, or move them to a dtype."""
        if name in ("from_pretrained", "from_single_file"):
            detail = "open" if self._brings(node) else ""
            yield Call("pipeline", on.rpartition(".")[2], "", node.lineno, detail=detail)
            yield from self._of_transformers(node, on)
            if any(one.arg == "custom_pipeline" for one in node.keywords):
                yield Call("own code", "custom_pipeline", "", node.lineno)
        elif name in ("to", "half") and on:
            precision = self._names.moved(node)
            if precision:
                yield Call("moved", precision, on, node.lineno)
        elif name == "autocast":
            yield Call("autocast", "", on, node.lineno)

    def _brings(self, node: ast.Call) -> bool:
        """Arguments that are not written in the call may bring code or choose attention."""
        for one in node.keywords:
            keys = self._names.keys(one.value) if one.arg is None else set[str]()
            if keys is None or keys & BRINGS:
                return True
        return False

    def _of_transformers(self, node: ast.Call, on: str) -> Iterator[Call]:
        """A language model of Transformers that is loaded without a choice of attention."""
        root, _, rest = on.partition(".")
        name = rest or root
        given = {one.arg: one.value for one in node.keywords}
        chosen = any(one in given for one in (*IMPLEMENTATION, "use_flash_attention_2"))
        if UNSLOTH.match(on) and "unsloth" in self._imported.get(root, "") and not chosen:
            yield Call("attn_implementation", "", on, node.lineno, detail="unsloth")
        if not self._imported.get(root, "").startswith("transformers"):
            return
        if not LANGUAGE.search(name):
            return
        if chosen:
            return
        trust = given.get("trust_remote_code", ast.Constant(False))
        # A value that is not written may be true.
        own = not isinstance(trust, ast.Constant) or bool(trust.value)
        detail = "own code" if own else "open" if self._brings(node) else ""
        yield Call("language model", name, "", node.lineno, detail=detail)

    def _around(self, node: ast.Call, name: str, on: str) -> Iterator[Call]:
        """Variables, parallelism, training, and calls that no torch has."""
        if name in ("setdefault", "putenv") and on.rpartition(".")[2] in ("environ", "os"):
            if len(node.args) == 2:
                yield from self._variable(node.args[0], node.args[1], node.lineno)
        elif name == "update" and on.endswith("environ"):
            yield from self._variables(node)
        elif name in ("enable_parallelism", "ContextParallelConfig"):
            yield Call("context parallel", name, on, node.lineno)
        elif name in HELPERS and isinstance(node.func, ast.Name):
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
            node = self._names.value(node.id) or node
        name = last_name(node.func if isinstance(node, ast.Call) else node) if node else ""
        known = next((backend for part, backend in PROCESSORS if part in name), "")
        if known:
            return known
        # In Diffusers, those of this suffix call torch's function, and the others before it do not.
        if name.endswith("2_0"):
            return "native"
        return "_native_math" if name in PLAIN else ""

    def _keywords(self, node: ast.Call) -> Iterator[Call]:
        size = self._names.size(node) if "pipe" in last_name(node.func).lower() else ""
        if size:
            yield Call("size", size, dotted(node.func), node.lineno)
        if last_name(node.func) in ("add_argument", "field", "Field", *CHOICES):
            return
        for keyword in node.keywords:
            if keyword.arg in IMPLEMENTATION and UNSLOTH.match(_on(node)):
                yield Call("attn_implementation", "", _on(node), node.lineno, detail="unsloth")
            else:
                yield from self._keyword(keyword, last_name(node.func))

    def _keyword(self, keyword: ast.keyword, function: str) -> Iterator[Call]:
        value, line = keyword.value, keyword.value.lineno
        if keyword.arg in IMPLEMENTATION:
            several = [*self._names.values(value, self._scope)]
            followed = len(several) > 1 or several[0][0] is not value
            known = followed or last_name(value) not in IMPLEMENTATION or self._names.text(value)
            if isinstance(value, ast.Attribute) and not known:
                yield self._optional("attn_implementation", value, "")
            elif known:
                yield from self._chosen("attn_implementation", value, "", line)
            else:
                yield Call("attn_implementation", "", "", line, detail="option")
        elif keyword.arg == "use_flash_attention_2" and is_true(value):
            yield Call("attn_implementation", "flash_attention_2", "", line)
        elif keyword.arg == "attention_backend" and function in SERVERS:
            yield from self._chosen("vllm", value, "", line)
        elif keyword.arg == "attention_config" and function in SERVERS:
            yield from self._configured(value, line)
        elif keyword.arg == "kernel_root":
            yield Call("helper", "kernel_root", "", line)
        elif keyword.arg in ("cp_degree", "context_parallel_size", "ring_degree"):
            alone = isinstance(value, ast.Constant) and value.value in (1, None)
            if not alone:
                yield Call("context parallel", keyword.arg, "", line)

    # attention_config={"backend": "FLASHINFER"}
    def _configured(self, value: ast.expr, line: int) -> Iterator[Call]:
        """The backend in vLLM's configuration of attention; nothing if that has none."""
        named: dict[object, ast.expr] | None = None
        if isinstance(value, ast.Dict):
            keys = (one.value if isinstance(one, ast.Constant) else None for one in value.keys)
            named = dict(zip(keys, value.values, strict=True))
        elif isinstance(value, ast.Call) and last_name(value.func) == "AttentionConfig":
            named = {one.arg: one.value for one in value.keywords}
        if named is None or None in named:
            yield Call("vllm", "", "", line)
        elif "backend" in named:
            backend = named["backend"]
            if isinstance(backend, ast.Attribute):  # AttentionBackendEnum.FLASH_ATTN
                yield Call("vllm", backend.attr, "", line)
            else:
                yield from self._chosen("vllm", backend, "", line)


def _imported(node: ast.ImportFrom | ast.Import) -> Iterator[Call]:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for one in node.names:
        if isinstance(node, ast.ImportFrom) and one.name in HELPERS:
            yield Call("helper", one.name, module, node.lineno)
    names = [module] if module else [one.name for one in node.names]
    roots = [one.partition(".")[0] for one in names]
    changes = next((one for one in roots if one in ACCELERATE), "")
    if changes and not getattr(node, "level", 0):
        yield Call("acceleration", changes, "", node.lineno)
    if "diffusers" in roots:
        yield Call("import", "diffusers", "", node.lineno)
    elif isinstance(node, ast.ImportFrom):
        origin = "a module of the user" if node.level else roots[0]
        for one in node.names:
            if MODELS.search(one.name):
                yield Call("foreign", one.asname or one.name, origin, node.lineno)


def _never_called(trees: Sequence[ast.Module], nodes: Sequence[Node]) -> Iterator[ast.AST]:
    """Functions that nothing calls by their name: of a script that runs, and inside others."""
    called = {last_name(one.tree.func) for one in nodes if isinstance(one.tree, ast.Call)}
    top = [each for tree in trees for each in tree.body]
    runs = any(
        (isinstance(one, ast.If) and "__name__" in ast.dump(one.test))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call))
        for one in top
    )
    outer = {*top} if runs else set[ast.AST]()
    for one in nodes:
        function = one.tree
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        inside = isinstance(one.scope, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (inside or function in outer) and function.name not in called:
            yield function


def _origins(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that are imported, and their modules; `.` for a module of the user's package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name.partition(".")[0], one.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for one in node.names:
                yield one.asname or one.name, module


def _bases(node: ast.expr) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    name = dotted(node)
    while name:
        yield name
        name = name.rpartition(".")[0]


def _class_of(node: ast.expr) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)


def _on(node: ast.Call) -> str:
    """The object that is called, as written."""
    return dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _kernels(node: ast.expr | None) -> str:
    """The kernels that `sdpa_kernel` allows, separated by spaces; empty if they are not written."""
    members = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node] if node else []
    names = [KERNELS.get(last_name(one), "") for one in members]
    return " ".join(names) if names and all(names) else ""


def _enabled(node: ast.Call) -> str:
    """The kernels that the older `sdp_kernel` leaves on; empty if an argument is not written."""
    given = dict(zip(ENABLES, node.args, strict=False))
    given |= {one.arg: one.value for one in node.keywords if one.arg in ENABLES}
    values = [one.value for one in given.values() if isinstance(one, ast.Constant)]
    if len(values) < len(given) or any(one.arg is None for one in node.keywords):
        return ""
    off = {key for key, one in given.items() if isinstance(one, ast.Constant) and not one.value}
    return " ".join(kernel for key, kernel in ENABLES.items() if key not in off)
