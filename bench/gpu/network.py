"""A convolutional network of ResNet-50's size and shape with random weights, written as an ONNX file: nothing to download.

Bottleneck blocks of three convolutions and a shortcut, without normalisation (which exporters fold into the weights anyway).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FLOAT = 1
# Numbers of onnx.proto: ModelProto.graph, .ir_version, .opset_import; GraphProto.node, .name, .initializer, .input, .output.
IR_VERSION, OPSET = 8, 17


@dataclass
class Graph:
    """Nodes and weights as encoded fields, in order."""

    numbers: np.random.Generator
    fields: list[bytes] = field(default_factory=list)
    made: int = 0

    def node(self, kind: str, inputs: Sequence[str], **lists: Sequence[int]) -> str:
        """Add a node with lists of integers as attributes; return the name of its output."""
        self.made += 1
        output = f"t{self.made}"
        parts = [_bytes(1, name.encode()) for name in inputs] + [_bytes(2, output.encode()), _bytes(4, kind.encode())]
        for name, values in lists.items():
            parts.append(_bytes(5, _bytes(1, name.encode()) + b"".join(_int(8, value) for value in values) + _int(20, 7)))
        self.fields.append(_bytes(1, b"".join(parts)))
        return output

    def weights(self, *shape: int) -> str:
        """Add random weights that keep the size of what passes through them; return their name."""
        self.made += 1
        scale = np.sqrt(2.0 / max(1, int(np.prod(shape[1:]))))
        values = (self.numbers.standard_normal(shape) * scale).astype("<f4")
        dims = b"".join(_int(1, dim) for dim in shape)
        name = f"w{self.made}"
        self.fields.append(_bytes(5, dims + _int(2, FLOAT) + _bytes(8, name.encode()) + _bytes(9, values.tobytes())))
        return name

    def convolution(self, given: str, channels: tuple[int, int], size: int, stride: int = 1) -> str:
        """Add a convolution that keeps the picture's size but for the stride."""
        pad = size // 2
        weights = self.weights(channels[1], channels[0], size, size)
        return self.node("Conv", [given, weights], strides=[stride, stride], pads=[pad] * 4, kernel_shape=[size, size])

    def bottleneck(self, given: str, channels: tuple[int, int, int], stride: int) -> str:
        """Add a block: channels (in, inside, out)."""
        come, inside, out = channels
        one = self.node("Relu", [self.convolution(given, (come, inside), 1)])
        two = self.node("Relu", [self.convolution(one, (inside, inside), 3, stride)])
        three = self.convolution(two, (inside, out), 1)
        shortcut = given if come == out else self.convolution(given, (come, out), 1, stride)
        return self.node("Relu", [self.node("Add", [three, shortcut])])


def write_network(
    path: Path, *, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3), side: int = 224, classes: int = 1000
) -> Path:
    """Write the network and return *path*: input ``image`` (n, 3, side, side) float32, output ``scores`` (n, classes).

    Args:
        width: channels of the first layer; 64 with these blocks is ResNet-50.
    """
    graph = Graph(np.random.default_rng(0))
    last = graph.node("Relu", [graph.convolution("image", (3, width), 7, 2)])
    last = graph.node("MaxPool", [last], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    come = width
    for stage, count in enumerate(blocks):
        inside = width << stage
        for block in range(count):
            last = graph.bottleneck(last, (come, inside, 4 * inside), 2 if stage and not block else 1)
            come = 4 * inside
    flat = graph.node("Flatten", [graph.node("GlobalAveragePool", [last])])
    scores = graph.node("MatMul", [flat, graph.weights(come, classes)])
    graph.fields.append(_bytes(1, _bytes(1, scores.encode()) + _bytes(2, b"scores") + _bytes(4, b"Identity")))
    ends = [_bytes(11, _tensor("image", ["n", 3, side, side])), _bytes(12, _tensor("scores", ["n", classes]))]
    body = b"".join([*graph.fields, _bytes(2, b"network"), *ends])
    path.write_bytes(_int(1, IR_VERSION) + _bytes(7, body) + _bytes(8, _int(2, OPSET)))
    return path


def _tensor(name: str, dims: Sequence[int | str]) -> bytes:
    """Return a ValueInfoProto of floats."""
    shape = b"".join(_bytes(1, _int(1, dim) if isinstance(dim, int) else _bytes(2, dim.encode())) for dim in dims)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _int(1, FLOAT) + _bytes(2, shape)))


def _int(number: int, value: int) -> bytes:
    return bytes((*_varint(number << 3), *_varint(value)))


def _bytes(number: int, content: bytes) -> bytes:
    return bytes((*_varint(number << 3 | 2), *_varint(len(content)))) + content


def _varint(value: int) -> Iterator[int]:
    """Yield *value* in base 128, low group first."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
