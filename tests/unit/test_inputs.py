"""What a lane says of tensors that it does not take: what was sent, what it takes, and the way to it."""

from __future__ import annotations

import pytest
from builders import make_plan

from schemas.inputs import check_inputs
from schemas.plan import LanePlan
from schemas.status import Code, Place, RequestError
from schemas.tensors import DType
from schemas.wire_tensors import WireTensor

CONFIG = """
[lane.ticks]
model = "trading_mlp.onnx"
[lane.rows]
model = "trading_mlp.onnx"
max_rows = 4
[lane.qc]
max_pixels = 10_000
[lane.qc.decode]
"""


@pytest.fixture(scope="module")
def lanes() -> dict[str, LanePlan]:
    """The lanes of CONFIG by name."""
    return {lane.name: lane for lane in make_plan(CONFIG).lanes}


def refusal(lane: LanePlan, *tensors: tuple[str, DType, tuple[int, ...]]) -> tuple[Code, str]:
    """Return code and text with which *tensors* are refused."""
    sent = [WireTensor(name, dtype, shape, Place.FRAME, 0, frame=0) for name, dtype, shape in tensors]
    with pytest.raises(RequestError) as caught:
        check_inputs(sent, lane)
    return caught.value.code, caught.value.message


def test_a_missing_input_is_told_with_what_was_sent(lanes: dict[str, LanePlan]) -> None:
    """By name; nothing at all is said as well."""
    features = "features: expected inputs features, got"

    sent = ("feature", DType.FP32, (1, 67)), ("x", DType.FP32, (1, 1))
    assert refusal(lanes["ticks"], *sent) == (Code.MISSING_INPUT, f"{features} feature, x")
    assert refusal(lanes["ticks"]) == (Code.MISSING_INPUT, f"{features} none")


def test_too_many_rows_name_the_key_that_allows_more(lanes: dict[str, LanePlan]) -> None:
    """Where nothing but the rows is wrong."""
    said = "features: expected [1, 67] (lane.ticks.max_rows), got [3, 67]"

    assert refusal(lanes["ticks"], ("features", DType.FP32, (3, 67))) == (Code.BAD_SHAPE, said)
    assert "(lane.rows.max_rows)" in refusal(lanes["rows"], ("features", DType.FP32, (5, 67)))[1]


@pytest.mark.parametrize("shape", [(3, 66), (0, 67), (67,), (1, 1, 67), ()])
def test_another_shape_names_no_key(lanes: dict[str, LanePlan], shape: tuple[int, ...]) -> None:
    """No number of rows would make it right."""
    said = f"features: expected [1, 67], got {list(shape)}"

    assert refusal(lanes["ticks"], ("features", DType.FP32, shape)) == (Code.BAD_SHAPE, said)


def test_a_files_bytes_without_encoded_are_told_the_way(lanes: dict[str, LanePlan]) -> None:
    """A bytes object alone is a BYTES tensor."""
    said = "image: expected ENCODED, UINT8 or UINT16, got BYTES; wrap a file's bytes: Encoded(path.read_bytes())"

    assert refusal(lanes["qc"], ("image", DType.BYTES, (1,))) == (Code.BAD_DTYPE, said)
