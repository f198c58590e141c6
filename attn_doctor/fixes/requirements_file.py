"""Writes a requirements file with the releases that fit this machine, each with its reason.

Installed releases that fit are pinned; others are replaced by those of the tables. A package that
has to be compiled is a comment, because a requirements file cannot say how.
"""

from __future__ import annotations

from attn_doctor.clean import clean
from attn_doctor.facts import Facts
from attn_doctor.fixes.postconditions import with_torch
from attn_doctor.fixes.wheel_check import Verdict, verdict

_INDEX = "https://download.pytorch.org/whl/"
_SOURCES = {
    "sageattention": "git+https://github.com/thu-ml/SageAttention",
    "flash-attn": "flash-attn",
    "xformers": "xformers",
    "triton": "triton",
}
#: Frameworks that are pinned in their installed version.
_KEPT = ("diffusers", "transformers", "accelerate", "kernels", "torchao", "bitsandbytes")


def requirements(facts: Facts) -> str:
    """Return the text of the file."""
    torch, index = _torch(facts)
    # Extensions have to fit the torch of this file, which may not be installed yet.
    ahead = facts if _valid(facts) else with_torch(facts) or facts
    lines = [
        "# The set of releases that fits this machine, by attn-doctor's tables.",
        f"# {_machine(facts)}",
        "# pip install -r FILE      uv pip install --index-strategy unsafe-best-match -r FILE",
        "",
    ]
    if index:
        lines += [
            f"# torch's own index has the builds for {index}; the default index has one build.",
            f"--extra-index-url {_INDEX}{index}",
        ]
    lines += torch
    if ahead.torch.build == "cuda":
        for name in ("triton", "xformers", "flash-attn", "sageattention"):
            lines += _line(verdict(name, ahead), ahead, index)
    for name in _KEPT:
        package = getattr(facts, name)
        if package.installed and package.version:
            source = f" ({package.source})" if package.source not in ("index", None) else ""
            lines += ["", f"# as installed{source}", f"{name}=={package.version}"]
    return "\n".join(map(clean, lines)) + "\n"


def _machine(facts: Facts) -> str:
    gpus = sorted({one.name for one in facts.gpus or () if one.name})
    driver = f", driver {facts.driver.version}" if facts.driver.version else ""
    system = f"{facts.system.os or 'unknown system'} {facts.system.arch or ''}".strip()
    return f"{system}, Python {facts.python.version}, {', '.join(gpus) or 'no GPU'}{driver}"


def _torch(facts: Facts) -> tuple[list[str], str]:
    """Lines for torch, and the name of the index that has it."""
    torch, driver = facts.torch, facts.driver
    if _valid(facts):
        tag = torch.cuda_tag or ""
        lines = ["", f"# installed, built for CUDA {torch.cuda}"]
        if driver.version:
            lines[-1] += f"; the driver ({driver.version}) runs it" if torch.min_driver else ""
        return [*lines, f"torch=={torch.version}", *_vision(facts)], tag
    if torch.index_for_driver:
        pin = torch.pin_for_driver or "torch"
        why = f"the build for this driver ({driver.version}) and these GPUs"
        return ["", f"# {why}", pin], torch.index_for_driver
    if torch.installed and torch.version:
        return ["", f"# installed, a {torch.build} build", f"torch=={torch.version}"], ""
    return ["", "# torch: the build that fits this machine is unknown"], ""


def _valid(facts: Facts) -> bool:
    """The installed torch is a CUDA build with code for the GPUs here."""
    torch = facts.torch
    whole = bool(torch.installed and torch.version and not torch.installation_error)
    runs = all(gpu.in_torch_archs is not False for gpu in facts.gpus or ())
    return whole and torch.build == "cuda" and runs


def _vision(facts: Facts) -> list[str]:
    """Lines for torchvision and torchaudio, which are built for one release of torch each."""
    lines = []
    for name in ("torchvision", "torchaudio"):
        package = getattr(facts, name)
        if package.installed and package.version:
            lines.append(f"{name}=={package.version}")
    return lines


def _line(one: Verdict, facts: Facts, index: str) -> list[str]:
    installed = getattr(facts, one.name.replace("-", "_"))
    if one.wheel == "yes" and one.requirement:
        note = f" ({one.reason})" if one.reason else ""
        other = one.index and one.index != _INDEX + index
        source = [f"--extra-index-url {one.index}"] if other else []
        marker = f"for torch {facts.torch.minor} and CUDA {facts.torch.cuda}"
        return ["", f"# a prebuilt wheel {marker}{note}", *source, one.requirement]
    if one.name == "sageattention" and installed.installed is False:
        return []
    if installed.installed is False:
        return ["", f"# {one.name}: no prebuilt wheel is known; {one.reason}"]
    return [
        "",
        f"# {one.name}: {one.reason}",
        f"# compile it afterwards: pip install --no-build-isolation --no-deps {_SOURCES[one.name]}",
    ]
