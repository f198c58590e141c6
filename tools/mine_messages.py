"""Writes rules/messages.tsv: the messages that released attention software can print.

Python is read by its syntax tree (`raise` and `assert`), C++ by the literals of its check macros.
Each row has the component, the file, the function, the first and the last release with the message,
the condition that was checked, and the message with `{}` where a value stands.

    python tools/mine_messages.py --wheels DIR --clones DIR --site-packages DIR

`--wheels` holds wheels, `--clones` bare clones named OWNER+NAME/repo, and `--site-packages` an
environment with a CUDA build of torch. What is not there is skipped, and its rows stay.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "rules" / "messages.tsv"
#: Stands for a value in a message while it is read.
_HOLE = "\0"
#: Rows with less plain text say too little to recognise anything.
_LEAST, _WORDS = 20, 3


class Source(NamedTuple):
    """Files of one package, and the component that each belongs to."""

    name: str
    """Start of a wheel's name, OWNER+NAME of a clone, or a folder of site-packages."""
    files: str
    """Pattern for the paths that are read."""
    components: tuple[tuple[str, str], ...]
    """Pattern for a path, and its component; the first that fits is taken."""
    tags: tuple[str, ...] = ()
    skipped: str = r"(?:^|/)(?:tests?|benchmarks?|examples?|3rdparty|training)/"
    general: str = r"$^"
    """Pattern for files of which only messages that mention attention are taken."""


WHEELS = (
    Source(
        "transformers",
        r"integrations/(?:\w*attention|flash_|sdpa_|flex_|hub_kernels|eager_)|modeling_flash"
        r"|masking_utils|modeling_utils\.py$|utils/import_utils\.py$",
        (("", "transformers"),),
        general=r"modeling_utils|import_utils",
    ),
    Source(
        "diffusers",
        r"attention_dispatch|attention_processor|models/attention\.py",
        (("", "diffusers"),),
    ),
    Source("kernels", r"kernels/", (("", "hub-kernels"),)),
    Source("triton", r"triton/(?:backends|runtime|compiler|language)/.*\.py$", (("", "triton"),)),
    Source(
        "sglang",
        r"srt/(?:layers/attention/.*|server_args)\.py$|sgl_kernel/flash",
        (("", "sglang"),),
        general=r"server_args|attention/(?:fla|mamba|linear|nsa|triton_ops)/",
    ),
    Source(
        "vllm",
        r"vllm/(?:v1/)?attention/.*\.py$|vllm/vllm_flash_attn/\w+\.py$|vllm/(?:platforms|config)/\w+\.py$"
        r"|vllm/(?:config|engine/arg_utils|v1/worker/gpu_model_runner)\.py$"
        r"|vllm/model_executor/layers/(?:attention|mla)\b.*\.py$",
        (("", "vllm"),),
        general=r"platforms/|config|arg_utils|model_runner|/ops/",
    ),
)
CLONES = (
    Source(
        "Dao-AILab+flash-attention",
        r"\.(?:py|cu|cpp|h|cuh|hip)$",
        (("flash_attn/cute/", "flash-attn-4"), ("^hopper/", "flash-attn-3"), ("", "flash-attn-2")),
        ("v1.0.9", "v2.0.9", "v2.3.6", "v2.5.8", "v2.6.3", "v2.7.4.post1", "v2.8.3", "HEAD"),
        r"csrc/(?:cutlass|composable|ft_att|fused|layer|rotary|xent)|(?:^|/)(?:tests|benchmarks|training"
        r"|models|losses|layers|ops)/|flash_(?:fwd|bwd)_hdim|third_party",
    ),
    Source(
        "facebookresearch+xformers",
        r"xformers/(?:ops/fmha|_cpp_lib|csrc/attention|ops/unbind|checkpoint|attn_bias).*\.(?:py|cu|cpp|h)$",
        (("", "xformers"),),
        ("v0.0.16", "v0.0.20", "v0.0.23", "v0.0.26", "v0.0.28", "v0.0.30", "v0.0.32", "HEAD"),
    ),
    Source(
        "thu-ml+SageAttention",
        r"\.(?:py|cu|cpp|h|cuh)$",
        (("", "sage"),),
        ("v2.0.1", "v2.2.0", "HEAD"),
        r"csrc/cutlass|bench|example/",
    ),
    Source("thu-ml+SpargeAttn", r"\.(?:py|cu|cpp|h|cuh)$", (("", "sparge"),), ("HEAD",)),
    Source(
        "NVIDIA+TransformerEngine",
        r"pytorch/(?:.*/)?(?:attention|dot_product).*\.py$|common/fused_attn/.*\.(?:cu|cpp|h)$"
        r"|pytorch/csrc/.*attention.*\.cpp$",
        (("", "transformer-engine"),),
        ("v1.5", "v1.8", "v1.11", "v2.2", "v2.6", "v2.9", "HEAD"),
        r"tests/|jax/|examples/",
    ),
    Source(
        "flashinfer-ai+flashinfer",
        r"^flashinfer/(?:prefill|decode|mla|sparse|cascade|page|pod|xqa|attention|utils"
        r"|jit/(?:core|env|cpp_ext|attention))\b.*\.py$|^include/flashinfer/(?:attention|page|utils)"
        r"|^csrc/(?:batch_(?:prefill|decode|mla|pod)|single_|trtllm_fmha|xqa|fmha|pod|page)",
        (("", "flashinfer"),),
        ("v0.2.5", "v0.4.0", "v0.5.3", "v0.6.9", "HEAD"),
        r"3rdparty|tests/|benchmarks|prims_ts|/kernels/|cute_dsl",
    ),
    Source(
        "ROCm+aiter",
        r"^aiter/ops/(?:mha|attention|mla|fmha)\w*\.py$|^csrc/(?:py|cpp)_itfs_\w+/.*(?:mha|attention|mla)",
        (("", "aiter"),),
        ("HEAD",),
    ),
    Source(
        "SHI-Labs+NATTEN",
        r"^src/natten/.*\.py$|^csrc/.*\.(?:cpp|cu|h|hpp|cuh)$",
        (("", "natten"),),
        ("v0.14.6", "v0.17.1", "v0.17.5", "v0.20.1", "v0.21.0", "v0.21.6", "HEAD"),
        r"profil|autogen|tests/",
    ),
    Source(
        "fla-org+flash-linear-attention",
        r"^fla/(?:ops|layers|modules|utils)\b.*\.py$",
        (("", "fla"),),
        ("v0.1.2", "v0.3.2", "v0.4.2", "v0.5.2", "HEAD"),
    ),
    Source(
        "deepspeedai+DeepSpeed",
        r"^deepspeed/ops/(?:sparse_attention|deepspeed4science)/.*\.py$|^deepspeed/sequence/layer\.py$"
        r"|^op_builder/(?:evoformer|sparse)_attn\.py$|^csrc/deepspeed4science/evoformer_attn/\w+\.(?:cpp|cu)$",
        (("", "deepspeed"),),
        ("v0.9.5", "HEAD"),
    ),
    Source(
        "InternLM+lmdeploy",
        r"^lmdeploy/pytorch/(?:.*/)?\w*attention\w*(?:/.*)?\.py$|^src/turbomind/kernels/attention/\w+\.cu$",
        (("", "lmdeploy"),),
        ("v0.9.2", "HEAD"),
    ),
    Source(
        "NVIDIA+Megatron-LM",
        r"^megatron/core/transformer/(?:dot_product_|multi_latent_)?attention\.py$",
        (("", "megatron"),),
        ("HEAD",),
    ),
    Source(
        "xdit-project+xDiT",
        r"^xfuser/core/(?:distributed/attention|long_ctx_attention/|fast_attention/attn)\w*(?:/.*)?\.py$",
        (("", "xfuser"),),
        ("0.4.5", "HEAD"),
    ),
    Source(
        "woct0rdho+triton-windows",
        r"python/triton/(?:runtime|compiler|language)/.*\.py$|third_party/\w+/backend/.*\.py$",
        (("", "triton"),),
        ("HEAD",),
    ),
)
SITE = (
    Source(
        "torch",
        r"torch/(?:nn/attention/|_inductor/kernel/flex(?!_gemm)|_higher_order_ops/flex_attention"
        r"|_inductor/runtime/triton_|distributed/tensor/experimental/_(?:context|attention)).*\.py$",
        (("sdpa|/attention/(?:__init__|bias|_utils|varlen)", "sdpa"), ("flex", "flex"),
         ("_inductor", "inductor"), ("", "sdpa")),
    ),
)  # fmt: skip
#: Components in the order of the table. Where two have one message, the origin comes before a copy.
_ORDER = (
    "flash-attn-2", "flash-attn-3", "flash-attn-4", "sage", "xformers", "transformer-engine",
    "flashinfer", "triton", "flex", "sdpa", "cudnn", "transformers", "diffusers", "hub-kernels",
    "sparge", "aiter", "natten", "fla", "vllm", "sglang", "inductor", "deepspeed", "lmdeploy",
    "megatron", "xfuser",
)  # fmt: skip
_ATTENTION = re.compile(r"(?i)attn|attention|sdpa|flash|(?<![a-z])m[hl]a(?![a-z])")
#: Messages in torch's CUDA library that are about attention, and the component of each.
_LIBRARY = (
    (r"(?i)cudnn", "cudnn"),
    (r"(?i)attention|sdpa?\b|attn|flash|mem.?efficient|head_dim", "sdpa"),
)


class Message(NamedTuple):
    """One message in a source file."""

    text: str
    function: str
    condition: str


# Python


def python_messages(source: str) -> Iterator[Message]:
    """The messages of `raise` and `assert` in Python code."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    yield from _in_node(tree, "", "")


def _in_node(node: ast.AST, function: str, condition: str) -> Iterator[Message]:
    for child in ast.iter_child_nodes(node):
        name, checked = function, condition
        if isinstance(node, ast.If) and child is not node.test:
            checked = ast.unparse(node.test)
            if child in node.orelse:
                checked = f"not ({checked})"
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name, checked = child.name, ""
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            for argument in child.exc.args[:1]:
                yield Message(_literal(argument), name, checked)
        elif isinstance(child, ast.Assert) and child.msg is not None:
            yield Message(_literal(child.msg), name, f"not ({ast.unparse(child.test)})")
        yield from _in_node(child, name, checked)


def _literal(node: ast.expr) -> str:
    """The text of an expression, with `_HOLE` for what is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_literal, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _literal(node.left) + _literal(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return re.sub(r"%[-+0-9.]*[sdrifgx]|%\(\w+\)[sdrif]", _HOLE, _literal(node.left))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
    ):
        return re.sub(r"\{[^{}]*\}", _HOLE, _literal(node.func.value))
    return _HOLE


# C++

_MACRO = re.compile(
    r"\b(?:(?:STD_)?TORCH_CHECK(?:_\w+)?|AT_ERROR|FLASHINFER_(?:CHECK|ERROR)|NVTE_(?:CHECK|ERROR)"
    r"|XFORMERS_CHECK|TVM_FFI_I?CHECK\w*|AITER_CHECK|runtime_error|invalid_argument)\s*\("
)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def cpp_messages(source: str) -> Iterator[Message]:
    """The messages of check macros and exceptions in C++ code."""
    for match in _MACRO.finditer(source):
        body = source[match.end() : _closing(source, match.end())]
        literals = list(_STRING.finditer(body))
        if not literals:
            continue
        text, end = "", literals[0].start()
        for literal in literals:
            text += (_HOLE if body[end : literal.start()].strip() else "") + literal[1]
            end = literal.end()
        text += _HOLE if body[end:].strip() else ""
        condition = body[: literals[0].start()].strip().rstrip(",").strip()
        yield Message(
            text.replace('\\"', '"').replace("\\n", " "),
            "",
            f"not ({condition})" if condition and "CHECK" in match[0] else "",
        )


def _closing(source: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed."""
    depth, quoted, at = 1, False, start
    while at < min(len(source), start + 1500):
        character = source[at]
        if quoted:
            at += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        else:
            depth += {"(": 1, ")": -1}.get(character, 0)
            if not depth:
                return at
        at += 1
    return at


# The table


class Row(NamedTuple):
    """One row of the table."""

    component: str
    file: str
    function: str
    first: str
    last: str
    condition: str
    text: str


def rows_of(path: str, source: str, version: str, of: Source) -> Iterator[Row]:
    """The rows of one file."""
    component = next(name for pattern, name in of.components if re.search(pattern, path))
    found = python_messages(source) if path.endswith(".py") else cpp_messages(source)
    general = re.search(of.general, path) is not None
    for message in found:
        text = template(message.text)
        if says_enough(text) and (not general or _ATTENTION.search(text)):
            condition = " ".join(message.condition.split())
            condition = condition if len(condition) <= 120 else ""
            yield Row(component, path, message.function, version, version, condition, text)


def template(text: str) -> str:
    """The message on one line, with `{}` for each value."""
    text = text.replace("{}", _HOLE).replace("\t", " ")
    text = re.sub(rf"{_HOLE}[\s{_HOLE}]*{_HOLE}", _HOLE, " ".join(text.split()))
    return text.replace(_HOLE, "{}")[:400]


def says_enough(text: str) -> bool:
    """The plain text of a message is enough to recognise it."""
    plain = text.replace("{}", " ")
    return len(plain.strip()) >= _LEAST and len(re.findall(r"[A-Za-z]{3,}", plain)) >= _WORDS


def _of_wheels(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        for source in WHEELS:
            if source.name != name:
                continue
            with zipfile.ZipFile(path) as wheel:
                for member in wheel.namelist():
                    if _is_read(member, source):
                        text = wheel.read(member).decode("utf-8", "replace")
                        yield from rows_of(member, text, version, source)


def _of_clones(folder: Path) -> Iterator[Row]:
    for source in CLONES:
        clone = folder / source.name / "repo"
        for tag in source.tags if clone.is_dir() else ():
            version = "main" if tag == "HEAD" else tag.lstrip("v")
            names = _git(clone, "ls-tree", "-r", "--name-only", tag).decode().splitlines()
            chosen = [name for name in names if _is_read(name, source)]
            for name, text in _contents(clone, tag, chosen):
                yield from rows_of(name, text, version, source)


def _contents(clone: Path, tag: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """The files of a release, read by one process."""
    asked = "".join(f"{tag}:{name}\n" for name in names).encode()
    data, at = _git(clone, "cat-file", "--batch", given=asked), 0
    for name in names:
        end = data.index(b"\n", at)
        words = data[at:end].split()
        size = int(words[2]) if len(words) == 3 else 0  # "… missing" has two words
        yield name, data[end + 1 : end + 1 + size].decode("utf-8", "replace")
        at = end + 1 + (size + 1 if len(words) == 3 else 0)


def _git(clone: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", "-C", str(clone), *words], check=True, capture_output=True, timeout=300, input=given
    ).stdout


def _of_site(folder: Path) -> Iterator[Row]:
    for source in SITE:
        package = folder / source.name
        version = _torch_version(package)
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            if _is_read(name, source):
                yield from rows_of(name, path.read_text("utf-8", "replace"), version, source)
        library = package / "lib" / "libtorch_cuda.so"
        if library.is_file():
            yield from _of_library(library, version)


def _torch_version(package: Path) -> str:
    match = re.search(r"__version__ = '([\d.]+)", (package / "version.py").read_text("utf-8"))
    return match[1] if match else ""


def _of_library(library: Path, version: str) -> Iterator[Row]:
    """The sentences about attention in a compiled library."""
    done = subprocess.run(
        ["strings", "-n", "24", str(library)], check=True, capture_output=True, timeout=300
    )
    for line in dict.fromkeys(done.stdout.decode("ascii", "replace").splitlines()):
        if (
            not re.match(r"[A-Z\"(]", line)
            or line.count(" ") < 4
            or re.search(r"::|[<>{}*=]|\.cu|^(?:INFO|WARNING):", line)
        ):
            continue
        component = next((name for pattern, name in _LIBRARY if re.search(pattern, line)), "")
        if component and says_enough(line) and len(line) < 300:
            yield Row(component, "libtorch_cuda", "", version, version, "", template(line))


def _is_read(path: str, source: Source) -> bool:
    return (
        re.search(source.files, path) is not None
        and path.endswith((".py", ".cu", ".cpp", ".h", ".cuh", ".hpp", ".hip"))
        and not re.search(source.skipped, path)
    )


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row for each message of a component, from its last release, with all its releases."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.component, row.text)
        other = found.get(key, row)
        last = max(other, row, key=lambda one: _release(one.last))
        found[key] = last._replace(first=min(other.first, row.first, key=_release))
    return sorted(found.values(), key=lambda row: (_ORDER.index(row.component), row.file, row.text))


def _release(name: str) -> tuple[int, ...]:
    """For the order of releases; a development version is the last one."""
    return tuple(map(int, re.findall(r"\d+", name))) or (1 << 30,)


def read(path: Path) -> list[Row]:
    """The rows of a table."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [Row(*line.split("\t")) for line in lines]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("wheels", "clones", "site-packages"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    options = parser.parse_args()
    rows = read(FILE)
    if options.wheels:
        rows += _of_wheels(options.wheels)
    if options.clones:
        rows += _of_clones(options.clones)
    if options.site_packages:
        rows += _of_site(options.site_packages)
    table = merged(rows)
    FILE.write_text("".join("\t".join(row) + "\n" for row in table), "utf-8", newline="\n")
    print(f"{len(table)} messages, {FILE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
