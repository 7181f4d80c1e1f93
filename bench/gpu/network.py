"""A convolutional network of ResNet-50's size and shape with random weights, written as an ONNX file: nothing to download.

Bottleneck blocks of three convolutions and a shortcut, without normalisation (which exporters fold into the weights anyway).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.onnx_graph import Graph, tensor


def write_network(
    path: Path, *, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3), side: int = 224, classes: int = 1000
) -> Path:
    """Write the network and return *path*: input ``image`` (n, 3, side, side) float32, output ``scores`` (n, classes).

    Args:
        width: channels of the first layer; 64 with these blocks is ResNet-50.
    """
    graph = Graph(seed=0)
    last = graph.node("Relu", [_convolution(graph, "image", (3, width), 7, 2)])
    last = graph.node("MaxPool", [last], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    come = width
    for stage, count in enumerate(blocks):
        inside = width << stage
        for block in range(count):
            last = _bottleneck(graph, last, (come, inside, 4 * inside), 2 if stage and not block else 1)
            come = 4 * inside
    flat = graph.node("Flatten", [graph.node("GlobalAveragePool", [last])])
    graph.node("MatMul", [flat, _weights(graph, come, classes)], "scores")
    return graph.write(path, tensor("image", "n", 3, side, side), tensor("scores", "n", classes))


def _bottleneck(graph: Graph, given: str, channels: tuple[int, int, int], stride: int) -> str:
    """Add a block: channels (in, inside, out)."""
    come, inside, out = channels
    one = graph.node("Relu", [_convolution(graph, given, (come, inside), 1)])
    two = graph.node("Relu", [_convolution(graph, one, (inside, inside), 3, stride)])
    three = _convolution(graph, two, (inside, out), 1)
    shortcut = given if come == out else _convolution(graph, given, (come, out), 1, stride)
    return graph.node("Relu", [graph.node("Add", [three, shortcut])])


def _convolution(graph: Graph, given: str, channels: tuple[int, int], size: int, stride: int = 1) -> str:
    """Add a convolution that keeps the picture's size but for the stride."""
    weights = _weights(graph, channels[1], channels[0], size, size)
    return graph.node("Conv", [given, weights], strides=[stride] * 2, pads=[size // 2] * 4, kernel_shape=[size] * 2)


def _weights(graph: Graph, *shape: int) -> str:
    """Add random weights that keep the size of what passes through them; return their name."""
    return graph.weight(shape, math.sqrt(2.0 / math.prod(shape[1:])))
