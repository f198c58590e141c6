"""The address of the documentation site: set here, and nowhere else.

The site is not published yet, so the address is empty, and no output has a link to it.
"""

from __future__ import annotations

import os
import re

from attn_doctor.errors import AttnDoctorError

#: Where the site is, with a slash at the end; empty while it is nowhere.
ADDRESS = ""
#: The variable that names another place, such as a copy in a company's network.
VARIABLE = "ATTN_DOCTOR_SITE"
_VALID = r"(?:https?|file)://[!-~]{1,200}"


def address() -> str:
    """The address in use, with a slash at the end; empty if there is none.

    Raises `AttnDoctorError` for a variable that is not an address.
    """
    chosen = os.environ.get(VARIABLE, ADDRESS)
    if chosen and not re.fullmatch(_VALID, chosen):
        raise AttnDoctorError(
            f"{VARIABLE} is {chosen!r}, which is not an address: write https://…, or unset it"
        )
    return chosen.rstrip("/") + "/" if chosen else ""
