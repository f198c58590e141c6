"""Each condition of the ranking, with the smallest values on both of its sides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.explanation import Confirmation, Explanation, RankedCause
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.ranking import rank_causes
from attn_doctor.explain.relevance import LogEnd, log_end, relevant
from attn_doctor.explain.symptom_match import SymptomMatch
from attn_doctor.explain.tracebacks import LineKind, Position, TraceLog
from attn_doctor.facts import Driver, Extension, Facts, Gpu, Python, System, Torch
from attn_doctor.findings import Safety
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule, Symptom
from attn_doctor.rulebook.rule_files import read_folder

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]


def a_rule(id: str = "a/b", cause: str = "torch-cpu-only", *requires: str) -> Rule:
    return Rule(
        id=id,
        severity="error",
        cause=cause,
        title="title",
        why="why",
        checked=date(2026, 1, 1),
        evidence=("https://example.org",),
        requires=requires,
    )


def a_match(
    rule: str = "a/b",
    line: int = 1,
    excerpt: str = "a kernel",
    kind: LineKind = LineKind.TEXT,
    *,
    file: str = "a.log",
    specificity: float = 0.0,
    symptom: int = 0,
    general: bool = False,
) -> SymptomMatch:
    return SymptomMatch(
        rule=rule,
        symptom=symptom,
        file=file,
        line=line,
        rank="",
        excerpt=excerpt,
        said=excerpt,
        position=Position(kind),
        final=True,
        distance=0,
        general=general,
        specificity=specificity,
    )


# The end of a log


def end_of(log: str) -> LogEnd:
    return log_end("a.log", TraceLog(NormalizedLog(1, log.encode()).lines))


def test_the_last_fatal_line_counts() -> None:
    assert end_of("No space left on device\nWatchdog caught collective\n").first == 2


@pytest.mark.parametrize(
    "line", ["WARNING: No space left on device", "ninja: build stopped: No space left on device"]
)
def test_a_warning_and_the_end_of_a_build_do_not_end_a_log(line: str) -> None:
    assert end_of(f"{line}\n") == LogEnd("a.log")


def test_the_last_step_of_a_run_is_kept_with_any_end() -> None:
    step = "step 1/100 loss 2.3\n"
    assert end_of(step).progress == 1
    assert end_of(f"{step}No space left on device\n").progress == 1
    assert end_of(f"{step}RuntimeError: no\n").progress == 1


def test_a_fatal_line_at_the_end_of_a_message_belongs_to_it() -> None:
    end = end_of("step\nRuntimeError: cannot write\nNo space left on device\n")
    assert (end.first, end.last) == (2, 3)


# Matches that report no failure


def kept(
    match: SymptomMatch,
    *others: SymptomMatch,
    end: LogEnd | None = None,
    cause: str = "torch-cpu-only",
) -> bool:
    rules = {"a/b": a_rule(cause=cause), "c/d": a_rule("c/d")}
    ends = [LogEnd("a.log") if end is None else end]
    return match in relevant([match, *others], rules, ends)


@pytest.mark.parametrize(
    ("excerpt", "kind", "stays"),
    [
        ("a kernel", LineKind.TEXT, True),
        ("3 passed", LineKind.TEXT, False),
        ("3 passed", LineKind.ERROR, False),
        ("3 passed", LineKind.EXCEPTION, True),
        ("ninja is optional", LineKind.TEXT, False),
        ("ninja is optional", LineKind.WARNING, False),
        ("ninja is optional", LineKind.MESSAGE, True),
        ("ninja is optional", LineKind.EXCEPTION, True),
    ],
)
def test_lines_that_report_no_failure(excerpt: str, kind: LineKind, stays: bool) -> None:
    assert kept(a_match(excerpt=excerpt, kind=kind)) is stays


UNRELATED = LogEnd("a.log", "No space left on device", 10, 12)
FAILURE = LogEnd("a.log", "RuntimeError: no", 10, 12)


@pytest.mark.parametrize(("line", "stays"), [(9, False), (10, True), (11, True)])
def test_only_lines_before_an_unrelated_end_are_dropped(line: int, stays: bool) -> None:
    assert kept(a_match(line=line), end=UNRELATED) is stays


@pytest.mark.parametrize("kind", [LineKind.MESSAGE, LineKind.ERROR, LineKind.EXCEPTION])
def test_a_failure_before_an_unrelated_end_stays(kind: LineKind) -> None:
    assert kept(a_match(kind=kind), end=UNRELATED)


def test_another_end_of_another_log_or_of_a_related_failure_drops_nothing() -> None:
    assert kept(a_match(file="b.log"), end=UNRELATED)
    assert kept(a_match(), end=FAILURE)


def test_a_note_that_the_run_continues_is_dropped_before_any_failure() -> None:
    note = a_match(excerpt="Could not load sageattention: no module")
    assert not kept(note, end=FAILURE)
    assert kept(note)


@pytest.mark.parametrize(("line", "stays"), [(9, False), (10, True), (12, True), (13, False)])
def test_an_end_that_another_match_explains_drops_nothing(line: int, stays: bool) -> None:
    other = a_match("c/d", line, kind=LineKind.EXCEPTION)
    assert kept(a_match(), other, end=UNRELATED) is stays
    elsewhere = a_match("c/d", line, kind=LineKind.EXCEPTION, file="b.log")
    assert not kept(a_match(), elsewhere, end=UNRELATED)


def test_a_warning_does_not_explain_the_exception_in_which_a_log_ends() -> None:
    warning = a_match(kind=LineKind.WARNING)
    error = a_match("c/d", kind=LineKind.ERROR, line=2)
    assert not kept(warning, end=FAILURE)
    assert kept(warning, error, end=FAILURE)
    assert kept(warning)
    assert kept(a_match(kind=LineKind.WARNING, line=11), end=FAILURE)


def test_a_warning_does_not_explain_what_a_compiler_found_later() -> None:
    end = LogEnd("a.log", compiled=5)
    assert not kept(a_match(kind=LineKind.WARNING), end=end)
    assert kept(a_match(kind=LineKind.WARNING, line=6), end=end)
    assert kept(a_match(kind=LineKind.ERROR), end=end)


@pytest.mark.parametrize("line", [1, 20])
def test_an_exception_with_a_reason_wins_over_a_warning(line: int) -> None:
    raised = a_match("c/d", kind=LineKind.EXCEPTION, line=11)
    note = a_match(excerpt="UserWarning: something else is used", line=line)
    rules = {"a/b": a_rule(cause="ninja-missing"), "c/d": a_rule("c/d", "torch-cpu-only")}
    assert relevant([note, raised], rules, [FAILURE]) == [raised]
    other = a_match("c/d", kind=LineKind.EXCEPTION, line=3)
    assert note not in relevant([note, raised, other], rules, [FAILURE])


@pytest.mark.parametrize(
    ("text", "stays"),
    [("ImportError: it is not available", False), ("No operator found", True)],
)
def test_a_warning_of_xformers_explains_only_what_names_it(text: str, stays: bool) -> None:
    end = LogEnd("a.log", text, 10, 12)
    said = "xFormers can't load C++/CUDA extensions. xFormers was built for"
    note = a_match("xformers/b", excerpt=said)
    raised = a_match("c/d", kind=LineKind.EXCEPTION, line=11, general=True)
    rules = {"xformers/b": a_rule("xformers/b", "xformers-torch-mismatch"), "c/d": a_rule("c/d")}
    assert (note in relevant([note, raised], rules, [end])) is stays


def test_an_error_of_a_build_wins_over_a_warning_before_it() -> None:
    error = a_match("c/d", kind=LineKind.NOISE, line=3)
    note = a_match(excerpt="UserWarning: something else is used")
    rules = {"a/b": a_rule(cause="ninja-missing"), "c/d": a_rule("c/d", "torch-cpu-only")}
    assert relevant([note, error], rules, [LogEnd("a.log")]) == [error]


def test_a_lack_of_memory_may_come_from_some_causes() -> None:
    memory = LogEnd("a.log", "torch.OutOfMemoryError: CUDA Out Of Memory", 10, 10)
    assert kept(a_match(), end=memory, cause="flex-not-compiled")
    assert not kept(a_match(), end=memory)
    assert not kept(a_match(), end=UNRELATED, cause="flex-not-compiled")


@pytest.mark.parametrize(("line", "stays"), [(4, False), (5, True), (6, True)])
def test_a_run_goes_on_after_a_note_only_with_a_later_step(line: int, stays: bool) -> None:
    end = LogEnd("a.log", progress=5)
    assert kept(a_match(line=line), end=end, cause="package-not-installed") is stays


def test_one_of_several_ends_is_enough() -> None:
    ends = [LogEnd("b.log"), FAILURE, UNRELATED]
    assert relevant([a_match()], {"a/b": a_rule()}, ends) == []


# Scores


def scores(*matches: SymptomMatch, rules: dict[str, Rule] | None = None) -> dict[str, float]:
    known = rules or {match.rule: a_rule(match.rule, match.rule) for match in matches}
    return {one.rule: one.confidence for one in rank_causes(matches, known, Facts(), None, "")}


def test_a_confidence_has_two_digits_and_is_never_certain() -> None:
    assert scores(a_match(specificity=0.1)) == {"a/b": 0.56}  # 0.45 + 0.025 + 0.08
    rules = {f"a/{name}": a_rule(f"a/{name}", "one-cause") for name in "bcde"}
    matches = [
        a_match(rule, kind=LineKind.EXCEPTION, specificity=1.0, symptom=symptom)
        for rule in rules
        for symptom in range(3)
    ]
    (found,) = rank_causes(matches, rules, Facts(), None, "")
    assert found.confidence == 0.99  # 0.45 + 0.45 + 0.12 + 0.12
    assert found.also == ("a/c", "a/d", "a/e")


def test_a_cause_at_the_least_score_is_claimed() -> None:
    least = a_match(kind=LineKind.ERROR, general=True)
    assert scores(least) == {"a/b": 0.39}
    noise = a_match(kind=LineKind.NOISE, general=True)
    assert scores(noise) == {}  # 0.13
    assert scores(a_match(kind=LineKind.NOISE, specificity=0.48, general=True)) == {"a/b": 0.25}


def test_a_chain_of_rules_falls_in_steps() -> None:
    rules = {
        "a/root": a_rule("a/root", "a"),
        "b/next": a_rule("b/next", "b", "a/root"),
        "c/last": a_rule("c/last", "c", "b/next"),
        "d/absent": a_rule("d/absent", "d", "e/not-in-the-log"),
    }
    strong = {"kind": LineKind.EXCEPTION, "specificity": 1.0}
    matches = [
        a_match("c/last", 3, **strong),  # type: ignore[arg-type]
        a_match("b/next", 2, **strong),  # type: ignore[arg-type]
        a_match("a/root", 1),
        a_match("d/absent", 4, **strong),  # type: ignore[arg-type]
    ]
    assert scores(*matches, rules=rules) == {
        "d/absent": 0.9,
        "a/root": 0.53,
        "b/next": 0.48,
        "c/last": 0.43,
    }


def test_a_root_that_the_log_excludes_explains_nothing(rule: WriteRule, explained: Explain) -> None:
    rule("a/root", "torch-cpu-only", "slow kernel", tail="[when]\nall = ['torch.build == \"cpu\"']")
    rule("b/next", "no-matching-wheel", "RuntimeError: no kernel", more='requires = ["a/root"]')
    log = "slow kernel\nRuntimeError: no kernel\n"
    alone = {one.rule: one.confidence for one in explained(log).matches}
    excluded = explained(f"PyTorch version: 2.6.0+cu124\n{log}")
    assert alone["b/next"] < alone["a/root"]
    assert next(one for one in excluded.matches if one.rule == "b/next").confidence > 0.6


def test_equal_scores_are_ordered_by_kind_line_and_id() -> None:
    matches = [a_match("z/z", 1), a_match("a/a", 2), a_match("b/b", 2)]
    assert list(scores(*matches)) == ["z/z", "a/a", "b/b"]


def test_the_best_of_equal_matches_is_the_first_and_each_line_counts_once() -> None:
    matches = [a_match(line=5), a_match(line=3), a_match(line=3, symptom=1), a_match(line=4)]
    (found,) = rank_causes(matches, {"a/b": a_rule()}, Facts(), None, "")
    assert (found.line, found.times) == (3, 3)
    (both,) = rank_causes(
        [a_match(line=3), a_match(line=3, file="b.log")], {"a/b": a_rule()}, Facts(), None, ""
    )
    assert both.times == 2


# The machine


APPLIES = "[applies]\nall = ['system.os == \"windows\"']"
LINUX, WINDOWS = Facts(system=System(os="linux")), Facts(system=System(os="windows"))


def test_a_rule_without_conditions_may_not_apply_to_a_machine(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail=APPLIES)
    found = explained("no kernel", LINUX).matches[0]
    assert found.confirmation is Confirmation.NO
    assert "the system is Linux" in found.reason
    assert explained("no kernel", WINDOWS).matches[0].confirmation is Confirmation.LOG_ONLY


def test_the_log_denies_a_rule_that_no_machine_can_confirm(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail="[applies]\nall = ['torch.version < \"2.5\"']")
    found = explained("PyTorch version: 2.10.0+cu128\nno kernel", LINUX).matches[0]
    assert found.confirmation is Confirmation.NO
    assert "the version of torch is 2.10.0" in found.reason


def test_an_unknown_fact_is_named_with_its_gap(rule: WriteRule, explained: Explain) -> None:
    tail = "[when]\nall = ['torch.build == \"cpu\"', 'torch.version < \"2.5\"']"
    rule("a/b", "torch-cpu-only", "no kernel", tail=tail)
    found = explained("no kernel", Facts()).matches[0]
    assert (found.confirmation, found.reason) == (
        Confirmation.UNKNOWN,
        "torch.build, torch.version unknown",
    )
    gap = Facts(gaps={"torch.build": "its files cannot be read"})
    assert explained("no kernel", gap).matches[0].reason == "its files cannot be read"


def test_no_command_is_for_a_machine_that_refutes_the_cause(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail="[when]\nall = ['torch.build == \"cpu\"']")
    python = Python(path="/venv/bin/python")
    for torch, path in (
        (Torch(installed=True, build="cpu"), "/venv/bin/python"),
        (Torch(installed=True, build="cuda"), None),
    ):
        found = explained("no kernel", Facts(python=python, torch=torch))
        assert found.facts_for(found.matches[0]).python.path == path


def test_a_fix_for_the_system_of_the_log_allows_the_rule_there(
    rule: WriteRule, explained: Explain
) -> None:
    fix = '[[fix]]\ntitle = "t"\nsafety = "manual"\nmanual = "m"\n'
    there = f"{fix}when = ['system.os == \"windows\"']"
    for id, tail in (("a/b", there), ("a/c", fix)):
        rule(id, "c-compiler-missing", f"no compiler {id}", more='platforms = ["linux"]', tail=tail)
    log = "pytorch version: 2.7.1\n** Python executable: C:\\p\\python.exe\nError: no compiler {}\n"
    assert explained(log.format("a/b")).matches[0].confirmation is Confirmation.NOT_CHECKED
    assert explained(log.format("a/c")).matches[0].confirmation is Confirmation.NO


def test_an_excluded_rule_names_the_value(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail="[when]\nall = ['torch.build == \"cpu\"']")
    found = explained("no kernel", Facts(torch=Torch(installed=True, build="cuda"))).matches[0]
    assert found.confirmation is Confirmation.NO
    assert "torch is a CUDA build" in found.reason


WHEN = """
[when]
all = ['torch.version < "2.5"']
"""

FIX = """
[[fix]]
title = "Take another torch"
safety = "ask"
manual = "Do it."
needs = "{driver.version}"
run = [["pip", "install", "x=={torch.version}"], ["pip", "check"]]
set = { A_VARIABLE = "{driver.version}" }
"""


def test_a_log_alone_asks_check_for_a_command_that_needs_the_machine(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail=WHEN + FIX)
    log = "Python executable: /opt/v/bin/python\nno kernel"
    (fix,) = explained(log).matches[0].fixes
    assert fix.run == (("attn-doctor", "check", "--python", "/opt/v/bin/python"),)
    assert fix.manual.endswith("`attn-doctor check` gives the command.")
    (without,) = explained("no kernel").matches[0].fixes
    assert without.run == (("attn-doctor", "check"),)


def test_check_is_not_named_for_a_command_of_another_system(
    rule: WriteRule, explained: Explain
) -> None:
    advice = '[[fix]]\ntitle = "Take a wheel"\nsafety = "manual"\nmanual = "Take it."\n'
    linux = FIX + "when = ['system.os == \"linux\"']\n"
    rule("a/b", "torch-cpu-only", "no kernel", tail=f"{WHEN}\n{advice}{linux}")
    (fix,) = explained("C:\\a\\site-packages\\b.dll\nno kernel").matches[0].fixes
    assert (fix.run, fix.manual) == ((), "Take it.")


def test_a_command_that_needs_unknown_facts_is_not_offered(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail=FIX)
    (fix,) = explained("no kernel").matches[0].fixes
    assert fix.manual == "Do it. (The log does not say what the command needs.)"
    assert (fix.run, fix.exports) == ((), {})
    known = Facts(driver=Driver(version="580.65"))
    (one,) = explained("no kernel", known).matches[0].fixes
    assert one.manual == "Do it. (The command needs torch.version, which is unknown.)"
    assert one.needs == "580.65"
    whole = Facts(driver=Driver(version="580.65"), torch=Torch(installed=True, version="2.9.1"))
    (ready,) = explained("no kernel", whole).matches[0].fixes
    assert ready.manual == "Do it."
    assert ready.run == (("pip", "install", "x==2.9.1"), ("pip", "check"))
    assert ready.exports == {"A_VARIABLE": "580.65"}


def test_the_gpu_of_a_log_fills_the_texts_of_a_rule_on_each_gpu(
    rule: WriteRule, explained: Explain
) -> None:
    rule(
        "a/b",
        "torch-cpu-only",
        r"on (?P<gpu>NVIDIA T4)",
        more='for_each = "gpus"',
        title="{gpu.name} is old",
        tail="",
    )
    assert explained("on NVIDIA T4").matches[0].title.endswith("is old")


GPUS = 'for_each = "gpus"'
OLD = """
[when]
all = ['gpu.sm < 80']

[[fix]]
title = "Use another than {gpu.name} on {system.os}"
safety = "ask"
manual = "Do it."
when = ['gpu.sm < 80']
"""
T4 = Gpu(index=0, name="NVIDIA T4", sm=75)
H200 = Gpu(index=1, name="NVIDIA H200", sm=90)


@pytest.fixture
def on_gpus(rule: WriteRule, tmp_path: Path) -> Callable[..., RankedCause]:
    """The cause of a rule about each GPU, for the GPUs of a log and of a machine."""
    rule("a/b", "torch-cpu-only", "no kernel", more=GPUS, title="{gpu.name} is old", tail=OLD)
    rules = {one.id: one for one in read_folder(tmp_path / "rules")}

    def ranked(
        gpus: tuple[Gpu, ...] | None, machine: tuple[Gpu, ...] | None = None, *, here: bool = False
    ) -> RankedCause:
        facts = Facts(gpus=machine, system=System(os="linux")) if here else None
        (found,) = rank_causes(
            [a_match()], rules, Facts(gpus=gpus, system=System(os="linux")), facts, ""
        )
        return found

    return ranked


def test_a_log_is_about_its_first_gpu(on_gpus: Callable[..., RankedCause]) -> None:
    old = on_gpus((T4, H200))
    assert (old.title, old.confirmation) == ("NVIDIA T4 is old", Confirmation.BY_LOG)
    assert [fix.title for fix in old.fixes] == ["Use another than NVIDIA T4 on linux"]
    new = on_gpus((H200, T4))
    assert (new.confirmation, new.reason) == (
        Confirmation.NO,
        "the log says that the compute capability of the GPU is 9.0",
    )


def test_a_machine_without_gpus_has_no_name_for_one(on_gpus: Callable[..., RankedCause]) -> None:
    found = on_gpus(None, (), here=True)
    assert (found.confirmation, found.reason) == (Confirmation.NO, "there are no GPUs")
    assert "None" not in found.title
    (fix,) = found.fixes
    assert fix.title == on_gpus(None, None, here=True).fixes[0].title
    assert fix.title.endswith(" on linux")


def test_a_variable_that_the_log_does_not_name_is_unknown(
    rule: WriteRule, explained: Explain
) -> None:
    tail = """
[[fix]]
title = "Set it"
safety = "ask"
when = ['env.CUDA_HOME == ""']
set = { CUDA_HOME = "/usr/local/cuda" }
"""
    rule("a/b", "torch-cpu-only", "no kernel", tail=tail)
    (fix,) = explained("no kernel").matches[0].fixes
    assert fix.safety is Safety.MANUAL
    assert fix.manual.startswith("Do this only if ")
    (fix,) = explained("no kernel", Facts()).matches[0].fixes
    assert (fix.safety, fix.manual) == (Safety.ASK, "")


@pytest.mark.parametrize(
    ("log", "printed_by", "certain"),
    [
        ("no kernel", "", False),
        ("no kernel", "sageattention", True),
        ("no kernel in sageattention", "", True),
        ("no kernel in xformers", "xformers", False),
    ],
)
def test_a_package_is_installed_only_if_the_log_names_it(
    rule: WriteRule, explained: Explain, log: str, printed_by: str, certain: bool
) -> None:
    named = f'\nprinted_by = "{printed_by}"' if printed_by else ""
    tail = """
[[fix]]
title = "Install it"
safety = "ask"
run = [["pip", "install", "sageattention"]]
"""
    rule("a/b", "torch-cpu-only", "no kernel", tail=f"{named.strip()}\n{tail}")
    (fix,) = explained(log).matches[0].fixes
    condition = "The log does not name the package. Do this only if it is sageattention."
    assert (fix.safety, fix.manual) == ((Safety.ASK, "") if certain else (Safety.MANUAL, condition))


@pytest.mark.parametrize(
    ("folder", "certain"),
    [
        ("/home/ada/app/third_party/", False),
        ("/venv/lib/python3.12/site-packages/", True),
        (r"C:\app\extern" + "\\", False),
    ],
)
def test_a_copy_of_the_program_is_not_installed_again(
    rule: WriteRule, explained: Explain, folder: str, certain: bool
) -> None:
    tail = """
[[fix]]
title = "Install it"
safety = "ask"
run = [["attn-doctor", "install", "sage", "--reinstall"]]
"""
    rule("a/b", "torch-cpu-only", "no sage kernel", tail=tail)
    slash = "\\" if "\\" in folder else "/"
    log = (
        "Traceback (most recent call last):\n"
        f'  File "{folder}sageattention{slash}core.py", line 3, in sageattn\n'
        "    raise RuntimeError(text)\n"
        "RuntimeError: no sage kernel"
    )
    (fix,) = explained(log).matches[0].fixes
    condition = (
        f"The log shows sageattention in {folder}, not in site-packages. "
        "Do this only if the program does not need its own copy."
    )
    assert (fix.safety, fix.manual) == ((Safety.ASK, "") if certain else (Safety.MANUAL, condition))


@pytest.mark.parametrize(
    ("log", "machine", "titles"),
    [
        ("no kernel", None, ["Install it"]),
        ("no kernel", Facts(), ["Install it"]),
        ("no kernel\nninja: not found", None, ["Install ninja", "Install it"]),
        ("no kernel\nninja: not found", Facts(), ["Install ninja", "Install it"]),
    ],
)
def test_a_fix_is_offered_for_the_logs_that_it_asks_for(
    rule: WriteRule, explained: Explain, log: str, machine: Facts | None, titles: list[str]
) -> None:
    tail = """
[[fix]]
title = "Install ninja"
safety = "manual"
manual = "Install it."
printed = ['ninja: not found']
[[fix]]
title = "Install it"
safety = "manual"
manual = "Install it."
"""
    rule("a/b", "torch-cpu-only", "no kernel", tail=tail)
    assert [fix.title for fix in explained(log, machine).matches[0].fixes] == titles


CPU_BUILD = "torch is a CPU build"
FIXES = """
[[fix]]
title = "excluded"
when = ['system.os == "windows"']
run = [["pip", "check"]]
safety = "ask"
[[fix]]
title = "command"
when = ['torch.version is unknown', 'torch.build == "cpu"', 'driver.version < "580"']
run = [["pip", "check"]]
safety = "ask"
manual = "Look first."
[[fix]]
title = "variable"
when = ['torch.build == "cpu"']
set = { CUDA_HOME = "/usr/local/cuda" }
safety = "ask"
[[fix]]
title = "nothing to say"
when = ['torch.build == "cpu"']
run = [["pip", "install", "x=={torch.version}"]]
safety = "ask"
[[fix]]
title = "lines"
when = ['torch.build == "cpu"']
code = "import torch"
safety = "manual"
[[fix]]
title = "by hand"
when = ['torch.build == "cpu"']
manual = "Ask."
safety = "manual"
[[fix]]
title = "certain"
when = ['system.os == "linux"']
run = [["pip", "check"]]
safety = "ask"
[[fix]]
title = "certain, without a fact"
run = [["pip", "install", "x=={torch.version}"]]
safety = "ask"
"""


def test_each_fix_says_where_it_fits(rule: WriteRule, tmp_path: Path) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail=FIXES)
    rules = {one.id: one for one in read_folder(tmp_path / "rules")}
    (found,) = rank_causes([a_match()], rules, LINUX, None, "")
    assert [(fix.title, fix.safety, fix.manual) for fix in found.fixes] == [
        (
            "command",
            Safety.MANUAL,
            f"Look first. Do this only if {CPU_BUILD} and the driver's version is below 580.",
        ),
        ("variable", Safety.MANUAL, f"Do this only if {CPU_BUILD}."),
        ("lines", Safety.MANUAL, f"Do this only if {CPU_BUILD}."),
        ("by hand", Safety.MANUAL, f"Ask. Do this only if {CPU_BUILD}."),
        ("certain", Safety.ASK, ""),
        (
            "certain, without a fact",
            Safety.MANUAL,
            "(The log does not say what the command needs.)",
        ),
    ]


def test_a_fix_that_says_nothing_is_shown_if_it_is_the_only_one(
    rule: WriteRule, tmp_path: Path
) -> None:
    only = next(one for one in FIXES.split("[[fix]]") if "nothing to say" in one)
    rule("a/b", "torch-cpu-only", "no kernel", tail=f"[[fix]]{only}")
    rules = {one.id: one for one in read_folder(tmp_path / "rules")}
    (found,) = rank_causes([a_match()], rules, LINUX, None, "")
    assert [fix.title for fix in found.fixes] == ["nothing to say"]


def test_a_rule_about_a_package_that_the_log_never_names_loses(rule: WriteRule) -> None:
    def score(log: str, printed_by: str = "", id: str = "flash/b") -> float:
        symptom = Symptom(pattern="a kernel", logs=("x",), printed_by=printed_by)
        rules = {id: msgspec.structs.replace(a_rule(id), symptoms=(symptom,))}
        (found,) = rank_causes([a_match(id)], rules, Facts(), None, log)
        return found.confidence

    named = score("a kernel of flash_attn")
    assert named == score("a kernel", id="torch/b") == score("a kernel", "flash-attn")
    assert round(score("a kernel") - named, 2) == -0.08
    assert score("a kernel", "xformers") == score("a kernel")


ASKED = ("attn-doctor", "check", "--python", "/v/python")
CHECK = "On the machine of the log, `attn-doctor check` gives the command."
UNFILLED = """
[[fix]]
title = "first"
safety = "ask"
manual = "The driver is {driver.version}."
run = [["pip", "install", "x=={torch.version}"]]
[[fix]]
title = "second"
safety = "manual"
manual = "By hand."
[[fix]]
title = "third"
safety = "manual"
manual = "Ask."
"""


@pytest.mark.parametrize(
    ("fixes", "manual", "run"),
    [
        (UNFILLED, f"The driver is 580. {CHECK}", ASKED),
        (
            (
                '[[fix]]\ntitle = "first"\nsafety = "manual"\nmanual = "By hand."\n'
                '[[fix]]\ntitle = "second"\nsafety = "ask"\nset = { A = "{torch.version}" }\n'
            ),
            f"By hand. {CHECK}",
            ASKED,
        ),
        (  # the answer shows the command already
            (
                '[[fix]]\ntitle = "first"\nsafety = "manual"\nmanual = "By hand."\n'
                '[[fix]]\ntitle = "second"\nsafety = "ask"\nset = { A = "1" }\n'
            ),
            "By hand.",
            None,
        ),
        ('[[fix]]\ntitle = "first"\nsafety = "ask"\nset = { A = "1" }\n', "", None),
        (
            (
                '[[fix]]\ntitle = "first"\nsafety = "ask"\nrun = [["pip"]]\n'
                '[[fix]]\ntitle = "second"\nsafety = "ask"\nset = { A = "{torch.version}" }\n'
            ),
            "",
            ("pip",),
        ),
        (
            (
                '[[fix]]\ntitle = "first"\nsafety = "manual"\ncode = "import x"\n'
                '[[fix]]\ntitle = "second"\nsafety = "ask"\nset = { A = "{torch.version}" }\n'
            ),
            "",
            None,
        ),
    ],
)
def test_a_command_that_a_log_cannot_fill_comes_from_check(
    rule: WriteRule, tmp_path: Path, fixes: str, manual: str, run: tuple[str, ...] | None
) -> None:
    rule("a/b", "torch-cpu-only", "no kernel", tail=WHEN + fixes)
    rules = {one.id: one for one in read_folder(tmp_path / "rules")}
    stated = Facts(driver=Driver(version="580"), python=Python(path="/v/python"))
    (found,) = rank_causes([a_match()], rules, stated, None, "")
    first, *others = found.fixes
    assert (first.title, first.manual) == ("first", manual)
    assert first.run == (() if run is None else (run,))
    assert [fix.title for fix in others] == ["second", "third"][: fixes.count("[[fix]]") - 1]


def test_the_best_fix_keeps_its_title_without_what_its_command_needs(
    rule: WriteRule, explained: Explain
) -> None:
    condition = "when = ['torch.version < \"2.9\"']\n"
    tail = UNFILLED.replace('manual = "The driver is {driver.version}."\n', condition)
    rule("a/b", "torch-cpu-only", "no kernel", tail=tail)
    (first, *others) = explained("no kernel").matches[0].fixes
    assert (first.title, first.manual) == (
        "first",
        "(The log does not say what the command needs.)",
    )
    assert [fix.title for fix in others] == ["second", "third"]


def test_check_decides_between_commands_that_a_log_cannot_fill(
    rule: WriteRule, explained: Explain
) -> None:
    fourth = UNFILLED.split("[[fix]]")[1].replace("first", "fourth")
    rule("a/b", "torch-cpu-only", "no kernel", tail=f"{WHEN}{UNFILLED}[[fix]]{fourth}")
    (first, *others) = explained("no kernel").matches[0].fixes
    assert first.run == (("attn-doctor", "check"),)
    assert [fix.title for fix in others] == ["second", "third"]


@pytest.mark.parametrize(
    ("words", "platforms", "asked"),
    [("", "windows", True), ("printed = ['no kernel']\n", "windows", False), ("", "linux", False)],
)
def test_check_gives_no_command_of_a_fix_that_it_does_not_offer(
    rule: WriteRule, tmp_path: Path, words: str, platforms: str, asked: bool
) -> None:
    fix = f'[[fix]]\ntitle = "t"\nsafety = "ask"\n{words}run = [["pip", "{{torch.version}}"]]\n'
    more = f'platforms = ["{platforms}"]'
    rule("a/b", "torch-cpu-only", "no kernel", more=more, tail=WHEN + fix)
    rules = {one.id: one for one in read_folder(tmp_path / "rules")}
    stated = Facts(system=System(os="windows"))
    (found,) = rank_causes([a_match()], rules, stated, None, "no kernel")
    assert [CHECK in one.manual for one in found.fixes] == [asked]


_SYMBOL = "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string"


@pytest.mark.parametrize(
    ("named", "confirmation"),
    [("exllamav2_ext", Confirmation.BY_MACHINE), ("gptq_kernels", Confirmation.UNKNOWN)],
)
def test_a_finding_is_about_the_extension_that_the_log_names(
    named: str, confirmation: Confirmation
) -> None:
    """A healthy extension comes first among those of the machine."""
    healthy = Extension(package="torchaudio", path="/v/torchaudio.so", mismatch="")
    broken = Extension(
        package="exllamav2",
        path="/v/exllamav2_ext.so",
        mismatch="torch",
        first_undefined_symbols=("c10::Error",),
    )
    torch = Torch(installed=True, version="2.9.1+cu128")
    machine = Facts(torch=torch, extensions=(healthy, broken), system=System(os="linux"))
    log = f"ImportError: /v/{named}.so: {_SYMBOL}"
    (found,) = explain((), library.load(), machine, texts=[log]).matches
    assert found.rule == "torch/extension-built-for-other-torch"
    assert found.confirmation is confirmation
    assert not any("torchaudio" in fix.title for fix in found.fixes)
