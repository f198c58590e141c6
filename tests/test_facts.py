"""A snapshot survives JSON, and a gap is found by the name of its fact."""

from __future__ import annotations

import json
import types
import typing
from typing import Any

import msgspec
import pytest

from attn_doctor import facts
from attn_doctor.facts import Facts, Gpu, Torch


def filled(hint: Any, number: int = 1) -> Any:
    """A value of the type `hint` with every field filled, lists and groups included."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return filled(args[0], number)
    if origin in (typing.Union, types.UnionType):
        return filled(next(one for one in args if one is not type(None)), number)
    if origin is tuple:
        return (filled(args[0], 1), filled(args[0], 2))
    if origin is typing.Literal:
        return args[number % len(args)]
    if origin is dict:
        return {"CUDA_HOME": "/opt/cuda", "PATH": 'ä "quoted"\n'}
    if issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint(**{name: filled(one, number) for name, one in hints.items()})
    return {str: f"2.{number}0 ä\\", bool: number == 1, int: number, float: number / 2}[hint]


EVERYTHING: Facts = filled(Facts)


def decode(text: bytes) -> Facts:
    return msgspec.json.decode(text, type=Facts)


@pytest.mark.parametrize("snapshot", [EVERYTHING, Facts()], ids=["everything", "nothing"])
def test_round_trip(snapshot: Facts) -> None:
    assert decode(facts.to_json(snapshot)) == snapshot
    assert json.loads(facts.to_json(snapshot)) == json.loads(
        json.dumps(facts.to_builtins(snapshot))
    )


def test_filled_left_nothing_out() -> None:
    def empty(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [name for key, one in value.items() for name in empty(one, f"{path}.{key}")]
        if isinstance(value, (list, tuple)):
            return [name for one in value for name in empty(one, path)]
        return [path] if value is None else []

    assert empty(facts.to_builtins(EVERYTHING), "") == []


def test_versions_stay_text() -> None:
    snapshot = Facts(torch=Torch(version="2.10"), gpus=(Gpu(compute_capability="12.0"),))
    again = decode(facts.to_json(snapshot))
    assert again.torch.version == "2.10"
    assert again.gpus is not None
    assert again.gpus[0].compute_capability == "12.0"


def test_unknown_and_none_differ() -> None:
    again = decode(facts.to_json(Facts(gpus=(), shadowing_libraries=None)))
    assert again.gpus == ()
    assert again.shadowing_libraries is None


def test_facts_of_a_newer_version_are_passed_over() -> None:
    plain = facts.to_builtins(EVERYTHING)
    plain["quantum"] = {"installed": True}
    plain["torch"]["newer"] = ["x"]
    plain["gpus"][0]["newer"] = 1
    assert decode(json.dumps(plain).encode()) == EVERYTHING


def test_facts_of_an_older_version_are_unknown() -> None:
    assert decode(b'{"torch": {"installed": true}}') == Facts(torch=Torch(installed=True))


@pytest.mark.parametrize(
    "text", [b'{"torch": {"version": 2.10}}', b'{"gpus": [{"sm": "89"}]}', b"[]", b"{"]
)
def test_a_fact_of_the_wrong_kind_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text)


def test_facts_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Facts().torch = Torch()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch.version", "no Version line"),
        ("torch.cuda", "torch took too long"),
        ("torch", "torch took too long"),
        ("torchvision.version", ""),
        ("triton.version", ""),
    ],
)
def test_gap_is_the_facts_own_or_that_of_its_probe(name: str, reason: str) -> None:
    snapshot = Facts(gaps={"torch.version": "no Version line", "torch": "torch took too long"})
    assert snapshot.gap(name) == reason
