"""Claims about a report: read, compared, refused; never run as code."""

from __future__ import annotations

import pytest

from bench.asserts import failures, parse_claim
from schemas.status import ConfigError

REPORT = {"p99_us": 500.0, "errors": 0, "p999_us": None, "stable": True, "ratios": {"tick_fused": {"value": 0.6}}, "note": "text"}


@pytest.mark.parametrize(
    "text",
    ["p99_us<=500", "p99_us >= 500", "p99_us==5e2", "errors<1", "ratios.tick_fused.value>0.55", "errors>-1", "stable==true"],
)
def test_a_claim_that_holds_says_nothing(text: str) -> None:
    """Every comparison, a path with dots, spaces, signs and exponents."""
    assert failures([parse_claim(text)], REPORT) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p99_us<500", "p99_us<500: it is 500"),
        ("ratios.tick_fused.value >= 1", "ratios.tick_fused.value>=1: it is 0.6"),
        ("p999_us<1e9", "p999_us<1e9: it is not known"),
    ],
)
def test_a_claim_that_fails_is_one_line_with_the_figure(text: str, line: str) -> None:
    """A percentile that has too few samples keeps no claim."""
    assert failures([parse_claim(text)], REPORT) == [line]


@pytest.mark.parametrize(
    "text", ["", "p99_us", "p99_us<=", "p99_us<=x", "500>=p99_us", "p99_us=<5", "__import__('os')<1", "a<1;b<2"]
)
def test_what_is_no_claim_is_refused(text: str) -> None:
    """With what a claim looks like."""
    with pytest.raises(ConfigError, match=r"--assert .*expected NAME, one of .* and a number"):
        parse_claim(text)


@pytest.mark.parametrize(
    ("text", "match"),
    [("p98_us<1", "no p98_us in the report; there is errors"), ("p99_us.x<1", "nothing below it"), ("note<1", "not a number")],
)
def test_an_unknown_name_is_an_error(text: str, match: str) -> None:
    """A typing mistake must not pass as a claim that holds."""
    with pytest.raises(ConfigError, match=match):
        failures([parse_claim(text)], REPORT)
