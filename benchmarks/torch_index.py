"""A package index on the loopback device that has PyTorch's builds, as far as the tables list them.

    python benchmarks/torch_index.py FOLDER

It stands in for https://download.pytorch.org/whl where that cannot be reached, to ask an installer
whether a plan of `install` resolves; nothing can be installed from it. The names of the files are
made from the tables. What each requires is what pip reports of the same release on PyPI, kept in
FOLDER, without NVIDIA's libraries, which differ by CUDA. Every other package is PyPI's. A wheel of
a GitHub release, asked for under `/github.com/`, is one that requires torch alone.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from attn_doctor.derived.torch_wheels import is_built
from attn_doctor.facts import Facts, System
from attn_doctor.rulebook import library

TABLES = library.tables()
_PLATFORMS = {
    ("linux", "x86_64"): "manylinux_2_28_x86_64",
    ("linux", "aarch64"): "manylinux_2_28_aarch64",
    ("windows", "x86_64"): "win_amd64",
}
_OWN = ("torch", "torchvision", "torchaudio", "xformers", "flash-attn-3")
_NVIDIA = re.compile(r"(nvidia|cuda)-")


class Index(ThreadingHTTPServer):
    """The server; `folder` keeps what pip reported."""

    daemon_threads = True
    folder = Path()

    @property
    def url(self) -> str:
        """The address to give as `--torch-index`."""
        return f"http://127.0.0.1:{self.server_port}/whl"


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """Serve until the block ends."""
    with Index(("127.0.0.1", 0), _Handler) as server:
        server.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer with a list of files, the metadata of one, or a wheel."""
        path = unquote(self.path)
        file = path.endswith((".whl", ".metadata"))
        if not file and (match := re.fullmatch(r"/whl/(\w+)/([\w.-]+)/?", path)):
            index, name = match.groups()
            if name not in _OWN:
                self.send_response(302)
                self.send_header("Location", f"https://pypi.org/simple/{name}/")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            lines = [_link(index, file) for file in files(name, index)]
            self._send("<!DOCTYPE html><html><body>" + "\n".join(lines) + "</body></html>")
        elif path.endswith(".whl.metadata"):
            self._send(metadata(path.rpartition("/")[2], self.server.folder), "text/plain")
        elif path.endswith(".whl"):
            self._wheel(wheel(path.rpartition("/")[2], self.server.folder))
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 (the name that the server calls)

    def _send(self, text: str, kind: str = "text/html") -> None:
        self._answer(200, text.encode(), {"Content-Type": kind})

    def _wheel(self, data: bytes) -> None:
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if match is None:
            self._answer(200, data, {"Accept-Ranges": "bytes"})
            return
        first, last = match.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1 if first and last else len(data), len(data))
        span = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}", "Accept-Ranges": "bytes"}
        self._answer(206, data[start:end], span)

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


def _link(index: str, file: str) -> str:
    return f'<a href="/files/{index}/{quote(file)}" data-core-metadata="true">{file}</a><br>'


@cache
def files(name: str, index: str) -> tuple[str, ...]:
    """Names of the files of a package on one of PyTorch's indexes, such as `cu130`."""
    if name == "xformers":
        return tuple(_xformers(index))
    if name == "flash-attn-3":
        lines = (library.folder() / "tables/wheels/PyTorch.tsv").read_text("utf-8").splitlines()
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        return tuple(
            f"flash_attn_3-{row[1]}-{row[6]}-{row[5]}.whl" for row in rows if row[2] == index
        )
    return tuple(
        f"{name}-{version}{f'+{index}'}-{tag}-{tag}-{platform}.whl"
        for row in TABLES["torch"]["release"]
        for release in row["pins"]
        for version in _beside(name, release)
        for platform in _torch_platforms(row, index)
        for tag in _tags(row["python"])
    )


def _beside(name: str, torch: str) -> Iterator[str]:
    """Versions of a package that came with a release of torch: their numbers go together."""
    _, minor, patch = torch.split(".")
    if name == "torch":
        yield torch
    elif name == "torchvision":
        # 0.29.1 and 0.29.2 accept later releases of torch.
        yield f"0.{int(minor) + 15}.{patch}" if int(minor) < 15 else "0.29.2"
    elif int(minor) <= int(TABLES["companions"]["torchaudio"]["last"].split(".")[1]):
        yield torch


def _torch_platforms(row: Any, index: str) -> Iterator[str]:
    for (os, arch), platform in _PLATFORMS.items():
        cuda = f"{index[2:-1]}.{index[-1]}"
        facts = Facts(system=System(os=os, arch=arch))
        if index == "cpu" or (cuda in row["cuda"] and is_built(row, cuda, facts)):
            yield platform


def _tags(pythons: Any) -> Iterator[str]:
    oldest, newest = (int(one.split(".")[1]) for one in pythons)
    yield from (f"cp3{minor}" for minor in range(oldest, newest + 1))


def _xformers(index: str) -> Iterator[str]:
    cuda = f"{index[2:-1]}.{index[-1]}"
    for row in TABLES["xformers"]["release"]:
        one_for_all = len(row["python"]) == 1
        tags = ["cp39-abi3"] if one_for_all else [f"{tag}-{tag}" for tag in _tags(row["python"])]
        for tag in tags:
            if cuda in row["cuda"]:
                yield f"xformers-{row['version']}-{tag}-manylinux_2_28_x86_64.whl"
            if cuda in row.get("windows", row["cuda"]):
                yield f"xformers-{row['version']}-{tag}-win_amd64.whl"


def metadata(file: str, folder: Path) -> str:
    """The METADATA of a file of this server."""
    name, version = file.removesuffix(".metadata").split("-")[:2]
    needs = requires(name.replace("_", "-"), version.partition("+")[0], folder)
    lines = "".join(f"Requires-Dist: {one}\n" for one in needs)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"


def requires(name: str, version: str, folder: Path) -> list[str]:
    """What a release requires, by PyPI; of xformers by the tables, and torch alone for others."""
    if name == "xformers":
        row = next(one for one in TABLES["xformers"]["release"] if one["version"] == version)
        return [f"torch{row['torch']}", "numpy"]
    if name not in ("torch", "torchvision", "torchaudio"):
        return ["torch"]
    kept = folder / f"{name}-{version}.json"
    if not kept.exists():
        found = _reported(name, version, folder)
        kept.write_text(json.dumps([one for one in found if not _NVIDIA.match(one)]))
    return list(json.loads(kept.read_text()))


def _reported(name: str, version: str, folder: Path) -> list[str]:
    """Ask pip, which reads the metadata of the wheel and downloads nothing else."""
    report = folder / f"{name}-{version}.report"
    argv = [
        sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--ignore-installed",
        "--no-deps", "--only-binary", ":all:", "--target", str(folder / "none"), "--quiet",
        "--report", str(report), "--python-version", "3.12", f"{name}=={version}",
    ]  # fmt: skip
    for platform in ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1"):
        argv += ["--platform", f"{platform}_x86_64"]
    subprocess.run(argv, check=True, timeout=600, stderr=subprocess.DEVNULL)
    (item,) = json.loads(report.read_text())["install"]
    report.unlink()
    return list(item["metadata"].get("requires_dist", ()))


def wheel(file: str, folder: Path) -> bytes:
    """A wheel that has metadata alone."""
    name, version = file.split("-")[:2]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        tags = file.removesuffix(".whl").split("-", 2)[2]
        base = f"{name}-{version}.dist-info"
        archive.writestr(f"{base}/METADATA", metadata(file, folder))
        archive.writestr(f"{base}/WHEEL", f"Wheel-Version: 1.0\nTag: {tags}\n")
        archive.writestr(f"{base}/RECORD", "")
    return data.getvalue()


def ask_all(folder: Path) -> None:
    """Ask pip about every release beforehand."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in TABLES["torch"]["release"]:
        for torch in row["pins"]:
            for name in ("torch", "torchvision", "torchaudio"):
                for version in _beside(name, torch):
                    print(name, version, requires(name, version, folder), flush=True)


if __name__ == "__main__":
    with serving(Path(sys.argv[1])) as running:
        print(running.url, flush=True)
        ask_all(Path(sys.argv[1]))
        threading.Event().wait()
