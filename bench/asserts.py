"""Claims about a report, for scripts: ``p99_us<=500``, ``ratios.tick_fused.value>=0.55``. Nothing is ever evaluated as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.status import ConfigError

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_CLAIM = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|==|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|true|false)\s*")
_WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class Claim:
    """One comparison of a figure, named by its dotted path, with a number."""

    text: str
    path: tuple[str, ...]
    sign: str
    bound: float

    def failure(self, report: Mapping[str, Any]) -> str:
        """Return why *report* does not keep the claim, "" when it does.

        Raises:
            ConfigError: the report has no figure of this name.
        """
        got = _find(report, self.path)
        # A percentile of too few samples is no figure: nothing can be claimed of it.
        if got is None or not _COMPARE[self.sign](float(got), self.bound):
            return f"{self.text}: it is {'not known' if got is None else f'{got:g}'}"
        return ""


def parse_claim(text: str) -> Claim:
    """Return the claim that *text* says.

    Raises:
        ConfigError: it is not NAME, a comparison and a number.
    """
    match = _CLAIM.fullmatch(text)
    if match is None:
        raise ConfigError(f"--assert {text!r}: expected NAME, one of {' '.join(_COMPARE)}, and a number, such as 'p99_us<=500'")
    name, sign, number = match.groups()
    return Claim("".join(match.groups()), tuple(name.split(".")), sign, _WORDS[number] if number in _WORDS else float(number))


def failures(claims: Sequence[Claim], report: Mapping[str, Any]) -> list[str]:
    """Return a line for each claim that *report* does not keep."""
    return [line for line in (claim.failure(report) for claim in claims) if line]


def _find(report: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    """Return the number at *path*, None where the report says that it is not known."""
    found: Any = report
    for at, name in enumerate(path):
        if not isinstance(found, Mapping) or name not in found:
            known = ", ".join(sorted(found)) if isinstance(found, Mapping) else "nothing below it"
            raise ConfigError(f"--assert {'.'.join(path)}: no {'.'.join(path[: at + 1])} in the report; there is {known}")
        found = found[name]
    if found is None or isinstance(found, bool | int | float):
        return found
    raise ConfigError(f"--assert {'.'.join(path)}: it is not a number")
