"""A file system that stops to answer, as NFS does when its server is gone. Needs root and FUSE."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from pathlib import Path

#: Numbers of requests: include/uapi/linux/fuse.h.
_FORGET, _GETATTR, _INIT, _BATCH_FORGET = 2, 3, 26, 42
_HEADER = struct.Struct("<IIQQIIII")
_DETACH = 2


class Hung:
    """A file system at `path` that knows its top folder only, until `hang` is called.

    Afterwards every question to it waits for ever. `close` ends the waiting. Raises `OSError` if it
    cannot be mounted.
    """

    def __init__(self, path: Path, *, hang: bool = True) -> None:
        self.path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={self._file},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self._libc.mount(b"hung", os.fsencode(path), b"fuse", 0, options):
            os.close(self._file)
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        self._stopped = threading.Event()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        if hang:
            self.hang()

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._stopped.set()
        self._server.join()

    def close(self) -> None:
        """Unmount it. Processes that still wait get an error."""
        self.hang()
        self._libc.umount2(os.fsencode(self.path), _DETACH)
        os.close(self._file)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        while not self._stopped.is_set():
            if poll.poll(20):
                self._answer(os.read(self._file, 1 << 17))

    def _answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = _HEADER.unpack_from(request)
        if opcode in (_FORGET, _BATCH_FORGET):
            return
        fault, body = 0, b""
        if opcode == _INIT:
            body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 1 << 16, 1, 0, 0, 0)
        elif opcode == _GETATTR and node == 1:
            attributes = struct.pack(
                "<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40777, 2, 0, 0, 0, 4096, 0
            )
            body = struct.pack("<QII", 0, 0, 0) + attributes
        else:
            fault = errno.ENOENT if opcode == 1 else errno.ENOSYS
        os.write(self._file, struct.pack("<IiQ", 16 + len(body), -fault, unique) + body)
