"""PowerShell, as far as start lines need it: translated to a shell script line by line.

Variables, lists of options, branches and commands keep their lines. Everything else stays text
that starts no program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_VARIABLE = re.compile(
    r"\$(Env:|script:|global:)?([A-Za-z_]\w{0,100})\s{0,20}(\+?)=(?!=)\s{0,20}(.{0,4000})$",
    re.IGNORECASE,
)
#: `[void]$ext_args.Add("--sdpa")`
_ADDED = re.compile(
    r"(?:\[void\]\s{0,5})?\$(\w{1,100})\.Add(?:Range)?\((.{0,4000})\)$", re.IGNORECASE
)
_EMPTY = re.compile(
    r"(?:\[[\w.\[\]]{1,100}\](?:::new\(\))?|New-Object\s.{1,200}|@\(\s{0,10}\))+$", re.IGNORECASE
)
_TEXT = re.compile(r"""(?:"[^"]{0,2000}"|'[^']{0,2000}')$""")
_PLAIN = re.compile(r"(?:\$(?:true|false|null)|-?[\d.]{1,40})$", re.IGNORECASE)
_BRANCH = re.compile(
    r"(?:if|elseif|else|foreach|for|while|switch|try|catch|finally|do)\b", re.IGNORECASE
)
#: `} elseif (`, `} else {`
_OTHERWISE = re.compile(r"\}\s{0,20}else(if|\s{1,20}if)?\b", re.IGNORECASE)
#: `if ($attn_mode -ieq "flash")`
_TEST = re.compile(
    r"(?:if|elseif)\s{0,5}\(\s{0,5}\$(\w{1,100})\s{1,5}-i?(eq|ne)\s{1,5}[\"']([^\"']{0,200})[\"']\s{0,5}\)",
    re.IGNORECASE,
)
#: `if ($args) {`
_TRUE = re.compile(r"if\s{0,5}\(\s{0,5}\$(\w{1,100})\s{0,5}\)", re.IGNORECASE)
_FALSE = ("", "0", "$false", "$null")
#: `[string]$args = "--listen",`, as a parameter has it.
_TYPED = re.compile(r"\[(?!void)[\w.\[\]]{1,100}\]\s{0,5}(?=\$\w{1,100}\s{0,20}=)", re.IGNORECASE)
_ITEM = re.compile(r""""[^"]{0,2000}"|'[^']{0,2000}'|\$\w{1,100}""")
_DEEPEST = 200


def as_shell(text: str) -> str:
    """The script as one of a shell, with the same number of lines."""
    return "\n".join(_Translator().lines(text))


class _Block(Struct):
    """What stands between braces."""

    branch: bool
    """It may not run: the shell's script has it between `if` and `fi`."""
    passed: bool = False
    """It does not run, as a variable that the script sets says."""
    decided: bool = False
    """It runs, or one before it does, so that an `else` does not."""


# if ($a) {
# }
# else {
def _joined(text: str) -> list[str]:
    """The lines, with a brace that closes before an `else` moved to the line of that."""
    lines = [line.strip() for line in text.splitlines()]
    last = -1
    for at, line in enumerate(lines):
        if line.lower().startswith("else") and last >= 0 and lines[last] == "}":
            lines[last], lines[at] = "", f"}} {line}"
        last = at if line else last
    return lines


def _one_branch(line: str, translated: str) -> str:
    """`fi; if true` of `} else {` as one branch of the shell."""
    otherwise = _OTHERWISE.match(line)
    if otherwise is None or not translated.startswith("fi; if true"):
        return translated
    return ("elif true" if otherwise[1] else "else") + translated.removeprefix("fi; if true")


def _uncommented(line: str) -> str:
    """A line without the comment behind it."""
    quote = ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
    return line


def _items(text: str) -> str:
    """The elements of a list; `$(…)` for one that is an expression."""
    found = _ITEM.findall(text)
    return " ".join(found) if found or not text.strip("@() ") else "$(…)"


def _command(line: str, lists: set[str]) -> str:
    """A command, with backslashes of paths and the sign of a further line as a shell has them."""
    continued = line.endswith("`")
    words = line.removesuffix("`").removeprefix("& ").replace("\\", "/")
    for name in lists:
        words = re.sub(rf"(?<![\w\"])[$@]{re.escape(name)}\b(?![.\[])", f"${{{name}[@]}}", words)
    return words.rstrip() + (" \\" if continued else "")


class _Translator:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._closed = _Block(branch=False)
        """The block that was closed last, which an `else` belongs to."""
        self._lists: set[str] = set()
        self._texts: dict[str, str] = {}
        """Variables that no branch sets, by their names in small letters."""

    def lines(self, text: str) -> Iterator[str]:
        """The lines of a shell's script."""
        listed = remarked = False
        for stripped in _joined(text):
            if remarked or stripped.startswith("<#"):
                remarked = "#>" not in stripped
                yield ""
            elif listed:  # the elements of `@(` on further lines
                listed = not stripped.startswith(")")
                yield " ".join(_ITEM.findall(stripped)) if listed else ")"
            else:
                parts = [*self._parts(_uncommented(stripped))]
                listed = bool(parts) and parts[-1].endswith("=(")
                yield _one_branch(stripped, "; ".join(parts))

    def _close(self) -> Iterator[str]:
        if self._blocks:
            self._closed = self._blocks.pop()
            if self._closed.branch:
                yield "fi"

    def _parts(self, line: str) -> Iterator[str]:
        """The statements of a line, with `if` and `fi` where a branch opens and closes."""
        while line.startswith("}"):
            yield from self._close()
            line = line[1:].strip()
        branch = _BRANCH.match(line)
        if branch or line.startswith(("function ", "param")):
            head, opens, rest = line.partition("{")
            if opens and len(self._blocks) < _DEEPEST:
                block = self._block(head) if branch else _Block(branch=False)
                self._blocks.append(block)
                if block.branch:
                    yield "if true"
                yield from self._parts(rest.strip())
            return
        closes = line.endswith("}") and line.count("}") > line.count("{")
        line = line[:-1].rstrip() if closes else line
        if not any(one.passed for one in self._blocks):
            for part in line.split("; "):
                yield self._statement(part.strip())
        if closes:
            yield from self._close()

    def _block(self, head: str) -> _Block:
        """The block behind `if (…)`, `elseif (…)` or `else`, of which one may be known to run."""
        given = _TRUE.fullmatch(head.strip())
        known = self._texts.get(given[1].lower()) if given else None
        if known is not None:
            runs = known.lower() not in _FALSE
            return _Block(branch=False, passed=not runs, decided=runs)
        test = _TEST.fullmatch(head.strip())
        otherwise = head.lower().startswith("else")
        if otherwise and self._closed.decided:
            return _Block(branch=False, passed=True, decided=True)
        if otherwise and not test:
            certain = self._closed.passed and head.strip().lower() == "else"
            return _Block(branch=not certain, decided=certain)
        value = self._texts.get(test[1].lower()) if test else None
        if test is None or value is None or (otherwise and not self._closed.passed):
            return _Block(branch=True)
        runs = (value.lower() == test[3].lower()) == (test[2].lower() == "eq")
        return _Block(branch=False, passed=not runs, decided=runs)

    def _statement(self, line: str) -> str:
        added = _ADDED.match(line)
        if added:
            self._lists.add(added[1])
            return f"{added[1]}+=({_items(added[2])})"
        typed = _TYPED.match(line)
        line = line[typed.end() :].removesuffix(",").rstrip() if typed else line
        given = _VARIABLE.match(line)
        if given is None:
            return _command(line, self._lists)
        scope, name, adds, value = given.groups()
        self._texts.pop(name.lower(), None)
        if _EMPTY.match(value):
            self._lists.add(name)
            return f"{name}=()"
        if value.startswith("@(") or (adds and name in self._lists):
            self._lists.add(name)
            ends = not value.startswith("@(") or value.endswith(")")
            return f"{name}{adds}=({_items(value)}{')' if ends else ''}"
        if _TEXT.match(value) or _PLAIN.match(value):
            if not (adds or any(one.branch for one in self._blocks)):
                self._texts[name.lower()] = value.strip("\"'")
            return f"{'export ' if scope and scope.lower() == 'env:' else ''}{name}{adds}={value}"
        return f'{name}="$({name})"'  # an expression, which is not followed
