"""Installed distributions, read from folder names and metadata; against `importlib.metadata`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import Distributions, Site, scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.requirement import normal_name
from tests.probes.tree import machine

SITE = "/venv/lib/python3.12/site-packages"
BASE = "/usr/lib/python3/dist-packages"
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX paths")


def site_of(files: dict[str, str], *folders: str, plain: tuple[str, ...] = ()) -> Site:
    return scan(machine(files), folders or (SITE,), "/venv", Gaps(), plain)


def versions(site: Site) -> dict[str, str]:
    return {one.name: one.version for one in site.distributions}


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("torch-2.11.0+cu130.dist-info", "torch", "2.11.0+cu130"),
        ("flash_attn-2.8.3.post1.dist-info", "flash-attn", "2.8.3.post1"),
        ("flash_attn_3-3.0.0b1.dist-info", "flash-attn-3", "3.0.0b1"),
        ("nvidia_cuda_nvcc-13.0.88.dist-info", "nvidia-cuda-nvcc", "13.0.88"),
        ("ruamel.yaml-0.18.6.dist-info", "ruamel-yaml", "0.18.6"),
        ("sageattention-2.2.0-py3.12-linux-x86_64.egg-info", "sageattention", "2.2.0"),
        ("PyYAML-6.0.egg-info", "pyyaml", "6.0"),
        ("torch-2.12.0.dev20260101+cu130.dist-info", "torch", "2.12.0.dev20260101+cu130"),
    ],
)
def test_names_of_metadata_folders(folder: str, name: str, version: str) -> None:
    assert versions(site_of({f"{SITE}/{folder}/METADATA": ""})) == {name: version}


def test_other_names_are_not_distributions() -> None:
    names = ("torch/__init__.py", "torch.py", "x.dist-info.txt", "README-1.0.md")
    assert versions(site_of({f"{SITE}/{name}": "" for name in names})) == {}


def test_a_development_egg_info_is_opened_for_its_version() -> None:
    files = {f"{SITE}/finetrainers.egg-info/PKG-INFO": "Name: finetrainers\nVersion: 0.2.0\n"}
    assert versions(site_of(files)) == {"finetrainers": "0.2.0"}
    assert versions(site_of({f"{SITE}/broken.egg-info/PKG-INFO": ""})) == {}


def test_an_egg_of_setup_py_install() -> None:
    """`python setup.py install`, as SageAttention's instructions long had it."""
    egg = f"{SITE}/sageattention-2.2.0-py3.12-linux-x86_64.egg"
    files = {
        f"{SITE}/easy-install.pth": "./sageattention-2.2.0-py3.12-linux-x86_64.egg\n",
        f"{egg}/EGG-INFO/PKG-INFO": "Name: SageAttention\nVersion: 2.2.0\n",
        f"{egg}/sageattention/__init__.py": "",
    }
    site = site_of(files)
    found = site.distributions.get("sageattention")
    assert found is not None
    assert (found.version, found.site) == ("2.2.0", egg)
    assert site.distributions.headers(found)["Name"] == ["SageAttention"]
    assert versions(site_of({f"{SITE}/EGG-INFO/PKG-INFO": "Name: x\nVersion: 1\n"})) == {}


def test_the_first_folder_counts() -> None:
    files = {f"{SITE}/torch-2.9.0.dist-info/x": "", f"{BASE}/torch-2.1.0.dist-info/x": ""}
    assert versions(site_of(files, SITE, BASE)) == {"torch": "2.9.0"}
    assert versions(site_of(files, BASE, SITE)) == {"torch": "2.1.0"}
    copies = site_of(files, SITE, BASE).distributions.copies("Torch")
    assert [(one.version, one.site) for one in copies] == [("2.9.0", SITE), ("2.1.0", BASE)]


def test_folders_that_pth_files_add_follow_their_own() -> None:
    files = {
        f"{SITE}/a.pth": "# a comment\n\n/home/ada/Fine Trainers\n../extra\n/nowhere\n",
        f"{BASE}/b.pth": "/opt/b",
        "/home/ada/Fine Trainers/x.py": "",
        "/venv/lib/python3.12/extra/x.py": "",
        "/opt/b/c.pth": "/opt/c",
        "/opt/c/x.py": "",
    }
    site = site_of(files, SITE, BASE)
    trainers, extra = "/home/ada/Fine Trainers", "/venv/lib/python3.12/extra"
    assert site.folders == (SITE, trainers, extra, BASE, "/opt/b")
    assert site.pth_code == ()


def test_code_in_pth_files_is_reported_and_not_run() -> None:
    files = {
        f"{SITE}/distutils-precedence.pth": "import os; var = 'X'\n",
        f"{SITE}/tab.pth": "import\tsys\n",
        f"{SITE}/important.pth": "important_folder\n",
    }
    paths = (f"{SITE}/distutils-precedence.pth", f"{SITE}/tab.pth")
    assert site_of(files).pth_code == paths


@pytest.mark.parametrize(
    ("code", "folders"),
    [
        ("import sys; sys.path.insert(0, '/opt/b')", ("/opt/b", "/pt", SITE)),
        ("import sys; sys.path.insert(1, '/opt/b')", ("/pt", "/opt/b", SITE)),
        ("import sys; sys.path.insert(-1, '/opt/b')", ("/pt", "/opt/b", SITE)),
        ("import sys; sys.path.append('/opt/b')", ("/pt", SITE, "/opt/b")),
        ("import sys; sys.path.extend(['/opt/b', '/opt/c'])", ("/pt", SITE, "/opt/b", "/opt/c")),
        ("import sys; sys.path += ['/opt/b']", ("/pt", SITE, "/opt/b")),
        ("import sys; sys.path[:0] = ['/opt/b', '/opt/c']", ("/opt/b", "/opt/c", "/pt", SITE)),
        ("import sys; sys.path = ['/opt/b'] + sys.path", ("/opt/b", "/pt", SITE)),
        ("import sys, os; sys.path.insert(0, os.path.join(sys.prefix, 'x'))",
         ("/venv/x", "/pt", SITE)),
        ("import sys as s; p = s.prefix + '/x'; s.path.insert(0, p)", ("/venv/x", "/pt", SITE)),
        ("import sys; from sys import path; path.insert(0, f'{sitedir}/../x')",
         ("/venv/lib/python3.12/x", "/pt", SITE)),
        ("import sys; '/opt/b' in sys.path or sys.path.insert(0, '/opt/b')",
         ("/opt/b", "/pt", SITE)),
        ("import site; site.addsitedir('/opt/s')", ("/pt", SITE, "/opt/s", "/opt/t")),
        ("import sys; __import__('sys').path.insert(0, '/opt/b')", ("/opt/b", "/pt", SITE)),
        ("import sys; sys.path.insert(0, '/nowhere')", ("/pt", SITE)),
        ("import os, types; p = os.path.join(sitedir, 'google')", ("/pt", SITE)),
    ],
)  # fmt: skip
def test_code_that_changes_the_import_path_is_understood(
    code: str, folders: tuple[str, ...]
) -> None:
    """What Python itself does is compared in test_python_agrees_on_the_import_path."""
    files = {
        f"{SITE}/first.pth": code,
        "/pt/x.py": "",
        "/opt/b/torch-2.9.0.dist-info/METADATA": "",
        "/opt/c/x.py": "",
        "/opt/s/more.pth": "/opt/t\n",
        "/opt/t/x.py": "",
        "/venv/x/x.py": "",
        "/venv/lib/python3.12/x/x.py": "",
    }
    site = site_of(files, "/pt", SITE, plain=("/pt",))
    assert (site.folders, site.path_unread) == (folders, ())
    added = {one for one in folders if one not in ("/pt", SITE, "/opt/t")}
    assert site.added_by == dict.fromkeys(added, f"{SITE}/first.pth")


#: protobuf-3.20.3-py3.10-nspkg.pth, as setuptools writes it.
NAMESPACE = (
    "import sys, types, os;has_mfs = sys.version_info > (3, 5);"
    "p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('google',));"
    "importlib = has_mfs and __import__('importlib.util');"
    "has_mfs and __import__('importlib.machinery');"
    "m = has_mfs and sys.modules.setdefault('google', importlib.util.module_from_spec("
    "importlib.machinery.PathFinder.find_spec('google', [os.path.dirname(p)])));"
    "m = m or sys.modules.setdefault('google', types.ModuleType('google'));"
    "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)"
)


def test_a_namespace_package_leaves_the_path_as_it_is() -> None:
    site = site_of({f"{SITE}/protobuf-nspkg.pth": NAMESPACE + "\n"})
    assert (site.folders, site.path_unread) == ((SITE,), ())
    more = NAMESPACE.replace("has_mfs =", "sys.path.insert(0, p);has_mfs =", 1)
    assert site_of({f"{SITE}/a-nspkg.pth": more + "\n"}).path_unread == (f"{SITE}/a-nspkg.pth",)


@pytest.mark.parametrize(
    "code",
    [
        "import sys, os; sys.path.insert(0, os.environ['EXTRA'])",
        "import sys; sys.path.insert(0, 'src')",
        "import sys; sys.path.remove('/opt/b')",
        "import sys; sys.path[:] = ['/opt/b']",
        "import sys; exec('if 1: sys.path.insert(0, \"/opt/b\")')",
        "import sys; [sys.path.append(one) for one in ('/opt/b',)]",
        "import site, os; site.addsitedir(os.getcwd())",
        "import sys; sys.path.insert(0, " + "(" * 5000,
        "import sys; sys" + ".path" * 3000,  # deeper than Python walks
    ],
)
def test_code_that_is_not_understood_is_said_so(code: str) -> None:
    site = site_of({f"{SITE}/first.pth": code, "/opt/b/x.py": ""})
    assert (site.folders, site.path_unread) == ((SITE,), (f"{SITE}/first.pth",))


def test_python_agrees_on_the_import_path(tmp_path: Path) -> None:
    """Eggs of setuptools come first, and each way of adding a folder has its place."""
    lib = "Lib/site-packages" if os.name == "nt" else "lib/python{}.{}/site-packages"
    folder = tmp_path / lib.format(*sys.version_info)
    extra = {name: tmp_path / name for name in "abcdef"}
    for one in (folder, *extra.values()):
        one.mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (folder / "easy-install.pth").write_text(
        f"import sys; sys.__plen = len(sys.path)\n{extra['a']}\n{extra['b']}\n"
        "import sys; new=sys.path[sys.__plen:]; del sys.path[sys.__plen:];"
        " p=getattr(sys,'__egginsert',0); sys.path[p:p]=new; sys.__egginsert = p+len(new)\n"
    )
    (folder / "first.pth").write_text(
        f"import sys; sys.path.insert(0, {str(extra['c'])!r})\n{extra['d']}\n"
        f"import sys; sys.path.append({str(extra['e'])!r})\n"
        f"import sys; sys.path.insert(1, {str(extra['f'])!r})\n"
    )
    code = f"import site, sys; site.addsitedir({str(folder)!r}); print('\\n'.join(sys.path))"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    wanted = [one for one in ran.stdout.splitlines() if one.startswith(str(tmp_path))]
    site = scan(LocalHost(), (str(folder),), str(tmp_path), Gaps())
    assert [*site.folders] == wanted
    assert len(wanted) == 7


@pytest.mark.parametrize(
    ("code", "folders", "unread"),
    [
        ("import sys\nsys.path.insert(0, '/opt/b')\n", ("/opt/b", "/pt", SITE), False),
        ("import os, sys\nhere = os.path.dirname(__file__)\nsys.path.append(here + '/deps')\n",
         ("/pt", SITE, "/pt/deps"), False),
        ("import warnings\nwarnings.simplefilter('ignore')\n", ("/pt", SITE), False),
        ("import sys\nif sys.version_info > (3,):\n    sys.path.insert(0, '/opt/b')\n",
         ("/pt", SITE), True),
        ("raise SystemExit(3)\n", ("/pt", SITE), True),
        ("import sys\nsys.modules['torch'] = None\n", ("/pt", SITE), True),
    ],
)  # fmt: skip
def test_sitecustomize(code: str, folders: tuple[str, ...], unread: bool) -> None:
    files = {
        "/pt/sitecustomize.py": code,
        "/opt/b/x.py": "",
        "/pt/deps/x.py": "",
        f"{SITE}/sitecustomize.py": "import sys; sys.path.append('/opt/b')",
    }
    site = site_of(files, "/pt", SITE, plain=("/pt",))
    assert site.folders == folders
    assert site.path_unread == ("/pt/sitecustomize.py",) * unread
    added = {one for one in folders if one not in ("/pt", SITE)}
    assert site.added_by == dict.fromkeys(added, "/pt/sitecustomize.py")


def test_only_the_first_sitecustomize_is_imported() -> None:
    files = {
        f"{SITE}/sitecustomize.py": "import sys; sys.path.append('/opt/b')",
        "/opt/b/x.py": "",
        "/usr/lib/python3.12/sitecustomize.py": "",
    }
    for stdlib, folders in (("", (SITE, "/opt/b")), ("/usr/lib/python3.12", (SITE,))):
        site = scan(machine(files), (SITE,), "/venv", Gaps(), stdlib=stdlib)
        assert site.folders == folders


def test_usercustomize_is_imported_where_the_user_s_folder_is_enabled() -> None:
    files = {
        f"{SITE}/sitecustomize.py": "",
        f"{SITE}/usercustomize.py": "import sys; sys.path.append('/opt/b')",
        "/opt/b/x.py": "",
    }
    for user, folders in ((False, (SITE,)), (True, (SITE, "/opt/b"))):
        site = scan(machine(files), (SITE,), "/venv", Gaps(), user=user)
        assert site.folders == folders


@pytest.mark.parametrize("name", ["sitecustomize/__init__.py", "sitecustomize.pyc", "eggs.pth"])
def test_what_is_not_read_as_text(name: str) -> None:
    """A package, compiled code, and an egg that a `.pth` file adds."""
    files = {f"{SITE}/{name}": "./diffusers.egg\n", f"{SITE}/diffusers.egg": "PK"}
    assert site_of(files).path_unread == (f"{SITE}/{name}",)


def test_pth_files_on_pythonpath_are_not_read() -> None:
    files = {
        "/opt/pt/x.pth": "import os\n/opt/more\n",
        "/opt/more/x.py": "",
        "/opt/pt/torch-2.9.0.dist-info/METADATA": "",
    }
    site = site_of(files, "/opt/pt", SITE, plain=("/opt/pt",))
    assert (site.folders, site.pth_code) == (("/opt/pt", SITE), ())
    assert versions(site) == {"torch": "2.9.0"}


def test_leftovers() -> None:
    files = {f"{SITE}/~orch/x.py": "", f"{SITE}/~orch-2.9.0.dist-info/METADATA": ""}
    site = site_of(files)
    assert site.leftovers == (f"{SITE}/~orch", f"{SITE}/~orch-2.9.0.dist-info")
    assert versions(site) == {}


def test_a_folder_that_cannot_be_read_is_a_gap() -> None:
    gaps = Gaps()
    host = machine(answers={f"list {SITE}": {"error": "EACCES"}})
    site = scan(host, (SITE, "/gone"), "/venv", gaps)
    assert site.folders == (SITE, "/gone")
    assert set(gaps.reasons) == {"python.distribution_count"}
    assert SITE in gaps.reasons["python.distribution_count"]


def test_modules() -> None:
    files = {
        f"{SITE}/flash_attn/cute/__init__.py": "",
        f"{SITE}/flash_attn_interface.py": "",
        f"{SITE}/torch/nn/attention/flex_attention.py": "",
        f"{BASE}/flash_attn/__init__.py": "",
    }
    host = machine(files)
    site = scan(host, (SITE, BASE), "/venv", Gaps())
    assert site.module(host, "flash_attn") == f"{SITE}/flash_attn"
    assert site.module(host, "flash_attn.cute") == f"{SITE}/flash_attn/cute"
    assert site.module(host, "flash_attn_interface") == f"{SITE}/flash_attn_interface.py"
    flex = "torch.nn.attention.flex_attention"
    assert site.module(host, flex) == f"{SITE}/torch/nn/attention/flex_attention.py"
    assert site.module(host, "xformers") == ""


def test_headers_end_where_the_description_begins() -> None:
    text = (
        "Metadata-Version: 2.1\nRequires-Dist: triton==3.6.0; platform_system == 'Linux'\n"
        "Requires-Dist: numpy\n  continued: here\n\nRequires-Dist: not this\n"
    )
    site = site_of({f"{SITE}/torch-2.11.0.dist-info/METADATA": text})
    torch = site.distributions.get("torch")
    assert torch is not None
    assert site.distributions.headers(torch)["Requires-Dist"] == [
        "triton==3.6.0; platform_system == 'Linux'",
        "numpy",
    ]
    assert site.distributions.read(torch, "direct_url.json") == ""


def test_our_own_environment_as_importlib_sees_it() -> None:
    gaps = Gaps()
    folders = tuple(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))
    site = scan(LocalHost(), folders, sys.prefix, gaps)
    expected: dict[str, str] = {}
    for one in importlib.metadata.distributions(path=list(site.folders)):
        expected.setdefault(normal_name(one.metadata["Name"]), one.version)
    assert versions(site) == expected
    assert gaps.reasons == {}


@posix
def test_links_and_spaces_on_a_real_disk(tmp_path: Path) -> None:
    site = tmp_path / "site packages"
    (site / "torch-2.9.0.dist-info").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (site / "_src.pth").write_text(f"{tmp_path}/src\n")
    found = scan(LocalHost(), (str(site),), str(tmp_path), Gaps())
    assert found.folders == (str(site), str(tmp_path / "src"))
    assert isinstance(found.distributions, Distributions)
    assert len(found.distributions) == 1


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        (b"Author: Moto Hira \xef\xbf\xbd\n", ""),  # as torchaudio 2.4.1 has it
        (b"Author: Andr\xe9\n", "METADATA is not text in UTF-8"),
        (b"Author: \xef\xbf\xbd\nAuthor: Andr\xe9\n", "METADATA is not text in UTF-8"),
        (b"\0", ""),
    ],
)
def test_text_that_is_not_utf_8_is_damage(tmp_path: Path, text: bytes, damage: str) -> None:
    info = tmp_path / "torchaudio-2.4.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: torchaudio\nVersion: 2.4.1\n" + text)
    known = scan(LocalHost(), (str(tmp_path),), str(tmp_path), Gaps()).distributions
    found = known.get("torchaudio")
    assert found is not None
    assert known.damage(found) == damage


def test_a_file_of_zeros_has_no_version(tmp_path: Path) -> None:
    info = tmp_path / "safetensors-0.8.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(bytes(4000))  # after a power failure
    known = scan(LocalHost(), (str(tmp_path),), str(tmp_path), Gaps()).distributions
    found = known.get("safetensors")
    assert found is not None
    assert known.damage(found) == "METADATA has no Name and no Version"
