"""Finds modules that shadow a package.

Only packages that attention backends use are checked, and what these need. PYTHONPATH and the
working directory are searched. A script's own folder, which Python searches too, is not known here.
"""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts import TRITON_DISTRIBUTIONS
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.packages import imports_of

#: Module → the distributions that contain it.
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
    "triton": TRITON_DISTRIBUTIONS,
    "xformers": ("xformers",),
}
#: Many projects have a folder of this name; it counts only if the package is installed.
COMMON_WORDS = ("kernels",)
HERE = "in the working directory: only for `python -m` and `python -c`"
#: Highest number of names in a folder that are checked.
NAMES = 5000


class Shadowing(Struct, frozen=True, kw_only=True):
    """A file that Python would import in place of a known package."""

    path: str
    folder: str
    here: bool
    """Only the working directory puts it on the import path, and PYTHONPATH does not."""

    def __str__(self) -> str:
        return f"{self.path} ({HERE if self.here else 'in PYTHONPATH'})"


def shadowing_modules(host: Host, site: Site, pythonpath: tuple[str, ...]) -> tuple[Shadowing, ...]:
    """Return the files that Python would import in place of a known package."""
    places = dict.fromkeys(pythonpath, False)
    if not host.environ.get("PYTHONSAFEPATH"):
        places.setdefault(host.platform.cwd, True)
    return tuple(
        Shadowing(path=path, folder=folder, here=here)
        for folder, here in places.items()
        if folder
        for path in _found(host, site, folder, here)
    )


def _found(host: Host, site: Site, folder: str, here: bool) -> list[str]:
    """Return what `folder` has in place of a known package, or of a module that one needs.

    Of the working directory only known packages count: many projects have a module `types`.
    """
    known = _not_installed(host, site, folder)
    more = () if here else imports_of(host, site).in_front(folder)
    return [*known, *(path for path, module in more if module not in MODULES)]


def _not_installed(host: Host, site: Site, folder: str) -> list[str]:
    """Return known modules that are in `folder` without being installed there."""
    return [
        host.join(folder, name)
        for name in host.try_list(folder)[:NAMES]
        if is_known_module(host, folder, name)
        and not _installed(site, folder, name.partition(".")[0])
    ]


def is_known_module(host: Host, folder: str, name: str) -> bool:
    """Whether the file `name` in `folder` is what an import of a known package would find."""
    module, _, suffix = name.partition(".")
    if module not in MODULES:
        return False
    # A folder without __init__.py does not shadow a package later on the path.
    package = not suffix and host.is_file(host.join(folder, name, "__init__.py"))
    # Only a compiled module has more between, as in `torch.cpython-312-x86_64-linux-gnu.so`.
    return package or suffix in ("py", "pyc") or suffix.split(".")[-1] in ("so", "pyd")


def _installed(site: Site, folder: str, module: str) -> bool:
    """Whether `module` is installed in `folder`, or from it; or has a common name."""
    copies = [one for name in MODULES[module] for one in site.distributions.copies(name)]
    if module in COMMON_WORDS and not copies:
        return True
    return any(one.site == folder or _editable(site, one, folder) for one in copies)


# {"dir_info": {"editable": true}, "url": "file:///home/ada/SimpleTuner"}
def _editable(site: Site, one: Distribution, folder: str) -> bool:
    """Whether `one` is a development install of the sources in `folder`."""
    from urllib.parse import unquote

    origin = unquote(site.distributions.read(one, "direct_url.json"))
    place = folder.replace("\\", "/").strip("/")
    return '"editable": true' in origin and f'"file:///{place}"' in origin
