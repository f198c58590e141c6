#!/bin/sh
# Slurm prolog: a code other than 0 drains the node, so only what the node itself has wrong counts.
# Problems of users' environments are theirs: no Python environment is named, and errors of the
# rules about torch and packages do not arise in attn-doctor's own.
# slurm.conf: Prolog=/etc/slurm/prolog.d/attn-doctor.sh
set -u
[ -n "${SLURM_JOB_GPUS-}${GPU_DEVICE_ORDINAL-}" ] || exit 0
attn-doctor check --quiet --timeout 10 --policy none --python "${ATTN_DOCTOR_PYTHON:-/opt/attn-doctor}"
code=$?
# 1: a problem of this node. Do not drain it for anything else.
[ "$code" -ne 1 ]
