"""Quoted text is read back unchanged: by real shells, and by small readers of their rules."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attn_doctor.clean import is_clean
from attn_doctor.errors import AttnDoctorError
from attn_doctor.shell.quote import SHELLS, Shell, join, quote, quote_always
from tests.shells import UTF8, path_of

#: Any text that an argument can have. Lone surrogates cannot be encoded.
TEXT = st.text(
    st.one_of(
        st.sampled_from("'‘’‚‛\"`$%!=-~#&|;<>()[]{}*?^@, \\/.:+n"),
        st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")).filter(is_clean),
    ),
    max_size=12,
)
#: Program → the shell whose quoting it reads, and its options.
PROGRAMS: dict[str, tuple[Shell, tuple[str, ...]]] = {
    "bash": ("bash", ("--norc",)),
    "dash": ("sh", ()),
    "zsh": ("zsh", ("-f",)),
    "ksh": ("sh", ()),
    "busybox": ("sh", ("sh",)),
    "fish": ("fish", ("--no-config",)),
}


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=8))
@example(texts=["C:\\Users\\O’Brien", "=ls", "-n", "", "~", "it's", "\\\\'", "a=b", "!!"])
def test_a_shell_reads_back_the_same_words(program: str, texts: list[str]) -> None:
    shell, options = PROGRAMS[program]
    words = [
        *(quote(text, shell) for text in texts),
        *(quote_always(text, shell) for text in texts),
    ]
    done = subprocess.run(
        [path_of(program), *options, "-c", f"/usr/bin/printf '%s\\0' {' '.join(words)}"],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "LC_ALL": UTF8},
    )
    assert done.stdout.decode().split("\0")[:-1] == [*texts, *texts]


def powershell_words(line: str) -> list[str]:
    r"""Split a line by PowerShell's rules for bare words and quoted strings.

    From about_Quoting_Rules and about_Parsing: all five single quotes begin and end a string, two
    of them in it are one; all four double quotes begin and end one in which `$` and a backtick have
    a meaning; in argument mode a bare word ends at white space and at
    `{ } ( ) ; , | & < >`, and `$ @ " \` #` have a meaning of their own; a bare word that begins
    with `-` and a letter is a parameter, which ends at `.` and `:`.
    """
    quotes, words, index = "'‘’‚‛", [], 0
    while index < len(line):
        if line[index] == " ":
            index += 1
        elif line[index] in quotes:
            text, index = "", index + 1
            while line[index] not in quotes or line[index + 1 : index + 2] in (*quotes,):
                # Of two quotes the second is the one that is kept.
                index += line[index] in quotes
                text, index = text + line[index], index + 1
            words.append(text)
            index += 1
            assert line[index : index + 1] in ("", " "), line
        elif line[index] in '"“”„':
            text, index = "", index + 1
            while line[index] not in '"“”„':
                assert line[index] not in "$`", line
                text, index = text + line[index], index + 1
            words.append(text)
            index += 1
            assert line[index : index + 1] in ("", " "), line
        else:
            end = line.find(" ", index)
            word = line[index : end if end >= 0 else len(line)]
            assert not {*word} & {*(quotes + '{}();,|&<>$@"`#*?[]~')}, line
            assert not (word[:1] == "-" and word[1:2].isalpha() and {*word} & {*".:"}), line
            words.append(word)
            index += len(word)
    return words


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=6))
@example(texts=["C:\\Users\\O’Brien", "‘’", "'", "-a.b", "triton==3.4.*"])
def test_powershell_reads_back_the_same_words(texts: list[str]) -> None:
    read = powershell_words(join(["program", *texts], "powershell"))
    assert read == ["program", *texts]
    assert powershell_words(quote_always(texts[0], "powershell")) == texts[:1]


def test_cmd_gets_an_address_without_a_percent_sign() -> None:
    requirement = "flash-attn @ https://a.org/flash_attn-2.8.3%2Bcu128torch2.8-cp313.whl"
    assert quote(requirement, "cmd") == f'"{requirement.replace("%2B", "+")}"'
    # Elsewhere `%2B` may be the name of a file.
    with pytest.raises(AttnDoctorError):
        quote("C:\\a%2Bb c", "cmd")


def cmd_words(line: str) -> list[str]:
    """Split a line as cmd and the C runtime do: double quotes, and backslashes before a quote.

    From the rules of `CommandLineToArgvW`; cmd itself expands `%` also between quotes.
    """
    assert not {*line} & {*"%!"}
    words, index = [], 0
    while index < len(line):
        if line[index] == " ":
            index += 1
            continue
        word, quoted = "", False
        while index < len(line) and (quoted or line[index] != " "):
            if line[index] == "\\":
                count = len(line[index:]) - len(line[index:].lstrip("\\"))
                index += count
                before_quote = line[index : index + 1] == '"'
                assert not (before_quote and count % 2), line
                word += "\\" * (count // 2 if before_quote else count)
            elif line[index] == '"':
                quoted, index = not quoted, index + 1
            else:
                assert quoted or line[index] not in "&|<>^()", line
                word, index = word + line[index], index + 1
        assert not quoted, line
        words.append(word)
    return words


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=6))
@example(texts=["C:\\My Folder\\", "C:\\plain\\", "", "a^b&c"])
def test_cmd_reads_back_the_same_words_or_they_are_refused(texts: list[str]) -> None:
    for text in texts:
        if {*text} & {*'"%!'}:
            with pytest.raises(AttnDoctorError, match="cmd cannot quote"):
                quote(text, "cmd")
    rest = [text for text in texts if not {*text} & {*'"%!'}]
    assert cmd_words(join(["program", *rest], "cmd")) == ["program", *rest]


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=6))
@example(texts=["triton>=3.4,<3.6", "C:\\My Folder\\cache", "a'b"])
def test_cmd_reads_the_words_for_powershell(texts: list[str]) -> None:
    """Of texts without what means something between double quotes, to one of the two."""
    same = [text for text in texts if text and not {*text} & {*'$`"“”„%!'} and text[-1] != "\\"]
    line = join(["program", *same], "powershell")
    assert cmd_words(line) == powershell_words(line) == ["program", *same]


def test_a_quoted_program_is_called_in_powershell() -> None:
    assert join(["C:\\My Env\\python.exe", "-V"], "powershell") == '& "C:\\My Env\\python.exe" -V'


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", ["a\nb", "a\0b", "\x1b[31m", "\x7f", "\x85"])
def test_control_characters_are_refused_for_every_shell(shell: Shell, text: str) -> None:
    for function in (quote, quote_always):
        with pytest.raises(AttnDoctorError, match="control character"):
            function(text, shell)
