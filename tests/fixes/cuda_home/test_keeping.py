"""Start files and activation hooks: written for real, read by real shells, undone."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts, Python, System
from attn_doctor.facts.kinds import PythonEnvironment
from attn_doctor.fixes.cuda_home import marked_block
from attn_doctor.fixes.cuda_home.start_files import FileChanges, append, file_changes, write
from attn_doctor.fixes.journal import begin
from attn_doctor.shell.exports import Exports
from attn_doctor.shell.quote import Shell
from tests.shells import UTF8, path_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="written for POSIX shells")
EXPORTS = Exports(variables={"CUDA_HOME": "/o p", "CUDA_PATH": "/o p"}, path="/o p/bin")
OTHER = Exports(variables={"CUDA_HOME": "/new", "CUDA_PATH": "/new"})


def facts(prefix: Path | None = None, kind: PythonEnvironment = "system") -> Facts:
    python = Python(path="/usr/bin/python3", prefix=str(prefix or "/usr"), environment=kind)
    return Facts(python=python, system=System(os="linux"))


def kept(
    tmp_path: Path, found: Facts, kind: str, shell: Shell = "bash", exports: Exports = EXPORTS,
    **more: str,
) -> FileChanges:  # fmt: skip
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **more}
    return file_changes(found, exports, shell, environ, kind)


def write_it(tmp_path: Path, wanted: FileChanges) -> None:
    with begin({"HOME": str(tmp_path)}, title="test") as journal:
        write(wanted, journal)


def run(shell: str, script: str, home: Path, **variables: str) -> list[str]:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LC_ALL": UTF8, **variables}
    ran = subprocess.run(
        [path_of(shell), "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


# Start files


@pytest.mark.parametrize(
    ("shell", "name"),
    [("bash", ".bashrc"), ("zsh", ".zshrc"), ("sh", ".profile"),
     ("fish", ".config/fish/config.fish"),
     ("powershell", ".config/powershell/Microsoft.PowerShell_profile.ps1")],
)  # fmt: skip
def test_a_start_file_is_made_renewed_and_kept(tmp_path: Path, shell: Shell, name: str) -> None:
    wanted = kept(tmp_path, facts(), "auto", shell)
    assert wanted.kind == "shell"
    assert [one.path for one in wanted.changes] == [tmp_path / name]
    write_it(tmp_path, wanted)
    first = (tmp_path / name).read_bytes()
    assert b"/o p" in first
    assert not kept(tmp_path, facts(), "auto", shell).changes[0].needed
    write_it(tmp_path, kept(tmp_path, facts(), "auto", shell, OTHER))
    second = (tmp_path / name).read_bytes()
    assert b"/o p" not in second
    assert second.count(marked_block.NAME.encode() + b" >>>") == 1


def test_the_rest_of_a_start_file_and_its_mode_stay(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    file.write_bytes(b"alias a=b\nexport B=1")
    file.chmod(0o600)
    write_it(tmp_path, kept(tmp_path, facts(), "shell"))
    assert file.read_bytes().startswith(b"alias a=b\nexport B=1\n\n# >>>")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "CUDA_HOME=/o p" in run("bash", f". {file}; env", tmp_path)


def test_a_linked_start_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "bashrc"
    real.parent.mkdir()
    real.write_text("# mine\n")
    (tmp_path / ".bashrc").symlink_to(real)
    wanted = kept(tmp_path, facts(), "shell")
    assert wanted.changes[0].real == real
    write_it(tmp_path, wanted)
    assert (tmp_path / ".bashrc").is_symlink()
    assert real.read_bytes().startswith(b"# mine\n\n# >>> attn-doctor")


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").symlink_to(tmp_path / "gone")
    with pytest.raises(AttnDoctorError, match="which does not exist; create that file"):
        kept(tmp_path, facts(), "shell")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").mkdir()
    with pytest.raises(AttnDoctorError, match="cannot be read: Is a directory"):
        kept(tmp_path, facts(), "shell")


@pytest.mark.skipif(os.name != "nt" and os.getuid() != 0, reason="only root gives files away")
def test_someone_elses_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    file.write_text("theirs\n")
    os.chown(file, 65534, 65534)
    with pytest.raises(AttnDoctorError, match="belongs to user 65534, not to you"):
        kept(tmp_path, facts(), "shell")
    assert file.read_text() == "theirs\n"


@pytest.mark.skipif(os.name != "nt" and os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    with pytest.raises(AttnDoctorError, match="in a folder you may not write to"):
        kept(home, facts(), "shell")


def test_no_home(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError, match="HOME is not set"):
        file_changes(facts(), EXPORTS, "bash", {}, "shell")


def test_a_file_that_changed_since_it_was_shown_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    file.write_text("one\n")
    wanted = kept(tmp_path, facts(), "shell")
    file.write_text("two\n")
    with pytest.raises(AttnDoctorError, match="was changed in the meantime"):
        write_it(tmp_path, wanted)
    assert file.read_text() == "two\n"


# Virtual environments


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "fish"])
def test_activation_sets_and_deactivation_gives_back(tmp_path: Path, shell: str) -> None:
    prefix = tmp_path / "an env"
    venv.create(prefix, symlinks=True)
    wanted = kept(tmp_path, facts(prefix, "venv"), "auto")
    assert wanted.kind == "environment"
    assert any("activate.csh" in note for note in wanted.notes)
    write_it(tmp_path, wanted)
    assert not any(one.needed for one in kept(tmp_path, facts(prefix, "venv"), "auto").changes)
    file = prefix / "bin" / ("activate.fish" if shell == "fish" else "activate")
    script = f". '{file}'; env; echo -----; deactivate; env"
    for before in ({}, {"CUDA_HOME": "/mine", "CUDA_PATH": ""}):
        output = run(shell, script, tmp_path, **before)
        inside, outside = output[: output.index("-----")], output[output.index("-----") + 1 :]
        assert "CUDA_HOME=/o p" in inside
        assert "CUDA_PATH=/o p" in inside
        assert f"PATH=/o p/bin:{prefix}/bin:/usr/bin:/bin" in inside
        assert "PATH=/usr/bin:/bin" in outside
        left = dict(line.split("=", 1) for line in outside if line.startswith("CUDA_"))
        assert left == before


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_what_the_user_set_since_is_kept(tmp_path: Path, shell: str) -> None:
    prefix = tmp_path / "env"
    venv.create(prefix, symlinks=True)
    write_it(tmp_path, kept(tmp_path, facts(prefix, "venv"), "environment"))
    name, assign = ("activate.fish", "set -gx CUDA_HOME /user") if shell == "fish" else (
        "activate", "export CUDA_HOME=/user"
    )  # fmt: skip
    output = run(shell, f". {prefix}/bin/{name}; {assign}; deactivate; env", tmp_path)
    assert "CUDA_HOME=/user" in output
    assert not any(line.startswith("CUDA_PATH") for line in output)


def test_activating_under_set_e_and_set_u_works(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    venv.create(prefix, symlinks=True)
    write_it(tmp_path, kept(tmp_path, facts(prefix, "venv"), "environment"))
    script = f"set -eu; . {prefix}/bin/activate; . {prefix}/bin/activate; deactivate; echo fine"
    assert run("bash", script, tmp_path) == ["fine"]


def test_a_signed_script_is_left_alone(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "Activate.ps1").write_text("x\n# SIG # Begin signature block\n")
    (prefix / "bin" / "activate").write_text("deactivate () {\n:\n}\n")
    wanted = kept(tmp_path, facts(prefix, "venv"), "environment")
    assert [one.path.name for one in wanted.changes] == ["activate"]
    assert "is signed" in wanted.notes[0]


def test_an_unknown_activation_script_still_sets_the_variables(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "activate").write_text("export OWN=1\n")
    wanted = kept(tmp_path, facts(prefix, "venv"), "environment")
    assert b"/o p" in wanted.changes[0].after
    assert "no known `deactivate`" in wanted.notes[0]


def test_without_activation_scripts_or_environment(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError, match="has no activation script"):
        kept(tmp_path, facts(tmp_path, "venv"), "environment")
    with pytest.raises(AttnDoctorError, match="use --write-to shell"):
        kept(tmp_path, facts(), "environment")


# conda


@pytest.mark.parametrize(("shell", "ending"), [("bash", "sh"), ("dash", "sh"), ("zsh", "sh"),
                                               ("fish", "fish")])  # fmt: skip
def test_conda_hooks_set_and_give_back(tmp_path: Path, shell: str, ending: str) -> None:
    prefix = tmp_path / "conda"
    write_it(tmp_path, kept(tmp_path, facts(prefix, "conda"), "auto"))
    hooks = prefix / "etc" / "conda"
    enter, leave = (
        hooks / folder / f"zz-attn-doctor-cuda-home.{ending}"
        for folder in ("activate.d", "deactivate.d")
    )
    output = run(shell, f". {enter}; env; echo -----; . {leave}; env", tmp_path, CUDA_HOME="/mine")
    inside, outside = output[: output.index("-----")], output[output.index("-----") + 1 :]
    assert "CUDA_HOME=/o p" in inside
    assert "PATH=/o p/bin:/usr/bin:/bin" in inside
    assert "CUDA_HOME=/mine" in outside
    assert "PATH=/usr/bin:/bin" in outside
    assert not any(line.startswith("CUDA_PATH") for line in outside)


# GitHub Actions


def test_github_files_are_added_to_once(tmp_path: Path) -> None:
    names = {"GITHUB_ENV": tmp_path / "env", "GITHUB_PATH": tmp_path / "path"}
    names["GITHUB_ENV"].write_text("A=1")
    names["GITHUB_PATH"].write_text("")
    more = {"GITHUB_ACTIONS": "true", **{name: str(path) for name, path in names.items()}}
    wanted = kept(tmp_path, facts(), "auto", "bash", EXPORTS, **more)
    assert wanted.kind == "github"
    append(wanted)
    assert names["GITHUB_ENV"].read_text() == "A=1\nCUDA_HOME=/o p\nCUDA_PATH=/o p\n"
    assert names["GITHUB_PATH"].read_text() == "/o p/bin\n"
    assert not any(
        one.needed for one in kept(tmp_path, facts(), "auto", "bash", EXPORTS, **more).changes
    )


def test_github_outside_of_a_workflow(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError, match="GITHUB_ENV does not name a file"):
        kept(tmp_path, facts(), "github")


def test_this_python_makes_environments_with_a_known_deactivate(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    venv.create(prefix, symlinks=True)
    found = kept(tmp_path, facts(prefix, "venv"), "environment")
    assert not any("deactivate" in note for note in found.notes), sys.version
