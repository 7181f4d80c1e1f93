"""From a lane's config and its model's input to what ``preprocess.use = "resize"`` makes of a picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from schemas.config import LaneConfig
from schemas.status import ConfigError
from schemas.tensors import DType, TensorSpec

from .resize import ResizeSpec

# What the infer stage uses where the GPU's kernel resizes in front of the model.
FUSED = "resize, model"


def resize_plan(lane: LaneConfig, given: TensorSpec | None) -> tuple[ResizeSpec, str]:
    """Return the spec, and the name of the tensor.

    Args:
        given: the model's first input, which takes the rows; None for a lane without a model.

    Raises:
        ConfigError: the decoded pictures or the model's input are not of the kind, or a size is open; naming the key.
    """
    key = f"lane.{lane.name}.preprocess"
    decode = lane.decode
    if decode.use != "image" or decode.params["depth"] != 8:
        raise ConfigError(f'{key}.use: "resize" takes pixels of 8 bits: set [lane.{lane.name}.decode] use = "image", depth = 8')
    channels = 1 if decode.params["color"] == "grey" else 3
    tensor = given or TensorSpec("image", DType.FP32, (-1, channels, -1, -1))
    fits = tensor.dtype in (DType.FP32, DType.FP16) and len(tensor.shape) == 4 and tensor.shape[1] in (channels, -1)
    if not fits:
        raise ConfigError(
            f'{key}.use: "resize" makes FP32 or FP16 [rows, {channels}, height, width], this model takes '
            f"{tensor.dtype.name} {list(tensor.shape)}: choose another preprocess, or decode.color"
        )
    sides = tuple(_side(lane, name, model) for name, model in (("height", tensor.shape[2]), ("width", tensor.shape[3])))
    return spec_of(lane, tensor.dtype, (channels, *sides)), tensor.name


def spec_of(lane: LaneConfig, dtype: DType, shape: Sequence[int]) -> ResizeSpec:
    """Return the spec of rows of *shape*, (channels, height, width), with the lane's factors.

    Raises:
        ConfigError: there are as many factors as no picture of the lane has channels.
    """
    channels, height, width = shape
    mean, scale = (_factors(lane, name, channels) for name in ("mean", "scale"))
    return ResizeSpec(height, width, channels, dtype, mean, scale)


def _side(lane: LaneConfig, name: str, model: int) -> int:
    """Return one side: the model's, or the config's where the model leaves it open."""
    wanted = cast(int, lane.preprocess.params[name])
    key = f"lane.{lane.name}.preprocess.{name}"
    if wanted and model not in (-1, wanted):
        raise ConfigError(f"{key}: the model takes {model}, not {wanted}: leave it out")
    if not wanted and model == -1:
        raise ConfigError(f"{key}: missing: the model takes any {name}, so say which")
    return wanted or model


def _factors(lane: LaneConfig, name: str, channels: int) -> tuple[float, ...]:
    """Return one factor for each channel."""
    given = cast("tuple[float, ...]", lane.preprocess.params[name])
    if len(given) not in (1, channels):
        key = f"lane.{lane.name}.preprocess.{name}"
        raise ConfigError(f"{key}: expected 1 or {channels} numbers, one for each channel; got {len(given)}")
    return given * channels if len(given) == 1 else given
