"""What can go wrong for a caller, as exceptions: one class per thing that a caller does about it.

All of them are SlotlineError; ``code`` is the wire's Code, NONE when no message carried one.
"""

# The names are those of the wire's codes, so that a log line, a metric and an ``except`` say the same word.
# ruff: noqa: N818

from __future__ import annotations

from typing import Any

from schemas.messages import Failure
from schemas.status import Code, RequestError, printable


class SlotlineError(Exception):
    """Anything that a Client raises about the server, the connection or a request."""

    code: Code = Code.NONE


class ServerUnreachable(SlotlineError, ConnectionError):
    """Nobody answered at the endpoint in time; the text names the endpoint and the cure."""


class ConnectionLost(SlotlineError, ConnectionError):
    """The connection, or that life of the server, ended with the call in flight: it may have run or not.

    Sending an idempotent request again is safe; the next call opens a new connection.
    """


class BadReply(SlotlineError):
    """What the server sent for this call is no valid reply."""


class CallError(SlotlineError):
    """One call got no result.

    Attributes:
        code: a stable number; its hundred says whose fault it is.
        field: the tensor, parameter or header field at fault, "" when there is none.
        message: one sentence for people.
        retry_after_us: when to try again; 0 unless the code is 2xx.
        stage: where it happened, "" when the server did not say.
    """

    def __init__(self, code: Code, message: str, *, field: str = "", retry_after_us: int = 0, stage: str = "") -> None:
        self.code = code
        self.field = field
        self.message = message
        self.retry_after_us = retry_after_us
        self.stage = stage
        super().__init__(f"{code.name} ({code:d}): {message}")


class RequestRefused(CallError):
    """The request was not taken: it is wrong (1xx), or comes at a bad time (2xx, a Busy)."""


class Unauthorized(RequestRefused):
    """The server does not take this client's key, or is not the one whose key was given; see to the keys, then try again.

    Raised when connecting, and of calls when the key was taken off the server's list meanwhile.
    """


class BadKeys(SlotlineError, ValueError):
    """A key that the caller gave is missing, damaged, or not readable; nothing was sent."""


class Busy(RequestRefused):
    """Not now (2xx): try again after ``retry_after_us``."""


class RequestFailed(CallError):
    """The server took the request and failed at it (3xx)."""


class DeadlineExceeded(CallError, TimeoutError):
    """The budget is used up; a reply that comes later is ignored."""


class Cancelled(CallError):
    """The call was cancelled, or its client closed."""


class Superseded(CallError):
    """A newer request of the same key took its place."""


# What ``infer`` does on a failure unless told otherwise; no value of a caller's is this one.
RAISE = object()

_CLASSES: dict[Code, type[CallError]] = {
    Code.UNAUTHORIZED: Unauthorized,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.CANCELLED: Cancelled,
    Code.SUPERSEDED: Superseded,
}


def error_of(failure: Failure) -> CallError:
    """Return the exception that an error reply stands for."""
    code = failure.code
    kind = _CLASSES.get(code) or (RequestFailed if code >= Code.INTERNAL else Busy if code >= Code.BUSY else RequestRefused)
    return kind(code, failure.message, field=failure.field, retry_after_us=failure.retry_after_us, stage=failure.stage)


def refused_here(error: RequestError) -> RequestRefused:
    """Return the refusal of a request that was found wrong before it was sent."""
    # The encoder does not know which side it works for; a request that does not fit is too large.
    code = Code.TOO_LARGE if error.code == Code.OUTPUT_TOO_LARGE else error.code
    # The name of an input may be anything that a caller took for one.
    return RequestRefused(code, error.message, field=error.field if isinstance(error.field, str) else printable(error.field))


def unreachable(endpoint: str, within: str, why: str = "") -> ServerUnreachable:
    """Return the error of a call that found no server *within* its time; *why* is how the last connection ended."""
    last = f", last: {why}" if why else ""
    cure = "start one there with `slotline serve CONFIG`, or name another endpoint"
    return ServerUnreachable(f"{endpoint}: no server answered {within}{last}; {cure}")


def connection_lost(endpoint: str, model: str, reason: str) -> ConnectionLost:
    """Return the error of a call that was in flight when the connection ended."""
    return ConnectionLost(f"{model}: {endpoint}: {reason} with the call in flight")


def unauthorized(endpoint: str, reason: str) -> Unauthorized:
    """Return the error of a client whose keys, or the server's, are not the right ones."""
    return Unauthorized(Code.UNAUTHORIZED, f"{endpoint}: {reason}")


def fail_safe(on_failure: Any, error: SlotlineError) -> Any:
    """Return what takes the place of a result: *on_failure*, or what it returns for *error*.

    Raises:
        SlotlineError: *error* itself, when *on_failure* is RAISE.
    """
    if on_failure is RAISE:
        raise error
    return on_failure(error) if callable(on_failure) else on_failure
