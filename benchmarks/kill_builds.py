"""Kills `attn-doctor build-kernels` at random moments and looks at what it leaves behind.

    python benchmarks/kill_builds.py --python ENV/bin/python [--device cuda:0|cpu] [--kills 20]

Each time: start a build, wait a random while, SIGKILL it, and require that nothing of it lives on,
that the manifest can be read and names only files that are there, and that `cache verify` finds no
damage that the next build would not clear. Every second kill comes a moment after one more kernel
was written down, however fast the machine. All builds work on one folder, so each goes on where the
last was killed; when everything is built, the folder is emptied and it begins anew. At the end a
build must complete, `cache verify` must be clean, and every kernel is verified once more.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def children(folder: str) -> list[int]:
    """Processes that work for a build in `folder`, by their environment."""
    mark = f"TORCHINDUCTOR_CACHE_DIR={folder}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environ = Path("/proc", name, "environ").read_bytes()
            state = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2]
        except OSError:
            continue
        if mark in environ.split(b"\0") and state.split()[0] != "Z":
            found.append(int(name))
    return found


def gone(folder: str, seconds: float) -> bool:
    """Whether all of them end within so many seconds."""
    end = time.monotonic() + seconds
    while children(folder):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def command(args: argparse.Namespace, folder: str, file: str) -> list[str]:
    """The build."""
    argv = [sys.executable, "-m", "attn_doctor", "build-kernels", "--python", args.python]
    argv += ["--device", args.device, "--cache-dir", folder, "--spec", file, "--format", "json"]
    return [*argv, "--jobs", str(args.jobs)] if args.jobs else argv


def verify(args: argparse.Namespace, folder: str) -> tuple[int, str]:
    """Exit code and output of `attn-doctor cache verify`."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
    argv = [sys.executable, "-m", "attn_doctor", "cache", "verify", "--python", args.python]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def state(folder: str) -> tuple[int, list[str]]:
    """How many kernels the manifest calls built, and files it names that are not as it says."""
    path = Path(folder, "attn-doctor", "manifest.json")
    if not path.exists():
        return 0, []
    manifest = json.loads(path.read_text(encoding="utf-8"))
    wrong = []
    built = 0
    for entry in manifest["entries"].values():
        if entry.get("message", "").startswith("not built"):
            continue  # what the killed build had still before it
        if entry["state"] != "built":
            wrong.append(f"{entry['state']}: {entry.get('message')}")
            continue
        built += 1
        for name, size in entry["build"]["files"].items():
            file = Path(folder, name)
            if not file.exists() or file.stat().st_size != size:
                wrong.append(name)
    return built, wrong


def more(folder: str, before: int, started: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until the manifest holds more built kernels than before, at most so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and started.poll() is None and state(folder)[0] <= before:
        time.sleep(0.02)


def one(
    args: argparse.Namespace, folder: str, file: str, delay: float, patience: float
) -> dict[str, Any]:
    """Start a build, kill it after `delay`, and look around.

    With `patience`, `delay` begins when one more kernel was written down, at most so much later.
    """
    quiet = subprocess.DEVNULL
    before = state(folder)[0]
    started = subprocess.Popen(
        command(args, folder, file), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    if patience:
        more(folder, before, started, patience)
    try:
        started.wait(delay)
    except subprocess.TimeoutExpired:
        started.send_signal(signal.SIGKILL)
    code = started.wait()
    orphans = not gone(folder, 5.0)
    built, wrong = state(folder)
    checked, text = verify(args, folder)
    return {
        "delay": round(delay, 2),
        "after_a_kernel": bool(patience),
        "before": before,
        "killed": code == -signal.SIGKILL,
        "orphans": orphans,
        "built": built,
        "wrong": wrong,
        "verify": checked,
        "message": text if checked else "",
    }


def main() -> int:
    """Kill, look, finish, and say whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=3, help="so few that they end by and by")
    parser.add_argument("--within", type=float, default=400.0, help="seconds for all the kills")
    parser.add_argument("--longest", type=float, default=0.0, help="seconds; 0: of a whole build")
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    sys.path.insert(0, str(Path(__file__).parent))
    benchmark = importlib.import_module("build_kernels")

    with tempfile.TemporaryDirectory(prefix="kill-builds-") as place:
        file, folder = str(Path(place, "specs.toml")), os.path.realpath(str(Path(place, "cache")))
        wanted = benchmark.specs(args.device)[-6:]
        Path(file).write_text(benchmark.toml(wanted), encoding="utf-8")
        start = time.monotonic()
        subprocess.run(command(args, folder, file), check=True, capture_output=True)
        longest = args.longest or time.monotonic() - start
        shutil.rmtree(folder)
        bad = kills = later = number = 0
        end = time.monotonic() + args.within
        while kills < args.kills and time.monotonic() < end:
            # Mostly while kernels are compiled and verified, now and then before.
            early = chance.random() < 0.25
            delay = chance.uniform(0.05, 0.5) if early else chance.uniform(0.45, 1.05)
            if number % 2:
                shown = one(args, folder, file, chance.uniform(0.0, 0.5), 2 * longest)
            else:
                shown = one(args, folder, file, delay * longest, 0.0)
            number += 1
            kills += shown["killed"]
            later += shown["killed"] and shown["built"] > 0
            # A half-written file of the process that was killed just now is the next build's to
            # clear; an entry of the manifest must never be damaged.
            bad += bool(shown["orphans"] or shown["wrong"])
            print(json.dumps(shown), flush=True)
            if shown["built"] == len(wanted):
                shutil.rmtree(folder)
        done = subprocess.run(command(args, folder, file), check=False, capture_output=True)
        checked, text = verify(args, folder)
        built, wrong = state(folder)
        verified = verify_again(args, folder)
        print(f"last build: exit code {done.returncode}, {built} of {len(wanted)} built, {wrong}")
        print(f"cache verify: exit code {checked} {text if checked else ''}")
        print(f"verified once more: {verified}")
        good = (
            not bad and done.returncode == 0 and checked == 0 and built == len(wanted) and verified
        )
    print(f"{kills} kills, {later} with kernels written down; {bad} left something wrong behind")
    if args.kills > 1 and not later:
        print("none was killed after a kernel was written down: give it more time or fewer --jobs")
        return 1
    return 0 if good else 1


def verify_again(args: argparse.Namespace, folder: str) -> bool:
    """Every kernel still hits and is right, in processes of their own."""
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.builder.devices import children_environment
    from attn_doctor.kernels.builder.plan import BuildRequest
    from attn_doctor.kernels.builder.verification import verify_entries
    from attn_doctor.record import store

    manifest = store.load(Path(folder)) or store.empty()
    request = BuildRequest(
        specs=(),
        devices=(args.device,),
        facts=examine(LocalHost(), args.python),
        folder=Path(folder),
        environ=children_environment(os.environ, folder)[0],
        jobs=args.jobs or None,
    )
    found = verify_entries(request, manifest.entries)
    for entry in found.values():
        if entry.state != "built":
            print(entry.state, entry.message)
    return bool(found) and all(entry.state == "built" for entry in found.values())


if __name__ == "__main__":
    sys.exit(main())
