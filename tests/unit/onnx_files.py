"""Tiny ONNX models for tests, written field by field: no model files to keep, no package to install.

Only what the tests use of onnx.proto: ModelProto, GraphProto, NodeProto, ValueInfoProto, one kind of attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FLOAT, INT32, INT64, BFLOAT16 = 1, 6, 7, 16


def value(name: str, element_type: int, *dims: int | str) -> bytes:
    """Return a ValueInfoProto; a string dimension is a free one with that name."""
    shape = b"".join(_field(1, _field(1, dim) if isinstance(dim, int) else _field(2, dim)) for dim in dims)
    return _field(1, name) + _field(2, _field(1, _field(1, element_type) + _field(2, shape)))


def node(kind: str, inputs: list[str], outputs: list[str], **ints: int) -> bytes:
    """Return a NodeProto with integer attributes."""
    attributes = b"".join(_field(5, _field(1, name) + _field(3, number) + _field(20, 2)) for name, number in ints.items())
    names = b"".join(_field(1, name) for name in inputs) + b"".join(_field(2, name) for name in outputs)
    return names + _field(4, kind) + attributes


def external_tensor(name: str, element_type: int, dims: list[int], file: str) -> bytes:
    """Return a TensorProto whose bytes are those of *file*, beside the model."""
    entry = _field(1, "location") + _field(2, file)
    head = b"".join(_field(1, dim) for dim in dims) + _field(2, element_type) + _field(8, name)
    return head + _field(13, entry) + _field(14, 1)


def constant(output: str, tensor: bytes) -> bytes:
    """Return a NodeProto that gives *tensor*."""
    return _field(2, output) + _field(4, "Constant") + _field(5, _field(1, "value") + _field(5, tensor) + _field(20, 4))


def write_model(
    path: Path, nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], initializers: Sequence[bytes] = ()
) -> Path:
    """Write a ModelProto (IR 8, opset 17) of one graph and return *path*."""
    parts = [(1, part) for part in nodes] + [(5, part) for part in initializers]
    parts += [(11, part) for part in inputs] + [(12, part) for part in outputs]
    graph = _field(2, "test") + b"".join(_field(number, part) for number, part in parts)
    path.write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(2, 17)))
    return path


def _field(number: int, content: int | str | bytes) -> bytes:
    """Return one protobuf field: a varint, or length-delimited bytes."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    body = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Return *number* in base 128, low group first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
