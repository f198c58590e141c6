"""Removes secrets from text before it is shown or saved: the one place that knows their signs.

A secret shows by the shape of a known service's token (`token_shapes.py`), by the name before it
(`--hub_token X`, `PASSWORD=`, `Authorization: Bearer`), by its place in a URL, as a private key, or
because it is a long word of random letters. It shows also where it is encoded in a URL or in JSON,
and where a line of a log breaks within it. Paths stay, because a diagnosis needs them, and so do
hexadecimal digests: a token that looks like the hash of a commit shows only by its name. A password
that is an ordinary word without a name is not recognised; so the environment is first filtered by
an allow-list (`env_vars.py`).

Patterns are texts, which `re` compiles when they are first needed: an ordinary page needs few.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

from attn_doctor.clean import clean_lines
from attn_doctor.token_shapes import BEFORE, SHAPES, UNMARKED, UNMARKED_LENGTH

HIDDEN = "***"
#: Changes between lower case, upper case and digits per letter in random text; names have fewer.
CHANGES = 0.45
#: Average bits per letter in random text of 24 letters or more; repetitions have fewer.
BITS = 3.5

#: Where a token begins: not within a word, but after a line break that is written as `\n`.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"

# Names and values

#: Ends of names whose value is hidden whatever it is.
_STRONG = (
    r"(?i)(?:passw(?:or)?d|passphrase|passwd|secret|credentials?|_auth|auth[_-]?token"
    r"|(?:api|access|private|account|auth|encryption|signing|storage|master|license|deploy|ssh"
    r"|subscription|secret|service|session|shared|client|webhook|hmac|jwt)[_-]?key"
    r"|(?:^|[_-])pwd)$"
)
#: Ends of names whose value is hidden unless it is an ordinary word of code.
_WEAK = r"(?:(?i:token|jwt|[_-]pat)|KEY)$"
#: Names that end like secrets and are not: special tokens of models, keys of caches.
_ORDINARY_NAME = (
    r"(?i)(?:^|[_.-])(?:pad|eos|bos|unk|sep|cls|mask|image|img|video|audio|special|next|last|first"
    r"|per|new|stop|start|end|prompt|trigger|instance|class|placeholder|initializer|time|text|each"
    r"|no|num|max|min|invalid|unexpected|single|every|one|added|cache|public|to|attn|query|foreign"
    r"|primary|sort|partition|index|dict|map|registry)[_-]?(?:token|key)$"
)
#: Values that say nothing: empty, a variable, a constant, a placeholder, an expression, the rest of
#: a pinned release, as in `pyjwt==2.10.1`.
_SAYS_NOTHING = (
    r"(?i)(?:\*+|values?\b.*|your.*|\$.*|%\w+%|\{.*|<.*|\[.*|none|null|nil|true|false|yes|no|on"
    r"|off|str|string|bytes|int|optional\b.*|(?:self|os|args|config|cfg|tokenizer)\..*|\w+\(.*|-+|\.\.\.|…|\d{1,6}"
    r"|=\d{1,6}(?:\.\d{1,6}){1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,8})?)"
    r"[\])},.;:]*"
)
#: A text without these has no name that tells.
_NAMED = (
    *("token", "jwt", "pass", "pwd", "secret", "key", "auth", "cred"),
    *("pat=", "pat:", "pat ", 'pat"'),
)
_VALUE = r"""(?:[^\s"`\\<>&]|\\(?!"))"""
_QUOTED = rf"(?P<value>(?(quote)(?:(?!\\?(?P=quote))[^\n])+|{_VALUE}+))"
#: `TOKEN=X`, `"api_key": "X"`. The name begins before the match; `_before` reads it.
_ASSIGNED = (
    r"(?i)(?P<name>(?:token|jwt|passw(?:or)?d|passphrase|passwd|pwd|secret|credentials?|auth|key"
    r"|[_-]pat)(?:_?(?:[0-9]{1,2}|b64|base64|value))?)"
    # The value may stand in the next line, which a shell joins to this one.
    r"(?P<sep>\\?[\"']?\]?[ \t]{0,3}(?::=|=>|[:=])[ \t]{0,3}(?:\\\r?\n[ \t]*)?"
    r"(?:[rbuf]?\\?(?P<quote>[\"']))?)"
) + _QUOTED  # fmt: skip
#: The end of a line, but not between a name and its value.
_ENDS_LINE = r"(?<![=:]\\)(?<![=:]\\\r)\n"
#: `--hub_token X`, also as `"--hub_token", "X"`.
_OPTION = (
    r"(?<![\w-])(?P<name>--?[A-Za-z][\w.-]{1,60})"
    # The value may stand in the next line of a command.
    r"(?P<sep>\\?[\"']?(?:=|,?\s+(?:\\\r?\n[ \t]*)?)\\?(?P<quote>[\"'])?)"
    rf"(?P<value>(?(quote)(?:(?!\\?(?P=quote))[^\n])+|(?!-){_VALUE}+))"
)
_HEADER = (
    r"(?i)\b(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token|auth)"
    r"|private-token|job-token)(?P<sep>[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?P<value>[^\"'`\n\r<]+)"
)
#: The start of a header's name that no standard has.
_OWN_HEADER = r"x-[\w-]{0,40}(?:key|token|auth)"
_SCHEME = r"(?i)\b(?P<name>bearer|basic)(?P<sep>[ \t]+)(?P<value>[\w.~+/=-]{8,})"
#: `curl -u name:password`, `sshpass -p X`, `docker login -p X`, `wandb login X`, a line of .netrc.
_COMMAND = (
    r"(?im)(?P<name>(?<![\w-])(?:-u|--user|--proxy-user)[= ]['\"]?[^\s:'\"@/]{1,80}:"
    r"|\b(?:sshpass|login)\b[^\n]{0,80}?\s-p[ =]?|\bwandb\s+login\s+(?:--\S+\s+)*"
    r"|\blogin\s+\S{1,80}\s+password\s+|^[ \t]*password[ \t]+)(?P<sep>)"
    r"(?P<value>(?!-)[^\s\"'`<>]+)"
)

# Places

#: The user and password of a URL. A password may hold `/` and `@`, which is not allowed and done.
_USER = (
    r"(?<=://)(?P<user>[^/@:\s\"'`<>]*)(?P<rest>:(?!\d{1,5}(?:/|$|\s))[^\s\"`<>]{0,512})?@"
)  # fmt: skip
_QUERY = (
    r"(?i)(?P<name>[?&;#][\w.-]{0,40}(?:auth|credential|key|key-id|key-pair-id|pass|password|passwd"
    r"|pwd|secret|sig|signature|token|jwt|sas|session|hmac|ticket|code)=)[^&#\s\"'`<>]+"
)
_PRIVATE_KEY = (
    r"(?ms)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|(?P<putty>^Private-Lines: \d+).*?(?=^Private-MAC|\Z)"
)

# Writing

#: A word with characters that a URL (`%2F`) or JSON (`\/`) writes as several.
_ENCODED = r"(?:[^\s\"'`<>\\]|\\/)+"
#: A character that is written as `\x1b` or `\u0022`, or a colour, and the word behind it.
_ESCAPED = r"(\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\[\d{1,2}m)([\w.+/=~:-]+)"
#: How often a URL may be encoded, one in the query of the other.
_TIMES_ENCODED = 3
#: Characters of a URL that are not encoded again.
_URL = "!#$%&()*+,-./:;=?@[]^_`{|}~"
#: A line break within a word, also one that is written as `\n`; and letters of a token.
_BREAK, _LETTERS = r"(?:\\?\r?\n|\\n)[ \t]*", r"[\w.+/=~-]"
#: Letters of a token before and after a break, and changes per letter after it.
_BEFORE_BREAK, _AFTER_BREAK, _PIECE_CHANGES = 12, 5, 0.25
#: Letters in which a whole token shows.
_LONG = 200

# Random words

#: Words that may be random. Not a part of a path.
_WORD = _START + r"(?<![+.~%/\\-])[A-Za-z0-9_+-][A-Za-z0-9_+/-]{23,}={0,2}"
#: The least length of a `_WORD`.
_WORD_LENGTH = 24
_DIGEST = r"(?i)(?:sha(?:1|224|256|384|512)|md5|blake2b)[=:-]"
#: GPU-8f0c6b0e-2c2f-4b43-9d1b-0c8b8a3f4f11, names of C++ functions and templates, and paths with
#: the key of a cache entry: base32 of a digest.
_ORDINARY_WORD = (
    r"(?:^|/)(?:[A-Z2-7]{52}|[a-z2-7]{50,52})(?:/|$)|"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|^_+Z|ILb[01]E|Lb[01]ELb|ENS\d?_|EEE[vN]|RKN"
)


class Redacted(str):
    """A page without secrets, which is not searched again. What is made of it is searched."""

    __slots__ = ()


def redact(text: str) -> str:
    """Return `text` with every secret in it replaced by `***`. Twice gives the same."""
    if "-----BEGIN" in text or "Private-Lines" in text:
        text = re.sub(_PRIVATE_KEY, _without_key, text)
    if "\\/" in text or ("%" in text and re.search(r"%[0-9A-Fa-f]{2}", text)):
        text = re.sub(_ENCODED, _without_encoded, text)
    if "\\x" in text or "\\u" in text or any(f"[{one}" in text for one in "0123456789"):
        text = re.sub(_ESCAPED, lambda found: found[1] + redact(found[2]), text)
    if "\n" in text or "\\n" in text:
        text = _without_broken(text)
    if "://" in text and "@" in text:
        text = re.sub(_USER, _without_user, text)
    if "=" in text:
        text = re.sub(_QUERY, rf"\g<name>{HIDDEN}", text)
    text = _named(text)
    for marker, rest, _ in SHAPES:
        if marker in text:
            text = _without_shape(text, marker, rest)
    # Both are one word of many letters, which few pages have.
    longest = max(map(len, text.split()), default=0)
    if longest >= UNMARKED_LENGTH and ("." in text or ":" in text):
        text = _unmarked().sub(HIDDEN, text)
    return re.sub(_WORD, _unless_ordinary, text) if longest >= _WORD_LENGTH else text


def presentable(text: str) -> str:
    """Return `text` of other origin as it may be shown or saved: clean lines without secrets."""
    return redact(clean_lines(text))


def redact_all(value: Any) -> Any:
    """Return plain data with every secret in it replaced, keys of dictionaries included.

    The names of entries tell, and so does an option in a list of arguments for the word after it.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {
            redact(name) if isinstance(name, str) else name: _entry(str(name), one)
            for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(one, str) for one in value):
            return redact_arguments(value)
        return [redact_all(one) for one in value]
    return value


def redact_arguments(words: Iterable[str]) -> list[str]:
    """Return the arguments of a program without secrets. An option names the word after it."""
    shown: list[str] = []
    before = ""
    for word in words:
        secret = before.startswith("-") and not word.startswith("-") and _tells(before, word)
        shown.append(HIDDEN if secret else redact(word))
        before = word
    return shown


def _entry(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(_is_secret(name, one) for one in value):
        return [_entry(name, one) for one in value]
    return HIDDEN if _is_secret(name, value) else redact_all(value)


def _is_secret(name: str, value: Any) -> bool:
    return isinstance(value, str) and _tells(name, value)


# Names


def _named(text: str) -> str:
    """Hide what follows names that tell. Each pattern is searched where a word of it is."""
    low = text.lower()
    header = "authorization" in low or "cookie" in low or "-token" in low
    if header or ("x-" in low and re.search(_OWN_HEADER, low)):
        text = re.sub(_HEADER, _hide_if(lambda *_: True), text)
    if "bearer " in low or "basic " in low:
        text = re.sub(_SCHEME, _hide_if(lambda _, value: _mixed(value)), text)
    if " -u" in low or "-user" in low or "login" in low or "sshpass" in low or "password " in low:
        text = re.sub(_COMMAND, _hide_if(lambda _, value: not _says_nothing(value)), text)
    if any(word in low for word in _NAMED):
        if "-" in low:
            text = re.sub(_OPTION, _hide_if(_tells), text)
        text = "\n".join(map(_without_assigned, re.split(_ENDS_LINE, text)))
    return text


def _without_assigned(line: str) -> str:
    """A line without the values of names that tell."""
    low = line.lower()
    found = any(word in low for word in _NAMED)
    return re.sub(_ASSIGNED, _assigned, line) if found else line


def _tells(name: str, value: str, *, prose: bool = False) -> bool:
    """Whether `name` says that `value` is a secret. `prose`: where prose and code are likely."""
    if not value or _says_nothing(value):
        return False
    name = re.sub(r"(?i)_?(?:[0-9]{1,2}|b64|base64|value)$", "", name.lstrip("-"))
    if re.search(_STRONG, name):
        return not (name.lower().endswith("pwd") and value[:1] in "/~\\")
    if not re.search(_WEAK, name) or re.search(_ORDINARY_NAME, name):
        return False
    if re.search(r"(?i)(?:token|key|password)[\W\d_]*$", value):
        return False  # token=hf_token
    return not prose or _mixed(value)


def _says_nothing(value: str) -> bool:
    return re.fullmatch(_SAYS_NOTHING, value) is not None


def _mixed(value: str) -> bool:
    """Whether a value can hardly be a word of prose or code."""
    return len(value) >= 20 or (len(value) >= 8 and any(char.isdigit() for char in value))


def _hide_if(tells: Callable[[str, str], bool]) -> Callable[[re.Match[str]], str]:
    def replaced(found: re.Match[str]) -> str:
        value = found["value"]
        if value.startswith(HIDDEN) or found.string.endswith("/etc/", 0, found.start()):
            return found[0]  # `/etc/passwd: …` is a file
        if not tells(_before(found) + found["name"], value):
            return found[0]
        return f"{found['name']}{found['sep']}{HIDDEN}{_tail(value)}"

    return replaced


def _before(found: re.Match[str]) -> str:
    """The part of a name that precedes the match."""
    before = re.search(r"[\w.-]*\Z", found.string[max(0, found.start() - 60) : found.start()])
    return before[0] if before else ""


def _assigned(found: re.Match[str]) -> str:
    prose = " " in found["sep"] and not found["quote"]
    return _hide_if(lambda name, value: _tells(name, value, prose=prose))(found)


def _tail(value: str) -> str:
    """The punctuation that ends a value and belongs to the sentence around it."""
    return value[len(value.rstrip(")].,;:}'")) :]


# Places


def _without_key(found: re.Match[str]) -> str:
    return f"{found['putty']} {HIDDEN}\n" if found["putty"] else f"{HIDDEN} (private key)"


def _without_user(found: re.Match[str]) -> str:
    harmless = found["user"] in ("git", "…") and not found["rest"]
    return found[0] if harmless or found["rest"] == f":{HIDDEN}" else f"{HIDDEN}@"


# Writing


def _without_encoded(found: re.Match[str]) -> str:
    """An encoded word, encoded again if a secret was in it."""
    word = found[0]
    if "%" not in word and "\\/" not in word:
        return word
    from urllib.parse import quote, unquote

    plain = word.replace("\\/", "/")
    for _ in range(_TIMES_ENCODED):
        if "%" in plain:
            plain = unquote(plain)
    if "%" in plain and re.search(r"%[0-9A-Fa-f]{2}", plain):
        return HIDDEN  # nothing that is encoded so often is read by a person
    shown = redact(plain)
    return word if shown == plain or word == quote(shown, safe=_URL) else quote(shown, safe=_URL)


def _without_broken(text: str) -> str:
    """The text without tokens that go on in the next line."""
    breaks = [one for one in re.finditer(_BREAK, text) if _goes_on(text, one)]
    shown, end = "", 0
    while breaks:
        first = breaks.pop(0)
        start = max(end, text.rfind("\n", 0, first.start()) + 1)
        joined, place = text[start : first.start()], first
        while True:
            piece = _piece(text, place)
            joined += piece
            after = place.end() + len(piece)
            if not breaks or breaks[0].start() != after:
                break
            place = breaks.pop(0)
        hidden = redact(joined)
        if not hidden.endswith(piece):
            shown, end = shown + text[end:start] + hidden, after
    return shown + text[end:]


def _goes_on(text: str, place: re.Match[str]) -> bool:
    """Whether the letters on both sides of a line break may be one token."""
    before = text[max(0, place.start() - _BEFORE_BREAK) : place.start()]
    if len(before) < _BEFORE_BREAK or not (before[-1].isalnum() or before[-1] in "_-+/="):
        return False
    piece = _piece(text, place)
    if len(piece) < _AFTER_BREAK or re.match(r"/|[A-Z][A-Z0-9_]*=[^=]", piece):
        return False  # too short, a path, the next variable
    if piece.isascii() and piece.islower() and not re.search("[0-9]", piece):
        return False  # nothing changes, as in most words
    if re.fullmatch(_LETTERS + "+", before) is None or _changes(piece) < _PIECE_CHANGES:
        return False
    return not _is_token(text[place.end() : place.end() + _LONG])


def _is_token(word: str) -> bool:
    """Whether `word` begins with a whole token, which as a part of another might not be found."""
    shapes = (_shape(marker, rest) for marker, rest, _ in SHAPES if marker in word)
    return any(one.match(word) for one in (*shapes, _unmarked()))


def _piece(text: str, place: re.Match[str]) -> str:
    """The letters after a line break."""
    found = re.compile(_LETTERS + "*").match(text, place.end())
    return found[0] if found else ""


# Shapes


def _without_shape(text: str, marker: str, rest: str) -> str:
    """The text without tokens of one shape."""
    shape = _shape(marker, rest)
    if marker in BEFORE:
        return shape.sub(HIDDEN, text)
    # Tried only where the marker is: `re` would try every place.
    shown, end, at = "", 0, text.find(marker)
    while at >= 0:
        found = shape.match(text, at)
        if found is not None:
            shown, end = shown + text[end:at] + HIDDEN, found.end()
        at = text.find(marker, at + 1 if found is None else end)
    return shown + text[end:] if end else text


@cache
def _shape(marker: str, rest: str) -> re.Pattern[str]:
    plain = "" if len(marker) > 4 and marker.endswith(("_", "-")) else _START
    before = BEFORE.get(marker, plain)
    return re.compile(f"{before}{re.escape(marker)}(?:{rest})", re.ASCII)


@cache
def _unmarked() -> re.Pattern[str]:
    shapes = "|".join(pattern for pattern, _ in UNMARKED)
    return re.compile(f"{_START}(?:{shapes})", re.ASCII)


# Random words


def _unless_ordinary(found: re.Match[str]) -> str:
    """The word, or `***` if it is a long run of random letters and digits."""
    word = found[0]
    if (
        len({_kind(char) for char in word if char.isalnum()}) < 3
        or re.search(_ORDINARY_WORD, word)
        or re.match(_DIGEST, word)
    ):
        return word
    if re.search(_DIGEST + r"\Z", found.string[max(0, found.start() - 8) : found.start()]):
        return word
    return HIDDEN if _changes(word) >= CHANGES and _bits(word) >= BITS else word


def _changes(word: str) -> float:
    """Changes between lower case, upper case and digits per letter."""
    kinds = [_kind(char) for char in word if char.isalnum()]
    return sum(one != other for one, other in pairwise(kinds)) / max(1, len(kinds) - 1)


def _kind(char: str) -> int:
    return 0 if char.islower() else 1 if char.isupper() else 2


def _bits(word: str) -> float:
    shares = [word.count(char) / len(word) for char in set(word)]
    return -sum(share * math.log2(share) for share in shares)
