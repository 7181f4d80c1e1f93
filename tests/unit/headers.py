"""Builders of headers for the tests of the wire modules: one field off the ordinary at a time."""

from __future__ import annotations

from typing import Any

from schemas.encode import encode
from schemas.status import Kind, Place
from schemas.tables import BodyTag
from schemas.tensors import DType
from schemas.wire import Route


def make_route(**changes: int) -> Route:
    """Return the Route of an ordinary request, with *changes*."""
    ordinary = dict.fromkeys(Route._fields, 0) | {"request_id": 7, "budget_us": 5_000, "kind": Kind.INFER_REQUEST}
    return Route(**(ordinary | changes))


def make_tensor(**changes: Any) -> dict[str, Any]:
    """Return the table of a (1, 20) FP32 tensor with its 80 bytes inline, with *changes*."""
    ordinary = {
        "name": "x",
        "dtype": DType.FP32,
        "place": Place.INLINE,
        "shape": [1, 20],
        "nbytes": 80,
        "inline_data": bytes(range(80)),
    }
    return ordinary | changes


def frame_tensor(name: str, frame: int) -> dict[str, Any]:
    """Return the table of a tensor in a payload frame."""
    return make_tensor(name=name, place=Place.FRAME, frame=frame, inline_data=None)


def make_request(route: Route | None = None, **changes: Any) -> bytes:
    """Return the header of an Infer to the model "ticks" with one inline tensor, with *changes* to its body."""
    return encode(route or make_route(), BodyTag.INFER, {"model": "ticks", "inputs": [make_tensor()]} | changes)
