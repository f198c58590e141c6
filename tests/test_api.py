"""The functions for programs find what the commands find, and print nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import attn_doctor
from attn_doctor.errors import AttnDoctorError
from tests.command import run

ROOT = Path(__file__).parents[1]
H200 = ROOT / "tests" / "machines" / "h200-torch-2.11-cu130" / "facts.json"
LOG = (
    "ImportError: flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol:"
    " _ZN3c104cuda9SetDeviceEi"
)


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d\d s\b", "… s", text)


def test_check_says_what_the_command_says() -> None:
    result = attn_doctor.check(facts=H200)
    assert timeless(str(result)) == timeless(run("check", "--facts", str(H200)).stdout)
    assert result.facts.torch.version == "2.11.0+cu130"
    assert result.ok == (run("check", "--facts", str(H200)).returncode == 0)
    assert re.fullmatch(r"<attn_doctor check: .+>", repr(result))


def test_backends_says_what_the_command_says() -> None:
    result = attn_doctor.backends(facts=H200)
    assert str(result) == run("backends", "--facts", str(H200)).stdout
    assert result.matrix.framework == "diffusers"
    assert "native" in result.ready("training")
    answer = result.answer("sage", "training")
    assert answer.reasons[0].text
    assert repr(result) == "<attn_doctor backends of Diffusers: use native>"


def test_explain_says_what_the_command_says() -> None:
    result = attn_doctor.explain(LOG, machine=False)
    assert timeless(str(result)) == timeless(run("explain", LOG, "--no-probe").stdout)
    assert result.cause is not None
    assert result.cause.rule == "flash/built-for-other-torch"
    assert attn_doctor.explain("", machine=False).cause is None


def test_a_backend_that_is_not_ready_raises() -> None:
    attn_doctor.assert_backend("native", for_="training", facts=H200)
    with pytest.raises(attn_doctor.BackendNotReady, match=r"(?s)flash.+training.+fix: "):
        attn_doctor.assert_backend("flash", for_="training", facts=H200)


@pytest.mark.parametrize(
    "call",
    [
        lambda: attn_doctor.check(facts="missing.json"),
        lambda: attn_doctor.check(facts=H200, python=sys.executable),
        lambda: attn_doctor.check(facts=H200, pretend=["gpu=nothing"]),
        lambda: attn_doctor.backends("flahs", facts=H200),
        lambda: attn_doctor.backends(facts=H200, framework="keras"),
        lambda: attn_doctor.backends(facts=H200, for_="test"),  # type: ignore[arg-type]
        lambda: attn_doctor.backends(facts=H200, masks=["round"]),  # type: ignore[list-item]
        lambda: attn_doctor.backends(facts=H200).answer("flash", "training", "float"),
        lambda: attn_doctor.explain(LOG, facts="missing.json"),
    ],
)
def test_bad_input_is_one_sentence(call: object) -> None:
    assert callable(call)
    with pytest.raises(AttnDoctorError) as raised:
        call()
    assert len(str(raised.value).splitlines()) == 1


def test_rich_shows_it_as_wide_as_the_terminal() -> None:
    stream = StringIO()
    console = Console(file=stream, width=50, force_terminal=True, color_system="standard")
    console.print(attn_doctor.explain(LOG, machine=False))
    shown = stream.getvalue()
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "flash-attn's extension does not load with the installed torch" in " ".join(
        plain.split()
    )
    assert max(map(len, plain.splitlines())) <= 50


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    attn_doctor.check()
    attn_doctor.backends("flash", facts=H200)
    attn_doctor.explain(LOG, machine=False)
    assert capfd.readouterr() == ("", "")


def test_the_import_is_light() -> None:
    program = (
        "import sys, attn_doctor; before = set(sys.modules); from attn_doctor.explain import"
        " explanation; print(callable(attn_doctor.explain), *(name for name in before if"
        " name.startswith('attn_doctor') or name in ('msgspec', 'typer', 'rich')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(shown.stdout.split()) == {"True", "attn_doctor", "attn_doctor._version"}


def test_the_page_about_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2
    assert capsys.readouterr().out
