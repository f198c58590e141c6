"""What rules say of facts: verdicts, which problem explains which, and commands filled in.

The rules here are written as their authors write them, and read from files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.facts import Facts
from attn_doctor.findings import Advisory, Finding, Safety, Severity, Verdict
from attn_doctor.rulebook.conditions import parse
from attn_doctor.rulebook.evaluate import (
    FactLookup,
    denial,
    evaluate_rule,
    evaluate_rules,
    fitting_fixes,
    lookups,
    verdicts,
)
from attn_doctor.rulebook.fact_catalogue import catalogue
from attn_doctor.rulebook.rule import Group, Rule
from attn_doctor.rulebook.rule_files import read_rule

HEAD = """
schema = 1
severity = "{severity}"
cause = "torch-cpu-only"
evidence = ["https://example.org"]
checked = 2026-11-21
{head}
[text]
title = "torch is {{torch.version}}"
why = "built for {{torch.build}}"
"""

Write = Callable[..., Rule]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a rule file and reads it: `write("area/name", body, severity="info", head="…")`."""

    def rule(id: str, body: str, severity: str = "error", head: str = "") -> Rule:
        path = tmp_path / f"{id}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD.format(severity=severity, head=head) + body, encoding="utf-8")
        return read_rule(path, tmp_path)

    return rule


def facts(**groups: Any) -> Facts:
    """Facts in which only the given ones are known."""
    return msgspec.convert(groups, Facts)


def one(rule: Rule, known: Facts) -> Finding:
    """The only finding of a rule."""
    (finding,) = evaluate_rule(rule, known)
    return finding


CPU = "[applies]\nall = ['torch.installed == true']\n[when]\nall = ['torch.build == \"cpu\"']\n"

# Verdicts


@pytest.mark.parametrize(
    ("torch", "verdict"),
    [
        ({"installed": True, "build": "cpu"}, Verdict.PROBLEM),
        ({"installed": True, "build": "cuda"}, Verdict.OK),
        ({"installed": False, "build": "cpu"}, Verdict.NOT_APPLICABLE),
        ({"installed": False}, Verdict.NOT_APPLICABLE),
        ({"installed": True}, Verdict.UNKNOWN),
        ({"build": "cpu"}, Verdict.UNKNOWN),
        # Whether the rule applies is not known, but nothing is wrong either way.
        ({"build": "cuda"}, Verdict.OK),
    ],
)
def test_where_a_rule_applies_and_what_is_wrong(
    write: Write, torch: dict[str, Any], verdict: Verdict
) -> None:
    assert one(write("a/cpu", CPU), facts(torch=torch)).verdict is verdict


@pytest.mark.parametrize(
    ("torch", "verdict"),
    [
        ({"installed": True, "debug": True, "has_flex": True}, Verdict.PROBLEM),
        ({"installed": True, "has_flex": True, "debug": None}, Verdict.UNKNOWN),
        ({"installed": True, "debug": True, "cxx11_abi": True}, Verdict.OK),
        ({"installed": True, "debug": True, "cxx11_abi": None}, Verdict.UNKNOWN),
        ({"installed": True, "debug": False, "has_build_helper": False}, Verdict.OK),
        ({"installed": True, "debug": None, "has_build_helper": True}, Verdict.PROBLEM),
        ({"installed": False, "debug": True}, Verdict.OK),
    ],
)
def test_all_any_and_none(write: Write, torch: dict[str, Any], verdict: Verdict) -> None:
    rule = write(
        "a/groups",
        """[when]
all  = ['torch.installed == true']
any  = ['torch.debug == true', 'torch.has_build_helper == true']
none = ['torch.cxx11_abi == true']
""",
    )
    known = {"cxx11_abi": False, "has_build_helper": False, **torch}
    assert one(rule, facts(torch=known)).verdict is verdict


@pytest.mark.parametrize(
    ("system", "verdict"),
    [
        ({"os": "windows"}, Verdict.PROBLEM),
        ({"os": "linux", "wsl": 2}, Verdict.PROBLEM),
        ({"os": "linux", "wsl": 1}, Verdict.PROBLEM),
        ({"os": "linux", "wsl": 0}, Verdict.NOT_APPLICABLE),
        ({"os": "linux"}, Verdict.UNKNOWN),
        ({"os": "macos"}, Verdict.NOT_APPLICABLE),
        ({}, Verdict.UNKNOWN),
    ],
)
def test_platforms(write: Write, system: dict[str, Any], verdict: Verdict) -> None:
    rule = write("a/windows", CPU, head='platforms = ["windows", "wsl"]')
    known = facts(system=system, torch={"installed": True, "build": "cpu"})
    assert one(rule, known).verdict is verdict


BOOLEANS = ("installed", "debug", "cxx11_abi", "has_flex", "has_build_helper")
LINES = st.lists(
    st.tuples(st.sampled_from(BOOLEANS), st.booleans()).map(
        lambda line: f"torch.{line[0]} == {'true' if line[1] else 'false'}"
    ),
    max_size=3,
)


@given(
    applies=st.fixed_dictionaries({"all": LINES, "any": LINES, "none": LINES}),
    when=st.fixed_dictionaries({"all": LINES, "any": LINES, "none": LINES}),
    known=st.fixed_dictionaries({name: st.booleans() for name in BOOLEANS}),
    hidden=st.sets(st.sampled_from(BOOLEANS)),
)
def test_a_gap_gives_neither_a_false_alarm_nor_a_false_ok(
    tmp_path_factory: pytest.TempPathFactory,
    applies: dict[str, list[str]],
    when: dict[str, list[str]],
    known: dict[str, bool],
    hidden: set[str],
) -> None:
    folder = tmp_path_factory.mktemp("rules")
    path = folder / "a" / "any.toml"
    path.parent.mkdir()
    body = "".join(
        f"[{name}]\n" + "".join(f"{part} = {lines}\n" for part, lines in group.items())
        for name, group in (("applies", applies), ("when", when))
    )
    path.write_text(HEAD.format(severity="error", head="") + body, encoding="utf-8")
    rule = read_rule(path, folder)
    truth = one(rule, facts(torch=known)).verdict
    shown = {name: value for name, value in known.items() if name not in hidden}
    guess = one(rule, facts(torch=shown)).verdict
    assert guess is truth or guess is Verdict.UNKNOWN or Verdict.PROBLEM not in (guess, truth)


# Reasons


def test_the_value_seen_and_the_value_wanted(write: Write) -> None:
    finding = one(
        write("a/cpu", CPU),
        facts(torch={"installed": True, "build": "cpu", "version": "2.11.0+cpu"}),
    )
    assert finding.title == "torch is 2.11.0+cpu"
    assert finding.why == "built for cpu"
    (reason,) = finding.because
    assert (reason.fact, reason.seen, reason.wanted) == ("torch.build", "cpu", "not cpu")
    assert (reason.truth, reason.gap) == (True, "")
    (context,) = finding.context
    assert (context.fact, context.seen, context.wanted) == ("torch.installed", "yes", "")


def test_a_gap_is_given_as_the_reason(write: Write) -> None:
    known = facts(torch={"installed": True}, gaps={"torch": "reading it took longer than 2 s"})
    finding = one(write("a/cpu", CPU), known)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.because[0].seen == "unknown"
    assert finding.because[0].gap == "reading it took longer than 2 s"
    assert finding.fixes == ()


def test_the_gap_of_the_fact_on_the_right(write: Write) -> None:
    rule = write("a/pair", "[when]\nnone = ['triton.version satisfies triton.expected']\n")
    known = facts(triton={"version": "3.6.0"}, gaps={"triton.expected": "torch 3.0 is too new"})
    assert one(rule, known).because[0].gap == "torch 3.0 is too new"


# Elements of a list

EACH = 'for_each = "gpus"\nsubject = "GPU {gpu.index}"'
OLD = "[when]\nall = ['gpu.sm < 80']\n"


def test_each_element_is_evaluated_by_itself(write: Write) -> None:
    rule = write("a/old", OLD, head=EACH)
    found = evaluate_rule(rule, facts(gpus=[{"index": 0, "sm": 75}, {"index": 1, "sm": 90}, {}]))
    assert [one.verdict for one in found] == [Verdict.PROBLEM, Verdict.OK, Verdict.UNKNOWN]
    assert [one.subject for one in found] == ["GPU 0", "", ""]


def test_no_elements_no_findings(write: Write) -> None:
    assert evaluate_rule(write("a/old", OLD, head=EACH), facts(gpus=[])) == []


def test_a_list_that_is_unknown_is_one_question(write: Write) -> None:
    known = facts(gaps={"gpus": "the driver does not answer"})
    finding = one(write("a/old", OLD, head=EACH), known)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.because[0].gap == "the driver does not answer"


def test_the_gap_of_one_element(write: Write) -> None:
    known = facts(gpus=[{"sm": 90}, {}], gaps={"gpus[1].sm": "GPU 1 is lost"})
    found = evaluate_rule(write("a/old", OLD, head=EACH), known)
    assert [one.because[0].gap for one in found if one.because] == ["GPU 1 is lost"]


def test_an_element_beside_other_facts(write: Write) -> None:
    rule = write("a/arch", "[when]\nall = ['gpu.sm not in torch.archs']\n", head=EACH)
    known = facts(torch={"archs": [80, 90]}, gpus=[{"sm": 90}, {"sm": 120}])
    assert [one.verdict for one in evaluate_rule(rule, known)] == [Verdict.OK, Verdict.PROBLEM]


# Causes


def problem(write: Write, id: str, severity: str = "error", requires: str = "") -> Rule:
    """A rule that finds a problem in `facts(torch={"build": "cpu"})`."""
    head = f"requires = [{requires}]" if requires else ""
    return write(id, "[when]\nall = ['torch.build == \"cpu\"']\n", severity, head)


BROKEN = {"build": "cpu"}


def causes(rules: list[Rule], known: Facts) -> dict[str, str]:
    return {finding.rule: finding.caused_by for finding in evaluate_rules(known, rules)}


def test_an_echo_names_the_first_problem_of_the_chain(write: Write) -> None:
    rules = [
        problem(write, "c/consequence", requires='"b/middle"'),
        problem(write, "b/middle", requires='"a/root"'),
        problem(write, "a/root"),
        problem(write, "d/other"),
    ]
    assert causes(rules, facts(torch=BROKEN)) == {
        "a/root": "",
        "b/middle": "a/root",
        "c/consequence": "a/root",
        "d/other": "",
    }


def test_the_problem_of_one_package_does_not_explain_that_of_another(write: Write) -> None:
    when = "[when]\nall = ['extension.mismatch == \"torch\"']\n"
    head = 'for_each = "extensions"\nsubject = "{extension.package}"\nrequires = ["flash/built"]'
    rules = [
        write("flash/built", "[when]\nall = ['flash_attn.built_torch == \"2.8\"']\n"),
        write("torch/extension", when, head=head),
    ]
    broken = [{"package": name, "mismatch": "torch"} for name in ("flash_attn", "torchaudio")]
    known = facts(flash_attn={"built_torch": "2.8"}, extensions=broken)
    found = [one for one in evaluate_rules(known, rules) if one.rule == "torch/extension"]
    assert {one.subject: one.caused_by for one in found} == {
        "flash_attn": "flash/built",
        "torchaudio": "",
    }


def test_a_stray_torch_explains_what_is_said_of_it(write: Write) -> None:
    rules = [
        problem(write, "python/torch-in-pythonpath", "warning"),
        problem(write, "torch/libraries-missing"),
        problem(write, "a/note", "info"),
        write("a/python", "[when]\nall = ['python.minor is unknown']\n"),
    ]
    assert causes(rules, facts(torch=BROKEN)) == {
        "python/torch-in-pythonpath": "",
        "torch/libraries-missing": "python/torch-in-pythonpath",
        "a/note": "",
        "a/python": "",
    }


@pytest.mark.parametrize(
    ("place", "package", "explains"),
    [("pythonpath", "torchvision", True), ("folder", "torchvision", False),
     ("pythonpath", "flash-attn", False)],
)  # fmt: skip
def test_a_copy_in_pythonpath_explains_what_is_said_of_it(
    write: Write, place: str, package: str, explains: bool
) -> None:
    when = "[when]\nall = ['duplicate.versions.count > 1']\n"
    rules = [
        write("python/duplicates", when, "warning", 'for_each = "duplicates"\nsubject = "a"'),
        write("torch/torchvision", "[when]\nall = ['torchvision.version == \"0.20\"']\n"),
    ]
    copies = [{"package": package, "versions": ["0.20", "0.22"], "place": place}]
    known = facts(torchvision={"version": "0.20"}, duplicates=copies)
    expected = "python/duplicates" if explains else ""
    assert causes(rules, known) == {"python/duplicates": "", "torch/torchvision": expected}


def test_a_required_rule_that_finds_nothing_explains_nothing(write: Write) -> None:
    fine = write("a/fine", "[when]\nall = ['torch.build == \"cuda\"']\n")
    rules = [problem(write, "b/consequence", requires='"a/fine", "z/absent"'), fine]
    assert causes(rules, facts(torch=BROKEN))["b/consequence"] == ""


def test_an_open_question_is_explained_too(write: Write) -> None:
    open_question = write(
        "b/open", "[when]\nall = ['torch.debug == true']\n", head='requires = ["a/root"]'
    )
    settled = write(
        "c/settled", "[when]\nall = ['torch.build == \"cuda\"']\n", head='requires = ["a/root"]'
    )
    found = causes([open_question, settled, problem(write, "a/root")], facts(torch=BROKEN))
    assert found == {"a/root": "", "b/open": "a/root", "c/settled": ""}


def test_one_element_is_enough_to_explain(write: Write) -> None:
    root = write("a/old", OLD, head=EACH)
    rules = [problem(write, "b/consequence", requires='"a/old"'), root]
    known = facts(torch=BROKEN, gpus=[{"index": 0, "sm": 90}, {"index": 1, "sm": 61}])
    assert causes(rules, known)["b/consequence"] == "a/old"


def test_the_worst_comes_first_and_consequences_follow_their_root_cause(write: Write) -> None:
    rules = [
        problem(write, "a/note", "info"),
        problem(write, "b/consequence-of-error", "error", '"z/error"'),
        problem(write, "c/warning", "warning"),
        write("d/open", "[when]\nall = ['torch.debug == true']\n"),
        write("e/fine", "[when]\nall = ['torch.build == \"cuda\"']\n"),
        write("f/elsewhere", CPU.replace("torch.build", "torch.local")),
        problem(write, "z/error", "error"),
    ]
    known = facts(torch={"build": "cpu", "installed": False})
    assert [one.rule for one in evaluate_rules(known, rules)] == [
        "z/error",
        "b/consequence-of-error",
        "c/warning",
        "a/note",
        "d/open",
        "e/fine",
        "f/elsewhere",
    ]


def test_rules_that_only_read_logs_are_not_evaluated(write: Write) -> None:
    rule = write("a/log", "[[symptom]]\npattern = 'some text'\nlogs = ['some text']\n")
    assert evaluate_rules(facts(torch=BROKEN), [rule]) == ()


def test_severity_and_backends_are_carried_over(write: Write) -> None:
    rule = write("a/cpu", CPU, "warning", 'backends = ["flex", "sage"]')
    finding = one(rule, facts(torch={"installed": True, "build": "cpu"}))
    assert finding.severity is Severity.WARNING
    assert finding.backends == ("flex", "sage")
    assert finding.cause == "torch-cpu-only"
    assert finding.evidence == ("https://example.org",)


# Fixes

FIX = (
    CPU
    + """
[[fix]]
title = "Install torch for {torch.index_for_driver}"
safety = "ask"
run = [["MAX_JOBS=4", "pip", "install", "torch", "--index-url", "{torch.index_for_driver}"]]
set = { CUDA_HOME = "{build.cuda_home}" }
unset = ["CUDA_PATH"]
clears = ["inductor"]
needs = "{build.jobs} jobs"
"""
)


def fixed(rule: Rule, **groups: Any) -> Any:
    known = facts(**{"torch": {}, **groups})
    torch = msgspec.structs.replace(known.torch, installed=True, build="cpu")
    return one(rule, msgspec.structs.replace(known, torch=torch)).fixes


def test_commands_are_filled_in(write: Write) -> None:
    build = {"cuda_home": "/opt/cuda", "jobs": 3}
    (fix,) = fixed(write("a/fix", FIX), torch={"index_for_driver": "cu128"}, build=build)
    assert fix.title == "Install torch for cu128"
    assert fix.run == (("MAX_JOBS=4", "pip", "install", "torch", "--index-url", "cu128"),)
    assert fix.exports == {"CUDA_HOME": "/opt/cuda", "CUDA_PATH": ""}
    assert (fix.safety, fix.needs, fix.clears) == ("ask", "3 jobs", ("inductor",))


@pytest.mark.parametrize(
    ("expected", "word"),
    [
        (">=0.0.28.post3,<=0.0.29.post1", "xformers<=0.0.29.post1,>=0.0.29"),
        (">=0.0.30,<=0.0.31", "xformers>=0.0.30,<=0.0.31"),
        ("==0.0.31", "xformers==0.0.31"),
        (">=0.0.28", "xformers>=0.0.29"),
    ],
)
def test_two_lower_bounds_become_one(write: Write, expected: str, word: str) -> None:
    run = 'run = [["pip", "install", "xformers{xformers.expected},>=0.0.29"]]'
    rule = write("a/fix", re.sub("run = .*", run, FIX))
    build = {"cuda_home": "/opt/cuda", "jobs": 3}
    (fix,) = fixed(rule, xformers={"expected": expected}, build=build)
    assert fix.run == (("pip", "install", word),)


def test_a_fix_that_only_may_fit_removes_nothing_by_itself(write: Write) -> None:
    """Whether it fits is unknown here, and `fix` applies no fix for a person."""
    removal = """
[[fix]]
title  = "Remove it"
safety = "ask"
run    = [["pip", "uninstall", "-y", "x"]]
when   = ['xformers.built_cuda == "12.8"']
"""
    rule = write("a/fix", CPU + removal)
    (sure,) = fixed(rule, xformers={"built_cuda": "12.8"})
    (unsure,) = fixed(rule)
    assert (sure.safety, unsure.safety) == ("ask", "manual")
    assert unsure.run == sure.run


def test_a_fix_names_its_rule_its_number_and_what_it_promises(write: Write) -> None:
    second = '[[fix]]\ntitle = "T"\nsafety = "auto"\nmanual = "Do it."\n'
    rule = write("a/fix", FIX + second + "done = ['torch.build == \"cuda\"']\n")
    first, other = fixed(rule)
    assert (first.rule, first.remedy, first.done) == ("a/fix", 1, ())
    assert (other.rule, other.remedy) == ("a/fix", 2)
    assert other.safety is Safety.AUTO
    assert [(line.fact, line.op, line.value) for line in other.done] == [
        ("torch.build", "==", "cuda"),
    ]


@pytest.mark.parametrize(
    ("torch", "build", "missing", "state"),
    [
        ({}, {"cuda_home": "/opt/cuda"}, "torch.index_for_driver", "unknown: no driver"),
        ({"index_for_driver": ""}, {"cuda_home": "/a"}, "torch.index_for_driver", "empty"),
        ({"index_for_driver": "cu128"}, {}, "build.cuda_home", "unknown"),
    ],
)
def test_a_command_that_needs_an_unknown_fact_is_not_shown(
    write: Write, torch: dict[str, Any], build: dict[str, Any], missing: str, state: str
) -> None:
    gaps = {"torch.index_for_driver": "no driver"} if not torch else {}
    (fix,) = fixed(write("a/fix", FIX), torch=torch, build=build, gaps=gaps)
    assert (fix.run, fix.exports, fix.safety) == ((), {}, "manual")
    assert fix.manual == f"(The command needs {missing}, which is {state}.)"


def test_a_fix_is_offered_only_where_its_lines_hold(write: Write) -> None:
    rule = write(
        "a/fix",
        CPU
        + """
[[fix]]
title = "for Linux"
safety = "manual"
manual = "do it"
when = ['system.os == "linux"']
[[fix]]
title = "for all"
safety = "manual"
manual = "do it by hand"
""",
    )
    titles = {
        os: [fix.title for fix in fixed(rule, system={"os": os} if os else {})]
        for os in ("linux", "windows", "")
    }
    assert titles == {
        "linux": ["for Linux", "for all"],
        "windows": ["for all"],
        "": ["for all"],
    }


def test_a_fix_that_may_fit_is_better_than_none(write: Write) -> None:
    rule = write(
        "a/fix",
        CPU
        + """
[[fix]]
title = "for Linux"
safety = "manual"
manual = "do it"
when = ['system.os == "linux"', 'torch.debug == true']
""",
    )
    assert [fix.title for fix in fixed(rule, system={"os": "linux"})] == ["for Linux"]
    assert fixed(rule, system={"os": "windows"}) == ()


def test_a_fix_may_name_the_element(write: Write) -> None:
    body = OLD + (
        '[[fix]]\ntitle = "T"\nsafety = "ask"\nrun = [["nvidia-smi", "-i", "{gpu.index}"]]\n'
        "when = ['gpu.sm >= 70']\n"
    )
    rule = write("a/fix", body, head=EACH)
    found = evaluate_rule(rule, facts(gpus=[{"index": 0, "sm": 75}, {"index": 1, "sm": 61}]))
    (fix,) = (fix for one in found for fix in one.fixes)
    assert fix.run == (("nvidia-smi", "-i", "0"),)


def test_healthy_machines_get_no_fixes(write: Write) -> None:
    assert one(write("a/fix", FIX), facts(torch={"installed": True, "build": "cuda"})).fixes == ()


# Looking facts up


def test_names_lead_to_values() -> None:
    known = facts(
        torch={"version": "2.11.0", "archs": [80, 90]},
        gpus=[{"sm": 90}, {"sm": 80}],
        env={"CUDA_HOME": "/opt/cuda"},
    )
    lookup = FactLookup(known)
    assert lookup("torch.version") == "2.11.0"
    assert lookup("torch.archs.count") == 2
    assert lookup("gpus.count") == 2
    assert lookup("env.CUDA_HOME") == "/opt/cuda"
    # A variable that is not set reads as empty text; a list that is unknown has no length.
    assert lookup("env.CUDA_PATH") == ""
    assert lookup("caches.count") is None
    assert lookup("python.shadowing_modules.count") is None
    assert known.gpus is not None
    assert FactLookup(known, "gpu", known.gpus[1])("gpu.sm") == 80


# Facts of which only some could be known, as those of a log


def test_partial_facts_say_nothing_about_what_they_do_not_name() -> None:
    known = facts(torch={"build": "cpu"}, env={"CUDA_HOME": "/opt/cuda"})
    whole, partial = FactLookup(known), FactLookup(known, partial=True)
    assert (whole("env.CUDA_HOME"), partial("env.CUDA_HOME")) == ("/opt/cuda", "/opt/cuda")
    assert (whole("env.CUDA_PATH"), partial("env.CUDA_PATH")) == ("", None)
    for line, on_whole, on_partial in (
        ("torch.build is known", True, True),
        ("torch.build is unknown", False, False),
        ("torch.version is known", False, None),
        ("torch.version is unknown", True, None),
    ):
        condition = parse(line, catalogue())
        assert (whole.truth(condition), partial.truth(condition)) == (on_whole, on_partial)
        group = Group(all=(condition,))
        assert (whole.truth(group), partial.truth(group)) == (on_whole, on_partial)


def test_the_line_that_excludes_a_problem_is_named(write: Write) -> None:
    rule = write(
        "a/groups",
        "[applies]\nall = ['torch.installed == true']\n"
        "[when]\nall = ['torch.build == \"cpu\"']\nnone = ['torch.debug == true']\n",
        head='platforms = ["linux"]',
    )

    def said(os: str = "linux", **torch: Any) -> tuple[str, object]:
        line = denial(rule, FactLookup(facts(system={"os": os}, torch=torch)))
        assert line.op == "=="
        return line.fact, line.value

    assert said(installed=False) == ("torch.installed", False)
    assert said(installed=True, build="cuda") == ("torch.build", "cuda")
    assert said(installed=True, build="cpu", debug=True) == ("torch.debug", True)
    assert said("macos", installed=True) == ("system.os", "macos")


def test_fixes_that_fit_for_certain_are_apart_from_those_that_may_fit(write: Write) -> None:
    fix = '[[fix]]\ntitle = "T"\nsafety = "manual"\nmanual = "do it"\n'
    lines = ('torch.build == "cpu"', "torch.debug == true", 'torch.build == "cuda"')
    rule = write("a/fix", CPU + "".join(f"{fix}when = ['{line}']\n" for line in lines))
    assert fitting_fixes(rule, FactLookup(facts(torch={"build": "cpu"}))) == ([0], [1])


def test_the_verdicts_of_all_elements(write: Write) -> None:
    known = facts(gpus=[{"sm": 75}, {"sm": 90}, {"sm": 61}])
    assert verdicts(write("a/old", OLD, head=EACH), known) == {Verdict.PROBLEM, Verdict.OK}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("gpus", [None, [{"sm": 75}, {"sm": 90}]])
def test_each_subject_knows_whether_its_facts_are_partial(
    write: Write, partial: bool, gpus: list[dict[str, int]] | None
) -> None:
    known = facts(gpus=gpus) if gpus else facts()
    for rule in (write("a/old", OLD, head=EACH), write("a/cpu", CPU)):
        found = lookups(rule, known, partial=partial)
        assert [one.partial for one in found] == [partial] * len(found)
        assert found


def test_a_rule_that_finds_nothing_has_its_cause_and_title(write: Write) -> None:
    finding = one(write("a/cpu", CPU), facts(torch={"installed": False}))
    assert (finding.cause, finding.title) == ("torch-cpu-only", "torch is {torch.version}")


def test_an_open_question_has_no_fixes(write: Write) -> None:
    body = CPU + '[[fix]]\ntitle = "T"\nsafety = "manual"\nmanual = "do it"\n'
    assert one(write("a/fix", body), facts(torch={"installed": True})).fixes == ()


def test_the_value_wanted_by_a_line_that_must_not_hold(write: Write) -> None:
    rule = write("a/none", "[when]\nnone = ['torch.build == \"cuda\"']\n")
    assert [line.wanted for line in one(rule, facts(torch=BROKEN)).because] == ["cuda"]


def test_instructions_are_filled_in(write: Write) -> None:
    body = '[[fix]]\ntitle = "T"\nsafety = "manual"\nmanual = "Remove {torch.version}."\n'
    (fix,) = fixed(write("a/fix", CPU + body), torch={"version": "2.11"})
    assert fix.manual == "Remove 2.11."


def test_rules_that_require_each_other_end_at_one_of_them(write: Write) -> None:
    rules = [
        problem(write, "a/a", requires='"b/b"'),
        problem(write, "b/b", requires='"c/c"'),
        problem(write, "c/c", requires='"a/a"'),
    ]
    assert causes(rules, facts(torch=BROKEN)) == {"a/a": "c/c", "b/b": "a/a", "c/c": "b/b"}


def test_the_order_of_problems_and_their_consequences(write: Write) -> None:
    """A group is as severe as its root cause; in it the worst consequence comes first."""
    rules = [
        problem(write, "m/warning-root", "warning"),
        problem(write, "a/error-of-warning", "error", '"m/warning-root"'),
        problem(write, "z/error-root", "error"),
        problem(write, "a/info-of-error", "info", '"z/error-root"'),
        problem(write, "b/error-of-error", "error", '"z/error-root"'),
        problem(write, "c/warning-of-error", "warning", '"z/error-root"'),
        problem(write, "n/error", "error"),
    ]
    assert [one.rule for one in evaluate_rules(facts(torch=BROKEN), rules)] == [
        "n/error",
        "z/error-root",
        "b/error-of-error",
        "c/warning-of-error",
        "a/info-of-error",
        "m/warning-root",
        "a/error-of-warning",
    ]


# Words for the examined environment

VENV = {"path": "/srv/v/bin/python", "environment": "venv", "prefix": "/srv/v", "pip": "24.0"}
TYPED = "/srv/v/bin/python -m pip install x"


def test_commands_in_texts_are_those_of_the_environment(write: Write) -> None:
    rule = write(
        "a/texts",
        CPU
        + """
[[fix]]
title = "Run `pip install x`"
safety = "manual"
manual = "Type `pip install x`."
code = "import x"
""",
        head="",
    )
    rule = msgspec.structs.replace(rule, why="`pip install x` takes it")
    found = one(rule, facts(torch={"installed": True, "build": "cpu"}, python=VENV))
    assert found.why == f"`{TYPED}` takes it"
    (fix,) = found.fixes
    assert (fix.title, fix.manual, fix.code) == (
        f"Run `{TYPED}`",
        f"Type `{TYPED}`.",
        "import x",
    )
    unknown = one(rule, facts(torch={"installed": True}, python=VENV))
    assert (unknown.why, unknown.fixes) == ("`pip install x` takes it", ())


def test_a_finding_carries_the_advisory_of_its_rule(write: Write) -> None:
    rule = write("advisories/ATTN-2026-0001", CPU)
    advisory = Advisory(effect="NaN")
    rule = msgspec.structs.replace(rule, advisory=advisory)
    assert one(rule, facts(torch={"installed": True, "build": "cpu"})).advisory == advisory


@pytest.mark.parametrize(
    ("run", "systems"),
    [
        ('["brew", "install", "x"]', ["macos", ""]),
        ('["sudo", "apt-get", "install", "x"]', ["linux", ""]),
        ('["winget", "install", "x"]', ["windows", ""]),
        ('["python", "-m", "brew"]', ["linux", "macos", "windows", ""]),
    ],
)
def test_a_command_is_offered_on_its_own_system(write: Write, run: str, systems: list[str]) -> None:
    rule = write("a/fix", f'{CPU}[[fix]]\ntitle = "T"\nsafety = "ask"\nrun = [{run}]\n')
    offered = [
        os
        for os in ("linux", "macos", "windows", "")
        if fixed(rule, system={"os": os} if os else {})
    ]
    assert offered == systems


def test_a_fix_that_says_what_is_known_needs_the_fact(write: Write) -> None:
    body = "".join(
        f'[[fix]]\ntitle = "{title}"\nsafety = "manual"\nmanual = "m"\nwhen = [\'{line}\']\n'
        for title, line in (
            ("known", "torch.version is known"),
            ("unknown", "torch.version is unknown"),
            ("other", 'torch.build == "cpu"'),
        )
    )
    rule = write("a/fix", CPU + body)
    log = facts(torch={"installed": True, "build": "cpu"})
    named = facts(torch={"installed": True, "build": "cpu", "version": "2.6.0"})
    (lookup,) = lookups(rule, log, partial=True)
    assert fitting_fixes(rule, lookup) == ([2], [1])
    (lookup,) = lookups(rule, named, partial=True)
    assert fitting_fixes(rule, lookup) == ([0, 2], [])


def test_a_gap_of_the_machine_is_not_that_of_an_element(write: Write) -> None:
    body = "[when]\nall = ['gpu.sm < 80', 'torch.build == \"cpu\"']\n"
    rule = write("a/each", body, head='for_each = "gpus"')
    known = facts(gpus=[{"index": 0}], gaps={"torch.build": "no files", "gpus[0].sm": "no answer"})
    assert [line.gap for line in one(rule, known).because] == ["no answer", "no files"]


# The order of problems


def ordered(
    write: Write, *ids: str, harms: dict[str, int] | None = None, root: str = ""
) -> list[str]:
    """The problems of rules with these ids, each `area/name` or `area/name:severity:cause`.

    `root`: the rule that explains the first one.
    """
    rules: list[Rule] = []
    for text in ids:
        id, severity, cause = (*text.split(":"), "", "")[:3]
        rule = write(id, CPU, severity=severity or "error")
        requires = (root,) if root and not rules else ()
        rules.append(msgspec.structs.replace(rule, cause=cause or rule.cause, requires=requires))
    known = facts(torch={"installed": True, "build": "cpu"})
    return [found.rule for found in evaluate_rules(known, rules, harms)]


def test_the_worst_problem_is_first(write: Write) -> None:
    assert ordered(write, "a/a:warning", "a/b:error", "a/c:info") == ["a/b", "a/a", "a/c"]
    harms = {"wrong": 0, "slow": 2}
    ids = ("a/a:error:slow", "a/b:warning:fails", "a/c:warning:wrong", "a/d:info:wrong")
    assert ordered(write, *ids, harms=harms) == ["a/c", "a/b", "a/a", "a/d"]


def test_what_makes_other_answers_doubtful_is_before_all(write: Write) -> None:
    assert ordered(write, "a/a", "python/metadata-damaged:warning") == [
        "python/metadata-damaged",
        "a/a",
    ]
    # The torch of PYTHONPATH is the one that lacks libraries.
    ids = ("torch/libraries-missing:error", "python/torch-in-pythonpath:warning")
    assert ordered(write, *ids) == [*reversed([id.partition(":")[0] for id in ids])]


def test_a_consequence_follows_its_root_however_bad_it_is(write: Write) -> None:
    ids = ("b/worse:error:wrong", "a/root:warning", "a/other:error")
    found = ordered(write, *ids, harms={"wrong": 0}, root="a/root")
    assert found == ["a/other", "a/root", "b/worse"]


def test_a_variable_whose_fact_is_unknown_is_left_out(write: Write) -> None:
    fix = '[[fix]]\ntitle = "T"\nsafety = "ask"\nrun = [["MAX_JOBS={build.jobs}", "pip", "list"]]\n'
    rule = write("a/fix", CPU + fix)
    assert fixed(rule)[0].run == (("pip", "list"),)
    assert fixed(rule, build={"jobs": 3})[0].run == (("MAX_JOBS=3", "pip", "list"),)


def test_open_questions_are_ordered_with_and_without_a_cause(write: Write) -> None:
    unknown = "[when]\nall = ['torch.debug == true']\n"
    rules = [
        write("d/alone", unknown, "warning"),
        write("c/explained", unknown, head='requires = ["a/root"]'),
        write("b/alone", unknown),
        problem(write, "a/root"),
    ]
    found = [one.rule for one in evaluate_rules(facts(torch=BROKEN), rules)]
    assert found == ["a/root", "c/explained", "b/alone", "d/alone"]


def test_a_problem_of_a_package_explains_what_is_no_extension(write: Write) -> None:
    built = write("flash/built", "[when]\nall = ['flash_attn.built_torch == \"2.8\"']\n")
    rules = [
        problem(write, "b/machine", requires='"flash/built"'),
        write(
            "c/other-package",
            "[when]\nall = ['xformers.built_torch == \"2.7\"']\n",
            head='requires = ["flash/built"]',
        ),
        built,
    ]
    known = facts(torch=BROKEN, flash_attn={"built_torch": "2.8"}, xformers={"built_torch": "2.7"})
    found = causes(rules, known)
    assert (found["b/machine"], found["c/other-package"]) == ("flash/built", "flash/built")


def test_a_chain_ends_before_the_problem_of_another_package(write: Write) -> None:
    head = 'for_each = "extensions"\nsubject = "{extension.package}"\nrequires = ["b/middle"]'
    rules = [
        write("c/extension", "[when]\nall = ['extension.mismatch == \"torch\"']\n", head=head),
        problem(write, "b/middle", requires='"flash/built"'),
        write("flash/built", "[when]\nall = ['flash_attn.built_torch == \"2.8\"']\n"),
    ]
    known = facts(
        torch=BROKEN,
        flash_attn={"built_torch": "2.8"},
        extensions=[{"package": "torchaudio", "mismatch": "torch"}],
    )
    assert causes(rules, known)["c/extension"] == "b/middle"
