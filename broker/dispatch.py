"""Hops to the workers: which replica gets which, and the PUSH socket of each incarnation. Owner: the broker's main thread."""

from __future__ import annotations

import zmq

from schemas.arena import Board, column_of
from schemas.hop import HOP, LONE, HopKind
from schemas.spawn import worker_endpoint
from schemas.words import BROKER

from .lanes import Lane
from .life import Request
from .sockets import hop_push

_WORK = int(HopKind.WORK)


class _Target:
    """One incarnation: its socket, and how many hops were sent to it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.sent = 0


class Dispatcher:
    """Sends work to incarnations that are on the board."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], board: Board, directory: str) -> None:
        self._context = context
        self._board = board
        self._directory = directory
        self._targets: dict[int, _Target] = {}

    def connect(self, process: int, incarnation: int) -> None:
        """Open the way to an incarnation that goes on the board."""
        endpoint = worker_endpoint(self._directory, process, incarnation)
        self._targets[incarnation] = _Target(hop_push(self._context, endpoint))

    def disconnect(self, incarnation: int) -> None:
        """Close the way to a reaped one; what lies in it is lost, and its slots are condemned."""
        target = self._targets.pop(incarnation, None)
        if target is not None:
            target.socket.close(linger=0)

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
            target = self._targets[incarnation]
            target.socket.send(b"".join(hops))
            target.sent += len(share)

    def _shares(self, lane: Lane, requests: list[Request]) -> dict[int, list[Request]]:
        """Give each request to the replica of its stage with the least work waiting."""
        first = lane.replicas[0]
        if len(first) == 1 and not any(r.stage for r in requests):
            return {first[0]: requests}
        shares: dict[int, list[Request]] = {}
        for request in requests:
            serving = lane.replicas[lane.process_of(request.stage)]
            chosen = min(serving, key=lambda number: self._waiting(number) + len(shares.get(number, ())))
            shares.setdefault(chosen, []).append(request)
        return shares

    def _waiting(self, incarnation: int) -> int:
        return self._targets[incarnation].sent - int(self._board.taken[column_of(incarnation), BROKER])

    def close(self) -> None:
        """Close every socket."""
        for incarnation in list(self._targets):
            self.disconnect(incarnation)
