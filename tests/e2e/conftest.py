"""Fixtures shared by all tests with real processes."""

from __future__ import annotations

import pytest

# So that a failed assertion in a helper shows its values too.
pytest.register_assert_rewrite("raw_client", "load", "demo_load", "server", "places")

from machines import machine  # noqa: E402
from places import make_server, place  # noqa: E402

__all__ = ["machine", "make_server", "place"]
