"""What is written into start files and activation hooks.

A start file sets the variables. A hook also gives back, when the environment is left, what was
there before, unless the user has changed it since. Written for the plainest shell of each family:
`bin/activate` and conda's `.sh` hooks are read by dash as well.
"""

from __future__ import annotations

from attn_doctor.fixes.cuda_home.exports import Exports, quoted

_OLD, _OURS = "_ATTN_DOCTOR_OLD_", "_ATTN_DOCTOR_SET_"


def start(exports: Exports, shell: str) -> list[str]:
    """The lines of a start file. A nested shell does not put the folder on PATH twice."""
    found = [_set(name, value, shell) for name, value in exports.variables.items()]
    return [*found, *_path(exports.path, shell)]


def enter(exports: Exports, shell: str) -> list[str]:
    """The lines for when an environment becomes active."""
    found: list[str] = []
    for name, value in exports.variables.items():
        found += [_keep(name, shell), _set(name, value, shell), _remember(name, value, shell)]
    return [*found, *_path(exports.path, shell)]


def leave(exports: Exports, shell: str, *, path: bool) -> list[str]:
    """The lines for when it is left; `path`: the shell does not restore PATH by itself."""
    found: list[str] = []
    for name in exports.variables:
        found += _give_back(name, shell)
    return [*found, *(_path_off(exports.path, shell) if path and exports.path else [])]


def _set(name: str, value: str, shell: str) -> str:
    word = quoted(value, shell)
    if shell == "fish":
        return f"set -gx {name} {word}"
    if shell == "powershell":
        return f"$env:{name} = {word}"
    return f"export {name}={word}"


def _path(folder: str, shell: str) -> list[str]:
    if not folder:
        return []
    word = quoted(folder, shell)
    if shell == "fish":
        return [f"contains -- {word} $PATH; or set -gx PATH {word} $PATH"]
    if shell == "powershell":
        parts = "$env:PATH -split [IO.Path]::PathSeparator"
        add = f"$env:PATH = {word} + [IO.Path]::PathSeparator + $env:PATH"
        return [f"if (({parts}) -notcontains {word}) {{ {add} }}"]
    add = f'export PATH={word}"${{PATH:+:${{PATH}}}}"'
    return [f'case ":${{PATH-}}:" in *:{word}:*) ;; *) {add} ;; esac']


def _keep(name: str, shell: str) -> str:
    """Keep what the variable was before, if it was set."""
    old = _OLD + name
    if shell == "fish":
        return f"set -e {old}; set -q {name}; and set -g {old} ${name}"
    if shell == "powershell":
        return f"$global:{old} = if (Test-Path Env:{name}) {{ $env:{name} }} else {{ $null }}"
    return f'if [ -n "${{{name}+x}}" ]; then {old}="${name}"; else unset {old}; fi'


def _remember(name: str, value: str, shell: str) -> str:
    """Keep what we set, to see later whether the user has changed it."""
    word = quoted(value, shell)
    if shell == "fish":
        return f"set -g {_OURS}{name} {word}"
    if shell == "powershell":
        return f"$global:{_OURS}{name} = {word}"
    return f"{_OURS}{name}={word}"


def _give_back(name: str, shell: str) -> list[str]:
    old, ours = _OLD + name, _OURS + name
    if shell == "fish":
        return [
            f'if set -q {ours}; and test "${name}" = "${ours}"',
            f"    if set -q {old}; set -gx {name} ${old}; else; set -e {name}; end",
            "end",
            f"set -e {old}; set -e {ours}",
        ]
    if shell == "powershell":
        still = f"$global:{ours} -and $env:{name} -eq $global:{ours}"
        return [
            f"if ({still}) {{ $env:{name} = $global:{old} }}",
            f"Remove-Variable -Name {old} -Scope Global -ErrorAction SilentlyContinue",
            f"Remove-Variable -Name {ours} -Scope Global -ErrorAction SilentlyContinue",
        ]
    return [
        f'if [ -n "${{{ours}:-}}" ] && [ "${{{name}-}}" = "${ours}" ]; then',
        f'    if [ -n "${{{old}+x}}" ]; then export {name}="${old}"; else unset {name}; fi',
        "fi",
        f"unset {old} {ours}",
    ]


def _path_off(folder: str, shell: str) -> list[str]:
    """Take the folder off PATH, once."""
    word = quoted(folder, shell)
    if shell == "fish":
        return [f"set -l at (contains -i -- {word} $PATH); and set -e PATH[$at]"]
    if shell == "powershell":
        parts = "$env:PATH -split [IO.Path]::PathSeparator"
        rest = f"({parts}) | Where-Object {{ $_ -ne {word} }}"
        return [f"$env:PATH = ({rest}) -join [IO.Path]::PathSeparator"]
    return [
        f'case ":$PATH:" in *:{word}:*)',
        '    _attn_doctor_path=":$PATH:"',
        # No double quotes here: shells differ on quotes within quotes, and nothing is split.
        f"    _attn_doctor_path=${{_attn_doctor_path%%:{word}:*}}:${{_attn_doctor_path#*:{word}:}}",
        '    _attn_doctor_path="${_attn_doctor_path#:}"; export PATH="${_attn_doctor_path%:}"',
        "    unset _attn_doctor_path ;;",
        "esac",
    ]
