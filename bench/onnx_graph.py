"""ONNX files of models with random weights, written field by field: no file is kept, and no package is needed.

Only what the benchmark uses of onnx.proto: one graph of float tensors with one input and one output.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_FLOAT, _INT_ATTRIBUTE, _INTS_ATTRIBUTE = 1, 2, 7
_IR_VERSION, _OPSET = 8, 17


class Graph:
    """A graph in the making: nodes and weights.

    Args:
        seed: of the random weights.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._parts: list[tuple[int, bytes]] = []
        self._names = 0

    def weight(self, shape: tuple[int, ...], scale: float) -> str:
        """Add random weights and return their name."""
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, values: NDArray[np.float32]) -> str:
        """Add *values* and return their name."""
        name = self._name()
        dims = b"".join(field(1, dim) for dim in values.shape)
        self._parts.append((5, dims + field(2, _FLOAT) + field(8, name) + field(9, values.tobytes())))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: int | Sequence[int]) -> str:
        """Add a node and return its output's name, which is made up unless it is given."""
        output = output or self._name()
        names = b"".join(field(1, name) for name in inputs) + field(2, output)
        settings = b"".join(field(5, _attribute(name, value)) for name, value in attributes.items())
        self._parts.append((1, names + field(4, kind) + settings))
        return output

    def write(self, path: Path, inputs: bytes, outputs: bytes) -> Path:
        """Write the model with one input and one output, each by ``tensor``, and return *path*."""
        graph = b"".join(field(number, part) for number, part in [*self._parts, (11, inputs), (12, outputs)])
        path.write_bytes(field(1, _IR_VERSION) + field(7, graph + field(2, "bench")) + field(8, field(2, _OPSET)))
        return path

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"


def tensor(name: str, *dims: int | str) -> bytes:
    """Return a float tensor of the graph's border (ValueInfoProto); a text is a dimension that is free."""
    shape = b"".join(field(1, field(1, dim) if isinstance(dim, int) else field(2, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, _FLOAT) + field(2, shape)))


def field(number: int, content: int | str | bytes) -> bytes:
    """Return one protobuf field: a varint, or length-delimited bytes."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    body = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    """Return an integer attribute, or one of several integers."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, _INT_ATTRIBUTE)
    return field(1, name) + b"".join(field(8, number) for number in value) + field(20, _INTS_ATTRIBUTE)


def _varint(number: int) -> bytes:
    """Return *number* in base 128, low group first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
