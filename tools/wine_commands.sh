#!/usr/bin/env bash
# Runs the README's commands in cmd, with CPython for Windows under wine and wheels for Windows.
#
#   tools/wine_commands.sh FOLDER setup      two environments, after `tools/wine.sh FOLDER setup`
#   tools/wine_commands.sh FOLDER venv       the commands in "C:\Über uns\venv"
#   tools/wine_commands.sh FOLDER portable   some commands in ComfyUI's portable layout
#
# Prints each command with its output and exit code, and a table at the end. The exit code is 1 if a
# command ended with 3 or more, or with a traceback. The environments hold torch, triton-windows and
# xformers as PyPI has them. With mingw (x86_64-w64-mingw32-gcc) a stub of NVML shows a GPU. The
# portable torch calls itself a CUDA build. That PowerShell can parse the commands,
# tests/shell/test_powershell_grammar.py tests.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
[ $# -eq 2 ] || { sed -n '4,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root="$(cd "$1" && pwd)"
python="${PYTHON:-python3}"
export WINEPREFIX="$root/prefix" WINEDEBUG=-all WINEARCH=win64 DISPLAY= LC_ALL=C.UTF-8
export WINEDLLOVERRIDES="mscoree,mshtml=" NVML_STUB='C:\gpu.txt'
unset VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH
drive="$WINEPREFIX/drive_c"
venv="$drive/Über uns/venv"
portable="$drive/ComfyUI_windows_portable"
embedded="$portable/python_embeded"
torch=2.13.0

windows() {
    wine "$@" </dev/null 2>&1 | cat
    return "${PIPESTATUS[0]}"
}

# Unpacks packages for Windows into a folder.
packages() {
    local target="$1"
    shift
    "$python" -m pip install --quiet --root-user-action=ignore --target "$target" --platform win_amd64 \
        --python-version 3.13 --only-binary=:all: "$@"
}

setup() {
    if command -v x86_64-w64-mingw32-gcc >/dev/null; then
        x86_64-w64-mingw32-gcc -shared -O1 -w -o "$drive/windows/system32/nvml.dll" \
            "$here/tests/nvml_stub/stub.c"
        cp "$drive/windows/system32/nvml.dll" "$drive/windows/system32/nvcuda.dll"
        printf '%s\n' driver=576.88 cuda=12090 gpus=1 'gpu.0.name=NVIDIA GeForce RTX 4090' \
            gpu.0.major=8 gpu.0.minor=9 gpu.0.total=25757220864 gpu.0.free=23622320128 >"$drive/gpu.txt"
    fi
    "$python" -m pip wheel --quiet --no-deps -w "$root/wheel" "$here"
    [ -d "$venv" ] || windows 'C:\Python\python.exe' -m venv --without-pip 'C:\Über uns\venv'
    local site="$venv/Lib/site-packages"
    # pip asks the markers of this system, so that torch's requirements are named here.
    [ -d "$site/torch" ] || packages "$site" --no-deps "torch==$torch" triton-windows xformers
    [ -d "$site/msgspec" ] || packages "$site" pip setuptools filelock typing-extensions sympy networkx \
        jinja2 fsspec numpy colorama msgspec packaging psutil rich shellingham 'typer>=0.16,<0.29'
    windows "C:\\Über uns\\venv\\Scripts\\python.exe" -m pip install --quiet --no-deps --no-index \
        --force-reinstall "Z:${root//\//\\}\\wheel\\$(basename "$root"/wheel/attn_doctor-*.whl)"
    mkdir -p "$drive/Über uns/work/snapshots" "$portable/ComfyUI"
    if [ ! -f "$embedded/python.exe" ]; then
        mkdir -p "$embedded/Lib"
        cp -a "$drive/Python/." "$embedded/"
        rm -rf "$embedded"/{include,libs,Scripts,Lib/ensurepip,Lib/venv,Lib/site-packages}
        printf '%s\n' '../ComfyUI' . Lib DLLs 'import site' >"$embedded/python313._pth"
        cp -al "$site" "$embedded/Lib/site-packages"
        local info="$embedded/Lib/site-packages/torch" name
        name="$info/version.py"
        sed "s/__version__ = .*/__version__ = '$torch+cu126'/; s/^cuda.*/cuda: Optional[str] = '12.6'/" \
            "$name" >"$root/version.py"
        rm "$name" && mv "$root/version.py" "$name"
        mv "$info-$torch.dist-info" "$info-$torch+cu126.dist-info"
        sed "s/^Version: .*/Version: $torch+cu126/" "$info-$torch+cu126.dist-info/METADATA" >"$root/METADATA"
        rm "$info-$torch+cu126.dist-info/METADATA"
        mv "$root/METADATA" "$info-$torch+cu126.dist-info/METADATA"
    fi
    rm -rf "$embedded"/Lib/site-packages/attn_doctor*
    cp -a "$site"/attn_doctor* "$embedded/Lib/site-packages/"
}

# Runs one line in cmd, and keeps its first result for the table.
try() {
    local code=0
    printf '==== %s\n' "$1"
    wine cmd /c "$1" </dev/null 2>&1 | tr -d '\r' >"$root/output" || code=${PIPESTATUS[0]}
    cat "$root/output"
    echo "exit $code"
    if [ "$code" -gt 2 ] || grep -q 'Traceback (most recent' "$root/output"; then failed=1; fi
    table+="$(printf '%4d  %-72s %s' "$code" "$1" "$(grep -m1 -E '^[✗✓→!]|^attn-doctor:|^Wrote|^Not' "$root/output")")"$'\n'
}

start() {
    wineserver -p >/dev/null 2>&1 </dev/null || true
    wine cmd /c exit >/dev/null 2>&1 </dev/null
    trap 'wineserver -k >/dev/null 2>&1 || true' EXIT
    table="" failed=0
}

commands() {
    export VIRTUAL_ENV='C:\Über uns\venv' WINEPATH='C:\Über uns\venv\Scripts'
    cd "$drive/Über uns/work"
    printf 'ImportError: DLL load failed while importing flash_attn_2_cuda: %s\n' \
        'The specified procedure could not be found.' >train.log
    try 'attn-doctor check'
    try 'attn-doctor explain train.log'
    try 'attn-doctor fix --dry-run'
    try 'attn-doctor backends --for training --mask bool'
    try 'attn-doctor check --require flash --for training'
    try 'attn-doctor build-kernels --target h200 --cache-dir C:\kernels --preset flux1'
    try 'attn-doctor report --force -o snapshots\one.json'
    try 'attn-doctor check --facts snapshots'
    try 'attn-doctor install flash --dry-run'
    try 'attn-doctor audit flex'
    try 'attn-doctor cache status'
    try 'attn-doctor mcp'
    try 'attn-doctor --version'
    try 'attn-doctor cache env'
    try 'attn-doctor check --format json:NUL'
}

# Logs that Windows users posted, by their label.
posted() {
    "$python" - "$here/tests/logs/$1.jsonl" <<'P'
import json
import sys

for line in open(sys.argv[1], encoding="utf-8"):
    log = json.loads(line)
    if "python_embeded" in log["log"]:
        print(log["log"])
        break
P
}

portable() {
    local run='python_embeded\python.exe -s -m attn_doctor'
    cd "$portable"
    try "$run check"
    try "$run backends --framework comfyui"
    for label in python-headers-missing ext-torch-abi-mismatch msvc-compiler-missing; do
        posted "$label" >"$label.log"
        try "$run explain $label.log"
    done
    try "$run fix --dry-run"
    try "$run install sage --dry-run"
    try "$run install flash --community --dry-run"
    # The folder that people know, named from elsewhere.
    export WINEPATH='C:\Über uns\venv\Scripts'
    cd "$drive"
    try 'attn-doctor check --python C:\ComfyUI_windows_portable'
}

case "$2" in
setup) setup ;;
venv | portable)
    start
    if [ "$2" = venv ]; then commands; else portable; fi
    printf '\n%s' "$table"
    exit "$failed"
    ;;
*) echo "tools/wine_commands.sh: no command $2" >&2; exit 2 ;;
esac
