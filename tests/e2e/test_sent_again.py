"""Clients that resend: a server's life ends with their calls in flight, and the callers notice only the time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import configs
import numpy as np
import pytest
from places import StartServer
from raw_client import statistics
from server import Server, wait_until

from clients import AsyncClient, Client, ConnectionLost

PATIENCE_S = 30.0
CALLS = 24


def body(number: int) -> dict[str, Any]:
    """Return inputs that carry *number*."""
    return {"payload": np.array([number], np.uint64).view(np.uint8)}


def kill_broker(server: Server) -> None:
    """Kill the broker with requests in its stages, and wait until another lives."""
    wait_until(lambda: statistics(server.control)["lane.timed.in_flight"] > 0, "requests in flight")
    pid = server.child("broker")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.children().get("broker", pid) != pid, "another broker")


def test_calls_in_flight_survive_a_broker(make_server: StartServer) -> None:
    """Each gets its own answer, also a large one that was lent to the socket, and one made meanwhile."""
    server = make_server(configs.timed(run_us=20_000)).start()
    with Client(server.endpoint, timeout_s=PATIENCE_S, resend=True) as client:
        calls = [client.submit("timed", body(number)) for number in range(CALLS)]
        large = np.arange(16_000, dtype=np.uint8)
        lent = client.submit("timed", {"payload": large}, copy=False)
        kill_broker(server)
        calls.append(client.submit("timed", body(99)))
        answers = [int(call.result()["echo"].view(np.uint64)[0]) for call in calls]
        assert answers == [*range(CALLS), 99]
        assert (lent.result()["echo"] == large).all()
    assert statistics(server.control)["ledger.balanced"]


def test_awaited_calls_survive_a_broker(make_server: StartServer) -> None:
    """The same for asyncio, where nobody has to wait in a call for it to be sent again."""
    server = make_server(configs.timed(run_us=20_000)).start()

    async def run() -> list[int]:
        async with AsyncClient(server.endpoint, timeout_s=PATIENCE_S, resend=True) as client:
            calls = [asyncio.ensure_future(client.infer("timed", body(number))) for number in range(CALLS)]
            await asyncio.sleep(0)
            await asyncio.to_thread(kill_broker, server)
            return [int(result["echo"].view(np.uint64)[0]) for result in await asyncio.gather(*calls)]

    assert asyncio.run(run()) == list(range(CALLS))


def test_packs_survive_a_broker(make_server: StartServer) -> None:
    """infer_many goes on where it was."""
    server = make_server(configs.timed(run_us=5_000, more="backlog = 1000")).start()
    killer = threading.Thread(target=kill_broker, args=(server,))
    with Client(server.endpoint, timeout_s=PATIENCE_S, resend=True) as client:
        killer.start()
        results = client.infer_many("timed", [body(number) for number in range(300)])
        killer.join()
        assert [int(result["echo"].view(np.uint64)[0]) for result in results] == list(range(300))
    assert len(server.events("broker_died")) == 1


def test_what_may_not_run_twice_is_not_sent_again(make_server: StartServer) -> None:
    """Its caller decides."""
    server = make_server(configs.timed(run_us=20_000_000, more="hang_limit_ms = 60_000")).start()
    with Client(server.endpoint, timeout_s=PATIENCE_S, resend=True) as client:
        once = client.submit("timed", body(1), idempotent=False)
        kill_broker(server)
        with pytest.raises(ConnectionLost):
            once.result()


def test_without_a_server_it_ends_within_its_budget(make_server: StartServer) -> None:
    """And says that it may have run."""
    server = make_server(configs.timed(run_us=20_000_000, more="hang_limit_ms = 60_000")).start()
    with Client(server.endpoint, timeout_s=PATIENCE_S, resend=True) as client:
        call = client.submit("timed", body(1), budget_us=3_000_000)
        wait_until(lambda: statistics(server.control)["lane.timed.in_flight"] > 0, "the request")
        server.kill()
        with pytest.raises(ConnectionLost, match="no server took it again within its budget"):
            call.result()
    # A killed supervisor's files are swept at the next start.
    assert server.start().stop() == 0
