"""The Unix socket on which regions are lent, and what follows when a client is gone. Owner: the broker's main thread.

Each connection gets at most one lease. Its end is the end of the lease; the region is lent again only when whoever had it has
said goodbye (it has unmapped it) or its process is dead, when no request uses it, and when it was cleaned: so a late write of one
client never meets another's frames, and nobody sees what another left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.lease_regions import LeaseRegions
from schemas.leases import ASK_BYTES, TOKEN_CHARS, Answer, Ask, LeaseOp, read_ask, write_answer
from schemas.logs import get_logger
from schemas.status import Code

from .leases import Grant, LeasePool
from .life import Client
from .roster import Roster

# Connections that have no lease (yet): a client asks at once, so there are few unless somebody plays.
MAX_WITHOUT_LEASE = 64
# One connection is accepted in a turn; a client whose connect finds this full would be told that nobody is there.
LISTEN_BACKLOG = 1024
# A connection that has ended in silence looks like an idle one. So tokens outlive the records of their connections, but beyond so
# many, or twice the records, only those of connections that there is a record of are kept.
MAX_TOKENS = 32_768
# Zeroed in one turn of the broker: about a tenth of a millisecond.
CLEAN_BYTES = 1 << 20
EVENTS_PER_TURN = 64
RETRY_AFTER_US = 100_000
_PEERCRED = struct.Struct("3i")


@dataclass(slots=True, eq=False)
class _Guest:
    """One connection: its lease once it has one, and its process and user."""

    connection: socket.socket
    pid: int
    uid: int
    grant: Grant | None = None
    pidfd: int = -1


class LeaseDoor:
    """Lends regions of *pool*.

    Args:
        descriptors: of the regions, by number.
        path: of the socket; its directory is for this user alone, and so is the socket.
    """

    def __init__(self, pool: LeasePool, descriptors: Sequence[int], regions: LeaseRegions, path: str) -> None:
        self.path = path
        self._pool = pool
        self._descriptors = descriptors
        self._regions = regions
        self._cleaned_bytes = 0
        self._tokens: dict[str, Client] = {}
        self._roster = Roster(MAX_TOKENS)
        self._guests: dict[int, _Guest] = {}
        self._epoll = select.epoll()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        old_mask = os.umask(0o077)
        try:
            self._listener.bind(path)
        finally:
            os.umask(old_mask)
        self._listener.listen(LISTEN_BACKLOG)
        self._epoll.register(self._listener, select.EPOLLIN)

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to do here."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Close every connection."""
        for guest in set(self._guests.values()):
            self._forget(guest)
        self._listener.close()
        self._epoll.close()

    def meet(self, roster: Roster) -> None:
        """Get to know who is behind the door of the requests."""
        self._roster = roster

    def token_of(self, client: Client) -> str:
        """Return the token by which a lease is bound to *client*, the same for each Hello: nobody else is told it."""
        if client.lease_token not in self._tokens:
            if len(self._tokens) >= max(MAX_TOKENS, 2 * self._roster.max_clients):
                self._tokens = {token: known for token, known in self._tokens.items() if self._roster.knows(known)}
            client.lease_token = secrets.token_hex(TOKEN_CHARS // 2)
            self._tokens[client.lease_token] = client
        return client.lease_token

    def client_gone(self, client: Client) -> None:
        """End the leases of a connection that cannot be reached; they are free when whoever has them is gone too."""
        self._tokens.pop(client.lease_token, None)
        for grant in self._pool.of_client(client):
            self._pool.end(grant)

    # --- the loop's turn -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what connections and processes have to say."""
        for descriptor, _ in self._epoll.poll(0, EVENTS_PER_TURN):
            if descriptor == self._listener.fileno():
                self._accept()
                continue
            guest = self._guests.get(descriptor)
            if guest is None:
                continue
            if descriptor == guest.pidfd:
                self._left(guest)
            else:
                self._hear(guest)

    def clean(self) -> bool:
        """Clean a piece of a region that came back; return whether more is to be cleaned."""
        number = self._pool.dirty
        if number is None:
            return False
        region = self._regions.region(number)
        region[self._cleaned_bytes : self._cleaned_bytes + CLEAN_BYTES] = 0
        self._cleaned_bytes += CLEAN_BYTES
        if self._cleaned_bytes >= len(region):
            self._cleaned_bytes = 0
            self._pool.cleaned()
        return self._pool.dirty is not None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            pid, uid, _ = _PEERCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))
            guest = self._guests[connection.fileno()] = _Guest(connection, pid, uid)
            self._epoll.register(connection, select.EPOLLIN)
            waiting = [known for known in self._guests.values() if known.grant is None]
            if len(waiting) > MAX_WITHOUT_LEASE:
                self._forget(next(known for known in waiting if known is not guest))

    def _hear(self, guest: _Guest) -> None:
        try:
            packet = guest.connection.recv(ASK_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        ask = read_ask(packet)
        if guest.grant is None and ask is not None and ask.op == LeaseOp.LEASE:
            self._lend(guest, ask)
        elif guest.grant is not None and ask is not None and ask.op == LeaseOp.GOODBYE:
            self._left(guest)
        else:
            # Its end, or what no client says: then it is treated like one that ended.
            self._end(guest)

    # --- one lease -------------------------------------------------------------------------------------------------------

    def _lend(self, guest: _Guest, ask: Ask) -> None:
        form, client = self._pool.form, self._client_of(ask.token)
        if guest.uid != os.geteuid():
            # Only now: what is closed with something unread looks to its peer like a broken connection, not like an answer.
            get_logger().warning("lease_refused", reason="another user", uid=guest.uid)
            answer = Answer(Code.UNAUTHORIZED, message=f"leases are for the server's user, {os.geteuid()}, not {guest.uid}")
        elif client is None:
            answer = Answer(Code.UNAUTHORIZED, message="token: expected that of a connection's Welcome, as long as it lasts")
        elif ask.frame_bytes > form.frame_bytes or ask.frames > form.frames:
            most = f"at most {form.frames} frames of {form.frame_bytes} bytes (leases.frames, leases.frame_bytes)"
            answer = Answer(Code.TOO_LARGE, message=f"lease: expected {most}, got {ask.frames} of {ask.frame_bytes}")
        elif (grant := self._pool.lend(client)) is None:
            text = f"all {self._pool.count} leases are lent (leases.count)"
            answer = Answer(Code.BUSY, retry_after_us=RETRY_AFTER_US, message=text)
        else:
            self._hand_over(guest, grant)
            return
        _answer(guest.connection, answer)
        self._forget(guest)

    def _client_of(self, token: str) -> Client | None:
        """Return the record to which a lease is bound: that by which requests of the token's connection are known now."""
        client = self._tokens.get(token)
        if client is None or client.gone:
            return None
        client = self._roster.recall(client)
        return None if client.barred else client

    def _hand_over(self, guest: _Guest, grant: Grant) -> None:
        form = self._pool.form
        guest.grant = grant
        # Of a process that cannot be seen from here (another pid namespace) the connection's end tells its death.
        with contextlib.suppress(OSError, OverflowError):
            guest.pidfd = os.pidfd_open(guest.pid) if guest.pid else -1
        answer = Answer(Code.NONE, grant.region, grant.generation, form.frames, form.frame_bytes, form.stride)
        if not _answer(guest.connection, answer, [self._descriptors[grant.region]]):
            self._left(guest)

    def _end(self, guest: _Guest) -> None:
        """End a connection's lease; while its process lives it may still write into the region."""
        if guest.grant is None or guest.pidfd < 0:
            self._left(guest)
            return
        self._pool.end(guest.grant)
        del self._guests[guest.connection.fileno()]
        guest.connection.close()
        self._guests[guest.pidfd] = guest
        self._epoll.register(guest.pidfd, select.EPOLLIN)

    def _left(self, guest: _Guest) -> None:
        """Take the region back from a connection whose client cannot write into it any more."""
        if guest.grant is not None:
            self._pool.left(guest.grant)
        self._forget(guest)

    def _forget(self, guest: _Guest) -> None:
        self._guests.pop(guest.connection.fileno(), None)
        guest.connection.close()
        if guest.pidfd >= 0:
            self._guests.pop(guest.pidfd, None)
            os.close(guest.pidfd)
            guest.pidfd = -1


def _answer(connection: socket.socket, answer: Answer, descriptors: Sequence[int] = ()) -> bool:
    """Send one packet without waiting; False when it cannot be sent."""
    try:
        socket.send_fds(connection, [write_answer(answer)], list(descriptors))
    except OSError:
        return False
    return True
