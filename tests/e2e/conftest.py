"""Fixtures shared by all tests with real processes."""

from __future__ import annotations

from places import make_server, place

__all__ = ["make_server", "place"]
