"""Tells from the source of modules which names they lack."""

from __future__ import annotations

import re

from attn_doctor.host import Host
from attn_doctor.probes.installed.sources import Sources
from attn_doctor.requirement import satisfies

#: What defines names of a module that its text does not show.
_HIDING = (
    r"(?m)import \*|^def __getattr__|globals\(|setattr\((?:sys|mod)|\bvars\(\)|exec\(|"
    r"sys\.modules\[__name__\]"
)
#: Names of torch that come from its library, and the release that has them. Seen by importing
#: torchao 0.13.0 to 0.18.0 beside torch 2.4.1, 2.5.1 and 2.9.1.
_OF_TORCH = {f"int{bits}": "2.6" for bits in range(1, 8)}


class Names:
    """The names of an environment's modules."""

    def __init__(self, host: Host, sources: Sources, torch: str) -> None:
        """`torch`: its version; empty if unknown."""
        self._host, self._sources, self._torch = host, sources, torch.partition("+")[0]
        self._texts: dict[str, str] = {}

    def lacks(self, base: str, name: str, sign: str = ":") -> bool:
        """Whether the source of the module `base` shows that it has no `name`.

        `sign`: `?` for a module, which has to be a file or a folder.
        """
        if base == "torch" and sign != "?":
            return self._older(_OF_TORCH.get(name, ""))
        path = self._sources.file(base)
        if not path or self._sources.there(f"{base}.{name}"):
            return False
        if sign == "?":
            return path.endswith("__init__.py")
        if path not in self._texts:
            self._texts[path] = self._host.try_read(path, 1 << 20)
        text = self._texts[path]
        return bool(text) and not re.search(rf"\b{name}\b", text) and not re.search(_HIDING, text)

    def _older(self, since: str) -> bool:
        """Whether torch is older than a release."""
        try:
            return bool(since and self._torch) and satisfies(self._torch, f"<{since}.dev0")
        except ValueError:
            return False
