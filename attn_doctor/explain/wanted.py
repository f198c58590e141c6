"""What a check in the sources of a component wants, in plain words.

The message index has the condition of a message as the code writes it: `not (x.dim() == 4)` for a
check that raises unless it holds, `x.dim() != 4` for one that raises if it holds. A condition that
is not made of plain comparisons has no words here; it is shown as code.
"""

from __future__ import annotations

import re

#: A variable, a part of it, or a short call: `q`, `self.topk`, `q.shape[-1]`, `q.size(0)`.
_OPERAND = r"(?:len\(\w+\)|[A-Za-z_][\w.]*(?:\[-?\w+\]|\(-?\w*\))?)"
_A, _B = rf"(?P<a>{_OPERAND})", rf"(?P<b>-?[\d.]+|'[^']*'|{_OPERAND}|[\w.:]+)"
_DIMENSIONS = rf"{_A}\.(?:dim\(\)|ndim|ndimension\(\))"
_TYPE = rf"{_A}\.(?:dtype(?:\(\))?|scalar_type\(\)|get_dtype\(\))"
_DEVICE = r"\.device(?:\(\))?"
#: Comparisons, with the words if they have to hold and if they must not. They are compiled when
#: they are first tried, which most logs never get to.
_COMPARISONS = (
    (rf"{_A} % {_B} == 0", "{a} is a multiple of {b}", "{a} is not a multiple of {b}"),
    (rf"{_A} % {_B} != 0", "{a} is not a multiple of {b}", "{a} is a multiple of {b}"),
    (rf"{_DIMENSIONS} == {_B}", "{a} has {b} dimensions", "{a} does not have {b} dimensions"),
    (rf"{_DIMENSIONS} != {_B}", "{a} does not have {b} dimensions", "{a} has {b} dimensions"),
    (rf"{_A}\.is_contiguous\(\)", "{a} is contiguous", "{a} is not contiguous"),
    (
        rf"{_A}\.stride\(-1\) == 1",
        "the last dimension of {a} is contiguous",
        "the last dimension of {a} is not contiguous",
    ),
    (
        rf"{_A}\.stride\(-1\) != 1",
        "the last dimension of {a} is not contiguous",
        "the last dimension of {a} is contiguous",
    ),
    (rf"{_A}\.is_cuda(?:\(\))?", "{a} is on a CUDA device", "{a} is not on a CUDA device"),
    (rf"{_A}\.is_sparse(?:\(\))?", "{a} is sparse", "{a} is not sparse"),
    (rf"{_TYPE} == {_B}", "the type of {a} is {b}", "the type of {a} is not {b}"),
    (rf"{_TYPE} != {_B}", "the type of {a} is not {b}", "the type of {a} is {b}"),
    (
        rf"(?P<a>[\w.]+?){_DEVICE} == (?P<b>[\w.]+?){_DEVICE}",
        "{a} is on the device of {b}",
        "{a} is on another device than {b}",
    ),
    (
        rf"(?P<a>[\w.]+?){_DEVICE} != (?P<b>[\w.]+?){_DEVICE}",
        "{a} is on another device than {b}",
        "{a} is on the device of {b}",
    ),
    (rf"{_A} is (?:None|nullptr)", "{a} is not given", "{a} is given"),
    (rf"{_A} is not None", "{a} is given", "{a} is not given"),
    (r"(?P<a>[\w.]+)\.has_value\(\)", "{a} is given", "{a} is not given"),
    (rf"{_A} <= {_B}", "{a} is at most {b}", "{a} is above {b}"),
    (rf"{_A} >= {_B}", "{a} is at least {b}", "{a} is below {b}"),
    (rf"{_A} < {_B}", "{a} is below {b}", "{a} is at least {b}"),
    (rf"{_A} > {_B}", "{a} is above {b}", "{a} is at most {b}"),
    (rf"{_A} == {_B}", "{a} is {b}", "{a} is not {b}"),
    (rf"{_A} != {_B}", "{a} is not {b}", "{a} is {b}"),
    (
        rf"{_A} in [\[({{](?P<b>[^\[\](){{}}]+)[\])}}]",
        "{a} is one of {b}",
        "{a} is none of {b}",
    ),
    (
        rf"{_A} not in [\[({{](?P<b>[^\[\](){{}}]+)[\])}}]",
        "{a} is none of {b}",
        "{a} is one of {b}",
    ),
    (r"(?P<a>[A-Za-z_][\w.]*)", "{a} is set", "{a} is not set"),
)
#: What is said shorter: constants of torch and of C++, and calls of CUTLASS.
_SHORTER = (
    (r"\b(?:cutlass\.)?const_expr\((.*)\)", r"\1"),
    (r"\b(?:torch::k|at::k|at::ScalarType::|torch::)(?=[A-Z])", ""),
    (r"\btorch\.(?=\w)", ""),
    (r"->", "."),
)
#: What another call returned, which says nothing of what a caller passes.
_RESULT = r"(?:.*\.)?(?:status|err(?:or)?|result|ret(?:urn)?_?(?:code)?|rc)\w{0,3}"
#: Comparisons that one sentence can have.
_MOST = 3


def check_of(condition: str) -> tuple[str, bool]:
    """The code of a condition, and whether it has to hold."""
    code, holds = condition, False
    while code.startswith("not (") and code.endswith(")") and _balanced(code[5:-1]):
        code, holds = code[5:-1], not holds
    if re.fullmatch(rf"not {_OPERAND}", code):
        return code.removeprefix("not "), not holds
    return code, holds


def wanted_in_words(condition: str) -> str:
    """What the code wants, such as "head_size is a multiple of 8"; empty if there are no words."""
    code, holds = check_of(condition)
    for pattern, shorter in _SHORTER:
        code = re.sub(pattern, shorter, code)
    for word, name in ((r" (?:and|&&) ", "and"), (r" (?:or|\|\|) ", "or")):
        parts = re.split(word, code)
        if 1 < len(parts) <= _MOST and all(map(_balanced, parts)):
            said = [_words(part, holds) for part in parts]
            # What must not hold is the other way round: neither of two alternatives may.
            joined = name if holds else {"and": "or", "or": "and"}[name]
            return f" {joined} ".join(said) if all(said) else ""
    return _words(code, holds)


def _words(code: str, holds: bool) -> str:
    code = code.strip()
    while code.startswith("!") or (code.startswith("(") and _balanced(code[1:-1])):
        code, holds = (code[1:], not holds) if code.startswith("!") else (code[1:-1], holds)
    for pattern, held, broken in _COMPARISONS:
        if (match := re.fullmatch(pattern, code)) and not re.fullmatch(_RESULT, match["a"]):
            return (held if holds else broken).format(**match.groupdict())
    return ""


def _balanced(text: str) -> bool:
    depth = 0
    for one in text:
        depth += (one == "(") - (one == ")")
        if depth < 0:
            return False
    return depth == 0
