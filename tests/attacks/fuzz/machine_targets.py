"""Targets that need more than one file: environments, caches, records, answers of machines."""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from attn_doctor.binaries import read as binaries
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.errors import ExaminationError
from attn_doctor.examination import examine
from attn_doctor.facts import Facts
from attn_doctor.fixes import distributions as installed
from attn_doctor.fixes.journal import _sum, runs
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost
from attn_doctor.kernels.caches import integrity
from attn_doctor.kernels.caches.contents import TRASH
from attn_doctor.kernels.caches.removal import LIST
from attn_doctor.kernels.caches.survey import CacheLocation, survey
from attn_doctor.kernels.caches.trash import trashed
from attn_doctor.kernels.gpus import known
from attn_doctor.policy import baseline, policy
from attn_doctor.probes import distributions
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import packages, torch
from attn_doctor.probes.interpreter import layout
from attn_doctor.record import key_parts, lock, store
from attn_doctor.record.manifest import NAME
from attn_doctor.render.fix.text import history_text
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook import rule_files
from tests.attacks.fuzz.inputs import MACHINE, TESTS, Target, put
from tests.attacks.hostile import _cache, texts


def _installed(name: str) -> Target:
    """All probes of packages, with a metadata file of one package that holds the input."""

    def target(folder: Path, data: bytes) -> object:
        for package in ("torch", "flash_attn", "xformers"):
            info = folder / f"{package}-2.8.0.dist-info"
            put(info / "METADATA", f"Name: {package}\nVersion: 2.8.0\n".encode())
            put(folder / package / "__init__.py", b"")
        put(folder / name, data)
        host, gaps = LocalHost(), Gaps()
        site = distributions.scan(host, (str(folder),), str(folder), gaps, python="3.12.1")
        for one in site.distributions.all:
            site.distributions.damage(one)
        installed.owners(str(folder), str(folder))
        installed.installed_by([str(folder)])
        return packages.read(host, site, gaps), torch.read(host, site, gaps)

    return target


def _environment(folder: Path, data: bytes) -> object:
    put(folder / "bin" / "python3.12", b"")
    put(folder / "pyvenv.cfg", data)
    return layout.torch_of(LocalHost(), str(folder / "bin" / "python3.12"))


def _library(folder: Path, data: bytes) -> object:
    path = str(put(folder / "_C.so", data))
    found = binaries.binary(path), binaries.versions(path), binaries.gpu_code(path)
    return found, LocalHost().unresolved({path: [path]})


def _cached(name: str) -> Target:
    """What `cache status` and `cache verify --no-verify` read, with an entry that is the input."""

    def target(folder: Path, data: bytes) -> object:
        put(folder / name, data)
        kind: Any = "triton" if "/triton/" in f"/{name}" else "inductor"
        root = folder / "triton" if kind == "triton" else folder
        found = survey(CacheLocation(kind, str(root), "default"), Facts())
        return integrity.check(found, Facts()), trashed(str(folder))

    return target


@cache
def _manifest() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return (_cache(Path(folder), texts("text")) / NAME).read_bytes()


def _record(folder: Path, data: bytes) -> object:
    put(folder / NAME, data)
    manifest = store.load(folder)
    found = survey(CacheLocation("inductor", str(folder), "default"), Facts())
    return manifest and key_parts.known_keys(manifest, folder), integrity.check(found, Facts())


def _owner(folder: Path, data: bytes) -> object:
    return lock._seen(put(folder / "lock.1", data).parent)


def _journal(folder: Path, data: bytes) -> object:
    """A journal whose lines carry the right sums: only their content is odd."""
    lines = []
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
            found["sum"] = _sum(found)
            lines.append(json.dumps(found).encode())
        except (ValueError, TypeError, AttributeError, RecursionError):
            lines.append(line)
    put(folder / "attn-doctor" / "fixes" / "x" / "journal.jsonl", b"\n".join([*lines, b""]))
    found_runs = runs({"XDG_STATE_HOME": str(folder)})
    return history_text(found_runs, Terminal(width=80)), [one.state for one in found_runs]


def _rule(folder: Path, data: bytes) -> object:
    return rule_files.read_rule(put(folder / "rules" / "a" / "b.toml", data), folder / "rules")


@cache
def _answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MACHINE / "host.json").read_bytes())
    return found


@cache
def _texts() -> tuple[str, ...]:
    """The questions whose answers others write."""
    kinds = ("read ", "head ", "grep ", "list ", "run ", "versions ", "binary ")
    return tuple(
        name for name, kept in _answers().items() if name.startswith(kinds) and "answer" in kept
    )


def _machine(_: Path, data: bytes) -> object:
    """A recorded machine with odd texts, as the input decides: of files, programs and folders."""
    chance = random.Random(data)
    answers = dict(_answers())
    for name in chance.sample(_texts(), chance.randint(1, 3)):
        text = data.decode("utf-8", "replace")
        answers[name] = {"answer": _odd(answers[name]["answer"], chance, text)}
    python = next(name for name in answers if name.startswith("inside ")).partition(" ")[2]
    try:
        facts = examine(RecordedHost(answers), python)
    except ExaminationError as error:
        return str(error)
    failed = [why for why in facts.gaps.values() if "probe failed" in why]
    if failed:
        raise AssertionError(failed[0])
    return diagnosis_of(facts)


def _odd(value: Any, chance: random.Random, text: str) -> Any:
    """A value of the same type: texts are turned, lists lose and repeat elements."""
    if isinstance(value, str):
        at = chance.randint(0, len(value))
        return value[:at] + chance.choice((text, "", "\n", "\0", "9" * 5000)) + value[at + 3 :]
    if isinstance(value, list):
        changed = [_odd(one, chance, text) if chance.random() < 0.2 else one for one in value]
        return chance.choice((changed, changed * 2, changed[:1], []))
    if isinstance(value, dict):
        return {name: _odd(one, chance, text) for name, one in value.items()}
    return value


def _pe() -> bytes:
    """The head of a Windows library with one import."""
    head = bytearray(0x400)
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 0x3C, 0x80)
    head[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<HHIIIHH", head, 0x84, 0x8664, 1, 0, 0, 0, 0xF0, 0x2022)
    struct.pack_into("<H", head, 0x98, 0x20B)
    struct.pack_into("<I", head, 0x98 + 108, 16)
    struct.pack_into("<II", head, 0x98 + 120, 0x1000, 40)
    head[0x188:0x190] = b".rdata\0\0"
    struct.pack_into("<IIII", head, 0x190, 0x200, 0x1000, 0x200, 0x200)
    struct.pack_into("<IIIII", head, 0x200, 0x1028, 0, 0, 0x1040, 0x1028)
    head[0x240:0x24D] = b"KERNEL32.dll\0"
    return bytes(head)


_METADATA = b"""Metadata-Version: 2.1
Name: torch
Version: 2.9.0+cu128
Requires-Dist: triton (==3.5.0) ; platform_system == "Linux" and python_version >= '3.9'
Requires-Python: >=3.10

text
"""
_JOURNAL = b"""{"event": "start", "time": 1.5, "command": ["pip", "install", "x"], "version": 1}
{"event": "step", "number": 1, "title": "x", "path": "/x", "kept": "file-1"}
{"event": "recorded", "label": "plan", "digest": "00"}
{"event": "end", "result": "done", "time": 2}
"""
_PICKLE = b"\x80\x04\x95\x08\0\0\0\0\0\0\0\x8c\x04text\x94."
_CLEARING = b'{"at": "2026-01-01T00:00:00Z", "files": {"a": 0}, "kind": "inductor"}'
_OWNER = b'{"host": "x", "pid": 1, "started": 1.0, "boot": "", "since": "", "token": ""}'
_POLICY = b"""fail-on = "error"
[minimum]
torch = "2.8"
[[ignore]]
rule = "a/b"
reason = "x"
until = 2099-01-01
"""
_FATBINS = TESTS / "binaries" / "fatbins"


def targets() -> dict[str, tuple[Target, bytes]]:
    """Name → reader and a valid input."""
    info = "torch-2.8.0.dist-info"
    group = b'{"child_paths": {"k.json": "/x/k.json", "k.cubin": "/x/k.cubin"}}'
    kernel = b'{"name": "k", "target": {"backend": "cuda", "arch": 90}, "hash": "x"}'
    rule = next((TESTS.parent / "rules").glob("flash*/*.toml")).read_bytes()
    return {
        "metadata": (_installed(f"{info}/METADATA"), _METADATA),
        "wheel": (
            _installed(f"{info}/WHEEL"),
            b"Wheel-Version: 1.0\nTag: cp312-cp312-any\n",
        ),
        "record": (_installed(f"{info}/RECORD"), b'torch/__init__.py,sha256=abc,12\n"a,b",,\n'),
        "direct url": (
            _installed(f"{info}/direct_url.json"),
            b'{"url": "https://x/y.whl", "vcs_info": {"vcs": "git", "commit_id": "0"}}',
        ),
        "torch version": (
            _installed("torch/version.py"),
            b"__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n",
        ),
        "pth": (_installed("x.pth"), b"import x; x.y()\n/srv/other\n../z\n# comment\n"),
        "pyvenv": (_environment, b"home = /usr/bin\ninclude-system-site-packages = true\n"),
        "pe": (_library, _pe()),
        "elf": (_library, (_FATBINS / "linked.so").read_bytes()),
        "fatbin": (_library, (_FATBINS / "plain.so").read_bytes()),
        "graph": (
            _cached("fxgraph/ab/fab/entry"),
            _PICKLE,
        ),
        "timings": (
            _cached("ab/cab.best_config"),
            b'{"XBLOCK": 32, "configs_hash": "0"}',
        ),
        "kernel": (_cached("triton/" + "A" * 52 + "/k.json"), kernel),
        "group": (_cached("triton/" + "A" * 52 + "/__grp__k.json"), group),
        "trash": (
            _cached(f"{TRASH}/1/{LIST}"),
            _CLEARING,
        ),
        "record of kernels": (_record, _manifest()),
        "lock": (
            _owner,
            _OWNER,
        ),
        "journal lines": (_journal, _JOURNAL),
        "policy": (
            lambda folder, data: policy.read(put(folder / "attn-doctor.toml", data)),
            _POLICY,
        ),
        "baseline": (
            lambda folder, data: baseline.read(put(folder / "x.json", data)),
            b'{"schema": 1, "problems": [{"rule": "a/b", "subject": "x"}]}',
        ),
        "rule": (_rule, rule),
        "gpu descriptor": (
            lambda folder, data: known.read(put(folder / "x.json", data)),
            msgspec.json.encode(known.listing()[0]),
        ),
        "machine": (_machine, b"text of an attacker"),
    }
