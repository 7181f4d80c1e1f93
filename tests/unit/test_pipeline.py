"""The embedded pipeline gives what a direct run of the models gives, and refuses what a server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from schemas.arrays import Encoded
from schemas.status import Code, RequestError
from stages.demo import config_path, parts_path, ticks_path
from stages.demo.check import check_parts, check_ticks, load_features
from stages.engine import Engine
from stages.pipeline import Pipeline


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """The demo's lanes in this process."""
    with Pipeline(config_path()) as embedded:
        yield embedded


def test_ticks_are_bit_equal_to_a_direct_run(pipeline: Pipeline) -> None:
    """Every row of the market file, many at once, gives what it gives alone."""
    features = load_features(ticks_path())

    outcomes = pipeline.infer_many("ticks", [{"features": row[None]} for row in features])

    assert not [outcome for outcome in outcomes if isinstance(outcome, RequestError)]
    outputs = {name: np.concatenate([outcome[name] for outcome in outcomes]) for name in ("log_vol", "p_up")}  # type: ignore[index]
    assert check_ticks(features, outputs) == 0


def test_parts_are_bit_equal_to_a_direct_run(pipeline: Pipeline) -> None:
    """Every photo gives the verdict, score and boxes of the model run alone."""
    paths = sorted(parts_path().glob("*.png"))

    outcomes = pipeline.infer_many("qc", [{"image": Encoded(path.read_bytes())} for path in paths])

    answers = {p.name: (o["verdict"][0].decode(), float(o["score"][0]), o["boxes"]) for p, o in zip(paths, outcomes, strict=True)}  # type: ignore[index]
    assert check_parts(parts_path(), answers) == 0


def test_a_bad_request_among_good_ones_gets_its_own_error(pipeline: Pipeline) -> None:
    """A shape that the model does not take is refused by name; the others are answered."""
    good = {"features": np.zeros((1, 67), np.float32)}

    first, bad, last = pipeline.infer_many("ticks", [good, {"features": np.zeros((1, 66), np.float32)}, good])

    assert isinstance(bad, RequestError)
    assert (bad.code, bad.field) == (Code.BAD_SHAPE, "features")
    assert isinstance(first, dict)
    assert isinstance(last, dict)


def test_a_broken_picture_is_refused_with_the_decoders_reason(pipeline: Pipeline) -> None:
    """Bytes that are no picture end as BAD_IMAGE."""
    with pytest.raises(RequestError, match="image") as caught:
        pipeline.infer("qc", {"image": Encoded(b"no picture at all")})

    assert caught.value.code == Code.BAD_IMAGE


def test_nan_is_refused_where_the_caller_asks_for_it(pipeline: Pipeline) -> None:
    """finite=True names the input that holds NaN."""
    row = np.full((1, 67), np.nan, np.float32)

    with pytest.raises(RequestError) as caught:
        pipeline.infer("ticks", {"features": row}, finite=True)

    assert (caught.value.code, caught.value.field) == (Code.NOT_FINITE, "features")


def test_an_unknown_model_is_named_with_those_there_are(pipeline: Pipeline) -> None:
    """The error lists the lanes."""
    with pytest.raises(RequestError, match="qc, ticks"):
        pipeline.infer("tick", {})


def test_a_lane_without_a_model_echoes_any_tensors(tmp_path: Path) -> None:
    """Names, datatypes and shapes come back as they went in, BYTES too."""
    config = tmp_path / "echo.toml"
    config.write_text("[lane.echo]\n")
    texts = np.array([[b"a", b""], [b"long text", b"\x00"]], object)

    with Pipeline(config) as embedded:
        outputs = embedded.infer("echo", {"texts": texts, "x": np.arange(6, dtype=np.int16).reshape(2, 3)})

    assert outputs["texts"].tolist() == texts.tolist()
    assert outputs["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("step", ["open", "launch", "land", "release"])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_after_an_interrupt_the_next_call_is_answered(step: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between any two steps of a batch ends that call alone: nothing of it is left for the next."""
    features = load_features(ticks_path())[:2]
    with Pipeline(config_path()) as pipeline:
        expected = pipeline.infer("ticks", {"features": features[1:]})
        inner = getattr(Engine, step)

        def interrupted(*arguments: object) -> object:
            monkeypatch.setattr(Engine, step, inner)  # once, as a person presses it
            if when == "behind":
                inner(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(Engine, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.infer("ticks", {"features": features[:1]})

        answer = pipeline.infer("ticks", {"features": features[1:]})
    assert {name: array.tobytes() for name, array in answer.items()} == {n: a.tobytes() for n, a in expected.items()}
