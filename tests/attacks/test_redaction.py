"""Secrets that must not leave: the shapes of tokens, the names before them, and what must stay."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from attn_doctor.redact import HIDDEN, redact, redact_all
from tests.attacks.hostile import OWN_WORDS, Hostile, spread, texts
from tests.attacks.tokens import tokens
from tests.command import run

TOKENS = tokens()
#: Random letters without a mark. In a path they look like the hash of a folder, and stay.
UNMARKED = ("ngc legacy", "aws secret", "azure storage")
MARKED = {name: one for name, one in TOKENS.items() if name not in UNMARKED}
#: 2,000 texts without secrets, each with its kind: paths and digests of wheels, hashes of git,
#: Triton and Inductor, names of kernels and symbols, lines of posted logs, commands, URLs.
ORDINARY = Path(__file__).with_name("ordinary.tsv")
#: Where a token may stand. Each has to be found by its shape alone.
PLACES = (
    "{}",
    "got {} back",
    "x={}",
    "'{}',",
    '{{"value": "{}"}}',
    "https://example.org/simple?page={}&x=1",
    "https://{}@example.org/simple",
    "https://user:{}@example.org/simple",
    "({}).",
    "line one\\n{}",
    "#{}#",
)


def leaks(token: str, text: str) -> bool:
    """Whether `text` holds the token, or more of it than a service itself would show."""
    body = token[len(token) // 3 :]
    return any(body[start : start + 12] in text for start in range(max(1, len(body) - 11)))


def test_there_are_enough_shapes() -> None:
    assert len(TOKENS) >= 60
    assert len(set(TOKENS.values())) == len(TOKENS)


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_known_by_its_shape(name: str) -> None:
    token = TOKENS[name]
    # A user name ends at the first slash; only after its colon is a slash that of a password.
    places = [one for one in PLACES if "/" not in token or one != "https://{}@example.org/simple"]
    shown = {place: redact(place.format(token)) for place in places}
    assert [place for place, text in shown.items() if leaks(TOKENS[name], text)] == []
    assert [text for text in shown.values() if HIDDEN not in text or redact(text) != text] == []


@pytest.mark.parametrize("name", [name for name in TOKENS if name not in UNMARKED])
def test_a_token_in_a_path_is_known(name: str) -> None:
    assert not leaks(TOKENS[name], redact(f"/home/ada/{TOKENS[name]}/python"))


def percent(text: str) -> str:
    """Every letter as a URL may write it."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


#: How programs write a token: in JSON, in a URL, in the query of another URL, behind a colour.
WRITTEN: dict[str, Callable[[str], str]] = {
    "JSON": lambda token: json.dumps({"value": token}),
    "JSON in JSON in JSON": lambda token: json.dumps(json.dumps(json.dumps([token]))),
    "JSON with escaped slashes": lambda token: json.dumps([token]).replace("/", "\\/"),
    "query": lambda token: f"https://example.org/a?page={quote(token, safe='')}&x=1",
    "fragment": lambda token: f"https://example.org/a#{token}",
    "URL in a query": lambda token: (
        f"next=https%3A%2F%2Fada%3A{quote(token, safe='')}%40example.org%2Fa"
    ),
    "encoded": percent,
    "encoded twice": lambda token: quote(percent(token)),
    "encoded in part": lambda token: token.replace("_", "%5F").replace("-", "%2D"),
    "first letter encoded": lambda token: percent(token[0]) + token[1:],
    "encoded quotes": lambda token: f"%22{token}%22",
    "encoded line break": lambda token: f"a%0A{token}",
    "escaped quote": lambda token: f"\\u0022{token}\\u0022",
    "written colour": lambda token: f"\\x1b[0m{token}\\x1b[1m",
    "half a colour": lambda token: f"[31m{token}[0m",
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_token_is_known_in_every_writing(form: str) -> None:
    shown = {name: redact(WRITTEN[form](token)) for name, token in TOKENS.items()}
    found = [name for name, text in shown.items() if leaks(TOKENS[name], read_back(text))]
    assert found == []
    assert [text for text in shown.values() if redact(text) != text] == []


def read_back(text: str) -> str:
    """What a reader of URLs and JSON gets."""
    for _ in range(3):
        text = unquote(text)
    return text.replace("\\/", "/")


#: Tokens without a mark of their own, or of which one line holds digits alone: in a broken line a
#: part can stay.
SPLIT = ("ngc", "runpod", "pulumi", "slack user", "mailchimp", "airtable")


@pytest.mark.parametrize("width", [30, 40, 76])
@pytest.mark.parametrize("line_break", ["\n", "\n    ", "\\\n", "\r\n", "\\n"])
def test_a_token_is_known_in_broken_lines(line_break: str, width: int) -> None:
    found = []
    for name, token in TOKENS.items():
        pieces = [token[start : start + width] for start in range(0, len(token), width)]
        shown = redact(f"got\n{line_break.join(pieces)}\nand went on")
        if leaks(token, shown.replace(line_break, "")):
            found.append(name)
        assert shown.startswith("got\n"), name
        assert shown.endswith("\nand went on"), name
    assert set(found) <= set(SPLIT)


def test_each_token_of_a_list_is_known() -> None:
    shown = redact("\n".join(MARKED.values()))
    assert [name for name, token in MARKED.items() if leaks(token, shown)] == []


def test_lines_of_ordinary_texts_are_not_joined() -> None:
    rows = [line.split("\t", 1)[1] for line in ORDINARY.read_text("utf-8").splitlines()]
    assert redact("\n".join(rows)).count("\n") == len(rows) - 1
    assert redact(f"HF_TOKEN={TOKENS['huggingface']}\nA1B2C3D4=5") == "HF_TOKEN=***\nA1B2C3D4=5"


SECRET = "correct-horse"
NAMED = (
    "--password \\\n  {}",
    "--db-password \\\r\n\t'{}'",
    "--hub_token {}",
    "--hub-token={}",
    "--hub_token '{}' --steps 5",
    "('train.py', '--hub_token', '{}', '--steps')",
    "--api-key {}",
    "--api_key={}",
    "--password {}",
    "--wandb-api-key\n    {}",
    "HF_TOKEN={} python train.py",
    'export HF_TOKEN="{}"',
    "WANDB_API_KEY={}",
    "DB_PASSWORD={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "KEY={}",
    "PGPASSWORD={}",
    '"api_key": "{}"',
    "api_key: '{}'",
    "password: {}",
    "client_secret = {}",
    "Authorization: Bearer {}",
    "Authorization: token {}",
    "authorization: Basic {}",
    "curl -H 'X-Api-Key: {}' https://x",
    "PRIVATE-TOKEN: {}",
    "Cookie: session={}",
    "curl -u ada:{} https://x",
    "sshpass -p {} ssh box",
    "docker login -u ada -p {} ghcr.io",
    "wandb login {}",
    "machine example.org login ada password {}",
    "//registry.npmjs.org/:_authToken={}",
    "_auth={}",
    "https://ada:{}@example.org/simple",
    "https://ada:a/b@c{}@example.org/simple",
    "postgres://ada:{}@db:5432/x",
    "https://x/f?jwt={}",
    "https://x/f?sv=1&sig={}&se=2",
    "https://x/f?X-Amz-Signature={}&X-Amz-Date=2",
    "https://x/f?token={}#frag",
    "AccountName=a;AccountKey={};EndpointSuffix=x",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}",
    '"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"',
    "PuTTY-User-Key-File-3: x\nPrivate-Lines: 1\n{}\nPrivate-MAC: 0",
)


@pytest.mark.parametrize("text", NAMED)
def test_names_tell(text: str) -> None:
    secret = f"{SECRET}-7Q"
    shown = redact(text.format(secret))
    assert SECRET not in shown
    assert redact(shown) == shown


@pytest.mark.parametrize("password", ["p/w", "p@w", "p/w@x", "a:b/c@d", "p%40w", "päss/w@rd"])
def test_passwords_of_urls_hold_anything(password: str) -> None:
    assert redact(f"pip --index-url https://ada:{password}@h.org/simple x") == (
        "pip --index-url https://***@h.org/simple x"
    )


def test_data_tells_by_its_names() -> None:
    data = {"argv": ["python", "--hub_token", SECRET], "env": {"HF_TOKEN": SECRET}, "n": [1, None]}
    assert redact_all(data) == {
        "argv": ["python", "--hub_token", HIDDEN],
        "env": {"HF_TOKEN": HIDDEN},
        "n": [1, None],
    }


def test_ordinary_texts_stay() -> None:
    rows = [line.split("\t", 1) for line in ORDINARY.read_text("utf-8").splitlines()]
    cut = [(kind, text, redact(text)) for kind, text in rows if redact(text) != text]
    assert len(rows) >= 2000
    assert len(cut) <= len(rows) // 100, cut


def test_long_texts_take_no_time() -> None:
    """Texts that make a careless pattern try everything."""
    import time

    for part in (
        "a",
        "://",
        "-----BEGIN PRIVATE KEY-----",
        "token",
        "--a ",
        "?a",
        "a.",
        "aB3",
        "=",
        "key=",
        "%41",
        "%2525",
        "a%",
        "\\/",
        "aB3x" * 4 + "\n",
    ):
        start = time.process_time()
        redact(part * (30_000 // len(part)))
        assert time.process_time() - start < 3, part


#: One command of each kind, for the default run.
QUICK = (
    "check text", "check json", "check markdown", "check github", "check junit", "explain text",
    "explain json", "explain markdown", "explain policy", "cache why text", "cache import json",
    "report",
)  # fmt: skip


def leaking(hostile: Hostile, names: Iterable[str], commands: Iterable[str]) -> list[str]:
    """The command and the token of each leak."""
    found = []
    for command in commands:
        written = hostile.folder / "written.txt"
        written.unlink(missing_ok=True)
        environ = {**os.environ, "HOME": str(hostile.folder / "home"), **hostile.environ}
        ended = run(*hostile.commands[command], cwd=hostile.folder, environ=environ)
        assert ended.returncode in (0, 1, 2), (command, ended.stderr)
        text = ended.stdout + ended.stderr + (written.read_text() if written.exists() else "")
        assert HIDDEN in text.replace("\\", "") or command.startswith(OWN_WORDS), (
            f"{command} shows nothing hostile"
        )
        found += [f"{command}: {name}" for name in names if leaks(TOKENS[name], text)]
    return found


def test_no_output_shows_a_token(tmp_path: Path) -> None:
    hostile = spread(tmp_path, texts(*MARKED.values()))
    assert leaking(hostile, TOKENS, QUICK) == []


@pytest.mark.attack
@pytest.mark.parametrize("first", range(0, len(TOKENS), 8))
def test_every_output_hides_every_token(tmp_path: Path, first: int) -> None:
    names = list(MARKED)[first : first + 8]
    hostile = spread(tmp_path, texts(" ".join(TOKENS[name] for name in names)))
    assert leaking(hostile, names, hostile.commands) == []


def test_what_is_stored_holds_no_secret(tmp_path: Path) -> None:
    """A warm-up's arguments are recorded and exported without what they name as secret."""
    manifest = spread(tmp_path, texts(*MARKED.values())).folder / "kernels.attn"
    with gzip.open(manifest) as file:
        content = file.read().decode(errors="replace")
    assert '"--hub_token","***"' in "".join(content.split())
