"""Environment variables that change what attention backends do. Only those named here are read.

Other variables hold passwords, host names and habits that are nobody's business; and values of
these are cut where they look like a secret. What a program sets for itself cannot be seen here.
"""

from __future__ import annotations

from typing import Any

from attn_doctor.env_vars import VARIABLES
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.redact import redact


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Those of `VARIABLES` that are set, with their values."""
    found = {name: redact(host.environ[name]) for name in VARIABLES if name in host.environ}
    return {"env": found}
