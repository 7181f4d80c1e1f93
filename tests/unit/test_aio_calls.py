"""The asyncio client's calls: an end reaches the future, and a cancelled future the server."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from client_helpers import never_wait

from clients.aio_calls import AsyncPending, CallFuture
from clients.calls import Pending
from clients.errors import ConnectionLost
from schemas.status import Kind


def make_call() -> AsyncPending[str]:
    """Return a call in flight."""
    return AsyncPending(7, "ticks", 1_000, Kind.INFER_REPLY, never_wait)


def with_future(cancelled: list[Pending[Any]]) -> tuple[AsyncPending[str], CallFuture[str]]:
    """Return a call in flight and its future; calls that are cancelled go into *cancelled*."""
    call = make_call()
    future: CallFuture[str] = CallFuture(loop=asyncio.get_running_loop())
    future.watch(call, cancelled.append)
    call.future = future
    return call, future


def test_a_result_is_what_the_future_gives() -> None:
    """And what the call has."""

    async def check() -> None:
        call, future = with_future([])
        call.end("result")
        assert (await future, call.outcome) == ("result", "result")

    asyncio.run(check())


def test_an_error_is_raised_where_it_is_awaited() -> None:
    """Any SlotlineError."""

    async def check() -> None:
        call, future = with_future([])
        call.end(ConnectionLost("gone"))
        with pytest.raises(ConnectionLost, match="gone"):
            await future

    asyncio.run(check())


def test_a_call_that_nobody_awaits_ends_too() -> None:
    """Most of many have no future."""
    call = make_call()
    call.end("result")

    assert call.result() == "result"


def test_a_cancelled_future_tells_of_its_call_once() -> None:
    """The end that follows is ignored."""
    cancelled: list[Pending[Any]] = []

    async def check() -> None:
        call, future = with_future(cancelled)
        assert future.cancel()
        assert not future.cancel()
        call.end("too late")
        assert future.cancelled()
        assert cancelled == [call]

    asyncio.run(check())


def test_a_future_that_has_ended_is_not_cancelled() -> None:
    """The server is told nothing."""
    cancelled: list[Pending[Any]] = []

    async def check() -> None:
        call, future = with_future(cancelled)
        call.end("result")
        assert not future.cancel()
        assert cancelled == []

    asyncio.run(check())


def test_an_ended_call_leaves_nothing_to_the_garbage_collector() -> None:
    """Call and future do not hold each other; there may be many thousand a second."""

    async def check() -> int:
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                call, future = with_future([])
                call.end("result")
                await future
            del call, future
            return sum(isinstance(thing, CallFuture) for thing in gc.get_objects())
        finally:
            gc.enable()

    assert asyncio.run(check()) == 0
