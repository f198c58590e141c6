"""A server on the loopback device that sends parts of files, with a fault if one is asked for."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

Fault = Literal[
    "",
    "no ranges",
    "cut",
    "other part",
    "no size",
    "slow",
    "slow head",
    "grows",
    "redirect",
    "gone",
]


class Served(ThreadingHTTPServer):
    """The server with its folder, its fault, and the bytes of files that it has sent."""

    daemon_threads = True
    folder = Path()
    fault: Fault = ""
    sent = 0

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Served

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Send the part that is asked for."""
        fault = self.server.fault
        if fault == "slow head":
            self._send(b"HTTP/1.1 206 " + b"x" * 1000)
            return
        if fault == "redirect" and not self.path.startswith("/real/"):
            self.send_response(302)
            self.send_header("Location", f"/real{self.path}")
            self.end_headers()
            return
        path = self.server.folder / unquote(self.path.removeprefix("/real").lstrip("/"))
        if fault == "gone" or not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if fault == "no ranges" or wanted is None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self._send(data)
            return
        if wanted[1]:
            first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        else:
            first, last = max(0, len(data) - int(wanted[2])), len(data) - 1
        piece = data[first : last + 1]
        if fault == "other part":
            first, last = first + 1, last + 1
        size = len(data) + (self.server.sent if fault == "grows" else 0)
        self.send_response(206)
        self.send_header("Content-Length", str(len(piece)))
        if fault != "no size":
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        self._send(piece[: len(piece) // 2] if fault == "cut" else piece)

    def _send(self, piece: bytes) -> None:
        try:
            if self.server.fault.startswith("slow"):
                for one in piece:
                    self.wfile.write(bytes([one]))
                    self.server.sent += 1
                    time.sleep(0.05)
            else:
                self.server.sent += len(piece)
                self.wfile.write(piece)
        except OSError:
            pass  # the client has left


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve the files of a folder."""
    with Served(("127.0.0.1", 0), Handler) as server:
        server.folder = folder
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)
