"""Taking an artifact in without running anything: what is moved, under which state."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.bundle.artifact import Artifact, ArtifactError, head
from attn_doctor.kernels.bundle.compatibility import compatibility
from attn_doctor.kernels.bundle.import_entries import Imported
from attn_doctor.kernels.bundle.pack import choose, pack
from attn_doctor.kernels.bundle.unpack import private, unpack
from attn_doctor.record import store
from attn_doctor.record.manifest import Manifest
from attn_doctor.render.caches.bundle import imported_text
from attn_doctor.render.terminal import Terminal
from tests.kernels.bundle.test_artifact import GROUP, SPEC, with_more
from tests.kernels.bundle.test_compatibility import H100, H200, facts

KEY = f"{SPEC.id}@cuda:0 NVIDIA H200"
A100 = f"{SPEC.id}@cuda:0 NVIDIA A100"


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, Artifact]:
    folder = with_more(tmp_path / "built here")
    file = tmp_path / "k.attn"
    made, _ = pack(folder, choose(folder), file)
    return file, made


def taken(
    file: Path, folder: Path, here: Facts, environ: dict[str, str] | None = None
) -> tuple[Imported, Manifest | None, str]:
    """The outcome of an import that runs nothing, the record, and what is said of it."""
    environ = environ or {}
    request = BuildRequest(specs=(), devices=(), facts=here, folder=folder, environ=environ)
    with private(file, folder) as copy:
        artifact = head(copy)
        found = compatibility(artifact, here, environ)
        done = unpack(copy, artifact, request, Watcher(), found, run=False)
    return done, store.load(folder), imported_text(done, found, str(folder), Terminal())


@pytest.mark.posix
def test_an_image_takes_everything_in_unverified(
    packed: tuple[Path, Artifact], tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    done, manifest, said = taken(packed[0], folder, facts(()))
    assert set(done.unverified) == {KEY, A100}
    assert (done.verified, done.refused, done.kernels) == ({}, {}, {})
    assert manifest is not None
    assert {one.state for one in manifest.entries.values()} == {"unverified"}
    assert manifest.warmups["w1"].unverified
    build = manifest.entries[KEY].build
    assert build is not None
    assert build.root == str(tmp_path / "built here")
    group = msgspec.json.decode((folder / GROUP).read_bytes())
    assert group["child_paths"]["k.cubin"] == f"{folder}/triton/0/AB/k.cubin"
    assert "imported, unverified" in said
    assert f"attn-doctor cache verify --cache-dir {folder}" in said
    assert not list((folder / "attn-doctor" / "incoming").iterdir())
    again, _, said = taken(packed[0], folder, facts(()))
    assert set(again.present) == {KEY, A100}
    assert "2 kernels were already here" in said


def test_verified_elsewhere_is_not_verified_here(tmp_path: Path) -> None:
    from tests.kernels.bundle.test_artifact import folder_with

    folder = folder_with(tmp_path / "c")
    pack(folder, choose(folder), tmp_path / "k.attn")
    done, manifest, _ = taken(tmp_path / "k.attn", tmp_path / "n", facts(()))
    assert [one.state for one in done.unverified.values()] == ["unverified"]
    assert manifest is not None
    assert [one.state for one in manifest.entries.values()] == ["unverified"]


def test_back_in_its_own_folder_graphs_hold_no_foreign_path(
    packed: tuple[Path, Artifact], tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "built here"
    shutil.rmtree(folder)
    _, manifest, _ = taken(packed[0], folder, facts(()))
    assert manifest is not None
    assert [one.build.root for one in manifest.entries.values() if one.build] == ["", ""]
    assert manifest.warmups["w1"].root == ""


def test_kernels_alone_for_another_gpu_of_the_same_capability(
    packed: tuple[Path, Artifact], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    file, made = packed
    for_h200 = {place: one for place, one in made.environments.items() if H200 in place}
    assert len(for_h200) == 1
    done, manifest, said = taken(file, folder, facts((H100,)))
    here = f"{SPEC.id}@cuda:0 {H100}"
    assert here in done.kernels
    assert manifest is not None
    entry = manifest.entries[here]
    assert (entry.state, entry.build) == ("cubins", None)
    assert entry.message.startswith(
        "only its Triton kernels were imported: GPU: NVIDIA H200 there, NVIDIA H100"
    )
    assert (folder / "triton/0/AB/k.cubin").is_file()
    assert not (folder / "fxgraph").exists()
    assert "attn-doctor build-kernels --cache-dir" in said


def test_tritons_own_helpers_come_along(tmp_path: Path) -> None:
    from attn_doctor.kernels.caches.contents import contents

    folder = with_more(tmp_path / "c")
    name = f".triton/cache/{'A' * 52}/cuda_utils.cpython-312-x86_64-linux-gnu.so"
    for each in (name, f".triton/cache/{'A' * 52}/secret.txt", ".triton/cache/notes/k.so"):
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(b"\x7fELF")
    made, _ = pack(folder, choose(folder), tmp_path / "k.attn")
    assert [one for one in made.files if one.startswith(".triton")] == [name]
    new = tmp_path / "n"
    done, _, said = taken(tmp_path / "k.attn", new, facts(()))
    assert (new / name).read_bytes() == b"\x7fELF"
    assert done.helpers == 1
    assert f"TORCHINDUCTOR_CACHE_DIR={new} TRITON_HOME={new}" in said
    assert name in {
        path for entry in contents("inductor", str(new)).entries for path in entry.files
    }


def test_a_mask_of_the_users_own_has_to_be_here(tmp_path: Path) -> None:
    import hashlib

    folder = with_more(tmp_path / "c")
    manifest = store.load(folder)
    assert manifest is not None
    source = b"def mask(b, h, q, k):\n    return q >= k\n"
    spec = replace(SPEC, mask="mymask:mask")
    entry = replace(
        manifest.entries[KEY], spec=spec, mask_source=hashlib.sha256(source).hexdigest()
    )
    key = f"{spec.id}@{entry.device_slot}"
    store.save(folder, replace(manifest, entries={key: entry}, warmups={}))
    pack(folder, choose(folder), tmp_path / "k.attn")
    # Nothing can be run: the file is missing, or another one. So no process is started either.
    for number, text in enumerate((None, b"def mask(b, h, q, k):\n    return q > k\n")):
        here = tmp_path / f"here{number}"
        here.mkdir()
        if text is not None:
            (here / "mymask.py").write_bytes(text)
        new = tmp_path / f"n{number}"
        request = BuildRequest(
            specs=(), devices=(), facts=facts(), folder=new, environ={}, sys_path=(str(here),)
        )
        with private(tmp_path / "k.attn", new) as copy:
            artifact = head(copy)
            found = compatibility(artifact, facts(), {})
            done = unpack(copy, artifact, request, Watcher(), found)
        (alone,) = done.kernels.values()
        why = "has other content here" if text else "is not here"
        assert alone.message.endswith(f"the file of its mask mymask:mask {why}")
        assert (done.verified, done.unverified, done.refused) == ({}, {}, {})
        assert (new / "triton/0/AB/k.cubin").is_file()
        assert not (new / "fxgraph").exists()


def test_what_stands_in_the_folder_stays(packed: tuple[Path, Artifact], tmp_path: Path) -> None:
    folder = tmp_path / "n"
    taken(packed[0], folder, facts(()))
    manifest = store.load(folder)
    assert manifest is not None
    own = replace(manifest.entries[KEY], state="built")
    store.save(folder, replace(manifest, entries={**manifest.entries, KEY: own}))
    done, after, _ = taken(packed[0], folder, facts(()))
    assert KEY in done.present
    assert after is not None
    assert after.entries[KEY] == own


def test_stale_entries_do_not_pass_for_fresh_ones(
    packed: tuple[Path, Artifact], tmp_path: Path
) -> None:
    folder = tmp_path / "n"
    taken(packed[0], folder, facts(()))
    manifest = store.load(folder)
    assert manifest is not None
    place = "cuda:0 NVIDIA H200"
    old = replace(manifest.environments[place], torch="2.10.0+cu130")
    stale = replace(manifest.entries[KEY], spec=replace(SPEC, lengths=(512,)))
    store.save(
        folder,
        replace(
            manifest,
            environments={**manifest.environments, place: old},
            entries={"old@" + place: stale},
        ),
    )
    _, after, _ = taken(packed[0], folder, facts(()))
    assert after is not None
    assert "old@" + place not in after.entries
    assert after.environments[place].torch == "2.11.0+cu130"


def test_a_changed_artifact_leaves_nothing(packed: tuple[Path, Artifact], tmp_path: Path) -> None:
    import gzip

    file, _ = packed
    data = bytearray(gzip.decompress(file.read_bytes()))
    at = data.index(b"\x80\x04graph") + 4
    data[at] ^= 1
    file.write_bytes(gzip.compress(bytes(data)))
    with pytest.raises(ArtifactError, match=r"fxgraph/ab/fab/entry was changed: its SHA-256"):
        taken(file, tmp_path / "n", facts(()))
    assert store.load(tmp_path / "n") is None
    assert not (tmp_path / "n" / "fxgraph").exists()
    file.write_bytes(gzip.compress(bytes(data[: len(data) // 2])))
    with pytest.raises(ArtifactError):
        taken(file, tmp_path / "n", facts(()))


def test_a_damaged_artifact_is_named_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "given.tgz"
    file.write_bytes(b"\x1f\x8b cut off")
    cache = tmp_path / "cache"
    with pytest.raises(ArtifactError, match=rf"^{re.escape(str(file))} is"):
        read_privately(file, cache)
    assert not list((cache / "attn-doctor/incoming").iterdir())


def read_privately(file: Path, folder: Path) -> Artifact:
    with private(file, folder) as copy:
        assert copy != file
        return head(copy)
