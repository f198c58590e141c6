"""Files that a user names, where something else than a file is there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from attn_doctor.cli.output_file import write_new
from attn_doctor.errors import AttnDoctorError


@pytest.mark.posix
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_is_written_to_and_stays(tmp_path: Path, overwrite: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_new({path: "text\n"}, overwrite=overwrite)
        assert os.read(reader, 100) == b"text\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(os.name != "nt", reason="a fault would replace the device of this machine")
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_null_device_takes_it(overwrite: bool) -> None:
    write_new({Path(os.devnull): "text\n"}, overwrite=overwrite)
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError):
        write_new({tmp_path: "text\n"}, overwrite=True)
    assert tmp_path.is_dir()
