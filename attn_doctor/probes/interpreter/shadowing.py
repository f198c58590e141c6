"""Modules that get in the way: folders imported in place of a package, and packages held twice.

Only names that matter to attention backends are looked for. What a script's own folder adds to
the import path cannot be known from here; only PYTHONPATH and the working directory can.
"""

from __future__ import annotations

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site

#: Module → the distributions that may provide it.
MODULES: dict[str, tuple[str, ...]] = {
    "accelerate": ("accelerate",),
    "bitsandbytes": ("bitsandbytes",),
    "diffusers": ("diffusers",),
    "einops": ("einops",),
    "finetrainers": ("finetrainers",),
    "flash_attn": ("flash-attn", "flash-attn-4"),
    "flash_attn_interface": ("flash-attn-3",),
    "huggingface_hub": ("huggingface-hub",),
    "kernels": ("kernels",),
    "numpy": ("numpy",),
    "safetensors": ("safetensors",),
    "sageattention": ("sageattention",),
    "sageattn3": ("sageattn3",),
    "simpletuner": ("simpletuner",),
    "torch": ("torch",),
    "torchao": ("torchao",),
    "torchaudio": ("torchaudio",),
    "torchvision": ("torchvision",),
    "transformers": ("transformers",),
    "triton": ("triton", "triton-windows", "pytorch-triton", "pytorch-triton-rocm"),
    "xformers": ("xformers",),
}
#: A folder of this name is often a project's own; it counts only where the package is installed.
COMMON_WORDS = ("kernels",)
HERE = "in the working directory: only for `python -m` and `python -c`"
#: A folder is listed once; of one with more names than this, the rest are not looked at.
NAMES = 5000


def planted(host: Host, site: Site, pythonpath: tuple[str, ...]) -> tuple[str, ...]:
    """What would be imported in place of a known package, with where it lies."""
    places = dict.fromkeys(pythonpath, "in PYTHONPATH")
    if not host.environ.get("PYTHONSAFEPATH"):
        places.setdefault(host.platform.cwd, HERE)
    return tuple(
        f"{path} ({place})"
        for folder, place in places.items()
        if folder
        for path in _strays(host, site, folder)
    )


def _strays(host: Host, site: Site, folder: str) -> list[str]:
    """Known modules that lie in `folder` without being installed there."""
    found = []
    for name in host.try_list(folder)[:NAMES]:
        module, _, suffix = name.partition(".")
        if module not in MODULES or _installed(site, folder, module):
            continue
        path = host.join(folder, name)
        # A folder without __init__.py gives way to any package further down the path.
        package = not suffix and host.is_file(host.join(path, "__init__.py"))
        if package or suffix.split(".")[-1] in ("py", "pyc", "so", "pyd"):
            found.append(path)
    return found


def _installed(site: Site, folder: str, module: str) -> bool:
    """Its distribution lies in `folder` too, or is a development install of it; or is no worry."""
    copies = [one for name in MODULES[module] for one in site.distributions.copies(name)]
    if module in COMMON_WORDS and not copies:
        return True
    return any(one.site == folder or _editable(site, one, folder) for one in copies)


# {"dir_info": {"editable": true}, "url": "file:///home/ada/SimpleTuner"}
def _editable(site: Site, one: Distribution, folder: str) -> bool:
    """`one` is a development install of the sources in `folder`."""
    from urllib.parse import unquote

    origin = unquote(site.distributions.read(one, "direct_url.json"))
    place = folder.replace("\\", "/").strip("/")
    return '"editable": true' in origin and f'"file:///{place}"' in origin


def duplicates(host: Host, site: Site) -> tuple[str, ...]:
    """Known packages and CUDA wheels that are installed more than once."""
    known = {name for names in MODULES.values() for name in names}
    copies: dict[str, dict[str, Distribution]] = {}
    for one in site.distributions.all:
        if one.name in known or one.name.startswith("nvidia-"):
            copies.setdefault(one.name, {}).setdefault(host.real(one.info), one)
    return tuple(
        f"{name}: " + ", ".join(f"{one.version} in {one.site}" for one in found.values())
        for name, found in sorted(copies.items())
        if len(found) > 1
    )
