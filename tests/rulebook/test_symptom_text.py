"""The frame that a symptom asks for."""

import pytest

from attn_doctor.rulebook.frames import Frame
from attn_doctor.rulebook.rule import Symptom
from attn_doctor.rulebook.symptom_text import is_raised_by


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
