"""A client that sends damaged messages to a real server, and counts what comes back by id."""

from __future__ import annotations

from collections import Counter

import zmq
from door import read_reply
from hostile_server import HostileServer
from load import DigestLoad
from mutant_parts import parts_of
from mutants import Mutator
from raw_client import statistics

from schemas.layout import read_route
from schemas.layout_cache import LayoutCache
from schemas.status import Code, Flag

# Each part on a connection of its own, so that what one has said of itself does not last.
PART = 250
ALLOWED = {-1, 0, *(code for code in Code if 100 <= code < 200), Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.MODEL_FAILED}


class Attacker:
    """A DEALER that sends damaged messages and counts the replies by id."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.set(zmq.SNDHWM, 0)
        self.socket.set(zmq.RCVHWM, 0)
        self.socket.connect(endpoint)
        self._cache = LayoutCache()
        self.answered: Counter[int] = Counter()
        self.codes: Counter[int] = Counter()

    def receive(self, wait_ms: int = 0) -> None:
        """Take the replies that are there."""
        while self.socket.poll(wait_ms):
            header, *rest = self.socket.recv_multipart()
            if not header:
                header, *rest = rest
            route = read_route(header, self._cache.read(header))
            for one in (header, *rest) if route.flags & Flag.PACKED else (header,):
                reply = read_reply(one, ())
                self.codes[reply.code] += 1
                self.answered[reply.request_id] += reply.code in ALLOWED

    def close(self) -> None:
        """End the connection."""
        self.socket.close(linger=0)
        self._context.term()


def send_mutants(server: HostileServer, mutator: Mutator, good: DigestLoad) -> tuple[int, int, Counter[int]]:
    """Send one part; return how many headers had a readable Route, how many were answered by their id, and the codes."""
    attacker = Attacker(server.endpoint)
    wanted: list[int] = []
    expected = 0
    for mutant in mutator.mutants(PART):
        parts = [part for part in parts_of(mutant.frames) if not part.is_silent]
        wanted += [part.request_id for part in parts if part.request_id is not None]
        expected += len(parts)
        attacker.socket.send_multipart(mutant.frames)
        attacker.receive()
    while attacker.codes.total() < expected:
        before = attacker.codes.total()
        good.run_for(0.02)
        attacker.receive(50)
        if attacker.codes.total() == before and statistics(server.control)["ledger.in_flight"] <= len(good.client.pending):
            break
    attacker.receive(100)
    attacker.close()
    answered = sum(min(count, attacker.answered[request_id]) for request_id, count in Counter(wanted).items())
    return len(wanted), answered, attacker.codes
