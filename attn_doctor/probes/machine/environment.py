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
from attn_doctor.redact import redact


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return those of `VARIABLES` that are set, with their values."""
    found = {name: redact(host.environ[name]) for name in VARIABLES if name in host.environ}
    return {"env": found}
