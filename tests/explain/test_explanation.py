"""From logs to causes: what is found, what is the root, what is not claimed."""
# ruff: noqa: E501 - lines as they stand in logs

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Explanation
from attn_doctor.facts import Driver, Facts, Gpu, Package, Python, System, Torch
from tests.effort import at_most

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

AMPERE = "FlashAttention only supports Ampere GPUs or newer"
RUNTIME = r"libcudart\.so\.1\d(?:\.0)?: cannot open shared object file"


def causes(found: Explanation) -> list[str]:
    return [match.cause for match in found.matches]


def test_one_line(rule: WriteRule, explained: Explain) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    found = explained(f"loading\nRuntimeError: {AMPERE}.\n")
    match = found.matches[0]
    assert (match.rule, match.cause) == ("flash/gpu-too-old", "gpu-too-old-for-flash")
    assert (match.line, match.excerpt) == (2, f"RuntimeError: {AMPERE}.")
    assert match.confidence >= 0.8
    assert match.verdict == "not checked"
    assert found.logs[0].lines == 2


@pytest.mark.parametrize(
    "log",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 146.00 MiB (GPU 0; 8.00 GiB total)",
        "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.",
        "SyntaxError: invalid syntax",
        "",
        "\n\n",
        "step 1 loss 0.1\n" * 1000,
    ],
    ids=["memory", "workers", "syntax", "empty", "blank", "training"],
)
def test_nothing_is_claimed(rule: WriteRule, explained: Explain, log: str) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    assert explained(log).matches == ()


@pytest.mark.parametrize(
    "carried",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-8-sig"),
        lambda text: f"\x1b[31m{text}\x1b[0m".replace("only", "\x1b[1monly\x1b[22m"),
        lambda text: "".join(f"[rank{n}]: {line}\n" for line in text.splitlines() for n in range(8)),
        lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
        lambda text: "\n".join(f"      │ {line}" for line in text.splitlines()),
        lambda text: "\n".join(f"2025-11-21T10:00:00.12Z {line}" for line in text.splitlines()),
        lambda text: "  1%|▏  | 1/100 [00:01<01:40]\r  2%|▏  | 2/100 [00:02<01:38]" + text,
        lambda text: "\n".join(textwrap.wrap("Something long said before it: " + text * 2, 80)),
        lambda text: "\n".join(("x" * 55 + text)[at : at + 80] for at in range(0, 120, 80)),
    ],
    ids=[
        "windows", "utf-16", "bom", "colours", "ranks", "quoted", "box", "times", "progress",
        "wrapped", "cut",
    ],
)  # fmt: skip
def test_however_it_was_carried(
    rule: WriteRule, explained: Explain, carried: Callable[[str], str | bytes]
) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE + r"\.")
    assert causes(explained(carried(f"RuntimeError: {AMPERE}.\n"))) == ["gpu-too-old-for-flash"]


def test_ranks_are_named_and_counted(rule: WriteRule, explained: Explain) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    log = "".join(f"[rank{n}]: RuntimeError: {AMPERE}\n" for n in range(3, 7))
    match = explained(log).matches[0]
    assert (match.rank, match.line, match.times) == ("3", 1, 4)


def test_the_name_of_a_process_shows_the_program(rule: WriteRule, explained: Explain) -> None:
    tail = "[[fix]]\ntitle = 'T'\nsafety = 'manual'\ninstead_of = 'flashinfer'"
    rule("flash/pages", "framework-backend-wiring", "headDim <= 2048", tail=tail)
    match = explained("(EngineCore_DP0 pid=33) RuntimeError: Expect headDim <= 2048\n").matches[0]
    assert match.rank == "EngineCore_DP0 pid=33"
    assert match.fixes[0].manual.startswith("vLLM: start with `--attention-backend")


def test_the_name_of_a_process_is_near_its_message(rule: WriteRule, explained: Explain) -> None:
    near = "[[symptom]]\npattern = 'does not know this window'\nnear = ['EngineCore']\nlogs = ['x']"
    rule("flash/window", "framework-backend-wiring", "no such line", tail=near)
    message = "ValueError: it does not know this window\n"
    assert causes(explained(f"(EngineCore_DP0 pid=33) {message}")) == ["framework-backend-wiring"]
    assert causes(explained(f"(Trainer pid=33) {message}")) == []


def test_a_symptom_of_several_lines(rule: WriteRule, explained: Explain) -> None:
    rule("sage/triton", "triton-missing", "(?s)sageattention.{0,3000}?No module named 'triton'")
    log = (
        "import sageattention\n"
        + "  frame\n" * 50
        + "ModuleNotFoundError: No module named 'triton'"
    )
    match = explained(log).matches[0]
    assert match.line == 52
    assert match.excerpt == "ModuleNotFoundError: No module named 'triton'"
    assert explained("ModuleNotFoundError: No module named 'triton'").matches == ()


CHAIN = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
    import flash_attn
ImportError: libcudart.so.12: cannot open shared object file

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
    raise ImportError(x)
ImportError: FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn seems to be not installed.
"""


def test_the_first_exception_of_a_chain_is_the_root(rule: WriteRule, explained: Explain) -> None:
    rule("flash/runtime", "cuda-runtime-lib-missing", RUNTIME)
    rule(
        "flash/absent", "package-not-installed", "the package flash_attn seems to be not installed"
    )
    found = explained(CHAIN)
    assert causes(found) == ["cuda-runtime-lib-missing", "package-not-installed"]
    assert found.matches[0].line == 4


def test_the_last_failure_counts_more_than_an_earlier_one(
    rule: WriteRule, explained: Explain
) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    rule("flash/runtime", "cuda-runtime-lib-missing", RUNTIME)
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1\n'
    earlier = f"{traceback}RuntimeError: {AMPERE}\n\ngoing on without it\n"
    last = f"{traceback}ImportError: libcudart.so.12: cannot open shared object file\n"
    assert causes(explained(earlier + last))[0] == "cuda-runtime-lib-missing"


def test_a_warning_is_not_the_cause_of_another_failure(rule: WriteRule, explained: Explain) -> None:
    rule(
        "xformers/triton", "triton-missing",
        "A matching Triton is not available, some optimizations will not be enabled",
    )  # fmt: skip
    rule("flash/head", "head-dim-unsupported", r"Unsupported head_dim: \d+")
    log = (
        "WARNING: A matching Triton is not available, some optimizations will not be enabled\n"
        + "step\n" * 20
        + 'Traceback (most recent call last):\n  File "a.py", line 1\n'
        + "ValueError: Unsupported head_dim: 160\n"
    )
    assert causes(explained(log)) == ["head-dim-unsupported"]


def test_what_was_said_before_an_unrelated_end_is_not_the_reason(
    rule: WriteRule, explained: Explain
) -> None:
    rule("xformers/triton", "triton-missing", "A matching Triton is not available")
    rule("flex/unfused", "flex-not-compiled", r"flex_attention called without torch\.compile\(\)")
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1\n'
    end = f"{traceback}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    triton = "WARNING: A matching Triton is not available\n"
    assert causes(explained(triton)) == ["triton-missing"]
    assert causes(explained(triton + end)) == []
    other = "botocore.exceptions.ClientError: An error occurred (403): Forbidden\n"
    assert causes(explained(triton + traceback + other)) == []
    flex = "UserWarning: flex_attention called without torch.compile() - this will be slow\n"
    assert causes(explained(flex + end)) == ["flex-not-compiled"]


def test_an_error_after_which_the_program_says_that_it_continues(
    rule: WriteRule, explained: Explain
) -> None:
    rule("comfyui/sage", "framework-backend-wiring", "Error running sage attention: ")
    rule("sage/shape", "head-dim-unsupported", "Unsupported head_dim")
    line = "ERROR: Error running sage attention: tensors differ, using pytorch attention instead.\n"
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1\n'
    assert causes(explained(line)) == ["framework-backend-wiring"]
    assert causes(explained(f"{line}{traceback}ValueError: no such sampler\n")) == []
    known = explained(f"{line}{traceback}ValueError: Unsupported head_dim: 160\n")
    assert causes(known) == ["head-dim-unsupported"]


def test_the_inner_error_of_a_build_is_its_root(rule: WriteRule, explained: Explain) -> None:
    rule(
        "flash/isolation",
        "build-isolation-no-torch",
        "(?s)Getting requirements.{0,5000}?No module named .torch",
    )
    rule("flash/build", "packaging-bug", "Failed building wheel for flash-attn")
    log = (
        "  error: subprocess-exited-with-error\n"
        "  × Getting requirements to build wheel did not run successfully.\n"
        "  ╰─> [20 lines of output]\n"
        "      Traceback (most recent call last):\n"
        '        File "<string>", line 20, in <module>\n'
        "      ModuleNotFoundError: No module named 'torch'\n"
        "      [end of output]\n"
        "  ERROR: Failed building wheel for flash-attn\n"
    )
    assert causes(explained(log))[0] == "build-isolation-no-torch"


def test_a_rule_stands_below_what_explains_it(rule: WriteRule, explained: Explain) -> None:
    rule(
        "flash/no-gpu-code", "extension-lacks-gpu-arch", "a very long and telling line about the extension itself",
        more='requires = ["driver/none"]',
    )  # fmt: skip
    rule("driver/none", "driver-too-old", "driver is old")
    log = "ERROR: a very long and telling line about the extension itself\nERROR: driver is old\n"
    found = explained(log)
    assert causes(found) == ["driver-too-old", "extension-lacks-gpu-arch"]
    assert found.matches[0].confidence > found.matches[1].confidence


def test_a_general_line_only_if_there_is_nothing_else(rule: WriteRule, explained: Explain) -> None:
    rule(
        "torch/no-kernel", "sdpa-no-available-kernel", r"No available kernel\. +Aborting execution"
    )
    rule(
        "torch/rocm", "rocm-unsupported", r"Triggered internally at [^\n]{0,200}/hip/sdp_utils\.cpp"
    )
    general = "RuntimeError: No available kernel. Aborting execution.\n"
    assert causes(explained(general)) == ["sdpa-no-available-kernel"]
    special = (
        "UserWarning: Torch was not compiled for it (Triggered internally at a/hip/sdp_utils.cpp:12)\n"
        "Still failed with override: No available kernel. Aborting execution.\n"
    )
    assert causes(explained(special))[0] == "rocm-unsupported"


def test_rules_with_one_cause_are_one_match(rule: WriteRule, explained: Explain) -> None:
    rule(
        "flash/symbol",
        "ext-torch-abi-mismatch",
        r"flash_attn_2_cuda[^\n]{0,200}undefined symbol: \S+",
    )
    rule("torch/symbol", "ext-torch-abi-mismatch", r"undefined symbol: _ZN3c10")
    found = explained(
        "ImportError: a/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
    )
    assert causes(found) == ["ext-torch-abi-mismatch"]
    assert found.matches[0].rule == "flash/symbol"
    assert found.matches[0].also == ("torch/symbol",)


NVCC = "flash_attn was requested, but nvcc was not found"


def test_the_log_tells_where_it_was_written(rule: WriteRule, explained: Explain) -> None:
    rule("toolkit/nvcc", "nvcc-missing", NVCC, more='platforms = ["linux", "windows"]')
    rule("toolkit/macos", "mps-unsupported", NVCC, more='platforms = ["macos"]')
    mac = explained(f"/private/var/folders/x/setup.py:106: UserWarning: {NVCC}\n")
    assert causes(mac)[0] == "mps-unsupported"
    assert mac.matches[1].verdict == "not confirmed: the log says that the system is macOS"
    linux = explained(f"/home/me/setup.py:106: UserWarning: {NVCC}\n")
    assert causes(linux)[0] == "nvcc-missing"


CPU = """
[when]
all = ['torch.build == "cpu"']
"""


def test_the_log_confirms_or_denies(rule: WriteRule, explained: Explain) -> None:
    rule("torch/cpu", "torch-cpu-only", "Torch not compiled with CUDA enabled", tail=CPU)
    line = "AssertionError: Torch not compiled with CUDA enabled\n"
    alone = explained(line).matches[0]
    confirmed = explained("PyTorch version: 2.6.0+cpu\n" + line).matches[0]
    denied = explained("PyTorch version: 2.6.0+cu124\n" + line).matches[0]
    assert alone.verdict == "not checked"
    assert confirmed.verdict == "confirmed by the log"
    assert denied.verdict == "not confirmed: the log says that torch is a CUDA build"
    assert confirmed.confidence > alone.confidence > denied.confidence


def test_a_log_cannot_tell_that_something_is_unknown(rule: WriteRule, explained: Explain) -> None:
    tail = "[applies]\nall = ['xformers.built_cuda is known']\n[when]\nall = ['env.CUDA_HOME == \"\"']\n"
    rule("x/y", "torch-cpu-only", "Torch not compiled with CUDA enabled", tail=tail)
    assert explained("Torch not compiled with CUDA enabled").matches[0].verdict == "not checked"


MACHINE = Facts(
    system=System(os="linux"),
    python=Python(path="/v/bin/python", version="3.12.3", pip="25.0"),
    torch=Torch(installed=True, version="2.6.0+cpu", build="cpu", index_for_driver="cu124"),
    driver=Driver(state="ok", vendor="nvidia"),
    gpus=(Gpu(index=0, name="NVIDIA T4", sm=75), Gpu(index=1, name="NVIDIA H100", sm=90)),
    xformers=Package(installed=False),
    gaps={"build": "the toolkit probe did not answer within 4 s"},
)
FIX = """
[[fix]]
title = "Install the CUDA build"
safety = "ask"
run = [["pip", "install", "torch", "--index-url", "https://x/{torch.index_for_driver}"]]
"""


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        ('torch.build == "cpu"', "confirmed by this machine"),
        ('torch.build == "rocm"', "not confirmed: torch is a CPU build"),
        (
            'build.version < "12.8"',
            "could not be checked: the toolkit probe did not answer within 4 s",
        ),
    ],
)
def test_this_machine(rule: WriteRule, explained: Explain, condition: str, verdict: str) -> None:
    rule(
        "torch/cpu",
        "torch-cpu-only",
        "Torch not compiled",
        tail=f"[when]\nall = ['{condition}']\n{FIX}",
    )
    found = explained("AssertionError: Torch not compiled with CUDA enabled", MACHINE)
    assert found.matches[0].verdict == verdict
    assert found.matches[0].fixes[0].run == (
        ("pip", "install", "torch", "--index-url", "https://x/cu124"),
    )


def test_this_machine_does_not_have_it(rule: WriteRule, explained: Explain) -> None:
    tail = "[applies]\nall = ['xformers.installed == true']\n[when]\nall = ['torch.build == \"cpu\"']\n"
    rule("xformers/x", "torch-cpu-only", "Torch not compiled", tail=tail)
    found = explained("Torch not compiled with CUDA enabled", MACHINE)
    assert found.matches[0].verdict == "not confirmed: xformers is not installed"


def test_one_gpu_of_several(rule: WriteRule, explained: Explain) -> None:
    tail = "[when]\nall = ['gpu.sm < 80']\n"
    more = 'for_each = "gpus"\nsubject = "{gpu.name}"'
    rule(
        "flash/old",
        "gpu-too-old-for-flash",
        AMPERE,
        more=more,
        tail=tail,
        title="{gpu.name} is too old",
    )
    match = explained(f"RuntimeError: {AMPERE}", MACHINE).matches[0]
    assert match.verdict == "confirmed by this machine"
    assert match.title == "NVIDIA T4 is too old"
    alone = explained(f"RuntimeError: {AMPERE}").matches[0]
    assert alone.title == "the GPU is too old"


def test_a_rule_without_conditions_says_that_only_a_log_shows_it(
    rule: WriteRule, explained: Explain
) -> None:
    rule("flash/head", "head-dim-unsupported", "Unsupported head_dim")
    found = explained("Unsupported head_dim: 160", MACHINE)
    assert found.matches[0].verdict == "only a log can show it"


def test_a_log_from_another_environment(rule: WriteRule, explained: Explain) -> None:
    rule("flash/head", "head-dim-unsupported", "Unsupported head_dim")
    found = explained("PyTorch version: 2.9.1+cu130\nUnsupported head_dim: 160\n", MACHINE)
    assert [(one.fact, one.value, one.this_machine) for one in found.differences] == [
        ("torch.version", "2.9.1+cu130", "2.6.0+cpu")
    ]
    same = explained("PyTorch version: 2.6.0\nUnsupported head_dim: 160\n", MACHINE)
    assert same.differences == ()


def test_fixes_without_a_machine(rule: WriteRule, explained: Explain) -> None:
    tail = """
[[fix]]
title = "Install triton for torch {torch.version}"
safety = "ask"
run = [["pip", "install", "xformers", "--index-url", "https://x/{torch.index_for_driver}"]]
[[fix]]
title = "On Linux"
safety = "ask"
run = [["pip", "install", "x"]]
when = ['system.os == "linux"']
[[fix]]
title = "On Windows"
safety = "ask"
run = [["pip", "install", "y"]]
when = ['system.os == "windows"']
"""
    rule("a/b", "triton-missing", "Cannot find it", tail=tail)
    second, first = explained("C:\\a\\site-packages\\b.dll\nCannot find it here\n").matches[0].fixes
    assert second.title == "Install triton for torch"
    assert second.run == ()
    assert second.manual == "(The log does not say what the command needs.)"
    assert first.title == "On Windows"
    assert first.run == (("pip", "install", "y"),)


def test_facts_in_a_symptom(rule: WriteRule, explained: Explain, tmp_path: object) -> None:
    tail = "[when]\nall = ['torch.version < \"2.5\"']\n"
    rule("a/b", "triton-missing", r"needs torch but has (?P<found>[\d.]+)", tail=tail)
    path = tmp_path / "rules" / "a" / "b.toml"  # type: ignore[operator]
    path.write_text(
        path.read_text().replace(
            "logs = ['x']", "logs = ['x']\nfacts = { found = 'torch.version' }"
        )
    )
    assert explained("it needs torch but has 2.4.1").matches[0].verdict == "confirmed by the log"
    assert explained("it needs torch but has 2.6").matches[0].verdict.startswith("not confirmed")


@pytest.mark.parametrize("place", [0.0, 0.3, 0.9, 1.0])
def test_a_long_log(rule: WriteRule, explained: Explain, place: float) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    rule("other/rule", "triton-missing", "Cannot find a working triton installation")
    lines = [f"shard {n} read {n / 7:.4f} s, tokens/s {n * 3 % 999}" for n in range(30_000)]
    at = int(place * len(lines))
    lines[at:at] = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        f"RuntimeError: {AMPERE}",
    ]
    found = explained("\n".join(lines))
    assert [(match.cause, match.line) for match in found.matches] == [
        ("gpu-too-old-for-flash", at + 3)
    ]
    assert found.logs[0].lines == 30_003
    assert (found.matches[0].confidence > 0.85) == (place == 1.0)


def test_a_long_log_full_of_one_warning(rule: WriteRule, explained: Explain) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    rule("torch/flash", "silent-sdpa-fallback", "Torch was not compiled with flash attention")
    warning = "UserWarning: 1Torch was not compiled with flash attention. (Triggered internally)"
    lines = [f"{n} {warning}" for n in range(20_000)]
    lines[11_111] = f"RuntimeError: {AMPERE}"
    found = explained("\n".join(lines))
    assert set(causes(found)) == {"gpu-too-old-for-flash", "silent-sdpa-fallback"}
    assert found.matches[0].line == 11_112


def test_a_long_log_of_a_single_line(rule: WriteRule, explained: Explain) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    parts = [f"{n} of 90000 steps done" for n in range(90_000)]
    parts[40_000] = f"RuntimeError: {AMPERE}"
    found = explained("\r".join(parts))
    assert [(match.cause, match.line) for match in found.matches] == [("gpu-too-old-for-flash", 1)]
    assert explained("x" * 3_000_000 + f" {AMPERE} " + "x" * 100_000).matches


def test_several_logs(rule: WriteRule, tmp_path: object) -> None:
    from attn_doctor.explain.engine import explain
    from attn_doctor.rulebook.rule_files import read_folder

    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    first, second = tmp_path / "1.log", tmp_path / "2.log"  # type: ignore[operator]
    first.write_text("nothing\n")
    second.write_text(f"RuntimeError: {AMPERE}\n")
    rules = read_folder(tmp_path / "rules")  # type: ignore[operator]
    found = explain([str(first), str(second), str(first)], rules)
    assert found.matches[0].file == str(second)
    assert [log.file for log in found.logs] == [str(first), str(second)]


def test_mending_lines_does_not_part_what_a_pattern_looks_at(
    rule: WriteRule, explained: Explain
) -> None:
    rule("x/old", "xformers-no-op-for-gpu", r"\(too old\)(?!\s+bf16 is only supported)")
    line = "requires device with capability > (8, 0) but your GPU has capability (7, 5) (too old)\n"
    assert explained(line + "bf16 is only supported on A100+ GPUs\n").matches == ()
    assert causes(explained(line)) == ["xformers-no-op-for-gpu"]


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=[pytest.mark.thorough] * (at % 3))
        for at, part in enumerate(
            [
                "x",
                "A",
                " ",
                "1",
                "1.2",
                "a.",
                "a-",
                "'",
                "\\",
                "%|",
                'File "',
                "torch-1.",
                "[0;1",
                "> ",
            ]
        )
    ],
)
def test_hostile_lines_cost_no_more_than_others(
    rule: WriteRule, explained: Explain, part: str
) -> None:
    rule("flash/gpu-too-old", "gpu-too-old-for-flash", AMPERE)
    with at_most(5):
        found = explained(f"{part * 40_000}\nRuntimeError: {AMPERE}\n{part * 40_000}")
    assert causes(found) == ["gpu-too-old-for-flash"]
