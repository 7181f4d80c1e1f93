"""What a value of the config file may be, and how a mistake is told. No field of the config is named here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.status import ConfigError, printable

# A message is one line on a terminal; a list of known names longer than this is cut by nobody, so it is not printed.
MAX_LISTED_NAMES = 40
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Rule:
    """What one value may be: *expected* in words, and *accept*, which returns the value as we keep it.

    ``accept`` raises ValueError when the value is not right; the words of the error are not shown, *expected* is.
    """

    expected: str
    accept: Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a config file, for messages: *source* is the file, *field* the dotted path of the value."""

    source: str
    field: str = ""

    def at(self, key: str) -> Spot:
        """Return the spot of *key* inside this table."""
        return Spot(self.source, f"{self.field}.{key}" if self.field else key)

    def error(self, text: str) -> ConfigError:
        """Return an error of one line about this spot."""
        return ConfigError(f"{self.source}: {self.field}: {text}" if self.field else f"{self.source}: {text}")

    def wrong(self, value: object, expected: str) -> ConfigError:
        """Return the error that *value* stands here where *expected* should."""
        head = f"{self.source}: {self.field} = {shown(value)}"
        return ConfigError(f"{head}: expected {expected}")

    def accept(self, rule: Rule, value: object) -> object:
        """Return *value* as *rule* keeps it.

        Raises:
            ConfigError: the rule does not accept it.
        """
        try:
            return rule.accept(value)
        except ValueError:
            raise self.wrong(value, rule.expected) from None

    def check_known(self, table: Mapping[str, object], known: Iterable[str]) -> None:
        """Raise ConfigError for the first key of *table* that is not *known*, naming the nearest one that is."""
        names = tuple(known)
        for key in table:
            if key not in names:
                raise self.at(printable(key)).error(f"unknown; {_cure(key, names)}")

    def table(self, value: object) -> Mapping[str, object]:
        """Return *value* when it is a table of the file, else raise ConfigError."""
        if not isinstance(value, dict):
            raise self.wrong(value, f"a table, written [{self.field}]")
        return value


def shown(value: object) -> str:
    """Return *value* much as the file spells it, at most 64 characters, never more than one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{printable(value)}"' if isinstance(value, str) else printable(value)


def _cure(key: str, names: tuple[str, ...]) -> str:
    """Return what to write instead of the unknown *key*."""
    near = difflib.get_close_matches(key, names, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return "known here: " + (", ".join(sorted(names)[:MAX_LISTED_NAMES]) or "nothing")


def whole(low: int, high: int) -> Rule:
    """Return the rule of whole numbers from *low* to *high*, both included. true and 2.0 are none."""

    def accept(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Rule(f"a whole number from {low} to {high}", accept)


def number(low: float, high: float) -> Rule:
    """Return the rule of numbers from *low* to *high*; a NaN fails both comparisons and so is refused."""

    def accept(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Rule(f"a number from {low:g} to {high:g}", accept)


def yes_no() -> Rule:
    """Return the rule of true and false."""
    return Rule("true or false", _accept_bool)


def yes_no_auto() -> Rule:
    """Return the rule of true, false and "auto"."""
    return Rule('true, false or "auto"', lambda value: value if value == "auto" else _accept_bool(value))


def _accept_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(*words: str) -> Rule:
    """Return the rule of exactly these words."""

    def accept(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return Rule(" or ".join(f'"{word}"' for word in words), accept)


def text(pattern: str, expected: str) -> Rule:
    """Return the rule of strings that *pattern* matches as a whole; *expected* says the same in words."""
    compiled = re.compile(pattern)

    def accept(value: object) -> str:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            raise ValueError
        return value

    return Rule(expected, accept)


def whole_list(low: int, high: int, *, longest: int) -> Rule:
    """Return the rule of lists of 1 to *longest* whole numbers from *low* to *high*."""
    each = whole(low, high)

    def accept(value: object) -> tuple[object, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= longest:
            raise ValueError
        return tuple(each.accept(item) for item in value)

    return Rule(f"a list of 1 to {longest} whole numbers from {low} to {high}", accept)


def number_list(low: float, high: float, *, longest: int) -> Rule:
    """Return the rule of lists of 1 to *longest* numbers from *low* to *high*; a tuple, as a default is kept, counts as one."""
    each = number(low, high)

    def accept(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= longest:
            raise ValueError
        return tuple(each.accept(item) for item in value)

    return Rule(f"a list of 1 to {longest} numbers from {low:g} to {high:g}", accept)


def about(rule: Rule, why: str, *, unit: str = "", default: str = "") -> dict[str, Any]:
    """Return a field's metadata; *default* says in words what a computed default is."""
    return {"rule": rule, "why": why, "unit": unit, "default": default}


NAME = text(r"[A-Za-z0-9_.-]{1,64}", "1 to 64 letters, digits or _ . -")
