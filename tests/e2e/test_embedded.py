"""The embedded pipeline and a server of the same config: the same answers, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from server import DEMO, Server
from shared_server import shared_server

from clients import Client, Encoded, Result, SlotlineError
from schemas.status import RequestError
from stages.demo import config_path, parts_path, ticks_path
from stages.demo.check import load_features
from stages.pipeline import Pipeline

TICKS = 2_000


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """The demo's lanes in this process."""
    with Pipeline(config_path()) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of the demo's lanes in processes of their own, cut into stages."""
    with shared_server(lambda _: DEMO) as server, Client(_endpoint(server), timeout_s=30.0) as connected:
        yield connected


def _endpoint(server: Server) -> str:
    return server.endpoint


def contents(outputs: Mapping[str, Any] | BaseException) -> dict[str, Any]:
    """Return outputs as what can be compared to the last bit: datatype, shape, bytes."""
    assert isinstance(outputs, Mapping), outputs
    return {
        name: array.tolist() if array.dtype == object else (array.dtype.str, array.shape, array.tobytes())
        for name, array in outputs.items()
    }


def test_ticks_embedded_and_served_are_bit_equal(pipeline: Pipeline, client: Client) -> None:
    """The market file's rows in turn, many at once on both sides, so that batches differ."""
    rows = load_features(ticks_path())
    inputs = [{"features": rows[at % len(rows)][None]} for at in range(TICKS)]

    embedded, served = pipeline.infer_many("ticks", inputs), client.infer_many("ticks", inputs)

    assert list(map(contents, embedded)) == list(map(contents, served))


def test_parts_embedded_and_served_are_bit_equal(pipeline: Pipeline, client: Client) -> None:
    """Verdict, score and boxes of all 24."""
    inputs = [{"image": Encoded(path.read_bytes())} for path in sorted(parts_path().glob("*.png"))]

    embedded, served = pipeline.infer_many("qc", inputs), client.infer_many("qc", inputs)

    assert len(served) == 24
    assert list(map(contents, embedded)) == list(map(contents, served))


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("ticks", {"features": np.zeros((1, 66), np.float32)}),
        ("ticks", {"features": np.zeros((1, 67))}),
        ("ticks", {}),
        ("qc", {"image": Encoded(b"no picture at all")}),
        ("tick", {}),
    ],
)
def test_what_a_server_refuses_is_refused_embedded(
    pipeline: Pipeline, client: Client, model: str, inputs: Mapping[str, Any]
) -> None:
    """With the same code."""
    with pytest.raises(RequestError) as embedded:
        pipeline.infer(model, inputs)
    with pytest.raises(SlotlineError) as served:
        client.infer(model, inputs)

    assert embedded.value.code == served.value.code


def test_a_result_names_the_same_outputs(pipeline: Pipeline, client: Client) -> None:
    """In the same order."""
    inputs = {"features": np.zeros((1, 67), np.float32)}
    served: Result = client.infer("ticks", inputs)

    assert list(pipeline.infer("ticks", inputs)) == list(served)
