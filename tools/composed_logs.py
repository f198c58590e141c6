"""Puts the logs of all rules in contexts, and counts the rules that `explain` then names wrongly.

A rule knows a failure by its message, which other logs have as well: of a run that went on and
ended in another failure, of a build of another package, or in a text that quotes it. Each kind of
context has a reason why the answer is wrong there, or why it stays right.

    python tools/composed_logs.py [--kind NAME] [--show NUMBER] [--every NUMBER] [RULE …]

For each kind, the rules and logs with a wrong first answer are counted. `--show` prints so many of
the logs. Only logs are used that the rule explains when they stand alone.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from attn_doctor.explain.engine import explain
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.tracebacks import LineKind, TraceLog
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule


class Case(NamedTuple):
    """A log of a rule that is explained by this rule when it stands alone."""

    rule: Rule
    log: str
    traced: str
    """The log; an exception without frames with a traceback of a program, if the rule allows it."""

    @property
    def message(self) -> str:
        """The line that says most: the last exception, or the last line."""
        trace = TraceLog(NormalizedLog(1, self.log.encode()).lines)
        raised = [
            line.text
            for line, at in zip(trace.lines, trace.positions, strict=True)
            if at.kind is LineKind.EXCEPTION
        ]
        return (raised or self.log.strip().splitlines())[-1].strip()

    @property
    def raised(self) -> bool:
        """It has an exception."""
        return _RAISED.search(self.log) is not None

    @property
    def built(self) -> bool:
        """It is of an installation or a build."""
        return _BUILDS.search(self.log) is not None


class Composed(NamedTuple):
    """A log, and the lines in it that an answer must not be about."""

    log: str
    first: int
    last: int
    named: str = ""
    """The rule that is the right answer; empty for any."""
    own: bool = True
    """No other rule, and no guess, is right about these lines either."""


class Kind(NamedTuple):
    """A context, and what it means for the answer."""

    reason: str
    compose: Callable[[Case], Composed | None]
    right: bool = False
    """The rule stays the first answer."""


class Wrong(NamedTuple):
    """A composed log with a wrong first answer."""

    case: Case
    log: str
    answer: str
    line: int


_RAISED = re.compile(r"(?m)^(?:E +)?(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Unsupported)\b")
_FRAME = 'File "'
_BUILDS = re.compile(
    r"(?i)building wheel|setup\.py|build_ext|\bninja\b|nvcc|pip install|error: subprocess"
    r"|No matching distribution|Failed to build|Could not find a version|metadata"
)
_HEAD = (
    'Traceback (most recent call last):\n  File "/app/run.py", line 61, in main\n    run(args)\n'
    '  File "/app/run.py", line 38, in run\n'
)
_ENDS = {
    "memory": f"{_HEAD}    dec = self.decoder(z)\ntorch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2.25 GiB.\n",
    "import": f"{_HEAD}    import gradio as gr\nModuleNotFoundError: No module named 'gradio'\n",
    "file": f"{_HEAD}    state = torch.load(path)\nFileNotFoundError: [Errno 2] No such file or "
    "directory: 'checkpoints/last.ckpt'\n",
    "interrupt": f"{_HEAD}    time.sleep(1)\nKeyboardInterrupt\n",
    "value": f"{_HEAD}    raise ValueError(name)\nValueError: unknown scheduler flowmatch2\n",
    "key": f"{_HEAD}    y = batch['labels']\nKeyError: 'labels'\n",
    "killed": "Killed\n",
    "attention": f"{_HEAD}    x = attention(q, k, v, mode)\nValueError: attention mode 'radial' is "
    "not known\n",
    "nothing": "the model is ready\n",
}
#: Failures that rules know, each with its rule; none of them follows from another one.
_KNOWN = {
    "flex/head-dim-power-of-two": f"{_HEAD}    out = flex_attention(q, k, v)\nValueError: NYI: "
    "Currently non power of 2 embedding dimension are not supported. Got E=72 and Ev=72.\n",
    "sage/package-not-found": f"{_HEAD}    from sageattention import sageattn\n"
    "ModuleNotFoundError: No module named 'sageattention'\n",
    "torch/multi-head-mask": f"{_HEAD}    x = F.scaled_dot_product_attention(q, k, v, attn_mask=m)"
    "\nRuntimeError: attn_mask's dimension 4 is not supported\n",
}
_PROGRESS = "".join(f"step {number}: loss=0.{40 - number}\n" for number in range(1, 21))
_INFORMED = (
    "2026-01-02 10:00:02,321 INFO loader.py:88 loading weights\n"
    "2026-01-02 10:00:05,321 INFO loader.py:97 loading the tokenizer\n"
    "2026-01-02 10:00:09,001 INFO model.py:33 model has 8030261248 parameters\n"
)
_LISTED = "".join(
    f"{name:<20} {version}\n"
    for name, version in (
        ("Package", "Version"),
        ("accelerate", "1.10.1"),
        ("certifi", "2025.8.3"),
        ("diffusers", "0.35.1"),
        ("flash_attn", "2.8.3"),
        ("numpy", "2.2.6"),
        ("sageattention", "2.2.0"),
        ("torch", "2.8.0"),
        ("transformers", "4.56.1"),
        ("triton", "3.4.0"),
        ("xformers", "0.0.32.post1"),
    )
)
#: Packages that fail in their own frames, with the file and the function of the innermost one.
_OTHERS = (
    ("onnxruntime", "capi/onnxruntime_inference_collection.py", "sess = C.InferenceSession(path)"),
    ("bitsandbytes", "functional.py", "lib.cquantize_blockwise_fp16_nf4(*args)"),
    ("jax", "_src/compiler.py", "return backend.compile(built_c, compile_options=options)"),
    ("cupy", "_core/raw.py", "return self._kernel(*args)"),
    ("llama_cpp", "llama.py", "self._ctx.decode(self._batch)"),
    ("paddle", "nn/functional/flash_attention.py", "return _C_ops.flash_attn(query, key, value)"),
    ("ctranslate2", "extensions.py", "self.model.generate(batch)"),
)
#: Areas of rules about one package, and its names.
_AREAS = {
    "flash": r"flash[-_ ]?attn|flash[-_ ]?attention|fmha|\bflash\b|\bFA[234]?\b",
    "sage": r"sage|qattn|spas",
    "xformers": r"xformers|fmha|memory_efficient|cutlass[FB]",
    "natten": r"natten|\bna[123]d\b|neighborhood",
    "fla": r"\bfla\b|flash[-_ ]linear",
    "flashinfer": r"flashinfer",
    "flex": r"flex|block_mask|BlockMask|score_mod|mask_mod|inductor",
}
#: Names of a package, and what another one with the same words is called.
_RENAMED = (
    (r"flash[-_]attn(?!_?(?:3|4|func|varlen|interface))", "block_sparse_attn"),
    (r"sageattention(?!3)", "sageattn3"),
    (r"(?<!site-packages/)xformers", "my_ext"),
)
#: How people say that a failure does not occur any more.
_CURED_TEXTS = (
    "I fixed the error `{}` by reinstalling, now I get this instead:",
    "The earlier error ({}) is gone after the update, this is left:",
    "Yesterday I had `{}`, which I solved by another torch. Today:",
    "I no longer get `{}`. What I get now:",
    "That solved the problem with `{}` for me. The log now:",
)
_WINDOWS = (
    "OS: Microsoft Windows 11 Pro (10.0.26100 64-bit)\nPython platform: Windows-11-10.0.26100-SP0\n"
)
_LINUX = (
    "OS: Ubuntu 24.04.3 LTS (x86_64)\nPython platform: "
    "Linux-6.8.0-60-generic-x86_64-with-glibc2.39\n"
)
_MACOS = "OS: macOS 15.5 (arm64)\nPython platform: macOS-15.5-arm64-arm-64bit\n"


def _after(case: Case, between: str, end: str) -> Composed:
    log = case.traced.rstrip("\n") + "\n"
    return Composed(log + between + end, 1, log.count("\n"))


def _ended(between: str, end: str) -> Callable[[Case], Composed | None]:
    """The failure, lines of a run that goes on, and another end."""

    def compose(case: Case) -> Composed | None:
        if _is_standing(case) or _follows(case, end):
            return None
        return _after(case, between, _ENDS[end])

    return compose


def _is_standing(case: Case) -> bool:
    """A defect that stays, and is named whatever ends the log, or the log of two processes."""
    return log_signals().standing.search(case.log) is not None or "[rank" in case.log


def _follows(case: Case, end: str) -> bool:
    """The end of this name can be a consequence."""
    text = case.log.lower()
    if end in ("memory", "killed"):
        return "memory" in text or case.rule.cause in log_signals().memory_causes
    return end == "interrupt" and case.built


def _then_known(case: Case) -> Composed | None:
    """The failure that was survived, then one that another rule knows."""
    if not case.raised or _is_standing(case):
        return None
    area = case.rule.id.partition("/")[0]
    known = [id for id in _KNOWN if id.partition("/")[0] != area]
    name = known[len(case.log) % len(known)]
    return _after(case, _INFORMED + _PROGRESS, _KNOWN[name])._replace(named=name)


def _ends_well(case: Case) -> Composed | None:
    """The exception was printed, and the run ended as it should."""
    if not case.raised or case.rule.severity != "error" or case.built or _is_standing(case):
        return None
    well = "Saved outputs/video.mp4\nPrompt executed in 41.20 seconds\nProcess exited with code 0\n"
    return _after(case, _PROGRESS, well)


def _installed_after(case: Case) -> Composed | None:
    """A build failed, another attempt succeeded, and the log ends."""
    if not case.built or case.rule.severity != "error" or _is_standing(case):
        return None
    area = case.rule.id.partition("/")[0]
    package = {"flash": "flash-attn", "sage": "sageattention", "xformers": "xformers"}.get(area)
    if package is None:
        return None
    end = (
        f"$ pip install {package} --no-build-isolation\nCollecting {package}\n"
        f"Installing collected packages: {package}\nSuccessfully installed {package}-2.2.0\n"
    )
    return _after(case, "", end)


def _next_run(case: Case) -> Composed | None:
    """The user repaired something, ran the program again, and it failed in another way."""
    if _is_standing(case):
        return None
    log = "$ python run.py\n" + case.traced.rstrip("\n") + "\n"
    end = "gradio" if "keyerror" in case.log.lower() else "key"
    again = "$ pip install -r requirements.txt\nSuccessfully installed accelerate-1.10.1\n"
    again += "$ python run.py\nloading the model\n"
    return Composed(log + again + _ENDS.get(end, _ENDS["import"]), 1, log.count("\n"))


def _cured(end: str) -> Callable[[Case], Composed | None]:
    """A user says what was repaired, and what comes now."""

    def compose(case: Case) -> Composed | None:
        text = _CURED_TEXTS[len(case.log) % len(_CURED_TEXTS)].format(case.message)
        return Composed(f"{text}\n\n{_ENDS[end]}", 1, 1)

    return compose


def _searched(end: str) -> Callable[[Case], Composed | None]:
    """A search of the sources for the message, then something else."""

    def compose(case: Case) -> Composed | None:
        said = _text(case)
        if '"' in said or case.built:
            return None
        log = f'$ grep -rn "{said[:40]}" src/\nsrc/checks.py:41:        "{said}"\n$ python run.py\n'
        return Composed(log + _ENDS[end], 1, 2)

    return compose


def _text(case: Case) -> str:
    """The message without the name of its exception."""
    return re.sub(r"^(?:E +)?[\w.]*(?:Error|Exception|Unsupported): ", "", case.message)


def _shown(case: Case) -> Composed | None:
    """IPython shows the code around the line that failed, which raises the message elsewhere."""
    said = _text(case)
    if not case.raised or '"' in said or len(said) < 20:
        return None
    log = (
        "KeyError                                  Traceback (most recent call last)\n"
        "File /app/checks.py:12, in check(batch)\n"
        f"     10 def check(batch):\n     11     if batch is None:\n"
        f'     12         raise RuntimeError("{said}")\n---> 13     return batch["labels"]\n\n'
        "KeyError: 'labels'\n"
    )
    return Composed(log, 1, log.count("\n"))


def _committed(end: str) -> Callable[[Case], Composed | None]:
    """A list of changes names the message, then something else."""

    def compose(case: Case) -> Composed | None:
        log = (
            f"$ git log --oneline -3\n3f2a1bc7 Fix {_text(case)}\n81d0e22c Update the readme\n"
            "$ python run.py\n"
        )
        return Composed(log + _ENDS[end], 1, 4)

    return compose


def _tested(case: Case) -> Composed | None:
    """A test expects the message, and fails for another reason."""
    said = re.sub(r"[\"\\]", ".", _text(case))
    log = (
        "    def test_refuses(batch):\n"
        f'        with pytest.raises(RuntimeError, match="{said}"):\n'
        ">           check(batch[\"labels\"])\nE           KeyError: 'labels'\n\n"
        "tests/test_checks.py:14: KeyError\n"
        "FAILED tests/test_checks.py::test_refuses - KeyError: 'labels'\n"
    )
    return Composed(log, 1, log.count("\n"))


def _debugged(end: str) -> Callable[[Case], Composed | None]:
    """A library probes for an optional part and says so at the lowest level, then another end."""

    def compose(case: Case) -> Composed | None:
        if _is_standing(case):
            return None
        log = f"2026-01-02 10:00:01,100 DEBUG probe.py:12 not available: {case.message}\n"
        return Composed(log + _INFORMED + _ENDS[end], 1, 1)

    return compose


def _warned(case: Case) -> Composed | None:
    """A program warns with the message and goes on; it ends in something else."""
    if not case.raised or _is_standing(case) or case.built:
        return None
    log = f"2026-01-02 10:00:01,100 WARNING attention.py:12 {case.message}, using SDPA\n"
    return Composed(log + _INFORMED + _ENDS["value"], 1, 1)


def _warned_well(case: Case) -> Composed | None:
    """The same, and the run ends well."""
    made = _warned(case)
    if made is None or case.rule.severity != "error":
        return None
    log = made.log.removesuffix(_ENDS["value"]) + _PROGRESS + "Training completed\n"
    return made._replace(log=log)


def _shown_before(case: Case) -> Composed | None:
    """A user shows the earlier failure with its traceback, and says that it is gone."""
    if _is_standing(case) or not case.raised:
        return None
    log = f"I used to get this:\n\n```\n{case.traced}\n```\n\nAfter reinstalling it is gone. "
    log += "Now I get:\n\n```\n"
    return Composed(f"{log}{_ENDS['attention']}```\n", 1, log.count("\n"))


def _bars(case: Case) -> Composed | None:
    """Bars of steps stand between the failure and the end."""
    if not case.raised or _is_standing(case):
        return None
    bars = "".join(
        f"  {n * 5}%|{'#' * (n // 2):<10}| {n}/20 [00:{n:02d}<00:{20 - n:02d},  1.01s/it]\r"
        for n in range(1, 21)
    )
    return _after(case, f"{bars}\n", _ENDS["import"])


def _epochs(case: Case) -> Composed | None:
    """Lines of epochs stand between the failure and the end."""
    if not case.raised or _is_standing(case):
        return None
    epochs = "".join(f"Epoch {n}/12 - train loss {1 / n:.4f} - 41.2s\n" for n in range(1, 13))
    return _after(case, epochs, _ENDS["attention"])


def _served(case: Case) -> Composed | None:
    """A server answers requests after the failure, and ends in another one."""
    if not case.raised or _is_standing(case):
        return None
    line = 'INFO:     127.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    return _after(case, "".join(line.format(50000 + n) for n in range(12)), _ENDS["import"])


def _next_step(case: Case) -> Composed | None:
    """A step of CI may fail and did, and the last step failed in another way."""
    if _is_standing(case):
        return None
    log = f"##[group]Run python probe.py\n{case.traced}\n"
    log += "##[error]Process completed with exit code 1.\n"
    end = f"##[group]Run python run.py\n{_ENDS['attention']}"
    end += "##[error]Process completed with exit code 1.\n"
    stamped = "".join(f"2026-01-02T10:00:00.1234567Z {line}\n" for line in (log + end).splitlines())
    return Composed(stamped, 1, log.count("\n"))


def _skipped(case: Case) -> Composed | None:
    """Tests were left out for this reason, and the others passed."""
    log = (
        "================ test session starts ================\n"
        "collected 41 items\n\ntests/test_attention.py ....s....s\n\n"
        "================ short test summary info ================\n"
        f"SKIPPED [2] tests/test_attention.py:31: {_text(case)}\n"
        "================ 39 passed, 2 skipped in 12.20s ================\n"
    )
    return Composed(log, 1, log.count("\n"))


def _skipped_test(case: Case) -> Composed | None:
    """The same as unittest prints it."""
    said = _text(case).replace("'", '"')
    log = f"test_forward (tests.test_attention.TestForward) ... skipped '{said}'\n"
    log += "\n----------------------\nRan 41 tests in 12.203s\n\nOK (skipped=1)\n"
    return Composed(log, 1, 1)


def _in_summary(case: Case) -> Composed | None:
    """Tests passed, and warned."""
    if case.rule.severity != "error":
        return None
    log = (
        "tests/test_attention.py ..........\n\n"
        "================ warnings summary ================\n"
        "tests/test_attention.py::test_forward\n"
        f"  /app/attention.py:31: UserWarning: {_text(case)}\n    warnings.warn(message)\n\n"
        "-- Docs: https://docs.pytest.org/en/stable/how-to/capture-warnings.html\n"
        "================ 10 passed, 1 warning in 12.20s ================\n"
    )
    return Composed(log, 1, log.count("\n"))


def _commented(case: Case) -> Composed | None:
    """A file of the program is shown, with a comment about the message."""
    log = f"$ cat attention.py\nimport torch\n\n# avoids: {case.message}\ndef attention(q, k, v):\n"
    log += "    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    return Composed(f"{log}$ python run.py\n{_ENDS['attention']}", 1, 7)


def _well_in_next_run(case: Case) -> Composed | None:
    """The user repaired it, and the program ran well."""
    if _is_standing(case) or case.rule.severity != "error":
        return None
    log = "$ python run.py\n" + case.traced.rstrip("\n") + "\n"
    again = "$ pip install -r requirements.txt\nSuccessfully installed accelerate-1.10.1\n"
    again += "$ python run.py\nloading the model\nstep 1/2 loss 0.4\nstep 2/2 loss 0.3\n"
    return Composed(f"{log}{again}Saved outputs/video.mp4\n", 1, log.count("\n"))


def _in_other(case: Case) -> Composed | None:
    """The message of another package, in its own frames."""
    area = case.rule.id.partition("/")[0]
    names = _AREAS.get(area)
    if names is None or not case.raised or re.search(f"(?i){names}", case.log):
        return None
    if not _names_it(case):
        return None
    package, file, code = _OTHERS[len(case.log) % len(_OTHERS)]
    path = f"/venv/lib/python3.11/site-packages/{package}/{file}"
    log = f'{_HEAD}    run(x)\n  File "{path}", line 91, in run\n    {code}\n{case.message}\n'
    return Composed(log, 1, log.count("\n"), own=False)


def _names_it(case: Case) -> bool:
    """The title of the rule names its package alone: of another one it is not true."""
    names, title = _AREAS[case.rule.id.partition("/")[0]], case.rule.title
    return re.search(names, title) is not None and not re.search(r"\b(?:or|such as)\b", title)


def _beside_other(case: Case) -> Composed | None:
    """The same, where a line long before names the rule's package."""
    made = _in_other(case)
    if made is None:
        return None
    area = case.rule.id.partition("/")[0]
    said = {"flash": "flash_attn 2.8.3", "sage": "sageattention 2.2.0"}.get(area, area)
    log = f"INFO: using {said}\n{_INFORMED}{made.log}"
    return Composed(log, 1, log.count("\n"), own=False)


def _other_build(case: Case) -> Composed | None:
    """The package of the rule was built well, and then another one failed in these words."""
    area = case.rule.id.partition("/")[0]
    names = {
        "flash": r"flash[-_]attn(?:ention)?|flash-attention",
        "sage": r"sageattention|SageAttention",
        "xformers": r"xformers",
        "natten": r"natten|NATTEN",
    }.get(area)
    if names is None or not case.built or not _names_it(case):
        return None
    package = {"flash": "flash-attn", "sage": "sageattention"}.get(area, area)
    failed = re.sub(names, "torch-scatter", case.log.strip("\n"))
    if re.search(f"(?i){_AREAS[area]}", failed):
        return None
    log = (
        f"Collecting {package}\nCollecting torch-scatter\n"
        f"Building wheel for {package} (setup.py): finished with status 'done'\n"
        f"Successfully built {package}\n"
        "Building wheel for torch-scatter (setup.py): started\n"
        f"{failed}\nERROR: Failed building wheel for torch-scatter\nFailed to build torch-scatter\n"
    )
    return Composed(log, 1, log.count("\n"), own=False)


def _renamed(case: Case) -> Composed | None:
    """Another package with the same words."""
    area = case.rule.id.partition("/")[0]
    if area not in ("flash", "sage", "xformers") or not _names_it(case):
        return None
    names, other = _RENAMED[("flash", "sage", "xformers").index(area)]
    log = re.sub(names, other, case.log)
    rest = log.replace(other, "")
    if log == case.log or re.search(f"(?i){_AREAS[area]}", rest):
        return None
    return Composed(log, 1, log.count("\n") + 1, own=False)


def _other_system(case: Case) -> Composed | None:
    """The log is of a system that the rule is not for."""
    rule, text = case.rule, case.log
    if not rule.platforms or re.search(r"\\|/[a-z]+/|WinError|\.(?:dll|pyd|so)\b", text):
        return None
    heads = {"windows": _WINDOWS, "linux": _LINUX, "macos": _MACOS}
    fixes = {
        str(line.value)
        for lines in rule.fix_when
        for line in lines
        if (line.fact, line.op) == ("system.os", "==")
    }
    for os, head in heads.items():
        if os not in rule.platforms and os not in fixes and "wsl" not in rule.platforms:
            log = head + case.traced
            return Composed(log, 1, log.count("\n") + 1, own=False)
    return None


def _survived_before(case: Case) -> Composed | None:
    """Another failure was survived, and this one ends the run."""
    log = _ENDS["memory"] + "retrying with a smaller batch\n" + _INFORMED + _PROGRESS + case.traced
    return Composed(log, 1, 1)


def _listed_before(case: Case) -> Composed | None:
    return Composed(f"$ pip list\n{_LISTED}$ python run.py\n{case.traced}", 1, 1)


def _listed_after(case: Case) -> Composed | None:
    return Composed(f"{case.traced}\n\n$ pip list\n{_LISTED}", 1, 1)


def _in_docker(case: Case) -> Composed | None:
    if not case.built:
        return None
    lines = "".join(f"#12 {n + 1}.204 {line}\n" for n, line in enumerate(case.log.split("\n")))
    return Composed(f"#12 [7/9] RUN pip install -r requirements.txt\n{lines}", 1, 1)


def _in_ci(case: Case) -> Composed | None:
    lines = (
        f"##[group]Run python run.py\n{case.traced}\n##[error]Process completed with exit code 1."
    )
    stamp = "2026-01-02T10:00:00.1234567Z "
    return Composed("".join(f"{stamp}{line}\n" for line in lines.split("\n")), 1, 1)


def _after_noise(case: Case) -> Composed | None:
    """Harmless warnings of other packages stand before it."""
    noise = (
        "/venv/lib/python3.11/site-packages/timm/models/layers/__init__.py:48: FutureWarning: "
        "Importing from timm.models.layers is deprecated\n"
        "WARNING:root:Triton is not available, some optimizations are off\n"
        "tokenizers: The current process just got forked, after parallelism has already been used\n"
    )
    return Composed(noise + _INFORMED + case.traced, 1, 1)


def _on_exit(case: Case) -> Composed | None:
    """What a program prints at its end does not hide the failure."""
    end = (
        "Exception ignored in: <function Pool.__del__ at 0x7f3a>\n"
        "[W102 10:00:12.000000 ProcessGroup.cpp:1250] Warning: destroy_process_group() was not "
        "called before program exit\n"
    )
    return Composed(f"{case.traced}\n{end}", 1, 1)


#: All kinds by their names.
KINDS: dict[str, Kind] = {
    **{
        f"survived, then {end}": Kind(
            "the run went on for twenty steps and ended in another failure",
            _ended(_PROGRESS, end),
        )
        for end in ("memory", "import", "file", "interrupt", "value", "killed")
    },
    **{
        f"logged past, then {end}": Kind(
            "the program logged three more lines and ended in another failure",
            _ended(_INFORMED, end),
        )
        for end in ("memory", "import", "key", "attention")
    },
    "survived, then known": Kind("a failure that another rule knows ended the run", _then_known),
    "ends well": Kind("the exception was printed, and the run ended well", _ends_well),
    "installed later": Kind("another attempt of the installation succeeded", _installed_after),
    "next run": Kind("the last run of the program failed in another way", _next_run),
    "code around": Kind("the line is code beside the one that failed", _shown),
    **{
        f"{name}, {end}": Kind(reason, compose(end))
        for end in ("key", "attention", "nothing")
        for name, reason, compose in (
            ("said to be gone", "the user says that the message is gone", _cured),
            ("found by grep", "the line is a source that a search found", _searched),
            ("commit", "the line is the subject of a change", _committed),
            ("debug line", "a probe for an optional part says it at the lowest level", _debugged),
        )
    },
    "expected by a test": Kind("a test expects the message and fails in another way", _tested),
    "warning": Kind("the program warns, uses something else, and ends otherwise", _warned),
    "warning, ends well": Kind("the same, and nothing fails", _warned_well),
    "shown as gone": Kind("the user shows what does not occur any more", _shown_before),
    "bars, then import": Kind("bars show that the run went on", _bars),
    "epochs, then attention": Kind("epochs show that the run went on", _epochs),
    "requests, then import": Kind("a server went on to answer", _served),
    "next step of CI": Kind("a later step failed in another way", _next_step),
    "next run, well": Kind("the program ran well after a repair", _well_in_next_run),
    "skipped by pytest": Kind("a test was left out, and nothing failed", _skipped),
    "skipped by unittest": Kind("a test was left out, and nothing failed", _skipped_test),
    "summary of warnings": Kind("tests passed, and warned", _in_summary),
    "comment": Kind("a listing has a comment about the message", _commented),
    "other frames": Kind("another package raises it in its own frames", _in_other),
    "other frames, named": Kind(
        "another package raises it, and an earlier line names the rule's package", _beside_other
    ),
    "other build": Kind("the build of another package failed in these words", _other_build),
    "other name": Kind("a package with another name says the same", _renamed),
    "other system": Kind("the log is of a system that the rule is not for", _other_system),
    "after a survived one": Kind("the failure ends the run", _survived_before, right=True),
    "pip list before": Kind("a list of packages shows no failure", _listed_before, right=True),
    "pip list after": Kind("a list of packages shows no failure", _listed_after, right=True),
    "docker build": Kind("the prefix of a step is not of the message", _in_docker, right=True),
    "CI": Kind("times and groups are not of the message", _in_ci, right=True),
    "after warnings": Kind("other packages only warn", _after_noise, right=True),
    "before an exit": Kind("lines at the end of a run do not stop it", _on_exit, right=True),
}


def cases(rules: Sequence[Rule], chosen: Iterable[Rule], each: int = 1) -> Iterator[Case]:
    """The first `each` logs of each symptom that its rule explains when they stand alone."""
    for rule in chosen:
        for symptom in rule.symptoms:
            for log in symptom.logs[:each]:
                if _answer(log, rules)[0] == rule.id:
                    traced = _traced(log)
                    kept = _answer(traced, rules)[0] == rule.id
                    yield Case(rule, log, traced if kept else log.strip("\n"))


def _traced(log: str) -> str:
    """The log; an exception without frames with a traceback of a program."""
    log = log.strip("\n")
    if not _RAISED.search(log) or "\n" in log or _FRAME in log:
        return log
    return f"{_HEAD}    out = self.model(x)\n{log}"


def _answer(log: str, rules: Sequence[Rule]) -> tuple[str, int]:
    """The rule that is named first, or `guess` and the component, and the line."""
    found = explain([], rules, texts=[log])
    if found.matches:
        return found.matches[0].rule, found.matches[0].line
    guess = found.guess
    return (f"guess {guess.component}", guess.line) if guess is not None else ("", 0)


def check(kind: Kind, case: Case, rules: Sequence[Rule]) -> Wrong | bool | None:
    """The composed log if its first answer is wrong; False if the kind has none for this case."""
    made = kind.compose(case)
    if made is None:
        return False
    rule, line = _answer(made.log, rules)
    if kind.right:
        wrong = rule != case.rule.id
    else:
        answered = bool(rule) if made.own else rule == case.rule.id
        wrong = answered and made.first <= line <= made.last
        wrong = wrong or (bool(made.named) and rule != made.named)
    return Wrong(case, made.log, rule, line) if wrong else None


def main(arguments: Sequence[str]) -> int:
    """Print a table of the kinds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("rules", nargs="*", help="ids of rules; all if none is given")
    parser.add_argument("--kind", action="append", help="only kinds whose names contain this")
    parser.add_argument("--show", type=int, default=0, help="print so many wrong logs of each kind")
    parser.add_argument("--every", type=int, default=1, help="take every so many logs")
    parser.add_argument("--each", type=int, default=1, help="take so many logs of each symptom")
    chosen = parser.parse_args(arguments)
    rules = library.load()
    of = [rule for rule in rules if not chosen.rules or rule.id in chosen.rules]
    found = list(cases(rules, of, chosen.each))[:: chosen.every]
    write = sys.stdout.write
    write(f"{'kind':<28}{'rules':>7}{'wrong':>7}{'logs':>7}{'wrong':>7}\n")
    for name, kind in KINDS.items():
        if chosen.kind and not any(part in name for part in chosen.kind):
            continue
        results = [
            (case, result) for case in found if (result := check(kind, case, rules)) is not False
        ]
        wrong = [one for _, one in results if isinstance(one, Wrong)]
        of_rules = {case.rule.id for case, _ in results}
        in_rules = {one.case.rule.id for one in wrong}
        write(f"{name:<28}{len(of_rules):>7}{len(in_rules):>7}{len(results):>7}{len(wrong):>7}\n")
        shown = random.Random(1).sample(wrong, min(chosen.show, len(wrong)))  # noqa: S311
        for one in shown:
            write(f"--- {one.case.rule.id} => {one.answer}:{one.line}\n{one.log}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
