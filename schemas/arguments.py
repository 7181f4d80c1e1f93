"""What a program gives to a client or a pipeline, checked: its mistakes are told by argument, what it takes and what came.

A value of the wrong kind is a TypeError, as everywhere in Python. A text that no message can carry is a RequestError: it may come
from the line, not from the program. Nothing of the wire or of a model is known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

import numpy as np

from .status import Code, RequestError, printable

MAX_TIMEOUT_S = 1e6
MOST_SECONDS = 1e9


def wrong_kind(field: str, expected: str, got: object) -> TypeError:
    """Return the error of an argument of the wrong kind."""
    shown = type(got).__name__ if got is None or isinstance(got, Mapping) else f"{type(got).__name__} {printable(repr(got))}"
    return TypeError(f"{field}: expected {expected}, got {shown}")


def whole_number(value: Any, field: str) -> int:
    """Return an int; a numpy integer is one too, True and 1.0 are not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise wrong_kind(field, "a whole number", value)
    return int(value)


def truth(value: Any, field: str) -> bool:
    """Return True or False; a text such as "no" would count as True otherwise."""
    if not isinstance(value, bool | np.bool_):
        raise wrong_kind(field, "True or False", value)
    return bool(value)


def seconds(value: Any, field: str) -> float:
    """Return a time to wait: one that is over is 0, one without end many years.

    Raises:
        TypeError: it is no number.
        ValueError: it is NaN.
    """
    if isinstance(value, bool | str | bytes) or not isinstance(value, SupportsFloat):
        raise wrong_kind(field, "a number of seconds", value)
    number = float(value)
    if math.isnan(number):
        raise ValueError(f"{field}: expected a number of seconds, got nan")
    return min(max(number, 0.0), MOST_SECONDS)


def timeout_ns(value: Any, field: str) -> int:
    """Return a client's patience in nanoseconds.

    Raises:
        TypeError: it is no number.
        ValueError: it is not more than 0 and less than a million seconds.
    """
    number = seconds(value, field)
    if not 0 < number < MAX_TIMEOUT_S:
        raise ValueError(f"{field}: expected more than 0 and less than 1e6 seconds, got {value}")
    return int(number * 1e9)


def check_endpoint(value: Any) -> None:
    """Raise TypeError or ValueError for what no socket can be told."""
    if not isinstance(value, str):
        raise wrong_kind("endpoint", 'a text such as "ipc://run/slotline.ipc"', value)
    if "\0" in value or value != value.encode("utf-8", "ignore").decode():
        raise ValueError(f"endpoint: expected Unicode without zeros, got {printable(value)}")


def text(value: Any, field: str, code: Code = Code.BAD_PARAM) -> str:
    """Return a text that a message can carry.

    Raises:
        RequestError: *code*; a half of a surrogate pair, which no UTF-8 has.
    """
    if not isinstance(value, str):
        raise wrong_kind(field, "a text", value)
    return writable(value, field, code)


def name(value: Any, field: str) -> str:
    """Return a name that a message can carry.

    Raises:
        RequestError: BAD_NAME; it is no text, an empty one, or not Unicode.
    """
    if not isinstance(value, str) or not value:
        raise RequestError(Code.BAD_NAME, field=field, expected="a name", got=printable(value))
    return writable(value, field, Code.BAD_NAME)


def writable(value: str, field: str, code: Code) -> str:
    """Return *value* once it is known that UTF-8 has it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        expected = f"Unicode, and {printable(value[error.start])} is half a character"
        message = f"{printable(field)}: expected {expected}, got {printable(value)}"
        raise RequestError(code, field=field, message=message) from None
    return value


def check_mapping(inputs: object) -> None:
    """Raise TypeError unless *inputs* is a mapping: a program's own mistake, like an unknown option."""
    if not isinstance(inputs, Mapping):
        got = type(inputs).__name__
        raise TypeError(f'inputs: expected a mapping from name to value, such as {{"image": Encoded(content)}}, got {got}')


def check_requests(inputs: object) -> None:
    """Raise TypeError for the inputs of many requests that are those of one, or cannot be gone through."""
    if isinstance(inputs, Mapping | str | bytes) or not hasattr(inputs, "__iter__"):
        raise TypeError(f"inputs: expected a sequence of mappings, one for each request, got {type(inputs).__name__}")
