"""Finds where a distribution was installed from, and what its files say it was built for.

Installers write `INSTALLER` and, for everything that is not from an index, `direct_url.json`
(PEP 610). Neither names the index, so a wheel from PyPI and one from PyTorch's own index look the
same here. A wheel's name has a local version (after the `+`) that its metadata may not have.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.facts import kinds
from attn_doctor.host import Host
from attn_doctor.json_files import JsonError, decode
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.redact import presentable


class Origin(Struct, frozen=True, kw_only=True):
    """Where a distribution was installed from; `why` is the reason if `source` is unknown."""

    source: kinds.Origin | None = None
    url: str = ""
    wheel: str = ""
    """File name of the wheel, where `direct_url.json` gives it."""
    folder: str = ""
    """The source tree it was installed from."""
    why: str = ""


class Built(Struct, frozen=True, kw_only=True):
    """What a distribution was compiled against, as far as its names and files show."""

    torch: str | None = None
    torch_floor: str = ""
    """The oldest torch it runs on, if it was built for that one and newer."""
    cuda: str | None = None
    cxx11_abi: bool | None = None
    python: str | None = None


class _DirectUrl(Struct):
    url: str = ""
    vcs_info: dict[str, object] | None = None
    dir_info: dict[str, object] | None = None
    archive_info: dict[str, object] | None = None


# {"archive_info": {}, "url": "https://github.com/…/flash_attn-2.8.3%2Bcu12torch2.8….whl"}
# {"dir_info": {"editable": true}, "url": "file:///home/me/diffusers"}
# {"url": "https://github.com/thu-ml/SageAttention", "vcs_info": {"vcs": "git", "commit_id": "…"}}
def origin(host: Host, site: Site, one: Distribution) -> Origin:
    """Return where `one` was installed from."""
    text = site.distributions.read(one, "direct_url.json")
    if not text:
        return _from_installer(host, site, one)
    try:
        direct = decode(text, _DirectUrl)
    except JsonError:
        return Origin(why=f"{host.join(one.info, 'direct_url.json')} cannot be parsed")
    url = presentable(direct.url)
    if direct.vcs_info is not None:
        return Origin(source="vcs", url=url)
    folder = _unquote(re.sub(r"^file:/{2,3}(?=/|[A-Za-z]:)", "", direct.url))
    if direct.dir_info is not None:
        source: kinds.Origin = "editable" if direct.dir_info.get("editable") is True else "local"
        return Origin(source=source, url=url, folder=folder)
    name = folder.split("?")[0].split("#")[0].rpartition("/")[2]
    return Origin(
        source="local" if direct.url.startswith("file:") else "url",
        url=url,
        wheel=name if name.endswith(".whl") else "",
    )


def _from_installer(host: Host, site: Site, one: Distribution) -> Origin:
    installer = site.distributions.read(one, "INSTALLER").strip().lower()
    if installer == "conda" or (not installer and _in_conda(host, site, one)):
        return Origin(source="conda")
    if installer in ("debian", "rpm"):
        return Origin(source="system")
    if installer:
        return Origin(source="index")
    if one.info.endswith(".egg-info") and not one.site.endswith(("-packages", ".egg")):
        return Origin(source="editable", folder=one.site)
    return Origin(why=f"its metadata in {one.info} do not name its installer")


def _in_conda(host: Host, site: Site, one: Distribution) -> bool:
    """Whether conda has a record of a package of this name and version."""
    name = {"torch": "pytorch"}.get(one.name, one.name)
    start = f"{name}-{one.version.partition('+')[0]}-"
    records = host.try_list(host.join(site.prefix, "conda-meta")) if site.prefix else ()
    return any(record.replace("_", "-").startswith(start) for record in records)


# cu12torch2.8cxx11abiTRUE · cu128torch2.9.0andhigher.post4 · cu130
def built(*texts: str) -> Built:
    """Parse local versions (`2.8.3+cu12torch2.8`) and names of wheels."""
    local = " ".join(text.partition("+")[2].lower() for text in texts)
    cuda = re.search(r"cu(\d\d)(\d?)(?!\d)", local)
    torch = re.search(r"torch(\d+(?:\.\d+)+)(andhigher)?", local)
    abi = re.search(r"cxx11abi(true|false)", local)
    newer_too = torch is not None and torch[2] is not None
    return Built(
        torch=torch[1] if torch is not None and not newer_too else None,
        torch_floor=torch[1] if torch is not None and newer_too else "",
        cuda=".".join(filter(None, cuda.groups())) if cuda is not None else None,
        cxx11_abi=abi[1] == "true" if abi is not None else None,
    )


def module_path(host: Host, site: Site, module: str, source: Origin) -> str:
    """Return the path of `module` as an import finds it, or in the tree of an editable install."""
    path = site.module(host, module)
    if path or source.source != "editable":
        return path
    for folder in (source.folder, host.join(source.folder, "src")):
        path = host.join(folder, *module.split("."))
        if host.is_dir(path):
            return path
    return ""


def cmake_config(host: Host, torch: str) -> str:
    """Return the file with the flags for C++ code that uses torch; `torch` is its folder."""
    return host.join(torch, "share", "cmake", "Torch", "TorchConfig.cmake")


def cxx11_abi(host: Host, torch: str) -> bool | None:
    """Whether a torch for Linux uses the new C++ ABI; None if its flags cannot be read."""
    lines = host.try_grep(cmake_config(host, torch), "TORCH_CXX_FLAGS", "_GLIBCXX_USE_CXX11_ABI=")
    # torch 2.8 removed the switch and this line; it can only be built with the new ABI.
    return not any("_GLIBCXX_USE_CXX11_ABI=0" in line for line in lines) if lines else None


# __version__ = '2.11.0+cu130'
# debug = False
# cuda: Optional[str] = '13.0'
# git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
# hip: Optional[str] = None
def said_by(host: Host, path: str) -> dict[str, str]:
    """Return the names that `torch/version.py` sets to a value other than None, cut at 200 letters.

    Python converts no number of more than 4,300 digits, and raises.
    """
    text = host.try_read(host.join(path, "version.py"), 1 << 14) if path else ""
    found = {}
    for line in text.split("\n"):
        left, _, value = line.partition("=")
        name, value = left.partition(":")[0].rstrip(), value.strip()
        if name.isidentifier() and value and value != "None":
            found[name] = value.strip("'\"")[:200]
    return found


def _unquote(text: str) -> str:
    """Return `text` with URL escapes such as `%2B` decoded."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
    return raw.decode("utf-8", "replace")
