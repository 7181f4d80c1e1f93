"""A server that could not open its own sockets refuses to start."""

from __future__ import annotations

import resource

import pytest
from builders import make_plan

from broker.descriptors import check_descriptors
from schemas.status import ConfigError


@pytest.mark.parametrize("most", [0, 24, 43])
def test_a_limit_below_what_it_needs_is_refused_with_the_cure(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of its own and four for its one worker."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (most, most))

    with pytest.raises(ConfigError, match=f"only {most} open files are allowed and 44 are needed .*: raise the hard limit"):
        check_descriptors(make_plan("[lane.a]"))


@pytest.mark.parametrize("most", [44, resource.RLIM_INFINITY])
def test_enough_is_enough(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when there is no limit, which the system writes as -1."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (20, most))

    check_descriptors(make_plan("[lane.a]"))
