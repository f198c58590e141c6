"""What a report must not tell about the machine and its user."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from attn_doctor.anonymize import anonymous, disclosed, private_packages, rewritten, walk
from attn_doctor.facts import Facts, Gpu, Python
from attn_doctor.findings import Verdict
from attn_doctor.host.recorded import RecordedHost


def _host(**platform: Any) -> RecordedHost:
    known = {"os": "linux", "machine": "x86_64", "release": "6.1", "user": "hanna"}
    return RecordedHost(
        {
            "platform": {"answer": {**known, "home": "/home/hanna", **platform}},
            "environ": {"answer": {}},
            "read /proc/sys/kernel/hostname": {"answer": "gpu-box-7\n"},
        }
    )


def _replaced(text: str, answers: dict[str, object] | None = None, **platform: Any) -> str:
    """`text` without the identity of a machine with these answers."""
    known = _host(**platform).answers
    found = {name: {"answer": answer} for name, answer in (answers or {}).items()}
    return anonymous(RecordedHost({**known, **found}))(text)


@pytest.mark.parametrize(
    ("os", "home", "text", "shown"),
    [
        ("windows", "D:\\data\\hw", "D:\\data\\hw\\venv", "C:\\Users\\user\\venv"),
        ("macos", "/Volumes/x/hw", "/Volumes/x/hw/venv", "/Users/user/venv"),
        ("linux", "/lustre/hw/", "/lustre/hw/venv", "/home/user/venv"),
        ("linux", "/lustre/hw", "/lustre/hw2/x /lustre/hw-a", "/lustre/hw2/x /lustre/hw-a"),
        ("linux", "/w", "/w/venv", "/home/user/venv"),
        ("linux", "/lustre/X", "/lustre/X/venv", "/home/user/venv"),
    ],
)
def test_the_own_home_is_known_wherever_it_is(os: str, home: str, text: str, shown: str) -> None:
    assert _replaced(text, os=os, home=home) == shown


def test_users_are_known_by_the_environment() -> None:
    names = {"USER": "karla", "SUDO_USER": "lenno", "COMPUTERNAME": "DESKTOP-77"}
    root = {"user": "root", "home": "/root"}
    assert _replaced("karla lenno DESKTOP-77", {"environ": names}, **root) == "user user host"
    assert _replaced("karla XXXX yyyy", {"environ": {}}, **root) == "karla XXXX yyyy"


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("gpu-box-7.example.org", "gpu-box-7.example.org, gpu-box-7", "host, host"),
        ("abc", "/x/abc/y abc", "/x/abc/y abc"),
        ("abcd", "abcd-x", "host-x"),
        ("localhost", "localhost:80", "localhost:80"),
    ],
)
def test_the_name_of_the_machine(name: str, text: str, shown: str) -> None:
    assert _replaced(text, {"read /proc/sys/kernel/hostname": f"{name}\n"}) == shown


@pytest.mark.parametrize(
    ("user", "text", "shown"),
    [
        ("x", "/home/x/a /opt/x/y", "/home/user2/a /opt/x/y"),
        ("ab", "/scratch/ab/c abs", "/scratch/user/c abs"),
        ("bob", "bobsled /x/bob/y", "bobsled /x/user/y"),
        ("hans", "hans-models", "user-models"),
    ],
)
def test_a_short_name_is_replaced_between_separators_only(user: str, text: str, shown: str) -> None:
    assert _replaced(text, user=user, home="/root") == shown


def test_folders_of_users_and_projects_have_numbers_of_their_own() -> None:
    assert _replaced("petra's", {"list /Users": ["petra"]}) == "user2's"
    assert _replaced("/opt/x/y", {"list /home": ["x"]}) == "/opt/x/y"
    assert _replaced("/home/user7/a /home/.cache/a") == "/home/user7/a /home/.cache/a"
    assert _replaced("/data/home/acme/x /data/Users/b/x") == (
        "/data/home/project1/x /data/Users/project2/x"
    )
    texts = "/home/hanna/one/x /home/hanna/two/x /home/hanna/one/y"
    shown = "/home/user/project1/x /home/user/project2/x /home/user/project1/y"
    assert _replaced(texts) == shown


def test_people_are_accounts_from_1000_on() -> None:
    accounts = (
        "karl:x:1000:100:Karl:/lustre/kmeieX/:/bin/sh\nuwedoe:x:1002::Uwe:/h/uwedoe:/bin/sh\n"
        "outside9:x:60000:60000::/none:/x\nsystem9:x:999:1000::/none:/x\n"
    )
    shown = _replaced("karl kmeieX uwedoe outside9 system9", {"read /etc/passwd": accounts})
    assert shown == "user2 user3 user4 outside9 system9"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"vcs_info": {"vcs": "git"}}', "private1"),
        ('{"dir_info": {}}', "private1"),
        ('{"archive_info": {}}', "acme-model"),
        (None, "acme-model"),
    ],
)
def test_what_comes_from_a_repository_is_private(text: str | None, shown: str) -> None:
    answers: list[tuple[str, dict[str, Any]]] = [
        ("read /env/acme.model-0.1.dist-info/direct_url.json", {"answer": text}),
        ("read /env/dir_info.txt", {"answer": "dir_info"}),
    ]
    assert private_packages(answers)("acme-model") == shown
    assert private_packages(answers)("acmeXmodel") == "acmeXmodel"
    assert private_packages(answers[1:])("dir_info") == "dir_info"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/hanna/venv/bin/python", "/home/user/venv/bin/python"),
        ("/home/hanna", "/home/user"),
        ("/home/hannah/x", "/home/user2/x"),
        ("/home/bob/x", "/home/user2/x"),
        ("/home/bob/x /home/eve/y /home/bob/z", "/home/user2/x /home/user3/y /home/user2/z"),
        ("C:\\Users\\Eve Doe\\x", "C:\\Users\\user2\\x"),
        ("/Users/eve/x", "/Users/user2/x"),
        ("C:\\Users\\eve\\x", "C:\\Users\\user2\\x"),
        ("/mnt/c/Users/eve/x", "/mnt/c/Users/user2/x"),
        ("/home/linuxbrew/.linuxbrew/bin/gcc", "/home/linuxbrew/.linuxbrew/bin/gcc"),
        ("/home/hanna/secret-model/train.py", "/home/user/project1/train.py"),
        ("/home/hanna/.cache/x /home/hanna/venv/bin", "/home/user/.cache/x /home/user/venv/bin"),
        ("hannas-desktop HANNA", "users-desktop user"),
        ("https://example.org/home/x", "https://example.org/home/x"),
        ("/tmp/torchinductor_hanna/aotautograd", "/tmp/torchinductor_user/aotautograd"),
        ("/scratch/hanna/cache", "/scratch/user/cache"),
        ("lost contact to gpu-box-7: retry", "lost contact to host: retry"),
        ("gpu-box-71", "host1"),
        ("GPU-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d", "GPU-0"),
        ("MIG-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d", "MIG-0"),
        ("joanna", "joanna"),
        ("/workspace/acme-video/.venv/bin/python", "/workspace/project1/.venv/bin/python"),
        ("/data/teams/acme/venv/lib/x.so", "/data/project1/project2/venv/lib/x.so"),
        ("/data/users/eve/venv/bin/python", "/data/users/project1/venv/bin/python"),
        ("/mnt/d/ComfyUI/models/x, /srv/venv/bin", "/mnt/d/ComfyUI/models/x, /srv/venv/bin"),
        ("https://example.org/data/acme/x", "https://example.org/data/acme/x"),
        (
            "/usr/share/data/acme/x /workspace/train.py",
            "/usr/share/data/acme/x /workspace/train.py",
        ),
    ],
)
def test_identity_is_replaced(text: str, shown: str) -> None:
    assert anonymous(_host())(text) == shown


@pytest.mark.parametrize("user", ["root", "user", "torch", "x"])
def test_an_ordinary_word_as_user_name_mangles_nothing(user: str) -> None:
    replaced = anonymous(_host(user=user, home="/root"))
    for text in ("/root/venv", "/usr/lib/python3/torch", "the torch package", "/opt/x86_64"):
        assert replaced(text) == text or f"/{user}" in text


def test_every_text_of_the_facts_is_reached() -> None:
    facts = Facts(
        python=Python(path="/home/hanna/v/bin/python", site_packages=("/home/hanna/v/lib",)),
        gpus=(Gpu(uuid="GPU-5d4bd5f5-1cd4-44ba-ae3d-3a9a4b1f2c3d"),),
        env={"CC": "/home/hanna/gcc"},
        gaps={"torch": "/home/hanna/v cannot be read"},
    )
    shown = rewritten(facts, anonymous(_host()))
    assert "hanna" not in repr(shown)
    assert shown.python.site_packages == ("/home/user/project1/lib",)
    assert shown.gpus is not None
    assert shown.gpus[0].uuid == "GPU-0"


def test_walk_reaches_keys_too() -> None:
    assert walk({"a": ["a", {"a": ("a", 1, None)}]}, str.upper) == {
        "A": ["A", {"A": ["A", 1, None]}]
    }


def test_other_users_are_known_by_their_folders_and_as_root() -> None:
    answers = _host(user="root", home="/root").answers
    host = RecordedHost({**answers, "list /home": {"answer": ["bob", "grace.h"]}})
    replaced = anonymous(host)
    assert replaced("/scratch/bob/x /data/grace.h-models") == "/scratch/user2/x /data/user3-models"
    assert replaced("/root/.cache/x /root/secret/x") == "/root/.cache/x /root/project1/x"


def test_accounts_are_known_wherever_their_folders_are() -> None:
    accounts = (
        "root:x:0:0::/root:/bin/sh\nhanna:x:1001:1001:Hanna:/lustre/hweber:/bin/bash\n"
        "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\ndaemon2:x:65534:65534::/none:/x\nbroken\n"
    )
    answers = _host(user="root", home="/root").answers
    replaced = anonymous(RecordedHost({**answers, "read /etc/passwd": {"answer": accounts}}))
    assert replaced("/lustre/hweber/x, owner hanna") == "/lustre/user3/x, owner user2"
    assert replaced("sshd and daemon2 run") == "sshd and daemon2 run"


def test_packages_from_private_places_are_renamed() -> None:
    info = "read /env/acme_model-0.1.dist-info/direct_url.json"
    known = "read /env/diffusers-0.42.dist-info/direct_url.json"
    editable = {"answer": '{"url": "file:///srv/x", "dir_info": {"editable": true}}'}
    replaced = private_packages({info: editable, known: editable}.items())
    assert replaced("/env/acme_model-0.1.dist-info") == "/env/private1-0.1.dist-info"
    assert replaced("import acme-model; diffusers") == "import private1; diffusers"


class Pair(NamedTuple):
    one: str
    other: int


def test_a_result_is_disclosed_whole() -> None:
    value = {"a": [Pair("a", 1), ("a", None)], "b": Gpu(index=0, name="a"), "c": Verdict.OK}
    assert disclosed(value, str.upper) == {
        "A": [Pair("A", 1), ("A", None)],
        "B": Gpu(index=0, name="A"),
        "C": Verdict.OK,
    }
    assert type(disclosed(Pair("a", 1), str.upper)) is Pair
