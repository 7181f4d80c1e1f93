"""Claims about a report, as people write them on the command line: ``recovery_ms<=3000``. Pure; nothing is evaluated as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.status import ConfigError, printable

_FORM = re.compile(r"\s*([A-Za-z_]\w*(?:\.\w+)*)\s*(<=|>=|==|<|>)\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*")
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One comparison of a report's number, named by its keys with dots between them, with a limit."""

    text: str
    name: str
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        """Return whether *value* keeps the claim."""
        return _HOLDS[self.sign](value, self.limit)


def read_claim(text: str) -> Claim:
    """Return the claim that *text* makes.

    Raises:
        ConfigError: it is no NAME, one of <= >= == < >, and a number.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"--assert: expected NAME<=NUMBER (or >=, ==, <, >), for example recovery_ms<=3000, got {printable(text)}"
        )
    name, sign, number = found.groups()
    return Claim(text.strip(), name, sign, float(number))


def value_of(report: Mapping[str, Any], name: str) -> float | None:
    """Return the number called *name* in *report*, a truth as 1 or 0; None when that name has no number there.

    Raises:
        KeyError: there is no such name.
    """
    value: Any = report
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(name)
        value = value[part]
    return float(value) if isinstance(value, int | float) else None


def broken(claims: list[Claim], report: Mapping[str, Any]) -> list[str]:
    """Return a line for each claim that *report* breaks; a name without a number there breaks its claim.

    Raises:
        ConfigError: a name that the report does not have.
    """
    lines = []
    for claim in claims:
        try:
            value = value_of(report, claim.name)
        except KeyError:
            known = ", ".join(sorted(_names(report)))
            raise ConfigError(f"--assert {claim.text}: no {claim.name} in the report; it has {known}") from None
        if value is None or not claim.holds(value):
            lines.append(f"{claim.text}: it is {'none' if value is None else format(value, 'g')}")
    return lines


def _names(report: Mapping[str, Any], before: str = "") -> list[str]:
    """Return the dotted names of all numbers in *report*."""
    found: list[str] = []
    for name, value in report.items():
        if isinstance(value, Mapping):
            found += _names(value, f"{before}{name}.")
        elif isinstance(value, int | float):
            found.append(before + name)
    return found
