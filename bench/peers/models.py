"""The models that every peer serves, with seeded weights.

``tick``: 64 float32, three hidden layers of 128, 3 scores. ``image``: a classifier of 224 x 224 pictures in the shape of
MobileNet v2 at 0.7 of its width, about 150 million multiply-adds; its weights are random, which take as long as learned ones.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from bench.onnx_graph import Graph, tensor

TICK_INPUTS, TICK_HIDDEN, TICK_OUTPUTS = 64, 128, 3
CLASSES = 1000
WIDTH = 0.7
# Of MobileNet v2: expansion, channels, repeats, first stride of each group of blocks.
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def write_tick(directory: Path) -> Path:
    """Write the tick model; input ``x`` (rows, 64), output ``y`` (rows, 3)."""
    graph = Graph(seed=1)
    sizes = (TICK_INPUTS, TICK_HIDDEN, TICK_HIDDEN, TICK_HIDDEN, TICK_OUTPUTS)
    last = "x"
    for at, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        is_end = at == len(sizes) - 2
        weights = [graph.weight((rows, columns), (2 / rows) ** 0.5), graph.weight((columns,), 0.1)]
        last = graph.node("Gemm", [last, *weights], "y" if is_end else "")
        last = last if is_end else graph.node("Relu", [last])
    return graph.write(directory / "tick.onnx", tensor("x", "rows", TICK_INPUTS), tensor("y", "rows", TICK_OUTPUTS))


def write_image(directory: Path) -> Path:
    """Write the image model; input ``input`` (rows, 3, 224, 224), output ``logits`` (rows, 1000)."""
    graph = Graph(seed=2)
    limits = [graph.constant(np.array(value, np.float32)) for value in (0, 6)]
    channels = _channels(32)
    last = _convolution(graph, "input", (3, channels), limits, (3, 2, 1))
    for expansion, wanted, repeats, first_stride in BLOCKS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            last = _block(graph, last, (channels, _channels(wanted)), limits, expansion=expansion, stride=stride)
            channels = _channels(wanted)
    last = _convolution(graph, last, (channels, 1280), limits)
    last = graph.node("Flatten", [graph.node("GlobalAveragePool", [last])])
    weights = [graph.weight((1280, CLASSES), 1280**-0.5), graph.constant(np.zeros(CLASSES, np.float32))]
    graph.node("Gemm", [last, *weights], "logits")
    return graph.write(directory / "image.onnx", tensor("input", "rows", 3, 224, 224), tensor("logits", "rows", CLASSES))


def _block(graph: Graph, last: str, sizes: tuple[int, int], limits: list[str], *, expansion: int, stride: int) -> str:
    """Add one inverted residual block of *sizes* (channels before, behind)."""
    before, behind = sizes
    hidden = before * expansion
    inner = last if expansion == 1 else _convolution(graph, last, (before, hidden), limits)
    inner = _convolution(graph, inner, (hidden, hidden), limits, (3, stride, hidden))
    inner = _convolution(graph, inner, (hidden, behind), [])
    return graph.node("Add", [inner, last]) if stride == 1 and before == behind else inner


def _convolution(
    graph: Graph, last: str, sizes: tuple[int, int], limits: list[str], form: tuple[int, int, int] = (1, 1, 1)
) -> str:
    """Add a convolution with a bias, of *form* (kernel, stride, groups); with *limits* it is clipped to them."""
    (before, behind), (kernel, stride, groups) = sizes, form
    fan_in = before // groups * kernel * kernel
    weights = graph.weight((behind, before // groups, kernel, kernel), (2 / fan_in) ** 0.5)
    inputs = [last, weights, graph.weight((behind,), 0.01)]
    pads = [kernel // 2] * 4
    output = graph.node("Conv", inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups)
    return graph.node("Clip", [output, *limits]) if limits else output


def _channels(wanted: int) -> int:
    """Return *wanted* at WIDTH, a multiple of 8."""
    return max(8, int(wanted * WIDTH + 4) // 8 * 8)
