"""What Transformers makes of the names that its users write.

Source: modeling_utils.py, `_check_and_adjust_attn_implementation`, and
integrations/hub_kernels.py of Transformers 5.23.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from attn_doctor.configs.asked import Asked
from attn_doctor.configs.transformers_sdpa import has_sdpa
from attn_doctor.facts import Facts

RELEASE = "5.23.0"
#: Values of attn_implementation, and the backend they lead to.
NAMES = {
    "sdpa": "native",
    "eager": "eager",
    "flex_attention": "flex",
    "flash_attention_2": "flash",
    "flash_attention_3": "_flash_3",
    "flash_attention_4": "flash_4_hub",
}
#: `FLASH_ATTN_KERNEL_FALLBACK` of modeling_flash_attention_utils.py.
_INSTEAD = {
    "flash_attention_2": ("transformers_flash_hub", "flash_attn"),
    "flash_attention_3": ("vllm_flash_3_hub", "flash_attn_3"),
}
#: `kernels-community/flash-attn2@v1:function`
_HUB = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w.-]+)?(?::\w+)?$")
_KERNELS = {
    "flash-attn2": "transformers_flash_hub",
    "flash-attn": "transformers_flash_hub",
    "flash-attn3": "_flash_3_hub",
    "vllm-flash-attn3": "vllm_flash_3_hub",
    "flash-attn4": "flash_4_hub",
}


#: What runs without a setting where the model is not known.
EITHER = "sdpa of Transformers, or eager if the model has no sdpa"


def by_itself(asked: Asked, classes: Sequence[str], facts: Facts) -> Asked:
    """What runs without a setting for models of these classes."""
    found = {has_sdpa(one, facts) for one in classes}
    if found == {False}:
        shown = f"eager of Transformers, as {classes[0]} has no sdpa"
        return replace(asked, backend="eager", shown=shown)
    shown = "sdpa of Transformers" if found == {True} else EITHER
    return replace(asked, backend="native", shown=shown)


def implementation(asked: Asked, facts: Facts) -> Asked:
    """A choice of `attn_implementation`, with the backend that it leads to.

    Without flash-attn, Transformers takes the kernel of the Hub where `kernels` is installed.
    """
    value = asked.value.strip()
    if not value:
        return replace(asked, undecided="the name is not written here, so it cannot be read")
    name = value.removeprefix("paged|").removeprefix("paged_")
    instead, package = _INSTEAD.get(name, ("", "flash_attn"))
    missing = getattr(facts, package).installed is False
    if instead and missing and facts.kernels.installed is not False:
        return replace(
            asked,
            backend=instead,
            grouped=None,
            shown=f"{value} of Transformers, from the Hugging Face Hub as"
            f" {package.replace('_', '-')} is missing",
            instead="sdpa",
        )
    if name in NAMES:
        return replace(
            asked,
            backend=NAMES[name],
            grouped=None,
            shown=f"{value} of Transformers",
            compiled=True,  # Transformers compiles FlexAttention itself
            instead="sdpa",
        )
    if _HUB.match(name):
        kernel = name.partition("/")[2].partition("@")[0].partition(":")[0]
        return replace(
            asked,
            backend=_KERNELS.get(kernel, ""),
            grouped=None,
            shown=f"{value} of the Hugging Face Hub",
            undecided="" if kernel in _KERNELS else "this kernel of the Hub is not known",
            instead="sdpa",
        )
    return replace(
        asked,
        shown=value,
        undecided=f"{value} is not a name of Transformers {RELEASE}; code may register it",
        instead="sdpa",
    )
