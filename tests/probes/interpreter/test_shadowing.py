"""Modules in the way of a package."""

from __future__ import annotations

import json
from typing import Any

from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter.shadowing import HERE, shadowing_modules
from tests.probes.tree import machine

SITE = "/venv/lib/python3.12/site-packages"
CWD = "/home/ada/work"


def look(
    files: dict[str, str], *pythonpath: str, sites: tuple[str, ...] = (SITE,), **how: Any
) -> tuple[str, ...]:
    host = machine(files, cwd=CWD, **how)
    found = shadowing_modules(host, scan(host, sites, "/venv", Gaps()), pythonpath)
    return tuple(map(str, found))


def installed(*names: str, site: str = SITE) -> dict[str, str]:
    """Metadata of distributions such as `torch-2.9.0`."""
    return {f"{site}/{name}.dist-info/METADATA": "" for name in names}


def test_nothing() -> None:
    assert look({f"{CWD}/train.py": "", f"{CWD}/data/torch.txt": ""}) == ()


def test_a_module_in_the_working_directory() -> None:
    assert look({f"{CWD}/torch.py": ""}) == (f"{CWD}/torch.py ({HERE})",)


def test_a_clone_of_the_package_itself() -> None:
    """Running inside a clone of flash-attention imports its sources without the extension."""
    files = {f"{CWD}/flash_attn/__init__.py": "", **installed("flash_attn-2.8.3")}
    assert look(files) == (f"{CWD}/flash_attn ({HERE})",)


def test_a_folder_without_init_does_not_shadow() -> None:
    assert look({f"{CWD}/torch/notes.txt": ""}) == ()


def test_compiled_modules() -> None:
    name = "sageattention.cpython-312-x86_64-linux-gnu.so"
    assert look({f"{CWD}/{name}": ""}) == (f"{CWD}/{name} ({HERE})",)
    assert look({f"{CWD}/triton.pyc": "", f"{CWD}/triton.json": ""}) == (
        f"{CWD}/triton.pyc ({HERE})",
    )


def test_a_copy_under_another_name_does_not_shadow() -> None:
    assert look({f"{CWD}/torch.bak.py": "", f"{CWD}/torch.old.pyc": ""}) == ()


def test_pythonpath() -> None:
    assert look({"/opt/mine/numpy/__init__.py": ""}, "/opt/mine", "/gone", "") == (
        "/opt/mine/numpy (in PYTHONPATH)",
    )


def test_the_working_directory_on_pythonpath_is_named_once() -> None:
    assert look({f"{CWD}/torch.py": ""}, CWD) == (f"{CWD}/torch.py (in PYTHONPATH)",)


def test_safe_path() -> None:
    assert look({f"{CWD}/torch.py": ""}, env={"PYTHONSAFEPATH": "1"}) == ()


def test_an_installation_on_pythonpath_shadows_nothing() -> None:
    files = {"/opt/pt/torch/__init__.py": "", "/opt/pt/triton.py": ""}
    files |= installed("torch-2.9.0", site="/opt/pt")
    found = look(files, "/opt/pt", sites=("/opt/pt", SITE))
    assert found == ("/opt/pt/triton.py (in PYTHONPATH)",)


def test_a_development_install_of_this_folder_does_not_shadow() -> None:
    origin = {"dir_info": {"editable": True}, "url": f"file://{CWD}"}
    files = {f"{CWD}/simpletuner/__init__.py": "", **installed("simpletuner-4.1.0")}
    path = f"{SITE}/simpletuner-4.1.0.dist-info/direct_url.json"
    assert look({**files, path: json.dumps(origin)}) == ()
    # Another clone than the one that is installed, though its path begins alike
    elsewhere = {**origin, "url": f"file://{CWD}-old"}
    assert look({**files, path: json.dumps(elsewhere)}) == (f"{CWD}/simpletuner ({HERE})",)
    # A copy that was installed from here
    copied = {"dir_info": {}, "url": f"file://{CWD}"}
    assert look({**files, path: json.dumps(copied)}) == (f"{CWD}/simpletuner ({HERE})",)


def test_a_path_with_a_space() -> None:
    here = "/home/ada/my work"
    origin = json.dumps({"dir_info": {"editable": True}, "url": "file:///home/ada/my%20work"})
    path = f"{SITE}/diffusers-0.36.0.dist-info/direct_url.json"
    host = machine({f"{here}/diffusers/__init__.py": "", path: origin}, cwd=here)
    assert shadowing_modules(host, scan(host, (SITE,), "/venv", Gaps()), ()) == ()


def test_a_common_word_counts_only_where_the_package_is_installed() -> None:
    files = {f"{CWD}/kernels/__init__.py": ""}
    assert look(files) == ()
    assert look({**files, **installed("kernels-0.12.0")}) == (f"{CWD}/kernels ({HERE})",)


def test_a_file_hides_what_a_package_needs() -> None:
    """Not test.py, which no framework imports; and nothing in the working directory."""
    files = {
        f"/opt/mine/{name}": "" for name in ("inspect.py", "test.py", "html/__init__.py", "os.py")
    } | {"/opt/mine/tqdm.py": "", "/opt/mine/flask.py": "", f"{CWD}/inspect.py": ""}
    metadata = {
        f"{SITE}/diffusers-0.42.1.dist-info/METADATA": "Requires-Dist: tqdm\n",
        **installed("tqdm-4.67.1", "flask-3.1.2"),
    }
    found = look({**files, **metadata}, "/opt/mine", sites=("/opt/mine", SITE))
    assert found == tuple(
        f"/opt/mine/{name} (in PYTHONPATH)" for name in ("html", "inspect.py", "tqdm.py")
    )
