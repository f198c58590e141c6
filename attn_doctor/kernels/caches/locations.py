"""Where every cache lies on this machine, each folder once."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.machine.caches import cute, locate


class Place(Struct, frozen=True):
    """A cache's folder, and the variable that names it (or `default`)."""

    kind: str
    path: str
    source: str


def places(host: Host) -> tuple[Place, ...]:
    """The folders of all caches, whether they exist or not."""
    found = [
        Place(one.kind, one.path, one.source)
        for one in locate(host)
        if one.kind not in ("fxgraph", "aotautograd")  # parts of Inductor's folder
    ]
    if not any(one.kind == "cute" for one in found):
        # Kept earlier, when FlashAttention 4 was told to; it is no longer.
        path, source = cute(host)
        if host.is_dir(path):
            found.append(Place("cute", path, source))
    found.append(Place("hub", *_hub(host)))
    inside = host.join(found[0].path, "triton")
    # Triton's folder may be named to lie in Inductor's, where it is counted already.
    return tuple(
        one
        for one in found
        if one.kind != "triton" or not host.join(one.path, "").startswith(host.join(inside, ""))
    )


def _hub(host: Host) -> tuple[str, str]:
    """As the `kernels` package: its own variable, else the folder of the Hub's downloads."""
    for name in ("KERNELS_CACHE", "HF_KERNELS_CACHE", "HF_HUB_CACHE"):
        if host.environ.get(name):
            return host.join(host.platform.cwd, host.environ[name]), name
    if host.environ.get("HF_HOME"):
        return host.join(host.platform.cwd, host.environ["HF_HOME"], "hub"), "HF_HOME"
    home = host.environ.get("XDG_CACHE_HOME") or host.join(host.platform.home, ".cache")
    return host.join(home, "huggingface", "hub"), "default"
