"""Which calls may be sent again when their connection ends, and with what budget; the others end as ever."""

from __future__ import annotations

from typing import Any

from client_helpers import MS, make_session, read, submit

from clients.errors import ConnectionLost, SlotlineError
from clients.resend import again, lose, not_taken_again, note
from clients.session import Outgoing, Session
from schemas.layout import read_layout, read_route
from schemas.messages import Health


def sent(session: Session, **options: Any) -> Outgoing:
    """Start a call, and note its message as a line does."""
    outgoing = submit(session, **options)
    note([outgoing.call], outgoing.header, outgoing.frames)
    return outgoing


def lost(model: str) -> SlotlineError:
    """Return what ends a call that is not sent again."""
    return ConnectionLost(model)


def test_an_idempotent_call_is_kept_and_the_others_end() -> None:
    """What may not run twice, what was never sent, and questions."""
    session = make_session()
    kept, once, unsent = sent(session), sent(session, idempotent=False), submit(session)
    question = session.ask(Health(), 0)
    note([question.call], question.header, ())

    assert lose(session, lost, "gone", 0) == [kept.call]
    assert [type(one.call.outcome) for one in (kept, once, unsent, question)] == [type(None), *[ConnectionLost] * 3]
    assert (kept.call.lost, session.in_flight) == ("gone", 1)


def test_it_is_sent_again_with_the_budget_that_is_left() -> None:
    """The rest of the message is the same."""
    session = make_session()
    named = sent(session, budget_us=50_000)
    before, _ = read(named)

    header, _ = again(named.call, 30 * MS)
    route = read_route(header, read_layout(header))
    assert (route.request_id, route.budget_us) == (before.request_id, 20_000)
    assert route._replace(budget_us=0) == before._replace(budget_us=0)


def test_what_has_no_time_left_ends() -> None:
    """Nobody would wait for it."""
    session = make_session()
    late = sent(session, budget_us=1_000)

    assert lose(session, lost, "gone", 2 * MS) == []
    assert isinstance(late.call.outcome, ConnectionLost)


def test_each_request_of_a_pack_is_kept_by_itself() -> None:
    """They need not be lost together again."""
    session = make_session()
    pack = [submit(session) for _ in range(3)]
    note([one.call for one in pack], pack[0].header, [one.header for one in pack[1:]])

    assert [again(one.call, 0)[0] == one.header for one in pack] == [True] * 3


def test_one_that_nobody_took_again_may_have_run() -> None:
    """So its caller is told of a lost connection, not of an absent server."""
    session = make_session()
    call = sent(session).call
    lose(session, lost, "the server ended the connection", 0)

    error = not_taken_again("ipc://x", call)
    assert isinstance(error, ConnectionLost)
    assert "no server took it again within its budget" in str(error)
