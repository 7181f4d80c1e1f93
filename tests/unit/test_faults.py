"""Faults on demand: which processes have one, and when it strikes. The actions themselves are proved by tests/e2e."""

from __future__ import annotations

import pytest

from schemas.status import ConfigError
from stages import faults
from stages.faults import fault_hook


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions done, instead of doing them to this process."""
    done: list[str] = []
    monkeypatch.setattr(faults, "_ACTIONS", {name: lambda name=name: done.append(name) for name in ("kill", "stop", "stall")})
    return done


def test_without_the_variable_there_is_no_hook() -> None:
    """The worker then has nothing to call."""
    assert fault_hook("ticks.0", {}) is None


def test_another_process_has_no_hook() -> None:
    """PROCESS is the beginning of a name."""
    assert fault_hook("qc.infer.0", {"SLOTLINE_FAULT": "after_take:kill:1:ticks"}) is None


def test_it_strikes_at_each_nth_pass_of_its_point(struck: list[str]) -> None:
    """Other points do not count."""
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_write:stop:2:ticks"})
    assert hit is not None

    for point in ("after_write", "after_send", "after_take"):
        hit(point)
    assert struck == []
    for _ in range(3):
        hit("after_write")
    assert struck == ["stop", "stop"]


def test_it_strikes_at_intervals(struck: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first counts from the first pass, the next from the one before."""
    now_ns = 5_000_000
    monkeypatch.setattr("stages.faults.time.monotonic_ns", lambda: now_ns)
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_send:stall:3ms"})
    assert hit is not None

    found = []
    for at_ns in (5_000_000, 7_999_999, 9_000_000, 9_000_000, 11_999_999, 12_000_000):
        now_ns = at_ns
        hit("after_send")
        found.append(len(struck))
    assert found == [0, 0, 1, 1, 1, 2]


def test_a_process_may_have_several_faults(struck: list[str]) -> None:
    """Each counts for itself."""
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_take:kill:1:qc,after_take:stop:1,after_send:stall:2:ticks"})
    assert hit is not None

    for point in ("after_take", "after_send", "after_send"):
        hit(point)

    assert struck == ["stop", "stall"]


@pytest.mark.parametrize(
    "text", ["after_take", "after_take:kill", "nowhere:kill:1", "after_take:burn:1", "after_take:kill:x", ","]
)
def test_a_text_that_cannot_be_understood_is_refused(text: str) -> None:
    """A typing error must not make a chaos run pass."""
    with pytest.raises(ConfigError, match="expected POINT:ACTION:N"):
        fault_hook("ticks.0", {"SLOTLINE_FAULT": text})
