"""The frame and the words that a symptom asks for."""

import pytest

from attn_doctor.rulebook.frames import Frame
from attn_doctor.rulebook.rule import Symptom
from attn_doctor.rulebook.symptom_text import is_raised_by, one_blank


@pytest.mark.parametrize(
    ("path", "raised"),
    [
        ("/usr/lib/python3/dist-packages/vllm/config.py", True),
        ("/work/vllm/config.py", True),
        ("/opt/vllm/lib/python3.12/site-packages/peft/config.py", False),
        ("C:/vllm/Lib/site-packages/peft/config.py", False),
    ],
)
def test_the_folder_of_the_environment_is_no_package(path: str, raised: bool) -> None:
    symptom = Symptom(pattern="failed", frame="/vllm/")
    assert is_raised_by(symptom, Frame(path, "1", "load", "")) == raised


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/home/u/envs/vllm/lib/python3.12/site-packages/peft", "/home/u/envs/env/lib/python3.12"),
        ("/work/flash-attention/.venv/lib64/python3.11/site-packages/x", "/work/env/.venv/lib64"),
        (r"D:\xformers\Lib\site-packages\peft", r"D:\env\Lib\site-packages\peft"),
        ("/opt/vllm/lib64/python3.12/site-packages/torch", "/opt/vllm/lib64"),
        (r"C:\ComfyUI\python_embeded\Lib\site-packages\torch", r"python_embeded\Lib"),
        ("/work/vllm/vllm/config.py", "/work/vllm/vllm/config.py"),
    ],
)
def test_the_folder_of_an_environment_has_no_name(path: str, read: str) -> None:
    assert read in one_blank(f'  File "{path}",\n  line 1')
