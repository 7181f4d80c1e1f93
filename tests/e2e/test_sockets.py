"""The sockets that clients see: their settings, and what libzmq does by itself when nobody tells it not to."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import configs
import numpy as np
import pytest
import zmq
from raw_client import close_all, statistics
from server import PATIENCE_S, ROOT, RUN, Server, place_environment, wait_until

from broker.sockets import MAX_SEND_QUEUE, MIN_SEND_QUEUE, RETRY_S, bind, front_router, seed_routing_ids
from clients import Client
from schemas.config import ServerConfig
from schemas.status import ConfigError

FIRST_ID = """
import zmq
from broker.sockets import bind, front_router, seed_routing_ids
from schemas.config import ServerConfig
seed_routing_ids()
context = zmq.Context()
router = front_router(context, ServerConfig(), reply_bytes=1)
bind(router, "inproc://door", patience_s=0)
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
    router = front_router(context, config, reply_bytes=1_000)
    bind(router, f"ipc://{tmp_path}/s", patience_s=0)
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

    assert front_router(context, config, reply_bytes=reply_bytes).get(zmq.SNDHWM) == messages


def test_a_send_to_nobody_says_so_at_once(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """ROUTER_MANDATORY: else the reply would be dropped in silence."""
    router = front_router(context, ServerConfig(), reply_bytes=1)

    with pytest.raises(zmq.ZMQError) as caught:
        router.send_multipart([b"nobody", b"reply"], zmq.NOBLOCK)
    assert caught.value.errno == zmq.EHOSTUNREACH


def test_nobody_takes_over_the_name_of_another(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """ROUTER_HANDOVER 0: the first holder keeps its replies, the second is not heard."""
    router = front_router(context, ServerConfig(), reply_bytes=1)
    bind(router, "inproc://door", patience_s=0)
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


def test_an_address_in_use_is_tried_again_when_it_was_ours(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """A client that looks for its server on a port chosen at random may be given that port for a moment."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        router = front_router(context, ServerConfig(), reply_bytes=1)
        with pytest.raises(ConfigError, match="is in use: stop the other server"):
            bind(router, endpoint, patience_s=0)
        threading.Timer(3 * RETRY_S, other.close).start()
        bind(router, endpoint, patience_s=PATIENCE_S)

    assert router.get_string(zmq.LAST_ENDPOINT) == endpoint


def test_a_port_that_was_chosen_at_the_start_is_kept(place: Path) -> None:
    """Whatever becomes of brokers: clients were told it once."""
    server = Server(place, "[lane.echo]\ndefault_budget_us = 30_000_000")
    server.endpoint = "tcp://127.0.0.1:*"
    try:
        server.launch()
        wait_until(lambda: server.ready_line() or server.poll() is not None, "a ready line")
        told = server.ready_line().split()[1]
        with Client(told, timeout_s=PATIENCE_S) as client:
            for life in range(3):
                body = {"x": np.full(3, life, np.uint8)}
                assert client.infer("echo", body)["x"].tolist() == [life] * 3
                os.kill(server.child("broker"), signal.SIGKILL)
                wait_until(lambda life=life: len(server.events("broker_died")) == life + 1, "its death")
            assert client.infer("echo", body)["x"].tolist() == [2] * 3
        assert server.stop() == 0
    finally:
        print(server.errors()[-4000:])
        server.end()


def test_the_control_socket_is_where_the_config_says(place: Path) -> None:
    """And where the ready line says."""
    path = place / "config.toml"
    path.write_text(f'[server]\nendpoint = "ipc://s"\ncontrol = "ipc://{place}/orders"\n[lane.echo]')
    with subprocess.Popen([*RUN, "serve", str(path)], stdout=subprocess.PIPE, text=True, env=place_environment(place)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["ready", f"ipc://{place}/s", f"control=ipc://{place}/orders"]
        assert statistics(f"ipc://{place}/orders")["state"] == "serving"
        process.terminate()
    close_all()
    assert process.returncode == 0


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
