"""The workloads: lanes that Slotline reads, requests that it can read, and functions that compute what they say."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import usage
from bench.inputs import checked_requests, file_rows, packed_requests, random_rows, requests_of
from bench.lanes import TILE, TOUCHED, photo_row, seen, tile_means, tiles, top5, touched
from bench.requests import Requests, route_at
from bench.servers import FUSED, STAGES, Cut, lane_table
from bench.workloads import FRAMES, PHOTO_SIZE, Workload, echo, frame_seen, handed_over, part, photo, photos, tick
from schemas.arrays import Encoded
from schemas.config import load_config
from schemas.fb import Body, Infer, Message
from schemas.messages import MetadataReply
from schemas.status import ConfigError, Flag, Kind, Place
from schemas.tensors import DType, TensorSpec
from schemas.verify import verify

# Two files of different sizes.
PICTURES = Workload("pictures", [{"x": Encoded(bytes(size))} for size in (70, 90)], {}, {}, outstanding=1)


def infer_of(header: bytes) -> Infer.Infer:
    """Return the verified request in *header*, read with the generated code."""
    verify(header)
    parsed = Message.Message.GetRootAs(header)
    assert (parsed.Route().Kind(), parsed.BodyType()) == (Kind.INFER_REQUEST, Body.Body.Infer)
    infer = Infer.Infer()
    infer.Init(parsed.Body().Bytes, parsed.Body().Pos)
    return infer


def lane(*inputs: TensorSpec) -> MetadataReply:
    """Return what a server says of a lane with these inputs."""
    return MetadataReply(name="lane", inputs=inputs)


def test_a_tick_travels_inline_in_its_own_header() -> None:
    """Request k is an inference of row k and nothing else, and its id is patched where the route is."""
    workload = tick()
    requests = workload.requests

    assert len(requests.messages) == len(workload.rows) == 1253
    for row, (header,) in list(zip(workload.rows, requests.messages, strict=True))[:3]:
        tensor = infer_of(header).Inputs(0)
        assert (tensor.Name(), tensor.Dtype(), tensor.Place()) == (b"features", DType.FP32, Place.INLINE)
        assert tensor.InlineDataAsNumpy().tobytes() == row["features"].tobytes()
    patched = bytearray(requests.messages[0][0])
    struct.pack_into("<Q", patched, requests.id_at, 77)
    assert Message.Message.GetRootAs(patched).Route().RequestId() == 77


def test_packed_messages_hold_every_row_in_turn() -> None:
    """Sixteen headers with the flag, full to the last message."""
    rows = [{"x": np.full((1, 4), index, np.float32)} for index in range(5)]
    packed = packed_requests("lane", rows, 16)

    headers = [header for message in packed.messages for header in message]
    assert (packed.headers, len(headers)) == (16, 80)
    assert {Message.Message.GetRootAs(header).Route().Flags() for header in headers} == {Flag.IDEMPOTENT | Flag.PACKED}
    values = [infer_of(header).Inputs(0).InlineDataAsNumpy().view(np.float32)[0] for header in headers]
    assert values == list(np.resize(np.arange(5), 80))


def test_what_is_large_travels_in_a_frame() -> None:
    """Pictures of different sizes have headers of one layout."""
    requests = part().requests

    assert {len(message) for message in requests.messages} == {2}
    assert all(infer_of(header).Inputs(0).Nbytes() == len(payload) for header, payload in requests.messages)


@pytest.mark.parametrize(("cut", "replicas"), [(FUSED, 1), (FUSED, 2), (STAGES, 1), (STAGES, 2)])
@pytest.mark.parametrize("make", [tick, part, echo, lambda: frame_seen("frame"), lambda: photo(Path("m.onnx"))])
def test_every_config_is_one_that_slotline_reads(make: type[Workload], cut: Cut, replicas: int, tmp_path: Path) -> None:
    """In every cut; without a model there is no infer stage."""
    (tmp_path / "m.onnx").touch()
    workload = make()
    (tmp_path / "c.toml").write_text(workload.config(cut, replicas))
    (found,) = load_config(tmp_path / "c.toml").lanes

    stages = [[stage for stage in process if "model" in workload.settings or stage != "infer"] for process in cut]
    assert [list(stages) for stages in found.processes] == [process for process in stages if process]
    assert len(found.replicas) == (0 if replicas == 1 else len(found.processes))


@pytest.mark.parametrize(("make", "largest"), [(tick, 67 * 4), (handed_over, 2160 * 3840 * 3), (lambda: PICTURES, 90)])
def test_a_lease_has_room_for_the_largest_input(make: Callable[[], Workload], largest: int, tmp_path: Path) -> None:
    """One lease, so many frames; without frames none is lent."""
    workload = make()
    for frames in (0, 3):
        (tmp_path / "c.toml").write_text(workload.config(lease_frames=frames))
        leases = load_config(tmp_path / "c.toml").leases
        assert leases.count == (1 if frames else 0)
    assert (leases.frames, leases.frame_bytes, workload.largest_bytes) == (3, largest, largest)


def test_names_and_paths_are_quoted() -> None:
    """A quote in a path ends no text."""
    assert (
        lane_table("a", {"model": Path('/x "y".onnx'), "t": {"n": [1, True]}})
        == '[lane.a]\nmodel = "/x \\"y\\".onnx"\nt = { n = [1, true] }\n'
    )


def test_random_inputs_have_the_shapes_of_the_lane() -> None:
    """Open rows are one; other open sizes must be given; what has no numbers must come from files."""
    about = lane(TensorSpec("x", DType.FP32, (-1, 3)), TensorSpec("n", DType.INT64, (-1,)))
    rows = random_rows(about, {})

    assert len(rows) == 64
    assert (rows[0]["x"].shape, rows[0]["x"].dtype, rows[0]["n"].shape) == ((1, 3), np.float32, (1,))
    assert set(np.concatenate([row["n"] for row in rows])) == {0, 1}
    assert requests_of("lane", rows).headers == 1
    open_sizes = lane(TensorSpec("x", DType.FP32, (-1, -1)))
    with pytest.raises(ConfigError, match="--shape x=1,1"):
        random_rows(open_sizes, {})
    assert random_rows(open_sizes, {"x": (2, 5)})[0]["x"].shape == (2, 5)
    with pytest.raises(ConfigError, match="ENCODED, which cannot be made up: give it with --input"):
        random_rows(lane(TensorSpec("image", DType.ENCODED, (1,))), {})
    with pytest.raises(ConfigError, match="takes tensors of any names: give its inputs with --input"):
        random_rows(lane(), {})


def test_inputs_come_from_files(tmp_path: Path) -> None:
    """Arrays by their form, archives by name, everything else as an encoded file."""
    one, two = TensorSpec("x", DType.FP32, (-1, 2)), TensorSpec("y", DType.FP32, (-1,))
    np.save(tmp_path / "a.npy", np.ones((1, 2), np.float32))
    np.savez(tmp_path / "b.npz", x=np.ones((1, 2), np.float32), y=np.ones(1, np.float32))
    (tmp_path / "c.png").write_bytes(b"png")
    (tmp_path / "d.npy").write_bytes(b"no array")

    assert file_rows(lane(one), [tmp_path / "a.npy"])[0]["x"].shape == (1, 2)
    assert list(file_rows(lane(one, two), [tmp_path / "b.npz"])[0]) == ["x", "y"]
    assert file_rows(lane(one), [tmp_path / "c.png"]) == [{"x": Encoded(b"png", "image/png")}]
    for about, file, match in ((lane(one, two), "a.npy", "an .npz file"), (lane(one), "d.npy", "not an array file")):
        with pytest.raises(ConfigError, match=match):
            file_rows(about, [tmp_path / file])
    with pytest.raises(ConfigError, match="partly above and partly below 4 KiB"):
        checked_requests("lane", [{"x": np.zeros(10)}, {"x": np.zeros(1000)}])


def test_headers_share_one_layout() -> None:
    """The generator patches one offset, so a table of different layouts is refused."""
    small, large = (requests_of("lane", [{name: np.zeros(1)}]).messages[0][0] for name in ("x", "a_long_name"))
    assert Requests.of([small, small]).id_at == route_at(small)

    if route_at(small) != route_at(large):
        with pytest.raises(ValueError, match="one layout"):
            Requests.of([small, large])


def test_photos_are_jpegs_of_their_size_and_the_same_each_time() -> None:
    """Seeded; a camera's 640 x 480."""
    import io

    from PIL import Image

    pictures = photos()
    assert pictures == photos()
    assert all(Image.open(io.BytesIO(picture)).size == PHOTO_SIZE for picture in pictures)
    assert len(set(pictures)) == len(pictures)


def test_a_photo_becomes_a_normalised_row() -> None:
    """A white photo is (1 - mean) / deviation everywhere, in each channel."""
    row = np.zeros((3, 224, 224), np.float32)
    photo_row(np.full((480, 640, 3), 255, np.uint8), row)

    expected = (1 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    assert np.allclose(row, expected[:, None, None], atol=1e-5)


def test_the_best_five_are_in_order() -> None:
    """Largest first."""
    outputs = {"classes": np.zeros(5, np.int32), "scores": np.zeros(5, np.float32)}
    top5({"logits": np.array([[3, 9, 1, 7, 5, 8, 2]], np.float32)}, outputs, None)

    assert outputs["classes"].tolist() == [1, 5, 3, 4, 0]
    assert outputs["scores"].tolist() == [9, 8, 7, 5, 3]


@pytest.mark.parametrize("name", list(FRAMES))
def test_tiles_have_the_mean_of_their_pixels(name: str) -> None:
    """As the plain mean over each tile; the flags are those of the brightest colour."""
    height, width, _ = FRAMES[name]
    frame = np.random.default_rng(0).integers(0, 255, FRAMES[name], dtype=np.uint8)
    frame[:TILE, TILE : 2 * TILE, 2] = 250
    plain = frame.reshape(height // TILE, TILE, width // TILE, TILE, 3).mean(axis=(1, 3))
    assert np.allclose(tile_means(frame), plain, atol=1e-3)

    outputs = {"means": np.zeros(plain.shape, np.float32), "flags": np.zeros(plain.shape[:2], np.bool_)}
    shapes = tiles({"frame": frame}, outputs, None)
    assert shapes == {"means": plain.shape, "flags": plain.shape[:2]}
    assert np.argwhere(outputs["flags"]).tolist() == [[0, 1]]


def test_seen_says_how_much_came() -> None:
    """Bytes of all tensors."""
    outputs = {"nbytes": np.zeros(1, np.int64)}
    seen({"a": np.zeros(10, np.uint8), "b": np.zeros(2, np.float32)}, outputs, None)

    assert outputs["nbytes"][0] == 18


def test_touched_reads_the_beginning_of_any_frame() -> None:
    """What lies behind it does not count."""
    outputs = {"sum": np.zeros(1, np.int64)}
    for size in (TOUCHED, TOUCHED + 1000):
        touched({"frame": np.full(size, 200, np.uint8)}, outputs, None)
        assert outputs["sum"][0] == 200 * TOUCHED


def test_usage_is_of_a_process_and_all_below_it() -> None:
    """CPU grows with work, memory has pages, and who is gone has neither."""
    import os

    pids = usage.tree(os.getpid())
    before = usage.cpu_s(pids)
    assert os.getpid() in pids
    while usage.cpu_s(pids) <= before:
        sum(range(100_000))
    assert usage.memory(pids).total_mib > 1
    assert (usage.tree(1 << 22), usage.cpu_s([1 << 22]), usage.memory([1 << 22]).processes) == ([], 0.0, 0)
    assert usage.server_pid("tcp://127.0.0.1:1") is None
    assert usage.server_pid("ipc:///no/such/place") is None
