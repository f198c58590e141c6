"""The words of a shell script: assignments, and options with their values. Nothing is run.

Variables that the script itself sets to plain text are filled in; command substitutions,
conditions and loops are not followed, and what they would give stays as written.
"""

from __future__ import annotations

import re
import shlex
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from attn_doctor.configs.readers.settings import Setting
from attn_doctor.configs.readers.shell_branches import Arms, Branches

_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w{0,100})(\+?)=(.*)$", re.DOTALL)
#: `"${ARGS[@]}"`
_LISTED = re.compile(r"\$\{([A-Za-z_]\w{0,100})\[[@*]\]\}")
_LABEL = re.compile(r"[^()$]{1,200}\)")
#: Stands for an array while the words of `$(…)` are passed over.
_GIVEN = "$("
#: Words behind which a command begins that may not run.
_AGAIN = ("&&", "||", "then", "else", "do")
_DECLARES = ("export", "declare", "local", "readonly", "typeset", "set", "-x", "env")
_CONCERNS = re.compile(
    r"(?i)att(?:e)?n|xformers|sdpa?\b|sage|flash|--cpu|vllm|sglang|\.py\b"
    r"|\$(?:[@*(]|\{?\w*(?:args|opts|options|flags|params))"
)
#: A variable that holds options, by its name.
_OPTIONS = re.compile(r"(?i)(?:args|opts|options|flags|params)\d?$")
#: `export NAME="--one \\`: a value that goes on on the next line.
_OPENED = re.compile(r"(?:export\s+)?[A-Za-z_]\w{0,100}=\"[^\"]{0,4000}$")
#: `X=$(python -c "`, `bash -c "`: what may take a text of several lines.
_TEXT = re.compile(r"\$\(|\s-\w?c\s")
#: `$(dirname "$0")/`, the folder of the script itself.
_ITS_FOLDER = re.compile(r"""\$\(dirname\s+"?(?:\$0|\$\{?BASH_SOURCE(?:\[0\]\})?)"?\)/""")
#: `--optimizer_args "${OPTIMIZER_ARGS[@]}"`: the words of the list are values of that option.
_NAMED = re.compile(r"\$\{?([A-Za-z_]\w{0,100})(?:\[[@*]\])?\}?")
#: Lines of one value.
_LINES = 100
_QUOTING = re.compile(r"[\"'\\#]")
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w{0,100}|\d)(?::?-([^}]{0,200}))?\}|([A-Za-z_]\w{0,100}))"
)
#: A longer line is not a launch command, and a longer value is not a setting.
LONGEST = 1 << 16
#: Characters that are filled in for variables in a whole script. Each variable may hold the one
#: before it ten times: 200 bytes then mean gigabytes.
_FILLED = 4 << 20


_Value = TypeVar("_Value")


class Script:
    """What a shell script sets and passes on."""

    def __init__(self) -> None:
        self.variables: dict[str, Setting] = {}
        self.words: list[tuple[str, int]] = []
        """Every word behind assignments, with its line."""
        self.optional: set[str] = set()
        """Variables that hold options on one line at least."""
        self.branched: dict[str, list[int]] = {}
        """Variables and arrays to which branches may give other options, and the lines."""
        self.conditions: dict[int, str] = {}
        """The condition under which a line is reached, for lines in branches."""
        self.arms: dict[int, Arms] = {}
        """The branches that each line of `branched` is in."""
        self.whole: Mapping[int, int] = {}
        """Branches of which one part always runs, as `Branches` has them."""


def read(
    text: str,
    known: Mapping[str, str] | None = None,
    runs: Mapping[int, bool] | None = None,
) -> Script:
    """Assignments and words of a script. `known`: variables of its environment.

    `runs`: lines in branches, and whether each runs.
    """
    return _Reader(known or {}, runs or {}).script_of(_ITS_FOLDER.sub("$SCRIPT_DIR/", text))


class _Reader:
    """Reads a script line by line: what is set, what branches set, and what is passed on."""

    def __init__(self, known: Mapping[str, str], runs: Mapping[int, bool]) -> None:
        self._script = Script()
        self._runs = runs
        self._values = dict(known)
        self._certain = dict(known)
        """Those that no branch changes."""
        self._pieces: dict[str, list[tuple[str, int]]] = {}
        """What each line adds to a value."""
        self._arrays: dict[str, list[tuple[str, int]]] = {}
        self._inner: dict[str, tuple[Arms, str]] = {}
        """Values that are set in a branch, which hold as long as a line is in that branch."""
        self._inner_arrays: dict[str, tuple[Arms, list[tuple[str, int]]]] = {}
        self._left = _FILLED
        self._branches = Branches()
        self._open = ""
        """The array whose words follow, with `+` if they are added to it."""
        self._parentheses = 0
        self._given = 0
        """Parentheses of this line that it does not close, without those in quotes."""
        self._in_array: list[tuple[str, int]] = []

    def script_of(self, text: str) -> Script:
        """The whole script."""
        script = self._script
        leading = continued = False
        for number, line, goes_on in _logical(text):
            words = _split(line)
            if words and words[0].startswith("--") and script.words[-1:] == [(";", number - 1)]:
                script.words.pop()  # the options of the line before, without its backslash
            # A word such as `a=b` on a further line of a command is its own.
            leading = leading or not continued
            continued = goes_on
            closed = self._branches.enter(line, number)
            if self._branches.in_text:
                continue
            condition = self._branches.condition()
            if condition:
                script.conditions[number] = condition
            if self._open == _GIVEN:  # what `$(…)` gives is not followed
                self._parentheses += _parentheses(line)
                self._open = _GIVEN if self._parentheses > 0 else ""
                words = []
            self._given = _parentheses(line)
            leading = self._line(words, number, leading=leading, inside=self._branches.inside)
            self._branches.leave(closed)
            if not (goes_on or self._open):
                script.words.append((";", number))
        script.whole = self._branches.whole
        return script

    def _line(self, words: list[str], number: int, *, leading: bool, inside: bool) -> bool:
        """Take the words of one line; whether a further line may still begin with assignments."""
        declares = False
        self._loop(words, number)
        for raw in words:
            if self._open == _GIVEN:
                continue
            if self._open:
                self._element(raw, number, inside=inside)
                continue
            if leading and self._branches.inside and _LABEL.fullmatch(raw):
                continue  # `sglang)` of a `case`
            if raw in _AGAIN or raw == ";":
                leading, declares = True, False
                inside = inside or raw in _AGAIN
            elif (raw in _DECLARES and leading) or (declares and raw.startswith("-")):
                declares = True
                continue
            elif leading and self._assigned(raw, number, inside=inside):
                continue
            else:
                leading = raw.endswith(";")
            self._word(raw, number)
        if self._open == _GIVEN and self._parentheses <= 0:
            self._open = ""
        return leading

    # for flag in --lowvram --use-sage-attention; do
    def _loop(self, words: Sequence[str], number: int) -> None:
        """A loop over options: what its variable holds changes from round to round."""
        over = words[3:] if words[:1] == ["for"] and words[2:3] == ["in"] else []
        if any(one.startswith("--") or _LISTED.fullmatch(one) for one in over):
            self._branch(words[1], number)

    def _assigned(self, raw: str, number: int, *, inside: bool) -> bool:
        """An assignment is noted; False if the word is none."""
        match = _ASSIGNMENT.match(raw)
        if match is None:
            return False
        if match[3].startswith("$(") and match[3].count("(") > match[3].count(")"):
            # X=$(kubectl get service …): what a command gives is not followed.
            self._values.pop(match[1], None)
            self._certain.pop(match[1], None)
            self._open, self._parentheses = _GIVEN, self._given
            return True
        if match[3].startswith("("):
            self._open, self._in_array, self._parentheses = match[1] + match[2], [], 0
            self._element(match[3], number, inside=inside)
            return True
        inside = inside and not self._runs.get(number, False)
        if not self._runs.get(number, True):
            return True
        name, before = match[1], self._values.get(match[1], "")
        value = self._fill(match[3].rstrip(";"))
        value = appended(before, value) if match[2] else value
        self._inner.pop(name, None)
        if inside:
            self._inner[name] = (self._branches.arms(), value)
        self._piece(name, before, value, number)
        self._certain[name] = value
        if not inside:
            self._script.branched.pop(name, None)
        elif _differ(before, value) or _CONCERNS.search(name):
            self._branch(name, number)
            del self._certain[name]
        elif name in self._script.branched:
            del self._certain[name]
        self._values[name] = value
        if value.lstrip().startswith("-"):
            self._script.optional.add(name)
        self._script.variables[name] = Setting(name, value, number)
        return True

    def _piece(self, name: str, before: str, value: str, number: int) -> None:
        """Note what a line adds: `CMD+=" --one"`, `CMD="$CMD --one"`."""
        adds = bool(before) and value.startswith(before)
        kept = self._pieces.get(name, [])[-_LINES:] if adds else []
        self._pieces[name] = [*kept, (value.removeprefix(before) if adds else value, number)]

    def _line_of(self, name: str, word: str, number: int) -> int:
        """The line that adds a word to a value; `number` if that is not known."""
        lines = (line for text, line in self._pieces.get(name, ()) if word in text.split())
        return next(lines, number)

    def _element(self, raw: str, number: int, *, inside: bool) -> None:
        """One word of an array, whose end it may be."""
        self._parentheses += raw.count("(") - raw.count(")")
        ends = self._parentheses <= 0 or len(self._in_array) > _LINES * 10
        word = raw.removeprefix("(") if not self._in_array else raw
        word = word.removesuffix(";").removesuffix(")") if ends else word
        if word:
            self._in_array += self._filled_words(word, number)
        if not ends:
            return
        name, adds = self._open.removesuffix("+"), self._open.endswith("+")
        self._open = ""
        before = self._arrays.get(name, [])
        after = [*before, *self._in_array] if adds else self._in_array
        inside = inside and not self._runs.get(number, False)
        if not self._runs.get(number, True):
            return
        within = self._within(self._inner_arrays.pop(name, None))
        if inside and not (adds and within is None and name in self._script.branched):
            whole = [*(within or before), *self._in_array] if adds else self._in_array
            self._inner_arrays[name] = (self._branches.arms(), whole[: _LINES * 100])
        if inside and _differ(_joined(before), _joined(after)):
            self._branch(name, number)
            return
        if not inside and not adds:
            self._script.branched.pop(name, None)
        self._arrays[name] = after[: _LINES * 100]

    def _branch(self, name: str, number: int) -> None:
        """A branch sets the variable on this line."""
        self._script.branched.setdefault(name, []).append(number)
        self._script.arms[number] = self._branches.arms()

    def _word(self, raw: str, number: int) -> None:
        self._script.words += [
            # The parentheses of an array or of a subshell.
            (word if word.startswith("$(") else word.strip("()"), line)
            for word, line in self._filled_words(raw, number)
        ]

    def _filled_words(self, raw: str, number: int) -> list[tuple[str, int]]:
        """A word with its variables filled in, as the words of an array that it stands for."""
        listed = _LISTED.fullmatch(raw)
        within = self._within(self._inner_arrays.get(listed[1])) if listed is not None else None
        if within is not None:
            return within
        if listed is not None and listed[1] in self._arrays:
            held = self._arrays[listed[1]]
            return [*held, (raw, number)] if listed[1] in self._script.branched else held
        whole = _VARIABLE.fullmatch(raw)
        name = (whole[1] or whole[3]) if whole is not None else ""
        word = self._fill(raw)
        known = name in self._certain and name in self._script.variables
        # "--parallel_backend $BACKEND" in quotes is one word of an array, and two for argparse.
        options = whole is not None and " --" in word
        parts = word.split() if options or word.lstrip("(").startswith("--") else [word]
        return [(part, self._line_of(name, part, number) if known else number) for part in parts]

    def _within(self, held: tuple[Arms, _Value] | None) -> _Value | None:
        """What a branch has set, on a line of the same branch."""
        if held is None or self._branches.arms()[: len(held[0])] != held[0]:
            return None
        return held[1]

    def _known(self) -> Mapping[str, str]:
        """The values that are certain on this line."""
        if not self._inner:
            return self._certain
        # A branch that was left is not entered again.
        self._inner = {
            name: held for name, held in self._inner.items() if self._within(held) is not None
        }
        return ChainMap({name: held[1] for name, held in self._inner.items()}, self._certain)

    def _fill(self, word: str) -> str:
        if "$" not in word:
            return word
        filled = _filled(word, self._known(), min(self._left, LONGEST))
        self._left -= len(filled)
        return filled


def _joined(words: list[tuple[str, int]]) -> str:
    return " ".join(word for word, _ in words)


def _differ(before: str, after: str) -> bool:
    """Two values differ in words that may concern attention, or name a program."""
    words = {*_own_words(before)} ^ {*_own_words(after)}
    # Of `--lr=$LR` the value matters only if the name does.
    names = (one.partition("=")[0] if one.startswith("--") else one for one in words)
    return any(_CONCERNS.search(one) for one in names)


def _own_words(text: str) -> Iterator[str]:
    """Words without the variables that an option of the same name takes."""
    last = ""
    for word in text.split():
        if not is_value(word, last):
            yield word
        last = word


def is_value(word: str, before: str) -> bool:
    """A variable is the value of the option before it, which has its name."""
    named = _NAMED.fullmatch(word)
    return named is not None and before.lower() == f"--{named[1].lower()}"


def options_of(words: list[tuple[str, int]]) -> dict[str, Setting]:
    """Options `--name value…` and `--name=value`; of one given twice the last."""
    found: dict[str, Setting] = {}
    current, line = "", 1
    values: list[str] = []

    def end() -> None:
        if current:
            several = tuple(values) if len(values) > 1 else values[0] if values else True
            found[current] = Setting(current, several, line, f"--{current}")

    for word, number in words:
        if word.startswith("--") and len(word) > 2:
            end()
            name, equals, value = word[2:].partition("=")
            current, line, values = name, number, [value] if equals else []
        elif word in (";", "&&", "||", "|", "&"):
            end()
            current, values = "", []
        elif current and word:
            values.append(word)
    end()
    return found


def _logical(text: str) -> Iterator[tuple[int, str, bool]]:
    """Lines with their numbers, and whether the command goes on on the next one.

    A text in quotes that `$(` or `-c` takes is one line, whatever it holds.
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start, stripped = at + 1, lines[at].strip()
        at += 1
        if not stripped or stripped.startswith("#") or len(stripped) > LONGEST:
            continue
        if stripped.endswith("\\") and _OPENED.match(stripped):
            stripped, at = _assigned_text(lines, at - 1)
        elif _TEXT.search(stripped):
            stripped, at = _quoted_text(lines, at - 1)
        yield start, stripped.removesuffix("\\"), stripped.endswith("\\")


def _assigned_text(lines: Sequence[str], start: int) -> tuple[str, int]:
    """A value in quotes of several lines as one, and the index behind it."""
    found = [lines[start].strip().removesuffix("\\")]
    for at in range(start + 1, min(len(lines), start + _LINES)):
        found.append(lines[at].strip().removesuffix("\\").rstrip() + " ")
        if '"' in lines[at]:
            break
    end = start + len(found)
    return "".join(found), end


def _quoted_text(lines: Sequence[str], start: int) -> tuple[str, int]:
    """A line with those that its quotes reach over, and the index behind them."""
    quote = _open_quote(_uncommented(lines[start].strip()), "")
    for end in range(start + 1, min(len(lines), start + _LINES)):
        if not quote:
            break
        quote = _open_quote(lines[end], quote)
        if not quote:
            return "\n".join([lines[start].lstrip(), *lines[start + 1 : end + 1]]), end + 1
    return lines[start].strip(), start + 1


def _open_quote(line: str, quote: str) -> str:
    """The quote that is open behind a line. `quote`: the one before it."""
    return next(reversed([one for _, one in _quotes(line, quote)]), quote)


def _uncommented(line: str) -> str:
    """A line without its comment: `#` in a word begins none, as in `$((10#$A))`."""
    if "#" not in line:
        return line
    for at, quote in _quotes(line, ""):
        if line[at] == "#" and not quote and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _quotes(line: str, quote: str) -> Iterator[tuple[int, str]]:
    """The places of a line, with the quote that is open behind each."""
    at = 0
    while at < len(line):
        letter = line[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        yield min(at, len(line) - 1), quote
        at += 1


def _parentheses(line: str) -> int:
    """The parentheses outside quotes that a line leaves open."""
    if "(" not in line and ")" not in line:
        return 0
    letters = [line[at] for at, quote in _quotes(line, "") if not quote]
    return letters.count("(") - letters.count(")")


def _split(line: str) -> list[str]:
    if not _QUOTING.search(line):
        return line.split()  # the same, without shlex's slow walk from letter to letter
    try:
        return shlex.split(_uncommented(line))
    except ValueError:  # a quote that ends on a later line
        return line.replace('"', " ").replace("'", " ").split()


def appended(before: str, more: str) -> str:
    """What a variable holds after `+=`; it stays as it is once it has over `LONGEST` characters."""
    return f"{before} {more}".strip() if len(before) <= LONGEST else before


def defaults(word: str) -> str:
    """A word with the defaults of its variables: `${A:-b}` is `b`."""
    return _filled(word, {}, LONGEST) if "${" in word else word


def _filled(word: str, values: Mapping[str, str], most: int) -> str:
    """`word` with its variables filled in; as it is written if that has over `most` characters."""
    parts, length, at = [], len(word), 0
    for match in _VARIABLE.finditer(word):
        name = match[1] or match[3]
        # An empty default says nothing of the options that the environment may hold.
        default = match[2] or (None if _OPTIONS.search(name) else match[2])
        value = values.get(name, default if default is not None else f"${name}")
        length += len(value) - len(match[0])
        if length > most:
            return word
        parts += [word[at : match.start()], value]
        at = match.end()
    return "".join([*parts, word[at:]])
