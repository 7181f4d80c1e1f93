"""The clients behind one door: a record for each connection that has sent something. Owner: the broker's main thread."""

from __future__ import annotations

import zmq

from .curve import AllowList
from .life import Client

_UNLISTED = "the key of this connection is not on the server's list: have the public key put into its curve.clients directory"
_NAMED = "a client with a key must not set a routing id: leave it to ZeroMQ, and connect again"


class Roster:
    """Remembers who sent.

    Args:
        max_clients: a table full of idle records forgets the older half of them, which only costs these their Hello's wishes.
        allowed: the keys that may come in, None where none are asked for.
    """

    def __init__(self, max_clients: int, allowed: AllowList | None = None) -> None:
        self.max_clients = max_clients
        self._allowed = allowed
        self.clients: dict[bytes, Client] = {}

    def enter(self, identity: bytes, first: zmq.Frame) -> Client:
        """Make the record of a connection by the first frame that came from it."""
        if len(self.clients) >= self.max_clients:
            idle = [known for known, client in self.clients.items() if not (client.in_flight or client.orphans or client.leases)]
            for known in idle[: len(idle) // 2 + 1]:
                del self.clients[known]
        client = self.clients[identity] = Client(identity)
        if self._allowed is not None:
            # ZeroMQ hands out on each frame what was agreed in its handshake.
            client.fair = str(first.get("User-Id")).encode()
            self._judge(client, self._allowed)
            # Whoever names its socket as another one was named would be taken for that one's record.
            if _is_own_name(identity):
                client.barred = _NAMED
        return client

    def knows(self, client: Client) -> bool:
        """Return whether *client* is the record of its connection now."""
        return self.clients.get(client.identity) is client

    def recall(self, client: Client) -> Client:
        """Return the record of *client*'s connection: *client* itself, again if it was forgotten and nothing came since."""
        known = self.clients.setdefault(client.identity, client)
        # While it was forgotten nobody judged it.
        if self._allowed is not None and known.barred != _NAMED:
            self._judge(known, self._allowed)
        return known

    def forget(self, client: Client) -> None:
        """Drop a client that is gone."""
        self.clients.pop(client.identity, None)

    def review(self) -> None:
        """Judge everybody anew after the list has changed."""
        for client in self.clients.values():
            if self._allowed is not None and client.barred != _NAMED:
                self._judge(client, self._allowed)

    def _judge(self, client: Client, allowed: AllowList) -> None:
        """Refuse what *client* sends from now on unless its key is listed; what it has in flight is answered all the same."""
        name = allowed.names.get(client.fair.decode())
        client.name = name or client.name
        client.barred = "" if name is not None else _UNLISTED


def _is_own_name(identity: bytes) -> bool:
    """Return whether a peer chose this routing id itself: ZeroMQ's own are a zero and four bytes that no client is told."""
    return len(identity) != 5 or identity[0] != 0
