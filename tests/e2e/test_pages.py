"""The examples of functions.md and images.md, run as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import onnx_files as onnx
import pytest
from places import StartServer
from server import ROOT, run_once

from clients import Client, Encoded, RequestRefused
from schemas.status import Code
from stages.demo import parts_path
from stages.pipeline import Pipeline

PHOTO = Encoded((parts_path() / "part_101_00.png").read_bytes())


def fenced(page: str, language: str) -> str:
    """Return the first fenced block of *language* on a page of docs/."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    return found[0]


@pytest.fixture
def judge_lane(place: Path) -> Path:
    """The directory that functions.md tells one to make."""
    shutil.copy(ROOT / "stages" / "demo" / "surface_qc.onnx", place)
    (place / "line.toml").write_text(fenced("functions.md", "toml"))
    (place / "rules.py").write_text(fenced("functions.md", "python"))
    return place


def camera_lane(place: Path) -> str:
    """Make what images.md shows, beside a model that gives a frame's mean; return the config."""
    nodes = [onnx.node("GlobalAveragePool", ["frame"], ["mean"])]
    inputs, outputs = [onnx.value("frame", onnx.FLOAT, "n", 1, 480, 640)], [onnx.value("mean", onnx.FLOAT, "n", 1, 1, 1)]
    onnx.write_model(place / "camera.onnx", nodes, inputs, outputs)
    (place / "prep.py").write_text(fenced("images.md", "python"))
    return fenced("images.md", "toml")


def test_the_function_of_the_page_judges_parts(judge_lane: Path, make_server: StartServer) -> None:
    """A bad part is NG with its cells; what it refuses is that request's error."""
    assert run_once(judge_lane, "check", "line.toml").returncode == 0
    server = make_server((judge_lane / "line.toml").read_text()).start()

    with Client(server.endpoint) as client:
        result = client.infer("parts", {"image": PHOTO})

    assert result["verdict"].tolist() == [b"NG"]
    assert 0.5 < result["score"][0] <= 1
    assert result["cells"].shape[1:] == (2,)
    assert len(result["cells"]) > 0
    assert server.stop() == 0


def test_the_functions_page_says_how_to_try_it_without_a_server(judge_lane: Path) -> None:
    """The embedded pipeline finds the module beside the config file as well."""
    with Pipeline(judge_lane / "line.toml") as pipeline:
        outputs = pipeline.infer("parts", {"image": PHOTO})

    assert outputs["verdict"].tolist() == [b"NG"]


def test_the_setup_of_the_page_refuses_a_wrong_limit(judge_lane: Path) -> None:
    """In one line, before anything is served."""
    text = (judge_lane / "line.toml").read_text()
    (judge_lane / "line.toml").write_text(text.replace("limit = 0.5", "limit = 5"))

    done = run_once(judge_lane, "check", "line.toml")

    assert done.returncode == 2
    assert "limit: expected a number between 0 and 1" in done.stderr


def test_the_camera_lane_of_the_images_page_takes_frames(place: Path, make_server: StartServer) -> None:
    """Its own function makes floats of them; a frame of another size is refused."""
    server = make_server(camera_lane(place)).start()
    frame = np.random.default_rng(5).integers(0, 256, (480, 640), np.uint8)

    with Client(server.endpoint) as client:
        mean = float(client.infer("camera", {"frame": frame})["mean"].item())
        with pytest.raises(RequestRefused) as caught:
            client.infer("camera", {"frame": frame[:, :600]})

    assert mean == pytest.approx(frame.mean() / 255, rel=1e-5)
    assert (caught.value.code, caught.value.field) == (Code.BAD_SHAPE, "frame")
    assert server.stop() == 0


def test_the_complete_sample_can_be_served(place: Path) -> None:
    """With a model and a function where it says that they are."""
    shutil.copy(ROOT / "stages" / "demo" / "surface_qc.onnx", place)
    (place / "surface_qc").mkdir()
    (place / "surface_qc" / "rules.py").write_text("def verdict(inputs, outputs, params): ...\n")
    shutil.copy(ROOT / "examples" / "sample.toml", place)

    done = run_once(place, "check", "sample.toml")

    assert done.returncode == 0, done.stderr
