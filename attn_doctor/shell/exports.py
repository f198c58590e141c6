"""Lines of each shell that set environment variables and put a folder first on PATH.

A start file sets the variables. An activation hook also restores, when the environment is left,
the values from before, unless the user has changed them since. Lines of the `sh` family are
written for the plainest shell: dash reads `bin/activate` and conda's `.sh` hooks as well.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.shell.quote import Shell, quote, quote_always

_OLD, _OURS = "_ATTN_DOCTOR_OLD_", "_ATTN_DOCTOR_SET_"
_PARTS = "$env:PATH -split [IO.Path]::PathSeparator"


class Exports(Struct, frozen=True, kw_only=True):
    """Variables to set, and a folder to put first on PATH."""

    variables: dict[str, str]
    path: str = ""
    """Empty if PATH needs no change."""


def set_variable(name: str, value: str, shell: Shell) -> str:
    """Return the line that exports a variable; an empty value unsets it.

    Raises `AttnDoctorError` for a value that cannot be quoted.
    """
    if not value:
        unset = {"fish": "set -e {}", "powershell": "Remove-Item Env:{}", "cmd": 'set "{}="'}
        return unset.get(shell, "unset {}").format(name)
    word = _text(value, shell)
    if shell == "powershell":
        return f"$env:{name} = {word}"
    if shell == "cmd":
        return f'set "{name}={value}"'
    return f"set -gx {name} {word}" if shell == "fish" else f"export {name}={word}"


def eval_lines(exports: Exports, shell: Shell) -> list[str]:
    """Return the lines for `eval`: each ends in a semicolon, so that they may be joined."""
    lines = [set_variable(name, value, shell) for name, value in exports.variables.items()]
    if exports.path:
        lines.append(_prepend(exports.path, shell))
    return [line if shell == "cmd" else f"{line};" for line in lines]


def start_lines(exports: Exports, shell: Shell) -> list[str]:
    """Return the lines of a start file. A nested shell does not put the folder on PATH twice."""
    lines = [set_variable(name, value, shell) for name, value in exports.variables.items()]
    return [*lines, *_prepend_once(exports.path, shell)]


def enter_lines(exports: Exports, shell: Shell) -> list[str]:
    """Return the lines that run when an environment becomes active."""
    lines: list[str] = []
    for name, value in exports.variables.items():
        word, old, ours = _text(value, shell), _OLD + name, _OURS + name
        if shell == "fish":
            save = f"set -e {old}; set -q {name}; and set -g {old} ${name}"
            remember = f"set -g {ours} {word}"
        elif shell == "powershell":
            save = f"$global:{old} = if (Test-Path Env:{name}) {{ $env:{name} }} else {{ $null }}"
            remember = f"$global:{ours} = {word}"
        else:
            save = f'if [ -n "${{{name}+x}}" ]; then {old}="${name}"; else unset {old}; fi'
            remember = f"{ours}={word}"
        lines += [save, set_variable(name, value, shell), remember]
    return [*lines, *_prepend_once(exports.path, shell)]


def leave_lines(exports: Exports, shell: Shell, *, path: bool) -> list[str]:
    """Return the lines that run when it is left; `path`: the shell does not restore PATH itself."""
    lines = [line for name in exports.variables for line in _restore(name, shell)]
    return [*lines, *(_remove_from_path(exports.path, shell) if path and exports.path else [])]


def _text(value: str, shell: Shell) -> str:
    """A value as a word; PowerShell takes a bare word on the right of `=` for a command."""
    return quote_always(value, shell) if shell == "powershell" else quote(value, shell)


def _on_path(folder: str, shell: Shell) -> str:
    """The folder as an entry of PATH, as a word.

    Git Bash writes `/c/CUDA/bin` for `C:/CUDA/bin`; with a colon it would be two entries.
    """
    drive = re.match(r"([A-Za-z]):[\\/]", folder)
    if drive is not None and shell not in ("powershell", "cmd"):
        folder = f"/{drive[1].lower()}/" + folder[3:].replace("\\", "/")
    return _text(folder, shell)


def _prepend(folder: str, shell: Shell) -> str:
    word = _on_path(folder, shell)
    if shell == "fish":
        return f"set -gx PATH {word} $PATH"
    if shell == "powershell":
        return f"$env:PATH = {word} + [IO.Path]::PathSeparator + $env:PATH"
    if shell == "cmd":
        return f'set "PATH={folder};%PATH%"'
    return f'export PATH={word}"${{PATH:+:${{PATH}}}}"'


def _prepend_once(folder: str, shell: Shell) -> list[str]:
    if not folder:
        return []
    word, add = _on_path(folder, shell), _prepend(folder, shell)
    if shell == "fish":
        return [f"contains -- {word} $PATH; or {add}"]
    if shell == "powershell":
        return [f"if (({_PARTS}) -notcontains {word}) {{ {add} }}"]
    return [f'case ":${{PATH-}}:" in *:{word}:*) ;; *) {add} ;; esac']


def _restore(name: str, shell: Shell) -> list[str]:
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


def _remove_from_path(folder: str, shell: Shell) -> list[str]:
    """Take the folder off PATH, once."""
    word = _on_path(folder, shell)
    if shell == "fish":
        return [f"set -l at (contains -i -- {word} $PATH); and set -e PATH[$at]"]
    if shell == "powershell":
        rest = f"({_PARTS}) | Where-Object {{ $_ -ne {word} }}"
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
