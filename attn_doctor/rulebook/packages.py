"""The attention packages that a command installs, and whether a text names them.

A fix that installs a package is right only if that package failed. Many messages come from any
package that is compiled for torch, so a command must not install one that the log never names.
torch itself and build tools are not listed: every log of this project is about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

#: The name of a package at the start of a requirement, or in the address of its repository.
_REQUIREMENT = re.compile(r"(?:git\+)?(?:https?://\S+/)?(?P<name>[A-Za-z][\w-]*)")
#: How texts name each package: distribution, modules, compiled extensions and their functions.
_NAMED = {
    "flash-attn": r"flash|fmha",
    "flash-attn-4": r"flash|cutlass|cute",
    "sageattention": r"sage|_qattn|per_block_int8",
    "xformers": r"xformers|fmha|memory_efficient_attention",
    "diffusers": r"diffusers",
    "finetrainers": r"finetrainers",
    "kernels": r"kernel",
    "transformers": r"transformers",
}
#: The package that the rules of an area are about.
_AREAS = {
    "flash": "flash-attn",
    "sage": "sageattention",
    "xformers": "xformers",
    "diffusers": "diffusers",
    "finetrainers": "finetrainers",
    "kernels": "kernels",
}
#: Other names of them; the short ones are those that `attn-doctor install` takes.
_ALIASES = {
    "flash-attention": "flash-attn",
    "flash_attn": "flash-attn",
    "flash": "flash-attn",
    "sage": "sageattention",
}
#: Modules whose name is not that of their package.
_MODULES = {
    "flash": "flash_attn",
    "flash-attn-4": "flash_attn",
    "fla-core": "fla",
    "flash-linear-attention": "fla",
    "flashinfer-python": "flashinfer",
    "sage": "sageattention",
}


def packages_installed(argv: Sequence[str]) -> Iterator[str]:
    """The attention packages that a command line of pip or of `attn-doctor install` installs."""
    if "install" not in argv:
        return
    for word in argv[argv.index("install") + 1 :]:
        requirement = _REQUIREMENT.match(word)
        name = requirement["name"].lower() if requirement else ""
        name = _ALIASES.get(name, name)
        if name in _NAMED:
            yield name


def own_copy(argv: Sequence[str], log: str) -> tuple[str, str] | None:
    """The module of a package that a command installs, and the folder of a program's own copy.

    None if no traceback shows one, or if one shows the package in site-packages.
    """
    words = argv[argv.index("install") + 1 :] if "install" in argv else ()
    for package in (found["name"] for word in words if (found := _REQUIREMENT.match(word))):
        module = _MODULES.get(package, package.replace("-", "_"))
        frame = rf'File "([^"\n]{{0,300}}[/\\])?{re.escape(module)}[/\\][^"\n]{{1,300}}"'
        folders: list[str] = re.findall(frame, log)
        if folders and not any(re.search(r"(?:site|dist)-packages", one) for one in folders):
            return module, folders[0]
    return None


def package_of(rule: str) -> str:
    """The package that a rule is about, by its id; empty if it is about no package listed here."""
    return _AREAS.get(rule.partition("/")[0], "")


def is_named(package: str, text: str) -> bool:
    """`text` contains a name of the package, or of one of its modules or functions."""
    return re.search(_NAMED[package], text, re.IGNORECASE) is not None
