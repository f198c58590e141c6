"""Readers of foreign input: each gets bytes, and may only refuse them in its documented way.

`python -m tests.attacks.fuzz.targets TARGET --seconds 600` runs one for a time, on mutated seeds.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import random
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attn_doctor import json_files, rules_wheel, snapshot, toml_files
from attn_doctor.binaries import read as binaries
from attn_doctor.configs.readers import kinds
from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.engine import explain
from attn_doctor.fixes.journal import _lines
from attn_doctor.host.nvml_process import fold
from attn_doctor.kernels.bundle.artifact import head
from attn_doctor.record import store
from attn_doctor.record.manifest import NAME
from attn_doctor.wheels.ranges import WheelError
from attn_doctor.wheels.reading import read as wheel
from tests.attacks.fuzz import machine_targets, program_targets
from tests.attacks.fuzz.inputs import Target, put

#: How a reader refuses what it cannot use.
REFUSALS = (AttnDoctorError, json_files.JsonError, OSError, WheelError)


def _config(name: str) -> Target:
    return lambda path, data: kinds.read(put(path / name, data))


def _archive(name: str, content: bytes) -> bytes:
    """A wheel with one file, and its digest in RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, content, zipfile.ZIP_DEFLATED)
        archive.writestr("x-1.0.dist-info/RECORD", f"{name},sha256={digest},{len(content)}\n")
    return data.getvalue()


#: Name → reader and a valid input, which is mutated.
TARGETS: dict[str, tuple[Target, bytes]] = {
    "toml": (
        lambda path, data: toml_files.read_toml(put(path / "x.toml", data)),
        b'[a.b]\nc = ["x", 1, 2.5, {d = 1979-05-27}]\n[[e]]\nf = """\ntext"""\n',
    ),
    "manifest": (
        lambda path, data: (put(path / NAME, data), store.load(path)),
        b'{"schema": 1, "attn_doctor": "0.1.0", "entries": {}, "environments": {}}',
    ),
    "snapshot": (
        lambda _, data: snapshot.parse(data, "x"),
        b'{"schema": 1, "torch": {"version": "2.9.0"}, "gpus": [{"name": "x", "sm": 90}]}',
    ),
    "journal": (
        lambda path, data: list(_lines(put(path / "journal.jsonl", data))),
        b'{"event": "start", "time": 1.5}\n{"event": "file", "path": "/x", "sha256": ""}\n',
    ),
    "shell": (
        _config("train.sh"),
        b"export A=x\nB+=$A\ntrain --model_family flux \\\n --x '${A:-b}'\n",
    ),
    "env": (
        _config("config.env"),
        b'MODEL_FAMILY="flux"\nexport A+=b\nTRAINER_EXTRA_ARGS="--a b"\n',
    ),
    "json": (_config("config.json"), b'{"--model_family": "flux", "x": [1, "2", null, 1.5e3]}'),
    "python": (_config("x.py"), b"import diffusers\npipe(width=1, height=2)\nx.backward()\n"),
    "log": (
        lambda path, data: explain([str(put(path / "x.log", data))], ()),
        b'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: x\n{"log":"a"}\n',
    ),
    "library": (
        lambda path, data: binaries.binary(str(put(path / "x.so", data))),
        Path(sys.executable).resolve().read_bytes()[:4096],
    ),
    "artifact": (
        lambda path, data: head(put(path / "x.tgz", data)),
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
    ),
    "archive of a wheel": (
        lambda path, data: wheel(str(put(path / "x-1.0-py3-none-any.whl", data)), gpu_code=True),
        _archive("x/_C.so", Path(sys.executable).resolve().read_bytes()[:4096]),
    ),
    "wheel of rules": (
        lambda path, data: rules_wheel._unpack(put(path / "rules.whl", data), path / "out"),
        _archive("attn_doctor_rules/x.toml", b'title = "x"\n'),
    ),
    "compressed log": (
        lambda path, data: explain([str(put(path / "x.log.gz", data))], ()),
        gzip.compress(b"RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n" * 40),
    ),
    "nvml": (
        lambda _, data: fold(data.decode("utf-8", "replace")),
        b'{"key": "count", "value": 1}\n',
    ),
    "config in TOML": (
        _config("config.toml"),
        b'model_family = "flux"\nattention_mechanism = "flex"\n[a]\nb = [1, 2.5, "x"]\n',
    ),
    **machine_targets.targets(),
    **program_targets.targets(),
}
#: Targets of which an input takes ten milliseconds.
SLOW = (
    *("machine", "metadata", "wheel", "record", "direct url", "torch version", "pth"),
    *program_targets.SLOW,
)
#: Pieces that readers stumble over.
_PIECES = (
    *(b"\0", b"\xff", b"\\ud800", b"[" * 2000, b"{" * 2000, b"9" * 5000, b"1e999", b"\r", b"\n"),
    *(b'"', b"'", b"\\", b"=", b"$", b"${", b"../", b"\xe2\x80\xae", b"\x1b[31m", b"a." * 300),
)


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """`seed` with a few changes: a turned bit, a cut, a copy, a hostile piece."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at, end = sorted(chance.randint(0, len(data)) for _ in range(2))
        match chance.randrange(4):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case _:
                data[at:at] = chance.choice(_PIECES)
    return bytes(data)


def inputs(name: str, start: int = 0) -> Iterator[bytes]:
    """Mutated inputs for a target without end; the same each time."""
    chance = random.Random(f"{name} {start}")
    while True:
        yield mutated(TARGETS[name][1], chance)


def attempt(name: str, folder: Path, data: bytes) -> None:
    """Give `data` to a target. Anything but a documented refusal is raised."""
    with suppress(*REFUSALS):
        TARGETS[name][0](folder, data)


def main() -> None:
    """Run one target, and print the number of inputs and the first that fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=600, help="of processor time")
    asked = parser.parse_args()
    end, number = time.thread_time() + asked.seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        for data in inputs(asked.target, 1):
            try:
                attempt(asked.target, Path(folder), data)
            except Exception:
                print(f"input {number}: {data[:500]!r}")
                raise
            number += 1
            if time.thread_time() > end:
                break
    print(f"{asked.target}: {number} inputs, no failure")


if __name__ == "__main__":
    main()
