"""Scenarios with other clients beside the checker: some go away in mid-request, some never read."""

from __future__ import annotations

import zmq

from bench.chaos.place import rss_mib
from bench.chaos.rig import Rig
from bench.chaos.supply import make_cases
from bench.chaos.wire_peer import WirePeer

BUDGET_US = 10_000_000
MOST_REQUESTS = 60
SILENT_PEERS = 10
# Answers that fill what the kernel and ZeroMQ keep for a peer and begin to fill its outbox.
SILENT_REQUESTS = 400


def vanish(rig: Rig) -> None:
    """Clients come, send up to 60 requests, and are gone without having read one answer."""
    rig.start()
    cases = make_cases(rig.setting.supply, rig.setting.seed - 1)
    broker = rig.server.children()["broker"][0]
    gone, before = 0, 0.0
    while rig.goes_on:
        peer = WirePeer(rig.server.endpoint)
        for number in range(1, rig.random.randint(2, MOST_REQUESTS)):
            peer.socket.send_multipart(peer.frames_of(cases.next(), number, BUDGET_US))
        # Until some answers are on their way; not at all by every second one.
        peer.socket.poll(rig.random.choice([0, 5, 20]))
        peer.close()
        gone += 1
        if gone == 50:
            before = rss_mib(broker)
    rig.facts |= {"vanished": gone, "broker_growth_mib": round(rss_mib(broker) - before, 1) if before else None}
    rig.facts["undeliverable"] = rig.stats()["ledger.undeliverable"]
    rig.finish()


def never_read(rig: Rig) -> None:
    """Ten clients send and never read; the checker and the load are the good ones beside them."""
    rig.start()
    rig.pause(rig.setting.seconds / 4)
    silent = [_Silent(rig.server.endpoint) for _ in range(SILENT_PEERS)]
    cases = make_cases(rig.setting.supply, rig.setting.seed - 1)
    try:
        for number in range(1, SILENT_REQUESTS + 1):
            if not rig.goes_on:
                break
            for peer in silent:
                peer.send(peer.frames.frames_of(cases.next(), number, BUDGET_US))
        rig.pause(rig.setting.seconds)
        stats = rig.stats()
        rig.facts |= {"silent_peers": len(silent), "unread_in_flight": stats["ledger.in_flight"]}
    finally:
        for peer in silent:
            peer.close()
    rig.finish()


class _Silent:
    """A client whose kernel buffers and queue are small, and that never receives."""

    def __init__(self, endpoint: str) -> None:
        self.frames = WirePeer(endpoint)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.RCVHWM, 1), (zmq.SNDHWM, 0), (zmq.RCVBUF, 4096), (zmq.LINGER, 0)):
            self._socket.setsockopt(option, value)
        self._socket.connect(endpoint)

    def send(self, frames: list[bytes]) -> None:
        """Send one request."""
        self._socket.send_multipart(frames)

    def close(self) -> None:
        """Go away."""
        self._socket.close(linger=0)
        self._context.term()
        self.frames.close()
