"""`--format NAME[:FILE]`: what it takes, and where the text goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from attn_doctor.cli.check.formats import Output, deliver, outputs
from attn_doctor.errors import AttnDoctorError

KNOWN = ("text", "json", "sarif")


def test_one_screen_and_many_files() -> None:
    assert outputs([], KNOWN) == (Output("text"),)
    asked = outputs(["text", "json:out.json", "sarif:C:\\ci\\a.sarif"], KNOWN)
    assert asked[1:] == (Output("json", "out.json"), Output("sarif", "C:\\ci\\a.sarif"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["jsno"], "no format 'jsno'; did you mean json?"),
        (["xml"], "choose from text, json, sarif"),
        (["json:"], "names no file: write json:FILE"),
        (["text", "json"], "text and json would both go to standard output"),
    ],
)
def test_what_it_does_not_take(given: list[str], sentence: str) -> None:
    with pytest.raises(typer.BadParameter, match=sentence):
        outputs(given, KNOWN)


@pytest.mark.symlinks
def test_files_are_written_whole_and_links_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    deliver((Output("text"), Output("json", str(link))), lambda one: f"<{one.name}>\n")
    assert capsys.readouterr().out == "<text>\n"
    assert real.read_text() == "<json>\n"
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real.json"]


def test_a_device_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    deliver((Output("json", os.devnull),), lambda _: "x")
    assert capsys.readouterr().out == ""
    assert not Path(os.devnull).is_file()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError, match=r"written: the folder .*no does not"):
        deliver((Output("json", str(tmp_path / "no" / "x.json")),), lambda _: "x")
