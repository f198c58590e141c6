"""What the condition of a message wants, in words."""

import pytest

from attn_doctor.explain.wanted import check_of, wanted_in_words


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("not (head_size % 8 == 0)", "head_size is a multiple of 8"),
        ("q.shape[2] % k.shape[2] != 0", "q.shape[2] is a multiple of k.shape[2]"),
        ("not (q.dim() == 4)", "q has 4 dimensions"),
        ("x.ndim != 3", "x has 3 dimensions"),
        ("not (out->stride(-1) == 1)", "the last dimension of out is contiguous"),
        ("not (!bias.is_sparse())", "bias is not sparse"),
        ("!query.is_cuda()", "query is on a CUDA device"),
        (
            "not (alibi_slopes.dtype() == torch::kFloat32)",
            "the type of alibi_slopes is Float32",
        ),
        ("cnt.device != idx.device", "cnt is on the device of idx"),
        ("seq_lens is None", "seq_lens is given"),
        ("not (!alibi_slopes_.has_value())", "alibi_slopes_ is not given"),
        ("not (head_size <= 256)", "head_size is at most 256"),
        ("topk > 1", "topk is at most 1"),
        ("device.type != 'npu'", "device.type is 'npu'"),
        ("not (self.topk in [0, 1])", "self.topk is one of 0, 1"),
        ("mode not in ('a', 'b')", "mode is one of 'a', 'b'"),
        ("not (len(inputs) > 0)", "len(inputs) is above 0"),
        # Both have to hold, or one of them; neither may hold, or not both.
        ("not (q_len > 0 and k_len > 0)", "q_len is above 0 and k_len is above 0"),
        ("not (d == 64 || d == 128)", "d is 64 or d is 128"),
        ("a is None or b is None", "a is given and b is given"),
        ("not (not use_cascade_attn)", "use_cascade_attn is not set"),
        ("not sinks", "sinks is set"),
        ("causal and not_words(x)", ""),
        ("b % 64 != 0 and b % 32 != 0", "b is a multiple of 64 or b is a multiple of 32"),
        # Without words: a call, a chain of comparisons, nothing, and too many of them.
        ("not is_available()", ""),
        ("not (status == cudaSuccess)", ""),
        ("not (-2 ** 31 <= value < 2 ** 31)", ""),
        ("", ""),
        ("not (a == 1 and b == 1 and c == 1 and d == 1)", ""),
        ("not (a == 1) and (b == 2)", ""),
    ],
)
def test_words(condition: str, words: str) -> None:
    assert wanted_in_words(condition) == words


def test_the_code_and_whether_it_has_to_hold() -> None:
    assert check_of("not (a == 1)") == ("a == 1", True)
    assert check_of("not (a) or (b)") == ("not (a) or (b)", False)
    assert check_of("not (not use_cascade)") == ("use_cascade", False)
    assert check_of("not is_available()") == ("is_available()", True)
    assert check_of("a != 1") == ("a != 1", False)
