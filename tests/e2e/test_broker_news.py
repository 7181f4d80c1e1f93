"""The broker's one epoll: no message on a door is missed, though sending may use up the news of its arrival."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from builders import make_plan

from broker.memory import EpochMemory
from broker.server import Server
from broker.sockets import MAX_SEND_QUEUE
from schemas.config import parse_config
from schemas.messages import Control, Health, HealthReply, read_message, write_message
from schemas.spawn import Spawn, plan_path
from schemas.status import ControlOp, HealthScope

CONFIG = "[lane.echo]\nslots = 1\nmax_encoded_bytes = 64\n"
STATS = write_message(Control(ControlOp.STATS), (1, 0, 0))
HEALTH = write_message(Health(HealthScope.LIVE), (1, 0, 0))
NOW_NS = 1
# What the kernel keeps on the way, in replies: many times over.
MOST = 100 * MAX_SEND_QUEUE


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The private directory of a server."""
    plan_path(str(tmp_path)).write_text(make_plan(CONFIG).to_json())
    return tmp_path


@pytest.fixture
def server(directory: Path) -> Iterator[Server]:
    """A broker without a supervisor: this test turns it."""
    plan, memory = make_plan(CONFIG), EpochMemory(make_plan(CONFIG))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    endpoint = f"ipc://{directory}/s"
    spawn = Spawn(
        name="broker", process=-1, replica=0, incarnation=0, epoch=1, config="", endpoint=endpoint, control="", rebinds=False,
        log_level="info", directory=str(directory), board=memory.board, arenas=memory.arenas, leases=(),
        channel=theirs.detach(), parent=os.getpid(),
    )  # fmt: skip
    made = Server(spawn, parse_config(CONFIG, base=directory, source="test.toml", endpoint=endpoint), plan)
    yield made
    made._close()
    memory.close()
    ours.close()


def test_a_question_is_seen_though_a_kept_answer_is_sent_meanwhile(server: Server, directory: Path) -> None:
    """An answer for a client that did not read goes out just after another's question came, and its send takes the news."""
    with zmq.Context() as context:
        slow, other = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
        slow.setsockopt(zmq.RCVHWM, 1)
        for client in (slow, other):
            client.setsockopt(zmq.LINGER, 0)
            client.connect(f"ipc://{directory}/s.control")
        control = server._control_socket
        ready = 31
        for _ in range(MOST):
            slow.send(STATS)
            ready = server.turn(NOW_NS, ready | 4)
            if server._control.outbox.is_waiting:
                break
        assert server._control.outbox.is_waiting
        while ready := server.turn(NOW_NS, ready):
            pass

        # There is room for the kept answers now, and a question: both wait to be noticed.
        for _ in range(MAX_SEND_QUEUE):
            slow.recv()
        other.send(HEALTH)
        assert select.select([control.fileno()], [], [], 30.0)[0]
        time.sleep(0.1)
        server._next_tick_ns = 0
        assert server.turn(NOW_NS, 0) == 0
        assert not server._control.outbox.is_waiting, "nothing was sent: this test proves nothing"
        assert not select.select([control.fileno()], [], [], 0)[0], "the news is still there: this test proves nothing"

        server.turn(NOW_NS, server._wait(0))
        assert other.poll(30_000)
        assert isinstance(read_message(other.recv())[1], HealthReply)
        for client in (slow, other):
            client.close()
