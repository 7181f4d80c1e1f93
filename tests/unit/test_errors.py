"""What takes the place of a result when there is none."""

from __future__ import annotations

import pytest

from clients.errors import RAISE, ConnectionLost, SlotlineError, fail_safe

ERROR = ConnectionLost("gone")


def test_a_value_is_returned_as_it_is() -> None:
    """None is one too."""
    assert fail_safe("NG", ERROR) == "NG"
    assert fail_safe(None, ERROR) is None


def test_a_function_gets_the_error() -> None:
    """And its result is returned."""
    assert fail_safe(lambda error: (error, "NG"), ERROR) == (ERROR, "NG")


def test_without_either_the_error_is_raised() -> None:
    """The default."""
    with pytest.raises(SlotlineError, match="gone"):
        fail_safe(RAISE, ERROR)
