"""Open, read and replace files. The code is in `worker.files`, because workers need it too."""

from attn_doctor.worker.files import (
    DATA,
    TEXT,
    is_file,
    is_folder,
    make_folders,
    open_binary,
    open_file,
    read_bytes,
    read_lines,
    read_text,
    replacing,
    sync,
    write_atomic,
)

__all__ = [
    "DATA",
    "TEXT",
    "is_file",
    "is_folder",
    "make_folders",
    "open_binary",
    "open_file",
    "read_bytes",
    "read_lines",
    "read_text",
    "replacing",
    "sync",
    "write_atomic",
]
