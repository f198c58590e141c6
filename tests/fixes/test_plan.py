"""From findings to a plan: order, joining, clashes, what is blocked, builds and wheels."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.examination import derive
from attn_doctor.facts import (
    Build,
    Cache,
    Driver,
    Facts,
    Gpu,
    Package,
    Program,
    Python,
    System,
    Torch,
    Triton,
)
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.fixes.build_progress import Progress
from attn_doctor.fixes.pip_arguments import conflict, merged, pip_call
from attn_doctor.fixes.plan import plan
from attn_doctor.fixes.postconditions import unmet
from attn_doctor.fixes.requirements_file import requirements
from attn_doctor.fixes.source_builds import preflight
from attn_doctor.fixes.steps import Plan, Stale
from attn_doctor.fixes.wheel_check import verdict
from attn_doctor.install.offered import decided
from attn_doctor.rulebook.conditions import Condition

#: A healthy machine for builds: an H100 and CUDA 13.
H100 = derive(
    Facts(
        system=System(
            os="linux",
            arch="x86_64",
            cpus=16,
            ram_total_mib=128 << 10,
            ram_available_mib=120 << 10,
            musl=False,
            user_is_root=False,
        ),
        python=Python(
            path="/venv/bin/python",
            version="3.12.3",
            pip="24.0",
            headers="/usr/include/python3.12/Python.h",
            free_threaded=False,
        ),
        driver=Driver(state="ok", version="580.95.05", vendor="nvidia"),
        gpus=(Gpu(index=0, name="NVIDIA H100", sm=90, visible=True),),
        torch=Torch(
            installed=True,
            version="2.11.0+cu130",
            local="cu130",
            build="cuda",
            cuda="13.0",
            cxx11_abi=True,
            source="index",
            requires_triton="==3.6.0",
        ),
        triton=Triton(installed=True, version="3.6.0"),
        build=Build(
            cuda_home="/usr/local/cuda",
            nvcc="/usr/local/cuda/bin/nvcc",
            version="13.0.88",
            missing_components=(),
        ),
        toolkits=(),
        cxx=Program(path="/usr/bin/g++", version="12.2"),
        flash_attn=Package(installed=False),
        sageattention=Package(installed=True, version="1.0.6"),
        xformers=Package(installed=False),
        caches=(Cache(kind="triton", path="/home/u/.triton", exists=True, bytes=5 << 20),),
    )
)
#: The same with a torch that flash-attn has wheels for.
OLDER = derive(
    replace(
        H100, torch=replace(H100.torch, version="2.8.0+cu128", local="cu128", cuda="12.8"), gaps={}
    )
)


def _finding(rule: str, *fixes: Fix, severity: Severity = Severity.ERROR, by: str = "") -> Finding:
    return Finding(
        rule=rule,
        verdict=Verdict.PROBLEM,
        severity=severity,
        cause="c",
        title=f"{rule} is wrong",
        fixes=fixes,
        caused_by=by,
    )


def _fix(*run: str, safety: Safety = Safety.ASK, **more: object) -> Fix:
    return Fix(title="t", safety=safety, run=tuple(tuple(one.split()) for one in run), **more)  # type: ignore[arg-type]


def test_torch_comes_before_what_is_built_for_it() -> None:
    found = plan(
        Diagnosis(
            facts=H100,
            findings=(
                _finding("a/frameworks", _fix("pip install diffusers>=0.36")),
                _finding("b/xformers", _fix("pip install xformers==0.0.35")),
                _finding("c/triton", _fix("pip install triton==3.6.0", clears=("triton",))),
                _finding("d/torch", _fix("pip install torch==2.11.*")),
                _finding("driver/e", _fix(safety=Safety.MANUAL, manual="Reboot.")),
            ),
            rules=5,
        )
    )
    assert [one.rules[0] for one in found.steps] == [
        "driver/e", "d/torch", "c/triton", "b/xformers", "a/frameworks",
    ]  # fmt: skip
    assert [one.number for one in found.steps] == [1, 2, 3, 4, 5]
    assert found.steps[2].stale[0].path == "/home/u/.triton"
    assert len(found.ready) == 4
    assert found.steps[1].estimate.minutes is None  # a download
    assert found.steps[1].estimate.basis


def test_what_two_rules_want_alike_is_one_step() -> None:
    one = _finding("a/a", _fix("pip install --upgrade kernels"))
    other = _finding("b/b", _fix("pip install kernels>=0.12"))
    found = plan(Diagnosis(facts=H100, findings=(one, other), rules=2))
    assert len(found.steps) == 1
    assert found.steps[0].rules == ("a/a", "b/b")
    assert found.steps[0].run == (("pip", "install", "--upgrade", "kernels>=0.12"),)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("commands", [("kernels", "kernels"), ("kernels", "kernels>=0.12")])
def test_a_merged_step_asks_if_either_fix_asks(
    order: tuple[int, int], commands: tuple[str, str]
) -> None:
    auto = _fix(f"pip install {commands[0]}", safety=Safety.AUTO, rule="a/a", remedy=1)
    ask = _fix(f"pip install {commands[1]}", safety=Safety.ASK, rule="b/b", remedy=2)
    both = (_finding("a/a", auto), _finding("b/b", ask))
    (step,) = plan(
        Diagnosis(facts=H100, findings=tuple(both[index] for index in order), rules=2)
    ).steps
    assert step.safety is Safety.ASK
    assert {(fix.rule, fix.remedy) for fix in step.fixes} == {("a/a", 1), ("b/b", 2)}


def test_two_harmless_fixes_stay_harmless_when_merged() -> None:
    fix = _fix("pip install kernels", safety=Safety.AUTO)
    findings = (_finding("a/a", fix), _finding("b/b", fix))
    (step,) = plan(Diagnosis(facts=H100, findings=findings, rules=2)).steps
    assert step.safety is Safety.AUTO


def test_the_promises_of_all_merged_fixes_are_evaluated() -> None:
    def promise(fact: str, value: str) -> Condition:
        return Condition(fact=fact, op="==", kind="text", value=value)

    fixes = (
        _fix(done=(promise("torch.local", "cu130"), promise("torch.cuda", "12.8"))),
        _fix(done=(promise("python.version", "3.12.4"), promise("torch.cuda", "12.8"))),
    )
    assert unmet(fixes, H100) == [
        "torch.cuda is 13.0, wanted 12.8",
        "python.version is 3.12.3, wanted 3.12.4",
    ]
    unknown = (_fix(done=(promise("triton.distribution", "triton"),) * 2),)
    assert unmet(unknown, H100) == ["triton.distribution is unknown, wanted triton"]


def test_the_first_remedy_that_can_be_carried_out_is_taken_and_others_are_named() -> None:
    person = Fix(title="by hand", safety=Safety.MANUAL, manual="Do it.")
    finding = _finding("a/a", person, _fix("pip install kernels"))
    found = plan(Diagnosis(facts=H100, findings=(finding,), rules=1))
    assert found.steps[0].kind == "install"
    assert (found.steps[0].better, found.steps[0].alternatives) == (("by hand: Do it.",), ())
    second = plan(Diagnosis(facts=H100, findings=(finding,), rules=1), ["a/a"], choice=2)
    assert second.steps[0].kind == "install"
    none = plan(Diagnosis(facts=H100, findings=(finding,), rules=1), ["a/a"], choice=3)
    assert none.without == ("a/a",)


def test_consequences_and_notes_are_not_planned_unless_named() -> None:
    root = _finding("a/root", _fix("pip install kernels"))
    consequence = _finding("b/consequence", _fix("pip install accelerate"), by="a/root")
    note = _finding("c/note", _fix("pip install torchao"), severity=Severity.INFO)
    diagnosis = Diagnosis(facts=H100, findings=(root, consequence, note), rules=3)
    found = plan(diagnosis)
    assert [one.rules for one in found.steps] == [("a/root",)]
    assert found.explained == {"a/root": ("b/consequence",)}
    assert found.notes == ("c/note",)
    assert [one.rules for one in plan(diagnosis, ["b/consequence", "c/note"]).steps] == [
        ("b/consequence",), ("c/note",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "about"),
    [
        ("pip install torch==2.4.*", "pip install torch>=2.5", "torch"),
        ("pip install torch==2.11.* --index-url https://x/cu126",
         "pip install torch==2.11.* --index-url https://x/cu130", "torch"),
        ("pip uninstall -y flash-attn", "pip install flash_attn", "flash-attn"),
        ("pip install git+https://github.com/thu-ml/SageAttention",
         "pip install sageattention==1.0.6", "sageattention"),
        ("pip install torch>=2.5", "pip install torch>=2.7 torchvision", ""),
        ("pip install a>1,<2", "pip install a>=1.5", ""),
        ("pip install a==1.*", "pip install a==1.4.2", ""),
        ("pip install a", "pip install b", ""),
    ],
)  # fmt: skip
def test_clashes(left: str, right: str, about: str) -> None:
    one, other = pip_call(tuple(left.split())), pip_call(tuple(right.split()))
    assert one is not None
    assert other is not None
    assert conflict(one, other) == about
    assert conflict(other, one) == about
    found = plan(
        Diagnosis(
            facts=H100,
            findings=(_finding("l/l", _fix(left)), _finding("r/r", _fix(right))),
            rules=2,
        )
    )
    assert [clash.about for clash in found.clashes] == [about] * bool(about)
    if about:
        assert all("choose with" in one.blocked_by for one in found.steps)
        chosen = plan(
            Diagnosis(facts=OLDER, findings=(_finding("l/l", _fix(left)),), rules=1), ["l/l"]
        )
        assert "choose" not in chosen.steps[0].blocked_by


def test_commands_are_merged_only_from_the_same_place() -> None:
    one = pip_call(("pip", "install", "a", "--index-url", "https://x"))
    other = pip_call(("pip", "install", "a"))
    assert one is not None
    assert other is not None
    assert merged(one, other) is None
    assert merged(other, other) == other
    assert pip_call(("sudo", "apt-get", "install", "gcc")) is None
    assert pip_call(("MAX_JOBS=4", "pip", "install", "a"))


def test_a_merged_command_keeps_each_index() -> None:
    first, second = (("--extra-index-url", f"https://{name}") for name in "xy")
    one = pip_call(("pip", "install", "a", *first))
    other = pip_call(("pip", "install", "a>1", *second, *first))
    assert one is not None
    assert other is not None
    both = merged(one, other)
    assert both is not None
    assert both.indexes == (first, second)


def test_root_and_what_cannot_be_undone_are_blocked() -> None:
    apt = _finding("x/gcc", _fix("sudo apt-get install -y gcc"))
    for root, named, blocked_by in (
        (False, (), "it needs root"),
        (True, (), "cannot be undone"),
        (True, ("x/gcc",), ""),
    ):
        facts = replace(H100, system=replace(H100.system, user_is_root=root))
        step = plan(Diagnosis(facts=facts, findings=(apt,), rules=1), named).steps[0]
        assert (blocked_by in step.blocked_by) if blocked_by else not step.blocked_by
        assert not step.undoable


def test_a_ready_wheel_is_pinned_so_that_nothing_is_compiled() -> None:
    wanted = _finding("f/f", _fix("MAX_JOBS=2 pip install --no-build-isolation flash-attn"))
    step = plan(Diagnosis(facts=OLDER, findings=(wanted,), rules=1)).steps[0]
    assert step.kind == "install"
    # No toolkit for this torch: setup.py would compile where it does not reach GitHub, and stop.
    assert (step.run[0][:2], step.needs) == (("pip", "install"), "")
    assert "/v2.8.3.post1/flash_attn-2.8.3.post1%2Bcu12torch2.8cxx11abiTRUE-cp312" in step.run[0][2]
    toolkit = replace(OLDER.build, cuda_major=12, missing_components=())
    step = plan(Diagnosis(facts=replace(OLDER, build=toolkit), findings=(wanted,), rules=1)).steps[
        0
    ]
    assert "flash-attn==2.8.3.post1" in step.run[0]
    built = plan(Diagnosis(facts=H100, findings=(wanted,), rules=1)).steps[0]
    assert built.kind == "build"
    assert not built.blocked_by
    assert built.variables["FLASH_ATTN_CUDA_ARCHS"] == "90"
    assert built.variables["MAX_JOBS"] == "13"
    assert "--no-deps" in built.run[0]
    assert built.estimate.minutes is not None


@pytest.mark.parametrize(("cuda", "runs"), [("13.0", False), ("13.2", True)])
def test_code_for_desktop_gpus_runs_on_orin_from_a_cuda_on(cuda: str, runs: bool) -> None:
    orin = replace(H100, gpus=(Gpu(sm=87, visible=True),), torch=replace(H100.torch, cuda=cuda))
    found = preflight("flash-attn", orin)
    assert ("flash-attn has no kernels for compute capability 8.7" not in found.obstacles) is runs


def test_builds_are_blocked_where_they_cannot_succeed() -> None:
    url = "pip install --no-build-isolation git+https://github.com/thu-ml/SageAttention"
    sage = _finding("s/s", _fix(url))
    good = plan(Diagnosis(facts=H100, findings=(sage,), rules=1)).steps[0]
    assert not good.blocked_by
    assert good.variables["TORCH_CUDA_ARCH_LIST"] == "9.0"
    cases = {
        "no GPU is visible": replace(H100, gpus=()),
        "no kernels for compute capability 7.5": replace(H100, gpus=(Gpu(sm=75, visible=True),)),
        "needs 12.3 or later": replace(
            OLDER, build=replace(H100.build, version="12.1", cuda_major=12)
        ),
        "a complete CUDA 13 toolkit is missing": replace(
            H100, build=replace(H100.build, nvcc="", cuda_major=None, compatible_toolkit="")
        ),
        "no C++ compiler": replace(H100, cxx=Program(path="")),
        "Python.h is missing": replace(H100, python=replace(H100.python, headers="")),
        "memory are free": replace(H100, system=replace(H100.system, ram_available_mib=900)),
        "built for cpu": replace(H100, torch=replace(H100.torch, build="cpu", cuda=None)),
    }
    for words, facts in cases.items():
        assert any(words in one for one in preflight("sageattention", facts).obstacles), words
    other = replace(
        H100, build=replace(H100.build, cuda_major=12, compatible_toolkit="/opt/cuda-13")
    )
    assert preflight("sageattention", other).variables["CUDA_HOME"] == "/opt/cuda-13"


@pytest.mark.parametrize(
    ("cpus", "gib", "sms", "side", "jobs"),
    [
        (16, 120, (90,), 4, 13),
        (96, 900, (90,), 4, 96),
        (10, 400, (89,), 4, 10),
        (9, 400, (89,), 3, 9),
        (64, 64, (120,), 1, 7),
        (2, 23, (86,), 1, 2),
        (2, 6, (86,), 1, 1),
        (16, 120, (80, 90), 1, 6),  # nvcc compiles for both at once
    ],
)
def test_sageattention_is_built_with_the_jobs_that_memory_allows(
    cpus: int, gib: int, sms: tuple[int, ...], side: int, jobs: int
) -> None:
    facts = derive(
        replace(
            H100,
            system=replace(H100.system, cpus=cpus, ram_available_mib=gib << 10),
            gpus=tuple(Gpu(sm=sm, visible=True) for sm in sms),
            gaps={},
        )
    )
    found = preflight("sageattention", facts).variables
    assert (found["EXT_PARALLEL"], found["MAX_JOBS"]) == (str(side), str(jobs))
    # setup.py has a better number of threads than one.
    assert "NVCC_APPEND_FLAGS" not in found
    # The largest extension has seven CUDA files, the others one; nvcc compiles for all at once.
    at_once = (min(7, jobs) + min(3, side - 1)) * len(sms)
    assert at_once <= (facts.build.jobs or 0)


def test_flash_attn_is_built_with_its_kernels() -> None:
    name = "FLASH_ATTENTION_SKIP_CUDA_BUILD"
    assert preflight("flash-attn", replace(H100, env={name: "TRUE"})).variables[name] == "FALSE"
    assert name not in preflight("flash-attn", replace(H100, env={})).variables


@pytest.mark.parametrize(
    ("torch", "flags", "wanted"),
    [
        ("2.12.1+cu130", "", None),
        ("2.13.0+cu130", "", "-std=c++20"),
        ("2.15.0+cu132", "--threads 8", "--threads 8 -std=c++20"),
    ],
)
def test_sageattention_is_built_as_the_headers_of_torch_need(
    torch: str, flags: str, wanted: str | None
) -> None:
    env = {"NVCC_APPEND_FLAGS": flags} if flags else {}
    facts = replace(H100, torch=replace(H100.torch, version=torch), env=env)
    found = preflight("sageattention", facts).variables
    assert found.get("NVCC_APPEND_FLAGS") == wanted
    assert found.get("CXX_APPEND_FLAGS") == (wanted and "-std=c++20")
    assert "CXX_APPEND_FLAGS" not in preflight("flash-attn", facts).variables


@pytest.mark.parametrize(
    ("torch", "run", "stopped"),
    [
        ("2.13.0+cu130", "flash-attn", False),
        ("2.15.0+cu130", "flash-attn", True),
        ("2.15.0+cu130", "flash-attn==2.8.3.post2", True),
        ("2.15.0+cu130", "flash-attn@git+https://github.com/Dao-AILab/flash-attention", False),
        ("2.15.0+cu130", "git+https://github.com/thu-ml/SageAttention", False),
    ],
)
def test_a_release_whose_sources_torch_refuses_is_not_built(
    torch: str, run: str, stopped: bool
) -> None:
    facts = replace(H100, torch=replace(H100.torch, version=torch))
    finding = _finding("a/a", _fix(f"pip install --no-build-isolation {run}"))
    step = plan(Diagnosis(facts=facts, findings=(finding,), rules=1)).steps[0]
    assert step.kind == "build"
    assert ("torch 2.14 and later need C++20" in step.blocked_by) is stopped


def test_a_package_that_install_would_compile_is_compiled_by_fix() -> None:
    facts = derive(replace(H100, diffusers=Package(installed=True, version="0.40.0"), gaps={}))
    rule = "diffusers/sageattention-too-old"
    step = plan(decided(diagnosis_of(facts)), [rule]).steps[0]
    assert (step.kind, step.variables["MAX_JOBS"]) == ("build", "13")
    assert "--force-reinstall" in step.run[0]


def test_no_figure_without_a_source() -> None:
    for run in ("pip install torch", "pip install triton", "pip install kernels",
                "pip install --no-build-isolation flash-attn", "pip uninstall -y torch",
                "pip install git+https://github.com/thu-ml/SageAttention"):  # fmt: skip
        finding = _finding("a/a", _fix(run))
        found = plan(Diagnosis(facts=H100, findings=(finding,), rules=1)).steps[0].estimate
        assert bool(found.disk_mib) == bool(found.disk_basis)
        assert bool(found.ram_mib) == bool(found.ram_basis)
        assert found.minutes is None or "README" in found.basis or "measured" in found.basis
        assert bool(found.basis) == ("uninstall" not in run)


def test_wheel_verdicts() -> None:
    assert verdict("flash-attn", OLDER).requirement == "flash-attn==2.8.3.post1"
    unknown = verdict("flash-attn", H100)
    assert unknown.wheel == "unknown"
    assert "torch 2.4 to 2.8 (this is 2.11)" in unknown.reason
    assert verdict("xformers", H100).index.endswith("/cu130")
    assert verdict("xformers", OLDER).requirement == "xformers==0.0.32.post2"
    assert verdict("sageattention", H100).wheel == "no"
    assert verdict("triton", H100).requirement == "triton==3.6.0"
    windows = derive(replace(H100, system=replace(H100.system, os="windows"), gaps={}))
    assert verdict("sageattention", windows).wheel == "yes"
    assert verdict("triton", windows).requirement.startswith("triton-windows==3.6")
    nothing = verdict("flash-attn", Facts())
    assert nothing.wheel == "unknown"
    assert nothing.reason


def test_another_torch_predicts_the_problems_that_it_introduces() -> None:
    facts = derive(
        replace(
            H100,
            torch=replace(H100.torch, version="2.11.0+cpu", local="cpu", build="cpu", cuda=None),
            xformers=Package(
                installed=True, version="0.0.30", built_torch="2.7.0+cu126", built_cuda="12.6"
            ),
            gaps={},
        )
    )
    found = plan(diagnosis_of(facts))
    assert [one.rules for one in found.steps if one.ready] == [("torch/cpu-build",)]
    assert any(rule.startswith("xformers/built-for-other") for rule, _ in found.follows)


def test_requirements_of_a_healthy_machine_and_of_one_to_be_fixed() -> None:
    text = requirements(H100)
    assert "torch==2.11.0+cu130" in text.splitlines()
    assert "--extra-index-url https://download.pytorch.org/whl/cu130" in text
    assert text.count("--extra-index-url") == 1
    assert "xformers==0.0.35" in text.splitlines()
    assert "# compile it afterwards" in text
    cpu = derive(
        replace(
            H100,
            torch=replace(H100.torch, version="2.11.0+cpu", local="cpu", build="cpu", cuda=None),
            gaps={},
        )
    )
    assert "torch==2.11.*" in requirements(cpu).splitlines()
    assert "triton==3.6.0" in requirements(cpu).splitlines()
    assert "build that fits this machine is unknown" in requirements(Facts())
    for line in text.splitlines():
        assert not line or line[0] in "#-" or "==" in line


def test_progress_counts_what_ninja_counts() -> None:
    now = [0.0]
    progress = Progress((1.0, 2.0), clock=lambda: now[0])
    assert progress.text == "1 to 2 min left"
    now[0] = 60.0
    progress.line("  [1/10] nvcc -c a.cu")
    now[0] = 120.0
    progress.line("  [2/10] nvcc -c b.cu")
    assert progress.text.startswith("step 2 of 10, ")
    low, high = progress.left or (0.0, 0.0)
    assert low < 480 < high
    progress.line("no count here [x/y]")
    assert progress.text.startswith("step 2 of 10")
    late = Progress((0.1, 0.2), clock=lambda: now[0])
    now[0] += 60
    assert late.text == "longer than estimated"


def _planned(*findings: Finding, facts: Facts = H100, **more: object) -> Plan:
    return plan(Diagnosis(facts=facts, findings=findings, rules=len(findings)), **more)  # type: ignore[arg-type]


def test_harmless_steps_alone() -> None:
    auto = _finding("a/auto", _fix("pip install a", safety=Safety.AUTO))
    ask = _finding("b/ask", _fix("pip install b"))
    assert [step.rules for step in _planned(auto, ask, only_auto=True).steps] == [("a/auto",)]
    assert len(_planned(auto, ask).steps) == 2


def test_a_choice_counts_only_for_named_rules() -> None:
    finding = _finding("a/a", _fix("pip install a"), _fix("pip install b"), _fix("pip install c"))
    for choice, package in ((1, "a"), (2, "b"), (3, "c")):
        assert _planned(finding, named=["a/a"], choice=choice).steps[0].packages == (package,)
    assert _planned(finding, choice=2).steps[0].packages == ("a",)


def test_a_fix_without_a_command_is_not_preferred() -> None:
    """Of fixes that only a person can apply, the first is shown."""
    words = _fix(manual="Do it.")
    by_hand = _fix("pip install a", safety=Safety.MANUAL)
    variables = Fix(title="set", safety=Safety.ASK, exports={"A": "1"})
    assert _planned(_finding("a/a", words, by_hand)).steps[0].manual == "Do it."
    assert _planned(_finding("a/a", by_hand, words, variables)).steps[0].exports == {"A": "1"}


def test_problems_without_a_fix_are_listed_and_others_are_planned() -> None:
    found = _planned(_finding("a/none"), _finding("b/b", _fix("pip install b")), _finding("a/none"))
    assert found.without == ("a/none",)
    assert [step.rules for step in found.steps] == [("b/b",)]


def test_notes_are_listed_unless_rules_are_named() -> None:
    note = _finding("c/note", _fix("pip install c"), severity=Severity.INFO)
    bare = _finding("d/bare", severity=Severity.INFO)
    caused = _finding("e/e", _fix("pip install e"), severity=Severity.INFO, by="c/note")
    assert _planned(note, bare, caused).notes == ("c/note",)
    assert _planned(note, named=["c/note"]).notes == ()


def test_a_step_says_what_it_needs() -> None:
    (step,) = _planned(_finding("a/a", _fix("pip install a", needs="3 GB"))).steps
    assert step.needs == "3 GB"


def test_the_title_of_a_step_names_its_subject() -> None:
    plain = _finding("a/a", _fix("pip install a"))
    assert _planned(plain).steps[0].title == "t"
    assert _planned(replace(plain, subject="GPU 1")).steps[0].title == "t (GPU 1)"


def _manual(rule: str, manual: str, title: str = "t", **more: object) -> Finding:
    return _finding(rule, Fix(title=title, safety=Safety.MANUAL, manual=manual, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "merged_"),
    [
        (_manual("a/a", "Reboot."), _manual("b/b", "Reboot."), True),
        (_manual("a/a", "Reboot."), _manual("b/b", "Wait."), False),
        (_manual("a/a", "Reboot."), _manual("b/b", "Reboot.", "other"), False),
        (_finding("a/a", _fix("pip install a")), _finding("b/b", _fix("pip install a")), True),
        (_finding("a/a", _fix("pip install a")), _finding("b/b", _fix("pip install b")), False),
        (_finding("a/a", _fix("pip install a")), _manual("b/b", ""), False),
        (
            _finding("a/a", _fix("pip install a", exports={"A": "1"})),
            _finding("b/b", _fix("pip install a>=1", exports={"A": "1"})),
            False,
        ),
        (
            _finding("a/a", _fix("pip install a", exports={"A": "1"})),
            _finding("b/b", _fix("pip install a", exports={"A": "1"})),
            True,
        ),
        (
            _finding("a/a", _fix("pip install a", "pip install b")),
            _finding("b/b", _fix("pip install a>=1", "pip install b")),
            False,
        ),
        (
            _finding("a/a", _fix("sudo apt-get install -y a")),
            _finding("b/b", _fix("sudo apt-get install -y b")),
            False,
        ),
        (
            _finding("a/a", _fix("nvidia-smi -a", "x")),
            _finding("b/b", _fix("nvidia-smi -a")),
            False,
        ),
    ],
)
def test_which_steps_are_merged(one: Finding, other: Finding, merged_: bool) -> None:
    assert len(_planned(one, other).steps) == (1 if merged_ else 2)
    assert len(_planned(other, one).steps) == (1 if merged_ else 2)


def test_steps_with_the_same_commands_and_other_titles_are_one() -> None:
    one = _finding("a/a", Fix(title="one", safety=Safety.ASK, run=(("pip", "install", "a"),)))
    other = _finding("b/b", Fix(title="two", safety=Safety.ASK, run=(("pip", "install", "a"),)))
    assert [step.title for step in _planned(one, other).steps] == ["one"]


def test_a_merged_step_has_the_caches_and_alternatives_of_both() -> None:
    facts = replace(
        H100,
        caches=tuple(
            Cache(kind=kind, path=f"/{kind}", exists=True, bytes=1) for kind in ("triton", "hub")
        ),
    )
    other_fix = Fix(title="another way", safety=Safety.MANUAL)
    one = _finding("a/a", _fix("pip install kernels", clears=("triton",)))
    other = _finding("b/b", _fix("pip install kernels", clears=("triton", "hub")), other_fix)
    (step,) = _planned(one, other, facts=facts).steps
    assert step.clears == ("triton", "hub")
    assert [stale.path for stale in step.stale] == ["/triton", "/hub"]
    assert step.alternatives == ("another way",)


def test_a_merged_step_has_the_earlier_rank() -> None:
    """The area of the second rule comes first in the order: drivers before torch."""
    one = _finding("torch/a", _fix("nvidia-smi -a"))
    other = _finding("driver/b", _fix("nvidia-smi -a"))
    assert [step.rank for step in _planned(one, other).steps] == [0]


@pytest.mark.parametrize(
    ("rule", "fix", "rank"),
    [
        ("x/x", _fix("pip install pip"), 20),
        ("x/x", _fix("pip install torch diffusers"), 30),
        ("driver/x", _fix("pip install diffusers"), 60),
        ("driver/x", _fix("x"), 0),
        ("system/x", _fix("x"), 5),
        ("toolkit/x", _fix("x"), 10),
        ("python/x", _fix("x"), 20),
        ("torch/x", _fix("x"), 30),
        ("triton/x", _fix("x"), 40),
        ("x/x", _fix("x"), 60),
        ("x/x", Fix(title="t", safety=Safety.ASK, exports={"A": "1"}), 10),
    ],
)
def test_the_rank_of_a_step(rule: str, fix: Fix, rank: int) -> None:
    assert [step.rank for step in _planned(_finding(rule, fix)).steps] == [rank]


def test_variables_that_exclude_each_other() -> None:
    def setting(rule: str, **exports: str) -> Finding:
        return _finding(rule, Fix(title="t", safety=Safety.ASK, exports=exports))

    found = _planned(setting("a/a", A="1", B="1"), setting("b/b", A="1", B=""))
    (clash,) = found.clashes
    assert (clash.about, clash.rules, clash.wants) == ("B", ("a/a", "b/b"), ("B=1", "no B"))
    assert [step.blocked_by for step in found.steps] == [
        "b/b needs another B: choose with `attn-doctor fix a/a` or `attn-doctor fix b/b`",
        "a/a needs another B: choose with `attn-doctor fix b/b` or `attn-doctor fix a/a`",
    ]
    assert _planned(setting("a/a", A="1"), setting("b/b", B="1")).clashes == ()


def test_a_clash_names_what_each_rule_needs() -> None:
    one = _finding("a/a", _fix("pip install b torch==2.4.* --index-url https://x/cu130"))
    other = _finding("b/b", _fix("pip uninstall -y torch"))
    third = _finding("c/c", _fix("pip install d", "pip install torch==2.4.*"))
    found = _planned(one, other)
    assert found.clashes[0].wants == ("torch==2.4.* from https://x/cu130", "no torch")
    assert _planned(other, third).clashes[0].wants == ("no torch", "torch==2.4.*")


def test_a_step_without_a_clash_is_not_blocked() -> None:
    third = _finding("c/c", _fix("pip install kernels"))
    one, other = (_finding(f"{x}/x", _fix(f"pip install torch=={x}")) for x in "12")
    found = _planned(third, one, other)
    assert {step.rules[0]: bool(step.blocked_by) for step in found.steps} == {
        "c/c": False,
        "1/x": True,
        "2/x": True,
    }


def test_a_command_that_only_one_may_run() -> None:
    """Commands of Python itself are applied; others of the machine only by name."""
    python = _finding("a/a", _fix("python -m ensurepip"))
    machine = _finding("b/b", _fix("ldconfig"))
    both = _finding("c/c", _fix("ldconfig", "pip install kernels"))
    assert _planned(python).steps[0].blocked_by == ""
    assert "only by name: `attn-doctor fix b/b`" in _planned(machine).steps[0].blocked_by
    assert _planned(machine, named=["b/b"]).steps[0].blocked_by == ""
    assert _planned(both).steps[0].kind == "command"
    assert _planned(both).steps[0].blocked_by == ""


@pytest.mark.parametrize(
    ("fix", "kind", "undoable"),
    [
        (_fix("pip install a"), "install", True),
        (_fix("pip install a", safety=Safety.MANUAL), "manual", False),
        (_fix("pip install a", exports={"A": "1"}), "install", True),
        (_fix(exports={"A": "1"}), "variables", False),
        (_fix(manual="x"), "manual", False),
        (_fix("ldconfig"), "command", False),
        (_fix("pip install a", "ldconfig"), "command", False),
        # A Windows has no folder of this name.
        pytest.param(
            _fix("rm -r /venv/lib/a-1.dist-info", "pip install a"),
            "command",
            True,
            marks=pytest.mark.posix,
        ),
        (_fix("rm -r /venv/lib/a-1.dist-info"), "command", False),
        (_fix("rm -r /venv/lib/a", "pip install a"), "command", False),
        (_fix("rm -r /usr/lib/a-1.dist-info", "pip install a"), "command", False),
    ],
)
def test_the_kind_of_a_step(fix: Fix, kind: str, undoable: bool) -> None:
    facts = replace(H100, python=replace(H100.python, prefix="/venv"))
    (step,) = _planned(_finding("a/a", fix), facts=facts).steps
    assert (step.kind, step.undoable) == (kind, undoable)


def test_what_several_subjects_need_is_one_command() -> None:
    runs = ("pip install numpy", "pip install pillow>=9", "pip install numpy<2")
    first, second, again = (replace(_finding("a/a", _fix(run)), subject=run) for run in runs)
    other = _finding("b/b", _fix("pip install regex"))
    (both, alone) = _planned(first, second, other).steps
    assert both.run == (("pip", "install", "numpy", "pillow>=9"),)
    assert (both.title, both.packages) == ("t", ("numpy", "pillow"))
    assert alone.run == (("pip", "install", "regex"),)
    # pip refuses two requirements of one package in one command.
    assert all(len(step.packages) == 1 for step in _planned(first, again).steps)


def test_only_caches_that_exist_become_stale() -> None:
    facts = replace(
        H100,
        caches=(
            Cache(kind="triton", path="/none", exists=False),
            Cache(kind="hub", path="/hub", exists=True),
            Cache(kind="triton", exists=True, bytes=3),
        ),
    )
    fix = _fix("pip install a", clears=("triton",))
    (step,) = _planned(_finding("a/a", fix), facts=facts).steps
    assert step.stale == (Stale("triton", "", 3),)
    unknown = replace(H100, caches=None)
    assert _planned(_finding("a/a", fix), facts=unknown).steps[0].stale == ()


def test_what_a_step_resolves_too_is_named_once() -> None:
    root = _finding("a/root", _fix("pip install kernels"))
    twice = _finding("b/b", by="a/root")
    other = _finding("c/c", by="x/unplanned")
    found = _planned(root, twice, twice, other)
    assert found.explained == {"a/root": ("b/b",)}


def test_steps_are_numbered_from_one() -> None:
    findings = (_finding(f"a/{name}", _fix(f"pip install {name}")) for name in "abc")
    assert [step.number for step in _planned(*findings).steps] == [1, 2, 3]


def test_a_command_of_install_is_left_to_the_user() -> None:
    step = _planned(_finding("a/a", _fix("attn-doctor install flash"))).steps[0]
    assert step.blocked_by == (
        "it installs another torch: run the command, which shows its plan and can be undone"
    )
    (cache,) = _planned(_finding("a/a", _fix("attn-doctor cache clear")), named=["a/a"]).steps
    assert cache.blocked_by == ""


def test_a_command_of_root_says_who_runs_it() -> None:
    (step,) = _planned(_finding("a/a", _fix("sudo ldconfig"))).steps
    assert step.blocked_by == (
        "it needs root, which attn-doctor never requests: run the command yourself"
    )


def test_better_remedies_of_steps_that_are_one_are_all_named() -> None:
    findings = (
        _finding(
            f"a/{name}",
            Fix(title=f"by hand {name}", safety=Safety.MANUAL, manual=manual),
            _fix("pip install x"),
        )
        for name, manual in (("one", "Do it."), ("two", ""))
    )
    (step,) = _planned(*findings).steps
    assert step.better == ("by hand one: Do it.", "by hand two")


def test_steps_after_others_that_do_not_clash_are_compared_too() -> None:
    left, middle, right = (
        _finding(f"a/{name}", _fix(f"pip install {what}"))
        for name, what in (
            ("left", "torch==2.4.0"),
            ("middle", "einops"),
            ("right", "torch==2.5.0"),
        )
    )
    found = _planned(left, middle, right)
    assert [clash.about for clash in found.clashes] == ["torch"]
    assert [bool(step.blocked_by) for step in found.steps if "a/middle" in step.rules] == [False]
