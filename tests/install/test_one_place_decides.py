"""`check`, `fix`, `backends`, `explain` and `fix wheels` give the answer of `install`."""

from __future__ import annotations

import json
from functools import cache, partial

import pytest

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.required import Demand as Required
from attn_doctor.backends.required import remedies, with_required
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.explain.engine import explain
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.fixes.plan import plan
from attn_doctor.fixes.wheel_check import verdict
from attn_doctor.install.choice import Choice, Conflict, choose
from attn_doctor.install.demand import Demand
from attn_doctor.install.offered import decided, offered, offered_for_log, possible_here
from attn_doctor.render.backends.json import plain
from attn_doctor.rulebook import library
from tests.install.machines import machine

BACKENDS = {"flash": "flash-attn", "xformers": "xformers", "sage": "sageattention"}
MODULES = {"flash": "flash_attn", "xformers": "xformers", "sage": "sageattention"}
_TORCHES = ("", "2.3.1+cu121", "2.8.0+cu128", "2.9.1+cu128", "2.11.0+cpu", "2.13.0+cu130")
#: GPU, driver, torch, system and Python, as `--pretend` takes them.
MACHINES = [
    *(("rtx4090", "580", torch, "linux", "3.12.3") for torch in _TORCHES),
    ("h100", "535", "2.13.0+cu130", "linux", "3.12.3"),
    ("t4", "580", "2.9.1+cu128", "linux", "3.12.3"),
    ("rtx5090", "580", "", "linux", "3.11.7"),
    ("rtx4090", "580", "2.9.1+cu128", "windows", "3.12.3"),
    ("rtx4090", "580", "2.13.0+cu132", "linux", "3.11.7"),
    ("rtx4090", "580", "2.15.0+cu130", "linux", "3.15.0"),
    ("rtx3090", "595", "2.10.0+cu130", "linux", "3.13.1"),
    ("none", "", "2.13.0+cpu", "linux", "3.12.3"),
    ("mi300x", "", "2.13.0+cpu", "linux", "3.12.3"),
]


@cache
def examined(gpu: str, driver: str, torch: str, system: str, python: str) -> Facts:
    words = [f"gpu={gpu}", f"os={system}", f"python={python}"]
    words += [f"driver={driver}"] if driver else []
    words += [f"torch={torch}"] if torch else []
    return machine(*words)


@cache
def diagnosed(*of: str) -> Diagnosis:
    return diagnosis_of(examined(*of))


@cache
def answer(name: str, *of: str) -> Choice | Conflict:
    """What `install` chooses; on Windows with the wheels of others, if nothing else is prebuilt."""
    found = choose(Demand(words=(name,)), examined(*of), library.tables())
    if of[3] == "windows" and not _prebuilt(found):
        others = choose(Demand(words=(name,), community=True), examined(*of), library.tables())
        return others if _prebuilt(others) else found
    return found


def _prebuilt(found: Choice | Conflict) -> bool:
    return isinstance(found, Choice) and all(one.how != "build" for one in found.picks)


def kind(name: str, *of: str) -> str:
    """What `install` does: `moves` torch, compiles (`build`), takes a `wheel`, or `nothing`."""
    found = answer(name, *of)
    if isinstance(found, Conflict):
        return "nothing"
    if found.moves_torch or any(one.wheel and not one.official for one in found.picks):
        return "moves"
    return "build" if any(one.how == "build" for one in found.picks) else "wheel"


def agrees(name: str, fixes: tuple[Fix, ...], *of: str) -> None:
    """The fixes that install this backend say what `install` does."""
    found = answer(name, *of)
    package = BACKENDS[name]
    commands = [argv for fix in fixes for argv in fix.run]
    naming = [argv for argv in commands if argv[:2] == ("attn-doctor", "install")]
    by_pip = [argv for argv in commands if "pip" in argv and any(package in word for word in argv)]
    if kind(name, *of) in ("moves", "build"):
        assert [argv[:3] for argv in naming] == [("attn-doctor", "install", name)], fixes
        assert by_pip == []
        assert isinstance(found, Choice)
        (fix,) = (one for one in fixes if one.run == tuple(naming))
        assert all(one.version in fix.title for one in found.picks)
        assert (found.torch.version in fix.title) is found.moves_torch
    elif kind(name, *of) == "wheel":
        assert naming == []
        assert isinstance(found, Choice)
        (pick,) = found.picks
        assert by_pip, fixes
        (wanted,) = {word for argv in by_pip for word in argv if package in word}
        assert pick.version in wanted or wanted == pick.requirement, wanted
    else:
        assert naming == by_pip == []


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "of",
    [pytest.param(one, marks=[pytest.mark.thorough] * (at % 4)) for at, one in enumerate(MACHINES)],
    ids=" ".join,
)
def test_check_require(of: tuple[str, ...], name: str) -> None:
    call = AttentionCall(phase="inference", dtype="fp16")
    demand = Required(names=(name,), calls=(call,))
    found = offered(with_required(diagnosed(*of), [demand]))
    (finding,) = (one for one in found.findings if one.rule == f"required/{name}")
    assert finding.verdict is Verdict.PROBLEM
    if of[0] == "none":  # `install` can prepare an image; it does not make it ready here
        assert not any(fix.run for fix in finding.fixes)
        return
    agrees(name, finding.fixes, *of)


@pytest.mark.parametrize("of", MACHINES, ids=" ".join)
@pytest.mark.thorough
def test_backends(of: tuple[str, ...]) -> None:
    call = AttentionCall(phase="inference", dtype="fp16")
    facts = examined(*of)
    table = matrix(facts, diagnosed(*of).findings, (call,))
    data = json.dumps(plain(table, facts))
    for name in BACKENDS:
        cures = tuple(possible_here(one, facts) for one in remedies(table.row(name).answers))
        does = kind(name, *of)
        if does == "nothing" or of[0] == "none":
            assert not [argv for one in cures for argv in one.run]
        else:
            agrees(name, cures, *of)
        if of[0] != "none":
            assert (f"attn-doctor install {name}" in data) is (does in ("moves", "build"))


def _itself(facts: Facts) -> Facts:
    return facts


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.thorough
def test_explain(name: str) -> None:
    text = f"ModuleNotFoundError: No module named '{MODULES[name]}'"
    compared = set()
    for of in MACHINES:
        facts = examined(*of)
        found = offered_for_log(explain((), library.load(), partial(_itself, facts), texts=(text,)))
        # A wheel that a fork builds is a choice of its own, which the rule names.
        fixes = tuple(
            fix
            for fix in found.matches[0].fixes
            if not any("--community" in argv for argv in fix.run)
        )
        # A rule may only name another backend, as for a torch without CUDA.
        if any(fix.run for fix in fixes):
            agrees(name, fixes, *of)
            compared.add(kind(name, *of))
    assert compared >= {"flash": {"moves", "wheel"}, "sage": {"build"}}.get(name, {"wheel"})


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.thorough
def test_fix_leaves_another_torch_to_install(name: str) -> None:
    """`fix` applies wheels and builds itself, and never a plan that `install` would not make."""
    run = ("MAX_JOBS=2", "pip", "install", "--no-build-isolation", BACKENDS[name])
    if name == "sage":
        run = (*run[:-1], "git+https://github.com/thu-ml/SageAttention")
    for of in MACHINES:
        fix = Fix(title="Install it", safety=Safety.ASK, run=(run,), rule="a/b", remedy=1)
        finding = Finding(
            rule="a/b",
            verdict=Verdict.PROBLEM,
            severity=Severity.ERROR,
            cause="c",
            title="t",
            fixes=(fix,),
        )
        diagnosis = Diagnosis(facts=examined(*of), findings=(finding,), rules=1)
        (step,) = plan(decided(diagnosis)).steps
        does = kind(name, *of)
        if does == "moves":
            ((*words,),) = step.run
            assert words[:3] == ["attn-doctor", "install", name]
            assert not step.ready
            other = "a wheel that others publish" if "--community" in words else "another torch"
            assert other in step.blocked_by
        elif does == "nothing":
            assert (step.ready, step.run) == (False, ())
        else:
            assert step.ready, (of, step.blocked_by)
            assert step.kind == ("build" if does == "build" else "install"), of


@pytest.mark.parametrize("name", BACKENDS)
def test_the_table_of_wheels(name: str) -> None:
    """Of the installed torch: a wheel, or none."""
    for of in MACHINES:
        facts = examined(*of)
        stays = choose(Demand(words=(name,), keep_torch=True), facts, library.tables())
        if not of[2] or (isinstance(stays, Conflict) and {"driver", "gpu"} & {*stays.names}):
            continue  # which wheels exist for a torch says nothing of the driver and the GPU
        by_wheel = isinstance(stays, Choice) and all(one.how != "build" for one in stays.picks)
        port = name == "sage" and of[3] == "windows"  # by others: only with `--community`
        assert (verdict(BACKENDS[name], facts).wheel == "yes") is (by_wheel or port), (of, stays)
