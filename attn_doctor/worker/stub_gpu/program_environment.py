"""The environment variables with which a user's program runs under the guard.

The guard is loaded by `sitecustomize`, which every Python that reads PYTHONPATH imports at its
start. What starts without it (`python -S`, `-I`, `-E`) is seen by `report.read`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from attn_doctor.worker.stub_gpu import report

_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """`environ` with the guard in it, and its reports going to `folder`, which must be empty."""
    found = dict(environ)
    paths = [one for one in found.get("PYTHONPATH", "").split(os.pathsep) if one]
    found["PYTHONPATH"] = os.pathsep.join([_SITE, *(one for one in paths if one != _SITE)])
    found[report.FOLDER] = folder
    return found
