"""Reads the environment variables of `env_vars.VARIABLES`, and no others.

Other variables may contain passwords, host names and private settings. Parts of a value that look
like a secret are removed. Variables that a program sets for itself are not seen here.
"""

from __future__ import annotations

from typing import Any

from attn_doctor.env_vars import VARIABLES
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.redact import presentable

#: Characters of a value that are kept; no variable that is read needs more.
LENGTH = 1 << 15


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return those of `VARIABLES` that are set, with their values."""
    found = {name: host.environ[name] for name in VARIABLES if name in host.environ}
    return {"env": {name: presentable(value[:LENGTH]) for name, value in found.items()}}
