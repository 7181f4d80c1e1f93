"""The sockets that clients see: their settings, and what libzmq does by itself when nobody tells it not to."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import configs
import pytest
import zmq
from server import PATIENCE_S, ROOT, Server

from broker.sockets import MAX_SEND_QUEUE, MIN_SEND_QUEUE, front_router, seed_routing_ids
from schemas.config import ServerConfig

FIRST_ID = """
import zmq
from broker.sockets import front_router, seed_routing_ids
from schemas.config import ServerConfig
seed_routing_ids()
context = zmq.Context()
router = front_router(context, ServerConfig(), "inproc://door", reply_bytes=1)
dealer = context.socket(zmq.DEALER)
dealer.connect("inproc://door")
dealer.send(b"")
print(router.recv_multipart()[0].hex())
"""


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context of this test's own."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def test_the_settings_are_those_of_the_config_and_the_protocol(context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path) -> None:
    """As docs/protocol.md lists them."""
    config = ServerConfig(max_message_bytes=123_456, heartbeat_ms=700, heartbeat_timeout_ms=7_000)
    router = front_router(context, config, f"ipc://{tmp_path}/s", reply_bytes=1_000)
    wanted = {
        zmq.MAXMSGSIZE: 123_456,
        zmq.HANDSHAKE_IVL: 1_000,
        zmq.HEARTBEAT_IVL: 700,
        zmq.HEARTBEAT_TIMEOUT: 7_000,
        zmq.BACKLOG: 1_024,
        zmq.LINGER: 1_000,
    }

    assert {option: router.get(option) for option in wanted} == wanted
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("reply_bytes", "messages"), [(1, MAX_SEND_QUEUE), (1_000, 1_000), (100_000, 100), (50_000_000, MIN_SEND_QUEUE)]
)
def test_what_zeromq_keeps_for_a_client_is_about_an_outbox(
    context: zmq.Context[zmq.Socket[bytes]], reply_bytes: int, messages: int
) -> None:
    """Its own queue counts messages, whatever their size."""
    config = ServerConfig(outbox_bytes=10_000_000)

    assert front_router(context, config, "inproc://door", reply_bytes=reply_bytes).get(zmq.SNDHWM) == messages


def test_a_send_to_nobody_says_so_at_once(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """ROUTER_MANDATORY: else the reply would be dropped in silence."""
    router = front_router(context, ServerConfig(), "inproc://door", reply_bytes=1)

    with pytest.raises(zmq.ZMQError) as caught:
        router.send_multipart([b"nobody", b"reply"], zmq.NOBLOCK)
    assert caught.value.errno == zmq.EHOSTUNREACH


def test_nobody_takes_over_the_name_of_another(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """ROUTER_HANDOVER 0: the first holder keeps its replies, the second is not heard."""
    router = front_router(context, ServerConfig(), "inproc://door", reply_bytes=1)
    holders = [context.socket(zmq.DEALER) for _ in range(2)]
    for number, holder in enumerate(holders):
        holder.set(zmq.ROUTING_ID, b"name")
        holder.connect("inproc://door")
        holder.send(b"%d" % number)
        if number == 0:
            assert router.recv_multipart() == [b"name", b"0"]
    router.send_multipart([b"name", b"reply"])

    assert holders[0].poll(int(PATIENCE_S * 1000))
    assert not holders[1].poll(100)
    assert not router.poll(100)


def test_two_servers_give_out_different_routing_ids() -> None:
    """libzmq takes their start from a generator that nobody else seeds."""
    seed_routing_ids()
    command = [sys.executable, "-c", FIRST_ID]
    ids = {
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout for _ in range(3)
    }

    assert len(ids) == 3


def test_socket_files_are_for_their_owner_alone(place: Path) -> None:
    """Directories of mode 0700, and no file in them that another user could open; at the end none is left."""
    server = Server(place, configs.digests())
    server.endpoint, server.control = f"ipc://{place}/run/s", f"ipc://{place}/run/s.control"
    try:
        server.start()
        private = next(place.glob("slotline-*"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (place / "run").iterdir()}

        assert [(place / "run").stat().st_mode & 0o777, private.stat().st_mode & 0o777] == [0o700, 0o700]
        assert modes == {"s": 0o700, "s.lock": 0o600, "s.control": 0o700, "s.control.lock": 0o600}
        assert server.stop() == 0
        assert list((place / "run").iterdir()) == []
    finally:
        print(server.errors()[-4000:])
        server.end()
