"""Parameters are a dict of bool, int, float and str."""

from __future__ import annotations

import math
from typing import Any

import pytest
from headers import make_request

from schemas.layout import read_layout
from schemas.params import ParamType, param_tables
from schemas.status import Code, RequestError


def test_params_come_back_as_they_were_sent() -> None:
    """With their types: True is not 1, 1 is not 1.0."""
    sent = {"flag": True, "off": False, "count": 1, "low": -(2**63), "ratio": 1.0, "text": "käfer", "empty": ""}
    read = read_layout(make_request(params=param_tables(sent))).params

    assert read == sent
    assert [type(value) for value in read.values()] == [type(value) for value in sent.values()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "p", "ptype": ParamType.UNSET},
        {"name": "p", "ptype": 5},
        {"name": "p", "ptype": ParamType.BOOL, "int_value": 2},
        {"name": "p", "ptype": ParamType.DOUBLE, "double_value": math.nan},
        {"name": "p", "ptype": ParamType.DOUBLE, "double_value": math.inf},
    ],
)
def test_a_wrong_param_is_refused(wrong: dict[str, Any]) -> None:
    """Each with BAD_PARAM."""
    with pytest.raises(RequestError) as caught:
        read_layout(make_request(params=[wrong]))

    assert caught.value.code == Code.BAD_PARAM


def test_a_param_is_given_once() -> None:
    """The second one would win silently."""
    with pytest.raises(RequestError, match="p: expected a name used once"):
        read_layout(make_request(params=param_tables({"p": 1}) * 2))
