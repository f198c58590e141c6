"""Finds a GPU by the name that a user writes: `h100`, `RTX 4090`, `NVIDIA A100-SXM4-80GB`.

Used wherever a GPU is named (`--pretend`, `--target`). `rules/tables/gpus.toml` lists the commonest
product of a name first; the PCI table knows all other products, without their memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Product(Struct, frozen=True):
    """A GPU."""

    name: str
    """As the driver reports it."""
    sm: int
    """Compute capability × 10; 0 for other vendors than NVIDIA."""
    gib: int = 0
    """Memory; 0 if unknown."""
    vendor: str = "nvidia"
    """As `driver.vendor` has it."""
    arch: str = ""
    """The only processor that it is sold with; empty if there are several."""
    os: str = ""
    """The only operating system for it; empty if there are several."""


def plain(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` as `rtx4090`."""
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    return text.removeprefix("nvidia").removeprefix("geforce").removeprefix("tesla")


def find_product(name: str, tables: Mapping[str, Any]) -> Product | None:
    """The product of a name, the commonest one if several have it; None if no table has it."""
    return _listed(name, tables) or _pci_products(tables).get(plain(name))


def _listed(name: str, tables: Mapping[str, Any]) -> Product | None:
    wanted = plain(name)
    for row in tables["gpus"]["gpu"]:
        if wanted in (row["name"], *row.get("also", ()), plain(row["product"])):
            return Product(row["product"], row["sm"], row["gib"], arch=row.get("arch", ""))
    return None


def capability(name: str, tables: Mapping[str, Any]) -> int | None:
    """Compute capability ×10 of the GPU that a driver or a log names; None if it is not certain.

    Drivers add memory, form and partition to a name: `NVIDIA H100 80GB HBM3`, `H100 NVL`,
    `A100-SXM4-40GB MIG 1g.5gb`.
    """
    if listed := _listed(name, tables):
        return listed.sm
    products = {text: one.sm for text, one in _pci_products(tables).items()}
    wanted = plain(re.sub(r" laptop.*| gpu$", "", name, flags=re.IGNORECASE))
    if wanted in products:
        return products[wanted]
    close = {sm for text, sm in products.items() if text.removeprefix("quadro").startswith(wanted)}
    if not close:
        words = {plain(word) for word in re.split(r"[ -]", name) if not word.isdigit()}
        close = {products[word] for word in words & products.keys()}
        for row in tables["gpus"]["gpu"]:
            if words & {row["name"], *row.get("also", ())}:
                close.add(row["sm"])
    return close.pop() if len(close) == 1 and wanted else None


def find_other(name: str, tables: Mapping[str, Any]) -> Product | None:
    """The GPU of another vendor than NVIDIA; None if the table does not have it."""
    wanted = plain(name)
    for row in tables["gpus"]["other"]:
        if wanted in (row["name"], *row.get("also", ()), plain(row["product"])):
            return Product(row["product"], 0, vendor=row["vendor"], os=row.get("os", ""))
    return None


def known_names(tables: Mapping[str, Any]) -> list[str]:
    """Every name that `find_product` or `find_other` finds."""
    listed = (*tables["gpus"]["gpu"], *tables["gpus"]["other"])
    return sorted({*(row["name"] for row in listed), *_pci_products(tables)})


def _pci_products(tables: Mapping[str, Any]) -> dict[str, Product]:
    products: dict[str, Product] = {}
    for chip in tables["pci-nvidia"]["chips"].values():
        for line in chip["ids"].splitlines():
            for product in _alternatives(line.partition(" ")[2]):
                products.setdefault(plain(product), Product(f"NVIDIA {product}", chip["sm"]))
    return products


def _alternatives(products: str) -> list[str]:
    """`Quadro RTX 6000/8000` and `A2 / A16` as two products each."""
    first, _, second = products.partition("/")
    head = first.rpartition(" ")[0] if not first.endswith(" ") else ""
    return [first.strip(), f"{head} {second.strip()}".strip()] if second else [products]
