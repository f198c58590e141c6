"""`attn-doctor cache status`: every cache with its size, its age, and the state of its entries."""

from __future__ import annotations

import sys

from attn_doctor.cli.cache.options import Kinds, OneCache, examined, selected
from attn_doctor.cli.common_options import Python, Verbose
from attn_doctor.cli.result_options import TableFormat, TableOptions
from attn_doctor.cli.screen import terminal

#: Seconds for opening the entries of one cache.
SECONDS = 10.0


def status(
    *,
    cache_dir: OneCache = "",
    kind: Kinds = None,
    python: Python = "",
    result: TableOptions,
    verbose: Verbose = 0,
) -> None:
    """Show every cache: location, owner, size, age, and the state of its entries.

    An entry is live, stale (it cannot serve this environment on this machine) or unknown. With -v
    the reasons for unknown entries and the record of built kernels are shown too. This command only
    reads; nothing from a cache is loaded or run.

    Exit codes: 0 shown, 2 --cache-dir is not a cache.
    """
    from attn_doctor.kernels.caches.survey import survey

    locations = selected(kind, cache_dir)
    facts = examined(python)
    surveys = [survey(location, facts, SECONDS) for location in locations]
    if result.chosen is TableFormat.json:
        from attn_doctor.render.caches.json import status_json

        sys.stdout.write(status_json(surveys))
        return
    if result.chosen is TableFormat.html:
        from attn_doctor.anonymize import disclosed
        from attn_doctor.cli.this_machine import anonymous_here
        from attn_doctor.render.caches.html import status_html

        anonymous = anonymous_here()
        sys.stdout.write(status_html(disclosed(surveys, anonymous), disclosed(facts, anonymous)))
        return
    from attn_doctor.render.caches.text import status_text

    sys.stdout.write(status_text(surveys, facts, terminal(), verbose=bool(verbose)))
