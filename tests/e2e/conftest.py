"""Fixtures shared by all tests with real processes."""

from __future__ import annotations

import pytest

# So that a failed assertion in a helper shows its values too.
pytest.register_assert_rewrite("raw_client", "load", "demo_load", "server", "guarded_server", "places")
pytest.register_assert_rewrite(
    "foreign_cases", "foreign_connections", "foreign_deaths", "foreign_keys", "foreign_lanes", "foreign_probe"
)

from machines import machine  # noqa: E402
from places import make_server, place  # noqa: E402

__all__ = ["machine", "make_server", "place"]
