"""Tiny ONNX models for tests, written field by field: no model files to keep, no package to install.

Only what the tests use of onnx.proto: ModelProto, GraphProto, NodeProto, ValueInfoProto, one kind of attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.onnx_graph import field

FLOAT, INT32, INT64, BFLOAT16 = 1, 6, 7, 16


def value(name: str, element_type: int, *dims: int | str) -> bytes:
    """Return a ValueInfoProto; a string dimension is a free one with that name."""
    shape = b"".join(field(1, field(1, dim) if isinstance(dim, int) else field(2, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, element_type) + field(2, shape)))


def node(kind: str, inputs: list[str], outputs: list[str], **ints: int) -> bytes:
    """Return a NodeProto with integer attributes."""
    attributes = b"".join(field(5, field(1, name) + field(3, number) + field(20, 2)) for name, number in ints.items())
    names = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    return names + field(4, kind) + attributes


def external_tensor(name: str, element_type: int, dims: list[int], file: str) -> bytes:
    """Return a TensorProto whose bytes are those of *file*, beside the model."""
    entry = field(1, "location") + field(2, file)
    head = b"".join(field(1, dim) for dim in dims) + field(2, element_type) + field(8, name)
    return head + field(13, entry) + field(14, 1)


def constant(output: str, tensor: bytes) -> bytes:
    """Return a NodeProto that gives *tensor*."""
    return field(2, output) + field(4, "Constant") + field(5, field(1, "value") + field(5, tensor) + field(20, 4))


def write_model(
    path: Path, nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], initializers: Sequence[bytes] = ()
) -> Path:
    """Write a ModelProto (IR 8, opset 17) of one graph and return *path*."""
    parts = [(1, part) for part in nodes] + [(5, part) for part in initializers]
    parts += [(11, part) for part in inputs] + [(12, part) for part in outputs]
    graph = field(2, "test") + b"".join(field(number, part) for number, part in parts)
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 17)))
    return path
