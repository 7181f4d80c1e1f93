"""Functions of a user for lanes that tests make, found as ``stage_functions:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError

Tensors = Mapping[str, NDArray[Any]]


def copy(inputs: Tensors, outputs: Tensors, params: object) -> dict[str, tuple[int, ...]]:
    """Copy the input's bytes."""
    (values,) = inputs.values()
    outputs["copy"][: values.size] = values.reshape(-1)
    return {"copy": (values.size,)}


def refuse_odd(inputs: Tensors, outputs: Tensors, params: object) -> dict[str, tuple[int, ...]]:
    """Copy the input's bytes unless the first is odd, which is the sender's fault; 255 raises as user code does."""
    (values,) = inputs.values()
    if values[0] == 255:
        raise ZeroDivisionError("x" * 1000)
    if values[0] % 2:
        raise RequestError(Code.BAD_IMAGE, field="image", expected="an even byte", got=values[0])
    return copy(inputs, outputs, params)


def repeat(inputs: Tensors, outputs: Tensors, params: object) -> dict[str, tuple[int, ...]]:
    """Write as many rows of ones as the input's first byte says."""
    (values,) = inputs.values()
    rows = int(values.reshape(-1)[0])
    (name,) = outputs
    outputs[name][:rows] = 1
    return {name: (rows, *outputs[name].shape[1:])}


def corner(inputs: Tensors, outputs: Tensors, params: object) -> dict[str, tuple[int, ...]]:
    """Write a small plane into the corner of a large one, and two words."""
    outputs["plane"][:2, :3] = np.arange(6).reshape(2, 3)
    outputs["words"][:10] = np.frombuffer(b"\1\0\0\0a\1\0\0\0b", np.uint8)
    return {"plane": (2, 3), "words": (2,)}


def write_large_ones(inputs: Tensors, outputs: Tensors, params: object) -> None:
    """Write the input's first byte if it is above 3, and forget to write anything else."""
    (values,) = inputs.values()
    if values[0] > 3:
        outputs["copy"][:1] = values[:1]


def assign(inputs: Tensors, outputs: Any, params: object) -> None:
    """Put an array into the mapping instead of writing into the one that is there."""
    outputs["copy"] = np.ones(1)
