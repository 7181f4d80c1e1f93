"""The memory that the broker may take: what the config says, or what its other limits come to."""

from __future__ import annotations

from pathlib import Path

from broker.limits import memory_limit_bytes
from schemas.config import parse_config

MIB = 1 << 20


def limit(server: str, lane: str = "") -> int:
    """Return the limit of a config with these lines in its [server] and its one lane."""
    text = f"[server]\n{server}\n[lane.a]\n{lane}"
    return memory_limit_bytes(parse_config(text, base=Path("/srv"), source="a.toml"))


def test_the_config_may_say_the_limit() -> None:
    """In MiB, whatever the rest says."""
    assert limit("memory_limit_mb = 300", "backlog = 1_000_000") == 300 * MIB


def test_without_one_it_has_room_for_everything_that_is_bounded() -> None:
    """Backlogs with their headers, and some slow clients."""
    least = limit("")

    assert least > 64 * MIB + 256 * 65_536 + 4 * (16 + 2 * 64) * MIB
    assert limit("", "backlog_bytes = 1_000_000_000") - least >= 1_000_000_000 - 64 * MIB
    assert limit("", "backlog = 10_000") - least >= 9_000 * 65_536
    assert limit("outbox_bytes = 100_000_000") - least >= 4 * (100_000_000 - 16 * MIB)
    assert limit("max_message_bytes = 100_000_000") - least >= 4 * (100_000_000 - 64 * MIB)
