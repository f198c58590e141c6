#!/usr/bin/env bash
# Runs attn-doctor and its tests on Linux for aarch64 under qemu, on Debian.
#
#   tools/qemu.sh FOLDER setup              Debian for arm64, its Python and the test tools in FOLDER
#   tools/qemu.sh FOLDER python ARGS…       that Python, in this directory
#   tools/qemu.sh FOLDER test PATHS…        pytest, one process; default: the tests of what a machine has
#   tools/qemu.sh FOLDER smoke              seven commands, each with its exit code; 1 if one fails
#
# Needs root, apt for `setup` (packages qemu-user-static, binfmt-support and debootstrap), a package
# index, and a kernel that lets root mount. `setup` ends with 77 and a sentence where one is missing.
#
# The packages are unpacked and not configured: scripts of packages take minutes under qemu, and
# Python needs none. Mounts are made in a namespace of their own and go away with the command.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
[ $# -ge 2 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root="$(mkdir -p "$1" && cd "$1" && pwd)"
command="$2"
shift 2
system="$root/arm64"
site="$system/usr/local/lib/python3.13/dist-packages"
packages=(pytest pytest-xdist hypothesis nvidia-ml-py html5lib jsonschema xmlschema tree-sitter tree-sitter-powershell)

# Ends with 77, and says what is missing here.
missing() { echo "tools/qemu.sh: $1" >&2; exit 77; }

# Starts a program of that system in a directory.
inside() {
    local folder="$1"
    shift
    # Variables of this shell, such as PYTHONPATH, belong to another system.
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare --mount bash -c '
        set -e
        system=$1 here=$2 to=$3; shift 3
        mount --bind "$system" "$system"  # else `/` is missing in /proc/self/mountinfo
        mount -t tmpfs tmpfs "$system/tmp"
        mkdir -p "$system$here"
        mount --bind "$here" "$system$here"
        mount -t proc proc "$system/proc"
        mount --rbind /dev "$system/dev"
        mount --rbind /sys "$system/sys"
        exec env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 \
            ATTN_DOCTOR_TESTS_EMULATED=qemu \
            chroot "$system" /bin/sh -c "cd \"\$0\" && exec \"\$@\"" "$to" "$@"
    ' inside "$system" "$here" "$folder" "$@"
}

# Installs packages into a folder, with this machine's own Python.
pip() { "${PYTHON:-python3}" -m pip install --quiet --root-user-action=ignore "$@"; }

python() { inside "$here" python3 "$@"; }

setup() {
    [ "$(id -u)" = 0 ] || missing "needs root"
    if ! command -v debootstrap >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends qemu-user-static binfmt-support debootstrap; } >/dev/null 2>&1 ||
            missing "apt cannot install qemu-user-static, binfmt-support and debootstrap"
    fi
    local handlers=/proc/sys/fs/binfmt_misc
    [ -e "$handlers/register" ] || mount -t binfmt_misc binfmt_misc "$handlers" 2>/dev/null || true
    [ -e "$handlers/qemu-aarch64" ] || update-binfmts --enable qemu-aarch64 2>/dev/null || true
    [ -e "$handlers/qemu-aarch64" ] || missing "this kernel does not start programs for aarch64"
    unshare --mount true 2>/dev/null || missing "this kernel does not let root mount"
    if [ ! -x "$system/usr/bin/python3" ]; then
        rm -rf "$system"
        debootstrap --arch=arm64 --foreign --variant=minbase \
            --include=python3,python3-venv,gcc,g++,libc6-dev,git trixie "$system" \
            http://deb.debian.org/debian >"$root/debootstrap.log" 2>&1 ||
            missing "Debian for arm64 cannot be fetched; see $root/debootstrap.log"
        local package
        for package in "$system"/var/cache/apt/archives/*.deb; do
            dpkg-deb --fsys-tarfile "$package" | tar -x -C "$system" --keep-directory-symlink
        done
    fi
    # Where debootstrap may not mount, it makes a link to this system's own, which leads to itself there.
    if [ -L "$system/proc" ]; then
        rm "$system/proc"
        mkdir "$system/proc"
    fi
    pip --upgrade --target "$site" --python-version 3.13 \
        --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --only-binary=:all: \
        msgspec packaging psutil rich shellingham 'typer>=0.16,<0.29' \
        pefile pyelftools junitparser "${packages[@]}" ||
        missing "wheels for aarch64 cannot be fetched"
    echo "$here" >"$site/attn-doctor.pth"
    # Scripts of packages make these: the loader's cache, awk, the names of users and groups, and
    # certificates, which pip reads at its start.
    inside / ldconfig
    ln -sf mawk "$system/usr/bin/awk"
    local file
    for file in passwd group; do
        cp "$system/usr/share/base-passwd/$file.master" "$system/etc/$file"
    done
    install -D -m 644 "$("${PYTHON:-python3}" -c 'from pip._vendor.certifi import where; print(where())')" \
        "$system/etc/ssl/certs/ca-certificates.crt"
}

case "$command" in
setup) setup ;;
python) python "$@" ;;
test)
    [ $# -gt 0 ] || set -- tests/host tests/binaries tests/probes tests/policy tests/test_machines.py
    python -m pytest -n0 -q -p no:cacheprovider "$@"
    ;;
smoke)
    # As users have it: a wheel holds the rules ready, a checkout reads them at every start.
    pip --no-deps --upgrade --no-compile --target "$system/opt/wheel" "$here"
    for words in "--version" "check" "backends" "report --force -o /root/report.json" "fix --dry-run" \
        "explain 'Torch not compiled with CUDA enabled'" "check --pretend gpu=gb10"; do
        code=0
        eval "set -- $words"
        inside /opt env PYTHONPATH=/opt/wheel python3 -m attn_doctor "$@" >"$root/output" 2>&1 || code=$?
        printf '%3d  %s\n' "$code" "$words"
        # 1 means that problems were found, or a cause.
        [ "$code" -le 1 ] || { cat "$root/output"; failed=1; }
    done
    exit "${failed:-0}"
    ;;
*) echo "tools/qemu.sh: no command $command" >&2; exit 2 ;;
esac
