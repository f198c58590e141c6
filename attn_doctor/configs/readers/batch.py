"""A batch file of Windows, as far as start lines need it: translated to a shell script.

Variables, branches and commands keep their lines. What is under a label that only `goto` reaches
is a branch too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SET = re.compile(r'^set\s+(")?([A-Za-z_]\w{0,100})=([^\r\n]{0,4000}?)(?(1)")\s*$', re.IGNORECASE)
_STARTS = re.compile(r"^@?set\s", re.IGNORECASE)
#: `set /p CHOICE=Your choice: `
_ASKED = re.compile(r'^set\s+/[ap]\s+"?([A-Za-z_]\w{0,100})\s*=', re.IGNORECASE)
_REMARK = re.compile(r"^(?:rem\b|::)", re.IGNORECASE)
_LABEL = re.compile(r"^:\w")
#: What ends a way through the file: a label behind it is reached by `goto` alone.
_LEAVES = re.compile(r"^(?:goto\b|exit\b)", re.IGNORECASE)
#: `if /i "%choice%"=="1" (`, `) else if exist a.txt (`, `for %%f in (*) do (`
_OPENS = re.compile(r"^(if|for)\b(.{0,2000})\($", re.IGNORECASE)
_ELSE = re.compile(r"^\)\s*else\b\s*(?:if\b(.{0,2000}))?\($", re.IGNORECASE)
#: `if "%1"=="cpu" set ARGS=--cpu`
_INLINE = re.compile(
    r"^if\s+((?:/i\s+)?(?:not\s+)?(?:/i\s+)?(?:exist\s+|defined\s+|errorlevel\s+)?"
    r"(?:\"[^\"]{0,500}\"|[^\s\"=]{1,500})"
    r"(?:\s*(?:==|\b(?:equ|neq|lss|leq|gtr|geq)\b)\s*(?:\"[^\"]{0,500}\"|[^\s\"]{1,500}))?)"
    r"\s+(\S.{0,4000})$",
    re.IGNORECASE,
)
#: `(set A=b) else (set A=c)` behind a condition
_BOTH = re.compile(r"^\((.{1,2000})\)\s*else\s*\(?(.{1,2000}?)\)?$", re.IGNORECASE)
#: `%NAME%`, and `!NAME!` of delayed expansion.
_VARIABLE = re.compile(r"%([A-Za-z_]\w{0,100})%|!([A-Za-z_]\w{0,100})!")
#: Lines that one setting may take.
_MOST_LINES = 50


def as_shell(text: str) -> str:
    """The file as a script of a shell, with the same number of lines."""
    return "\n".join(_Translator(text.splitlines()).lines())


class _Translator:
    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._ends: list[str] = []
        """What ends each block that is open: `fi` or `done`; empty for one that always runs."""
        self._left = False
        """The command before it leaves this part of the file."""
        self._labelled = False
        self._skipped = 0
        """Lines that belong to the setting before them."""

    def lines(self) -> Iterator[str]:
        """The lines of a shell's script."""
        for number, line in enumerate(self._lines):
            if self._skipped:
                self._skipped -= 1
                yield ""
            else:
                yield self._line(line.strip().lstrip("@").strip(), number)

    def _line(self, line: str, number: int) -> str:
        if not line or _REMARK.match(line):
            return ""
        if _LABEL.match(line):
            return self._label(line)
        otherwise, opens = _ELSE.match(line), _OPENS.match(line)
        if otherwise is not None:
            return f"elif {_plain(otherwise[1])}; then" if otherwise[1] else "else"
        if line.startswith(")"):
            return self._ends.pop() if self._ends else ""
        if opens is not None:
            loop = opens[1].lower() == "for"
            self._ends.append("done" if loop else "fi")
            return "for _ in _; do" if loop else f"if {_plain(opens[2])}; then"
        return self._statement(line, number)

    def _label(self, line: str) -> str:
        """Where a label begins a part that only `goto` reaches, it is a branch."""
        before = "fi; " if self._labelled else ""
        self._labelled, self._left = self._left, False
        return (
            f"{before}if goto {line[1:].split(maxsplit=1)[0]}; then" if self._labelled else before
        )

    def _statement(self, line: str, number: int) -> str:
        inline = _INLINE.match(line)
        if inline is not None:
            return f"if {_plain(inline[1])}; then {self._inline(inline[2], number)}; fi"
        if not self._ends:
            self._left = bool(_LEAVES.match(line))
        asked = _ASKED.match(line)
        if asked is not None:
            return f'{asked[1]}="$({asked[1]})"'  # what the user types, which is not known
        given = _SET.match(self._joined(number) if _STARTS.match(line) else line)
        if given is not None:
            value = _filled(given[3].strip()).replace("\\", "/").replace('"', '\\"')
            return f'{given[2]}="{value}"'
        line = line.removesuffix("^") + ("\\" if line.endswith("^") else "")
        # A path of Windows: its backslashes quote nothing.
        return re.sub(r"\\(?!$)", "/", _filled(line))

    def _inline(self, text: str, number: int) -> str:
        """What stands behind a condition on the same line."""
        both = _BOTH.match(text)
        if both is not None:
            return "; else ".join(self._statement(one, number) for one in both.groups())
        whole = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        return self._statement(whole.strip(), number)

    def _joined(self, start: int) -> str:
        """A setting with the lines that it goes on on, for which `^` stands at its end."""
        parts = []
        for line in self._lines[start : start + _MOST_LINES]:
            parts.append(line.strip().lstrip("@").removesuffix("^").strip())
            if not line.rstrip().endswith("^"):
                break
        self._skipped = len(parts) - 1
        return " ".join(parts)


def _filled(text: str) -> str:
    """Text with variables as a shell has them; `%~dp0` is the folder of the file."""
    return _VARIABLE.sub(
        lambda one: f"${{{one[1] or one[2]}}}", text.replace("%~dp0", "./").replace("%%", "%")
    )


def _plain(condition: str) -> str:
    """A condition as one text of a shell, which only says where it stands."""
    return " ".join(condition.replace("\\", "/").replace(";", ",").replace("'", "").split())
