"""Says whether each entry of a cache can still serve: live, stale, or unknown, with the reason.

An entry is stale only on evidence: versions and GPUs that the entry itself names, folder and file
names that hold them, or the builder's record. Most of torch's own entries name none of these,
because their keys are digests. Without a record they stay unknown, which does no harm.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from attn_doctor.facts import Facts, Gpu
from attn_doctor.facts.kinds import CacheFolder
from attn_doctor.json_files import JsonError, decode
from attn_doctor.kernels.caches import groups, pickles
from attn_doctor.kernels.caches.contents import (
    CODE_KEY,
    EXTENSION_FOLDER,
    HUB_VARIANT,
    JITERATOR,
    Contents,
    Entry,
    EvaluatedEntry,
    State,
)
from attn_doctor.kernels.caches.file_tree import Tree


class CurrentEnvironment(Struct, frozen=True, kw_only=True):
    """The versions and GPUs of today. None: unknown; empty: there is none."""

    torch: str | None = None
    cuda: str | None = None
    """CUDA that torch was built for, such as `13.0`; empty in other builds."""
    triton: str | None = None
    python: str | None = None
    """Python as in file names, such as `312`."""
    sms: tuple[int, ...] | None = None
    """Compute capabilities ×10 of the GPUs that CUDA shows."""
    gpus: tuple[str, ...] | None = None
    """Their names."""


def current_environment(facts: Facts) -> CurrentEnvironment:
    """Return the versions and GPUs that the facts of the examined environment name."""
    torch, triton = facts.torch, facts.triton
    shown = None if facts.gpus is None else [one for one in facts.gpus if one.visible is not False]
    return CurrentEnvironment(
        torch=_version(torch.installed, torch.version),
        cuda=torch.cuda
        if torch.build == "cuda"
        else ""
        if torch.build
        else _absent(torch.installed),
        triton=_version(triton.installed, triton.version),
        python=(facts.python.minor or "").replace(".", "") or None,
        sms=_sms(shown),
        gpus=_names(shown),
    )


def _version(installed: bool | None, version: str | None) -> str | None:
    return "" if installed is False else version


def _absent(installed: bool | None) -> str | None:
    return "" if installed is False else None


def _sms(shown: list[Gpu] | None) -> tuple[int, ...] | None:
    found = [] if shown is None else [gpu.sm for gpu in shown if gpu.sm is not None]
    return None if shown is None or len(found) < len(shown) else tuple(sorted(set(found)))


def _names(shown: list[Gpu] | None) -> tuple[str, ...] | None:
    found = [] if shown is None else [gpu.name for gpu in shown if gpu.name]
    return None if shown is None or len(found) < len(shown) else tuple(dict.fromkeys(found))


_log = logging.getLogger(__name__)

#: The state of an entry, and the reason.
StateReason = tuple[State, str]

UNKNOWN = State.UNKNOWN
_SILENT: StateReason = (UNKNOWN, "its key is a digest, which does not show what it was built for")
#: Parts whose entries mention other entries, and may hold graphs of several programs.
_GRAPHS = ("fxgraph", "aotautograd")
_UNREAD: StateReason = (UNKNOWN, "it could not be read")


def evaluate_entries(
    contents: Contents,
    tree: Tree,
    now: CurrentEnvironment,
    recorded: Mapping[str, StateReason] | None = None,
    seconds: float = float("inf"),
) -> tuple[EvaluatedEntry, ...]:
    """Return every entry with its state. `recorded`: path of a file → its state in the record.

    After `seconds` no further entry is opened: the others are unknown and say so.
    """
    end = time.monotonic() + seconds
    evaluator = _Evaluator(tree, now)
    found: list[EvaluatedEntry] = []
    by_itself: set[str] = set()
    for entry in contents.entries:
        said = _recorded(entry, recorded or {})
        if time.monotonic() > end:
            evaluator.all_read = False
            said = said or (UNKNOWN, "not examined: the time limit was reached")
        elif said is None:
            by_itself.add(entry.name)
            said = evaluator.of(contents.kind, entry)
        elif entry.part in (*_GRAPHS, "triton"):
            # The code that a graph uses must not become stale; a kernel shows where it was written.
            evaluator.of(contents.kind, entry)
        found.append(EvaluatedEntry(entry=entry, state=said[0], why=said[1]))
    _log.debug("%s: %d entries, %d by the record", contents.root, len(found),
               len(found) - len(by_itself))  # fmt: skip
    return tuple(evaluator.used_here(evaluator.after(found, by_itself)))


def prevailing(said: Iterable[StateReason]) -> StateReason:
    """The state that counts among several, whatever their order: live, then unknown, then stale."""
    order = (State.LIVE, State.UNKNOWN, State.STALE)
    return min(said, key=lambda state: order.index(state[0]))


def _recorded(entry: Entry, recorded: Mapping[str, StateReason]) -> StateReason | None:
    """What the record says of an entry; None if it says nothing that holds for all of it."""
    said = [recorded[path] for path in entry.files if path in recorded]
    if not said:
        return None
    state = prevailing(said)
    # Graphs of several programs lie under one key, and the record names only those of the builder.
    shared = entry.part in _GRAPHS and len(said) < len(entry.files)
    return None if shared and state[0] is State.STALE else state


class _Evaluator:
    """Reads the entries of one cache, and remembers which graphs mention which code."""

    def __init__(self, tree: Tree, now: CurrentEnvironment) -> None:
        self._tree = tree
        self._now = now
        self._uses: dict[str, list[str]] = {}
        self.all_read = True
        """Every graph was read, so that `_uses` is complete."""
        self._written: dict[str, str] = {}
        """Kernel → the other folder in which it was written; empty if that is its folder here."""
        self._parts: dict[str, Callable[[Entry], StateReason]] = {
            "triton": self._kernel,
            "fxgraph": self._graph,
            "aotautograd": self._graph,
            "code": self._code,
            "autotune": self._timings,
        }
        self._kinds: dict[str, Callable[[Entry], StateReason]] = {
            "extensions": self._extension,
            "jiterator": self._small_kernel,
            "hub": self._download,
        }

    def of(self, kind: CacheFolder, entry: Entry) -> StateReason:
        """Return the state that the content and the names of an entry show."""
        work = self._parts.get(entry.part) or self._kinds.get(kind)
        return _SILENT if work is None else work(entry)

    def after(
        self, found: list[EvaluatedEntry], by_itself: Collection[str]
    ) -> Iterable[EvaluatedEntry]:
        """Mark generated code as stale if only stale graphs mention it.

        `by_itself`: names of the entries that may change, because the record does not name them.
        Nothing changes if a graph could not be read: it may use any code.
        """
        states = {one.entry.name: one.state for one in found}
        for one in found:
            users = [states[user] for user in self._uses.get(one.entry.name, [])]
            may_change = self.all_read and one.entry.part == "code" and one.entry.name in by_itself
            if may_change and users and all(state is State.STALE for state in users):
                why = "only stale entries use it"
                one = EvaluatedEntry(entry=one.entry, state=State.STALE, why=why)
            yield one

    def used_here(self, found: Iterable[EvaluatedEntry]) -> Iterable[EvaluatedEntry]:
        """Mark no entry as stale that another environment may use under another path.

        A folder that a container mounts holds what fits the versions in the container. Only a
        kernel that was written under the path of today is known to be of this environment.
        """
        other = next(filter(None, self._written.values()), "")
        for one in found:
            own = self._written.get(one.entry.name)
            written = own or ("" if own == "" or one.state is State.LIVE else other)
            if written and one.state is not UNKNOWN:
                why = f"written under {written}, where another environment may use it"
                one = EvaluatedEntry(entry=one.entry, state=UNKNOWN, why=why)
            yield one

    # torch.compile

    def _graph(self, entry: Entry) -> StateReason:
        said: list[StateReason] = []
        for path in entry.files:
            data = self._read(path)
            if data is None:
                self.all_read = False
                return _UNREAD
            mentioned: list[StateReason] = []
            for text in pickles.texts(data):
                for key in CODE_KEY.findall(text):
                    self._uses.setdefault(key.decode(), []).append(entry.name)
                mentioned += filter(None, [self._mentioned(text)])
            said.append(_of_all(mentioned) or _SILENT)
        return prevailing(said)

    def _mentioned(self, text: bytes) -> StateReason | None:
        """The state that a kernel's description or source inside a graph shows."""
        if text[:1] == b"{" and b'"target"' in text[:4096]:
            return self._described(text)
        return self._compiled_for(text)

    def _code(self, entry: Entry) -> StateReason:
        read = [self._read(path) for path in entry.files if path.endswith(".py")]
        said = [self._compiled_for(data) for data in read if data]
        return _of_all([one for one in said if one is not None]) or _SILENT

    def _compiled_for(self, text: bytes) -> StateReason | None:
        # DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, …)
        found = re.search(rb"DeviceProperties\(type='cuda',[^)]{0,200}?\bcc=(\d{2,3})\b", text)
        return self._sm(int(found[1])) if found else None

    def _timings(self, entry: Entry) -> StateReason:
        """`cache/<hash>` names the GPU and the CUDA of the measurement."""
        data = self._read(entry.files[0]) if entry.files[0].startswith("cache/") else None
        system = (_json(data or b"") or {}).get("system")
        if not isinstance(system, dict):
            return _SILENT
        gpu, cuda = _text(system, "device", "name"), _text(system, "version", "cuda")
        if gpu and self._now.gpus and gpu not in self._now.gpus:
            return State.STALE, f"measured on {gpu}, here is {', '.join(self._now.gpus)}"
        if cuda and self._now.cuda is not None and cuda != self._now.cuda:
            return State.STALE, f"measured with CUDA {cuda}, torch has {self._now.cuda or 'none'}"
        return _SILENT

    # Triton

    def _kernel(self, entry: Entry) -> StateReason:
        said: list[StateReason] = []
        for path in entry.files:
            name = path.rpartition("/")[2]
            if name.startswith(groups.PREFIX):
                self._note_folder(entry, path)
            elif name.endswith(".json"):
                data = self._read(path)
                nothing = (UNKNOWN, "its description does not show what it was built for")
                said.append((self._described(data) or nothing) if data is not None else _UNREAD)
            # cuda_utils.cpython-312-x86_64-linux-gnu.so, __triton_launcher.cp312-win_amd64.pyd
            elif name.endswith((".so", ".pyd")) and len(entry.files) == 1:
                said.append(self._helper(name))
        return prevailing(said) if said else (UNKNOWN, "it has no description")

    def _note_folder(self, entry: Entry, path: str) -> None:
        """Note whether the kernel was written under the path that this cache has here."""
        data = self._read(path)
        named = groups.children(data) if data is not None else None
        if named:
            self._written[entry.name] = groups.elsewhere(self._tree, path, named)

    def _helper(self, name: str) -> StateReason:
        """A module that Triton compiles for itself, such as its connection to the driver."""
        found = re.search(r"\.(?:cpython-|cp)(\d{2,3})t?-", name)
        title = f"Triton's helper {name.partition('.')[0]}, not a kernel"
        if found is None or self._now.python is None:
            return UNKNOWN, f"{title}; its versions are unknown"
        if found[1] != self._now.python:
            built = f"built for Python {_dotted(found[1])}"
            return State.STALE, f"{title}, {built}, {_here(self._now.python)}"
        return UNKNOWN, f"{title}, for this Python"

    def _described(self, data: bytes) -> StateReason | None:
        described = _json(data) or {}
        version, target = described.get("triton_version"), described.get("target")
        said: list[StateReason] = []
        if isinstance(version, str) and self._now.triton is not None:
            if not self._now.triton:
                said.append((UNKNOWN, f"built by Triton {version}, and no Triton is installed"))
            elif not _same(version, self._now.triton):
                why = f"built by Triton {version}, this is {self._now.triton}"
                return State.STALE, why
        elif isinstance(version, str):
            said.append((UNKNOWN, f"built by Triton {version}; the installed version is unknown"))
        elif (
            "target" in described
            and "triton_version" not in described
            and _writes_versions(self._now.triton)
        ):
            return State.STALE, f"built by a Triton before 3.6, this is {self._now.triton}"
        else:
            said.append((UNKNOWN, "its Triton wrote no version into it"))
        if isinstance(target, dict) and target.get("backend") == "cuda":
            arch = target.get("arch")
            at = self._sm(arch) if isinstance(arch, int) else None
            if at is not None and at[0] is State.STALE:
                return at
            said += [at] if at is not None and at[0] is UNKNOWN else []
        else:
            said.append((UNKNOWN, "it was not built for an NVIDIA GPU"))
        return said[0] if said else (State.LIVE, f"built by Triton {version} for this GPU")

    def _sm(self, sm: int) -> StateReason:
        if self._now.sms is None:
            return UNKNOWN, "the GPUs here are unknown"
        if not self._now.sms:
            return UNKNOWN, f"built for sm_{sm}, and no GPU is here to compare with"
        if sm not in self._now.sms:
            here = ", ".join(f"sm_{one}" for one in self._now.sms)
            return State.STALE, f"built for sm_{sm}, the GPU here is {here}"
        return State.LIVE, f"built for sm_{sm}"

    # The others

    def _extension(self, entry: Entry) -> StateReason:
        found = EXTENSION_FOLDER.fullmatch(entry.name.partition("/")[0])
        if found is None:
            return UNKNOWN, "with TORCH_EXTENSIONS_DIR the folder's name has no versions"
        python, build = found["python"], found["build"]
        if self._now.python is not None and python != self._now.python:
            return State.STALE, f"built for Python {_dotted(python)}, {_here(self._now.python)}"
        if self._now.cuda is not None and build.startswith("cu"):
            # If this torch is for the CPU, another environment may use the extension.
            own = "cu" + self._now.cuda.replace(".", "")
            if not self._now.cuda:
                return UNKNOWN, f"built for {build}, and the torch here has no CUDA"
            if build != own:
                return State.STALE, f"built for {build}, the torch here is {own}"
        return UNKNOWN, f"its folder is {found[0]}, which does not show the torch"

    def _small_kernel(self, entry: Entry) -> StateReason:
        found = JITERATOR.fullmatch(entry.name)
        if found is None or not re.fullmatch(r"\d+\.\d+", found["arch"]):
            return _SILENT
        nvrtc, cuda = found["nvrtc"], self._now.cuda
        if cuda and nvrtc != ".".join(cuda.split(".")[:2]):
            return State.STALE, f"built with CUDA {nvrtc}, torch has {cuda}"
        sm = self._sm(int(found["arch"].replace(".", "")))
        if sm[0] is not State.LIVE:
            return sm
        return (State.LIVE, f"for this GPU and CUDA {nvrtc}") if cuda else (UNKNOWN, sm[1])

    def _download(self, entry: Entry) -> StateReason:
        variants = {
            found[0]: found
            for path in entry.files
            for part in path.split("/")[4:5]
            if (found := HUB_VARIANT.fullmatch(part))
        }
        torch = re.match(r"(\d+)\.(\d+)", self._now.torch or "")
        if torch is None or not variants:
            return UNKNOWN, "the torch here is unknown"
        own = torch[1] + torch[2]
        if any(one["torch"] == own for one in variants.values()):
            return UNKNOWN, f"it has a variant for torch {torch[0]}"
        return State.STALE, f"it has no variant for torch {torch[0]}: {', '.join(sorted(variants))}"

    def _read(self, path: str) -> bytes | None:
        try:
            return self._tree.read(path)
        except OSError:
            return None


def _of_all(said: list[StateReason]) -> StateReason | None:
    """The state of one file that needs all of these: unknown if one is, stale if one is.

    That all fit is necessary and not sufficient, so it is never live. None if nothing was said.
    """
    stale = [one for one in said if one[0] is State.STALE]
    unknown = [one for one in said if one[0] is UNKNOWN]
    return next(iter(unknown + stale), None)


def _json(data: bytes) -> dict[str, object] | None:
    try:
        found = decode(data)
    except JsonError:
        return None
    return found if isinstance(found, dict) else None


def _text(data: dict[str, object], outer: str, inner: str) -> str:
    """The text at `data[outer][inner]`; empty if anything else is there."""
    section = data.get(outer)
    value = section.get(inner) if isinstance(section, dict) else None
    return value if isinstance(value, str) else ""


def _writes_versions(triton: str | None) -> bool:
    """This Triton writes its version into every kernel's description; observed with 3.6."""
    found = re.match(r"(\d+)\.(\d+)", triton or "")
    return found is not None and (int(found[1]), int(found[2])) >= (3, 6)


def _same(one: str, other: str) -> bool:
    """The release numbers agree: `3.5.0` and `3.5.0.post21` are the same Triton."""
    return re.split(r"[+-]|\.post", one)[0] == re.split(r"[+-]|\.post", other)[0]


def _dotted(python: str) -> str:
    return f"{python[0]}.{python[1:]}"


def _here(python: str) -> str:
    return f"this is {_dotted(python)}"
