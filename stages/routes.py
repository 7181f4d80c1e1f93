"""Where a worker sends hops on: the replicas of the next process that are on the board, and the broker's sink.

Owner of the PUSH sockets: the worker's main thread. Endpoints belong to one incarnation; when the board changes, sockets to those
that left are closed without lingering.
"""

from __future__ import annotations

import zmq

from schemas.arena import Board, Words, scalars, slots_with
from schemas.spawn import sink_endpoint, worker_endpoint
from schemas.words import BROKER, HEAD_VERSION, INCARNATION, PROCESS, VISIBLE


class Peer:
    """One incarnation that takes hops."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, *, incarnation: int) -> None:
        self.incarnation = incarnation
        self.socket = push_socket(context, endpoint)


def push_socket(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Connect a PUSH without high-water mark (slots bound it) that never keeps a closing process."""
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    return socket


class Routes:
    """All that this process may send to."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], board: Board, *, directory: str, wanted: set[int]) -> None:
        self._context = context
        self._board = board
        self._head = scalars(board.head)
        self._directory = directory
        self._wanted = wanted
        self._version = -1
        self._peers: dict[int, dict[int, Peer]] = {process: {} for process in wanted}
        self.sink = Peer(context, sink_endpoint(directory, int(board.head[0])), incarnation=BROKER)

    def refresh(self) -> None:
        """Look at the board when it has changed: connect to who came, leave who went."""
        version = self._head[HEAD_VERSION]
        if version == self._version:
            return
        self._version = version
        shown: dict[int, set[int]] = {process: set() for process in self._wanted}
        for incarnation, process, visible in self._board.columns[:, [INCARNATION, PROCESS, VISIBLE]].tolist():
            if visible and process in shown:
                shown[process].add(incarnation)
        for process, incarnations in shown.items():
            self._update(self._peers[process], process, incarnations)

    def _update(self, peers: dict[int, Peer], process: int, shown: set[int]) -> None:
        for incarnation in set(peers) - shown:
            peers.pop(incarnation).socket.close(linger=0)
        for incarnation in shown - set(peers):
            endpoint = worker_endpoint(self._directory, process, incarnation)
            peers[incarnation] = Peer(self._context, endpoint, incarnation=incarnation)

    def pick(self, process: int, holder: Words) -> Peer | None:
        """Return the replica of *process* with the fewest slots of a lane with these *holder* words; None if there is none."""
        peers = self._peers[process]
        if len(peers) <= 1:
            return next(iter(peers.values()), None)
        return min(peers.values(), key=lambda peer: slots_with(holder, peer.incarnation))

    def close(self) -> None:
        """Close every socket."""
        for peers in self._peers.values():
            for peer in peers.values():
                peer.socket.close(linger=0)
        self.sink.socket.close(linger=0)
