"""Removes secrets from text before it is shown or saved: passwords in URLs, access tokens.

Paths stay, because a diagnosis needs them. A secret that looks like an ordinary word is not
recognised; so the environment is first filtered by an allow-list (`env_vars.py`).
"""

from __future__ import annotations

import math
import re
from functools import cache

HIDDEN = "***"
#: Longer values are truncated; no variable that is read needs more.
LENGTH = 1 << 15
#: Tokens of well-known services: their prefix, and what follows it.
TOKENS = (
    r"hf_[A-Za-z0-9]{16,}",
    r"gh[opsur]_[A-Za-z0-9]{16,}",
    r"github_pat_\w{16,}",
    r"glpat-[\w-]{16,}",
    r"sk-[\w-]{16,}",
    r"xox[abeoprs]-[\w-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"AIza[\w-]{30,}",
    r"ya29\.[\w-]{16,}",
    r"pypi-[\w-]{16,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"nvapi-[\w-]{16,}",
    r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
)
#: Average bits per letter in random text of 32 letters or more; names have fewer.
RANDOM = 4.0


def redact(text: str) -> str:
    """Return `text` with secrets replaced by `***` and control characters by `�`."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in text[:LENGTH])
    # https://user:password@example.org/simple, or only a token before the @
    text = re.sub(r"(?<=://)[^/@\s]+@", f"{HIDDEN}@", text)
    # https://example.org/file?signature=…
    text = re.sub(
        r"([?&][\w-]*(?:auth|credential|key|password|secret|sig|signature|token)=)[^&#\s]+",
        rf"\g<1>{HIDDEN}",
        text,
        flags=re.IGNORECASE,
    )
    text = _tokens().sub(HIDDEN, text)
    return re.sub(r"[^\s,;:=|'\"]{32,}", lambda match: _unless_random(match[0]), text)


@cache
def _tokens() -> re.Pattern[str]:
    return re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(TOKENS) + ")")


def _unless_random(word: str) -> str:
    """Return `word`, or `***` if it is a long run of random letters and digits."""
    is_path = word.startswith(("/", "~", ".", "$", "\\"))
    if is_path or not re.fullmatch(r"[\w+/-]+", word, re.ASCII):
        return word
    # CUDA_VISIBLE_DEVICES=GPU-8f0c6b0e-2c2f-4b43-9d1b-0c8b8a3f4f11
    if re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", word):
        return word
    hexadecimal = re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", word)
    mixed = all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return HIDDEN if hexadecimal or (mixed and _entropy(word) >= RANDOM) else word


def _entropy(word: str) -> float:
    shares = [word.count(char) / len(word) for char in set(word)]
    return -sum(share * math.log2(share) for share in shares)
