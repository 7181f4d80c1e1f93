"""Layer 2: clients in Python. See ``client.py``; errors are in ``errors.py``."""

import schemas

try:
    from schemas.wire import IDENTIFIER
except ImportError:
    IDENTIFIER = b""
if IDENTIFIER != b"SLT1":
    _found = schemas.__file__ or ", ".join(schemas.__path__)
    raise ImportError(
        f"the package `schemas` of another project took the place of Slotline's ({_found}): "
        "take its directory off PYTHONPATH, or use a virtual environment in which only Slotline has one"
    )

from schemas.arrays import Bfloat16, Encoded
from schemas.status import KeyPolicy

from .aio import AsyncClient
from .calls import Options, Pending, Result
from .client import Client
from .errors import (
    BadKeys,
    BadReply,
    Busy,
    CallError,
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    RequestFailed,
    RequestRefused,
    ServerUnreachable,
    SlotlineError,
    Superseded,
    Unauthorized,
)
from .leases import Frame, Lease

__all__ = [
    "AsyncClient",
    "BadKeys",
    "BadReply",
    "Bfloat16",
    "Busy",
    "CallError",
    "Cancelled",
    "Client",
    "ConnectionLost",
    "DeadlineExceeded",
    "Encoded",
    "Frame",
    "KeyPolicy",
    "Lease",
    "Options",
    "Pending",
    "RequestFailed",
    "RequestRefused",
    "Result",
    "ServerUnreachable",
    "SlotlineError",
    "Superseded",
    "Unauthorized",
]
