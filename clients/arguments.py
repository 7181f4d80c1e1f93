"""Numbers and texts of one call, checked before anything is done for it. Their kinds are in ``schemas/arguments.py``."""

from __future__ import annotations

from schemas.arguments import text, whole_number
from schemas.status import Code, RequestError, printable

from .errors import refused_here

MAX_U64 = (1 << 64) - 1


def model_text(model: object) -> str:
    """Return a model's name as a question can carry it.

    Raises:
        RequestRefused: it is not Unicode.
        TypeError: it is no text.
    """
    try:
        return text(model, "model", Code.BAD_NAME)
    except RequestError as error:
        raise refused_here(error) from None


def check_budget(budget_us: object) -> int:
    """Return the budget of a call before anything is done for it.

    Raises:
        RequestRefused: it is negative, or no request can say it.
        TypeError: it is no whole number.
    """
    try:
        return checked_number(budget_us, "budget_us")
    except RequestError as error:
        raise refused_here(error) from None


def checked_number(value: object, field: str, *, least: int = 0, most: int = MAX_U64) -> int:
    """Return a number of the route.

    Raises:
        RequestError: BAD_PARAM; it is out of range.
        TypeError: it is no whole number.
    """
    number = value if type(value) is int else whole_number(value, field)
    if not least <= number <= most:
        raise RequestError(Code.BAD_PARAM, field=field, expected=f"{least} to {most}", got=printable(number))
    return number
