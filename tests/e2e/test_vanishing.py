"""Clients that go away in mid-request, or never read: nobody waits for them, and nothing of them stays."""

from __future__ import annotations

import random

import configs
import pytest
import zmq
from load import DigestLoad
from places import StartServer
from raw_client import BUDGET_US, RawClient, bytes_template, statistics
from server import Server, wait_until
from stages_for_tests import expected_answer

REQUESTS = 1000
# Together less than the lane's backlog_bytes, so that others are not refused; more than all buffers of one client.
SILENT_REQUESTS = 1500


def nothing_in_flight(server: Server) -> bool:
    """True when the ledger balances with nothing in flight and all slots are free."""
    stats = statistics(server.control)
    slots_free = stats["lane.digests.slots_free"] == stats["lane.digests.slots"]
    return bool(slots_free and stats["ledger.in_flight"] == 0 and stats["ledger.balanced"])


def check_served(server: Server, *, seed: int) -> None:
    """Fail unless a client that comes later is served."""
    load = DigestLoad(server.endpoint, seed=seed)
    load.run_for(0.3)
    load.finish()
    load.close()


def send_and_vanish(server: Server, *, requests: int, size: int, linger_ms: int) -> None:
    """Send *requests* and close without reading one answer."""
    client = RawClient(server.endpoint)
    template = bytes_template("digests", size)
    for number in range(requests):
        client.send(template, [number.to_bytes(4, "little").ljust(size, b"\0")], None)
    # The requests leave, then the connection goes with everything unread.
    client.socket.close(linger=linger_ms)
    client.close()


@pytest.mark.parametrize("size", [64, 8192])
def test_a_client_that_vanishes_leaves_nothing(make_server: StartServer, size: int) -> None:
    """A thousand requests and gone: what it had in flight ends, the ledger balances, others are served."""
    server = make_server(configs.digests()).start()
    send_and_vanish(server, requests=REQUESTS, size=size, linger_ms=5000)
    wait_until(lambda: statistics(server.control)["ledger.received"] > 0, "its first request")

    wait_until(lambda: nothing_in_flight(server), "an empty server")
    check_served(server, seed=1)
    stats = statistics(server.control)
    assert stats["ledger.undeliverable"] > 0
    assert server.events("broker_died") == []
    assert server.stop() == 0


def test_clients_that_vanish_one_after_the_other_leave_nothing(make_server: StartServer) -> None:
    """Thirty of them, each in the middle of its answers, while another client is served rightly."""
    server = make_server(configs.digests()).start()
    good = DigestLoad(server.endpoint, seed=2)
    choices = random.Random(3)
    for _ in range(30):
        client = RawClient(server.endpoint)
        size = choices.choice([16, 1000, 20_000])
        payload = choices.randbytes(size)
        for _ in range(choices.randint(1, 60)):
            client.send(bytes_template("digests", size), [payload], {"answer": expected_answer(payload)})
        good.run_for(choices.random() * 0.05)
        client.receive(0.02)
        assert not client.tally.wrong
        client.close()
    good.finish()
    good.close()

    wait_until(lambda: nothing_in_flight(server), "an empty server")
    assert server.events("broker_died") == []
    assert server.stop() == 0


def test_a_client_that_never_reads_blocks_nobody(make_server: StartServer) -> None:
    """Its answers fill what ZeroMQ and its outbox keep; then they count as undeliverable, and others never wait for it. The
    ledger balances all the while: what waits for the client is in flight.
    """
    config = configs.digests(slots=8).replace("drain_s = 10", "drain_s = 10\noutbox_bytes = 4_000_000")
    server = make_server(config).start()
    context = zmq.Context()
    silent = _connect_silent(context, server)
    template, payload = bytes_template("digests", configs.MAX_BODY_BYTES), bytes(configs.MAX_BODY_BYTES)
    for request_id in range(1, SILENT_REQUESTS + 1):
        silent.send_multipart([template.header(request_id, BUDGET_US), payload])
    good = DigestLoad(server.endpoint, seed=4)
    balanced: list[bool] = []

    def given_up() -> bool:
        stats = statistics(server.control)
        balanced.append(stats["ledger.balanced"])
        return bool(stats["ledger.undeliverable"])

    good.run_until(given_up)
    good.finish()
    good.close()

    silent.close(linger=0)
    context.term()
    wait_until(lambda: nothing_in_flight(server), "an empty server")
    assert all(balanced), f"{balanced.count(False)} of {len(balanced)} looks found the ledger unbalanced"
    assert server.stop() == 0


def _connect_silent(context: zmq.Context[zmq.Socket[bytes]], server: Server) -> zmq.Socket[bytes]:
    """Return a DEALER that takes little from the network before it is read."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 1)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVBUF, 4096)
    socket.connect(server.endpoint)
    return socket
