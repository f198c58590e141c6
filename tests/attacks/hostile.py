"""A machine, files and caches in which every text of other origin is one that an attacker chose.

`spread` makes them with any text, so that the same walk over commands and formats finds values that
are not redacted and values that are not cleaned.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from attn_doctor.errors import SnapshotError
from attn_doctor.kernels.bundle.pack import choose, pack
from attn_doctor.record import store
from attn_doctor.record.manifest import Build, BuildEnvironment, Entry, Manifest, Warmup
from attn_doctor.record.spec import KernelSpec
from attn_doctor.snapshot import parse
from tests.attacks.means import ROOT

#: Text number n of an attacker.
Text = Callable[[], str]
#: Commands that show none of the texts: they only have to end well.
OWN_WORDS = (
    *("check config", "cache verify", "cache clear", "cache status text", "cache status html"),
    *("fix plan", "fix cuda home", "install", "configs", "report issue"),
    *("rules test", "rules lint", "new rule"),
)
_MACHINE = ROOT / "tests" / "machines" / "h200-torch-2.11-cu130" / "facts.json"
_SPEC = KernelSpec(heads=2, head_dim=64, lengths=(256,), phase="inference")
_LOG = """Traceback (most recent call last):
  File "/srv/{0}/train.py", line 3, in <module>
    token = "{0}"
{0}
[rank3]: {0} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB {0}
{0} triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131074 {0}
ImportError: /srv/{0}/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi {0}
Name: torch {0}
Version: 2.11.0+{0}
"""


class Hostile(NamedTuple):
    """Where the texts lie, and the commands that read them."""

    folder: Path
    commands: dict[str, tuple[str, ...]]
    """Name → a command line, whose working directory is `folder`."""
    environ: dict[str, str]


def spread(folder: Path, text: Text) -> Hostile:
    """Write everything below `folder`."""
    (folder / "facts.json").write_bytes(_snapshot(text))
    (folder / "log.txt").write_bytes(
        "".join(_LOG.replace("{0}", text()) for _ in range(4)).encode("utf-8", "surrogateescape")
    )
    (folder / "attn-doctor.toml").write_text(_policy(text), "utf-8")
    (folder / "bad.toml").write_text(f"{_toml(text())} = 1\n", "utf-8")
    (folder / "bad.json").write_text(json.dumps({"schema": 99, "attn_doctor": text()}))
    (folder / "config.json").write_text(json.dumps(_config(text)))
    (folder / "base.json").write_text(json.dumps({"schema": 1, "problems": [{"rule": text()}]}))
    (folder / "machines").mkdir()
    (folder / "machines" / "facts.json").write_bytes((folder / "facts.json").read_bytes())
    (folder / "machines" / f"{_name(text())}.json").write_text(text(), "utf-8", "surrogateescape")
    for name, content in _configs(text).items():
        (folder / "configs" / name).mkdir(parents=True)
        (folder / "configs" / name / name).write_text(content, "utf-8")
    _rules(folder / "rules", text)
    (folder / "bad-rules" / "acme").mkdir(parents=True)
    (folder / "bad-rules" / "acme" / "x.toml").write_text(f"{_toml(text())} = 1\n")
    _wheel(folder / "x-1.0-py3-none-any.whl", text)
    _installer(folder / "bin" / "uv", text)
    _environment(folder / "venv", text)
    cache = _cache(folder / "cache", text)
    pack(cache, choose(cache), folder / "kernels.attn")
    environ = {
        name: text()
        for name in ("TORCH_LOGS", "CC", "CUDA_HOME", "LD_LIBRARY_PATH", "NVCC_APPEND_FLAGS")
        if "\0" not in text()
    }
    environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return Hostile(folder, dict(commands()), environ)


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from _checks()
    yield from _configurations()
    yield from _rules_shown()
    for form in ("text", "json", "markdown", "html", "svg"):
        yield f"backends {form}", ("backends", "--facts", "facts.json", "--format", form)
    for form in ("text", "json", "markdown", "html"):
        yield f"explain {form}", ("explain", "log.txt", "--no-probe", "--format", form)
    yield "backends why", ("backends", "--facts", "facts.json", "--why", "flash")
    yield "explain verbose", ("explain", "log.txt", "--facts", "facts.json", "-v")
    yield "explain to a file", ("explain", "log.txt", "--no-probe", "-o", "written.txt")
    for form in ("text", "json"):
        yield f"fix plan {form}", ("fix", "plan", "--facts", "facts.json", "--format", form)
        for name, words in {
            "status": (), "why": (), "verify": ("--no-verify",),
            "clear": ("--kind", "inductor", "-n"),
        }.items():  # fmt: skip
            cache = ("cache", name, *words, "--cache-dir", "cache")
            yield f"cache {name} {form}", (*cache, "--format", form)
        read = ("cache", "import", "kernels.attn", "-n", "--cache-dir", "other")
        yield f"cache import {form}", (*read, "--format", form)
        wheels = ("fix", "wheels", "x-1.0-py3-none-any.whl", "--facts", "facts.json")
        yield f"wheels {form}", (*wheels, "--format", form)
        plan = ("install", "flash", "--python", "venv", "--no-read", "-n")
        yield f"install plan {form}", (*plan, "--format", form)
    yield "cache status html", ("cache", "status", "--cache-dir", "cache", "--format", "html")
    yield "fix plan of an installer", ("fix", "plan", "--python", "venv")
    yield "fix cuda home", ("fix", "cuda-home", "--python", "venv")
    yield "requirements", ("fix", "requirements", "--facts", "facts.json")
    yield "report", ("report", "-o", "-")
    yield "report issue", ("report", "--issue", "--python", "venv")
    yield "report environment json", ("report", "-o", "-", "--python", "venv")
    yield (
        "backends environment text",
        ("backends", "--python", "venv", "--framework", "simpletuner"),
    )


def _checks() -> Iterator[tuple[str, tuple[str, ...]]]:
    check = ("check", "--facts", "facts.json", "--config", "none")
    forms = ("text", "json", "agent", "markdown", "html", "github", "sarif", "junit", "gitlab")
    for form in forms:
        yield f"check {form}", (*check, "--format", form)
        yield f"check with rules {form}", (*check, "--rules", "rules", "--format", form)
    yield "check verbose", (*check, "-v", "--policy", "none")
    yield "check to a file", (*check, "-o", "written.txt")
    yield "check log", (*check, "-vv")
    yield "baseline", (*check, "--baseline", "base.json")
    yield "machines text", ("check", "--facts", "machines")
    yield "machines json", ("check", "--facts", "machines", "--json")
    yield "explain policy", ("check", "--explain-policy")
    yield "bad policy", ("check", "--policy", "bad.toml")
    yield "bad snapshot", ("check", "--facts", "bad.json")
    for form in ("text", "json"):
        here = ("check", "--python", "venv", "--config", "none")
        yield f"check environment {form}", (*here, "--format", form, "-v")


def _configurations() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "check config", ("check", "--facts", "facts.json", "--config", "config.json", "-v")
    for name in _configs(str):
        config = ("check", "--facts", "facts.json", "--config", f"configs/{name}/{name}")
        for form in ("text", "markdown", "html", "github", "json"):
            yield f"configs {name} {form}", (*config, "-v", "--format", form)


def _rules_shown() -> Iterator[tuple[str, tuple[str, ...]]]:
    for form in ("text", "json"):
        yield f"rules list {form}", ("rules", "list", "--rules", "rules", "--format", form)
    for form in ("text", "json", "markdown"):
        show = ("rules", "show", "acme/x", "--rules", "rules")
        yield f"rules show {form}", (*show, "--format", form)
    yield "rules search", ("rules", "search", "acme", "--rules", "rules")
    for name in ("lint", "test"):
        yield f"rules {name}", ("rules", name, "--rules", "rules")
        yield f"bad rules {name}", ("rules", name, "--rules", "bad-rules")
    yield "new rule", ("rules", "new", "acme/y", "--from-log", "log.txt", "--rules", "written")


def _snapshot(text: Text) -> bytes:
    """A recorded machine in which every free text is the attacker's."""
    data = json.loads(_MACHINE.read_bytes())
    for place in list(_places(data)):
        before = _at(data, place)
        for value in (f"{before}/{text()}", text()):
            _put(data, place, value)
            if _reads(data, place):
                break
            _put(data, place, before)
    data["gaps"] = {**data.get("gaps", {}), "torch.abi": text(), "gpus[0].driver": text()}
    return json.dumps(data).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every text that is not a version, from which rules could not conclude any more."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    elif isinstance(value, str) and value and not value[0].isdigit():
        yield path
    for key, one in pairs:
        yield from _places(one, (*path, key))


def _at(data: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        data = data[key]
    return data


def _put(data: Any, place: tuple[Any, ...], value: str) -> None:
    _at(data, place[:-1])[place[-1]] = value


_READABLE: dict[tuple[Any, ...], bool] = {}


def _reads(data: Any, place: tuple[Any, ...]) -> bool:
    """Whether the snapshot is still valid; the same for all elements of a list."""
    kind = tuple("[]" if isinstance(key, int) else key for key in place)
    if kind not in _READABLE:
        try:
            parse(json.dumps(data).encode(), "facts.json")
        except SnapshotError:
            _READABLE[kind] = False
        else:
            _READABLE[kind] = True
    return _READABLE[kind]


def _policy(text: Text) -> str:
    written = [
        f"[[ignore]]\nrule = {json.dumps(rule)}\nreason = {_toml(text())}\n"
        f"until = 2099-01-01\nsubject = {_toml(text())}\n"
        for rule in ("flash-attn/not-installed", "python/no-venv")
    ]
    return f"allowed-gpus = [{_toml(text())}]\n" + "".join(written)


def _environment(root: Path, text: Text) -> None:
    """An environment with packages, paths and files that the attacker named."""
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    here = "\n".join(f"{name} = {text()}" for name in ("prompt", "command", "uv"))
    home = Path(sys.executable).parent
    (root / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.12.1\n{here}\n")
    packages = root / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for package in ("torch", "flash_attn", "xformers", "diffusers", "sageattention"):
        name = _name(text())
        info = packages / f"{package}-2.8.0+{name}.dist-info"
        info.mkdir(parents=True)
        described = f"Name: {package}\nVersion: 2.8.0+{text()}\nRequires-Dist: acme @ https://ada:{text()}@h/x\n"
        (info / "METADATA").write_text(described)
        (info / "INSTALLER").write_text(text())
        (info / "RECORD").write_text(f"{text()},sha256={text()},3\n")
        (info / "direct_url.json").write_text(json.dumps({"url": f"https://{text()}@x/{text()}"}))
        (packages / package).mkdir()
        (packages / package / "__init__.py").write_text(f"__version__ = {text()!r}\n")
        (packages / package / f"_C_{name}.so").write_bytes(b"\x7fELF" + text().encode())
        (packages / f"{name}.pth").write_text(f"/srv/{_name(text())}\n")
    (packages / "torch" / "version.py").write_text(f"__version__ = {text()!r}\ncuda = {text()!r}\n")


def _name(text: str) -> str:
    """The text as the name of a file."""
    return text.replace("/", "_").replace("\0", "")[:200]


def _toml(text: str) -> str:
    """A quoted text of TOML, which allows no control characters in it."""
    return '"' + "".join(one if one.isalnum() else f"\\U{ord(one):08x}" for one in text) + '"'


def _config(text: Text) -> dict[str, str]:
    return {
        "model_family": "flux", "model_type": text(), "attention_mechanism": "flex",
        "hub_token": text(), "output_dir": text(), "pretrained_model_name_or_path": text(),
    }  # fmt: skip


def _configs(text: Text) -> dict[str, str]:
    """Name → a configuration whose values an attacker chose."""

    def line() -> str:
        return text().replace("\0", "").replace("\r", "").replace("\n", " ")

    cells = [
        {"cell_type": "code", "source": f"!python main.py --use-sage-attention '{line()}'"},
        {"cell_type": "code", "source": f"pipe.set_attention_backend({text()!r})"},
    ]
    nodes = [
        {"id": 1, "type": "WanVideoModelLoader", "widgets_values": [text(), text(), "sageattn"]},
        {"id": 2, "type": "PathchSageAttentionKJ", "widgets_values": [text()], "title": text()},
    ]
    return {
        "run.bat": f"set A={line()}\npython main.py --use-sage-attention {line()}\n",
        "run.ps1": f"$a = '{line()}'\npython main.py --use-{line()} --use-sage-attention $a\n",
        "run.sh": f"export A='{line()}'\nvllm serve {line()} --attention-backend '{line()}'\n",
        "x.py": f"pipe.set_attention_backend({text()!r})\nx = {text()!r}\n",
        "x.ipynb": json.dumps({"cells": cells, "nbformat": 4}),
        "config.yaml": f"base_model: {json.dumps(text())}\nflash_attention: {json.dumps(text())}\n"
        "sdp_attention: true\nmicro_batch_size: 1\ndatasets: []\n",
        "docker-compose.yml": "services:\n  x:\n    image: vllm/vllm-openai\n"
        f"    environment:\n      VLLM_ATTENTION_BACKEND: {json.dumps(text())}\n"
        f"    command: {json.dumps(['--model', text(), '--attention-backend', text()])}\n",
        "Dockerfile": f"FROM x\nENV VLLM_ATTENTION_BACKEND='{line()}'\n"
        f"CMD {json.dumps(['vllm', 'serve', text(), '--attention-backend', text()])}\n",
        "workflow.json": json.dumps({"nodes": nodes, "links": [], "version": 0.4}),
    }


def _rules(root: Path, text: Text) -> None:
    """Rules of a policy, which the author of a pull request can bring."""
    (root / "acme").mkdir(parents=True)
    (root / "acme" / "x.toml").write_text(
        'schema = 1\nseverity = "error"\ncause = "package-not-installed"\n'
        'evidence = ["https://x"]\nchecked = 2026-11-23\n'
        "[when]\nall = ['torch.installed == true']\n"
        f"[text]\ntitle = {_toml(text())}\nwhy = {_toml(text())}\n"
        f"[[fix]]\ntitle = {_toml(text())}\nsafety = 'manual'\nmanual = {_toml(text())}\n"
        f"[[fix]]\ntitle = {_toml(text())}\nsafety = 'ask'\nrun = [['pip', {_toml(text())}]]\n"
    )


def _wheel(path: Path, text: Text) -> None:
    """A wheel whose files an attacker named."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4):
            name = f"x{number}/{text()}.so".replace("\0", "")
            archive.writestr(name, b"\x7fELF" + b"x" * 100)


def _installer(path: Path, text: Text) -> None:
    """A uv that prints what the attacker's index made it print."""
    path.parent.mkdir()
    said = "\n".join(text() for _ in range(5))
    path.with_suffix(".txt").write_text(f"error: {text()}\n{said}\n", "utf-8", "surrogateescape")
    path.write_text(f'#!/bin/sh\ncat "{path.with_suffix(".txt")}" >&2\nexit 1\n')
    path.chmod(0o755)


def _cache(root: Path, text: Text) -> Path:
    """A cache folder whose manifest the attacker wrote."""
    files = {}
    for number in range(3):
        name = f"fxgraph/ab/fab{number}/entry"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\x80\x04graph")
        files[name] = 7
        (root / "fxgraph" / _name(text())).mkdir(exist_ok=True)
        (root / "triton" / _name(text())).mkdir(parents=True, exist_ok=True)
        (root / _name(text())).touch()
    slots = [f"cuda:0 NVIDIA {text()}", "cpu"]
    build = Build(at="2026-11-21T10:00:00+00:00", seconds=3.0, files=files, verified=True,
                  limits=[text()], root=f"/srv/{text()}")  # fmt: skip
    entries = [
        Entry(
            spec=replace(_SPEC, mask=f"masks:{text()}"),
            device_slot=slot,
            state="built",
            build=build,
            message=text(),
            mask_folder=text(),
        )
        for slot in slots
    ]
    entries.append(
        Entry(spec=_SPEC, device_slot=slots[0], state="failed", message=text(), cause=text())
    )
    warmups = {
        f"{number:012x}": Warmup(
            argv=("python", f"/srv/{text()}.py", "--hub_token", text(), f"--name={text()}"),
            folder=f"/srv/{text()}", device_slot=slots[0], at=text(), seconds=1.0, files=files,
            verified=verified, message=text())
        for number, verified in enumerate((True, False))
    }  # fmt: skip
    fields = {one.name for one in msgspec.structs.fields(BuildEnvironment)} - {"sm"}
    here: dict[str, Any] = {
        name: {text(): text()} if name in ("environment", "settings") else text() for name in fields
    }
    manifest = Manifest(
        schema=1,
        attn_doctor="0.1.0",
        environments={slot: BuildEnvironment(**here) for slot in slots},
        entries={f"{one.spec.id}@{one.device_slot}": one for one in entries},
        warmups=warmups,
    )
    store.save(root, manifest)
    return root


def texts(*values: str) -> Text:
    """Give one value after another, for ever."""
    endless = itertools.cycle(values)
    return lambda: next(endless)
