"""The generator in Python, for where ``load.c`` cannot be compiled: same options, same report, several times slower."""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from pathlib import Path

import zmq

from bench.load import Load
from bench.slow_account import SETTLE_NS, Account
from schemas.spawn import die_with_parent

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


class SlowLoad:
    """One connection, and the requests in turn."""

    def __init__(self, options: argparse.Namespace) -> None:
        is_poisson, rate = options.poisson, options.rate
        self._load = Load(
            options.outstanding,
            rate=rate,
            is_poisson=is_poisson,
            seconds=options.seconds,
            warm_up_s=options.warm_up,
            drain_s=options.drain,
            window_s=options.window,
            is_echo=options.echo,
        )
        self._headers, self._id_at, self._messages = _read_table(options.requests.read_bytes())
        context = zmq.Context()
        self._sockets = [_connect(context, options.endpoint) for _ in range(options.connections)]
        if options.hello:
            for socket in self._sockets:
                socket.send(options.hello.read_bytes())
                socket.recv_multipart()
        self._poller = zmq.Poller()
        for socket in self._sockets:
            self._poller.register(socket, zmq.POLLIN)
        self._sent_messages = 0
        self._account = Account(self._load, time.monotonic_ns())

    def run(self) -> None:
        """Load the server and print the report."""
        account = self._account
        marks: list[float] = []
        while not self._is_finished(now_ns := time.monotonic_ns()):
            if len(marks) < 2 and now_ns >= (account.from_ns, account.to_ns)[len(marks)]:
                marks.append(time.process_time())
                print("measuring" if len(marks) == 1 else "measured", flush=True)
            if now_ns < account.to_ns:
                self._send_due(now_ns)
            for socket, _ in self._poller.poll(self._wait_ms(time.monotonic_ns())):
                self._receive(socket)
        print(json.dumps(account.report(marks[1] - marks[0])))

    def _is_finished(self, now_ns: int) -> bool:
        account = self._account
        if now_ns < account.to_ns:
            return False
        if account.due_ns:
            return now_ns > account.to_ns + int(self._load.drain_s * _NS_PER_S)
        return now_ns > max(account.last_answer_ns, account.to_ns) + SETTLE_NS

    def _has_room(self) -> bool:
        under_way = len(self._account.due_ns)
        return under_way == 0 or under_way + self._headers <= self._load.outstanding

    def _send_due(self, now_ns: int) -> None:
        account = self._account
        while self._has_room():
            if not self._load.rate:
                self._send(None)
                continue
            if account.next_due_ns > now_ns:
                return
            self._send(int(account.next_due_ns))
            for _ in range(self._headers):
                account.schedule_next()

    def _send(self, due_ns: int | None) -> None:
        """Send the next message."""
        frames = list(self._messages[self._sent_messages % len(self._messages)])
        socket = self._sockets[self._sent_messages % len(self._sockets)]
        self._sent_messages += 1
        now_ns = time.monotonic_ns()
        for at in range(self._headers):
            header = bytearray(frames[at])
            struct.pack_into("<Q", header, self._id_at, self._account.book_sent(due_ns, now_ns))
            frames[at] = bytes(header)
        socket.send_multipart(frames, copy=False)

    def _wait_ms(self, now_ns: int) -> int:
        """Return how long to wait for replies: 0 when something is due within a millisecond."""
        account = self._account
        until_ns = account.from_ns if now_ns < account.from_ns else account.to_ns
        if now_ns >= account.to_ns:
            return SETTLE_NS // _NS_PER_MS // 5
        if self._load.rate and self._has_room():
            until_ns = min(until_ns, int(account.next_due_ns))
        return max(0, (until_ns - now_ns) // _NS_PER_MS)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        """Take the replies that are there."""
        try:
            while True:
                self._book(socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            return

    def _book(self, frames: list[bytes]) -> None:
        """Book one message: a reply, or several."""
        now_ns = time.monotonic_ns()
        if self._load.is_echo:
            for frame in frames[: self._headers]:
                is_whole = len(frame) >= self._id_at + 8
                self._account.book_echo(struct.unpack_from("<Q", frame, self._id_at)[0] if is_whole else 0, now_ns)
            return
        if self._account.book_message(frames[0], now_ns):
            for frame in frames[1:]:
                self._account.book_message(frame, now_ns)


def _connect(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.linger = 0
    socket.connect(endpoint)
    return socket


def _read_table(table: bytes) -> tuple[int, int, list[list[bytes]]]:
    """Return headers of a message, the place of their ids, and the messages; ``requests.h`` has the form."""
    messages, headers, frames, id_at = struct.unpack_from("<4Q", table)
    sizes = struct.unpack_from(f"<{messages * frames}Q", table, 32)
    at = 32 + 8 * len(sizes)
    cut = []
    for size in sizes:
        cut.append(table[at : at + size])
        at += size
    return headers, id_at, [cut[first : first + frames] for first in range(0, len(cut), frames)]


def options_of(program: str) -> argparse.Namespace:
    """Return the command line of *program*, the same as that of ``load.c``."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--hello", type=Path)
    for name, default in (("seconds", 3.0), ("warm-up", 1.0), ("drain", 5.0), ("window", 0.5), ("rate", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name in ("outstanding", "connections"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("poisson", "echo"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    die_with_parent(os.getppid())
    SlowLoad(options_of("slow_load")).run()
    sys.exit(0)
