"""What is to be installed: the words of the command, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.suggest import did_you_mean


class Meaning(NamedTuple):
    """One word, with what it needs."""

    packages: tuple[str, ...]
    """Packages beside torch that have to fit it."""
    modules: tuple[str, ...]
    """Modules whose import proves it."""
    backends: tuple[str, ...] = ()
    """Backends that `backends --live` runs to prove it."""
    plain: tuple[str, ...] = ()
    """Packages of which any release fits."""


#: Word → what it needs. Frameworks are installed with what they import for attention.
WORDS: dict[str, Meaning] = {
    "torch": Meaning((), ("torch",)),
    "native": Meaning((), ("torch.nn.functional",), ("native",)),
    "flex": Meaning(("triton",), ("torch.nn.attention.flex_attention",), ("flex",)),
    "flash": Meaning(("flash-attn",), ("flash_attn",), ("flash",)),
    "flash3": Meaning(("flash-attn-3",), ("flash_attn_interface",), ("_flash_3",)),
    "xformers": Meaning(("xformers",), ("xformers.ops",), ("xformers",)),
    "sage": Meaning(("sageattention",), ("sageattention",), ("sage",)),
    "hub": Meaning((), ("kernels",), (), ("kernels",)),
    "diffusers": Meaning(
        (), ("diffusers",), (), ("diffusers", "transformers", "accelerate", "safetensors")
    ),
    "comfyui": Meaning(("torchvision", "torchaudio"), ("torchvision", "torchaudio")),
}
_ALIASES = {
    "flash-attn": "flash",
    "flash_attn": "flash",
    "flash-attention": "flash",
    "flashattn": "flash",
    "flashattention": "flash",
    "fa2": "flash",
    "flash-attn-3": "flash3",
    "flash_attn_3": "flash3",
    "fa3": "flash3",
    "sageattention": "sage",
    "sdpa": "native",
    "flexattention": "flex",
    "flex-attention": "flex",
    "kernels": "hub",
    "pytorch": "torch",
}


class Demand(Struct, frozen=True, kw_only=True):
    """All that is asked for."""

    words: tuple[str, ...]
    """Of `WORDS`, each once."""
    training: bool = False
    gpu: bool = False
    """A build for CUDA, also where no GPU is seen."""
    community: bool = False
    """Also wheels that a project does not publish itself."""
    keep_torch: bool = False
    """The installed torch stays."""
    reinstall: bool = False
    """Packages that are asked for are replaced, also where the installed ones load."""

    @property
    def meanings(self) -> tuple[Meaning, ...]:
        """What the words need."""
        return tuple(WORDS[word] for word in self.words)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that have to fit torch, each once."""
        return tuple(dict.fromkeys(name for meaning in self.meanings for name in meaning.packages))

    @property
    def plain(self) -> tuple[str, ...]:
        """Packages of which any release fits, each once."""
        return tuple(dict.fromkeys(name for meaning in self.meanings for name in meaning.plain))


def words_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return the known words for what a user typed. Raises `AttnDoctorError` for another word."""
    found = []
    for text in given:
        word = _ALIASES.get(text.lower(), text.lower())
        name = re.match(r"[\w-]*", word)[0]  # type: ignore[index]
        if name != word and name in {*WORDS, *_ALIASES}:
            raise AttnDoctorError(
                f"{text}: name it without a release, which is chosen to fit torch and this machine:"
                f" `attn-doctor install {name}`"
            )
        if word not in WORDS:
            hint = did_you_mean(word, [*WORDS, *_ALIASES], f"name one of {', '.join(WORDS)}")
            raise AttnDoctorError(f"{text or 'an empty name'} is not known to install; {hint}")
        found.append(word)
    return tuple(dict.fromkeys(found))
