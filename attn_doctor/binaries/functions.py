"""Lists functions that a Windows extension needs and no DLL has, with those of torch apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing

from attn_doctor.binaries.binary import Unresolved
from attn_doctor.binaries.pe import Exports, Pe
from attn_doctor.binaries.window import DamagedError, Window

#: DLLs of torch: torch_cpu.dll, torch_python.dll, c10.dll, c10_cuda.dll …
_TORCH = re.compile(r"(?:torch|c10|caffe2)(?:_\w+)?\.dll")
#: Number of names that are returned.
SHOWN = 5


def of_torch(dll: str) -> bool:
    """Whether a DLL of this name belongs to torch."""
    return _TORCH.fullmatch(dll.lower()) is not None


def unresolved(needs: Sequence[tuple[str, Sequence[str]]]) -> list[Unresolved]:
    """Find for each extension the functions that its DLLs do not offer.

    Only the DLLs whose paths are given are searched. For an extension or a DLL that cannot be read,
    `damaged` is set.
    """
    with ExitStack() as files:
        pool: dict[str, Exports] = {}
        return [_unresolved(path, libraries, pool, files) for path, libraries in needs]


def _unresolved(
    path: str, libraries: Sequence[str], pool: dict[str, Exports], files: ExitStack
) -> Unresolved:
    # Windows' paths also where a recording of one is read.
    known = {re.split(r"[/\\]", one)[-1].lower(): one for one in libraries}
    missing: dict[bytes, bool] = {}
    reading = path
    try:
        with closing(Window(path)) as window:
            for dll, names in Pe(window).functions():
                reading = known.get(dll.lower(), "")
                if not reading:
                    continue
                if reading not in pool:
                    library = files.enter_context(closing(Window(reading)))
                    pool[reading] = Pe(library).exports()
                offered = pool[reading]
                missing |= {name: of_torch(dll) for name in names if name not in offered}
    except (DamagedError, OSError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        return Unresolved(damaged=f"{reading}: {why}")
    first = sorted(missing, key=lambda name: not missing[name])[:SHOWN]
    return Unresolved(
        count=len(missing),
        torch=sum(missing.values()),
        first=tuple(name.decode("utf-8", "replace") for name in first),
    )
