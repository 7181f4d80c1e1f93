"""What a caller holds: the options of a request, the call in flight, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar

from numpy.typing import NDArray

from schemas.arguments import seconds
from schemas.layout import Layout, read_backlog_us, read_retries, read_timing
from schemas.params import Params, ParamValue
from schemas.status import KeyPolicy, Kind

from .errors import SlotlineError
from .leases import Frame

T = TypeVar("T")
# Waits until a call has ended or so many seconds have passed, None = until its deadline.
Wait = Callable[["Pending[Any]", float | None], None]


class Options(TypedDict, total=False):
    """What a request may say besides model and inputs; all may be left out.

    budget_us: time left for the answer, which is also how long the call lasts. 0 or left out: the lane's default budget holds,
        and the call lasts as long as the client's timeout; a client with less patience than that asks for no more than it has.
    key, born_us: numbers of the caller's own (instrument or camera; capture time), u64, echoed in the reply's route. A lane with
        an age limit takes born_us for a time of this host's monotonic clock, ``time.monotonic_ns() // 1000``.
    key_policy, latest_n: what the key means. ORDERED: results of one key leave in the order of their requests. LATEST_ONLY,
        LATEST_N: a newer request ends the older ones that wait, all or all but n, with Superseded. Keys are this client's own.
    idempotent: False = never run it twice when a worker dies under it (default True).
    copy: False = large arrays are not copied but lent until the call has its result; then change none of them before that, and
        after an error never again. Default True: an array may change as soon as the call is made.
    version: model version, "" = by the server's policy. params: for the server's stages.
    outputs: names wanted, () = all; or name -> the frame of a lease that it is to be put into, None = in the reply. The result's
        array is then a view of that frame, if it fits.
    priority: 0 = the lane's default level, 1 = highest. finite: refuse NaN and Inf in the inputs.
    client_request_id: a text of the caller's own; a new one for each request costs 100 us each.
    checksum: send the xxh64 of the payload, so that the server refuses what was damaged on the way (needs slotline[checksum]).
    """

    budget_us: int
    key: int
    key_policy: KeyPolicy
    latest_n: int
    born_us: int
    idempotent: bool
    copy: bool
    version: str
    outputs: Sequence[str] | Mapping[str, Frame | None]
    params: Params
    priority: int
    finite: bool
    client_request_id: str
    checksum: bool


class Result(Mapping[str, NDArray[Any]]):
    """The outputs of one request by name, and what the server says about it.

    The arrays are views of the reply's bytes and read-only (``.copy()`` one to change it); BYTES are arrays of bytes objects.
    """

    __slots__ = ("_header", "_layout", "_outputs")

    def __init__(self, outputs: dict[str, NDArray[Any]], header: bytes, layout: Layout) -> None:
        self._outputs = outputs
        self._header = header
        self._layout = layout

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return one output."""
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._outputs)

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._outputs)

    def __repr__(self) -> str:
        """Show names, datatypes and shapes, not the contents."""
        outputs = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self._outputs.items())
        return f"<Result of {self.model}/{self.version}: {outputs}>"

    @property
    def model(self) -> str:
        """The model that ran."""
        return self._layout.model

    @property
    def version(self) -> str:
        """The version that ran."""
        return self._layout.version

    @property
    def params(self) -> Mapping[str, ParamValue]:
        """What the server's stages say beside the tensors."""
        return self._layout.params

    @property
    def timing(self) -> tuple[tuple[int, int, int], ...]:
        """(queue_us, run_us, batch) of each stage, in pipeline order."""
        return tuple(read_timing(self._header, self._layout))

    @property
    def retries(self) -> int:
        """How often a worker died under the request."""
        return read_retries(self._header, self._layout)

    @property
    def backlog_us(self) -> int:
        """How long the request waited before it got a slot."""
        return read_backlog_us(self._header, self._layout)


class Pending(Generic[T]):
    """One call in flight. Owned by the thread of its client.

    Attributes:
        request_id: unique in its client.
        model: what was asked, for messages.
        answer: the kind of reply that is a result.
        deadline_ns: when it ends, on the monotonic clock.
        outcome: None while it is in flight.
        again: the message that starts it, kept by a client that resends, if it may run twice.
        lost: how the connection ended on which it was sent before.
    """

    __slots__ = ("_wait", "again", "answer", "deadline_ns", "lost", "model", "outcome", "request_id")

    def __init__(self, request_id: int, model: str, deadline_ns: int, answer: Kind, wait: Wait) -> None:
        self.request_id = request_id
        self.model = model
        self.deadline_ns = deadline_ns
        self.answer = answer
        self.outcome: T | SlotlineError | None = None
        self.again: tuple[bytes, Sequence[bytes | memoryview]] | None = None
        self.lost = ""
        self._wait = wait

    def end(self, outcome: T | SlotlineError) -> None:
        """Let the call end with *outcome*: the session's to do, once."""
        self.outcome = outcome

    def is_waited_for_by(self, wait: Wait) -> bool:
        """Return whether this is the call of the client that waits by *wait*."""
        return self._wait == wait

    def done(self) -> bool:
        """Take what has arrived, without waiting, and return whether the call has ended."""
        if self.outcome is None:
            self._wait(self, 0.0)
        return self.outcome is not None

    def result(self, timeout_s: float | None = None) -> T:
        """Return the result, waiting until the call's deadline, or *timeout_s* if that is shorter.

        Raises:
            TimeoutError: *timeout_s* have passed; the call goes on.
            SlotlineError: what became of the call instead of a result.
        """
        if self.outcome is None:
            self._wait(self, None if timeout_s is None else seconds(timeout_s, "timeout_s"))
        outcome = self.outcome
        if outcome is None:
            raise TimeoutError(f"{self.model}: no answer within {timeout_s} s; the call goes on until its deadline")
        if isinstance(outcome, SlotlineError):
            raise outcome
        return outcome
