"""A failure that a run survived does not explain the later one that stopped it: a sample."""

from __future__ import annotations

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.rulebook import library

#: Each of so many logs of the rules is composed with an end.
_STEP = 24
PROGRESS = "".join(f"step {number}: loss=0.{40 - number}\n" for number in range(1, 21))
HEAD = 'Traceback (most recent call last):\n  File "/work/run.py", line 61, in main\n'
ENDS = {
    "memory": "    dec = self.decoder(z)\ntorch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2.25 GiB.\n",
    "import": "    import imageio_ffmpeg\nModuleNotFoundError: No module named 'imageio_ffmpeg'\n",
    "value": "    raise ValueError(name)\nValueError: unknown scheduler flowmatch2\n",
    "traced": "    out = model(x)\ntorch._dynamo.exc.TorchRuntimeError: Dynamo failed "
    "to run FX node with fake tensors: got RuntimeError('a and b must have same reduction dim')\n\n"
    'from user code:\n   File "/work/model.py", line 9, in forward\n    return self.fc(x)\n',
}


def logs() -> list[str]:
    return [
        one.logs[0]
        for rule in library.load()
        for one in rule.symptoms
        # A defect that stays is named all the same; only a pair of ranks is of two processes.
        if one.logs
        and not any(map(log_signals().standing.search, one.logs))
        and "[rank" not in one.logs[0]
    ][::_STEP]


@pytest.mark.parametrize("end", ENDS)
def test_a_survived_failure_is_not_the_cause_of_the_end(end: str) -> None:
    wrong, composed = [], [log.rstrip("\n") + "\n" + PROGRESS for log in logs()]
    for log in composed:
        found = explain([], library.load(), texts=[log + HEAD + ENDS[end]])
        wrong += [
            f"{one.rule}, line {one.line}: {log[:100]}"
            for one in found.matches[:1]
            if one.line <= log.count("\n")
        ]
    assert len(composed) >= 30
    assert len(wrong) <= len(composed) // 20, "\n".join(wrong)


#: Lines of a start script or of a library, outside a failure.
NOTICES = (
    "start.sh: 12: nvcc: not found\n",
    "'nvcc' is not recognized as an internal or external command,\n",
    "A matching Triton is not available, some optimizations will not be enabled\n",
    "[DEBUG    | DotProductAttention]: Selected backend = NoBackend\n",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
)


@pytest.mark.parametrize("notice", NOTICES)
def test_a_notice_is_not_the_cause_of_an_error_of_the_program(notice: str) -> None:
    found = explain([], library.load(), texts=[notice + HEAD + ENDS["value"]])
    assert found.matches == ()
    assert found.note is not None
    assert found.note.line == 1


def test_a_notice_may_be_the_cause_of_a_failed_build() -> None:
    built = "    build()\nRuntimeError: Error building extension 'fused'\n"
    found = explain([], library.load(), texts=[NOTICES[0] + HEAD + built])
    assert [one.rule for one in found.matches] == ["toolkit/nvcc-missing"]


WARNED = (
    "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current "
    "dype in LlamaForCausalLM is torch.float32.\n"
)


def test_a_failure_is_named_before_a_warning_above_it() -> None:
    log = WARNED + HEAD + "    import xformers\nModuleNotFoundError: No module named 'xformers'\n"
    found = explain([], library.load(), texts=[log])
    assert found.matches[0].rule == "xformers/package-not-found"
