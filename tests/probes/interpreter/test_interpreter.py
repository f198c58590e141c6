"""Which interpreter is examined, what is said of it, and the sentence where it cannot be."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.errors import ExaminationError
from attn_doctor.facts import Python
from attn_doctor.host import Host
from attn_doctor.host.local import LocalHost
from attn_doctor.probes import distributions
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter import Chosen, choose, describe
from attn_doctor.probes.interpreter.choice import pick, to_install_into
from tests.probes.pythons import examinable, make_venv, pythons, too_old
from tests.probes.tree import machine

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX paths")
OURS = "/opt/tools/attn-doctor/bin/python"
VENV = "/home/ada/venv"
PROJECT = "/home/ada/project"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell in which nothing is active, in an empty folder."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the interpreter that runs these tests."""
    folder = tmp_path_factory.mktemp("made") / "env"
    make_venv(Path(sys.executable), folder)
    return folder


def examine(host: Host, python: str = "") -> tuple[Python, Gaps, Chosen]:
    gaps = Gaps()
    chosen = choose(host, python)
    site = distributions.scan(host, chosen.site_packages, chosen.prefix, gaps, chosen.plain)
    return describe(host, chosen, site, gaps), gaps, chosen


def sentence(host: Host, python: str = "") -> str:
    with pytest.raises(ExaminationError) as caught:
        choose(host, python)
    return str(caught.value)


def chosen_on(**how: Any) -> tuple[str, str]:
    """Path and reason of the choice on a machine with a few environments."""
    places = (VENV, "/opt/conda", "/opt/conda/envs/train", f"{PROJECT}/.venv")
    programs = [f"{place}/bin/python" for place in places]
    files = {f"{PROJECT}/.venv/pyvenv.cfg": "home = /usr/bin\n"}
    host = machine(files, programs=[*programs, *how.pop("programs", ())], python=OURS, **how)
    choice = pick(host, "")
    return choice.path, choice.why


# The order


def test_nothing_active() -> None:
    assert chosen_on(cwd="/srv") == (OURS, "runs attn-doctor")


def test_an_active_venv_is_chosen() -> None:
    active = {"VIRTUAL_ENV": VENV, "CONDA_PREFIX": "/opt/conda/envs/train"}
    assert chosen_on(env=active, cwd=PROJECT) == (f"{VENV}/bin/python", "VIRTUAL_ENV is set")


def test_an_active_conda_environment_precedes_a_folder() -> None:
    active = {"CONDA_PREFIX": "/opt/conda/envs/train", "CONDA_DEFAULT_ENV": "train"}
    expected = ("/opt/conda/envs/train/bin/python", "CONDA_PREFIX is set")
    assert chosen_on(env=active, cwd=PROJECT) == expected


def test_the_base_of_conda_does_not_precede_a_folder() -> None:
    active = {"CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "base"}
    here = (f"{PROJECT}/.venv/bin/python", ".venv in the working directory")
    assert chosen_on(env=active, cwd=PROJECT) == here
    assert chosen_on(env=active, cwd="/srv") == ("/opt/conda/bin/python", "CONDA_PREFIX is set")


def test_a_conda_environment_without_python_is_skipped() -> None:
    active = {"CONDA_PREFIX": "/opt/conda/envs/cuda", "CONDA_DEFAULT_ENV": "cuda"}
    programs = ["/opt/conda/envs/cuda/bin/nvcc"]
    assert chosen_on(env=active, programs=programs, cwd="/srv") == (OURS, "runs attn-doctor")


def test_a_venv_further_up() -> None:
    expected = (f"{PROJECT}/.venv/bin/python", f".venv in {PROJECT}")
    assert chosen_on(cwd=f"{PROJECT}/src/deep", folders=[f"{PROJECT}/src/deep"]) == expected


def test_the_environment_of_a_pixi_project() -> None:
    root = f"{PROJECT}/.pixi/envs/default"
    files = {f"{root}/conda-meta/history": ""}
    found = machine(files, programs=[f"{root}/bin/python"], python=OURS, cwd=PROJECT)
    assert pick(found, "").path == f"{root}/bin/python"


def test_what_is_installed_goes_into_the_environment_of_the_project() -> None:
    """Also where that has no torch, and another Python on PATH has."""
    files = {f"{PROJECT}/.venv/pyvenv.cfg": "home = /usr/bin\n"}
    programs = [f"{place}/bin/python" for place in (VENV, f"{PROJECT}/.venv")]

    def place(**how: Any) -> str:
        return to_install_into(machine(files, programs=programs, python=OURS, **how))

    assert place(cwd=PROJECT) == f"{PROJECT}/.venv"
    assert place(cwd=PROJECT, env={"VIRTUAL_ENV": VENV}) == ""
    assert place(cwd="/srv") == ""


def test_the_search_ends_at_the_home_directory() -> None:
    files = {"/home/.venv/pyvenv.cfg": ""}
    host = machine(files, programs=["/home/.venv/bin/python"], cwd=PROJECT, python=OURS)
    assert pick(host, "").why == "runs attn-doctor"
    host = machine(files, programs=["/home/.venv/bin/python"], cwd="/home/eve", python=OURS)
    assert pick(host, "").why == ".venv in /home"


def test_a_foreign_venv_is_not_started() -> None:
    files = {"/tmp/.venv/pyvenv.cfg": ""}
    how: dict[str, Any] = {"programs": ["/tmp/.venv/bin/python"], "python": OURS}
    assert pick(machine(files, cwd="/tmp/x", **how), "").why == ".venv in /tmp"
    how["foreign"] = ["/tmp/.venv"]
    for cwd in ("/tmp/x", "/tmp"):
        with pytest.raises(ExaminationError, match=r"belongs to bob.* --allow-foreign /tmp/.venv"):
            pick(machine(files, cwd=cwd, **how), "")
    named = machine(files, cwd="/tmp", **how)
    assert pick(named, "/tmp/.venv").why == "--python"


def test_a_folder_named_venv_without_a_configuration_is_skipped() -> None:
    host = machine(programs=["/srv/.venv/bin/python"], cwd="/srv", python=OURS)
    assert pick(host, "").why == "runs attn-doctor"


@pytest.mark.posix
def test_dots_in_a_path_are_resolved_unless_they_follow_a_link(tmp_path: Path) -> None:
    for name in ("one/work", "two/venv/bin", "one/venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "two/work").symlink_to(tmp_path / "one/work")
    for name in ("one", "two"):
        (tmp_path / name / "venv/bin/python").symlink_to(sys.executable)
    plain = str(tmp_path / "one/venv/bin/python")
    assert pick(LocalHost(), str(tmp_path / "one/work/../venv")).path == plain
    # This one leads to one/venv, where the text alone would lead to two/venv.
    linked = f"{tmp_path}/two/work/../venv/bin/python"
    assert pick(LocalHost(), linked).path == linked


def test_a_script_in_a_found_venv_is_not_started() -> None:
    files = {"/srv/.venv/pyvenv.cfg": "", "/srv/.venv/bin/python": "#!/bin/sh\necho other\n"}
    host = machine(files, programs=["/srv/.venv/bin/python"], cwd="/srv", python=OURS)
    with pytest.raises(ExaminationError, match=r"^/srv/\.venv: .* is a script"):
        pick(host, "")


def test_windows() -> None:
    programs = [r"C:\ai\venv\Scripts\python.exe", r"C:\ai\python_embeded\python.exe"]
    host = machine(os="windows", env={"VIRTUAL_ENV": r"C:\ai\venv"}, programs=programs)
    assert pick(host, "").path == programs[0]
    assert pick(host, r"C:\ai\python_embeded").path == programs[1]
    # The folder that ComfyUI portable is unpacked to.
    assert pick(host, r"C:\ai").path == programs[1]
    assert pick(host, r"C:\ai\python_embeded\python.exe").path == programs[1]


def test_a_name_is_looked_up_on_path() -> None:
    programs = ["/usr/bin/python3.12", "/usr/local/bin/python3.12"]
    host = machine(programs=programs, env={"PATH": "/usr/local/bin:/usr/bin"})
    assert pick(host, "python3.12").path == "/usr/local/bin/python3.12"
    assert pick(host, "3.12").path == "/usr/local/bin/python3.12"


def test_a_name_may_be_a_folder_here() -> None:
    host = machine(programs=[f"{VENV}/bin/python3"], env={"PATH": "/usr/bin"})
    for spelled in ("venv", "./venv", "~/venv", VENV, "venv/bin/python3"):
        assert pick(host, spelled).path == f"{VENV}/bin/python3"


def test_our_own_path_may_be_unknown() -> None:
    assert "--python PATH" in sentence(machine(python=""))


# Real environments


@posix
def test_an_activated_environment_is_examined(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(env))
    python, gaps, chosen = examine(LocalHost())
    assert python.selection_reason == "VIRTUAL_ENV is set"
    assert python.path == str(env / "bin" / "python")
    assert python.prefix == chosen.prefix == str(env)
    assert python.environment == "venv"
    assert python.version == "{}.{}.{}".format(*sys.version_info)
    assert python.site_packages == chosen.site_packages
    assert [str(env)] == [str(Path(p).parents[2]) for p in chosen.site_packages]
    assert python.site_packages_writable is True
    assert python.externally_managed is False
    assert (python.pip, python.created_by_uv, python.user_site) == ("", False, "")
    assert (python.pythonpath, python.shadowing_modules) == ((), ())
    assert (python.invalid_distributions, python.pth_code, python.distribution_count) == ((), (), 0)
    assert gaps.reasons == {}


def test_our_own_environment() -> None:
    python, gaps, _ = examine(LocalHost())
    assert python.selection_reason == "runs attn-doctor"
    assert python.path == sys.executable
    assert python.prefix == sys.prefix
    assert python.base_prefix == sys.base_prefix
    assert (python.distribution_count or 0) >= 3
    hidden = {"python.site_packages_writable"} if os.name == "nt" else set()
    assert gaps.reasons.keys() == hidden
    unknown = {
        f"python.{name}" for name in Python.__struct_fields__ if getattr(python, name) is None
    }
    assert unknown <= {"python.minor", *hidden}, "all but the derived facts are known"


@posix
def test_a_venv_in_the_working_directory(env: Path) -> None:
    Path(".venv").symlink_to(env)
    python, _, _ = examine(LocalHost())
    assert python.selection_reason == ".venv in the working directory"
    assert python.prefix == str(Path.cwd() / ".venv")


@posix
@pytest.mark.parametrize("version", examinable())
def test_every_version_is_described(version: str) -> None:
    path = pythons()[version]
    python, _, _ = examine(LocalHost(), str(path))
    assert python.version == version
    assert python.selection_reason == "--python"
    assert python.environment in ("system", "venv", "conda")
    assert python.abi == "cp" + "".join(version.split(".")[:2]) + "t" * bool(python.free_threaded)
    include = Path(python.include or "")
    assert python.headers == (str(include / "Python.h") if include.exists() else "")


@posix
def test_a_shim_is_replaced_by_its_interpreter(env: Path, tmp_path: Path) -> None:
    shim = tmp_path / "python3.99"
    write(shim, f'#!/bin/sh\nexec "{env}/bin/python" "$@"\n')
    python, _, _ = examine(LocalHost(), str(shim))
    assert python.path == str(env / "bin" / "python")


@posix
def test_an_environment_created_by_uv(env: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(env, copy, symlinks=True)
    config = copy / "pyvenv.cfg"
    config.write_text(config.read_text() + "uv = 0.9.9\nprompt = x\n")
    assert examine(LocalHost(), str(copy))[0].created_by_uv is True


@posix
def test_packages_on_pythonpath(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `module load pytorch` on a cluster: the packages count, `.pth` files there do not."""
    folder = tmp_path / "modules"
    (folder / "torch-2.9.0+cu129.dist-info").mkdir(parents=True)
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").touch()
    (folder / "x.pth").write_text("import os\n")
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{tmp_path / 'plain'}")
    python, _, chosen = examine(LocalHost(), str(env))
    assert chosen.site_packages[0] == str(folder)
    assert len(chosen.site_packages) == 2
    assert chosen.plain == (str(folder),)
    assert python.pythonpath == (str(folder), str(tmp_path / "plain"))
    assert (python.distribution_count, python.pth_code, python.shadowing_modules) == (1, (), ())


@posix
def test_an_empty_entry_of_pythonpath_is_the_working_directory(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ":lib")
    Path("torch.py").touch()
    python, _, _ = examine(LocalHost(), str(env))
    here = Path.cwd()
    assert python.pythonpath == (str(here), str(here / "lib"))
    assert python.shadowing_modules == (f"{here}/torch.py (in PYTHONPATH)",)
    assert (python.shadowing_here, python.pythonpath_kept) == (False, str(here / "lib"))
    # The module is looked at, but nothing is installed there.
    assert str(here) not in (python.site_packages or ())


@posix
def test_a_repeated_folder_counts_once(env: Path) -> None:
    """Fedora's `lib64` is a link to `lib`, and both are on the import path."""
    host = LocalHost()
    answer = dict(host.inside(str(env / "bin" / "python"), 10.0))
    first = answer["site_packages"][0]
    link = env / "lib64x"
    link.symlink_to(env / "lib")
    answer["site_packages"] = [str(link / Path(first).relative_to(env / "lib")), first]

    class Fedora(LocalHost):
        def ask(self, question: str, *args: Any) -> Any:
            return answer if question == "inside" else super().ask(question, *args)

    assert choose(Fedora(), str(env)).site_packages == tuple(answer["site_packages"][:1])
    link.unlink()


@posix
def test_unreadable_site_packages_leave_gaps(env: Path) -> None:
    chosen = choose(LocalHost(), str(env))
    gaps = Gaps()
    gaps.add("python.distribution_count", "/x cannot be read: Permission denied")
    site = distributions.scan(LocalHost(), (), chosen.prefix, Gaps())
    python = describe(LocalHost(), chosen, site, gaps)
    for name in (
        "distribution_count",
        "invalid_distributions",
        "pth_code",
    ):
        assert getattr(python, name) is None
        assert gaps.reasons[f"python.{name}"] == "/x cannot be read: Permission denied"


# Recorded environments

ANSWER = {
    "outcome": "done",
    "version": "3.11.2",
    "implementation": "cpython",
    "abi": "cp311",
    "free_threaded": False,
    "debug": False,
    "executable": "/usr/bin/python3",
    "prefix": "/usr",
    "base_prefix": "/usr",
    "pyvenv": "",
    "include": "/usr/include/python3.11",
    "platinclude": "/usr/include/x86_64-linux-gnu/python3.11",
    "stdlib": "/usr/lib/python3.11",
    "purelib": "/usr/local/lib/python3.11/dist-packages",
    "scripts": "/usr/local/bin",
    "user_site": "/home/ada/.local/lib/python3.11/site-packages",
    "reads_pythonpath": True,
    "site_packages": ["/usr/lib/python3/dist-packages"],
}


def recorded(files: dict[str, str], path: str = "/usr/bin/python3", **how: Any) -> Python:
    """The facts on a machine whose interpreter at `path` says `ANSWER`, changed by `said`."""
    answer = {**ANSWER, "executable": path, **how.pop("said", {})}
    answers = {f"inside {path}": {"answer": answer}}
    programs = [path, *how.pop("programs", ())]
    return examine(machine(files, programs=programs, answers=answers, **how), path)[0]


def test_debian() -> None:
    python = recorded(
        {
            "/usr/lib/python3.11/EXTERNALLY-MANAGED": "[externally-managed]\n",
            "/usr/include/x86_64-linux-gnu/python3.11/Python.h": "",
            "/usr/lib/python3/dist-packages/pip-23.0.1.dist-info/METADATA": "",
        },
        locked=["/usr", "/"],
    )
    assert python.environment == "system"
    assert python.externally_managed is True
    assert python.headers == "/usr/include/x86_64-linux-gnu/python3.11/Python.h"
    assert python.pip == "23.0.1"
    assert python.site_packages_writable is False
    assert python.user_site == ""


def test_a_fixed_path_has_no_working_directory() -> None:
    """Python reads neither PYTHONPATH nor the working directory beside a `._pth` file."""
    files = {"/home/ada/work/torch.py": ""}
    for reads, count in ((True, 1), (False, 0)):
        python = recorded(files, said={"reads_pythonpath": reads}, cwd="/home/ada/work")
        assert len(python.shadowing_modules or ()) == count


def test_a_venv_is_not_externally_managed() -> None:
    said = {"pyvenv": f"{VENV}/pyvenv.cfg", "prefix": VENV}
    files = {"/usr/lib/python3.11/EXTERNALLY-MANAGED": "", f"{VENV}/pyvenv.cfg": "home = /usr/bin"}
    python = recorded(files, f"{VENV}/bin/python", said=said)
    assert (python.environment, python.externally_managed) == ("venv", False)


def test_conda() -> None:
    said = {"prefix": "/opt/conda", "include": "/opt/conda/include/python3.11"}
    folders = ["/opt/conda/conda-meta"]
    python = recorded({}, "/opt/conda/bin/python", said=said, folders=folders)
    assert (python.environment, python.headers) == ("conda", "")


def test_torch_for_the_python_before_an_upgrade() -> None:
    """Not where this Python has a torch too."""
    old, new = (f"{VENV}/lib/python3.{minor}/site-packages" for minor in (10, 11))
    said = {"pyvenv": f"{VENV}/pyvenv.cfg", "prefix": VENV, "site_packages": [new]}
    files = {f"{VENV}/pyvenv.cfg": "home = /usr/bin", f"{old}/torch/__init__.py": ""}
    assert recorded(files, f"{VENV}/bin/python", said=said).unread_torch == old
    files[f"{new}/torch/__init__.py"] = ""
    assert recorded(files, f"{VENV}/bin/python", said=said).unread_torch == ""


def test_pythonhome() -> None:
    """The place of the base Python, as in a virtual environment of it, changes nothing."""
    said = {"pyvenv": f"{VENV}/pyvenv.cfg", "prefix": VENV}
    files = {f"{VENV}/pyvenv.cfg": "home = /usr/bin"}
    for home, found in (("/opt/tool", "/opt/tool"), ("/usr", ""), ("", "")):
        env = {"PYTHONHOME": home}
        python = recorded(files, f"{VENV}/bin/python", said=said, env=env)
        assert python.foreign_home == found


@pytest.mark.parametrize(("folder", "found"), [("lib64", "PYTHONPLATLIBDIR"), ("lib", "")])
def test_pythonplatlibdir(folder: str, found: str) -> None:
    env = {"PYTHONPLATLIBDIR": folder}
    assert recorded({}, "/usr/bin/python", env=env).foreign_variable == found


def test_user_site() -> None:
    user = ANSWER["user_site"]
    python = recorded({}, said={"site_packages": [user, "/usr/lib/python3/dist-packages"]})
    assert python.user_site == user


@pytest.mark.parametrize(
    ("programs", "path", "expected"),
    [
        (["/home/ada/.cargo/bin/uv"], "/usr/bin", "/home/ada/.cargo/bin/uv"),
        (["/home/ada/.local/bin/uv", "/snap/bin/uv"], "/snap/bin", "/snap/bin/uv"),
        (["/usr/local/bin/uv"], "", "/usr/local/bin/uv"),
        ([], "/usr/bin", ""),
    ],
)
def test_uv(programs: list[str], path: str, expected: str) -> None:
    assert recorded({}, programs=programs, env={"PATH": path}).uv == expected


def test_on_windows_write_access_to_site_packages_is_unknown() -> None:
    path = r"C:\Python312\python.exe"
    said = {"purelib": r"C:\Python312\Lib\site-packages", "executable": path}
    answers = {f"inside {path}": {"answer": {**ANSWER, **said}}}
    host = machine(os="windows", programs=[path], answers=answers)
    python, gaps, _ = examine(host, path)
    assert python.site_packages_writable is None
    assert "Windows" in gaps.reasons["python.site_packages_writable"]


# What cannot be examined


def write(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@posix
def test_nothing_there(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "python"
    text = sentence(LocalHost(), str(path))
    assert text.startswith(f"--python {path}: {path} does not exist; ")
    assert text.endswith("with --python PATH")
    assert "\n" not in text


def test_a_name_that_does_not_exist() -> None:
    assert "no such program on PATH" in sentence(LocalHost(), "python3.99")


def test_a_folder_without_interpreter(tmp_path: Path) -> None:
    assert f"there is no Python interpreter in {tmp_path}" in sentence(LocalHost(), str(tmp_path))


@posix
def test_a_file_that_is_not_a_program(tmp_path: Path) -> None:
    path = write(tmp_path / "bin" / "python", "", mode=0o644)
    assert "may not be executed by this user" in sentence(LocalHost(), str(path))


@posix
@pytest.mark.parametrize("name", ["train.py", "run_python.py", "ls", "notes.txt"])
def test_something_else_is_not_even_started(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, f"#!/bin/sh\ntouch {tmp_path}/started\n")
    assert "is not a Python interpreter" in sentence(LocalHost(), str(path))
    assert not (tmp_path / "started").exists()


@posix
@pytest.mark.skipif(not Path("/bin/ls").exists(), reason="needs /bin/ls")
def test_another_program_under_the_name_of_python(tmp_path: Path) -> None:
    path = tmp_path / "python3"
    shutil.copy("/bin/ls", path)
    assert "is not a working Python interpreter; it answered" in sentence(LocalHost(), str(path))


@posix
def test_a_text_file_under_the_name_of_python(tmp_path: Path) -> None:
    path = write(tmp_path / "python3", "hello\n")
    text = sentence(LocalHost(), str(path))
    assert text.count(str(path)) == 2
    assert "cannot be started (Exec format error)" in text


@posix
def test_a_script_whose_program_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "python3", "#!/nowhere/sh\n")
    assert "a program it needs is missing" in sentence(LocalHost(), str(path))


@posix
def test_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "python")
    assert "is not a file" in sentence(LocalHost(), str(tmp_path / "python"))


@posix
def test_an_interpreter_that_hangs(tmp_path: Path) -> None:
    class Hasty(LocalHost):
        def ask(self, question: str, *args: Any) -> Any:
            args = (args[0], 0.2) if question == "inside" else args
            return super().ask(question, *args)

    path = write(tmp_path / "python3", "#!/bin/sh\nsleep 60\n")
    assert "did not answer within 3 s" in sentence(Hasty(), str(path))


@posix
def test_an_interpreter_that_crashes_says_why(tmp_path: Path) -> None:
    noise = "echo 'Could not find platform independent libraries' >&2"
    fatal = "echo 'Fatal Python error: init_fs_encoding: no codec' >&2"
    path = write(tmp_path / "python3", f"#!/bin/sh\n{noise}\n{fatal}\nexit 1\n")
    assert "it answered 'Fatal Python error: init_fs" in sentence(LocalHost(), str(path))


@posix
@pytest.mark.parametrize("version", too_old())
def test_an_old_python(version: str) -> None:
    text = sentence(LocalHost(), str(pythons()[version]))
    assert f"is Python {version}; attn-doctor examines Python 3.8 and newer" in text


def test_python_2() -> None:
    ran = {"outcome": "done", "code": 2, "err": "Unknown option: -I\nusage: python [option]"}
    answers = {"inside /usr/bin/python": {"answer": ran}}
    host = machine(programs=["/usr/bin/python"], answers=answers)
    assert "/usr/bin/python is Python 2; " in sentence(host, "/usr/bin/python")


@posix
def test_a_venv_without_its_base(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to("/gone/python3.11")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /gone\n")
    for spelled in (tmp_path / "env", tmp_path / "env" / "bin" / "python"):
        text = sentence(LocalHost(), str(spelled))
        assert f"{tmp_path}/env/bin/python leads to /gone/python3.11, which does not exist" in text
        assert "create the environment again, or give another" in text


@posix
def test_a_copied_venv_without_its_base(tmp_path: Path) -> None:
    write(tmp_path / "env" / "bin" / "python", "#!/bin/sh\nexit 1\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /gone/bin\n")
    assert "created from the Python in /gone/bin, which does not exist" in sentence(
        LocalHost(), str(tmp_path / "env")
    )


@posix
def test_a_stale_virtual_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "gone"))
    text = sentence(LocalHost())
    assert text.startswith(f"VIRTUAL_ENV={tmp_path}/gone: ")
    assert "run `deactivate`, or give another" in text


@posix
def test_a_stale_conda_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "gone"))
    assert "run `conda deactivate`, or" in sentence(LocalHost())


def test_a_base_behind_a_locked_folder() -> None:
    path = f"{VENV}/bin/python"
    host = machine(programs=[path], answers={f"stat {path}": {"error": "EACCES"}})
    assert f"{path} cannot be reached (" in sentence(host, VENV)
