"""Secrets that must not leave the machine, and values that must stay readable."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_doctor.clean import is_clean
from attn_doctor.redact import HIDDEN, presentable, redact, redact_all, redact_arguments

WORD = "aB3" * 12
#: The shortest word that may be random.
RANDOM = "qK3vX9pLr2TzW8mNb5YcD7hF"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://ada:secret@example.org/simple", "https://***@example.org/simple"),
        ("https://ghx@example.org/simple", "https://***@example.org/simple"),
        ("redis://:hunter2@cache:6379/0", "redis://***@cache:6379/0"),
        ("a=https://u:p@x b=ftp://u:p@y/z", "a=https://***@x b=ftp://***@y/z"),
        ("https://x/f?access_token=abc&page=2", "https://x/f?access_token=***&page=2"),
        ("https://x/f?X-Amz-Signature=0a1b", "https://x/f?X-Amz-Signature=***"),
        ("hf_" + WORD, HIDDEN),
        ("--token hf_" + WORD + " --jobs 4", "--token *** --jobs 4"),
        ("ghp_" + WORD, HIDDEN),
        ("github_pat_" + WORD, HIDDEN),
        ("sk-proj-" + WORD, HIDDEN),
        ("glpat-" + WORD, HIDDEN),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
        ("nvapi-" + WORD, HIDDEN),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", HIDDEN),
        ("KEY=0123456789abcdef0123456789abcdef", "KEY=***"),
        ("HF_TOKEN=\\\n  hunter2abc run", "HF_TOKEN=\\\n  *** run"),
        ("MY_SECRET=\\\r\nplainword\nnext=3", "MY_SECRET=\\\r\n***\nnext=3"),
    ],
)
def test_cut(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0,1",
        "/usr/local/cuda-12.8",
        "/nix/store/0q1v8b1w5zr0xxjf4y2bq2dkz5p9r3aa-python3-3.12.3/lib",
        "/home/ada/.cache/huggingface/hub/snapshots/0123456789abcdef0123456789abcdef01234567",
        r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.8;D:\tools\Windows11SDK64BitBin",
        "GPU-8f0c6b0e-2c2f-4b43-9d1b-0c8b8a3f4f11",
        "MIG-8f0c6b0e-2c2f-4b43-9d1b-0c8b8a3f4f11,GPU-1f0c6b0e-2c2f-4b43-9d1b-0c8b8a3f4f11",
        "GPU-01234567-89ab-cdef-0123-456789abcdef",
        "/home/Ada/0q1V8b1W5zr0XXjf4y2bQ2dkz5p9r3aa/lib",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        "pyjwt==2.10.1 \\",
        "--python /etc/passwd: /etc/passwd is not a Python interpreter",
        "flask-jwt==1.0.0rc1; python_version >= '3.10'",
        "ÄÖÜäöüéèê0123456789abcdefABCDEFÀÉÈ",
        # A digest or a commit stays, because a token that looks like one shows by its name.
        "0123456789abcdef" * 2,
        "_sage_qk_int8_pv_fp8_cuda_sm90_with_a_longer_name",
        "expandable_segments:True,max_split_size_mb:512,garbage_collection_threshold:0.8",
        "-gencode arch=compute_90,code=sm_90 --compiler-bindir=/usr/bin/g++-12",
        "7.5;8.0;8.6;8.9;9.0a;10.0+PTX;12.0",
        "--attention_mechanism=flex --gradient_checkpointing=true --mixed_precision=bf16",
        "redis://cache:6379/0",
        "/ɥoɯǝ/ädä/torch 2",
    ],
)
def test_kept(text: str) -> None:
    assert redact(text) == text


def test_random_text_is_cut() -> None:
    source = random.Random(7)
    secrets = [base64.b64encode(source.randbytes(48)).decode() for _ in range(500)]
    assert sum(redact(one) == HIDDEN for one in secrets) > 480


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_becomes_clean_and_stays_so(text: str) -> None:
    once = presentable(text)
    assert presentable(once) == once
    assert is_clean(once.replace("\n", "").replace("\t", ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # After a colon and a blank, as in prose, a value is long, or has a digit.
        ("token: abcdefg1", "token: ***"),
        ("token: abcdefghijabcdefghij", "token: ***"),
        ("Bearer abcdefg1", "Bearer ***"),
        ("bearer abcdefghijabcdefghij", "bearer ***"),
        ("token=abc", "token=***"),
        ("token=keys", "token=***"),
        ("token='abc d' x", "token='***' x"),
        ("(token=abc123), x", "(token=***), x"),
        ("'api_key': 'abc'},", "'api_key': '***'},"),
        ("credentials: abc", "credentials: ***"),
        ("KEY: abcdefg1", "KEY: ***"),
        ("pwd=abc", "pwd=***"),
        ("--token abc", "--token ***"),
        ("password_2=abc", "password_2=***"),
        ("password_b64: abc", "password_b64: ***"),
        ("api_key_value=abc", "api_key_value=***"),
        ("curl -u a:b x", "curl -u a:*** x"),
        ("login -p abc x", "login -p *** x"),
        ("password abc", "password ***"),
        ("private-token: abc", "private-token: ***"),
        ("https://git:pw@example.org/x", "https://***@example.org/x"),
        ("next=a%2Fb%26token%3Dabc123", "next=a/b&token=***"),
        (r"https:\/\/ada:pw@h\/x", "https://***@h/x"),
        (
            "-----BEGIN X PRIVATE KEY-----\nx\n-----END X PRIVATE KEY-----\nb",
            "*** (private key)\nb",
        ),
        ("Private-Lines: 2\na\nb\nPrivate-MAC: 1\n", "Private-Lines: 2 ***\nPrivate-MAC: 1\n"),
        ("ghp_" + "a" * 16, HIDDEN),
        (f"x {RANDOM}", f"x {HIDDEN}"),
        (f"sha256 {RANDOM}", f"sha256 {HIDDEN}"),
        (f"x/{RANDOM}==", HIDDEN),
        (rf"a\n{RANDOM}", rf"a\n{HIDDEN}"),
        # One sign alone: no other word of the text makes it be searched.
        ("x-foo-key: abc", "x-foo-key: ***"),
        ("Basic abcdefg1", "Basic ***"),
        ("curl --user a:bcd x", "curl --user a:*** x"),
        ("jwt=abc", "jwt=***"),
        ("my_pat=abc", "my_pat=***"),
        ("my_pat: 'abc'", "my_pat: '***'"),
        ("--my-pat abc", "--my-pat ***"),
        ('{"my_pat": "abc"}', '{"my_pat": "***"}'),
        ("pwd=Xyz", "pwd=***"),
        ("page=token%3dabc123", "page=token=***"),
        (r"\x22ghp_" + "a" * 16, rf"\x22{HIDDEN}"),
        (r"\u0022ghp_" + "a" * 16, rf"\u0022{HIDDEN}"),
        ("[31mghp_" + "a" * 16, f"[31m{HIDDEN}"),
        # A line breaks in it: after 12 letters, before 5, which change once.
        ("hf_qK3vX9pLr\n2TzW8mNb5YcD7hF", HIDDEN),
        ("hf_qK3vX9pLr2TzW8\nmNb5Y", HIDDEN),
        ("hf_qK3vX9pLr2TzW8\nmmmm5", HIDDEN),
        (r"hf_qK3vX9pLr2TzW8\nmNb5Y", HIDDEN),
        # The shortest of those that have no mark.
        (f"M{'abcd' * 5}abc.abcdef.{'abc' * 9}", HIDDEN),
        # Encoded more often than anyone reads.
        ("a%2525252541b", HIDDEN),
        ("a%2525252Fb", HIDDEN),
        ("a%2525252fb", HIDDEN),
        # 11 changes in 24 letters; 18 in 41, which is the limit of 0.45.
        ("aB3cdEFgh45ijKLmn67opqrs", HIDDEN),
        ("BcdEfghIJklMNopQRstUVwxYZ0123ab45CD67efgh", HIDDEN),
        # 3.5 bits for each letter, which is the limit.
        ("a1Jk2bE1kJ2cF1Jk2dG1kJ2aHbEcFdGH", HIDDEN),
    ],
)
def test_names_places_and_random_words_tell(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "token: abcdef1",
        "token: abcdefgh",
        "token: abcdefghijabcdefghi",
        "Bearer abcdefgh",
        "token=hf_token",
        "token=my_key2",
        "token=the-password",
        "pwd=/home/x",
        "db_pwd=~/x",
        r"pwd=\\srv\x",
        "my key: abcdefg1",
        "cache_key=abcdefg1",
        "token_count=5",
        "--token --other",
        "x password abc",
        "-p abc",
        "auth: none",
        "see /etc/passwd: x",
        "/etc/passwd: x",
        "https://git@example.org/x",
        "https://…@example.org/x",
        "100%25",
        "--pat abc",
        "hf_qK3vX9pLr2TzW8\nmodel",
        "aB3cdEFgh45ijKLmnopqrs67",  # 10 changes
        "a%2Fb",
        r"a\/b",
        "ghp_" + "a" * 15,
        "xghp_" + "a" * 16,
        f"x {RANDOM[:-1]}",
        f"sha256:{RANDOM}",
        f"sha512-{RANDOM}",
        RANDOM.lower(),
        RANDOM.upper(),
        "qvxprtzwqKvxprtz0123abcd",  # few changes
        "aB3" * 8,  # a repetition
    ],
)
def test_what_tells_nothing_stays(text: str) -> None:
    assert redact(text) == text


def test_data_and_arguments() -> None:
    token = "ghp_" + "a" * 16
    data = {"a": ("b", ["--token", "x"]), 1: token, token: None, "n": 1.5, "e": [], "m": ["a", 1]}
    assert redact_all(data) == {
        "a": ["b", ["--token", HIDDEN]],
        1: HIDDEN,
        HIDDEN: None,
        "n": 1.5,
        "e": [],
        "m": ["a", 1],
    }
    assert redact_all({"hub_token": "x", "page": "x", "name": {"token": "y"}}) == {
        "hub_token": HIDDEN,
        "page": "x",
        "name": {"token": HIDDEN},
    }
    assert redact_all({"api_key": ["x", ["y"], None], "token": [1]}) == {
        "api_key": [HIDDEN, [HIDDEN], None],
        "token": [1],
    }
    words = ["a", "--token", "b", "--token", "--c", "token", "d", "--token", ""]
    assert redact_arguments(words) == ["a", "--token", HIDDEN, *words[3:]]
