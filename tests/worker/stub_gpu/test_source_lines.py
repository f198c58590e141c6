"""The reported line is one of the user's own, also if a library read for it."""

from __future__ import annotations

import sysconfig
import threading
from typing import Any

import pytest

from attn_doctor.worker.stub_gpu import source_lines

PACKAGES = "/opt/env/lib/python3.12/site-packages"


def calling(*files: str) -> source_lines.Place:
    """The place that is reported when code of the first file calls code of the second, …"""
    found: list[source_lines.Place] = []
    inner: Any = lambda: found.append(source_lines.here())  # noqa: E731
    for file in reversed(files):
        scope = {"inner": inner}
        exec(compile("def call():\n    inner()\n", file, "exec"), scope)
        inner = scope["call"]
    # Without the frames of this test and of pytest beneath.
    thread = threading.Thread(target=inner)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(autouse=True)
def no_user_code_here(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_lines._kind
    monkeypatch.setattr(
        source_lines, "_kind", lambda file: "" if file == __file__ else before(file)
    )


def test_the_innermost_line_of_the_user_is_reported() -> None:
    place = calling("/home/me/train.py", "/home/me/model.py", f"{PACKAGES}/torch/_tensor.py")
    assert (place.file, place.line, place.library) == ("/home/me/model.py", 2, "")


def test_a_library_is_reported_with_the_line_that_called_it() -> None:
    library = f"{PACKAGES}/diffusers/models/flux.py"
    place = calling("/home/me/train.py", library, f"{PACKAGES}/torch/nn/module.py")
    assert str(place) == f"{library}:2, called from /home/me/train.py:2"


@pytest.mark.parametrize(
    "file",
    [
        f"{PACKAGES}/torch/_inductor/compile_fx.py",
        f"{PACKAGES}/triton/compiler/compiler.py",
        sysconfig.get_paths()["stdlib"] + "/contextlib.py",
        "<eval_with_key>.1",
        "<frozen importlib._bootstrap>",
    ],
)
def test_machinery_is_nobodys_line(file: str) -> None:
    assert calling("/home/me/train.py", file).file == "/home/me/train.py"


def test_what_runs_while_tracing_is_reported_before_the_line_that_compiles() -> None:
    dynamo = f"{PACKAGES}/torch/_dynamo/convert_frame.py"
    assert calling("/home/me/train.py", dynamo, "/home/me/scale.py").file == "/home/me/scale.py"
    assert calling("/home/me/train.py", dynamo, PACKAGES + "/torch/x.py").file == (
        "/home/me/train.py"
    )


def test_a_thread_without_any_line_is_put_down_to_the_main_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert calling(f"{PACKAGES}/torch/autograd/graph.py").file == __file__


def test_the_stack_that_torch_writes_into_a_graph() -> None:
    text = (
        '  File "/home/me/model.py", line 7, in forward\n    x = self.block(x)\n'
        f'  File "{PACKAGES}/torch/nn/functional.py", line 9, in linear\n    return mm\n'
    )
    assert source_lines.of_trace(text)[:2] == ("/home/me/model.py", 7)
