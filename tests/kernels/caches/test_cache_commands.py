"""`attn-doctor cache …` as a user types it: real processes, real folders, real exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.command import Ended, installed

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`attn-doctor cache` with every cache of this user below `tmp_path`."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)

    def call(
        *arguments: str,
        python: str = sys.executable,
        how: Callable[..., Ended] = command.run,
        **environ: str,
    ) -> Ended:
        examined = [] if arguments[0] in ("env", "restore", "empty-trash") else ["--python", python]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TORCH", "TRITON", "HF_", "KERNELS", "XDG", "CUDA", "FLASH"))
        }
        own = {"HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **environ}
        return how("cache", *arguments, *examined, environ=kept, **own)

    return call


@pytest.fixture
def full(tmp_path: Path, make: Any) -> Path:
    """A cache of torch.compile, a stale extension and a fitting one's lock of a dead build."""
    make.inductor(tmp_path / "inductor")
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    root = tmp_path / "home" / caches / "torch_extensions"
    make.extension(root, "py27_cpu", "old")
    make.old_lock(root, f"py{sys.version_info[0]}{sys.version_info[1]}_cpu")
    return root


@pytest.mark.posix
def test_status_shows_every_cache(run: Run, full: Path, tmp_path: Path) -> None:
    done = run("status")
    assert done.returncode == 0, done.stderr
    assert "inductor" in done.stdout
    assert str(tmp_path / "inductor") in done.stdout
    assert "1 stale: built for Python 2.7, this is" in done.stdout
    assert "later builds wait for it" in done.stdout
    assert "Not found: " in done.stdout


@pytest.mark.posix
def test_status_for_programs(run: Run, full: Path) -> None:
    data = json.loads(run("status", "--format", "json").stdout)
    caches = {one["kind"]: one for one in data["caches"]}
    assert caches["extensions"]["states"] == {"live": 0, "stale": 1, "unknown": 1}
    assert caches["extensions"]["locks"][0]["stale"] is True
    assert len(caches["inductor"]["entries"]) == 4
    assert caches["jiterator"]["exists"] is False


@pytest.mark.posix
def test_clear_stale_takes_what_cannot_serve_and_nothing_else(run: Run, full: Path) -> None:
    dry = run("clear", "--stale", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "built for Python 2.7" in dry.stdout
    assert "locks of builds that were killed" in dry.stdout
    assert "nothing was changed" in dry.stdout
    assert (full / "py27_cpu" / "old" / "old.so").exists()
    done = run("clear", "--stale", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (full / "py27_cpu").exists()
    assert [path.name for path in full.glob("*/fused/*") if path.name == "lock"] == []
    assert list(full.glob("*/fused/fused.so"))
    assert run("clear", "--stale").stdout == "Nothing to clear.\n"
    assert "in the trash" in done.stdout
    assert run("restore").returncode == 0
    assert (full / "py27_cpu" / "old" / "old.so").exists()
    assert [path.name for path in full.glob("*/fused/*") if path.name == "lock"] == []


@pytest.mark.posix
def test_without_a_terminal_yes_is_required(run: Run, full: Path) -> None:
    done = run("clear", "--stale")
    assert done.returncode == 2
    assert "not a terminal" in done.stderr.replace("\n│ ", " ")
    assert (full / "py27_cpu" / "old" / "old.so").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pty is POSIX")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130), ("", 130)])
def test_on_a_terminal_it_asks(
    run: Run, full: Path, tmp_path: Path, answer: str, code: int
) -> None:
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*installed(), "cache", "clear",
         "--cache-dir", str(tmp_path / "inductor"), "--python", sys.executable],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
        env={**os.environ, "HOME": str(tmp_path / "home")},
    ) as child:  # fmt: skip
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        out, _ = child.communicate(timeout=120)
    os.close(ours)
    assert child.returncode == code
    assert b"1 entry: fxgraph" in out
    assert any((tmp_path / "inductor").rglob("*.cubin")) == (code == 130)


def test_all_leaves_what_the_cache_did_not_write(
    run: Run, full: Path, tmp_path: Path, make: Any
) -> None:
    mine = make.write(tmp_path / "inductor" / "checkpoint.pt")
    hub = make.hub(tmp_path / "home" / ".cache" / "huggingface" / "hub")
    done = run("clear", "--all", "--yes", "--no-trash")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "inductor").rglob("*")) == [mine]
    assert hub.exists()


@pytest.mark.symlinks
def test_downloads_go_when_they_are_named_and_links_are_not_followed(
    run: Run, tmp_path: Path, make: Any
) -> None:
    root = tmp_path / "home" / ".cache" / "huggingface" / "hub"
    make.hub(root)
    outside = make.write(tmp_path / "outside" / "file")
    link = root / "models--kernels-community--flash-attn2" / "snapshots" / "0a1b2c" / "link"
    link.symlink_to(outside)
    done = run("clear", "--kind", "hub", "--yes", "--no-trash")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(root.iterdir()) == []
    assert outside.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX")
def test_a_cache_in_use_is_refused_with_who_uses_it(
    run: Run, full: Path, tmp_path: Path, make: Any
) -> None:
    import fcntl

    with (tmp_path / "inductor" / "locks" / f"{make.CODE}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("clear", "--kind", "inductor", "--yes", how=command.process)
    assert done.returncode == 1
    assert "in use: " in done.stdout
    if sys.platform == "linux":
        assert f"process {os.getpid()} " in done.stdout
    assert list((tmp_path / "inductor").rglob("*.cubin"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["clear"],
        ["clear", "--all", "--stale"],
        ["clear", "--kind", "photos"],
        pytest.param(["clear", "--cache-dir", "/etc", "--yes"], marks=pytest.mark.posix),
        pytest.param(["status", "--cache-dir", "/etc"], marks=pytest.mark.posix),
        ["verify", "--cache-dir", "/nowhere"],
        ["verify", "--require-hit"],
    ],
)
def test_wrong_usage_is_reported_and_nothing_is_done(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_the_users_is_never_cleared(run: Run, tmp_path: Path, make: Any) -> None:
    notes = make.write(tmp_path / "inductor" / "ab" / "notes.py")
    done = run("clear", "--kind", "inductor", "--yes")
    assert done.returncode == 1
    assert "nothing in it has the form of" in done.stdout.replace("\n  ", " ")
    assert notes.exists()
    done = run("clear", "--cache-dir", str(notes.parent.parent), "--yes")
    assert done.returncode == 1
    assert notes.exists()


def test_verify_names_what_is_broken_and_clear_deletes_it(
    run: Run, full: Path, tmp_path: Path
) -> None:
    assert run("verify").returncode == 0
    cubin = next((tmp_path / "inductor").rglob("*.cubin"))
    cubin.write_bytes(cubin.read_bytes()[:1000])
    done = run("verify")
    assert done.returncode == 1
    assert f"{cubin.name}: it ends after 1000" in " ".join(done.stdout.split())
    assert "cache clear --stale" in done.stdout
    data = json.loads(run("verify", "--format", "json").stdout)
    assert data["exit_code"] == 1
    assert run("clear", "--stale", "--yes").returncode == 0
    assert run("verify").returncode == 0
    assert not cubin.exists()


def printed(done: Ended) -> list[str]:
    """The `attn-doctor` command that is printed between backticks, as words."""
    text = " ".join(done.stdout.split())
    found = re.search(r"`attn-doctor cache ([^`]+)`", text)
    assert found is not None, text
    return shlex.split(found[1])


@pytest.mark.parametrize("name", ["elsewhere", "else where"])
@pytest.mark.posix
def test_the_printed_command_clears_the_folder_that_was_named(
    run: Run, tmp_path: Path, make: Any, name: str
) -> None:
    """Without its name, it would have cleared torch's own cache."""
    folder = tmp_path / name
    make.inductor(folder)
    (folder / "attn-doctor").mkdir()
    record = folder / "attn-doctor" / "manifest.json"
    record.write_text('{"schema": 1, "entr')
    done = run("verify", "--cache-dir", str(folder))
    assert done.returncode == 1
    assert "manifest.json: it cannot be read as a record" in " ".join(done.stdout.split())
    words = printed(done)
    assert words[-2] == "--python"
    again = run(*words[:-2], "--yes", python=words[-1])
    assert again.returncode == 0
    assert "record, which is damaged" in again.stdout
    assert not record.exists()
    assert run("verify", "--cache-dir", str(folder)).returncode == 0


def test_a_newer_record_is_neither_broken_nor_cleared(run: Run, tmp_path: Path, make: Any) -> None:
    make.inductor(tmp_path / "inductor")
    record = tmp_path / "inductor" / "attn-doctor" / "manifest.json"
    make.write(record, b'{"schema": 99, "attn_doctor": "9.9"}')
    done = run("verify")
    assert done.returncode == 1
    assert "was written by attn-doctor 9.9, which is newer" in " ".join(done.stdout.split())
    assert "cannot be read as a record" not in done.stdout
    run("clear", "--stale", "--yes")
    assert record.exists()


@pytest.mark.symlinks
def test_a_link_is_looked_through_and_never_cleared(run: Run, tmp_path: Path, make: Any) -> None:
    make.inductor(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    done = run("status", "--cache-dir", str(tmp_path / "link"))
    assert done.returncode == 0
    assert f"the files are in {tmp_path / 'real'}" in " ".join(done.stdout.split())
    assert run("verify", "--cache-dir", str(tmp_path / "link")).returncode == 0
    before = sorted((tmp_path / "real").rglob("*"))
    assert run("clear", "--cache-dir", str(tmp_path / "link"), "--yes").returncode == 1
    assert sorted((tmp_path / "real").rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "does not exist"),
        ("file", "is not a folder"),
        ("bare", "is empty"),
        ("lost", "is a link to a missing file"),
        ("other", "is not recognised as a cache"),
    ],
)
@pytest.mark.symlinks
def test_why_a_path_is_no_cache(run: Run, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "bare").mkdir()
    (tmp_path / "lost").symlink_to("nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    done = run("status", "--cache-dir", str(tmp_path / name))
    assert done.returncode == 2
    assert message in re.sub(r"[\s│]+", " ", done.stderr)


def test_clearing_recorded_kernels_keeps_them_to_be_built_again(
    run: Run, full: Path, tmp_path: Path, make: Any
) -> None:
    from attn_doctor.record.manifest import (
        Build,
        BuildEnvironment,
        Entry,
        Manifest,
    )
    from attn_doctor.record.spec import KernelSpec
    from attn_doctor.record.store import load, save

    root = tmp_path / "inductor"
    path = f"fxgraph/{make.FX[1:3]}/{make.FX}/{make.FILE}"
    size = (root / path).stat().st_size
    spec = KernelSpec(heads=2, head_dim=16, lengths=(128,))
    build = Build(at="2026-11-21T10:00:00Z", seconds=1.5, files={path: size}, verified=True)
    entry = Entry(spec=spec, device_slot="cpu", state="built", build=build)
    was = BuildEnvironment(torch="2.1.0", device="cpu", python="2.7.18")
    save(
        root,
        Manifest(
            schema=1, attn_doctor="0.1.0", environments={"cpu": was}, entries={"a@cpu": entry}
        ),
    )
    status = run("status", "-v").stdout
    assert "1 stale: built with Python 2.7.18" in status.replace("\n            ", " ")
    (root / path).write_bytes(b"")
    done = run("verify", "--cache-dir", str(root))
    assert done.returncode == 1
    assert (
        done.stdout.count(make.FX) == 1
    )  # broken, and of another size than recorded: reported once
    assert run("clear", "--stale", "--yes").returncode == 0
    found = load(root)
    assert found is not None
    assert found.entries["a@cpu"].state == "cleared"
    assert run("verify", "--cache-dir", str(root)).returncode == 0
    done = run("verify", "--require-hit", "--cache-dir", str(root))
    assert done.returncode == 1
    assert "its files were cleared" in done.stdout


def test_env_prints_lines_for_the_shell_and_reasons_apart(run: Run, tmp_path: Path) -> None:
    done = run("env", "--shell", "bash", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))
    assert done.returncode == 0
    assert all(line.startswith("export T") for line in done.stdout.splitlines())
    assert "# torch's caches: " in done.stderr
    assert run("env", "--quiet").stderr == ""
    data = json.loads(run("env", "--format", "json").stdout)
    assert data["variables"]["TORCHINDUCTOR_CACHE_DIR"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux allows names that are not text")
def test_names_that_are_no_text_are_shown_and_left_alone(
    run: Run, full: Path, tmp_path: Path
) -> None:
    strange = os.fsencode(tmp_path / "inductor") + b"/\xff\x1b[31m\n"
    os.mkfifo(strange)
    folder = os.fsencode(full / "py27_cpu") + b"/\xfe"
    os.rename(full / "py27_cpu" / "old", folder)
    for arguments in (["status", "-v"], ["status", "--format", "json"], ["verify"]):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
    library = folder + b"/old.so"
    os.truncate(library, 100)
    done = run("verify")
    assert done.returncode == 1, done.stderr
    assert re.search(r"py27_cpu/.{1,4}/old\.so: it ends after 100", " ".join(done.stdout.split()))
    done = run("clear", "--all", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.path.exists(strange)
    assert not os.path.exists(folder)


@pytest.mark.slow
def test_what_torch_really_writes_is_known_sound_and_hit(
    run: Run, tmp_path: Path, torch_python: str
) -> None:
    """Needs a C++ compiler too."""
    from attn_doctor.kernels.caches.contents import contents
    from attn_doctor.kernels.caches.integrity import damage

    root = tmp_path / "inductor"
    build = [
        *(
            "build-kernels",
            "--device",
            "cpu",
            "--heads",
            "2",
            "--head-dim",
            "16",
            "--seq-len",
            "128",
        ),
        *("--dtype", "fp32", "--cache-dir", str(root), "--python", torch_python),
    ]
    subprocess.run([sys.executable, "-m", "attn_doctor", *build], check=True, timeout=600)
    found = contents("inductor", str(root))
    assert found.unrelated_files == ()
    assert {"code", "fxgraph", "aotautograd"} <= {entry.part for entry in found.entries}
    assert damage("inductor", str(root)) == ()
    status = json.loads(
        run("status", "--cache-dir", str(root), "--format", "json", python=torch_python).stdout
    )
    assert status["caches"][0]["states"]["live"] >= 3
    assert status["caches"][0]["states"]["stale"] == 0
    done = run("verify", "--cache-dir", str(root), "--require-hit", python=torch_python)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(root / "fxgraph")
    shutil.rmtree(root / "aotautograd")
    done = run("verify", "--cache-dir", str(root), "--require-hit", python=torch_python)
    assert done.returncode == 1
    assert "1 of 1 kernel missed the cache" in done.stdout
    library = next(root.rglob("*.so"))
    library.write_bytes(library.read_bytes()[:-1])
    assert library.relative_to(root).as_posix() in [
        one.path for one in damage("inductor", str(root))
    ]
