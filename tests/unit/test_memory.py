"""Shared memory of one epoch: populated, sealed, refused when it is more than there is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker import memory
from broker.memory import EpochMemory
from schemas.config import LeaseConfig, parse_config
from schemas.plan import Plan
from schemas.status import ConfigError
from stages.lane_plan import build_plan


def echo_plan(slots: int = 2) -> Plan:
    """Return the plan of one small lane."""
    text = f"[lane.echo]\nslots = {slots}\nmax_encoded_bytes = 65_536\n"
    return build_plan(parse_config(text, base=Path("/"), source="test"), {})


def test_the_arena_is_there_in_full() -> None:
    """Every page is allocated at the start, so that none is missing later."""
    made = EpochMemory(echo_plan())
    (arena,) = made.arenas

    status = os.fstat(arena)

    assert status.st_size == echo_plan().lanes[0].arena_bytes
    assert status.st_blocks * 512 >= status.st_size
    made.close()


def test_nobody_can_resize_it() -> None:
    """A truncated memfd kills those who map it."""
    made = EpochMemory(echo_plan())

    for descriptor in (made.board, *made.arenas):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 4096)
    made.close()


def test_its_descriptors_are_not_inherited_by_chance() -> None:
    """A child gets those that it is given."""
    made = EpochMemory(echo_plan())

    assert not any(os.get_inheritable(descriptor) for descriptor in (made.board, *made.arenas))
    made.close()


def test_closing_gives_it_back() -> None:
    """Twice does no harm."""
    made = EpochMemory(echo_plan())
    (arena,) = made.arenas
    made.close()
    made.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena)


def test_more_than_there_is_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naming the lane's key and the size."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)

    with pytest.raises(ConfigError, match=r"lane\.echo\.slots = 100: .* but 1 are available: lower slots"):
        EpochMemory(echo_plan(slots=100))


def test_a_machine_that_does_not_tell_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc there is nothing to compare with."""
    monkeypatch.setattr(memory, "available_bytes", lambda: None)

    EpochMemory(echo_plan()).close()


def test_leases_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their own keys, when the lanes alone would fit; each takes whole pages."""
    leases = LeaseConfig(count=3, frames=2, frame_bytes=5000)
    made = EpochMemory(echo_plan(), leases)
    assert [os.fstat(descriptor).st_size for descriptor in made.leases] == [2 * 8192] * 3
    for descriptor in made.leases:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 4096)
    made.close()
    assert made.leases == ()
    available = echo_plan().lanes[0].arena_bytes + 3 * 2 * 8192 - 1
    monkeypatch.setattr(memory, "available_bytes", lambda: available)

    with pytest.raises(ConfigError, match=r"leases: they take .* lower leases\.count, leases\.frames or leases\.frame_bytes"):
        EpochMemory(echo_plan(), leases)
