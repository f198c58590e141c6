"""Random histories of one environment: fixes, a user's own work, kills, undo and redo.

A history plays one operation after another and compares all files of the environment before and
after each. It fails if `fix undo` changed anything that the run had not left, or left anything of
the run without naming it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.environments import Environment, until

#: Contents of the environment's files, by relative path.
Tree = dict[str, bytes]
RULES = {
    "bulk": ['["pip", "install", "bulk>=2"]'],
    "triton": ['["pip", "install", "triton==3.6.0"]'],
    "other": ['["pip", "install", "other"]'],
    "remove": ['["pip", "uninstall", "-y", "diffusers"]'],
    "both": ['["pip", "install", "other"], ["pip", "install", "bulk>=2"]'],
}
#: What a user installs by hand.
BY_HAND = ("other", "triton==3.5.0", "bulk==1.0", "diffusers==0.30.0")
#: Files of packages that a user edits.
EDITED = ("triton/__init__.py", "bulk/__init__.py", "bulk/m7.py", "diffusers/__init__.py")


class Done(NamedTuple):
    """A run of fix: the files before it, and when it ended or was killed."""

    before: Tree
    after: Tree


class History:
    """One history."""

    def __init__(self, env: Environment, seed: int) -> None:
        self.env = env
        self.random = random.Random(seed)
        self.runs: dict[str, Done] = {}
        self.story: list[str] = []
        """What was done, for the message of a failure."""
        self.counts: dict[str, int] = {}
        self._names = 0
        for name, runs in RULES.items():
            env.rule(name, *runs)

    def play(self, length: int) -> None:
        """Play `length` operations, then undo all that can be undone."""
        choices: list[tuple[Callable[[], None], int]] = [
            (self._fix, 5),
            (self._edit, 3),
            (self._install, 2),
            (self._undo, 4),
            (self._redo, 2),
            (self._forget, 1),
        ]
        operations, weights = zip(*choices, strict=True)
        self._fix()
        for _ in range(length - 1):
            self.random.choices(operations, weights)[0]()
        self._undo()

    # What attn-doctor does

    def _fix(self) -> None:
        names = self.random.sample(sorted(RULES), self.random.choice((1, 1, 2)))
        rules = [f"own/{name}" for name in names]
        before, known = self.env.tree(), self._ids()
        how = self.random.choice(
            ("end", "end", "end", "interrupt", "twice", "self", "group", "tree")
        )
        delay = self.random.uniform(0.0, 1.5)
        self._tell(f"fix {' '.join(names)}, {how} after {delay:.2f} s")
        mine = None
        if how == "end":
            text = self.env.fix(*rules, "--yes", "--no-resolve").text
        else:
            started = self.env.started(*rules, "--yes", "--no-resolve")
            mine = self._while_it_runs(started) if self.random.random() < 0.4 else None
            self._kill(started, how, delay, known)
            text = "".join(started.communicate(timeout=120))
            self._wait_for_orphans()
        after = self.env.tree()
        assert "attn_doctor/" not in text, self._message(text)  # a traceback
        if mine:
            assert after.get(mine[0]) == mine[1], self._message(f"{mine[0]} is lost")
            before[mine[0]] = mine[1]
        new = self._ids() - known
        assert len(new) <= 1, self._message("two journals")
        for id in new:
            self.runs[id] = Done(before, after)
        if not new or (how == "end" and "its changes were undone" in text):
            assert after == before, self._message("changed without a journal", before, after)

    def _while_it_runs(self, started: subprocess.Popen[str]) -> tuple[str, bytes] | None:
        """A file that the user makes while fix runs."""
        path = self.env.site / f"during-{self._number()}.txt"
        time.sleep(self.random.uniform(0.5, 1.5))
        if started.poll() is not None:
            return None
        path.write_text("mine")
        return str(path.relative_to(self.env.prefix)), b"mine"

    def _undo(self) -> None:
        self._reverse("undo")

    def _redo(self) -> None:
        self._reverse("redo")

    def _reverse(self, verb: str) -> None:
        ids = sorted(self.runs)
        named = [self.random.choice(ids)] if ids and self.random.random() < 0.3 else []
        before = self.env.tree()
        cut = self.random.random() < 0.25
        self._tell(f"{verb} {named}{', cut off' if cut else ''}")
        planned = self.env.fix(verb, *named, "--json", examine=False)
        if planned.returncode == 2:  # there is none, or it cannot be undone
            assert "Traceback" not in planned.text, self._message(planned.text)
            assert self.env.tree() == before, self._message(planned.text)
            return
        answer = json.loads(planned.stdout)
        id = answer["undo"]["run"]
        assert self.env.tree() == before, self._message("a plan changed files")
        if cut:
            started = self.env.started(verb, id, "--yes", examine=False)
            time.sleep(self.random.uniform(0.2, 0.8))
            self._count("ended before the kill" if started.poll() is not None else f"cut {verb}")
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate(timeout=60)
        again = self.env.fix(verb, id, "--yes", "--json", examine=False)
        assert "Traceback" not in again.text, self._message(again.text)
        if again.returncode != 2:
            answer = json.loads(again.stdout)
        elif not cut:
            raise AssertionError(self._message(again.text))
        self._compare(answer, before, self.env.tree(), verb)

    def _compare(self, answer: dict[str, Any], before: Tree, after: Tree, verb: str) -> None:
        """What undo or redo changed was the run's, and what it left of the run is named."""
        found = self.runs.get(answer["undo"]["run"])
        assert found is not None, self._message(f"undid an unknown run: {answer['undo']}")
        left, wanted = (found.after, found.before)
        if verb == "redo":
            left, wanted = wanted, left
        named = [*answer["undo"]["refused"], *answer.get("undone", {}).get("faults", ())]
        for path in before.keys() | after.keys():
            was, now = before.get(path), after.get(path)
            theirs = left.get(path) == wanted.get(path) or was != left.get(path)
            if now != was:
                right = not theirs and now == wanted.get(path)
                assert right, self._message(f"{path} was changed by {verb}", before, after)
            elif not theirs and now != wanted.get(path):
                assert _is_named(path, named), self._message(
                    f"{path} was neither changed by {verb} nor named in {named}", before, after
                )
        self._count("undone" if not named else "undone in part")

    def _forget(self) -> None:
        ids = sorted(self.runs)
        if not ids or self.random.random() < 0.5:
            return
        id = self.random.choice(ids)
        before = self.env.tree()
        self._tell(f"forget {id}")
        ended = self.env.fix("forget", id, examine=False)
        assert ended.returncode == 0, self._message(ended.text)
        after = self.env.tree()
        assert after == before, self._message("forget changed files", before, after)
        for verb in ("undo", "redo"):
            refused = self.env.fix(verb, id, "--yes", examine=False)
            assert refused.returncode == 2, self._message(refused.text)
        del self.runs[id]

    # What the user does

    def _edit(self) -> None:
        """Edit, make or remove a file."""
        env, number = self.env, self._number()
        site = env.site
        what = self.random.choice(("activate", "new", "inside", "append", "replace", "delete"))
        place = site / self.random.choice(EDITED)
        if what in ("append", "replace", "inside", "delete") and not place.exists():
            what = "new"
        if what != "new":
            time.sleep(0.5)  # a person is not quicker after a kill
        self._tell(f"user: {what} {place.name}")
        if what == "activate":
            with (env.prefix / "bin" / "activate").open("a") as file:
                file.write(f"# mine {number}\n")
        elif what == "new":
            (site / f"mine-{number}.txt").write_text("mine")
        elif what == "inside":
            (place.parent / f"mine_{number}.py").write_text("mine")
        elif what == "append":
            with place.open("a") as file:
                file.write(f"# mine {number}\n")
        elif what == "replace":
            place.unlink()
            place.write_text(f"# mine {number}\n")
        else:
            place.unlink()

    def _install(self) -> None:
        """Install or remove a package by hand."""
        env = self.env
        what = self.random.choice(BY_HAND)
        install = self.random.random() < 0.7
        time.sleep(0.5)
        self._tell(f"user: {'install' if install else 'uninstall'} {what}")
        words = ["install", "--no-deps", what] if install else ["uninstall", what.split("=")[0]]
        if env.uv:
            argv = [env.uv, "pip", words[0], "-q", "--python", str(env.python), *words[1:]]
        else:
            more = ["-y"] if not install else []
            argv = [str(env.python), "-m", "pip", words[0], "-q", *more, *words[1:]]
        subprocess.run(argv, env=env.variables, check=False, capture_output=True)

    # Means

    def _kill(
        self, started: subprocess.Popen[str], how: str, delay: float, known: set[str]
    ) -> None:
        """End it some time after it began to change something."""
        with suppress(AssertionError):
            until(lambda: started.poll() is not None or self._is_changing(known), seconds=20)
        end = time.monotonic() + delay
        while started.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if started.poll() is not None:
            self._count("ended before the kill")
            return
        self._count(f"killed: {how}")
        if how in ("interrupt", "twice"):
            os.killpg(started.pid, signal.SIGINT)
            if how == "twice":  # while the step is rolled back
                time.sleep(self.random.uniform(0.0, 0.6))
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
        elif how == "self":
            started.kill()
        elif how == "group":
            os.killpg(started.pid, signal.SIGKILL)
        else:
            with suppress(psutil.Error):
                for one in psutil.Process(started.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        one.kill()
            started.kill()

    def _is_changing(self, known: set[str]) -> bool:
        """A run that was not `known` has begun to copy the environment."""
        texts = [
            (self.env.state / "attn-doctor" / "fixes" / id / "journal.jsonl").read_bytes()
            for id in self._ids() - known
        ]
        return any(b'"packages"' in text for text in texts)

    def _wait_for_orphans(self) -> None:
        """Installers that outlive a killed run end by themselves."""
        prefix = str(self.env.prefix)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if not any(prefix in " ".join(_command(one)) for one in psutil.process_iter()):
                return
            time.sleep(0.05)

    def _ids(self) -> set[str]:
        paths = self.env.state.glob("attn-doctor/fixes/2*/journal.jsonl")
        return {path.parent.name for path in paths}

    def _number(self) -> int:
        self._names += 1
        return self._names

    def _tell(self, text: str) -> None:
        self.story.append(text)
        self._count(text.split()[0 if not text.startswith("user") else 1].rstrip(":"))

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _message(self, what: str, *trees: Tree) -> str:
        lines = [what, *self.story]
        if len(trees) == 2:
            paths = sorted(
                path
                for path in {**trees[0], **trees[1]}
                if trees[0].get(path) != trees[1].get(path)
            )
            lines += [f"changed: {path}" for path in paths[:20]]
        return "\n".join(lines)


def _is_named(path: str, sentences: Iterable[str]) -> bool:
    """The file, a folder above it, or its distribution is named."""
    parts = Path(path).parts
    tops = [part.partition("-")[0].partition(".")[0].lstrip("~") for part in parts[3:4]]
    for sentence in sentences:
        words = sentence.split()
        if any(word == top or word.endswith(f"/{path}") for word in words for top in tops):
            return True
        above = ["/".join(parts[: end + 1]) for end in range(3, len(parts))]
        if any(word.rstrip(";,").endswith(f"/{one}") for word in words for one in above):
            return True
    return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


def copy_of(env: Environment, folder: Path) -> Environment:
    """Another environment like `env`, for one more history."""
    shutil.copytree(env.prefix, folder / "env", symlinks=True)
    wheels = Path(env.variables["PIP_FIND_LINKS"])
    return Environment(folder, wheels, uv=env.uv)
