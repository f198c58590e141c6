"""Finds installed packages whose requirements are absent, and imports that fail for that reason.

An absent requirement does not always stop an import: torch works without networkx. So the modules
that an import executes are followed, as text: statements at the left margin, which no condition
guards, and those of a `try` that raises again. Packages that resolve names on demand
(`_import_structure`, `_SUBMOD_ATTRS`) are followed by their lists of names. Not seen: imports
inside functions, another `if` and another `try`.

Names are looked up too, as text: those that packages that ask for a newer torch import from torch's
modules, and those that are imported from a package of another version than is required.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator

from msgspec import Struct

from attn_doctor.facts import UnmetRequirement
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.executed import called, executed
from attn_doctor.probes.installed.hiding import Hiding
from attn_doctor.probes.installed.names import Names
from attn_doctor.probes.installed.requirement_graph import (
    Requirements,
    module_of,
    name_of,
    unmet,
)
from attn_doctor.probes.installed.sources import Sources, absolute, parents
from attn_doctor.probes.installed.undeclared import BOUNDS, CAUGHT, LATER, LOST, UNDECLARED
from attn_doctor.probes.installed.version_checks import failing, fits, least_of_peft
from attn_doctor.requirement import normal_name

#: What frameworks import before attention, where that is more than their package.
_ENTRIES = {
    "diffusers": ("diffusers.models.attention_dispatch", "diffusers.models.attention_processor"),
    "transformers": ("transformers.modeling_utils",),
}
#: What a module of a framework imports if it is installed: the module, and the distribution.
_IF_INSTALLED = {
    "transformers": (
        ("transformers.generation.candidate_generator", "scikit-learn"),
        ("transformers.loss.loss_for_object_detection", "scipy"),
    ),
    "accelerate": (("accelerate.utils.megatron_lm", "transformers"),),
    "xformers": (("xformers.checkpoint", "scipy"),),
}
#: Files that are read to follow the imports of one package.
MOST = 3000
_STATEMENT = (
    r"(?m)^(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)|import[ \t]+([^\n#]+))"
)
#: A name that torch 2.5 and 2.6 import from one of two places of Triton.
_EITHER = (
    r"(?m)^( *)try:\n *from (triton[.\w]*) import (\w+)\b.*\n(?:\1 .*\n|\n)*"
    r"\1except ImportError.*\n *from (triton[.\w]*) import \3\b"
)
#: Decorators of functions and methods that import torch._dynamo when they are applied.
_DYNAMO = r"(?m)^(?: {4})?@torch\.(?:compile|compiler\.(?:disable|allow_in_graph)|_dynamo\.\w+)\b"


class _Step(Struct, frozen=True):
    """A module to follow, and the file that imports it."""

    module: str
    by: str


class Imports:
    """The unmet requirements of an environment, and the imports that fail because of them.

    `roots`: names of distributions; `outdating`: those of packages that ask for a newer torch.
    Several probes may share one object.
    """

    def __init__(
        self, host: Host, site: Site, roots: Iterable[str], outdating: Iterable[str] = ()
    ) -> None:
        self._host, self._site = host, site
        self._sources = sources = Sources(host, site)
        self._file, self._names, self._short = sources.file, sources.names, sources.short
        known = [one for one in map(site.distributions.get, roots) if one is not None]
        self._roots = known
        torch = site.distributions.get("torch")
        self._names_of = Names(host, sources, torch.version if torch is not None else "")
        self._requirements = requirements = Requirements(host, site)
        self._hiding = Hiding(host, site, sources, requirements, known)
        #: Yields what a folder has in place of a module.
        self.in_front = self._hiding.in_front
        declared = unmet(requirements, known)
        absent = [one for one in declared if not one.installed]
        names = {normal_name(name_of(one.needs or "")) for one in absent}
        #: Modules that are not there, with the distribution that contains each. Files without
        #: metadata are imported all the same.
        self._absent = {module_of(name): name for name in names if not self._file(module_of(name))}
        #: Modules of packages that are installed in another version than one requires.
        self._unfit: dict[str, list[UnmetRequirement]] = {}
        for one in declared:
            self._unfit.setdefault(module_of(normal_name(name_of(one.needs or ""))), []).append(one)
        for module in self._absent:
            self._unfit.pop(module, None)
        #: Distribution → a requirement of which one of two copies is too old or too new.
        self._ambiguous = {
            one.name: wanted for one in known if (wanted := requirements.ambiguous(one))
        }
        #: A Triton that torch does not require may lack modules that torch imports.
        self._other_triton = requirements.other_triton()
        lacking = {one.package for one in declared}
        if self._other_triton:
            lacking.add("torch")
        closures = {name: one for root in known for name, one in requirements.closure(root).items()}
        #: Packages whose files can lead to these modules.
        self._concerned = {
            module_of(name)
            for name, one in closures.items()
            if lacking and not lacking.isdisjoint(requirements.closure(one))
        }
        if "torch" in self._concerned:
            self._concerned.add("functorch")  # torch's wheel has it
        self._outdating = frozenset(map(module_of, outdating))
        self._concerned |= self._outdating
        self._follows: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._without: frozenset[str] | None = None
        self._lock = threading.Lock()
        #: Distribution → the undeclared import that fails, and what would be required for it.
        self._undeclared = {
            one.name: found
            for one in known
            if (found := self._fails_undeclared(UNDECLARED.get(one.name)))
        }
        if "triton" in self._undeclared:
            self._other_triton = ""
        #: torch before 2.3 is compiled for NumPy 1.
        self._numpy_1 = torch is not None and _before(torch.version, 2, 3)
        #: Distribution → what its import tests and does not find, each with the installed version.
        self._checked = {
            one.name: checked
            for one in known
            if (checked := (*failing(host, site, sources, module_of(one.name)),))
        }
        self._least_of_peft = (*least_of_peft(host, site, sources),)
        self.unmet = (*declared, *self._undeclared_requirements())

    def error(self, root: str, module: str) -> str:
        """Return why importing `module` of distribution `root` fails; empty if nothing is seen."""
        if root in self._undeclared:
            return self._undeclared[root][0]
        if root == "torch" and (said := self._hiding.other_numpy()):
            return said
        if root in self._checked:
            return self._checked_at_import(root)
        if not self.unmet and not self._outdating and not self._other_triton:
            return ""
        with self._lock:
            return self._absent_import(root, module)

    def _checked_at_import(self, root: str) -> str:
        """Return the first requirement that transformers or Diffusers tests at import."""
        needs, installed = self._checked[root][0]
        state = f"{name_of(needs)} {installed}" if installed else "none"
        return f"it requires {needs}, and {state} is installed"

    def doubt(self, root: str, module: str) -> str:
        """Return why importing `module` may fail; empty if nothing is seen.

        Code of a `.pth` file or of `sitecustomize.py` may lead the import to another copy. Or a
        package that the import reaches is installed in another version than `root`, or a package on
        the way, requires.
        Whether that version serves is unknown without the import.
        """
        for path in self._site.path_unread:
            return f"attn-doctor does not understand what {path} changes of the import"
        if wanted := self._ambiguous.get(root):
            return f"it requires {wanted}, and only one of the installed copies has that version"
        if said := self._hiding.doubt(root) or self._optional_doubt(root):
            return said
        with self._lock:
            for step in self._steps(root, module) if self._unfit else ():
                unfit = self._unfit.get(step.module, ())
                # The package of the file may have the closest requirement.
                one = next((one for one in unfit if _of(one, step.by)), next(iter(unfit), None))
                if one is not None and not self._serves(one, step):
                    name = name_of(one.needs or "")
                    return (
                        f"{step.by} imports {name} {one.installed}, and {one.package} requires "
                        f"{one.needs}"
                    )
        return ""

    def _serves(self, unfit: UnmetRequirement, step: _Step) -> bool:
        """Whether a package has all names that the file imports from it or its modules.

        With a lower first number, those that define classes of the file may mean something else:
        kernels 0.17.2 fails with huggingface-hub 0.36, which has all that it imports.
        """
        package, by = step.module, step.by
        path = next((one for one in self._follows if self._follows[one][0] == by), "")
        text = self._host.try_read(self._file(path), 1 << 20) if path else ""
        plain = re.findall(
            rf"(?m)^\s*import[ \t]+({package}(?:\.\w+)*)(?:[ \t]+as[ \t]+(\w+))?[ \t]*$", text
        )
        found = re.findall(
            rf"(?m)^\s*from[ \t]+({package}(?:\.\w+)*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)", text
        )
        asked = [
            (base, name)
            for base, alias in plain
            for name in re.findall(rf"\b{alias or base}\.(\w+)", text)
        ]
        for base, names in found:
            names = re.sub(r"#[^\n]*|\bas\s+\w+", "", names)
            asked += [(base, name) for name in re.findall(r"\w+", names)]
        if _much_older(unfit, by) and any(_defines(text, name) for _, name in asked):
            return False
        return bool(asked) and all(self._has(base, name) for base, name in asked)

    def _has(self, base: str, name: str) -> bool:
        """Whether the text of a module names this name, or it is a module itself."""
        path = self._file(base)
        if not path or self._file(f"{base}.{name}"):
            return bool(path)
        return bool(re.search(rf"\b{name}\b", self._host.try_read(path, 1 << 20)))

    def _optional_doubt(self, root: str) -> str:
        """Return what a package that `root` imports if it is there requires in another version."""
        for module, name in _IF_INSTALLED.get(root, ()):
            for one, wanted, version in self._optional_unmet(module, name):
                return (
                    f"{self._short(self._file(module))} imports {name}, for which {one.name} "
                    f"requires {wanted}, and {version or 'none'} is installed"
                )
        return ""

    def _optional_unmet(self, module: str, name: str) -> Iterator[tuple[Distribution, str, str]]:
        """Yield the unmet requirements of a package that `module` imports if it is there."""
        optional = self._site.distributions.get(name)
        path = self._file(module) if optional is not None else ""
        asked = rf"is_{module_of(name)}_available|_{module_of(name)}_is_available"
        if optional is None or not re.search(asked, self._host.try_read(path)):
            return
        for one in self._requirements.closure(optional).values():
            for wanted in self._requirements.absent(one):
                yield one, wanted, ""
            for wanted, version in self._requirements.unfit(one):
                yield one, wanted, version

    def later(self, root: str) -> str:
        """Return why what `root` imports on demand fails; empty if nothing is seen."""
        failures = map(self._fails_undeclared, LATER.get(root, ()))
        return next((failure[0] for failure in failures if failure is not None), "")

    def _fails_undeclared(
        self, undeclared: tuple[tuple[str, ...], str, str] | None
    ) -> tuple[str, str] | None:
        """Return why an import that a package does not declare fails, and its requirement."""
        modules, name, requirement = undeclared or ((), "", "")
        name, _, function = name.partition(":")
        if function:
            # A module for each function.
            asked = zip(modules, function.split(","), strict=True)
            lacks = (self._lacks_function(module, name, one) for module, one in asked)
            found = next(filter(None, lacks), "")
            return (found, requirement) if found else None
        parent = name.partition(".")[0] if "." in name else ""
        for path in filter(None, map(self._file, modules)):
            text = self._host.try_read(path)
            imported = rf"(?m)^\s*(?:import|from) {re.escape(name)}\b"
            if not re.search(imported, text) or re.search(CAUGHT, text):
                continue
            if parent and not self._file(parent):
                return None
            if self._file(name):
                return self._fails_undeclared(UNDECLARED.get(parent))
            return f"{self._short(path)} imports {name}, which is not installed", requirement
        return None

    def _lacks_function(self, module: str, package: str, function: str) -> str:
        """Return that `module` imports a function that `package` does not name; empty if not.

        The package resolves names on demand: its own text has all of them.
        """
        path, own = self._file(module), self._file(package)
        if not own or not self._imports_name(path, package, function):
            return ""
        text = self._host.try_read(own, 1 << 20)
        # Transformers from 4.49 on finds its models by their folders.
        name = function.removesuffix("Tokenizer").lower()
        file = f"{package}.models.{name}.tokenization_{name}"
        listed = "define_import_structure" in text and (
            function.endswith("Config") or bool(self._file(file))
        )
        if listed or re.search(rf"\b{function}\b", text):
            return ""
        return (
            f"{self._short(path)} imports {function} from {package}, and this {package} has no such"
            " name"
        )

    def _imports_name(self, path: str, package: str, function: str) -> bool:
        """Whether the file imports the name, whatever release of `package` is installed."""
        text = self._host.try_read(path) if path else ""
        imported = rf"(?: {{4}})?from {package} import (?:\([^)]*|[^\n]*)\b{function}\b"
        if not re.search(rf"(?m)^(?:{imported}| {{0,8}}{package}\.{function}\b)", text):
            return False
        # Diffusers before 0.40 asks first whether PEFT is newer than 0.14, 0.42 how new torchao is.
        newer = rf'is_{package.partition(".")[0]}_version\(">'
        block = rf"if .*{newer}.*\n {{4}}from {package} import [^\n]*\b{function}\b"
        return not re.search(rf'(?m)^(?:\w+ = .*{newer}"|{block})', text)

    def bounds(self) -> Iterator[tuple[str, str]]:
        """Yield what packages need of others without declaring it: package, requirement."""
        if self._numpy_1:
            yield "torch", "numpy<2"
        for root in self._roots:
            declared = UNDECLARED.get(root.name)
            for modules, name, requirement in (
                *((declared,) if declared else ()),
                *LATER.get(root.name, ()),
            ):
                package, _, function = name.partition(":")
                if name_of(requirement) == root.name:
                    requirement = LOST.get(name, "")
                path, function = self._file(modules[0]), function.partition(",")[0]
                if requirement and function and self._imports_name(path, package, function):
                    yield root.name, requirement
        yield from (("peft", wanted) for wanted in self._least_of_peft)
        for package, releases, requirement in BOUNDS:
            one = self._site.distributions.get(package)
            if one is not None and fits(one.version, package + releases):
                yield package, requirement

    def _undeclared_requirements(self) -> Iterator[UnmetRequirement]:
        found = [
            (UNDECLARED[package][1].partition(".")[0] if name_of(one) == package else package, one)
            for package, (_, one) in self._undeclared.items()
        ]
        for root in self._roots:
            for undeclared in LATER.get(root.name, ()):
                failure = self._fails_undeclared(undeclared)
                package, _, _ = undeclared[1].partition(":")
                itself = name_of(undeclared[2]) == root.name
                found += [(package if itself else root.name, undeclared[2])] if failure else []
        found += [("peft", wanted) for wanted in self._least_of_peft if not self._met(wanted)]
        numpy = self._site.distributions.get("numpy") if self._numpy_1 else None
        found += [("torch", "numpy<2")] if numpy and not _before(numpy.version, 2) else []
        found += [
            (one.name, wanted)
            for root in self._roots
            for module, name in _IF_INSTALLED.get(root.name, ())
            for one, wanted, _ in (self._optional_unmet(module, name) if name == "scipy" else ())
        ]
        # The metadata require the others.
        found += [
            (package, needs)
            for package, checked in self._checked.items()
            for needs, installed in checked
            if name_of(needs) == "peft" or (name_of(needs) == "accelerate" and not installed)
        ]
        for package, requirement in dict.fromkeys(found):
            if requirement:
                there = self._site.distributions.get(name_of(requirement))
                version = there.version if there is not None else ""
                yield UnmetRequirement(package=package, needs=requirement, installed=version)

    def _met(self, wanted: str) -> bool:
        there = self._site.distributions.get(normal_name(name_of(wanted)))
        return there is None or fits(there.version, wanted)

    def _absent_import(self, root: str, module: str) -> str:
        if not (self._absent or self._outdating or self._unfit or self._other_triton):
            return ""
        for step in self._steps(root, module):
            source, _, name = step.module.partition(":")
            if name:
                package = source.partition(".")[0]
                return (
                    f"{step.by} imports {name} from {source}, and this {package} has no such name"
                )
            absent = self._is_absent(step.module)
            if absent:
                return f"{step.by} imports {absent}, which is not installed"
            if self._other_triton and self._triton_lacks(step.module):
                return f"{step.by} imports {step.module}, which triton {self._other_triton} lacks"
        return ""

    def _triton_lacks_name(self, module: str, name: str) -> bool:
        """Whether the installed Triton has not this name of `module`."""
        if self._file(module):
            return self._names_of.lacks(module, name)
        return any(map(self._triton_lacks, parents(module)))

    def _triton_lacks(self, module: str) -> bool:
        """Whether the installed Triton has the package of `module`, and not `module` itself."""
        package, _, name = module.rpartition(".")
        path = self._file(package) if module.startswith("triton.") else ""
        if not path.endswith("__init__.py"):
            return False
        there = self._names(self._host.parent(path))
        return name not in {one.partition(".")[0] for one in there}

    def _steps(self, root: str, module: str) -> Iterator[_Step]:
        """Yield the modules that importing `module` executes, those of other packages included.

        Only packages whose files can lead to a requirement that is not met are followed.
        """
        concerned = {*self._concerned, module.partition(".")[0]}
        pending = [_Step(name, "") for name in _ENTRIES.get(root, (module,))]
        seen: set[str] = set()
        while pending and len(seen) < MOST:
            step = pending.pop(0)
            if step.module in seen:
                if step.module in self._unfit:
                    yield step  # other names may be imported here
                continue
            seen.add(step.module)
            yield step
            if step.module.partition(".")[0] in concerned and ":" not in step.module:
                if step.module not in self._follows:
                    path = self._file(step.module)
                    follows = tuple(self._follow(step.module, path)) if path else ()
                    self._follows[step.module] = (self._short(path), follows)
                by, follows = self._follows[step.module]
                pending += [_Step(name, by) for name in follows]

    def _is_absent(self, module: str) -> str:
        return next(
            (
                name
                for absent, name in self._absent.items()
                if module == absent or module.startswith(absent + ".")
            ),
            "",
        )

    def _follow(self, module: str, path: str) -> Iterator[str]:
        """Yield the modules that `module`, the file at `path`, imports unconditionally."""
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        text = self._host.try_read(path, 1 << 20).replace("\r\n", "\n")
        text = executed(text, self._site.python, self._not_executed())
        outdating = module.partition(".")[0] in self._outdating
        yield from self._of_neither(text)
        for name in called(text):
            yield from parents(name)
        if not module.startswith("torch.") and re.search(_DYNAMO, text):
            yield "torch._dynamo"
        for match in re.finditer(_STATEMENT, text):
            source, names, plain = match.groups()
            if plain is not None:
                for name in plain.split(","):
                    yield from parents(name.split(" as ")[0].strip())
                continue
            base = absolute(source, package)
            yield from parents(base)
            for name in re.split(r"[,\s()]+", re.sub(r"#[^\n]*|\bas\s+\w+", "", names)):
                if name.isidentifier():
                    yield from self._sources.of_name(base, name)
                    asked = outdating and base.startswith("torch.")
                    other = base.partition(".")[0] in self._unfit
                    if (asked or other) and self._names_of.lacks(base, name):
                        yield f"{base}:{name}"

    def _not_executed(self) -> frozenset[str]:
        """Return packages whose blocks do not run, or whose names in them are not asked about.

        torch takes a Triton that cannot be imported for absent.
        """
        if self._without is None:
            self._without = frozenset({"torchao"} - self._outdating)
            if self._absent and self._absent_import("triton", "triton"):
                self._without |= {"triton"}
        return self._without

    def _of_neither(self, text: str) -> Iterator[str]:
        """Yield a name that `text` imports from one of two modules of a Triton that lacks both."""
        for _, first, name, second in re.findall(_EITHER, text) if self._other_triton else ():
            if self._triton_lacks_name(first, name) and self._triton_lacks_name(second, name):
                yield f"{second}:{name}"


def _of(one: UnmetRequirement, by: str) -> bool:
    """Whether the file `by` is of the package that requires it."""
    return re.split(r"[/\\]", by)[0] == module_of(normal_name(one.package or ""))


def _much_older(one: UnmetRequirement, by: str) -> bool:
    """Whether the package of the file `by` requires a release with a higher first number."""
    if not _of(one, by):
        return False
    least = re.search(r">=?\s*(\d+)", one.needs or "")
    return least is not None and _before(one.installed or "", int(least[1]))


def _defines(text: str, name: str) -> bool:
    """Whether a decorator or a base class of a module's text is `name`, or is in it."""
    return bool(re.search(rf"(?m)^(?:@|class \w+\().*\b{name}\b", text))


def _before(version: str, *release: int) -> bool:
    """Whether a version is older than a release; false if it cannot be read."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return numbers is not None and tuple(map(int, numbers[0].split("."))) < release
