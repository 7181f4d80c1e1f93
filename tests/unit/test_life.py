"""The table of a request's life is complete: each pair of state and event leads somewhere, or cannot happen for a reason."""

from __future__ import annotations

import pytest
from builders import make_request

from broker import life
from broker.life import Client

STATES, EVENTS = range(len(life.STATE_NAMES)), range(len(life.EVENT_NAMES))
ANSWERED = "it is answered, so nothing ends it again"
NO_SLOT = "it has no slot, so no hop speaks of it and no death concerns it"
NOT_WITH_STAGES = "its slot is with the broker: no hop is out, and no process holds it"
KEPT = "only what is with the stages comes back before its elder, and only what did is kept for it"
LATE = "its slot began a new generation, so its hops are late ones"
OVER = "it is over, and nothing refers to it any more"
ONLY_CONDEMNED = "only a condemned request is given up or falls quiet"
ONLY_QUEUED = "only what still waits in the backlog is superseded"
HAS_SLOT = "it has a slot; what is dispatched waits for one or for a process"
ENDS_EARLY = {life.EXPIRE, life.CANCEL, life.GONE, life.DRAIN, life.SUPERSEDE}
RETURNS = {life.RETURN_OK, life.RETURN_ERROR, life.NO_REPLICA}


def why_impossible(state: int, event: int) -> str:
    """Return why *event* cannot happen in *state*, "" when there is no reason."""
    if state == life.DONE:
        return OVER
    if state in (life.ORPHAN, life.CONDEMNED_ORPHAN) and event in ENDS_EARLY | {life.GIVE_UP}:
        return ANSWERED
    if event == life.DISPATCH and state not in (life.QUEUED, life.WAITING):
        return HAS_SLOT
    if event in RETURNS | {life.REAPED} and state not in (life.HELD, life.ORPHAN):
        return {life.QUEUED: NO_SLOT, life.WAITING: NOT_WITH_STAGES, life.KEPT: NOT_WITH_STAGES}.get(state, LATE)
    if (event == life.KEEP and state != life.HELD) or (event == life.RELEASE and state != life.KEPT):
        return KEPT
    if event in (life.GIVE_UP, life.QUIET) and state not in (life.CONDEMNED, life.CONDEMNED_ORPHAN):
        return ONLY_CONDEMNED
    return ONLY_QUEUED if event == life.SUPERSEDE and state != life.QUEUED else ""


@pytest.mark.parametrize("state", STATES, ids=life.STATE_NAMES)
def test_each_event_leads_somewhere_or_cannot_happen(state: int) -> None:
    """Never both, never neither. That the core does not reach what cannot happen is test_core_property's part."""
    for event in EVENTS:
        is_there = (state, event) in life.TRANSITIONS
        reason = why_impossible(state, event)
        assert is_there == (not reason), f"{life.STATE_NAMES[state]} x {life.EVENT_NAMES[event]}: {reason or 'no reason'}"


def test_the_fast_table_says_the_same() -> None:
    """-1 stands for impossible."""
    for state in STATES:
        for event in EVENTS:
            assert life.TABLE[state][event] == life.TRANSITIONS.get((state, event), -1)


def test_an_impossible_event_is_a_fault_that_names_both() -> None:
    """It ends the broker, whose state cannot be trusted then."""
    request = make_request(Client(b""), 1, state=life.DONE)

    with pytest.raises(AssertionError, match="DONE x expire"):
        request.step(life.EXPIRE)


def test_a_live_request_has_one_answer_before_it() -> None:
    """From each live state some event ends it or answers it; from the others no event makes it live again."""
    for (state, _), after in life.TRANSITIONS.items():
        if state not in life.LIVE:
            assert after not in life.LIVE
    for state in life.LIVE:
        assert any(life.TRANSITIONS.get((state, event), state) not in life.LIVE for event in ENDS_EARLY)


def test_every_state_can_be_reached_from_the_backlog() -> None:
    """A state that nobody enters would be a mistake in the table."""
    reached = {life.QUEUED}
    for _ in STATES:
        reached |= {after for (state, _), after in life.TRANSITIONS.items() if state in reached}

    assert reached == set(STATES)
