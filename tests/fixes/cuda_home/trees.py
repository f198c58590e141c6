"""Small toolkits as real folders: an nvcc that is a script and compiles, if only with gcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Answers as NVIDIA's does, and hands a CUDA file to gcc as if it were empty.
NVCC = """#!/bin/sh
case "$1" in
--version) echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Cuda compilation tools, release {release}, V{release}.99"; exit 0;;
--list-gpu-code) for sm in {archs}; do echo sm_$sm; done; exit 0;;
esac
cc=gcc out=
while [ $# -gt 0 ]; do
    case "$1" in -o) out=$2; shift;; -ccbin) cc=$2; shift;; esac
    shift
done
major=$("$cc" -dumpversion | cut -d. -f1)
if [ "$major" -gt {newest_gcc} ]; then
    echo "host_config.h:143:2: error: #error -- unsupported GNU version!" \
        "gcc versions later than {newest_gcc} are not supported!" >&2
    exit 1
fi
{trouble}
exec "$cc" -x c -c /dev/null -o "$out"
"""
HEADERS = (
    "cuda_runtime.h", "crt/host_config.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h",
    "thrust/version.h",
)  # fmt: skip


def make(
    root: Path,
    release: str,
    *,
    archs: str = "75 80 86 89 90",
    newest_gcc: int = 99,
    trouble: str = "",
    without: tuple[str, ...] = (),
) -> Path:
    """A toolkit of that release in `root`; `trouble` is what its nvcc does before compiling."""
    for name in HEADERS:
        path = root / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    major, minor = release.split(".")
    version = f"#define CUDART_VERSION {int(major) * 1000 + int(minor) * 10}\n"
    (root / "include" / "cuda_runtime_api.h").write_text(version)
    (root / "lib64").mkdir()
    subprocess.run(
        ["gcc", "-shared", "-o", root / "lib64" / "libcudart.so", "-x", "c", "/dev/null"],
        check=True,
    )
    for name in ("bin/ptxas", "nvvm/bin/cicc"):
        program(root / name, "#!/bin/sh\n")
    text = NVCC.format(release=release, archs=archs, newest_gcc=newest_gcc, trouble=trouble)
    program(root / "bin" / "nvcc", text)
    for name in without:
        (root / name).unlink()
    return root


def program(path: Path, text: str) -> Path:
    """An executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
