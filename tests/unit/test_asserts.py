"""Claims about a report: what they may say, and when they hold."""

from __future__ import annotations

import pytest

from bench.asserts import broken, read_claim
from schemas.status import ConfigError

REPORT = {"recovery_ms": 12.5, "balanced": True, "none": None, "load": {"late_ms": 3}, "scenario": "kill"}


@pytest.mark.parametrize(
    "text",
    [
        "recovery_ms<=12.5",
        "recovery_ms >= 12.5",
        "recovery_ms==12.5",
        "recovery_ms<13",
        "recovery_ms>1e1",
        "load.late_ms>-1",
        "balanced==1",
    ],
)
def test_what_holds_breaks_nothing(text: str) -> None:
    """Every comparison, spaces, exponents, names with dots, truths."""
    assert broken([read_claim(text)], REPORT) == []


@pytest.mark.parametrize(
    "text", ["recovery_ms<=12.4", "recovery_ms>=12.6", "recovery_ms==12", "recovery_ms<12.5", "recovery_ms>12.5"]
)
def test_what_does_not_hold_is_told_with_its_value(text: str) -> None:
    """One line each."""
    assert broken([read_claim(text)], REPORT) == [f"{text}: it is 12.5"]


def test_a_number_that_is_not_there_breaks_its_claim() -> None:
    """Nothing was killed, so nothing recovered: the claim proves nothing."""
    assert broken([read_claim("none<=5"), read_claim("scenario==1")], REPORT) == [
        "none<=5: it is none",
        "scenario==1: it is none",
    ]


def test_an_unknown_name_is_one_line_with_the_known_ones() -> None:
    """A typing error must not pass."""
    with pytest.raises(ConfigError, match=r"no recovery in the report; it has balanced, load\.late_ms, recovery_ms"):
        broken([read_claim("recovery<=5")], REPORT)


@pytest.mark.parametrize(
    "text", ["", "ok", "ok<", "<5", "ok<>5", "ok=5", "ok<5;", "__import__('os')<5", "ok<5 and lost<1", "ok<five", "a..b<1"]
)
def test_anything_else_is_refused(text: str) -> None:
    """It is compared, never evaluated."""
    with pytest.raises(ConfigError, match="--assert: expected NAME<=NUMBER"):
        read_claim(text)
