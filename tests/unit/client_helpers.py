"""Builders for the client's tests: a session, and a server that is nothing but the codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.calls import Pending
from clients.session import Outgoing, Session
from schemas.error_templates import ErrorTemplates
from schemas.layout import Layout, read_layout, read_route
from schemas.messages import Limits, Welcome
from schemas.status import Code, Flag, Place
from schemas.templates import ReplyTemplate, TensorForm, pack_timing
from schemas.tensors import DType
from schemas.wire import Route

TICK: NDArray[np.float32] = np.arange(20, dtype=np.float32).reshape(1, 20)
MS = 1_000_000
LIMITS = Limits(65_536, 1 << 20, 8, 4, default_budget_us=1_000, max_budget_us=1_000_000)


def never_wait(call: Pending[Any], timeout_s: float | None) -> None:
    """Be the wait of a session whose replies the test delivers by itself."""


def make_session(*, timeout_us: int = 100_000, limits: Limits = LIMITS, epoch: int = 7) -> Session:
    """Return a session that was welcomed."""
    session = Session(timeout_us=timeout_us, wait=never_wait)
    session.welcome(Welcome("test", epoch, limits))
    return session


def submit(session: Session, inputs: Mapping[str, Any] | None = None, *, now_ns: int = 0, **options: Any) -> Outgoing:
    """Start a request for the model ``ticks``."""
    return session.submit("ticks", inputs or {"x": TICK}, options, now_ns)  # type: ignore[arg-type]


def read(outgoing: Outgoing) -> tuple[Route, Layout]:
    """Return what a server reads of a request's header."""
    layout = read_layout(outgoing.header)
    return read_route(outgoing.header, layout), layout


def tensor_bytes(outgoing: Outgoing) -> dict[str, bytes]:
    """Return the contents of a request's inputs by name, wherever they are."""
    contents = {}
    for tensor in read(outgoing)[1].tensors:
        if tensor.place == Place.INLINE:
            contents[tensor.name] = outgoing.header[tensor.inline_at : tensor.inline_at + tensor.nbytes]
        else:
            contents[tensor.name] = bytes(outgoing.frames[tensor.frame])
    return contents


def reply(call: Pending[Any], value: float = 0.5, *, flags: int = Flag.FINAL) -> bytes:
    """Return the header of a result with one output ``y`` of shape (1, 1)."""
    template = ReplyTemplate("ticks", "1", [TensorForm("y", DType.FP32, (1, 1), 4, inline=True)], stages=2)
    timing = pack_timing([(1, 2, 3), (4, 5, 6)])
    return template.header((call.request_id, 0, 0), timing, 1, 9, [np.float32(value).tobytes()], flags)


def reply_in_frames(call: Pending[Any], forms: Sequence[TensorForm]) -> bytes:
    """Return the header of a result whose outputs are payload frames."""
    return ReplyTemplate("ticks", "1", forms, stages=0).header((call.request_id, 0, 0), b"", 0, 0)


def error(call: Pending[Any], code: Code, message: str = "why", *, retry_after_us: int = 0, field: str = "") -> bytes:
    """Return the header of an error reply."""
    return ErrorTemplates().header(
        (call.request_id, 0, 0), code, message, retry_after_us=retry_after_us, stage="infer", field=field
    )
