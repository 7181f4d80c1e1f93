"""Hops to the workers: which replica gets which, and the PUSH socket of each incarnation. Owner: the broker's main thread."""

from __future__ import annotations

import errno

import zmq

from schemas.hop import HOP, LONE, HopKind
from schemas.spawn import worker_endpoint

from .lanes import Lane
from .life import Request
from .sockets import hop_push

_WORK = int(HopKind.WORK)


class Dispatcher:
    """Sends work to incarnations that are on the board."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], directory: str) -> None:
        self._context = context
        self._directory = directory
        self._sockets: dict[int, zmq.Socket[bytes]] = {}

    def connect(self, process: int, incarnation: int) -> bool:
        """Open the way to an incarnation that goes on the board; False when every descriptor is taken, mostly by clients."""
        endpoint = worker_endpoint(self._directory, process, incarnation)
        try:
            self._sockets[incarnation] = hop_push(self._context, endpoint)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return False
        return True

    def disconnect(self, incarnation: int) -> None:
        """Close the way to a reaped one; what lies in it is lost, and its slots are condemned."""
        socket = self._sockets.pop(incarnation, None)
        if socket is not None:
            socket.close(linger=0)

    def send(self, lane: Lane, requests: list[Request]) -> None:
        """Send requests that have slots with their input in place: holder first, then the hop."""
        for incarnation, share in self._shares(lane, requests).items():
            generations = lane.slots.generations
            lane.slots.hand_over([r.slot for r in share], incarnation)
            hops = [
                HOP.pack(
                    r.slot,
                    generations[r.slot],
                    r.ticket,
                    lane.index,
                    _WORK,
                    r.stage,
                    0,
                    LONE if r.lone else 0,
                    r.deadline_ns,
                )
                for r in share
            ]
            self._sockets[incarnation].send(b"".join(hops))

    def _shares(self, lane: Lane, requests: list[Request]) -> dict[int, list[Request]]:
        """Give each request to the replica of its stage with the fewest slots."""
        first = lane.replicas[0]
        if len(first) == 1 and not any(r.stage for r in requests):
            return {first[0]: requests}
        shares: dict[int, list[Request]] = {}
        for request in requests:
            serving = lane.replicas[lane.process_of(request.stage)]
            chosen = min(serving, key=lambda number: lane.slots.held_by(number) + len(shares.get(number, ())))
            shares.setdefault(chosen, []).append(request)
        return shares

    def close(self) -> None:
        """Close every socket."""
        for incarnation in list(self._sockets):
            self.disconnect(incarnation)
