"""The set that is chosen, against trying every build, and the conflict that is named."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from msgspec.structs import replace

from attn_doctor.derived.releases import parts
from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes.postconditions import with_build
from attn_doctor.install.choice import PAIR, Choice, Conflict, choose, fits_with_community
from attn_doctor.install.demand import WORDS, Demand, words_of
from attn_doctor.install.known_faults import known_faults
from attn_doctor.install.packages import OLDEST_SAGE, Lacking, Pick, Rules, pick
from attn_doctor.install.plan import plan
from attn_doctor.rulebook import library
from tests.install.machines import machine
from tests.install.oracle import COMPILED, GPUS, Asked, every

TABLES = library.tables()
ADA = ("gpu=rtx4090", "driver=580")


def chosen(words: str, *pretended: str, **more: bool) -> Choice | Conflict:
    return choose(Demand(words=words_of(words.split()), **more), machine(*pretended), TABLES)


def build(words: str, *pretended: str, **more: bool) -> str:
    found = chosen(words, *pretended, **more)
    assert isinstance(found, Choice), found
    return found.torch.full


@pytest.mark.parametrize(
    ("pretended", "expected"),
    [
        (("gpu=rtx4090", "driver=580"), "2.15.0+cu130"),
        (("gpu=h100", "driver=570"), "2.15.0+cu126"),
        (("gpu=rtx5090", "driver=580"), "2.15.0+cu130"),
        (("gpu=gtx1080", "driver=535"), "2.15.0+cu126"),
        (("gpu=rtx4090", "driver=579.9"), "2.15.0+cu126"),  # before the first one for CUDA 13
        (("gpu=none",), "2.15.0+cpu"),
        (("gpu=none", "os=windows"), "2.15.0"),
        (("gpu=none", "os=macos"), "2.15.0"),
    ],
)
def test_torch_for_an_empty_environment(pretended: tuple[str, ...], expected: str) -> None:
    assert build("torch", *pretended) == expected


@pytest.mark.parametrize(
    ("torch", "words", "expected"),
    [
        # What fits stays; a prebuilt wheel counts more than the installed torch.
        ("2.9.1+cu128", "xformers flash", "2.9.1+cu128"),
        ("2.13.0+cu132", "xformers", "2.13.0+cu132"),
        ("2.13.0+cu130", "flash", "2.10.0+cu130"),
        ("2.13.0+cpu", "flex", "2.15.0+cu130"),
    ],
)
def test_torch_that_is_installed(torch: str, words: str, expected: str) -> None:
    assert build(words, *ADA, f"torch={torch}") == expected


def test_xformers_for_cuda_13_2_comes_from_the_index_that_has_it() -> None:
    found = chosen("xformers", *ADA, "torch=2.13.0+cu132")
    assert isinstance(found, Choice)
    (xformers,) = found.picks
    assert (xformers.version, xformers.index) == (
        "0.0.35",
        "https://download.pytorch.org/whl/cu130",
    )


def test_torchaudio_needs_the_cuda_that_it_was_built_for() -> None:
    driver = ("gpu=rtx4090", "driver=595")  # knows CUDA 13.2
    assert build("torch", *driver) == "2.15.0"
    assert build("comfyui", *driver) == "2.15.0+cu130"


@pytest.mark.thorough
def test_xformers_and_a_flash_attn_that_it_accepts() -> None:
    assert build("xformers", *ADA, "torch=2.6.0+cu126") == "2.6.0+cu126"
    assert build("flash", *ADA, "torch=2.6.0+cu126") == "2.6.0+cu126"
    assert build("xformers flash", *ADA, "torch=2.6.0+cu126") != "2.6.0+cu126"
    # The newest flash-attn for this torch is too new for its xformers; an older one has a wheel.
    older = chosen("xformers flash", *ADA, "torch=2.7.1+cu128")
    assert isinstance(older, Choice)
    versions = {one.package: one.version for one in older.picks}
    assert versions == {"xformers": "0.0.31.post1", "flash-attn": "2.8.0.post2"}
    facts = machine(*ADA, "torch=2.6.0+cu126")
    facts = replace(facts, build=replace(facts.build, nvcc="", compatible_toolkit=""))
    demand = Demand(words=("xformers", "flash"), keep_torch=True)
    found = choose(demand, facts, TABLES)
    assert isinstance(found, Conflict)
    assert "accepts flash-attn >=2.7.1,<2.7.3, and not 2.8.3.post1" in found.reasons[0]
    assert found.names == (PAIR,)


def test_the_processor_or_the_gpu() -> None:
    assert build("native", "gpu=none") == "2.15.0+cpu"
    assert build("native", "gpu=none", gpu=True) == "2.15.0"  # of the default index


def test_words() -> None:
    assert words_of(["Flash-Attn", "sdpa", "flash"]) == ("flash", "native")
    with pytest.raises(AttnDoctorError, match="did you mean xformers"):
        words_of(["xformer"])


def test_names_that_are_not_known() -> None:
    for name, text in (
        ("flash-attn==2.8.3", "name it without a release"),
        ("vllm", "name one of torch, native"),
        ("", "an empty name is not known"),
    ):
        with pytest.raises(AttnDoctorError, match=text):
            words_of([name])


def test_gpus_of_other_vendors_need_another_torch() -> None:
    """A torch for the processor would not use them; one that is built for them stays."""
    found = chosen("torch", "gpu=mi300x")
    assert isinstance(found, Conflict)
    assert "needs a torch built for ROCm" in found.reasons[0]
    facts = machine("gpu=mi300x", "torch=2.10.0+cpu")
    torch = replace(facts.torch, version="2.10.0+rocm7.0", build="rocm", cuda=None)
    stays = choose(Demand(words=("native",)), replace(facts, torch=torch), TABLES)
    assert isinstance(stays, Choice)
    assert stays.torch.installed == "2.10.0+rocm7.0"


def test_the_reason_why_torch_moves() -> None:
    found = chosen("flash", *ADA, "torch=2.13.0+cu130")
    assert isinstance(found, Choice)
    assert found.moves_torch
    assert "flash-attn would have to be compiled" in found.why
    empty = chosen("torch", *ADA)
    assert isinstance(empty, Choice)
    assert empty.why == ""


def test_training_and_sage() -> None:
    found = chosen("sage", *ADA, training=True)
    assert isinstance(found, Conflict)
    assert "no backward pass" in found.reasons[0]


def test_an_old_sage_stays_only_where_it_is_not_asked_for() -> None:
    facts = machine(*ADA, "torch=2.13.0+cu130", "sageattention=1.0.6")
    there = replace(
        facts, sageattention=replace(facts.sageattention, known_to_load=True, built_torch=None)
    )
    asked = pick("sageattention", there, Rules())
    assert isinstance(asked, Pick)
    assert (asked.how, asked.version) == ("build", "2.2.0")
    no_nvcc = replace(there, build=replace(there.build, nvcc="", compatible_toolkit=""))
    lacking = pick("sageattention", no_nvcc, Rules())
    assert isinstance(lacking, Lacking)
    assert "the installed 1.0.6 is too old for Diffusers" in lacking.reason
    beside = pick("sageattention", there, Rules(), asked=False)
    assert isinstance(beside, Pick)
    assert (beside.how, beside.version) == ("stays", "1.0.6")
    newer = replace(there, sageattention=replace(there.sageattention, version="2.1.1"))
    assert isinstance(pick("sageattention", newer, Rules()), Pick)


def test_an_old_sage_moves_with_no_torch() -> None:
    facts = machine(*ADA, "torch=2.13.0+cu130", "sageattention=1.0.6")
    sage = replace(facts.sageattention, extensions=(), known_to_load=False)
    found = choose(Demand(words=("flash",)), replace(facts, sageattention=sage), TABLES)
    assert isinstance(found, Choice)
    assert found.moves_torch
    assert ([one.package for one in found.picks], found.dropped) == (["flash-attn"], ())


def test_the_oldest_sage_is_that_of_the_backends() -> None:
    text = (library.folder() / "tables/backends/sage.toml").read_text("utf-8")
    assert f"needs  = ['sageattention.version >= \"{OLDEST_SAGE}\"']" in text


def test_flash_attention_3_is_pytorchs_own_wheel() -> None:
    found = chosen("fa3", "gpu=h100", "driver=580")
    assert isinstance(found, Choice)
    (flash,) = found.picks
    assert (found.torch.full, flash.note) == ("2.15.0+cu130", "published by PyTorch")
    assert flash.requirement == (
        "flash-attn-3 @ https://download.pytorch.org/whl/cu130/"
        "flash_attn_3-3.0.0-cp39-abi3-manylinux_2_28_x86_64.whl"
    )
    ada = chosen("flash3", *ADA)
    assert isinstance(ada, Choice)
    assert "code for GPUs before Hopper is unknown" in ada.picks[0].note
    old = chosen("flash3", "gpu=h100", "driver=580", "torch=2.8.0+cu128", keep_torch=True)
    assert isinstance(old, Conflict)
    assert "torch 2.9 or later" in old.reasons[0]


def test_an_older_flash_attn_whose_setup_fetches_a_wheel() -> None:
    # Wheels of 2.8 are for Python 3.9 and later.
    found = chosen("flash", *ADA, "python=3.8.18")
    assert isinstance(found, Choice)
    assert (found.torch.full, found.picks[0].how) == ("2.4.1", "index")
    _, step = plan(found, machine(*ADA, "python=3.8.18")).steps
    assert step.kind == "install"
    assert step.run == (("pip", "install", "--no-build-isolation", "flash-attn==2.7.0.post2"),)


def test_only_the_default_index() -> None:
    facts = machine(*ADA)
    found = choose(Demand(words=("xformers",)), facts, TABLES, Rules(only_default=True))
    assert isinstance(found, Choice)
    assert (found.torch.full, found.torch.index) == ("2.10.0", "")
    assert [one.index for one in found.picks] == [""]
    assert any("cannot be reached" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arch", "torch", "cuda"), [("x86_64", "2.15.0", "13.2"), ("aarch64", "2.15.0", "13.2")]
)
def test_the_processor_without_pytorchs_index(arch: str, torch: str, cuda: str) -> None:
    """The default index has no build for the processor alone; its build for CUDA runs there too."""
    facts = machine("gpu=none", arch=arch)
    found = choose(Demand(words=("native",)), facts, TABLES, Rules(only_default=True))
    assert isinstance(found, Choice)
    assert (found.torch.full, found.torch.cuda) == (torch, cuda)
    assert any("runs on the processor too" in note for note in found.notes)


def test_installed_packages_that_do_not_fit_the_new_torch_are_named() -> None:
    found = chosen("flash", *ADA, "torch=2.13.0+cu130", "xformers=0.0.35")
    assert isinstance(found, Choice)
    assert [one.package for one in found.picks] == ["flash-attn", "xformers"]
    assert found.dropped == ()


@pytest.mark.parametrize(
    ("pretended", "words", "names"),
    [
        (("gpu=rtx5090", "driver=470"), "torch", ("driver", "gpu")),
        (("gpu=rtx4090", "driver=580", "python=3.7.1"), "torch", ("python",)),
        (("gpu=rtx4090", "driver=580", "torch=2.3.1+cu121"), "flex --keep", ("triton",)),
        (("gpu=rtx4090", "python=3.8.18", "torch=2.4.1+cu121"), "hub", ("python",)),
        # torchaudio's last release came before this Python.
        (("gpu=rtx4090", "driver=580", "python=3.15.0"), "comfyui", ("torchaudio",)),
        # No torch changes what a GPU can run.
        (("gpu=t4", "driver=580"), "flash", ("gpu",)),
        (("gpu=v100", "driver=580", "torch=2.9.1+cu126"), "torch sage", ("gpu",)),
        (("gpu=gtx1080", "driver=580", "torch=2.9.1+cu126"), "flex", ("gpu",)),
        (("gpu=mi300x",), "xformers", ("gpu",)),
        (("gpu=rtx5090", "driver=580"), "flash3", ("gpu",)),
    ],
)
def test_the_smallest_conflict(
    pretended: tuple[str, ...], words: str, names: tuple[str, ...]
) -> None:
    keep = words.endswith(" --keep")
    found = chosen(words.removesuffix(" --keep"), *pretended, keep_torch=keep)
    assert isinstance(found, Conflict)
    assert found.names == names
    assert len(found.reasons) == len(names)


def test_windows_without_a_compiler_hears_of_the_compiler_and_of_other_publishers() -> None:
    facts = machine("gpu=rtx4090", "driver=576.88", "os=windows", "torch=2.8.0+cpu")
    facts = replace(facts, cxx=replace(facts.cxx, path=""))
    demand = Demand(words=("flash",))
    found = choose(demand, facts, TABLES)
    assert isinstance(found, Conflict)
    # And not that the installed torch is for the processor: another one may be installed.
    assert "no C++ compiler" in found.reasons[0]
    assert fits_with_community(demand, facts)
    assert not fits_with_community(replace(demand, community=True), facts)


def test_an_old_glibc_gets_the_last_torch_that_it_runs() -> None:
    facts = machine("gpu=a100", "driver=550", "python=3.11.7")
    old = replace(facts, system=replace(facts.system, glibc="2.17"))
    found = choose(Demand(words=("torch",)), old, TABLES)
    assert isinstance(found, Choice)
    assert parts(found.torch.version)[:2] == (2, 6)


# Against trying everything

_DRIVERS = ("450", "470", "525", "535", "550", "570", "580", "595")
_PYTHONS = ("3.8.18", "3.9.18", "3.10.13", "3.11.7", "3.12.3", "3.13.1", "3.14.0", "3.15.0")


def _random(generator: random.Random) -> Asked:
    system = generator.choice(("linux", "linux", "linux", "windows"))
    return Asked(
        words=tuple(generator.sample([*WORDS], generator.choice((1, 1, 2, 3)))),
        gpu=generator.choice([*GPUS]),
        driver=generator.choice(_DRIVERS),
        python=generator.choice(_PYTHONS),
        system=system,
        arch=generator.choice(("x86_64", "x86_64", "aarch64")) if system == "linux" else "x86_64",
        community=generator.random() < 0.5,
    )


def _answer(asked: Asked) -> Choice | Conflict:
    pretended = [f"gpu={asked.gpu}", f"python={asked.python}", f"os={asked.system}"]
    pretended += [f"driver={asked.driver}"] if asked.gpu != "none" else []
    demand = Demand(words=asked.words, community=asked.community)
    facts = machine(*pretended, arch=asked.arch)
    nothing = replace(facts.build, nvcc="", compatible_toolkit="")
    return choose(demand, replace(facts, build=nothing), TABLES)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.thorough
def test_no_better_set_exists(seed: int) -> None:
    """Twenty random demands for each seed; 30 seeds were run once."""
    generator = random.Random(seed)
    for _ in range(20):
        agrees(_random(generator))


def agrees(asked: Asked) -> None:
    """The answer is the best by the tables alone, or its conflict is a smallest one."""
    found, tried = _answer(asked), [*every(asked)]
    fitting = {(one.version, one.cuda): one for one in tried if not one.faults}
    if isinstance(found, Conflict):
        assert not fitting, (asked, found, fitting)
        _is_minimal(asked, found.names, [one.faults for one in tried])
        return
    assert not any(one.how == "build" for one in found.picks)
    one = fitting.get((found.torch.version, found.torch.cuda))
    assert one is not None, (
        asked,
        found.torch,
        [x for x in tried if x.version == found.torch.version],
    )
    for pick_ in found.picks:
        if pick_.package in COMPILED:
            assert pick_.version in one.versions[pick_.package], (asked, pick_)
    # Official wheels count more than a new torch.
    best = [
        x for x in fitting.values() if x.official or not any(y.official for y in fitting.values())
    ]
    newest = max(parts(x.version) for x in best)
    faulty = any("has a known fault" in note for note in found.notes)
    assert parts(found.torch.version) == newest or faulty or _is_faulty(asked, newest), asked


def _is_faulty(asked: Asked, version: tuple[int, ...]) -> bool:
    """Whether the newest torch has a fault that is known, which counts more."""
    text = ".".join(map(str, version))
    return any(
        known_faults(Demand(words=asked.words), with_build(machine(f"gpu={asked.gpu}"), text, cuda))
        for row in TABLES["torch"]["release"]
        if text in row["pins"]
        for cuda in row["cuda"]
    )


def _is_minimal(asked: Asked, names: tuple[str, ...], every: list[set[str]]) -> None:
    """Each build fails for one of the conditions, and no smaller part of them is enough."""
    assert all({*names} & faults for faults in every), (asked, names, every)
    for smaller in combinations(names, len(names) - 1):
        assert not smaller or not all({*smaller} & faults for faults in every), (asked, names)


def test_sage_on_windows_needs_triton() -> None:
    """torch for Windows brings no Triton, and the package imports it."""
    found = chosen("sage", *ADA, "os=windows", "torch=2.9.1+cu128", community=True)
    assert isinstance(found, Choice)
    wanted = {one.package: one.requirement for one in found.picks}
    assert wanted["triton"] == "triton-windows==3.5.*"
    here = chosen("sage", *ADA, "torch=2.8.0+cu128", community=True)
    assert isinstance(here, Choice), here
    assert "triton" not in {one.package for one in here.picks}


@pytest.mark.parametrize(("torch", "stays"), [("2.6.0+cu126", True), ("2.9.1+cu128", False)])
def test_sage_on_turing_needs_an_older_triton(torch: str, stays: bool) -> None:
    turing = ("gpu=rtx2080ti", "driver=580", "os=windows", f"torch={torch}")
    found = chosen("sage", *turing, community=True)
    assert isinstance(found, Choice)
    wanted = {one.package: one.requirement for one in found.picks}
    assert wanted["triton"] == "triton-windows==3.2.*"
    assert (found.torch.version == "2.6.0", found.moves_torch) == (True, not stays)


@pytest.mark.parametrize(("gpu", "noted"), [("orin", True), ("gb10", True), ("gh200", False)])
def test_where_sources_disagree_it_is_said(gpu: str, noted: bool) -> None:
    found = chosen("torch", f"gpu={gpu}", "driver=580")
    assert isinstance(found, Choice)
    assert any("sources disagree" in one for one in found.notes) is noted
