"""Records a machine's answers, and replays such a recording.

A recording is a JSON object: the question with its arguments as key, the answer or the error as
value. Time limits are not part of the key. In a replay, a file without a recorded answer does not
exist, and a program without one is missing.
"""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from attn_doctor.host import Host

#: For each question, the number of arguments that decide the answer. The rest are limits.
_SIGNIFICANT = {
    "read": 1, "head": 1, "grep": 2, "checksum": 1, "measure": 1, "changed_files": 1, "run": 1,
    "inside": 1, "nvml": 0, "gpu_code": 1, "unresolved": 1,
    "lacking": 1,
}  # fmt: skip


def key(question: str, *args: Any) -> str:
    """Return the key of a question in a recording, such as ``read /etc/os-release``."""
    kept = args[: _SIGNIFICANT.get(question, len(args))]
    flat = [part for arg in kept for part in (arg if isinstance(arg, list) else [arg])]
    return " ".join([question, *map(str, flat)])


class RecordingHost(Host):
    """Asks another host and keeps every answer; of `environ` only the names that `keep` accepts."""

    def __init__(self, inner: Host, keep: Callable[[str], bool]) -> None:
        self.inner = inner
        self.keep = keep
        self.answers: dict[str, Any] = {}

    def ask(self, question: str, *args: Any) -> Any:
        """Return the inner host's answer and record it."""
        try:
            answer = self.inner.ask(question, *args)
        except OSError as error:
            self.answers[key(question, *args)] = {
                "error": errno.errorcode.get(error.errno or 0, "EIO")
            }
            raise
        if question == "environ":
            answer = {name: value for name, value in answer.items() if self.keep(name)}
        self.answers[key(question, *args)] = {"answer": answer}
        return answer


def to_text(answers: Mapping[str, Any]) -> str:
    """Return a recording as JSON, one question a line, sorted."""
    lines = (
        f" {json.dumps(name)}: {json.dumps(answers[name], ensure_ascii=False)}"
        for name in sorted(answers)
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


class RecordedHost(Host):
    """Answers from a recording."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers

    def ask(self, question: str, *args: Any) -> Any:
        """Return the recorded answer, or that of a machine without such a file or program."""
        kept = self.answers.get(key(question, *args))
        if kept is None and question in _FROM_TEXT:
            # A recording written by hand has a file's text once, for every question about it.
            kept = self.answers.get(key("read", *args))
            if kept is not None and "answer" in kept:
                return _FROM_TEXT[question](kept["answer"], *args)
        if kept is None:
            return _absent(question, *args)
        if "error" in kept:
            number = getattr(errno, kept["error"], errno.EIO)
            raise OSError(number, errno.errorcode.get(number, ""), *args[:1])
        return kept["answer"]


def _head(text: str, *_: Any) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(itertools.takewhile(lambda line: line.strip("\r\n"), lines))


def _grep(text: str, _: str, needles: list[str], *__: Any) -> list[str]:
    return [line for line in text.splitlines() if any(needle in line for needle in needles)]


_FROM_TEXT: dict[str, Callable[..., Any]] = {"head": _head, "grep": _grep}


def _absent(question: str, *args: Any) -> Any:
    if question == "access":
        return False
    if question in ("danger", "interpreter_danger"):
        return None
    if question == "unreachable":
        return []
    if question == "real":
        return args[0]
    if question == "now":
        return 0.0
    if question == "environ":
        return {}
    if question in ("run", "nvml", "inside"):
        return {"outcome": "missing"}
    raise FileNotFoundError(errno.ENOENT, "not in the recording", *args[:1])
