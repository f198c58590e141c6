"""Small files that would take gigabytes or minutes: from a pull request, or an artifact."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from attn_doctor.configs.readers import kinds, shell_words
from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.explain.keywords import Keywords
from attn_doctor.explain.log_files import CHUNK, LogChunk
from attn_doctor.explain.prefilter import Prefilter
from attn_doctor.facts import Dispatcher
from attn_doctor.kernels.bundle.artifact import HEAD, ArtifactError, head
from attn_doctor.probes.installed import dispatcher_source
from attn_doctor.wheels import reading
from attn_doctor.wheels.ranges import WheelError
from tests.effort import at_most


def doubling(letters: str = "ABCDEFGHIJ") -> str:
    """A script in which each variable holds the one before it ten times."""
    pairs = itertools.pairwise(letters)
    return "A=xxxxxxxxxx\n" + "".join(f"{new}={f'${old}' * 10}\n" for old, new in pairs)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", doubling() + "train.py --model_family flux --prompt $J\n"),
        ("long.sh", f"A={'x' * 60_000}\n" + "train --model_family flux $A\n" * 2_300),
        ("append.sh", "A+=x\n" * 20_000 + "train --model_family flux\n"),
        ("config.env", "MODEL_FAMILY=flux\n" + "A+=x\n" * 300_000),
        ("open.sh", "train --model_family flux\n" + "train ${" * 8000 + "A=${B:-" * 8000),
    ],
)
def test_variables_do_not_multiply(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with at_most(10):
        found = kinds.read(path)
    assert found.settings["model_family"].text.startswith("flux")
    assert sum(len(one.text) for one in found.variables.values()) < 1 << 20


@pytest.mark.parametrize("name", ["a.sh", "a.bat", "a.ps1", "Makefile", "Dockerfile", "a.txt"])
def test_a_script_has_the_size_of_a_script(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("python main.py --use-sage-attention\n" * 4_000)
    with pytest.raises(ConfigError, match="is longer than scripts that start a program, 128 KiB"):
        kinds.read(path)


def test_branches_may_be_nested(tmp_path: Path) -> None:
    path = tmp_path / "run.bat"
    path.write_bytes(b"python main.py --use-sage-attention\n" + b"if x (\n" * 18_000)
    with at_most(10):
        assert kinds.read(path).format == "comfyui"


def test_source_may_be_nested_deeper_than_it_can_be_walked() -> None:
    """It is parsed: attributes of attributes have no limit there."""
    deep = "a." * 600 + "a"
    assert dispatcher_source.features(f"x = {deep}\n") is None
    members = "class AttentionBackendName(str, Enum):\n    FLASH = 'flash'\n"
    found = dispatcher_source.describe(f"{members}x = {deep}\n", "digest")
    assert found == Dispatcher(checksum="digest")


def test_a_command_of_an_image_may_be_nested(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        f'FROM x\nENTRYPOINT {"[" * 5000}\nCMD ["python", "main.py", "--use-sage-attention"]\n'
    )
    assert kinds.read(path).form == "docker"


def test_short_values_are_filled_in_as_ever() -> None:
    script = shell_words.read("A=flux\nB=$A-$A\nC+=x\nC+=y\ntrain --model_family ${B} $C $NONE\n")
    words = ["train", "--model_family", "flux-flux", "x y", "$NONE"]
    assert [word for word, _ in script.words if word != ";"] == words


class Repeated(io.BytesIO):
    """`size` bytes that are a pattern again and again, without the memory for them."""

    def __init__(self, pattern: bytes, size: int) -> None:
        super().__init__()
        self._pattern, self._left = pattern * (1 << 14), size

    def read(self, size: int | None = -1) -> bytes:
        piece = self._pattern[: min(size or 0, self._left)]
        self._left -= len(piece)
        return piece


def tar_with(path: Path, name: str, content: Repeated, size: int, kind: bytes) -> Path:
    """A compressed tar with one member."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    with (
        gzip.open(path, "wb", compresslevel=1) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        tar.addfile(member, content)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "pattern", "words"),
    [
        (HEAD, tarfile.REGTYPE, b" ", "its description is too long"),
        (HEAD, tarfile.REGTYPE, b'{"a":', "its description is too long"),
        ("x", tarfile.XHDTYPE, b"9 a=b\n" * 2, "more than it describes|not an artifact"),
        ("x", tarfile.GNUTYPE_LONGNAME, b"a", "more than it describes|not an artifact"),
    ],
    ids=["blanks", "nesting", "attributes", "a long name"],
)
def test_an_artifact_does_not_unpack_to_gigabytes(
    tmp_path: Path, name: str, kind: bytes, pattern: bytes, words: str
) -> None:
    size = 100 << 20
    path = tar_with(tmp_path / "x.tgz", name, Repeated(pattern, size), size, kind)
    resource = pytest.importorskip("resource", reason="Windows does not tell the memory used")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with at_most(10), pytest.raises(ArtifactError, match=words):
        head(path)
    # KiB on Linux; the description may have 16 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10


def test_a_description_of_the_largest_size_stays_small(tmp_path: Path) -> None:
    size = 15 << 20
    path = tar_with(tmp_path / "x.tgz", HEAD, Repeated(b"[[]," * 3, size), size, tarfile.REGTYPE)
    with at_most(10), pytest.raises(ArtifactError, match="cannot be understood"):
        head(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_is_not_unpacked_without_a_limit(tmp_path: Path, method: int) -> None:
    path = tmp_path / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("x.so", "w") as member:
        member.write(bytes(1 << 20))
    with at_most(10), pytest.raises(WheelError, match=f"by method {method}"):
        reading.read(str(path))


def test_a_wheel_does_not_list_millions_of_files(tmp_path: Path) -> None:
    path = tmp_path / "x-1.0-py3-none-any.whl"
    listed = bytes(17 << 20)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(listed), 0, 0)
    path.write_bytes(listed + end)
    with at_most(5), pytest.raises(WheelError, match="its list of files has 17 MiB"):
        reading.read(str(path))


def test_noise_is_searched_up_to_a_limit() -> None:
    letters = bytes(32 if byte < 28 else 97 + byte % 26 for byte in range(256))
    noise = random.Random(1).randbytes(12 << 20).translate(letters)
    pieces = [LogChunk(1, noise[at : at + CHUNK]) for at in range(0, len(noise), CHUNK)]
    prefilter = Prefilter(Keywords(["attention", "sageattention", "flash"]))
    with at_most(5):
        assert sum(1 for _ in prefilter.passages(pieces)) < 100
    assert 0 < prefilter.skipped < len(noise)


def test_text_of_any_length_is_searched_to_its_end() -> None:
    line = b"step 12 loss 0.25 lr 1e-4 and other words of a training run\n" * 1000
    prefilter = Prefilter(Keywords(["attention", "sageattention", "flash"]))
    chunks = [LogChunk(1 + 1000 * n, line) for n in range(500)]
    chunks.append(LogChunk(500_001, b"RuntimeError: no module named SageAttention\n"))
    (found,) = prefilter.passages(chunks)
    assert found.keywords == {"attention", "sageattention"}
    assert b"SageAttention" in found.data
    assert not prefilter.skipped
