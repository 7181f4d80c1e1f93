"""The generator whose requests lie in a lease: same options and report as ``slow_load.py``.

Each frame of the lease is written once, with one of the requests in turn, and is under way at most once; so frames are what
bounds the requests under way, and no copy of the client's is measured. Only the names of frames travel.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import zmq

from bench.slow_account import Account
from bench.slow_load import SlowLoad, options_of
from clients.errors import Busy, SlotlineError
from clients.lease_socket import take_lease
from schemas.layout import read_layout, route_if_readable
from schemas.leases import Answer, Ask, LeaseOp
from schemas.messages import Failure, Hello, Welcome, read_message, write_message
from schemas.spawn import die_with_parent
from schemas.status import Flag, Kind, Place
from schemas.templates import RequestTemplate, TensorForm
from schemas.wire import IDENTIFIER
from schemas.wire_tensors import Lease

HELLO = write_message(Hello("slotline-bench-lease/1", (IDENTIFIER.decode(),)))
LIMIT_S = 30.0
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Leasable:
    """A request whose one tensor can lie in a frame: its lane, the tensor, and the tensor's bytes."""

    model: str
    form: TensorForm
    content: bytes

    @classmethod
    def of(cls, message: Sequence[bytes]) -> Leasable:
        """Return the request that a finished *message*, header and payload frames, makes.

        Raises:
            ValueError: it has not one tensor.
        """
        layout = read_layout(message[0])
        if len(layout.tensors) != 1:
            raise ValueError(f"--lease: expected requests of one input each, got {len(layout.tensors)}: a frame holds one tensor")
        (tensor,) = layout.tensors
        is_inline = tensor.place == Place.INLINE
        content = message[0][tensor.inline_at : tensor.inline_at + tensor.nbytes] if is_inline else message[1 + tensor.frame]
        form = TensorForm(tensor.name, tensor.dtype, tensor.shape, tensor.nbytes, content_type=tensor.content_type)
        return cls(layout.model, form, content)

    def template(self, lease: Lease) -> RequestTemplate:
        """Return the header of such requests with the tensor in the frame that *lease* names."""
        return RequestTemplate(self.model, [self.form._replace(lease=lease)])


class Frames:
    """Which frame is free and which request uses which. Pure.

    Attributes:
        free: numbers of the frames that no request uses.
    """

    def __init__(self, count: int) -> None:
        self.free = deque(range(count))
        self._used: dict[int, int] = {}

    def use(self, request_id: int) -> int:
        """Return the frame that has been free for longest, now used by a request."""
        frame = self._used[request_id] = self.free.popleft()
        return frame

    def book_message(self, header: bytes) -> bool:
        """Take note of what a message says of its request's frame; return whether it answers, and does not only release one."""
        route = route_if_readable(header)
        if route is None:
            return True
        if route.flags & Flag.RELEASED or (route.kind == Kind.ERROR and _was_refused(header)):
            frame = self._used.pop(route.request_id, None)
            self.free.extend([] if frame is None else [frame])
        return route.kind != Kind.RELEASE


def _was_refused(header: bytes) -> bool:
    """Return whether an error has a code 1xx, with which frames were never taken."""
    body = read_message(header)[1]
    return isinstance(body, Failure) and body.code < 200


class LeaseLoad(SlowLoad):
    """One connection, and a lease with one frame for each request that may be under way."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        requests = [Leasable.of(message) for message in self._messages]
        (self._socket,) = self._sockets
        largest = max(len(request.content) for request in requests)
        # A closed loop is of so many as were asked for; an open one takes what there is.
        frames = 0 if options.rate else options.outstanding
        answer, self._memory = _lease(self._socket, largest, frames)
        count = min(answer.frames, options.outstanding)
        self._frames = Frames(count)
        self._templates = [_written(self._memory, answer, frame, requests[frame % len(requests)]) for frame in range(count)]
        self._load = replace(self._load, outstanding=count)
        self._account = Account(self._load, time.monotonic_ns())

    def _has_room(self) -> bool:
        return bool(self._frames.free)

    def _send(self, due_ns: int | None) -> None:
        """Send a request that names a free frame."""
        request_id = self._account.book_sent(due_ns, time.monotonic_ns())
        template = self._templates[self._frames.use(request_id)]
        self._socket.send(template.header(request_id, 0))

    def _book(self, frames: list[bytes]) -> None:
        """Book one message, and the frame that it releases."""
        if self._frames.book_message(frames[0]):
            super()._book(frames)


def _lease(socket: zmq.Socket[bytes], frame_bytes: int, frames: int) -> tuple[Answer, mmap.mmap]:
    """Return a lease of this connection; one that has just come back is waited for.

    Raises:
        SlotlineError: the server lends none, or none so large.
    """
    socket.send(HELLO)
    if not socket.poll(int(LIMIT_S * 1000)):
        raise TimeoutError(f"the server did not answer within {LIMIT_S:g} s")
    welcome = read_message(socket.recv_multipart()[0])[1]
    if not isinstance(welcome, Welcome) or not welcome.lease_socket:
        raise ValueError("--lease: this server lends no memory to this client: its config says so by leases.count")
    ask = Ask(LeaseOp.LEASE, welcome.lease_token, frame_bytes, frames)
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            return take_lease(welcome.lease_socket, ask, LIMIT_S)
        except Busy as error:
            if time.monotonic() > end:
                raise
            time.sleep(error.retry_after_us / _US_PER_S)


def _written(memory: mmap.mmap, answer: Answer, frame: int, request: Leasable) -> RequestTemplate:
    """Write a request's tensor into a frame and return the header that names it."""
    at = frame * answer.stride
    memory[at : at + len(request.content)] = request.content
    return request.template(Lease(answer.region, answer.generation, frame, len(request.content)))


def main() -> int:
    """Load the server; what is wrong is one line."""
    try:
        LeaseLoad(options_of("lease_load")).run()
    except (SlotlineError, ValueError, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent(os.getppid())
    sys.exit(main())
