"""The artifact: the same bytes each time, whole or refused, and nothing outside its folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from attn_doctor.kernels.bundle import artifact as artifacts
from attn_doctor.kernels.bundle.artifact import (
    Artifact,
    ArtifactError,
    Packed,
    extract,
    head,
)
from attn_doctor.kernels.bundle.pack import choose, pack
from attn_doctor.record import store
from attn_doctor.record.manifest import (
    Build,
    BuildEnvironment,
    Entry,
    EntryState,
    Manifest,
    Warmup,
)
from attn_doctor.record.spec import KernelSpec

SPEC = KernelSpec(heads=2, head_dim=64, lengths=(256,), phase="inference")
GROUP = "triton/0/AB/__grp__k.json"


def folder_with(root: Path, *, state: EntryState = "built", verified: bool = True) -> Path:
    """A cache folder with one entry, as the builder leaves it."""
    files = {
        "fxgraph/ab/fab/entry": b"\x80\x04graph",
        "triton/0/AB/k.cubin": os.urandom(5000),
        GROUP: b'{"child_paths": {"k.cubin": "%s/triton/0/AB/k.cubin"}}' % str(root).encode(),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    sizes = {name: len(data) for name, data in files.items()}
    build = Build(at="2026-11-21T10:00:00+00:00", seconds=3.0, files=sizes, verified=verified)
    entry = Entry(spec=SPEC, device_slot="cuda:0 NVIDIA H200", state=state, build=build)
    environments = {entry.device_slot: BuildEnvironment(torch="2.11.0+cu130", device="NVIDIA H200")}
    manifest = Manifest(
        schema=1,
        attn_doctor="0.1.0",
        environments=environments,
        entries={f"{SPEC.id}@{entry.device_slot}": entry},
    )
    store.save(root, manifest)
    return root


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, Artifact]:
    folder = folder_with(tmp_path / "cache é")
    target = tmp_path / "kernels.attn"
    made, digest = pack(folder, choose(folder), target)
    assert digest == hashlib.sha256(target.read_bytes()).hexdigest()
    return target, made


@pytest.mark.posix
def test_there_and_back_with_the_paths_of_the_new_place(
    packed: tuple[Path, Artifact], tmp_path: Path
) -> None:
    path, made = packed
    found = head(path)
    assert found == made
    new = tmp_path / 'a "new" place'
    new.mkdir()
    extract(path, found, new)
    group = msgspec.json.decode((new / GROUP).read_bytes())
    assert group == {"child_paths": {"k.cubin": f"{new}/triton/0/AB/k.cubin"}}
    old = tmp_path / "cache é"
    assert (new / "triton/0/AB/k.cubin").read_bytes() == (old / "triton/0/AB/k.cubin").read_bytes()
    # Graphs hold the folder they were built in, so the description names it; files need it nowhere.
    (entry,) = found.entries.values()
    assert entry.build is not None
    assert entry.build.root == str(old)
    assert gzip.decompress(path.read_bytes()).count(str(old).encode()) == 1


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "cache")
    made, first = pack(folder, choose(folder), tmp_path / "a")
    for file in folder.rglob("*"):
        os.utime(file, (1, 1))
    files = [(name, _packed_bytes(folder, name)) for name in made.files]
    contents = ((name, len(data), io.BytesIO(data)) for name, data in files)
    assert artifacts.write(tmp_path / "b", made, contents) == first


def _packed_bytes(folder: Path, name: str) -> bytes:
    return artifacts.without_folder((folder / name).read_bytes(), folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": "failed"}, "it failed"),
        ({"state": "not-reused"}, "it is not reused"),
        ({"verified": False}, "no second process has shown that it is reused"),
        ({"state": "cleared"}, "its files were cleared"),
    ],
)
def test_only_what_is_reused_is_packed(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    folder = folder_with(tmp_path, **change)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=rf"can be exported\n  2×64 bf16 .*: {sentence}"):
        choose(folder)


def test_a_damaged_or_empty_folder_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="has no kernels that attn-doctor built"):
        choose(tmp_path)
    folder = folder_with(tmp_path)
    (folder / GROUP).write_bytes(b"{}")
    with pytest.raises(ArtifactError, match=r"__grp__k\.json is missing or has another size"):
        choose(folder)


def rewritten(
    path: Path, made: Artifact, change: dict[str, bytes | None], *, link: str = ""
) -> Path:
    """The artifact with members replaced, left out (None) or added, and its description kept."""
    target = path.with_name("changed")
    with tarfile.open(path) as old, tarfile.open(target, "w:gz") as new:
        names = {member.name: old.extractfile(member).read() for member in old}  # type: ignore[union-attr]
        for name, data in {**names, **change}.items():
            if data is not None:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            new.addfile(member)
    assert made.files
    return target


def refusal(path: Path, tmp_path: Path) -> str:
    room = tmp_path / "room"
    room.mkdir()
    with pytest.raises(ArtifactError) as caught:
        extract(path, head(path), room)
    return str(caught.value)


def test_a_changed_file_is_refused(packed: tuple[Path, Artifact], tmp_path: Path) -> None:
    path, made = packed
    same_size = b"x" * made.files["triton/0/AB/k.cubin"].bytes
    message = refusal(rewritten(path, made, {"triton/0/AB/k.cubin": same_size}), tmp_path)
    assert "k.cubin was changed: its SHA-256 differs" in message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"triton/0/AB/k.cubin": None}, "is not complete: 1 files are missing"),
        ({"triton/0/AB/k.cubin": b"short"}, "has 5 bytes, not 5000"),
        ({"extra": b"x"}, "holds 'extra', which it does not describe"),
        ({"../evil": b"x"}, "which it does not describe"),
    ],
)
def test_missing_and_added_files_are_refused(
    packed: tuple[Path, Artifact], tmp_path: Path, change: dict[str, bytes | None], sentence: str
) -> None:
    path, made = packed
    assert sentence in refusal(rewritten(path, made, change), tmp_path)
    assert not (tmp_path / "evil").exists()


def test_links_are_refused(packed: tuple[Path, Artifact], tmp_path: Path) -> None:
    path, made = packed
    change: dict[str, bytes | None] = {"triton/0/AB/k.cubin": None}
    linked = rewritten(path, made, change, link="triton/0/AB/k.cubin")
    assert "which it does not describe" in refusal(linked, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["/abs", "../up", "a/../../b", "a\\b", "C:x", "", ".", "attn-doctor/manifest.json", "a//b"],
)
def test_a_description_cannot_name_places_outside(packed: tuple[Path, Artifact], name: str) -> None:
    path, made = packed
    files = {name: Packed(bytes=1, sha256="0" * 64)}
    evil = msgspec.structs.replace(made, files=files)
    changed = rewritten(path, made, {artifacts.HEAD: msgspec.json.encode(evil)})
    with pytest.raises(ArtifactError, match="which is not a path in a cache"):
        head(changed)


def test_a_newer_schema_is_said(packed: tuple[Path, Artifact]) -> None:
    path, made = packed
    newer = msgspec.structs.replace(made, schema=99, attn_doctor="9.0")
    changed = rewritten(path, made, {artifacts.HEAD: msgspec.json.encode(newer)})
    with pytest.raises(ArtifactError, match=r"written by attn-doctor 9\.0, which is newer"):
        head(changed)


def test_other_files_are_no_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"text", gzip.compress(b"text"), gzip.compress(b"\0" * 2048)):
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=r"x (is not an artifact|is damaged)"):
            head(path)
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        head(tmp_path / "none")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_flipped_or_cut_artifact_is_refused_or_the_same(
    packed: tuple[Path, Artifact], tmp_path: Path, data: st.DataObject
) -> None:
    path, made = packed
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[at] ^= data.draw(st.integers(1, 255))
    else:
        del raw[at:]
    changed = tmp_path / "flipped"
    changed.write_bytes(raw)
    room = tmp_path / "out"
    room.mkdir(exist_ok=True)
    try:
        found = head(changed)
        extract(changed, found, room)
    except ArtifactError:
        return
    # A bit in the gzip header that no reader looks at.
    assert found == made


def with_more(root: Path) -> Path:
    """A folder with a kernel for each of two GPUs, unverified, and a warm-up."""
    folder = folder_with(root, state="unverified")
    manifest = store.load(folder)
    assert manifest is not None
    (entry,) = manifest.entries.values()
    other = "cuda:0 NVIDIA A100"
    (folder / "fxgraph" / "w").write_bytes(b"graph of a program")
    parts = folder / "attn-doctor" / "keys" / "w1.json"
    parts.parent.mkdir()
    parts.write_text("{}", encoding="utf-8")
    warmup = Warmup(
        argv=("python", "warm.py"), folder="/x", device_slot=entry.device_slot,
        at="2026-11-21T11:00:00Z", seconds=9.0, files={"fxgraph/w": 18},
        keys={"fxgraph": ["f1"]}, verified=True, unverified=True,
    )  # fmt: skip
    store.save(
        folder,
        replace(
            manifest,
            environments={
                **manifest.environments,
                other: BuildEnvironment(torch="2.11.0+cu130", device="NVIDIA A100"),
            },
            entries={**manifest.entries, f"{SPEC.id}@{other}": replace(entry, device_slot=other)},
            warmups={"w1": warmup, "w2": replace(warmup, verified=False, message="it missed")},
        ),
    )
    return folder


def test_what_is_unverified_stays_so_on_its_way(tmp_path: Path) -> None:
    folder = with_more(tmp_path / "c")
    choice = choose(folder)
    made, digest = pack(folder, choice, tmp_path / "one.attn")
    assert {one.state for one in made.entries.values()} == {"unverified"}
    assert made.places == ("cuda:0 NVIDIA A100", "cuda:0 NVIDIA H200")
    assert made.warmups["w1"].root == str(folder)
    assert choice.left_out == {"python warm.py": "it is not reused: it missed"}
    assert {"attn-doctor/keys/w1.json", "fxgraph/w"} <= made.files.keys()
    assert head(tmp_path / "one.attn") == made
    _, again = pack(folder, choose(folder), tmp_path / "two.attn")
    assert again == digest
    one, _ = pack(folder, choose(folder, {"cuda:0 NVIDIA A100"}), tmp_path / "three.attn")
    assert one.places == ("cuda:0 NVIDIA A100",)
    assert not one.warmups


def test_an_artifact_of_before_is_still_read(packed: tuple[Path, Artifact]) -> None:
    _, made = packed
    older = (
        msgspec.json.encode(made)
        .replace(b'"schema":2', b'"schema":1')
        .replace(b',"warmups":{}', b"")
    )
    assert msgspec.json.decode(older, type=Artifact).warmups == {}
