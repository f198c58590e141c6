"""Targets for files and source of programs, and for what programs and servers answer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import socketserver
import tarfile
import tempfile
import threading
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from attn_doctor import rules_wheel
from attn_doctor.backends import catalogue_files, framework_source
from attn_doctor.backends.audit import progress_file
from attn_doctor.configs.predict import predict
from attn_doctor.configs.readers import kinds
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.errors import ExaminationError
from attn_doctor.examination import examine
from attn_doctor.explain.engine import explain
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis
from attn_doctor.fixes import conda, installers, resolve
from attn_doctor.fixes.cuda_home import compiler_bounds, marked_block
from attn_doctor.fixes.read_wheel import read_wheel
from attn_doctor.host import nvml_process
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost
from attn_doctor.kernels.bundle import artifact
from attn_doctor.kernels.verify import compare_runs
from attn_doctor.probes import path_code
from attn_doctor.probes.installed import dispatcher_source
from attn_doctor.record import trace
from attn_doctor.render.explanation import html as explained_html
from attn_doctor.render.explanation import json as explained_json
from attn_doctor.render.explanation import markdown as explained_markdown
from attn_doctor.render.explanation import text as explained_text
from attn_doctor.render.findings import agent, github, gitlab, html, junit, markdown, sarif, text
from attn_doctor.render.findings import json as findings_json
from attn_doctor.render.terminal import Terminal
from attn_doctor.requirement import applicable, satisfies
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule
from attn_doctor.snapshot import parse
from attn_doctor.wheels.ranges import RemoteFile
from attn_doctor.wheels.reading import read as wheel
from tests.attacks.fuzz.inputs import MACHINE, TESTS, Target, put

#: Targets of which an input takes ten milliseconds or more.
SLOW = (
    *("batch", "powershell", "compose", "dockerfile", "makefile", "notebook", "config in YAML"),
    *("workflow", "start line", "script", "explained log", "snapshot in all formats"),
    *("answer of an interpreter", "answer of NVML", "rule in a wheel", "catalogue in a wheel"),
)


@cache
def _facts() -> Facts:
    return parse((MACHINE / "facts.json").read_bytes(), "x")


@cache
def _diagnosis() -> Diagnosis:
    return diagnosis_of(_facts())


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(library.load(()))


def _config(name: str) -> Target:
    """Everything of a configuration: read, predicted, and shown in each format."""

    def target(folder: Path, data: bytes) -> object:
        shown = _diagnosis()
        read = kinds.read_all(put(folder / name, data))
        found = [predict(one, shown.facts, shown.findings, "") for one in read]
        small = msgspec.structs.replace(shown, findings=())
        return [
            text.text(small, Terminal(width=80), configs=found),
            markdown.markdown(small, None, found),
            html.html(small, None, found),
        ]

    return target


def _explained(folder: Path, data: bytes) -> object:
    found = explain([str(put(folder / "x.log", data))], _rules(), _facts())
    return (
        explained_text.text(found, Terminal(width=80), verbose=True),
        explained_json.json(found, 0),
        explained_markdown.markdown(found),
        explained_html.html(found),
    )


def _shown(_: Path, data: bytes) -> object:
    """A snapshot, diagnosed and written in each format."""
    found = diagnosis_of(parse(data, "x"))
    return (
        text.text(found, Terminal(width=80), verbose=True),
        findings_json.json(found, 0),
        markdown.markdown(found),
        html.html(found),
        agent.agent(found, 0),
        junit.junit(found),
        github.github(found),
        gitlab.gitlab(found),
        sarif.sarif(found, _rules(), 0),
    )


def _source(name: str) -> Target:
    """The readers of a framework's source."""

    def target(folder: Path, data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir=folder) as fresh:  # the readers remember by path
            put(Path(fresh) / framework_source.PLACES[name][0], data)
            return framework_source._names(fresh, name)

    return target


def _compiler_bounds(folder: Path, data: bytes) -> object:
    put(folder / "utils" / "cpp_extension.py", data)
    found = compiler_bounds.read(LocalHost(), str(folder), "gcc")
    return [
        compiler_bounds.refusal(found, cuda, "gcc", version)
        for cuda in (*[one for one in found if isinstance(one, str)], "12.8")
        for version in ("13.2.0", "9", "12.2.0-14", "x")
    ]


def _path_code(folder: Path, data: bytes) -> object:
    return path_code.changes(LocalHost(), data.decode("utf-8", "replace"), str(folder), "/usr")


def _answered(question: str) -> Target:
    """A machine on which one question is answered with the JSON of the input."""

    def target(_: Path, data: bytes) -> object:
        answers = json.loads((MACHINE / "host.json").read_bytes())
        name = next(one for one in answers if one.partition(" ")[0] == question)
        python = next(one for one in answers if one.startswith("inside ")).partition(" ")[2]
        try:
            answer = msgspec.json.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if question == "nvml":  # the child's lines are folded to this
            lines = [{"key": key, "value": value} for key, value in _items(answer)]
            folded = nvml_process.fold("\n".join(json.dumps(one) for one in lines))
            answer = {**folded, "outcome": "done", "code": 0, "err": "", "pid": 1}
        elif not isinstance(answer, dict):
            answer = {"outcome": "done", "code": 0, "out": str(answer), "err": ""}
        else:
            answer = {**answer, "outcome": "done"}
        try:
            facts = examine(RecordedHost({**answers, name: {"answer": answer}}), python)
        except ExaminationError as error:
            return str(error)
        failed = [why for why in facts.gaps.values() if "probe failed" in why]
        if failed:
            raise AssertionError(failed[0])
        return diagnosis_of(facts)

    return target


def _items(answer: Any) -> list[tuple[str, Any]]:
    return list(answer.items()) if isinstance(answer, dict) else [("count", answer)]


def _uv(_: Path, data: bytes) -> object:
    printed = data.decode("utf-8", "replace")
    ended = installers.Outcome(code=1, lines=tuple(printed.splitlines()[-40:]))
    return resolve._from_uv(printed), installers.failure(ended)


def _pip_report(_: Path, data: bytes) -> object:
    from attn_doctor.json_files import decode

    return resolve._from_pip(decode(data, resolve._Report), {})


def _requirement(_: Path, data: bytes) -> object:
    line = data.decode("utf-8", "replace")
    machine = {"python_version": "3.12", "sys_platform": "linux", "extra": ""}
    found = applicable(line, [machine])
    return found and satisfies("2.9.0+cu128", found.specifier)


def _progress(folder: Path, data: bytes) -> object:
    return progress_file.read(str(put(folder / "x.json", data)), "2.9.0", "H100")


def _compared_runs(folder: Path, data: bytes) -> object:
    for name, content in (("a", _CALLS), ("b", data)):
        put(folder / name / "1.jsonl", content)
    try:
        one, other = compare_runs.runs(folder / "a"), compare_runs.runs(folder / "b")
        return compare_runs.compare(one, other)
    except ValueError:
        return None  # as documented


def _lookups(folder: Path, data: bytes) -> object:
    put(folder / "x.log", data)
    found = trace.lookups(folder)
    return trace.counted(found), [trace.differing(one, found) for one in found[:5]]


def _start_file(_: Path, data: bytes) -> object:
    once = marked_block.with_block(data, ["export A=1"], "x") or data
    return marked_block.with_block(once, [], "x", "deactivate", r"^deactivate\s*\(\)\s*\{")


def _conda(folder: Path, data: bytes) -> object:
    put(folder / "conda-meta" / "pytorch-2.11.0-cuda130_py312_0.json", data)
    return conda._records(str(folder))


def _packed(folder: Path, data: bytes) -> object:
    """An artifact whose description is the input, and whose checksums are right."""
    path = folder / "x.tgz"
    with gzip.open(path, "wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in ((artifact.HEAD, data), ("a/b", b"abc")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    described = artifact.head(path)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        artifact.extract(path, described, Path(fresh))
    return described


def _rules_of_wheel(folder: Path, data: bytes) -> object:
    """A wheel of rules, one file of which is the input, with a right digest."""
    import base64

    path = folder / "attn_doctor_rules-2026.11.23-py3-none-any.whl"
    files = {**_small_rules(), "attn_doctor_rules/flash/x.toml": data}
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{name},sha256={digest.decode()},{len(content)}\n"
            archive.writestr(name, content)
        archive.writestr("attn_doctor_rules-2026.11.23.dist-info/RECORD", record)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        return rules_wheel.stage(path, Path(fresh))


@cache
def _small_rules() -> dict[str, bytes]:
    """The tables of the rules that a rule refers to, without rules."""
    root = TESTS.parent / "rules"
    names = [f"tables/{one}.toml" for one in ("causes", "releases", "requires")]
    found = {f"attn_doctor_rules/{one}": (root / one).read_bytes() for one in names}
    release = b'version = "2026.11.23"\nschema = %d\n' % _schema()
    return {**found, "attn_doctor_rules/tables/release.toml": release}


def _catalogue(folder: Path, data: bytes) -> object:
    put(folder / catalogue_files.FOLDER / "x.toml", data)
    return catalogue_files.read(folder)


def _schema() -> int:
    from attn_doctor.rulebook import updates

    return updates.SCHEMA


class _Answers(socketserver.BaseRequestHandler):
    """Answers each request with bytes that are set from outside."""

    answer = b""

    def handle(self) -> None:
        self.request.settimeout(1)
        self.request.recv(1 << 16)
        self.request.sendall(self.answer)


@cache
def _server() -> tuple[str, type[_Answers]]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/x-1.0-py3-none-any.whl", _Answers


def _remote(_: Path, data: bytes) -> object:
    url, handler = _server()
    handler.answer = data
    remote = RemoteFile(url, limit=1 << 16, seconds=2.0)
    remote.seek(0)
    return remote.read(1000)


def _library_in_wheel(folder: Path, data: bytes) -> object:
    path = folder / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/_C.so", data)
    return wheel(str(path), gpu_code=True), read_wheel(str(path), _facts())


def _described(_: Path, data: bytes) -> object:
    source = data.decode("utf-8", "replace")
    found = dispatcher_source.describe(source), dispatcher_source.features(source)
    return found, dispatcher_source.features(source, ("_supports",))


_SKETCH = b'{"shape":[2],"dtype":"float32","strange":0,"blocks":"%s"}' % (b"AACAPw" + b"AACAPw" * 8)
_CALLS = b'{"pid":1,"rank":"0","began":1.5}\n{"key":"k","number":0,"in":[%s],"out":[%s]}\n' % (
    _SKETCH,
    _SKETCH,
)
_DISPATCHER = b"""class AttentionBackendName(str, Enum):
    FLASH = "flash"
    NATIVE = "native"
_HUB_KERNELS_REGISTRY = {AttentionBackendName.FLASH: C(repo_id="x/y", function_attr="f")}
@_AttentionBackendRegistry.register(AttentionBackendName.FLASH, constraints=[_check_device])
def _flash_attention(query, key, value, attn_mask=None, dropout_p=0.0):
    if attn_mask is not None:
        raise ValueError("`attn_mask` is not supported for flash-attn 2.")
    return flash_attn_func(q=query, k=key, v=value, causal=is_causal)
def dispatch_attention_fn(query): pass
"""
_BOUNDS = b"""MINIMUM_GCC_VERSION = (5, 0, 0)
CUDA_GCC_VERSIONS: VersionMap = {
    '11.0': (MINIMUM_GCC_VERSION, (10, 0)),
    '12.8': ((6, 0, 0), (14, 0)),
}
"""
_HTTP = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/100\r\nContent-Length: 100\r\n"
    b"Connection: close\r\n\r\n" + b"x" * 100
)
_TRACE = b"""V1126 12:00:00.000 1 codecache.py:1] {"artifact": {"name": "x"}}
V1126 12:00:00.000 1 codecache.py:1] {"artifact": {"name": "fx_graph_cache_miss", \
"encoding": "json"}, "has_payload": "0"}
\t{"key": "f1", "components": ["[a] system_info: x"], "cache_bypass_reason": null}
"""
_RC = marked_block.with_block(b"alias ls='ls --color'\n\ndeactivate () {\n}\n", ["A=1"], "x") or b""
_BATCH = b"""@echo off
setlocal enabledelayedexpansion
set ATTN=--use-sage-attention
if exist venv (call venv\\Scripts\\activate.bat) else goto :end
for %%i in (a b) do echo %%i
python main.py %ATTN% --lowvram ^
  --port 8188
:end
"""
_POWERSHELL = b"""$env:ATTENTION_BACKEND = "flash"
$arguments = @("--xformers", "--sdpa")
if ($Attn) { $arguments += "--use-flash-attention" }
& python "main.py" @arguments
accelerate launch sdxl_train_network.py `
  --sdpa --mixed_precision="bf16"
"""
_COMPOSE = b"""services:
  vllm:
    image: vllm/vllm-openai:latest
    environment:
      - VLLM_ATTENTION_BACKEND=FLASHINFER
    command: ["--model", "x", "--attention-backend", "FLASH_ATTN"]
    <<: *base
  web:
    command: >
      python main.py --use-sage-attention
"""
_DOCKERFILE = b"""FROM python:3.12 AS base
ARG A=1
ENV VLLM_ATTENTION_BACKEND=FLASHINFER B="x y"
RUN pip install vllm && \\
    echo x
ENTRYPOINT ["python", "-m", "vllm.entrypoints.openai.api_server"]
CMD ["--model", "x"]
"""
_MAKEFILE = b"""ATTN ?= xformers
run: train
\t@python main.py --use-sage-attention --x \\
\t  --x
train:
\taccelerate launch train.py --attention_mechanism=$(ATTN)
"""
_NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "source": ["import torch\n", "%pip install x\n"]},
            {"cell_type": "code", "source": "!python main.py --use-sage-attention\n"},
            {"cell_type": "code", "source": "%%writefile c.yaml\nflash_attention: true\n"},
            {"cell_type": "code", "source": "pipe.enable_xformers_memory_efficient_attention()"},
        ],
        "nbformat": 4,
    }
).encode()
_YAML = b"""base_model: x
flash_attention: true
sdp_attention: false
datasets:
  - path: a
    type: b
lora_target_modules: [q, k]
micro_batch_size: 2
sequence_len: 4096
"""
_WORKFLOW = json.dumps(
    {
        "nodes": [
            {"id": 1, "type": "WanVideoModelLoader", "widgets_values": ["x", "bf16", "sageattn"]},
            {"id": 2, "type": "PathchSageAttentionKJ", "widgets_values": ["auto"], "mode": 4},
        ],
        "links": [[1, 1, 0, 2, 0, "MODEL"]],
        "version": 0.4,
    }
).encode()
_LOG = b"""PyTorch version: 2.6.0+cu124
GPU 0: NVIDIA GeForce RTX 4090
[pip3] flash-attn==2.7.4.post1
Traceback (most recent call last):
  File "/x/train.py", line 3, in <module>
    import flash_attn
ImportError: /x/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: \
_ZN3c105ErrorC2ENS_14SourceLocationESs
RuntimeError: FlashAttention only supports Ampere GPUs or newer.
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
_REPORT = b'{"version": "1", "install": [{"metadata": {"name": "torch", "version": "2.9.0"}}]}'
_PRINTED = b"""Resolved 3 packages in 12ms
Would download 1 package
 - torch==2.8.0
 + torch==2.9.0+cu128
 ~ triton==3.5.0
  x No solution found when resolving dependencies:
ERROR: ResolutionImpossible: for help visit https://x
"""
_REQUIREMENTS = (
    b"nvidia-cublas-cu12[a,b] (==12.8.4.1) ; platform_system == 'Linux' and (extra == 'x')"
)


def _nvml() -> bytes:
    answer = json.loads((MACHINE / "host.json").read_bytes())["nvml"]["answer"]
    flat = {key: value for key, value in answer.items() if key != "gpus"}
    for number, gpu in enumerate(answer["gpus"]):
        flat.update({f"gpus.{number}.{key}": value for key, value in gpu.items()})
    return json.dumps(flat).encode()


def _inside() -> bytes:
    answers = json.loads((MACHINE / "host.json").read_bytes())
    found = next(one for name, one in answers.items() if name.startswith("inside "))
    return json.dumps(found["answer"]).encode()


def targets() -> dict[str, tuple[Target, bytes]]:
    """Name → reader and a valid input."""
    head = msgspec.json.encode(
        artifact.Artifact(
            schema=1,
            attn_doctor="0.1.0",
            made="2026-01-01T00:00:00Z",
            environments={},
            entries={},
            files={"a/b": artifact.Packed(bytes=3, sha256=hashlib.sha256(b"abc").hexdigest())},
        )
    )
    rule = next((TESTS.parent / "rules").glob("flash*/*.toml")).read_bytes()
    library_ = (TESTS / "binaries" / "fatbins" / "linked.so").read_bytes()
    return {
        "batch": (_config("run.bat"), _BATCH),
        "powershell": (_config("train.ps1"), _POWERSHELL),
        "compose": (_config("docker-compose.yml"), _COMPOSE),
        "dockerfile": (_config("Dockerfile"), _DOCKERFILE),
        "makefile": (_config("Makefile"), _MAKEFILE),
        "notebook": (_config("x.ipynb"), _NOTEBOOK),
        "config in YAML": (_config("config.yaml"), _YAML),
        "workflow": (_config("workflow.json"), _WORKFLOW),
        "start line": (
            _config("run.sh"),
            (
                b'A=--use-sage-attention\nif [ "$1" = x ]; then B=1; fi\n'
                b"docker run -e X=$A image python main.py $A ${B:+--x} \\\n  --y\n"
            ),
        ),
        "script": (
            _config("x.py"),
            (
                b"import os\nos.environ['DIFFUSERS_ATTN_BACKEND'] = 'flash'\n"
                b"pipe = FluxPipeline.from_pretrained('x', torch_dtype=torch.bfloat16)\n"
                b"with attention_backend('sage'):\n    pipe(width=1, height=2)\n"
            ),
        ),
        "explained log": (_explained, _LOG),
        "snapshot in all formats": (_shown, (MACHINE / "facts.json").read_bytes()),
        "names in diffusers": (_source("diffusers"), _DISPATCHER),
        "names in transformers": (
            _source("transformers"),
            (
                b"_global_mapping = {'sdpa': f, 'flash_attention_2': g}\n"
                b"ALL_ATTENTION_FUNCTIONS.update({'x': y})\n"
            ),
        ),
        "dispatcher": (_described, _DISPATCHER),
        "compiler bounds": (_compiler_bounds, _BOUNDS),
        "code of a pth": (
            _path_code,
            b"import sys, os; p = os.path.join(sitedir, 'x'); sys.path.insert(0, p)",
        ),
        "answer of an interpreter": (_answered("inside"), _inside()),
        "answer of NVML": (_answered("nvml"), _nvml()),
        "output of an installer": (_uv, _PRINTED),
        "report of pip": (_pip_report, _REPORT),
        "requirement": (_requirement, _REQUIREMENTS),
        "progress of an audit": (
            _progress,
            b'{"schema":1,"torch":"2.9.0","device":"H100","backends":{},"seconds":1.5}',
        ),
        "outputs of graphs": (_compared_runs, _CALLS),
        "trace of torch": (_lookups, _TRACE),
        "start file": (_start_file, _RC),
        "record of conda": (
            _conda,
            b'{"channel": "https://conda.anaconda.org/conda-forge/linux-64", "name": "pytorch"}',
        ),
        "description of an artifact": (_packed, head),
        "catalogue in a wheel": (
            _catalogue,
            (TESTS.parent / "rules" / catalogue_files.FOLDER / "sage.toml").read_bytes(),
        ),
        "rule in a wheel": (_rules_of_wheel, rule),
        "answer of a server": (_remote, _HTTP),
        "library in a wheel": (_library_in_wheel, library_),
    }
