"""Finds whether an import reaches a module that fails, by the text of the modules.

Followed are the statements that an import executes: those at the left margin, in `with`, and in the
branches of an `if`. A condition such as `is_xformers_available()` is evaluated; where it is not
understood, both branches may be executed. An import in a `try` counts if no handler catches the
failure; what a handler imports counts if the `try` imports a module that is not there. Not seen:
what functions import.

Of packages that are made for another torch, the names that they take from torch are looked up, also
where they only use one, as `torch.int1`. Not looked up are those under a condition that is not
understood: it may ask for the release of torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.names import Names
from attn_doctor.probes.installed.sources import Sources, absolute, parents
from attn_doctor.requirement import satisfies

#: What a failing import raises: ModuleNotFoundError, ImportError, AttributeError, OSError,
#: RuntimeError; or one of them and perhaps a signal that ends the process.
Raised = Literal["missing", "import", "attribute", "os", "runtime", "crash"]
#: Exceptions that a handler names, and what they catch.
_CATCHES: dict[str, tuple[Raised, ...]] = {
    "AttributeError": ("attribute",),
    "BaseException": ("missing", "import", "attribute", "os", "runtime"),
    "Exception": ("missing", "import", "attribute", "os", "runtime"),
    "ImportError": ("missing", "import"),
    "ModuleNotFoundError": ("missing",),
    "OSError": ("os",),
    "RuntimeError": ("runtime",),
}
#: Marks of a name that a module takes, and what is raised without it: an import of a name, its use,
#: and an import of a module.
_RAISED: dict[str, Raised] = {":": "import", "!": "attribute", "?": "missing"}
_SIGN = "[:!?]"
#: Packages whose modules are followed; the others import none of those that fail.
_FOLLOWED = (
    "accelerate", "bitsandbytes", "diffusers", "flash_attn", "kernels", "peft", "sageattention",
    "torchao", "transformers", "xformers",
)  # fmt: skip
#: Name in `is_…_available` → the module that is looked for. Others may ask for more than a module.
_ASKED = {
    "bitsandbytes": "bitsandbytes", "flash_attn": "flash_attn",
    "flash_attn_2": "flash_attn", "flash_attn_3": "flash_attn_interface", "peft": "peft",
    "accelerate": "accelerate", "sageattention": "sageattention", "torch": "torch",
    "torchaudio": "torchaudio", "torchvision": "torchvision", "transformers": "transformers",
    "vision": "PIL", "xformers": "xformers",
}  # fmt: skip
#: A variable with which Diffusers imports all its modules at once, and its values for yes.
SLOW, YES = "DIFFUSERS_SLOW_IMPORT", ("1", "ON", "YES", "TRUE")
#: Modules that are followed from one entry.
MOST = 2000


class Failing(Struct, frozen=True):
    """A module whose import fails, or may fail."""

    module: str
    raises: Raised
    error: str
    certain: bool = True


class Reached(Struct, frozen=True):
    """A failing module that an import reaches."""

    failing: Failing
    by: str
    """The file that imports it."""
    certain: bool
    """Both the way to it and its failure are certain."""

    def __str__(self) -> str:
        """Return what was seen, as a sentence without its end."""
        base, sign, name = re.split(f"({_SIGN}|$)", self.failing.module, maxsplit=1)
        if not sign:
            fails = "fails" if self.certain else "may fail"
            return f"{self.by} imports {base}, which {fails}: {self.failing.error}"
        taken = {
            ":": f"imports {name} from {base}",
            "!": f"uses {base}.{name}",
            "?": f"imports {base}.{name}",
        }
        lacks = "module" if sign == "?" else "name"
        return f"{self.by} {taken[sign]}, and this {base.partition('.')[0]} has no such {lacks}"


class _Step(Struct, frozen=True):
    module: str
    by: str = ""
    caught: frozenset[str] = frozenset()
    certain: bool = True


#: A module, what is caught around it, and whether it is certainly imported.
_Import = tuple[str, "frozenset[str]", bool]


class Reach:
    """The imports of an environment that reach modules of `failing`."""

    def __init__(
        self,
        host: Host,
        site: Site,
        failing: Collection[Failing],
        cuda: bool | None = None,
        outdating: Collection[str] = (),
    ) -> None:
        """Keep what fails.

        `cuda`: torch can use a GPU, which Transformers asks before it imports flash-attn.
        `outdating`: packages that are made for another torch.
        """
        self._host, self._site = host, site
        self._sources = Sources(host, site)
        self._failing = {one.module: one for one in failing}
        self._trees: dict[str, _Module | None] = {}
        self._cuda, self._outdating = cuda, outdating
        torch = site.distributions.get("torch")
        self._names = Names(host, self._sources, torch.version if torch is not None else "")

    def find(self, entry: str) -> Reached | None:
        """Return what an import of `entry` reaches; a certain failure first, None if nothing."""
        doubt = None
        pending = [_Step(name) for name in parents(entry)]
        seen: set[tuple[str, frozenset[str], bool]] = set()
        while pending and len(seen) < MOST:
            step = pending.pop(0)
            key = step.module, step.caught, step.certain
            if key in seen:
                continue
            seen.add(key)
            one = self._failing.get(step.module) or _lacking(step.module)
            if one is not None and one.raises not in step.caught:
                found = Reached(one, step.by, step.certain and one.certain)
                if found.certain:
                    return found
                doubt = doubt or found
            else:
                pending += self._follow(step)
        return doubt

    def _follow(self, step: _Step) -> Iterator[_Step]:
        if step.module not in self._trees:
            path = self._sources.file(step.module)
            self._trees[step.module] = self._read(step.module, path) if path else None
        module = self._trees[step.module]
        for name, caught, certain in module.imports if module is not None else ():
            yield _Step(
                name, module.short if module else "", step.caught | caught, step.certain and certain
            )

    def _read(self, name: str, path: str) -> _Module | None:
        body = _parsed(self._host.try_read(path, 1 << 20))
        if body is None:
            return None
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        failing = frozenset(self._failing)
        reader = _Reader(
            self._host,
            self._sources,
            self._site,
            failing,
            package,
            body,
            self._host.environ,
            self._cuda,
            self._names,
        )
        found = dict.fromkeys(filter(self._concerns, reader.imports(body)))
        lacking = self._lacked(name, reader, body)
        return _Module(self._sources.short(path), (*found, *lacking))

    def _concerns(self, one: _Import) -> bool:
        return one[0] in self._failing or one[0].partition(".")[0] in _FOLLOWED

    def _lacked(self, module: str, reader: _Reader, body: list[ast.stmt]) -> Iterator[_Import]:
        """Yield the names of torch that a module takes and torch lacks, marked by how it does."""
        if module.partition(".")[0] in self._outdating:
            for taken in reader.taken(body):
                base, sign, name = re.split(f"({_SIGN})", taken[0])
                if taken[2] and re.match(r"torch\b", base) and self._names.lacks(base, name, sign):
                    yield taken


class _Module(Struct, frozen=True):
    short: str
    imports: tuple[_Import, ...]


class _Reader:
    """The imports that the statements of one module execute."""

    def __init__(
        self,
        host: Host,
        sources: Sources,
        site: Site,
        failing: frozenset[str],
        package: str,
        body: Sequence[ast.stmt],
        environ: Mapping[str, str],
        cuda: bool | None,
        names: Names,
    ) -> None:
        self._environ, self._cuda, self._names = environ, cuda, names
        self._host = host
        self._sources, self._site, self._failing, self._package = sources, site, failing, package
        self._values = {
            target.id: one.value
            for one in body
            if isinstance(one, ast.Assign)
            for target in one.targets
            if isinstance(target, ast.Name)
        }

    def imports(self, body: Sequence[ast.stmt]) -> Iterator[_Import]:
        """Yield what the statements import."""
        for one, caught, certain in self._executed(body):
            if isinstance(one, ast.Import):
                for alias in one.names:
                    yield from ((name, caught, certain) for name in parents(alias.name))
            elif isinstance(one, ast.ImportFrom):
                yield from ((name, caught, certain) for name in self._from(one))

    def taken(self, body: Sequence[ast.stmt]) -> Iterator[_Import]:
        """Yield names: `MODULE:NAME` of those that are imported, `MODULE!NAME` of those used.

        A module that is imported is `PACKAGE?NAME`.
        """
        for one, caught, certain in self._executed(body):
            if isinstance(one, ast.Import):
                for alias in one.names:
                    yield from ((name, caught, certain) for name in _modules(alias.name))
            elif isinstance(one, ast.ImportFrom):
                base = absolute("." * one.level + (one.module or ""), self._package)
                yield from ((name, caught, certain) for name in _modules(base))
                yield from ((f"{base}:{alias.name}", caught, certain) for alias in one.names)
            elif isinstance(one, (ast.Assign, ast.Expr)):
                yield from ((name, caught, certain) for name in _used(one.value))

    def _executed(
        self, body: Sequence[ast.stmt], caught: frozenset[str] = frozenset(), certain: bool = True
    ) -> Iterator[tuple[ast.stmt, frozenset[str], bool]]:
        """Yield the statements that are executed, with what is caught around each."""
        for one in body:
            if isinstance(one, ast.If):
                truth = self.truth(one.test)
                sure = certain and truth is not None
                yield from self._executed(one.body if truth is not False else [], caught, sure)
                yield from self._executed(one.orelse if truth is not True else [], caught, sure)
            elif isinstance(one, ast.Try):
                inside = caught.union(*map(_catches, one.handlers))
                yield from self._executed(one.body, inside, certain)
                if handler := self._entered(one):
                    yield from self._executed(handler.body, caught, certain)
                    continue
                yield from self._executed([*one.orelse, *one.finalbody], caught, certain)
            elif isinstance(one, ast.With):
                yield from self._executed(one.body, caught, certain)
            else:
                yield one, caught, certain

    def _entered(self, one: ast.Try) -> ast.ExceptHandler | None:
        """Return the handler that runs since the `try` begins with what is not there."""
        first = one.body[0]
        if isinstance(first, ast.ImportFrom):
            base = absolute("." * first.level + (first.module or ""), self._package)
            fails = any(self._names.lacks(base, alias.name) for alias in first.names)
        elif isinstance(first, ast.Import):
            packages = [alias.name.partition(".")[0] for alias in first.names]
            fails = any(name in _FOLLOWED and not self._there(name) for name in packages)
        else:
            return None
        catching = (handler for handler in one.handlers if _named(handler) & {"import", "missing"})
        return next(catching, None) if fails else None

    def _from(self, one: ast.ImportFrom) -> Iterator[str]:
        base = absolute("." * one.level + (one.module or ""), self._package)
        yield from parents(base)
        for alias in one.names:
            if f"{base}.{alias.name}" in self._failing:
                yield f"{base}.{alias.name}"
            else:
                yield from self._sources.of_name(base, alias.name)

    def truth(self, test: ast.expr, depth: int = 9) -> bool | None:
        """Return what a condition is in this environment; None if that is not understood."""
        if not depth:
            return None
        if isinstance(test, ast.Constant):
            return bool(test.value)
        if isinstance(test, ast.Name):
            if test.id in ("TYPE_CHECKING", SLOW):
                return test.id == SLOW and self._environ.get(SLOW, "").upper() in YES
            value = self._values.get(test.id)
            return None if value is None else self.truth(value, depth - 1)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand, depth - 1)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            answers = [self.truth(one, depth - 1) for one in test.values]
            deciding = isinstance(test.op, ast.Or)
            return deciding if deciding in answers else None if None in answers else not deciding
        return self._asked(test) if isinstance(test, ast.Call) else self._compared(test, depth)

    def _compared(self, test: ast.expr, depth: int) -> bool | None:
        """Evaluate `find_spec(…) is not None` and `os.getenv(…) == "…"`."""
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Call):
            return None
        right = test.comparators[0]
        value = right.value if isinstance(right, ast.Constant) else ...
        if isinstance(value, str) and isinstance(test.ops[0], ast.Eq):
            name, *default = map(self._text, test.left.args) if _reads_variable(test.left) else [""]
            return self._environ.get(name, *default) == value if name else None
        inner = self.truth(test.left, depth - 1) if value is None else None
        return inner if isinstance(test.ops[0], ast.IsNot) or inner is None else not inner

    def _asked(self, call: ast.Call) -> bool | None:
        """Evaluate `is_…_available()`, `is_…_version(">=", …)` and `find_spec(…)`."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        arguments = [self._text(one) for one in call.args]
        if name == "find_spec" and arguments[:1] not in ([], [""]):
            return self._there(absolute(arguments[0], self._package))
        asked = re.fullmatch(r"_?is_(\w+)_(available|version)", name)
        if asked is None:
            return None
        if asked[2] == "version":
            return self._fits(asked[1], arguments)
        module = _ASKED.get(asked[1], asked[1])
        if not self._there(module):
            return None if asked[1].startswith("torch_") else False
        if asked[1] == "flash_attn_2":
            return self._cuda
        if not arguments and asked[1] not in _ASKED:
            return self._new_enough(asked[1])
        return None if arguments else True

    def _new_enough(self, name: str) -> bool | None:
        """Whether a package has the release that a constant of Transformers names for it."""
        path = self._sources.file(f"{self._package.partition('.')[0]}.utils.import_utils")
        constant = f"{name.upper()}_MIN_VERSION"
        text = "\n".join(self._host.try_grep(path, f"{constant} = ")) if path else ""
        least = re.search(rf'^{constant} = "([\d.]+)"', text)
        return self._fits(name, [f">={least[1]}"]) if least is not None else None

    def _fits(self, name: str, arguments: Sequence[str]) -> bool | None:
        one = self._site.distributions.get(name)
        try:
            return satisfies(one.version, "".join(arguments)) if one and all(arguments) else None
        except ValueError:
            return None

    def _text(self, value: ast.expr) -> str:
        if isinstance(value, ast.Name):
            value = self._values.get(value.id, value)
        text = value.value if isinstance(value, ast.Constant) else ""
        return text if isinstance(text, str) else ""

    def _there(self, module: str) -> bool:
        return module in self._failing or self._sources.there(module)


def _lacking(module: str) -> Failing | None:
    """Return a name that a module takes, as what fails; None for a module."""
    sign = re.search(_SIGN, module)
    return Failing(module, _RAISED[sign[0]], "") if sign is not None else None


def _modules(name: str) -> Iterator[str]:
    """Yield `PACKAGE?NAME` of a module and of the packages in which it is."""
    for one in parents(name):
        package, _, last = one.rpartition(".")
        if package:
            yield f"{package}?{last}"


def _used(value: ast.expr) -> Iterator[str]:
    """Yield the names `MODULE!NAME` that an expression certainly uses."""
    if isinstance(value, ast.Attribute) and re.fullmatch(r"[\w.]+", ast.unparse(value.value)):
        yield f"{ast.unparse(value.value)}!{value.attr}"
    if not isinstance(value, (ast.Lambda, ast.IfExp, ast.BoolOp)):
        for one in ast.iter_child_nodes(value):
            if isinstance(one, ast.expr):
                yield from _used(one)


def _reads_variable(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("os.getenv", "os.environ.get")


def _catches(handler: ast.ExceptHandler) -> frozenset[str]:
    """Return what a handler catches and does not raise again."""
    again = any(isinstance(one, ast.Raise) for one in handler.body)
    return frozenset() if again else _named(handler)


def _named(handler: ast.ExceptHandler) -> frozenset[str]:
    """Return what a handler names."""
    kind = handler.type
    named = [ast.Name("BaseException")] if kind is None else getattr(kind, "elts", [kind])
    names = [one.id for one in named if isinstance(one, ast.Name)]
    return frozenset(raised for name in names for raised in _CATCHES.get(name, ()))


def _parsed(text: str) -> list[ast.stmt] | None:
    """Return the statements of a module; None if it is for another Python.

    Most of a module are functions and classes. Without them it is parsed ten times as fast.
    """
    for source in (_outline(text), text):
        try:
            return ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _outline(text: str) -> str:
    """Return the text without decorators, and without the bodies of functions and classes."""
    kept: list[str] = []
    inside = -1
    for line in text.splitlines():
        content = line.lstrip()
        indent = len(line) - len(content)
        if inside >= 0 and (not content or indent > inside or content[0] in ")#"):
            continue
        inside = -1
        if content.startswith(("def ", "class ", "async def ", "@")):
            inside = indent
            line = f"{line[:indent]}pass"
        kept.append(line)
    return "\n".join(kept)
