"""Replies without tensors, as they are read: about 100 us each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.layout import Layout
from schemas.messages import Body, Failure, read_message
from schemas.status import Code, Kind, RequestError

from .calls import Pending
from .errors import CallError, error_of


def is_refusal(header: bytes, route: Sequence[int]) -> bool:
    """True for a refusal with a code 1xx: the server never took the frames that it named."""
    if route[9] != Kind.ERROR:
        return False
    _, body = read_message(header)
    return isinstance(body, Failure) and body.code < Code.BUSY


def read_rare(header: bytes, call: Pending[Any]) -> Body | CallError:
    """Return what a reply without tensors means to *call*."""
    route, body = read_message(header)
    if isinstance(body, Failure):
        return error_of(body)
    if route.kind != call.answer or body is None or isinstance(body, Layout):
        raise RequestError(Code.BAD_KIND, field="kind", expected=call.answer.name, got=Kind(route.kind).name)
    return body
