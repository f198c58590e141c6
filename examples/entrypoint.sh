#!/bin/sh
# The container's entrypoint: checks the machine once, then becomes the command that was given.
# ATTN_DOCTOR_REQUIRE names backends, such as flash,native; ATTN_DOCTOR_FAIL_ON=never only reports.
set -eu
if [ -n "${ATTN_DOCTOR_REQUIRE-}" ]; then
    # A backend that is required fails the check whatever --fail-on lets pass.
    attn-doctor check --quiet --fail-on "${ATTN_DOCTOR_FAIL_ON:-error}" \
        --require "$ATTN_DOCTOR_REQUIRE" >&2 || [ "${ATTN_DOCTOR_FAIL_ON-}" = never ]
else
    attn-doctor check --quiet --fail-on "${ATTN_DOCTOR_FAIL_ON:-error}" >&2
fi
exec "$@"
