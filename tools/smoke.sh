#!/usr/bin/env bash
# Runs commands of attn-doctor and prints each one's exit code; 1 if one fails.
#
#   tools/smoke.sh PROGRAM [ARGUMENTS…]     PROGRAM is attn-doctor, or a program that starts it
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
output="$folder/output"
for words in "--version" "check" "check --json" "backends" "rules lint" "rules show sage/needs-triton" \
    "report -o $folder/report.json" "fix --dry-run" "cache status" \
    "explain 'Torch not compiled with CUDA enabled'" "check --pretend gpu=gb10"; do
    code=0
    eval "arguments=($words)"
    "$@" "${arguments[@]}" >"$output" 2>&1 || code=$?
    printf '%3d  %s\n' "$code" "$words"
    # 1 means that problems were found, or a cause.
    [ "$code" -le 1 ] || { cat "$output"; failed=1; }
done
exit "${failed:-0}"
