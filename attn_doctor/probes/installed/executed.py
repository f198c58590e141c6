"""Makes blocks of a module's text that an import executes stand at the left margin."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_STRING = r'(?s)("""|\'\'\').*?\1'
_BLOCK = r"((?:(?: {4}.*)?\n)+)"
#: Blocks that run if torch is installed, as it is where this is of interest, or torchao.
_IF_TORCH, _IF_TORCHAO = (
    rf"(?m)^if is_torch{which}_available\(\):.*\n{_BLOCK}" for which in ("(?:_distributed)?", "ao")
)
#: Blocks of torch that run where Triton is installed.
_IF_TRITON = rf"(?m)^if has_triton_package\(\):.*\n{_BLOCK}"
#: A block whose failure is raised again, as SymPy does where mpmath is missing.
_RAISED_AGAIN = rf"(?m)^try:\n{_BLOCK}except ImportError.*:\n {{4}}raise\b"
#: A word that each of these blocks has, and the block.
_GUARDS = (
    ("except ImportError", _RAISED_AGAIN),
    ("if is_torch", _IF_TORCH),
    ("if is_torchao", _IF_TORCHAO),
    ("if has_triton_package", _IF_TRITON),
)
_PACKAGES = {_IF_TORCHAO: "torchao", _IF_TRITON: "triton"}
#: A block for older or newer releases of Python, and the block for the others.
_IF_PYTHON = (
    rf"(?m)^if sys\.version_info (<|>=) \((\d+), *(\d+)\):.*\n{_BLOCK}(?:else:.*\n{_BLOCK})?"
)
#: What a package imports where torch._dynamo cannot be imported: bitsandbytes 0.45.
_OTHERWISE = r"(?m)^ +except ImportError:\n +from (torch\._inductor\.utils) import has_triton$"
#: Modules of a list that a loop imports, as torch.distributed._tensor does.
_LIST = r"(?m)^submodules = \[([^\]]*)\]"
_LOOP = r'(?m)^ +full_module_name = f"([\w.]+)\.\{submodule\}"$'


def executed(text: str, python: str, without: Collection[str]) -> str:
    """Return the text of a module without strings of several lines, with such blocks unindented.

    `python`: the release that imports it; `without`: packages whose blocks are not executed.
    """
    text = re.sub(_STRING, "''", text)
    for word, guard in _GUARDS:
        # The search for a word is much faster, and few files have such a block.
        if word in text and _PACKAGES.get(guard) not in without:
            text = re.sub(guard, lambda block: _unindented(block[1]), text)
    release = re.match(r"(\d+)\.(\d+)", python)
    if release is not None and "\nif sys.version_info" in text:
        here = int(release[1]), int(release[2])
        text = re.sub(_IF_PYTHON, lambda found: _unindented(_chosen(found, here)), text)
    return text


def _chosen(found: re.Match[str], here: tuple[int, int]) -> str:
    older = here < (int(found[2]), int(found[3]))
    return (found[4] if older == (found[1] == "<") else found[5]) or "\n"


def _unindented(block: str) -> str:
    return re.sub("(?m)^ {4}", "", block)


def called(text: str) -> Iterator[str]:
    """Yield modules that functions import that are called at import."""
    if "has_triton" in text:
        yield from re.findall(_OTHERWISE, text)
    if "{submodule}" in text:
        package, names = re.search(_LOOP, text), re.search(_LIST, text)
        if package is not None and names is not None:
            yield from (f"{package[1]}.{name}" for name in re.findall(r'"(\w+)"', names[1]))
