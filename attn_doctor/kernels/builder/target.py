"""A GPU of another machine to build for, and what of that machine decides whether kernels fit it.

A stub GPU replaces it: a small library with the target's properties under which everything
compiles and nothing runs. So what is built is `unverified`: a second process reused it, and its
numbers were never computed. The other machine's driver and compilers are unknown, and so is whether
it can write to the same path; what its descriptor does not contain is None.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import Driver, Facts, Gpu
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.caches.deletion import ClearedFile
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.record.environment import environment_from_facts, slot_name
from attn_doctor.record.manifest import BuildEnvironment, Entry
from attn_doctor.worker.env_vars import kept

#: Kernels without their intermediate texts: a fifth of the size, under the same keys.
_SMALLER = "TRITON_STORE_BINARY_ONLY"
#: How files with Inductor's choices among tiles end.
CHOICES = ".best_config"
#: Most GPUs of one machine.
_MOST = 64


class TargetError(DeviceError):
    """Nothing can be built for that GPU here; the message says what differs and what to do."""


class Target(Struct, frozen=True, kw_only=True):
    """One GPU model, and how many of it."""

    descriptor: Descriptor
    word: str
    """As it was given: a name or a file."""
    environment: dict[str, str]
    """Variables that enter keys, as they are set where the GPU is."""
    devices: tuple[str, ...]
    """Such as `cuda:0`: the index is part of the generated code."""

    @property
    def name(self) -> str:
        """As torch calls it."""
        return self.descriptor.name

    @property
    def sm(self) -> int:
        """Compute capability times ten."""
        return self.descriptor.sm

    @property
    def title(self) -> str:
        """Such as `NVIDIA H200 (SM 9.0)`."""
        return f"{self.name} (SM {self.sm // 10}.{self.sm % 10})"

    @property
    def slots(self) -> tuple[str, ...]:
        """Its device slots, as in the manifest."""
        return tuple(slot_name(device, self.name) for device in self.devices)

    def there(self, facts: Facts) -> Facts:
        """This environment's facts, with its GPUs in place of ours and an unknown driver."""
        gpu = Gpu(name=self.name, sm=self.sm, visible=True)
        return replace(facts, gpus=(gpu,) * len(self.devices), driver=Driver())

    def as_there(self, found: BuildEnvironment) -> BuildEnvironment:
        """A build environment of this machine, without what is true only of this machine.

        Raises `TargetError` if nothing that this torch compiles would be found there.
        """
        why = self._disagreement(found)
        if why:
            raise TargetError(why)
        return replace(found, driver=None, cc=None, cxx=None, environment=dict(self.environment))

    def keeping(
        self, found: BuildEnvironment, was: BuildEnvironment | None, entries: Sequence[Entry]
    ) -> BuildEnvironment:
        """The environment with what the GPU's machine recorded, if kernels were built there."""
        if was is None or not any(entry.state == "built" for entry in entries):
            return found
        return replace(
            found, driver=was.driver, cc=was.cc, cxx=was.cxx, environment=was.environment
        )

    def remark(self, found: BuildEnvironment) -> str:
        """What will not be reused there; empty if all will, as far as is known."""
        there, here = self.descriptor.settings, found.settings
        for name, title in (("inductor", "Inductor's"), ("functorch", "AOTAutograd's")):
            if there.get(name) and here.get(name) and there[name] != here[name]:
                return (
                    f"{title} settings on the {self.name}'s machine are not those here, and enter"
                    " the keys: graphs will be lowered again there, and only compiled kernels serve"
                )
        return ""

    def _disagreement(self, found: BuildEnvironment) -> str:
        """Why nothing that this torch compiles would be reused there; empty if it would."""
        software = self.descriptor.software
        if found.device is not None and found.device != self.name:
            return (
                f"torch sees {found.device} instead of the stub GPU for the {self.name}: the"
                " stub GPU was not loaded first"
            )
        for name, own in (("torch_key", found.torch_key), ("triton_key", found.triton_key)):
            there = software.get(name)
            if there and own and there != own:
                package = name.partition("_")[0]
                return (
                    f"{package} has the same version here as on the {self.name}'s machine, and"
                    " other files, so nothing would be reused there: build with the same wheel,"
                    " best in the same image (--docker)"
                )
        return ""


def environment_for(
    facts: Facts,
    device: str,
    environ: Mapping[str, str],
    target: Target | None,
    recorded: BuildEnvironment | None = None,
) -> BuildEnvironment:
    """Today's build environment as far as the facts know, that of the target if there is one.

    `recorded`: what it is compared with. Raises `TargetError` if the target would reuse nothing.
    """
    if target is None:
        return environment_from_facts(facts, device, environ, recorded)
    return target.as_there(environment_from_facts(facts, device, target.environment, recorded))


def targets_of(words: Sequence[str], devices: int, environ: Mapping[str, str]) -> list[Target]:
    """The targets of `--target` (each may be a list with commas), each once.

    Raises `AttnDoctorError` for an unknown name, or if too little is known of the GPU.
    """
    named = [word.strip() for text in words for word in text.split(",") if word.strip()]
    found: dict[str, Target] = {}
    for word in named:
        one = target_of(word, devices, environ)
        found.setdefault(one.name, one)
    return list(found.values())


def target_of(word: str, devices: int, environ: Mapping[str, str]) -> Target:
    """One target with `devices` GPUs. A descriptor without a machine gets this one's variables."""
    from attn_doctor.kernels.gpus.known import buildable, find

    descriptor = buildable(find(word))
    own = {name: environ[name] for name in kept(environ, ()) if name != _SMALLER}
    return Target(
        descriptor=descriptor,
        word=word,
        environment=dict(descriptor.environment) if descriptor.own else own,
        devices=tuple(f"cuda:{number}" for number in range(min(devices, _MOST))),
    )


def stub_gpu_environ(target: Target, facts: Facts, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of processes that see `target` in place of a GPU, compiling the stub GPU.

    `environ` names the cache folder. All that is compiled goes there, also what Triton would keep
    in the home directory, so that the other machine needs no compiler. Raises `AttnDoctorError`
    that names what is missing, such as a compiler here.
    """
    from attn_doctor.kernels.gpus import stub

    library = stub.make(facts)
    descriptor = replace(target.descriptor, environment=target.environment)
    found = stub.environment(library, descriptor, len(target.devices), environ)
    if _SMALLER not in target.environment:
        found[_SMALLER] = environ.get(_SMALLER, "1")
    # Triton compiles its link to the driver before torch gives it a folder of its own.
    found["TRITON_HOME"] = environ["TORCHINDUCTOR_CACHE_DIR"]
    return found


def target_remarks(
    targets: Sequence[Target], folder: Path, cache_dir: str, environ: Mapping[str, str]
) -> list[str]:
    """What a user should know before kernels are built for other machines.

    `cache_dir`: the folder as it was given; empty if it was not.
    """
    from attn_doctor.kernels.gpus.known import name_remark

    if not targets:
        return []
    remarks = [name_remark(target.word, target.descriptor) for target in targets]
    remarks.append(folder_remark(folder, cache_dir))
    remarks += [variables_remark(target, environ) for target in targets]
    return [remark for remark in remarks if remark]


def variables_remark(target: Target, environ: Mapping[str, str]) -> str:
    """Which variables that enter keys are not used as they are set here; empty if there is none."""
    names = [name for name in kept(environ, ()) if name not in ("CC", _SMALLER)]
    if not target.descriptor.own:
        if not names:
            return ""
        shown = ", ".join(f"{name}={environ[name]}" for name in names)
        return (
            f"it is unknown which variables are set on the {target.name}'s machine: these kernels"
            f" are for {shown}, as set here, which enters the keys (describe-gpu records them)"
        )
    other = [name for name in names if target.environment.get(name) != environ[name]]
    if not other:
        return ""
    set_there = ", ".join(
        f"{name}={target.environment[name]}" if name in target.environment else f"no {name}"
        for name in other
    )
    return f"built with {set_there}, as on the {target.name}'s machine, and not as set here"


def folder_remark(folder: Path, asked: str) -> str:
    """Why the folder's path matters more than usual; empty if it was named and is not a link."""
    if not asked:
        return (
            f"kernels contain the path of their folder: {folder} must be the cache folder on the"
            " target too; --cache-dir names another"
        )
    plain = os.path.abspath(os.path.expanduser(asked))
    if plain != os.fspath(folder):
        return f"{plain} is a link here: the kernels contain the path {folder}, and are for it"
    return ""


# What a build for a target leaves


def cross_build_residue(folder: Path, kept: Container[str] = ()) -> Iterator[ClearedFile]:
    """What compiling without a GPU leaves in a cache folder and a machine with one must not find.

    These are choices among tiles that were timed on no hardware, and locks of ended processes.
    """
    for path in sorted((*folder.glob(f"*/*{CHOICES}"), *folder.glob("locks/*"))):
        name = path.relative_to(folder).as_posix()
        if name in kept or path.is_symlink() or not path.is_file():
            continue
        lock = name.startswith("locks/")
        why = "an unused lock file" if lock else "a choice of tiles that was timed without a GPU"
        yield ClearedFile(path=str(path), bytes=path.stat().st_size, why=why)


def relative_names(files: Iterable[ClearedFile], folder: Path) -> set[str]:
    """Their paths below `folder`, as in the manifest."""
    return {Path(file.path).relative_to(folder).as_posix() for file in files}


def without_choices(entry: Entry) -> Entry:
    """The entry without choices among tiles, which are removed at the end of a cross build."""
    build = entry.build
    if build is None:
        return entry
    files = {name: size for name, size in build.files.items() if not name.endswith(CHOICES)}
    return replace(entry, build=replace(build, files=files))
