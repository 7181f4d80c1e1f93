"""What an image lane's keys come to: datatype and room of its pixels, memory of the process that decodes, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config import Config, parse_config
from schemas.status import ConfigError
from schemas.tensors import DType
from stages.lane_plan import build_plan
from stages.memory_limit import limit_bytes

MIB = 1 << 20
ALL = ["decode", "preprocess", "infer", "postprocess"]


def config(decode: str = "", lane: str = "") -> Config:
    """Return a config of one image lane without a model, 10,000 pixels."""
    text = f"[lane.a]\nmax_pixels = 10_000\nmax_encoded_bytes = 50_000\n{lane}\n[lane.a.decode]\n{decode}"
    return parse_config(text, base=Path("/"), source="test.toml")


def pixels(decode: str) -> tuple[DType, tuple[int, ...], int]:
    """Return datatype, shape and bytes of the pixels that the lane's plan has room for."""
    (tensor,) = build_plan(config(decode), {}).lanes[0].links[-1].tensors
    return tensor.dtype, tensor.shape, tensor.max_bytes


def refusal(decode: str, lane: str = "") -> str:
    """Return the error that the plan of such a lane gives."""
    with pytest.raises(ConfigError) as caught:
        build_plan(config(decode, lane), {})
    return str(caught.value)


def test_pixels_have_the_lanes_colour_and_depth() -> None:
    """And room for as many as the lane allows."""
    assert pixels("") == (DType.UINT8, (-1, -1, 3), 30_000)
    assert pixels('color = "grey"') == (DType.UINT8, (-1, -1), 10_000)
    assert pixels('color = "grey"\ndepth = 16') == (DType.UINT16, (-1, -1), 20_000)
    assert pixels('color = "grey"\ndepth = 16\npixel_format = "Mono12p"') == (DType.UINT16, (-1, -1), 20_000)


@pytest.mark.parametrize("more", ["", 'color = "grey"\npixel_format = "BayerRG8"', 'color = "grey"\npixel_format = "Mono8"'])
def test_sixteen_bits_are_grey_and_from_deep_frames(more: str) -> None:
    """The error names the key and what may stand beside it."""
    assert "lane.a.decode.depth: 16 keeps grey values" in refusal(f"depth = 16\n{more}")


def test_the_built_in_preprocess_takes_no_sixteen_bits() -> None:
    """Its floor is meant for values up to 255."""
    assert "grey pixels of 8 bits" in refusal('color = "grey"\ndepth = 16', "preprocess = { use = 'standardize' }")


@pytest.mark.parametrize(
    ("decode", "stages", "expected"),
    [
        ("", ["decode"], 64 * MIB + 32 * 10_000 + 2 * 50_000),
        ("", ["decode", "preprocess"], 64 * MIB + 32 * 10_000 + 2 * 50_000),
        ("", ALL, 0),
        ("", ["infer"], 0),
        ("memory_limit_mb = 200", ["decode"], 200 * MIB),
        ("memory_limit_mb = 200", ALL, 200 * MIB),
        ("memory_limit_mb = 200", ["preprocess"], 0),
    ],
)
def test_a_process_that_decodes_has_a_memory_limit(decode: str, stages: list[str], expected: int) -> None:
    """From the largest picture by default, unless a model shares the process; as written when it is written."""
    assert limit_bytes(config(decode).lanes[0], stages) == expected


def test_a_lane_of_tensors_has_no_memory_limit() -> None:
    """Its decode stage does nothing."""
    lane = parse_config("[lane.a]", base=Path("/"), source="test.toml").lanes[0]

    assert limit_bytes(lane, ["decode"]) == 0
