"""How the caches name their files, as the sources of torch 2.5 to 2.15 and Triton 3.0 to 3.9 say.

Whatever does not match is a stranger and left alone, so a pattern too narrow costs disk space and
one too wide could cost a user's file.
"""

from __future__ import annotations

import re

_HASH = r"[a-z2-7]{50,52}"
FX_KEY = re.compile(rf"f{_HASH}")
AOT_KEY = re.compile(rf"a{_HASH}")
#: Keys of generated code, as other entries mention them.
CODE_KEY = re.compile(rb"\bc[a-z2-7]{51}\b")
#: `3f/c3fakd….main.cpp`: the folder is the second and third letter of the name.
CODE = re.compile(
    r"(?P<two>[a-z0-9]{2})/(?:__pycache__/)?(?P<key>[a-z](?P=two)[a-z2-7]{48,50})(?:\.[\w.-]+)?"
)
#: A kernel's folder: base32 (Triton 3.1 and later), hexadecimal, or base64 for URLs.
TRITON_KEY = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}|[A-Za-z0-9_-]{43}")
TRITON_FILE = re.compile(
    r"(?:__grp__)?[\w.+-]+\.(?:ttir|ttgir|llir|llvm|ptx|cubin|sass|hsaco|amdgcn|spv|zebin|json|source"
    r"|gluon|so|pyd|dll|exp|lib|o|obj|c|cpp)"
)
#: `add_kernel_arch9.0_nvrtc13.0_sass_7012_<sha1>`; on ROCm `_archgfx942:sramecc+…`.
JITERATOR = re.compile(
    r"(?P<kernel>\w+)_arch(?P<arch>[\w.:+-]+?)_nvrtc(?P<nvrtc>\d+\.\d+)_(?P<form>sass|ptx)_\d+_[0-9a-f]{40}"
)
DRIVER = re.compile(r"index|[0-9a-f]/[0-9a-f]/[0-9a-f]{10,32}")
CUTE = re.compile(r"[0-9a-f]{64}/(?:\w+/)?[0-9a-f]{64}\.o")
EXTENSION_FOLDER = re.compile(
    r"py(?P<python>\d{2,3})t?_(?P<build>cu\d{2,4}|cpu|rocm[\w.]*|xpu[\w.]*)"
)
#: What torch and ninja write into the folder of an extension; a user's own sources lie elsewhere.
EXTENSION_FILE = re.compile(
    r"build\.ninja|\.ninja_log|\.ninja_deps|(?:main|cuda|sycl)\.(?:cpp|cu|sycl|hip)"
    r"|[\w.+-]+\.(?:o|obj|d|so|pyd|dll|lib|exp)"
)
HUB_REPO = re.compile(r"(?:models|kernels)--[\w.-]+--[\w.-]+")
HUB_VARIANT = re.compile(
    r"torch(?P<torch>\d{2,3})-(?:cxx11-)?(?P<build>cu\d{2,3}|rocm\d+|xpu\w*|cpu)-[\w-]+"
)

#: Temporary names under which entries are written before they are renamed, with the writer's
#: process where the name tells it: torch, Triton, jiterator, FlashAttention 4.
LEFTOVER = re.compile(
    r"(?:^|/)(?:\.(?P<torch>\d+)\.\d+\.tmp|tmp\.pid_(?P<triton>\d+)_[\w-]+(?:/[^/]+)?"
    r"|tmp\.[0-9a-f-]{36}(?:/[^/]+)*|\w+_nvrtc[\w.]+_tmp_(?P<jiterator>\d+)"
    r"|\.[0-9a-f]{64}\.[0-9a-f]{16}\.tmp\.o)$"
)


def writer(path: str) -> int | None:
    """The process that was writing a leftover; None if its name does not tell."""
    found = LEFTOVER.search(path)
    number = next(filter(None, found.groups()), None) if found else None
    return int(number) if number else None
