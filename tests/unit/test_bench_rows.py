"""The rows of a suite: their ratios, what makes them hold, and what they say."""

from __future__ import annotations

import pytest

from bench.rows import BARS, Figures, Row, chosen, outcome, table
from schemas.status import ConfigError

RATE = Row("rate", "ours", "limit", hold=0.5, reach=0.8, is_least=True, about="ours / limit", strict="strict")
MEMORY = Row("memory", "mib", "", hold=90, reach=60, is_least=False, about="MiB")


def figures(**values: list[float]) -> Figures:
    """Return figures with one value a round."""
    return Figures(dict(values))


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Taken within each round, with the smallest and the largest."""
    found = outcome(RATE, figures(ours=[50, 30, 66], limit=[100, 50, 110], strict=[200, 100, 220]))

    assert (found["value"], found["spread"], found["ok"], found["hold"], found["reach"]) == (0.6, [0.5, 0.6], True, 0.5, 0.8)
    assert found["strict"]["value"] == 0.3


def test_a_row_without_a_limit_is_the_figure_itself() -> None:
    """Less is better where the bound to reach is below the one to hold."""
    assert outcome(MEMORY, figures(mib=[91, 80, 85]))["ok"]
    assert not outcome(MEMORY, figures(mib=[91, 80, 95]))["ok"]


def test_a_run_that_lost_something_holds_nothing() -> None:
    """However fast it was; and too few samples for a percentile are a fault too."""
    measured = figures(limit=[100, 100])
    measured.add("ours", 90, "of 9 sent: 1 lost")
    measured.add("ours", 90)
    assert outcome(RATE, measured) | {"about": ""} == {
        "value": 0.9, "spread": [0.9, 0.9], "ok": False, "hold": 0.5, "reach": 0.8, "at_least": True, "about": "",
        "faults": ["of 9 sent: 1 lost"],
    }  # fmt: skip

    too_few = figures(limit=[100])
    too_few.add("ours", None)
    assert not outcome(RATE, too_few)["ok"]


def test_what_could_not_be_measured_is_skipped_with_the_reason() -> None:
    """It neither holds nor fails."""
    found = outcome(RATE, Figures(skipped={"limit": "not installed"}))

    assert (found["ok"], found["value"], found["skipped"]) == (None, None, "not installed")


def test_the_table_says_what_was_missed_and_skipped() -> None:
    """A line a row, and one more for the stricter limit."""
    measured = figures(ours=[10], limit=[100], strict=[1000])
    text = table({"rate": outcome(RATE, measured), "memory": outcome(MEMORY, Figures(skipped={"mib": "no server"}))})

    lines = text.splitlines()
    assert "0.10" in lines[1]
    assert "MISSED" in lines[1]
    assert "0.01 with strict" in lines[2]
    assert lines[3].endswith("skipped  no server")


def test_rows_are_chosen_by_name() -> None:
    """All without names; an unknown one is an error that lists them."""
    assert chosen(BARS, []) == list(BARS)
    assert [row.name for row in chosen(BARS, ["flat", "tail"])] == ["tail", "flat"]
    with pytest.raises(ConfigError, match="no speed; there are tick_fused, "):
        chosen(BARS, ["speed"])


def test_every_row_has_its_direction() -> None:
    """What is to be reached is better than what must hold."""
    assert all(row.is_least == (row.reach > row.hold) for row in BARS)
    assert [row.name for row in BARS if row.is_least] == ["tick_fused", "tick_stages", "tick_packed", "photo", "part", "flat"]
