"""YAML with the lines of its values: brackets, quotes and texts over several lines, aliases."""

from __future__ import annotations

import pytest

from attn_doctor.configs.readers import yaml_lines
from tests.effort import at_most


def read(text: str) -> list[tuple[str, str, int]]:
    return [
        (".".join(one.path), one.value, one.line) for one in yaml_lines.entries(text) if one.value
    ]


def test_brackets_over_several_lines() -> None:
    text = 'command:\n  [\n    "python", # with ]\n    "main.py",\n    --listen,\n  ]\nlast: x\n'
    assert read(text) == [
        ("command.-", "python", 3),
        ("command.-", "main.py", 4),
        ("command.-", "--listen", 5),
        ("last", "x", 7),
    ]


def test_brackets_in_each_other() -> None:
    text = 'a: {b: [{c: d}, \'e, f\'], "g": h:i}\nport: ["80:80"]\n'
    assert read(text) == [
        ("a.b.-.c", "d", 1),
        ("a.b.-", "e, f", 1),
        ("a.g", "h:i", 1),
        ("port.-", "80:80", 2),
    ]


def test_texts_that_go_on() -> None:
    text = "a: python main.py\n  --one\n  --two\nb: 'it''s\n  c'\nd:\n  x y\nl:\n- e\n  f\n"
    assert read(text) == [
        ("a", "python main.py\n--one\n--two", 1),
        ("b", "it's\nc", 4),
        ("d", "x y", 7),
        ("l.-", "e\nf", 9),
    ]


def test_a_comment_behind_a_key() -> None:
    assert read("a: # b\n  c: d # e\n") == [("a.c", "d", 2)]


def test_aliases() -> None:
    text = (
        "x-base: &base\n  image: vllm\n  env: &env\n    A: 1\n    B: 2\n"
        "one:\n  <<: *base\n  image: mine\ntwo:\n  <<: [*base]\n  env:\n    <<: *env\n    A: 3\n"
    )
    found = read(text)[3:]
    assert found == [
        ("one.env.A", "1", 4),
        ("one.env.B", "2", 5),
        ("one.image", "mine", 8),
        ("two.image", "vllm", 2),
        ("two.env.B", "2", 5),
        ("two.env.A", "3", 13),
    ]


def test_templates_are_no_brackets() -> None:
    text = "a: {{ .Values.x }}\n{{- if .Values.y }}\nb: 1\n{{- end }}\n"
    assert read(text) == [("a", "{{ .Values.x }}", 1), ("b", "1", 3)]


@pytest.mark.parametrize("line", ["a: [\n", "- [a,\n", 'k: "\n', "a: {b: \n", "a: &x\n  b: *x\n"])
def test_what_does_not_end_takes_no_long_time(line: str) -> None:
    with at_most(5):
        yaml_lines.entries(line * 20_000)


def test_text_behind_a_closing_quote_is_no_yaml() -> None:
    with pytest.raises(yaml_lines.YamlError) as error:
        yaml_lines.entries('a: 1\nname: "x/y\n  arch: "z"\n')
    assert error.value.line == 2
    assert yaml_lines.entries("a: 'it''s'  # why\n")[0].value == "it's"
    assert yaml_lines.entries('a: "{{ x }}" b\n')
