"""The newest and four older sets of packages, as an index gives them, are called sound.

Each is really installed, examined and imported; `pytest -m sources tests/probes/test_stock_sets.py`
needs a package index, some 10 GB and ten minutes. An error is right only where the import fails.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.sources,
    pytest.mark.skipif(sys.platform != "linux", reason="the sets are those of Linux"),
]
#: Installed without a version, so that the installer chooses what fits torch.
BESIDE = ("torchvision", "torchaudio", "torchao", "xformers", "diffusers", "transformers",
          "accelerate", "bitsandbytes")  # fmt: skip
#: Package → the statement that shows whether it works, where that is more than an import.
WORKS = {
    "diffusers": "import diffusers.models.attention_dispatch",
    "transformers": "import transformers.modeling_utils",
    "xformers": "from xformers._cpp_lib import _cpp_library_load_exception as error;"
                "assert error is None",
}  # fmt: skip
#: The set of today, then older ones with the releases of their time, where a newer one does not
#: declare which torch it needs.
SETS = (
    ("torch",),
    ("torch==2.12.1", "torchaudio==2.11.0"),
    ("torch==2.9.1", "torchaudio==2.9.1", "torchao==0.14.1"),
    ("torch==2.7.1", "torchaudio==2.7.1", "torchao==0.12.0"),
    ("torch==2.6.0", "torchaudio==2.6.0", "torchao==0.9.0"),
)


def install(root: Path, packages: tuple[str, ...]) -> Path:
    """Return the interpreter of a new environment with these packages."""
    python = root / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(root)], check=True)
    uv = shutil.which("uv")
    pip = (
        [uv, "pip", "install", "--python", str(python)] if uv else [python, "-m", "pip", "install"]
    )
    subprocess.run([*pip, "-q", *packages], check=True, timeout=1800)
    return python


def fails(python: Path, package: str) -> bool:
    """Whether a package fails after torch was imported; xformers goes on without its library."""
    code = f"import torch; {WORKS.get(package, f'import {package}')}"
    return (
        subprocess.run(
            [python, "-W", "ignore", "-c", code], capture_output=True, check=False, timeout=600
        ).returncode
        != 0
    )


@pytest.mark.parametrize("pins", SETS, ids=lambda pins: pins[0])
def test_a_stock_set_has_no_error(pins: tuple[str, ...], tmp_path: Path) -> None:
    named = {pin.partition("=")[0] for pin in pins}
    python = install(tmp_path / "env", (*pins, *(one for one in BESIDE if one not in named)))
    try:
        broken = {one for one in ("torch", *BESIDE) if fails(python, one)}
        ran = subprocess.run(
            [sys.executable, "-m", "attn_doctor", "check", "--json", "--timeout", "60",
             "--python", str(python), "--config", "none", "--policy", "none"],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        result = json.loads(ran.stdout)
        errors = [one for one in result["problems"] if one["severity"] == "error"]
        # A machine without a GPU has no error of its own; a toolkit may have some.
        ours = [one for one in errors if not one["rule"].startswith(("toolkit/", "driver/"))]
        said = " ".join(f"{one['title']} {one['subject']}" for one in ours)
        assert bool(ours) is bool(broken), (said, broken)
        assert not broken or any(one in said for one in broken), (said, broken)
        assert ran.returncode == (1 if errors else 0)
    finally:
        shutil.rmtree(tmp_path / "env", ignore_errors=True)
