"""Other GPUs and drivers. Names of GPUs come from tables; memory only of those that state it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Driver, Facts, Gpu
from attn_doctor.pretend.common import ABSENT, REASON, Tables, checked, without_gaps
from attn_doctor.suggest import did_you_mean


def gpu(facts: Facts, value: str, tables: Tables, told: list[str]) -> Facts:
    """One GPU or several of a name, such as `2xh100`, or none."""
    gaps = without_gaps(facts, "gpus", "pci", "driver.state", "driver.vendor")
    if value in ABSENT:
        told.append("no GPU")
        driver = Driver(state="no-gpu", vendor="", error="")
        return replace(facts, gpus=(), pci=(), driver=driver, gaps=gaps)
    match = re.fullmatch(r"(?:(\d{1,2})\s*[x×]\s*)?(.+)", value)
    count, name = int(match[1] or 1) if match else 1, match[2] if match else value
    product, sm, gib = _product(name, tables)
    memory = gib * 1024 if gib else None
    found = tuple(
        Gpu(
            index=number,
            name=product,
            sm=sm,
            compute_capability=f"{sm // 10}.{sm % 10}",
            memory_total_mib=memory,
            memory_free_mib=memory,
            mig="disabled",
            mig_devices=0,
            compute_mode="default",
            processes=0,
            visible=True,
        )
        for number in range(count)
    )
    told.append(f"{count} × {product}" if count > 1 else product)
    gaps["gpus"] = REASON
    return replace(facts, gpus=found, pci=(), gaps=gaps)


def _product(name: str, tables: Tables) -> tuple[str, int, int]:
    """Product name, compute capability ×10 and GiB (0: not known) of a GPU."""
    wanted = _plain(name)
    rows = tables["gpus"]["gpu"]
    for row in rows:
        if wanted in (row["name"], *row.get("also", ()), _plain(row["product"])):
            return row["product"], row["sm"], row["gib"]
    products: dict[str, tuple[str, int]] = {}
    for chip in tables["pci-nvidia"]["chips"].values():
        for line in chip["ids"].splitlines():
            product = line.partition(" ")[2]
            products.setdefault(_plain(product), (product, chip["sm"]))
    if wanted in products:
        product, sm = products[wanted]
        return f"NVIDIA {product}", sm, 0
    names = {row["name"] for row in rows} | set(products)
    hint = did_you_mean(wanted, sorted(names), "or name its capability: sm=89")
    raise AttnDoctorError(f"--pretend gpu={name}: no GPU of that name is in the tables; {hint}")


def _plain(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` as `rtx4090`."""
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    return text.removeprefix("nvidia").removeprefix("geforce").removeprefix("tesla")


def capability(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """The compute capability of the GPUs; a GPU of that capability where there is none."""
    digits = value.lower().removeprefix("sm_").removeprefix("sm").replace(".", "")
    if not digits.isdigit() or not 30 <= int(digits) <= 200:
        raise AttnDoctorError(f"--pretend sm={value}: write the capability as 89 or 8.9")
    sm = int(digits)
    told.append(f"compute capability {sm // 10}.{sm % 10}")
    capability = f"{sm // 10}.{sm % 10}"
    if facts.gpus:
        gpus = tuple(replace(one, sm=sm, compute_capability=capability) for one in facts.gpus)
    else:
        gpus = (
            Gpu(
                index=0,
                name=f"a GPU of capability {capability}",
                sm=sm,
                compute_capability=capability,
                mig="disabled",
                mig_devices=0,
                compute_mode="default",
                processes=0,
                visible=True,
            ),
        )
    return replace(facts, gpus=gpus, pci=(), gaps={**without_gaps(facts, "gpus"), "gpus": REASON})


def memory(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """The memory of the GPUs, in GiB."""
    try:
        gib = float(value.lower().removesuffix("gib").removesuffix("gb").removesuffix("g"))
    except ValueError:
        raise AttnDoctorError(f"--pretend memory={value}: write GiB, such as 24") from None
    if not facts.gpus:
        raise AttnDoctorError("--pretend memory=…: name a GPU too, such as gpu=rtx4090")
    told.append(f"{gib:g} GiB of GPU memory")
    mib = int(gib * 1024)
    gpus = tuple(replace(one, memory_total_mib=mib, memory_free_mib=mib) for one in facts.gpus)
    return replace(facts, gpus=gpus)


def driver(facts: Facts, value: str, _: Tables, told: list[str]) -> Facts:
    """A sound driver of a version."""
    version = checked("driver", value if "." in value else f"{value}.0")
    told.append(f"driver {value}")
    return replace(
        facts,
        driver=_sound_driver(facts, version),
        gaps=without_gaps(facts, "driver"),
    )


def _sound_driver(facts: Facts, version: str) -> Driver:
    """A driver that answers; where its libraries lie is known only of the one that is here."""
    old = facts.driver if facts.driver.state == "ok" else Driver()
    return Driver(
        state="ok",
        error="",
        version=version,
        library_version=version,
        libcuda=old.libcuda,
        libcuda_linkable=old.libcuda_linkable if old.libcuda_linkable is not None else True,
        libcuda_compat=False,
        device_nodes=True,
        vendor="nvidia",
    )


def with_driver(facts: Facts, words: Mapping[str, str], tables: Tables, told: list[str]) -> Facts:
    """A GPU needs a driver: the one that is here, or the newest that the tables know."""
    if not facts.gpus or "driver" in words:
        return facts
    if facts.driver.state == "ok" and facts.driver.version:
        return facts
    newest = str(tables["drivers"]["newest"])
    told.append(f"driver {newest} (assumed: the newest known)")
    return replace(
        facts,
        driver=_sound_driver(facts, f"{newest}.0"),
        gaps=without_gaps(facts, "driver"),
    )
