"""Describes an interpreter. Runs inside the examined one, or in our own process.

Started as ``python -I -S -B interpreter.py``, it prints one JSON object. Isolated and without
`site`, no `.pth` line, `sitecustomize` or shadowing module of that environment runs; so what
`site` would have set up (the prefix of a virtual environment, the folders of packages) is worked
out here by the same rules. Only the standard library is used, and the syntax is that of Python
3.6, so that an interpreter too old to be examined can still report that. What it cannot know: paths
that `.pth` files add, and what a `sitecustomize` would change.
"""

import os
import sys

#: The oldest Python whose environments are examined.
OLDEST = (3, 8)


def describe() -> "dict[str, object]":
    """The facts of this interpreter, as plain JSON data."""
    import site
    import sysconfig

    root, config = _pyvenv()
    limited, with_site = _path_file()
    sees_base = not config or config.get("include-system-site-packages", "true").lower() == "true"
    user = site.getusersitepackages()
    user_enabled = sees_base and not limited and _user_site_allowed()
    threads, soabi, suffix = _build()
    # The default scheme of Debian's python3.10 names an include folder that holds no headers.
    include = _paths("posix_prefix") if os.name == "posix" else _paths()
    paths = _paths()
    return {
        "version": sys.version.split()[0].rstrip("+"),
        "implementation": sys.implementation.name,
        "cache_tag": sys.implementation.cache_tag or "",
        "abi": _abi(soabi, threads),
        "soabi": soabi,
        "ext_suffix": suffix,
        "platform": sysconfig.get_platform().replace("-", "_").replace(".", "_"),
        "bits": 64 if sys.maxsize > 1 << 32 else 32,
        "free_threaded": threads,
        "debug": hasattr(sys, "gettotalrefcount"),
        "executable": sys.executable or "",
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "pyvenv": os.path.join(root, "pyvenv.cfg") if config else "",
        "include": include["include"],
        "platinclude": include.get("platinclude", include["include"]),
        "stdlib": paths["stdlib"],
        "purelib": paths["purelib"],
        "platlib": paths["platlib"],
        "scripts": paths["scripts"],
        "user_site": user,
        "user_site_enabled": user_enabled,
        "reads_pythonpath": not limited,
        "ctypes": _has_ctypes(),
        "site_packages": _folders(sees_base, user if user_enabled else "") if with_site else [],
    }


def _is_plain() -> bool:
    """Whether `sysconfig` has no say beyond its schemes: CPython's environments on Linux.

    Linux distributions change the variables of `sysconfig` outside of environments.
    """
    virtual = sys.prefix != sys.base_prefix
    return virtual and sys.platform == "linux" and sys.implementation.name == "cpython"


def _build() -> "tuple[bool, str, str]":
    """Whether the build is free-threaded; SOABI and EXT_SUFFIX of `sysconfig`.

    The interpreter knows them too. `sysconfig` reads a thousand variables for them, 2 ms.
    """
    if _is_plain():
        import _imp

        suffix = _imp.extension_suffixes()[0]  # .cpython-312-x86_64-linux-gnu.so
        return "t" in sys.abiflags, suffix.split(".")[1], suffix
    from sysconfig import get_config_var

    names = ("SOABI", "EXT_SUFFIX")
    soabi, suffix = (get_config_var(name) or "" for name in names)
    return bool(get_config_var("Py_GIL_DISABLED")), soabi, suffix


def _paths(scheme: str = "") -> "dict[str, str]":
    """`sysconfig.get_paths`, without its thousand variables where it needs none of them."""
    from functools import partial
    from sysconfig import get_paths

    ask = partial(get_paths, scheme) if scheme else get_paths
    if _is_plain():
        values = {
            "base": os.path.normpath(sys.prefix),
            "platbase": os.path.normpath(sys.exec_prefix),
            "installed_base": os.path.normpath(sys.base_prefix),
            "installed_platbase": os.path.normpath(sys.base_exec_prefix),
            "platlibdir": getattr(sys, "platlibdir", "lib"),
            "py_version_short": "{}.{}".format(*sys.version_info),
            "abiflags": sys.abiflags,
            "abi_thread": "t" if "t" in sys.abiflags else "",
            "implementation_lower": "python",
        }
        try:
            found = ask(expand=False)
            return {name: path.format(**values) for name, path in found.items()}
        except KeyError:  # a scheme with other variables
            pass
    return ask()


def _has_ctypes() -> bool:
    """Whether it was built with `_ctypes`, which is left out where libffi is missing."""
    finders = [one for one in sys.meta_path if hasattr(one, "find_spec")]
    return any(one.find_spec("_ctypes", None) is not None for one in finders)


def _folders(sees_base: bool, user: str) -> "list[str]":
    """Folders that `site` would add, in its order: the environment's, the user's, the base's."""
    import site

    base = [sys.base_prefix, sys.base_exec_prefix]
    virtual = sys.prefix != sys.base_prefix
    first = site.getsitepackages([sys.prefix]) if virtual else []
    rest = site.getsitepackages(base if virtual else [sys.prefix, sys.exec_prefix])
    found = []  # type: list[str]
    for folder in [*first, user, *(rest if sees_base else [])]:
        if folder and folder not in found and os.path.isdir(folder):
            found.append(folder)
    return found


def _user_site_allowed() -> bool:
    """`site.check_enableusersite`, without the isolation that this process itself runs in."""
    if os.environ.get("PYTHONNOUSERSITE"):
        return False
    if os.name == "nt":
        return True
    return (os.geteuid(), os.getegid()) == (os.getuid(), os.getgid())


# home = /usr/bin
# include-system-site-packages = false
# version = 3.12.3
def _pyvenv() -> "tuple[str, dict[str, str]]":
    """Folder and settings of the `pyvenv.cfg` that belongs to this interpreter."""
    folder = os.path.dirname(os.path.abspath(sys.executable or "python"))
    for root in (folder, os.path.dirname(folder)):
        path = os.path.join(root, "pyvenv.cfg")
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition("=") for line in file.readlines(1 << 16) if "=" in line]
        return root, {key.strip().lower(): value.strip() for key, _, value in pairs}
    return "", {}


# python312.zip
# .
# import site
def _path_file() -> "tuple[bool, bool]":
    """Whether a `._pth` file fixes the path (Windows' embeddable Python); whether `site` runs."""
    folder = os.path.dirname(os.path.abspath(sys.executable or "python"))
    stem = os.path.splitext(os.path.basename(sys.executable or "python"))[0]
    for name in ("python{}{}._pth".format(*sys.version_info), stem + "._pth"):
        path = os.path.join(folder, name)
        if os.name == "nt" and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                return True, any(line.strip() == "import site" for line in file)
    return False, True


def _abi(soabi: str, threads: bool) -> str:
    """The ABI tag of extension modules, as wheels write it."""
    if sys.implementation.name != "cpython":
        # pypy310-pp73-x86_64-linux-gnu
        return "_".join(soabi.split("-")[:2])
    flags = ("t" if threads else "") + ("d" if hasattr(sys, "gettotalrefcount") else "")
    return "cp{}{}".format(*sys.version_info) + flags


def _enter() -> None:
    """Set the prefix as `site.venv` would; from Python 3.14 on, the interpreter has done it."""
    if _pyvenv()[1] and sys.prefix == sys.base_prefix:
        folder = os.path.dirname(os.path.abspath(sys.executable))
        sys.prefix = sys.exec_prefix = os.path.dirname(folder)


def _main() -> None:
    answer = {"error": "Python " + sys.version.split()[0], "kind": "too-old"}  # type: object
    try:
        if sys.version_info >= OLDEST:
            _enter()
            answer = describe()
    except Exception as error:
        answer = {"error": type(error).__name__ + ": " + str(error), "kind": "failed"}
    sys.stdout.write(_json(answer) + "\n")


def _json(value: object) -> str:
    """`value` as JSON. Importing `json` would take as long as all the rest of this process."""
    if isinstance(value, dict):
        return "{" + ", ".join(_json(key) + ": " + _json(one) for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_json, value)) + "]"
    if value is None or isinstance(value, (bool, int)):
        return "null" if value is None else str(value).lower()
    return '"' + "".join(map(_escape, str(value))) + '"'


def _escape(char: str) -> str:
    if " " <= char <= "~" and char not in '"\\':
        return char
    # Beyond the first 65536 characters, JSON writes two halves.
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join("\\u{:02x}{:02x}".format(*units[at : at + 2]) for at in range(0, len(units), 2))


if __name__ == "__main__":
    _main()
