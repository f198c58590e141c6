"""Makes the inputs of a transformer's forward, as tensors of the sizes that a recipe names.

A recipe says shapes by names of sizes, and for some inputs what they hold; what the others hold
follows from their names, which diffusers uses alike in all its models. It knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_SIZE = re.compile(r"([a-z_]+)((?:[*/+-]\d+)*)")
_STEPS: dict[str, Callable[[int, int], int]] = {
    "*": lambda size, by: size * by,
    "/": lambda size, by: size // by,
    "+": lambda size, by: size + by,
    "-": lambda size, by: size - by,
}


def number(sizes: dict[str, int], text: Any) -> Any:
    """A size by its name, such as `rows*2` or `text-985`, its steps from left to right.

    Any other value is returned unchanged.
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match.group(1) not in sizes:
        return text
    found = sizes[match.group(1)]
    for step, by in re.findall(r"([*/+-])(\d+)", match.group(2)):
        found = _STEPS[step](found, int(by))
    return found


class Feed:
    """Makes the inputs of one recipe, the same numbers every time."""

    def __init__(self, torch: Any, recipe: dict[str, Any], sizes: dict[str, int]) -> None:
        self.torch = torch
        self.recipe = recipe
        self.sizes = sizes
        self._hold: dict[str, Callable[[list[int]], Any]] = {
            "half": lambda shape: torch.full(shape, 0.5),
            "zeros": torch.zeros,
            "index": lambda shape: torch.zeros(shape, dtype=torch.int64),
            "count": lambda shape: torch.arange(shape[-1]).expand(shape).contiguous(),
            "padded": self._padded,
        }

    def inputs(self, device: str, dtype: Any, rounded: Any) -> dict[str, Any]:
        """All inputs on `device`; noise in `dtype`, of numbers that `rounded` holds exactly."""
        generator = self.torch.Generator(device="cpu").manual_seed(1)

        def tensor(name: str, shape: list[Any]) -> Any:
            sizes = [number(self.sizes, one) for one in shape]
            made = self._held(name, sizes, dtype)
            if made is None:
                made = self.torch.randn(sizes, generator=generator).to(rounded).to(dtype)
            return made.to(device)

        recipe = self.recipe
        found = {name: tensor(name, shape) for name, shape in recipe["inputs"].items()}
        for name, shape in recipe.get("lists", {}).items():
            found[name] = [tensor(name, shape) for _ in range(self.sizes["batch"])]
        for name, shapes in recipe.get("tuples", {}).items():
            found[name] = tuple(tensor(name, shape) for shape in shapes)
        for name, size in recipe.get("numbers", {}).items():
            found[name] = number(self.sizes, size)
        if "shapes" in recipe:
            shape = tuple(self.sizes[one] for one in ("frames", "rows", "columns"))
            found[recipe["shapes"]] = [[shape]] * self.sizes["batch"]
        return found

    def _held(self, name: str, shape: list[int], own: Any) -> Any:
        """The content of an input that is not noise; None for noise. `own`: the model's dtype."""
        kind = number(self.sizes, self.recipe.get("holds", {}).get(name) or _kind(name))
        if isinstance(kind, int):
            return self.torch.full(shape, kind, dtype=self.torch.int64)
        what, _, form = kind.partition(" ")
        if what == "noise":
            return None
        made = self._hold[what](shape)
        return made.to({"own": own, "bool": self.torch.bool}[form]) if form else made

    def _padded(self, shape: list[int]) -> Any:
        """A mask whose last quarter is padding."""
        mask = self.torch.ones(shape, dtype=self.torch.int64)
        mask[..., shape[-1] - shape[-1] // 4 :] = 0
        return mask


def _kind(name: str) -> str:
    """What diffusers means by the name of an input."""
    if name in ("timestep", "t", "guidance"):
        return "half"
    if "_mask" in name:
        return "padded"
    return "zeros" if name.endswith("_ids") else "noise"
