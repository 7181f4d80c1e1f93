"""Status codes, message kinds and flags: the closed lists of the wire, and the errors that carry a code.

The numbers are those of ``infer.fbs``; a test compares the two. Nothing here knows a socket or a byte layout.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import ClassVar

# A config key with a lane's name of 64 characters in it.
MAX_FIELD_CHARS = 128


VERSION = "0.1.0"


class Code(IntEnum):
    """Why a request got no result. 1xx do not retry, 2xx retry after a wait, 3xx the server failed, 4xx gone."""

    NONE = 0
    BAD_FRAMES = 100
    BAD_HEADER = 101
    UNSUPPORTED_VERSION = 102
    BAD_KIND = 103
    BAD_TENSOR = 104
    BAD_SHAPE = 105
    BAD_DTYPE = 106
    SIZE_MISMATCH = 107
    TOO_LARGE = 108
    BAD_NAME = 109
    BAD_PARAM = 110
    DUPLICATE_ID = 111
    MODEL_NOT_FOUND = 112
    VERSION_NOT_FOUND = 113
    BAD_LEASE = 114
    BAD_IMAGE = 115
    UNAUTHORIZED = 116
    NOT_SUPPORTED = 117
    MISSING_INPUT = 118
    BAD_CHECKSUM = 119
    NOT_FINITE = 120
    BUSY = 200
    RATE_LIMITED = 201
    MODEL_LOADING = 202
    DRAINING = 203
    MODEL_UNAVAILABLE = 204
    INTERNAL = 300
    STAGE_DIED = 301
    QUARANTINED = 302
    OUT_OF_MEMORY = 303
    MODEL_FAILED = 304
    OUTPUT_TOO_LARGE = 305
    DEADLINE_EXCEEDED = 400
    CANCELLED = 401
    SUPERSEDED = 402

    @property
    def is_refusal(self) -> bool:
        """True when the server did not take the request: it is wrong (1xx) or comes at a bad time (2xx)."""
        return 100 <= self < 300


class Kind(IntEnum):
    """What a message is (``Route.kind``)."""

    UNSET = 0
    INFER_REQUEST = 1
    CANCEL = 2
    HELLO = 3
    HEALTH = 4
    METADATA = 5
    CONTROL = 6
    CREDIT = 7
    INFER_REPLY = 16
    INFER_PART = 17
    ERROR = 18
    WELCOME = 19
    HEALTH_REPLY = 20
    METADATA_REPLY = 21
    CONTROL_REPLY = 22
    RELEASE = 23


class Flag(IntFlag):
    """Bits of ``Route.flags``."""

    FINAL = 1
    STREAM = 2
    IDEMPOTENT = 4
    PACKED = 8
    TRACE_SAMPLED = 16
    REPLY_IN_LEASE = 32
    RELEASED = 64


class Place(IntEnum):
    """Where a tensor's bytes are."""

    UNSET = 0
    FRAME = 1
    INLINE = 2
    LEASE = 3


class KeyPolicy(IntEnum):
    """What ``Route.key`` means for a request."""

    ONE_BY_ONE = 0
    ORDERED = 1
    LATEST_ONLY = 2
    LATEST_N = 3


class HealthScope(IntEnum):
    """What a health question is about."""

    LIVE = 0
    READY = 1
    MODEL_READY = 2


class ControlOp(IntEnum):
    """What a control message asks for."""

    UNSET = 0
    LOAD = 1
    UNLOAD = 2
    RELOAD = 3
    DRAIN = 4
    RESUME = 5
    STATS = 6
    SET_WEIGHT = 7


class RequestError(Exception):
    """The peer's fault, or the fate of one request: becomes a reply with ``code``, never the end of a process.

    Args:
        code: what went wrong, a stable number.
        field: the tensor, parameter or header field at fault, "" when there is none.
        expected: what would have been right, for people.
        got: what came, for people; never payload bytes, cut to 64 characters by the one who formats it.
        message: a whole sentence instead of expected/got.
    """

    def __init__(self, code: Code, *, field: str = "", expected: object = "", got: object = "", message: str = "") -> None:
        self.code = code
        self.field = field
        self.expected = expected
        self.got = got
        self.message = message or _sentence(code, field, expected, got)
        super().__init__(self.message)


def _sentence(code: Code, field: str, expected: object, got: object) -> str:
    """Return "field: expected X, got Y" from the parts that are there, or the code's name."""
    tail = ", ".join(f"{word} {printable(value)}" for word, value in (("expected", expected), ("got", got)) if value != "")
    head = f"{printable(field, MAX_FIELD_CHARS)}: " if field else ""
    return head + (tail or code.name.lower().replace("_", " "))


def printable(value: object, limit: int = 64) -> str:
    """Return *value* as at most *limit* escaped ASCII characters: what a peer sent is never echoed raw."""
    text = str(value).encode("ascii", "backslashreplace").decode("ascii")
    escaped = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return escaped if len(escaped) <= limit else escaped[: limit - 3] + "..."


class ConfigError(Exception):
    """A person's mistake, met at the command line: one line that says what is wrong and the cure."""

    exit_code: ClassVar[int] = 2


class DeviceError(ConfigError):
    """The device that the config demands cannot be used. A code of its own, so that a script can tell it from a wrong config."""

    exit_code: ClassVar[int] = 3
