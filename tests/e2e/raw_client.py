"""A client that knows only the wire: one DEALER, no retry, no library of ours but the codec. It judges every id it has sent.

It is the independent checker: each request has an id of its own and an answer that its content determines.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

from schemas.layout import Layout, read_route, read_timing
from schemas.layout_cache import LayoutCache
from schemas.messages import Body, Control, ControlReply, Failure, Hello, Welcome, read_message, write_message
from schemas.status import Code, ControlOp, Flag, Kind, Place
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType

# Ten times what any answer of these tests takes: a watchdog, no measure.
PATIENCE_S = 30.0
BUDGET_US = 50_000_000

Answer = Mapping[str, bytes]


@dataclass(slots=True)
class Tally:
    """What became of the ids; what is still pending when a test gives up waiting is lost. *largest_batch* is in requests."""

    ok: int = 0
    largest_batch: int = 0
    wrong: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    strange: list[int] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    failures: dict[int, Failure] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many ids have their one answer."""
        return self.ok + len(self.wrong) + self.errors.total()


class RawClient:
    """One connection and the ids sent on it.

    Args:
        is_right: says whether an answer (output name -> bytes) is right for what ``send`` was given as *expected*.
    """

    def __init__(
        self, endpoint: str, *, packed_replies: bool = False, is_right: Callable[[Answer, Any], bool] | None = None
    ) -> None:
        _open.append(self)
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(endpoint)
        self._is_right = is_right or (lambda answer, expected: bool(answer == expected))
        self._cache = LayoutCache()
        self._next_id = 1
        self.pending: dict[int, Any] = {}
        self._given_up: dict[int, Any] = {}
        self.tally = Tally()
        self.welcome = self._greet(packed_replies) if packed_replies else None

    def _greet(self, packed_replies: bool) -> Welcome:
        welcome = self.ask(Hello("raw-test/1", ("SLT1",), packed_replies))
        assert isinstance(welcome, Welcome)
        return welcome

    def ask(self, body: Body) -> Body:
        """Ask something that is no inference, and return the answer; nothing else may be in flight."""
        self.socket.send(write_message(body, (1, 0, 0)))
        assert self.socket.poll(int(PATIENCE_S * 1000)), f"no answer to {type(body).__name__}"
        _, answer = read_message(self.socket.recv())
        assert answer is not None
        assert not isinstance(answer, Layout)
        return answer

    # --- sending ---------------------------------------------------------------------------------------------------------

    def header(
        self,
        template: RequestTemplate,
        inline: Sequence[Any],
        expected: Any,
        *,
        flags: int = Flag.IDEMPOTENT,
        key: int = 0,
        budget_us: int = BUDGET_US,
    ) -> bytes:
        """Return the header of a new request, and remember what its answer must be."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        self.pending[request_id] = expected
        return template.header(request_id, budget_us, inline, flags=flags, key=key)

    def send(self, template: RequestTemplate, tensors: Sequence[Any], expected: Any, *, flags: int = Flag.IDEMPOTENT) -> int:
        """Send one request, its tensors inline or in frames as the template says; return its id."""
        header = self.header(template, () if template.frames else tensors, expected, flags=flags)
        self.socket.send_multipart([header, *tensors] if template.frames else [header])
        return self._next_id - 1

    def send_packed(self, requests: Iterable[tuple[RequestTemplate, Sequence[Any], Any]]) -> None:
        """Send many requests with inline tensors as one Packed message."""
        packed = Flag.IDEMPOTENT | Flag.PACKED
        self.socket.send_multipart(
            [self.header(template, inline, expected, flags=packed) for template, inline, expected in requests]
        )

    # --- receiving -------------------------------------------------------------------------------------------------------

    def receive(self, wait_s: float = 0.0) -> int:
        """Judge all answers that are there, waiting for the first; return how many ids are still pending."""
        if self.socket.poll(int(wait_s * 1000)):
            while self.socket.poll(0):
                self._take(self.socket.recv_multipart())
        return len(self.pending)

    def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Receive until nothing is pending, or the time is over: what is pending then is lost."""
        end = time.monotonic() + timeout_s
        while self.pending and time.monotonic() < end:
            self.receive(0.05)
        # An answer that comes a second time comes close behind the first.
        self.receive(0.1)

    def give_up(self) -> None:
        """Wait no longer for what is pending, because its server died; an answer that comes all the same must be right."""
        self._given_up |= self.pending
        self.pending = {}

    def _take(self, frames: list[bytes]) -> None:
        is_packed = len(frames) > 1 and read_message(frames[0])[0].flags & Flag.PACKED
        if is_packed:
            for header in frames:
                self._judge(header, ())
        else:
            self._judge(frames[0], frames[1:])

    def _judge(self, header: bytes, frames: Sequence[bytes]) -> None:
        layout = self._cache.read(header)
        route = read_route(header, layout)
        if route.request_id in self._given_up:
            self.pending[route.request_id] = self._given_up.pop(route.request_id)
        if route.request_id not in self.pending:
            seen = 0 < route.request_id < self._next_id
            (self.tally.doubled if seen else self.tally.strange).append(route.request_id)
            return
        expected = self.pending.pop(route.request_id)
        if route.kind == Kind.ERROR:
            _, failure = read_message(header)
            assert isinstance(failure, Failure)
            self.tally.errors[failure.code.name] += 1
            self.tally.failures[route.request_id] = failure
        elif route.kind == Kind.INFER_REPLY and self._is_right(_outputs(header, layout, frames), expected):
            self.tally.ok += 1
            self.tally.largest_batch = max(self.tally.largest_batch, *(batch for _, _, batch in read_timing(header, layout)), 0)
        else:
            self.tally.wrong.append(route.request_id)

    def assert_all_right(self, count: int) -> None:
        """Fail unless each of *count* requests was answered once and rightly."""
        self.assert_nothing_amiss()
        assert (self.tally.ok, dict(self.tally.errors)) == (count, {})

    def assert_nothing_amiss(self) -> None:
        """Fail for each id that is lost, doubled, wrong or unknown; errors are the test's to judge."""
        found = {
            "lost": sorted(self.pending)[:10],
            "doubled": self.tally.doubled[:10],
            "wrong": self.tally.wrong[:10],
            "strange": self.tally.strange[:10],
        }
        assert not any(found.values()), found

    def code_of(self, request_id: int) -> Code:
        """Return the code that a request failed with."""
        return self.tally.failures[request_id].code

    def close(self) -> None:
        """Close the connection at once; what was not sent is dropped."""
        self.socket.close(linger=0)
        self._context.term()
        _open.remove(self)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Clients that no test has closed: a context that is collected with an open socket waits for ever.
_open: list[RawClient] = []


def close_all() -> None:
    """Close the clients that a failed test left open."""
    for client in list(_open):
        client.close()


def _outputs(header: bytes, layout: Layout, frames: Sequence[bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for tensor in layout.tensors:
        if tensor.place == Place.INLINE:
            found[tensor.name] = header[tensor.inline_at : tensor.inline_at + tensor.nbytes]
        else:
            found[tensor.name] = frames[tensor.frame]
            assert len(found[tensor.name]) == tensor.nbytes
    return found


def bytes_template(model: str, size: int, *, name: str = "payload") -> RequestTemplate:
    """Return the template of requests with one flat UINT8 tensor of *size* bytes."""
    return RequestTemplate(model, [TensorForm(name, DType.UINT8, (size,), size, size <= 4096)])


def statistics(control: str) -> dict[str, Any]:
    """Return the server's statistics by name."""
    with RawClient(control) as client:
        answer = client.ask(Control(ControlOp.STATS))
        assert isinstance(answer, ControlReply)
        return dict(answer.stats)
