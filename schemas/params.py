"""Named parameters of a message: a dict in Python, a vector of ``Param`` tables on the wire (a union would not be portable)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from schemas.status import Code, RequestError, printable

ParamValue = bool | int | float | str
Params = Mapping[str, ParamValue]


class ParamType(IntEnum):
    """Which value of a ``Param`` counts."""

    UNSET = 0
    BOOL = 1
    INT = 2
    DOUBLE = 3
    TEXT = 4


def read_params(tables: list[Any] | None) -> dict[str, ParamValue]:
    """Return the parameters of verified ``Param`` *tables*; {} for none.

    Raises:
        RequestError: BAD_PARAM for an empty or repeated name, an unknown type, a Bool beside 0 and 1, NaN or an infinity.
    """
    params: dict[str, ParamValue] = {}
    for name, ptype, int_value, double_value, text in tables or ():
        if not name or name in params:
            raise RequestError(Code.BAD_PARAM, field=printable(name) or "params", expected="a name used once")
        if ptype == ParamType.BOOL and int_value in (0, 1):
            params[name] = bool(int_value)
        elif ptype == ParamType.INT:
            params[name] = int_value
        elif ptype == ParamType.DOUBLE and math.isfinite(double_value):
            params[name] = double_value
        elif ptype == ParamType.TEXT:
            params[name] = text or ""
        else:
            got = f"type {ptype}, int {int_value}, double {double_value}"
            raise RequestError(Code.BAD_PARAM, field=printable(name), expected="a bool, int, finite double or text", got=got)
    return params


def nested(params: Params) -> dict[str, Any]:
    """Return "lane.qc.slots": 8 as {"lane": {"qc": {"slots": 8}}}; a lane's name may have dots, its counters have none."""
    tree: dict[str, Any] = {}
    for name, value in params.items():
        head, _, rest = name.partition(".")
        middle, _, last = rest.rpartition(".")
        place = tree
        for part in (head, middle) if middle else (head,) if rest else ():
            place = place.setdefault(part, {})
        place[last or head] = value
    return tree


def param_tables(params: Params) -> list[dict[str, Any]]:
    """Return *params* as the encoder takes ``Param`` tables."""
    return [{"name": name, **_value_fields(value)} for name, value in params.items()]


def _value_fields(value: ParamValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"ptype": ParamType.BOOL, "int_value": int(value)}
    if isinstance(value, int):
        return {"ptype": ParamType.INT, "int_value": value}
    if isinstance(value, float):
        return {"ptype": ParamType.DOUBLE, "double_value": value}
    return {"ptype": ParamType.TEXT, "text": value}
