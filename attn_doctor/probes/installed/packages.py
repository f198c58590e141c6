"""Reads the packages of attention and training from their metadata and file names.

Whether a compiled module loads depends on the libraries it needs and the torch it was built for;
its presence is not enough. The facts `built_…` are what a package records of its build; many record
nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from attn_doctor.facts import Package
from attn_doctor.host import Host
from attn_doctor.json_files import JsonError, decode
from attn_doctor.probes.distributions import Distribution, Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.agreement import agreed
from attn_doctor.probes.installed.imports import Imports
from attn_doctor.probes.installed.origin import Built, Origin, built, module_path, origin, said_by
from attn_doctor.probes.installed.requirements import required
from attn_doctor.requirement import satisfies


class Known(Struct, frozen=True):
    """Where the files of a package are.

    `compiled` names its extension modules: a folder below that of `module` (empty for that folder
    itself), and the prefix of their names.
    """

    distributions: tuple[str, ...]
    module: str
    compiled: tuple[tuple[str, str], ...] = ()
    marker: str = ""
    """A file that another package in the same folder does not have."""
    imported: bool = False
    """Its modules are imported by name, so the Python in the name counts. Others load theirs by
    path, whatever its name says."""


PACKAGES: dict[str, Known] = {
    "torchvision": Known(
        ("torchvision",), "torchvision", (("torchvision", "_C"), ("torchvision", "image"))
    ),
    "torchaudio": Known(
        ("torchaudio",),
        "torchaudio",
        (("torchaudio/lib", "libtorchaudio"), ("torchaudio/lib", "_torchaudio")),
    ),
    "flash_attn": Known(
        ("flash-attn",), "flash_attn", (("", "flash_attn_2_cuda"),), "flash_attn_interface.py", True
    ),
    "flash_attn_3": Known(
        ("flash-attn-3", "flashattn-hopper"),
        "flash_attn_interface",
        (("flash_attn_3", "_C"), ("", "flash_attn_3_cuda"), ("", "flashattn_hopper_cuda")),
        imported=True,
    ),
    "flash_attn_4": Known(("flash-attn-4", "flash-attn-cute"), "flash_attn.cute"),
    "sageattention": Known(
        ("sageattention",),
        "sageattention",
        (("sageattention", "_qattn"), ("sageattention", "_fused")),
        imported=True,
    ),
    "sageattn3": Known(
        ("sageattn3",), "sageattn3", (("", "fp4attn_cuda"), ("", "fp4quant_cuda")), imported=True
    ),
    "xformers": Known(
        ("xformers",), "xformers", (("xformers", "_C"), ("xformers/flash_attn_3", "_C"))
    ),
    "diffusers": Known(("diffusers",), "diffusers"),
    "transformers": Known(("transformers",), "transformers"),
    "accelerate": Known(("accelerate",), "accelerate"),
    "kernels": Known(("kernels",), "kernels"),
    # torchao only warns about a module that it cannot load.
    "torchao": Known(("torchao",), "torchao"),
    "bitsandbytes": Known(
        ("bitsandbytes",), "bitsandbytes", (("bitsandbytes", "libbitsandbytes"),)
    ),
    "simpletuner": Known(("simpletuner",), "simpletuner"),
    "finetrainers": Known(("finetrainers",), "finetrainers"),
}
FIELDS = tuple(PACKAGES)
_SUFFIXES = (".so", ".pyd", ".dll", ".dylib")
#: How many parts of the CUDA version a package compares with torch's when it is imported.
_CUDA_PARTS = {"torchaudio": 2, "torchvision": 1}
#: Modules that a package opens only if their libraries are there, as torchaudio does SoX's.
_OPTIONAL = r"(lib|_)torchaudio_(sox|ffmpeg)"
#: flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so · _qattn_sm80.cp312-win_amd64.pyd
TAG = re.compile(r"\.(?:cpython-|cp)3(\d+)")


class Modules(Struct, frozen=True):
    """The compiled modules of one package."""

    field: str
    folder: str
    """Folder of the package."""
    paths: list[str]
    """Files of its modules, its main ones first."""
    imported: bool = False
    """They are imported by name."""


class _Versions(Struct):
    torch: str | None = None
    cuda: int | None = None
    python: str | None = None


class _Record(Struct):
    version: _Versions


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return one field of `Facts` for each of `FIELDS`, and the requirements that are not met."""
    imports = imports_of(host, site)
    packages = {field: _package(host, site, gaps, field, imports) for field in PACKAGES}
    bounds = [*imports.bounds()]
    if wanted := packages["transformers"].kernels_range:
        bounds.append(("transformers", f"kernels{wanted}"))
    return {"unmet_requirements": agreed(host, site, imports.unmet, bounds), **packages}


#: The imports of the environment that was asked about last: several probes ask.
_LATEST: list[tuple[Distributions, Imports]] = []
_LOCK = threading.Lock()


def imports_of(host: Host, site: Site) -> Imports:
    """Return the imports of torch and of the known packages; they are examined once."""
    with _LOCK:
        if not _LATEST or _LATEST[0][0] is not site.distributions:
            found = (_distribution(site, known) for known in PACKAGES.values())
            roots = ("torch", "triton", "peft", *(one.name for one in found if one is not None))
            outdating = ("torchao",) if _asks_for_newer_torch(host, site) else ()
            _LATEST[:] = [(site.distributions, Imports(host, site, roots, outdating))]
        return _LATEST[0][1]


def compiled(host: Host, site: Site) -> Iterator[Modules]:
    """Yield the compiled modules of every installed package that has some."""
    for field, known in PACKAGES.items():
        one = _distribution(site, known)
        if one is not None and known.compiled:
            path = _folder(host, site, known, origin(host, site, one))
            paths = _compiled(host, path, known)
            if paths:
                yield Modules(field, path, paths, known.imported)


def _distribution(site: Site, known: Known) -> Distribution | None:
    return next(filter(None, map(site.distributions.get, known.distributions)), None)


def _folder(host: Host, site: Site, known: Known, came: Origin) -> str:
    """Return the folder of the package; empty if it does not exist or is another package's."""
    path = module_path(host, site, known.module, came)
    if path and known.marker and not host.is_file(host.join(path, known.marker)):
        return ""
    return path


def _package(host: Host, site: Site, gaps: Gaps, field: str, imports: Imports) -> Package:
    known = PACKAGES[field]
    one = _distribution(site, known)
    if one is None:
        return _sources(host, site, gaps) if field == "diffusers" else Package(installed=False)
    came = origin(host, site, one)
    path = _folder(host, site, known, came)
    files = [re.split(r"[/\\]", file)[-1] for file in _compiled(host, path, known)]
    made = _built(host, path, came, one, files)
    floor = _torch_floor(host, path, one.version) if field == "torchao" else made.torch_floor
    headers = site.distributions.headers(one)
    _explain(gaps, field, one, came, headers, files, made)
    failure = None
    doubt = ""
    if path:
        failure = (
            _hidden(host, one, known.module, path)
            or imports.error(one.name, known.module)
            or (_without_extension(host, known, path) if not files else "")
            or (_variables(host, path) or _at_once(host, imports) if field == "diffusers" else "")
            or _cuda_check(host, site, field, one, made.cuda, headers)
        )
        elsewhere = _without_metadata(host, site, one, path, came)
        doubt = "" if failure else imports.doubt(one.name, known.module) or elsewhere
    if doubt:
        gaps.add(f"{field}.import_error", doubt)
    return Package(
        installed=True,
        version=one.version,
        distribution=one.name,
        path=path,
        source=came.source,
        source_url=came.url,
        **_tags(site, one),
        built_torch=made.torch,
        built_cuda=made.cuda,
        built_cxx11_abi=made.cxx11_abi,
        built_python=made.python,
        extensions=tuple(dict.fromkeys(name.partition(".")[0] for name in files)),
        import_error=None if doubt else failure,
        import_doubt=doubt,
        imports_torchvision=_imports_torchvision(host, site, path)
        if field == "transformers"
        else None,
        requires_torch=_requires_torch(host, site, headers, floor),
        flash_attn_range=_flash_attn_range(host, path) if field == "xformers" else None,
        kernels_range=_kernels_range(host, path) if field == "transformers" else None,
        requires_python=headers.get("Requires-Python", [""])[0] if headers else None,
    )


#     __version__ = "0.36.0"
def _sources(host: Host, site: Site, gaps: Gaps) -> Package:
    """Return Diffusers without metadata: a checkout on PYTHONPATH, or metadata were deleted.

    It is imported all the same, and no other package asks for its metadata before it uses it.
    """
    path = site.module(host, "diffusers")
    lines = host.try_grep(host.join(path, "__init__.py"), "__version__ = ") if path else ()
    version = re.search(r"__version__ = \"(\d[\w.]{0,40})\"", "\n".join(lines))
    if version is None:
        return Package(installed=False)
    doubt = f"{path} has no metadata, so what it requires is unknown"
    gaps.add("diffusers.import_error", doubt)
    gaps.add("diffusers.source", doubt)
    return Package(installed=True, version=version[1], path=path, import_doubt=doubt)


# modeling_utils → loss/loss_utils.py → loss/loss_for_object_detection.py → image_transforms.py →
# image_utils.py: `if is_torchvision_available(): from torchvision.transforms import …`
# Transformers 4.46 was the first; 4.44.2 imports beside a broken torchvision.
def _imports_torchvision(host: Host, site: Site, path: str) -> bool:
    """Whether `transformers.modeling_utils` imports torchvision, if it is installed.

    Without Pillow it imports neither.
    """
    return bool(path and site.module(host, "PIL")) and host.is_file(
        host.join(path, "loss", "loss_for_object_detection.py")
    )


def _explain(
    gaps: Gaps,
    field: str,
    one: Distribution,
    came: Origin,
    headers: dict[str, list[str]],
    files: list[str],
    made: Built,
) -> None:
    """Add reasons for facts that could have been known."""
    if came.why:
        gaps.add(f"{field}.source", came.why)
    if not headers:
        for name in ("requires_torch", "requires_python"):
            gaps.add(f"{field}.{name}", f"the metadata in {one.info} cannot be read")
    if files and made.torch is None and not made.torch_floor:
        gaps.add(f"{field}.built_torch", "it has no record of the torch it was compiled against")
    if files and made.cuda is None:
        gaps.add(f"{field}.built_cuda", "it has no record of the CUDA it was compiled with")


def _compiled(host: Host, path: str, known: Known) -> list[str]:
    """Return the files of its extension modules."""
    if not path:
        return []
    parent = host.parent(path)
    places = [
        (host.join(parent, *filter(None, folder.split("/"))), start)
        for folder, start in known.compiled
    ]
    return [
        host.join(place, name)
        for place, start in places
        for name in host.try_list(place)
        if name.startswith(start) and name.endswith(_SUFFIXES) and not re.match(_OPTIONAL, name)
    ]


def _built(host: Host, path: str, came: Origin, one: Distribution, files: list[str]) -> Built:
    """Return what it was compiled against, from its build record, name and file names."""
    name = built(one.version, came.wheel)
    record = Built()
    if path and one.name == "xformers":
        record = _record(host, path)
    elif path and one.name in ("torchvision", "torchaudio"):
        record = built(said_by(host, path).get("__version__", ""))
    tag = TAG.search(" ".join(files))
    return Built(
        torch=record.torch or name.torch,
        torch_floor=name.torch_floor,
        cuda=record.cuda or name.cuda,
        cxx11_abi=name.cxx11_abi,
        python=record.python or (f"3.{tag[1]}" if tag is not None else None),
    )


# {"version": {"cuda": 1208, "hip": null, "torch": "2.10.0+cu128", "python": "3.10.19"}, "env": …}
def _record(host: Host, path: str) -> Built:
    """Read the build record of xformers."""
    try:
        said = decode(host.try_read(host.join(path, "cpp_lib.json")), _Record)
    except JsonError:
        return Built()
    cuda = said.version.cuda
    return Built(
        torch=said.version.torch,
        cuda=f"{cuda // 100}.{cuda % 100}" if cuda else None,
        python=said.version.python,
    )


def _hidden(host: Host, one: Distribution, module: str, path: str) -> str:
    """Return which file elsewhere, such as a user's diffusers.py, an import finds; or empty."""
    own = host.join(one.site, *module.split("."))
    elsewhere = path.endswith(".py") and path != f"{own}.py"
    return f"{path} is imported in its place" if elsewhere and host.is_dir(own) else ""


#: Values that Diffusers takes for yes.
_YES = ("1", "ON", "YES", "TRUE")


def _variables(host: Host, path: str) -> str:
    """Return which variable stops the import of Diffusers' dispatcher; empty if none does."""
    file = host.join(path, "models", "attention_dispatch.py")
    backend = host.environ.get("DIFFUSERS_ATTN_BACKEND", "")
    if not host.is_file(file):
        return ""
    if backend and not host.try_grep(file, f' = "{backend}"'):
        return f"DIFFUSERS_ATTN_BACKEND is {backend}, which this release does not know"
    torch, other = (host.environ.get(name, "AUTO").upper() for name in ("USE_TORCH", "USE_TF"))
    if torch in (*_YES, "AUTO") and other not in _YES:
        return ""
    reads = host.try_grep(host.join(path, "utils", "import_utils.py"), 'os.environ.get("USE_TORCH"')
    return "USE_TORCH or USE_TF lets it take torch for absent" if reads else ""


def _at_once(host: Host, imports: Imports) -> str:
    """Return why Diffusers fails that imports all its modules at once; empty if it does not."""
    if host.environ.get("DIFFUSERS_SLOW_IMPORT", "").upper() not in _YES:
        return ""
    return imports.later("diffusers") or imports.later("peft")


def _without_metadata(host: Host, site: Site, one: Distribution, path: str, came: Origin) -> str:
    """Return that an import finds sources in PYTHONPATH, which the metadata do not describe."""
    folders = [folder for folder in site.plain if path.startswith(host.join(folder, ""))]
    if not folders or one.site in folders or came.source == "editable":
        return ""
    return f"{path} is imported, and the metadata of {one.name} are in {one.site}"


def _without_extension(host: Host, known: Known, path: str) -> str:
    """Return which extension flash-attn imports that its folder does not have.

    `FLASH_ATTENTION_SKIP_CUDA_BUILD` leaves it out. With Triton on AMD GPUs it is not imported.
    """
    if not known.marker or host.environ.get("FLASH_ATTENTION_TRITON_AMD_ENABLE") == "TRUE":
        return ""
    (_, name), *_ = known.compiled
    for file in ("__init__.py", known.marker):
        text = host.try_read(host.join(path, file))
        if re.search(rf"(?m)^(?:else:\n {{4}})?import [^\n]*\b{name}\b", text):
            return f"{known.module}/{file} imports {name}, which is not installed"
    return ""


def _cuda_check(
    host: Host,
    site: Site,
    field: str,
    one: Distribution,
    cuda: str | None,
    headers: dict[str, list[str]],
) -> str:
    """Return why torchaudio or torchvision stops its own import beside a torch of another CUDA.

    torchaudio before 2.11.1 compares the major and minor version, torchvision and later ones of
    torchaudio only the major one. torchvision up to 0.16 compares nothing if its operators do not
    load, as with another release of torch.
    """
    compared = _CUDA_PARTS.get(field, 0)
    if not compared or cuda is None:
        return ""
    if field == "torchaudio" and holds(one.version, ">=2.11.1"):
        compared = 1
    old = field == "torchvision" and holds(one.version, "<0.17")
    torch = site.distributions.get("torch")
    wanted = _requires_torch(host, site, headers, "")
    if old and torch is not None and wanted and not holds(torch.version, wanted):
        return ""
    theirs = said_by(host, site.module(host, "torch")).get("cuda", "")
    if not theirs or cuda.split(".")[:compared] == theirs.split(".")[:compared]:
        return ""
    return f"it is built for CUDA {cuda}, torch for CUDA {theirs}, and it compares them"


#     min_torch_version = _parse_version("2.11.0")
def _torch_floor(host: Host, path: str, version: str) -> str:
    """Return the oldest torch for which torchao loads its modules; it says so since 0.17.

    0.13 to 0.16 use torch.int1, which torch has since 2.6.
    """
    if holds(version, ">=0.13,<0.17.dev0"):
        return "2.6"
    lines = host.try_grep(host.join(path, "__init__.py"), "min_torch_version = ") if path else ()
    found = re.search(r"min_torch_version = _parse_version\(\"([\d.]+)\"\)", "\n".join(lines))
    return found[1] if found is not None else ""


#     FLASH_VER_MIN = (2, 7, 1)
#     FLASH_VER_LAST = (2, 8, 0)  # last supported, inclusive
#     FLASH_VER_LAST = parse_version("2.8.4")  # last supported, inclusive
def _flash_attn_range(host: Host, path: str) -> str | None:
    """Return the releases of flash-attn between the two that xformers' source names."""
    if not path:
        return None
    file = host.join(path, "ops", "fmha", "flash.py")
    text = "\n".join(host.try_grep(file, "FLASH_VER_MIN = ", "FLASH_VER_LAST = "))
    found = dict(re.findall(r"FLASH_VER_(MIN|LAST) = (?:parse_version)?\(([^()]{1,40})\)", text))
    numbers = {name: re.findall(r"\d{1,9}", value) for name, value in found.items()}
    if len(numbers.get("MIN", ())) < 2 or len(numbers.get("LAST", ())) < 2:
        return "" if host.is_file(file) else None
    least, last = ".".join(numbers["MIN"]), ".".join(numbers["LAST"])
    if '"' in found["LAST"]:
        return f">={least},<={last}"
    # Three numbers are compared, so that post-releases of the last one count as it.
    *head, end = numbers["LAST"]
    return f">={least},<{'.'.join([*head, str(int(end) + 1)])}"


# KERNELS_MIN_VERSION = "0.17.2"
# KERNELS_MAX_VERSION = "0.18.0"
def _kernels_range(host: Host, path: str) -> str | None:
    """Return the releases of kernels that Transformers' source names."""
    file = host.join(path, "utils", "import_utils.py") if path else ""
    if not file or not host.is_file(file):
        return None
    lines = host.try_grep(file, "KERNELS_MIN_VERSION = ", "KERNELS_MAX_VERSION = ")
    found = dict(re.findall(r'KERNELS_(MIN|MAX)_VERSION = "([\d.]{1,20})"', "\n".join(lines)))
    signs = {"MIN": ">=", "MAX": "<"}
    return ",".join(f"{sign}{found[name]}" for name, sign in signs.items() if name in found)


# Tag: cp312-cp312-manylinux_2_27_x86_64
# Tag: cp312-cp312-manylinux_2_28_x86_64
def _tags(site: Site, one: Distribution) -> dict[str, Any]:
    """Return the three parts of its wheel's tag, joined by dots; empty without a wheel."""
    lines = site.distributions.headers(one, "WHEEL").get("Tag", [])
    parts = [line.split("-", 2) for line in lines if line.count("-") >= 2]
    names = ("python_tag", "abi_tag", "platform_tag")
    return {
        name: ".".join(dict.fromkeys(part[index] for part in parts))
        for index, name in enumerate(names)
    }


def _asks_for_newer_torch(host: Host, site: Site) -> bool:
    """Whether torchao is made for a newer torch than the installed one."""
    torch, ao = (site.distributions.get(name) for name in ("torch", "torchao"))
    floor = _torch_floor(host, site.module(host, "torchao"), ao.version) if torch and ao else ""
    if torch is None or not floor:
        return False
    from packaging.version import InvalidVersion, Version

    try:
        return Version(torch.version) < Version(floor)
    except InvalidVersion:
        return False


def holds(version: str, specifier: str) -> bool:
    """Whether a version satisfies a specifier; false if one cannot be read."""
    try:
        return satisfies(version, specifier)
    except ValueError:
        return False


def _requires_torch(
    host: Host, site: Site, headers: dict[str, list[str]], floor: str
) -> str | None:
    """Return the torch requirement in its metadata, or the minimum that its name or files state."""
    if not headers:
        return None
    lines = headers.get("Requires-Dist", [])
    found = required(host, site, lines, lambda name: name == "torch")
    specifier = ",".join(one.specifier for one in found if one.specifier)
    return specifier or (f">={floor}" if floor else "")
