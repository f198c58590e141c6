"""What is wrong with a fix on a machine: each answer is a sentence, none is a pass.

A fix is read as attn-doctor gives it there: after `install.offered`, with the commands of the
machine's own installer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

from attn_doctor.cli.application import app_for
from attn_doctor.derived import derive
from attn_doctor.derived.releases import tag as cuda_tag
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import PACKAGES, Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Severity, Verdict
from attn_doctor.fixes.pip_arguments import PipCall, Wanted, pip_call
from attn_doctor.fixes.postconditions import unmet, with_build
from attn_doctor.install.builds import TorchBuild, fit, published
from attn_doctor.install.offered import offered
from attn_doctor.pretend import pretend
from attn_doctor.requirement import satisfiable
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rule, fill_fix, fitting_fixes, lookups
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.shell.commands import argv_lists, split_assignments
from tools.try_fixes.index import Answers, newest
from tools.try_fixes.machines import has_problem

_WHL = "https://download.pytorch.org/whl/"
#: Programs and folders that one system has. Words of prose are looked up here as well.
_LINUX = r"sudo|reboot|ldconfig|modprobe|systemctl|dmesg|apt|apt-get|apt-mark|dnf|yum|umount|chown"
_LINUX_WORDS = re.compile(
    rf"`(?:{_LINUX})\b|(?<![\w/])/(?:etc|usr|dev|proc|lib)/|LD_LIBRARY_PATH|LD_PRELOAD"
)
_WINDOWS_WORDS = re.compile(r"\b[A-Z]:\\|HKLM:|\.exe\b")
_SYSTEM_NAMED = re.compile(
    r"\b[Oo]n (?:Linux|Ubuntu|Debian|Fedora|Windows|macOS)|Linux:|Windows:|WSL|[Cc]ontainer|image\b"
)
_FAMILY = {"ubuntu": "debian", "debian": "debian", "fedora": "fedora", "rhel": "fedora"}
_PACKAGE_TOOLS = {"apt-get": "debian", "apt": "debian", "dnf": "fedora", "yum": "fedora"}
#: Packages that compile for long, or not at all without a toolkit, where no wheel fits.
_COMPILED = (
    "torch",
    "torchvision",
    "torchaudio",
    "triton",
    "xformers",
    "triton-windows",
    "torchao",
)


#: Rules of the GPUs on which a package runs, and the release of its sources on GitHub.
_GPU_RULES = {
    "flash_attn": ("flash/gpu-too-old", "flash/too-old-for-blackwell"),
    "sageattention": ("sage/unsupported-gpu", "sage/gpu-too-old", "sage/too-old-for-blackwell"),
}
_FROM_SOURCES = {"github.com/thu-ml/SageAttention": ("sageattention", "2.2.0")}

#: Distributions with the facts of another one.
_FIELDS = dict.fromkeys(("triton-windows", "pytorch-triton", "pytorch-triton-rocm"), "triton")


class Tried(NamedTuple):
    """A fix on one machine."""

    rule: Rule
    fix: Fix
    facts: Facts


def fixes_on(rule: Rule, facts: Facts) -> list[Fix]:
    """The fixes that attn-doctor offers there, as it would print them."""
    found = evaluate_rule(rule, facts) if rule.has_conditions else _explained(rule, facts)
    diagnosis = offered(Diagnosis(facts=facts, findings=tuple(found), rules=1))
    return [fix for one in diagnosis.problems for fix in one.fixes]


def _explained(rule: Rule, facts: Facts) -> list[Finding]:
    """The finding of a log that such a machine printed."""
    found = []
    for lookup in lookups(rule, facts):
        certain, possible = fitting_fixes(rule, lookup)
        fixes = tuple(fill_fix(rule, index, lookup) for index in certain or possible)
        found.append(
            Finding(
                rule=rule.id,
                verdict=Verdict.PROBLEM,
                severity=Severity(rule.severity),
                cause=rule.cause,
                title=rule.title,
                fixes=fixes,
            )
        )
    return found


def faults(tried: Tried, answers: Answers) -> Iterator[str]:
    """Everything that keeps the fix from working there."""
    facts, fix = tried.facts, tried.fix
    for argv in argv_lists(fix, facts):
        words = split_assignments(argv)[1]
        yield from _program(words, tried)
    yield from _prose(tried)
    ahead: Facts | None = facts
    for argv in fix.run:
        call = pip_call(argv)
        if call is not None and call.verb == "install":
            yield from _installation(call, fix, ahead or facts, answers)
            yield from _other_gpu(call, ahead or facts, answers)
        if call is not None:
            ahead = ahead and _after(call, ahead, answers)
    if ahead is not None and ahead is not facts:
        yield from _unsolved(tried, ahead)


def _inside(tried: Tried) -> bool:
    """The command is for a container that the machine is, and not for its host."""
    fix = tried.fix
    return bool(tried.facts.system.container) and not re.search(
        r"\bhost\b", f"{fix.title} {fix.manual} {fix.needs}"
    )


def _program(words: tuple[str, ...], tried: Tried) -> Iterator[str]:
    facts = tried.facts
    system = facts.system.os
    program = words[1] if words[0] == "sudo" else words[0]
    if "attn-doctor" in words[0]:
        if fault := own_command(words):
            yield f"`{' '.join(words)}`: {fault}"
    elif words[0] == "sudo" and system == "windows":
        yield f"`{' '.join(words)}`: Windows has no sudo"
    elif program in ("reboot", "ldconfig", "systemctl", "rm") and system == "windows":
        yield f"Windows has no program {program}"
    elif program == "powershell" and system != "windows":
        yield "powershell is of Windows"
    elif program in ("reboot", "systemctl", "ubuntu-drivers") and _inside(tried):
        yield f"{program} does nothing in a container"
    needed = _PACKAGE_TOOLS.get(program)
    family = _FAMILY.get(facts.system.distribution or "")
    if needed and family and needed != family:
        yield f"{facts.system.distribution} has no {program}"


@cache
def own_command(words: tuple[str, ...]) -> str:
    """Return what attn-doctor's own parser says against a call of it; empty if nothing."""
    rest = [*words[1:], "--help"]  # which runs nothing, and is printed once all is parsed
    ended = CliRunner().invoke(app_for(rest), rest)
    return "" if ended.exit_code == 0 else " ".join(ended.output.split())


def _prose(tried: Tried) -> Iterator[str]:
    """Words of another system, in a fix that does not name the system that they are for."""
    system, fix = tried.facts.system.os, tried.fix
    text = f"{fix.title} {fix.manual} {fix.needs}"
    if _SYSTEM_NAMED.search(text):
        return
    wrong = _LINUX_WORDS if system == "windows" else _WINDOWS_WORDS
    if match := wrong.search(text):
        yield f"it says {match[0]} on {system}"


def _platform(facts: Facts) -> tuple[str, int]:
    """The platform as `index` names it, and the minor release of Python 3."""
    return (
        f"{facts.system.os}-{facts.system.arch}",
        int((facts.python.version or "3.12").split(".")[1]),
    )


def _installation(call: PipCall, fix: Fix, facts: Facts, answers: Answers) -> Iterator[str]:
    index = next((url for name, url in call.indexes if name in ("--index-url", "-i")), "")
    for one in call.wanted:
        if one.url or not answers.has(one.name):
            continue
        if index.startswith(_WHL):
            yield from _of_pytorch(one, index.removeprefix(_WHL), facts)
        else:
            yield from _of_pypi(one, call, fix, facts, answers)


def _other_gpu(call: PipCall, facts: Facts, answers: Answers) -> Iterator[str]:
    """What rules say about the GPU once the packages of the command are installed."""
    for one in call.wanted:
        address = (one.url or "").removeprefix("git+").removeprefix("https://")
        name, version = _FROM_SOURCES.get(address, (one.name.replace("-", "_"), ""))
        if name not in _GPU_RULES or (one.url and not version):
            continue
        version = version or taken(one, call, facts, answers)[0]
        if not version:
            continue
        tables = library.tables()
        ahead = derive(pretend(facts, [f"{name}={version}"], tables), tables)
        for rule in _rules(_GPU_RULES[name]):
            if has_problem(rule, ahead):
                yield f"{name} {version} does not run on this GPU: {rule.id}"


@cache
def _rules(ids: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in read_folder(library.folder()) if rule.id in ids)


def _of_pypi(one: Wanted, call: PipCall, fix: Fix, facts: Facts, answers: Answers) -> Iterator[str]:
    extra = any(name == "--extra-index-url" for name, _ in call.indexes)
    if extra and one.name == "torch":
        index = next(url for name, url in call.indexes if name == "--extra-index-url")
        yield from _of_pytorch(one, index.removeprefix(_WHL), facts)
        return
    version, how = taken(one, call, facts, answers)
    python, where = facts.python.version, f"{facts.system.os} {facts.system.arch}"
    if not version:
        # A release that is installed here exists for this Python; other machines are made up.
        repaired = "--no-deps" in call.flags and _exists(one, answers)
        if not repaired:
            yield f"no {one.text} for Python {python} on {where}"
        return
    if how == "source" and one.name in _COMPILED:
        yield f"{one.name} {version} has no wheel for Python {python} on {where}: pip compiles it"
    torch = facts.torch
    for line in answers.needs(one.name, version):
        needed = Requirement(line)
        if needed.name != "torch" or "torch" in call.names or not torch.installed:
            continue
        if needed.marker is None and not needed.specifier.contains(
            torch.version or "0", prereleases=True
        ):
            kept = "--no-deps" in call.flags
            if not kept and "another torch" in fix.needs:
                continue
            what = "does not fit torch" if kept else "replaces torch"
            yield f"{one.name} {version} needs torch{needed.specifier}: it {what} {torch.version}"


def _exists(one: Wanted, answers: Answers) -> bool:
    spec = SpecifierSet(one.specifier)
    return any(spec.contains(row.version, prereleases=True) for row in answers.releases(one.name))


def taken(one: Wanted, call: PipCall, facts: Facts, answers: Answers) -> tuple[str, str]:
    """The release of PyPI that the command takes, and whether as a wheel."""
    pre = "--pre" in call.flags
    return newest(answers, one.name, one.specifier, *_platform(facts), pre=pre)


def _of_pytorch(one: Wanted, index: str, facts: Facts) -> Iterator[str]:
    """What the tables say about an index of PyTorch."""
    if one.name == "xformers":
        yield from _xformers(one, index, facts)
        return
    if one.name != "torch":
        return
    if not re.fullmatch(r"cpu|xpu|cu\d{3}|rocm\d\.\d(\.\d)?", index):
        yield f"PyTorch has no index {index or 'without a name'}"
        return
    if facts.system.os == "macos":
        yield f"PyTorch's index {index} has no torch for macOS"
        return
    if not index.startswith("cu"):
        return
    build = _build(one, index, facts)
    oldest = library.tables()["torch"]["release"][0]["minor"]
    if build is None and satisfiable(one.specifier, f"<{oldest}") and one.specifier:
        return  # the tables do not go back so far
    if build is None:
        yield f"{one.text}: PyTorch's index {index} has no such release"
    # The same build again is a repair: whether it is right here is asked by other rules.
    elif index != facts.torch.index or facts.torch.release not in (None, build.version):
        found = fit(build, facts, library.tables())
        yield from filter(None, (found.system, found.python, found.driver, found.gpu))


def _build(one: Wanted, index: str, facts: Facts) -> TorchBuild | None:
    """The build of PyTorch's index that the command takes; the newest of those for this Python.

    A release that the tables do not list is taken for the listed one of its minor version.
    """
    spec = SpecifierSet(re.sub(r"==(\d+\.\d+)\.\d+(\+\w+)?$", r"==\1.*", one.specifier))
    builds = [
        build
        for build in published(facts, library.tables(), cuda=index != "cpu")
        if spec.contains(build.version) and index in (build.index, cuda_tag(build.cuda or "cpu"))
    ]
    fits = ((one, fit(one, facts, library.tables())) for one in builds)
    fitting = (one for one, found in fits if not (found.python or found.system))
    return next(fitting, builds[0] if builds else None)


def _xformers(one: Wanted, index: str, facts: Facts) -> Iterator[str]:
    spec = SpecifierSet(one.specifier)
    for row in reversed(library.tables()["xformers"]["release"]):
        if not spec.contains(row["version"]):
            continue
        builds = row.get("windows", row["cuda"]) if facts.system.os == "windows" else row["cuda"]
        if index not in {f"cu{cuda.replace('.', '')}" for cuda in builds}:
            where = f"PyTorch's index {index} for {facts.system.os}"
            yield f"xformers {row['version']} is not on {where}"
        elif facts.system.arch != "x86_64":
            yield f"xformers has no wheel for {facts.system.arch}"
        elif not SpecifierSet(row["torch"]).contains(facts.torch.release or "0"):
            yield f"xformers {row['version']} needs torch{row['torch']}, not {facts.torch.version}"
        return
    yield f"no xformers{one.specifier} is listed"


def _freed(facts: Facts, field: str) -> Facts:
    """The facts without the imports that failed because they reach a package that is removed."""
    packages = {one: getattr(facts, one) for one in PACKAGES}
    freed = {
        one: replace(package, import_error="")
        for one, package in packages.items()
        if f"{field}, which fails" in (package.import_error or "")
    }
    return replace(facts, **freed)


def _after(call: PipCall, facts: Facts, answers: Answers) -> Facts | None:
    """The facts once the command ran, as far as tables and index tell; None if they do not."""
    words = []
    for one in call.wanted:
        field = _FIELDS.get(one.name, one.name.replace("-", "_"))
        if one.name == "torch" and call.verb == "install":
            index = next((url for _, url in call.indexes if url.startswith(_WHL)), "")
            tag = index.removeprefix(_WHL)
            build = _build(one, tag, facts) if tag else None
            if build is None:
                return None
            facts = with_build(facts, build.full, build.cuda)
        elif field not in (*PACKAGES, "triton") or one.url or not answers.has(one.name):
            return None
        elif call.verb == "uninstall":
            words.append(f"{field}=absent")
            facts = _freed(facts, field)
        elif version := taken(one, call, facts, answers)[0]:
            words.append(f"{field}={version}")
        else:
            return None
    try:
        return derive(pretend(facts, words, library.tables()), library.tables())
    except AttnDoctorError:
        return None


def _unsolved(tried: Tried, ahead: Facts) -> Iterator[str]:
    for why in unmet([tried.fix], ahead):
        if " is unknown," not in why:
            yield f"afterwards {why}"
    rule = tried.rule
    if rule.has_conditions and not rule.for_each and has_problem(rule, ahead):
        yield "afterwards the rule finds the same problem"
