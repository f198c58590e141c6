"""What an installer reports is foreign text."""

from __future__ import annotations

import json

import pytest

from attn_doctor.fixes.distributions import Change, Installed
from attn_doctor.fixes.resolve import _from_pip, _Report
from attn_doctor.json_files import JsonError, decode


def test_the_report_of_pip() -> None:
    report = {"version": "1", "install": [{"metadata": {"name": "A_b", "version": "2", "x": 1}}]}
    found = _from_pip(decode(json.dumps(report), _Report), {"a-b": Installed("1", "")})
    assert found == [Change("a-b", "1", "2")]


@pytest.mark.parametrize(
    "report",
    ["[]", "{}", '{"install": 1}', '{"install": [1]}', '{"install": [{"metadata": {"name": 1}}]}'],
)
def test_an_odd_report_is_refused(report: str) -> None:
    with pytest.raises(JsonError):
        decode(report, _Report)
