"""What a program's own output tells of attention that did not run as one fused kernel.

torch says so in a warning or a log line and goes on: results are right, the whole matrix of scores
lies in memory, and nothing of it can be built ahead. A program that silences warnings, and a torch
before 2.9 within a compiled block, do not tell.
"""

from __future__ import annotations

import re
from pathlib import Path

from attn_doctor.worker.kernels.fusion_check import LIMITS, NO_BFLOAT16, UNCOMPILED

#: Bytes from either end of a log that are looked through.
_LOOKED = 1 << 20
_FUNCTION = re.compile(r"function: '(?P<name>[^']*)' \((?P<place>[^)]*)\)")


def unfused(log: Path) -> tuple[str, str]:
    """Why attention of the program that wrote `log` ran unfused, and a remark; both may be "".

    The remark is for signs that need not have to do with attention.
    """
    text = _text(log)
    if NO_BFLOAT16 in text:
        return "this GPU has no bfloat16, so torch ran attention unfused; use float16", ""
    limit = next((sign for sign in LIMITS if sign in text), "")
    uncompiled = any(sign in text for sign in UNCOMPILED)
    if limit:
        found = _FUNCTION.search(text, text.index(limit))
        name = f" for {found['name']}" if found else ""
        words = f"torch reached its limit of recompilations{name} and ran the rest uncompiled"
        ours = found is not None and "flex_attention" in found["name"] + found["place"]
        return (f"{words}, attention unfused", "") if ours or uncompiled else ("", words)
    if uncompiled:
        return "", "flex_attention was also called without torch.compile, which builds nothing"
    return "", ""


def _text(log: Path) -> str:
    """Both ends of a log; "" if it cannot be read."""
    try:
        with log.open("rb") as file:
            start = file.read(_LOOKED)
            file.seek(max(len(start), log.stat().st_size - _LOOKED))
            return (start + file.read(_LOOKED)).decode("utf-8", "replace")
    except OSError:
        return ""
