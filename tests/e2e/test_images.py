"""Pictures through a real server: each stored file, bombs, fuzz. What a lane answers is what its rules give in this process."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_fuzz import IMAGES, fuzzed, stored_files
from PIL import Image
from places import StartServer
from server import Server
from shared_server import shared_server

from clients import Client
from clients.calls import Result
from clients.errors import SlotlineError
from schemas.arrays import Encoded
from schemas.config import parse_config
from schemas.status import Code, RequestError
from stages.decode import decode_image
from stages.image_rules import ImageRules
from stages.raw_pixels import raw_pixels

# The full fuzz is 2,000 files; each makes both this process and the server decode it.
FUZZ_FILES = int(os.environ.get("SLOTLINE_FUZZ_FILES", "300"))
FUZZ_SEED = int(os.environ.get("SLOTLINE_FUZZ_SEED", "1"))
LANES = {
    "rgb": "",
    "grey": 'color = "grey"',
    "upright": 'orientation = "exif"',
    "white": 'alpha = "white"',
    "deep": 'color = "grey"\ndepth = 16',
    "bayer": 'pixel_format = "BayerRG8"',
    "packed": 'color = "grey"\ndepth = 16\npixel_format = "Mono12p"',
}
MAX_PIXELS = 500_000
CONFIG = "".join(
    f"""
[lane.{name}]
slots = 8
max_encoded_bytes = 1_000_000
max_pixels = {MAX_PIXELS}
backlog = 4096
default_budget_us = 50_000_000
workers = "pictures"
[lane.{name}.decode]
{keys}
"""
    for name, keys in LANES.items()
)
# One process that has next to nothing for a picture.
TIGHT = """
[lane.tight]
slots = 2
max_encoded_bytes = 1_000_000
max_pixels = 12_000_000
[lane.tight.decode]
memory_limit_mb = 8
"""
Outcome = tuple[tuple[int, ...], bytes] | Code


def rules_of(lane: str) -> ImageRules:
    """Return the rules of a lane of CONFIG."""
    config = parse_config(CONFIG, base=Path("/"), source="test")
    (found,) = [one for one in config.lanes if one.name == lane]
    return ImageRules.of(found.decode.params, found.max_pixels)


def here(lane: str, picture: bytes | np.ndarray[Any, Any]) -> Outcome:
    """Return shape and bytes of the pixels, or the code of the refusal, as the lane's rules give them in this process."""
    rules = rules_of(lane)
    out = np.zeros(3 * MAX_PIXELS, np.uint8)
    try:
        shape = decode_image(memoryview(picture), out, rules) if isinstance(picture, bytes) else raw_pixels(picture, out, rules)
    except RequestError as error:
        return error.code
    return shape, rules.target(shape, out).tobytes()


def outcome(answer: Result | SlotlineError) -> Outcome:
    """Return what a server answered in the same form."""
    if isinstance(answer, SlotlineError):
        assert answer.code is not None
        return answer.code
    return answer["pixels"].shape, answer["pixels"].tobytes()


def there(client: Client, lane: str, pictures: Iterable[bytes | np.ndarray[Any, Any]]) -> list[Outcome]:
    """Return what the lane answers for each picture."""
    inputs = [{"image": Encoded(picture) if isinstance(picture, bytes) else picture} for picture in pictures]
    return [outcome(answer) for answer in client.infer_many(lane, inputs, return_exceptions=True)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of LANES."""
    with shared_server(lambda _: CONFIG) as server:
        yield server


def peak_bytes(server: Server) -> int:
    """Return the most memory that the process of LANES has had so far."""
    status = Path(f"/proc/{server.child('pictures.0')}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def test_each_stored_file_gives_the_pixels_that_the_manifest_says_or_is_refused(server: Server) -> None:
    """Size and mean colour of a whole one; the others say what is wrong. In each lane the pixels are those of its rules."""
    manifest = json.loads((IMAGES / "manifest.json").read_text())
    files = stored_files()
    assert set(files) == set(manifest)
    with Client(server.endpoint) as client:
        answers = {lane: dict(zip(files, there(client, lane, files.values()), strict=True)) for lane in LANES}
        assert {lane: {name: here(lane, file) for name, file in files.items()} for lane in LANES} == answers
        for name, said in manifest.items():
            answer, upright = answers["rgb"][name], answers["upright"][name]
            if said["pil_load"] != "ok" or "raw16" in said:
                assert answer is Code.BAD_IMAGE, name
                continue
            assert not isinstance(answer, Code), name
            assert not isinstance(upright, Code), name
            mean = np.frombuffer(answer[1], np.uint8).reshape(-1, 3).mean(axis=0)
            # The manifest keeps two decimals; of a CMYK file it has the value of another rounding.
            assert np.abs(mean - said["pil_rgb_mean"]).max() < (0.6 if name == "rocket_cmyk.jpg" else 0.006), name
            assert answer[0] == (*reversed(said["pil"][2]), 3)
            assert upright[0] == (*reversed(said["upright"]), 3)
    deep = answers["deep"]["brick_gray16.png"]
    assert not isinstance(deep, Code)
    wide = np.frombuffer(deep[1], np.uint16)
    assert [int(wide.min()), int(wide.max()), str(wide.dtype)] == manifest["brick_gray16.png"]["raw16"]


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a PNG chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    """Return a grey PNG of these chunks."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")


def bombs() -> dict[str, bytes]:
    """Return small files that say, or hold, far more than the lane allows."""
    zeros = zlib.compress(bytes(100_000_000))
    jpeg = bytearray(stored_files()["hopper.jpg"])
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 65_500, 65_500)
    bmp = bytearray(54)
    bmp[:2], bmp[14:34] = b"BM", struct.pack("<IiiHHI", 40, 60_000, 60_000, 1, 24, 0)
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    canvas = (16_382).to_bytes(3, "little") * 2
    tags = [(256, 60_000), (257, 60_000), (258, 8), (262, 1), (273, 8), (278, 60_000)]
    return {
        "stored gif": stored_files()["decompression_bomb.gif"],
        "png sides": png(60_000, 60_000, chunk(b"IDAT", zeros)),
        "png pixels": png(8_000, 8_000, chunk(b"IDAT", zeros)),
        "png rows": png(8, 8, chunk(b"IDAT", zeros)),
        "png text": png(8, 8, chunk(b"zTXt", b"a\0\0" + zeros), chunk(b"IDAT", zlib.compress(bytes(72)))),
        "png profile": png(8, 8, chunk(b"iCCP", b"a\0\0" + zeros), chunk(b"IDAT", zlib.compress(bytes(72)))),
        "jpeg": bytes(jpeg),
        "bmp": bytes(bmp),
        "gif": screen + b"\x2c" + struct.pack("<HHHHB", 65_000, 65_000, 1, 1, 0) + b"\x02\x02\x4c\x01\0\x3b",
        "webp": b"RIFF" + struct.pack("<I", 40) + b"WEBPVP8X" + struct.pack("<II", 10, 0) + canvas + bytes(18),
        "tiff": b"II*\0" + struct.pack("<IH", 8, 6) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags),
    }


def test_bombs_are_refused_before_memory_is_taken(server: Server) -> None:
    """Each is at most 100 kB and stands for gigabytes; the process never grows by what one of 500,000 pixels needs."""
    whole = stored_files()["flower.webp"]
    with Client(server.endpoint) as client:
        there(client, "rgb", [whole, whole])
        before = peak_bytes(server)
        answers = dict(zip(bombs(), there(client, "rgb", bombs().values()), strict=True))
        grown = peak_bytes(server) - before
        print(
            {name: answer if isinstance(answer, Code) else answer[0] for name, answer in answers.items()}, f"grew {grown} bytes"
        )
        # Of a sound small picture the rest is simply not inflated.
        harmless = ("png rows", "png text", "png profile")
        assert {answer for name, answer in answers.items() if name not in harmless} <= {Code.TOO_LARGE, Code.BAD_IMAGE}
        assert grown < 24 * MAX_PIXELS


def test_raw_frames_of_cameras_are_read_by_the_lanes_pixel_format(server: Server) -> None:
    """Bayer and packed frames as they come, and a 16-bit one where no format was named."""
    rng = np.random.default_rng(6)
    frames = {
        "bayer": rng.integers(0, 256, (48, 64)).astype(np.uint8),
        "packed": rng.integers(0, 256, (48, 96)).astype(np.uint8),
        "deep": rng.integers(0, 65_536, (48, 64)).astype(np.uint16),
        "rgb": rng.integers(0, 256, (48, 64, 3)).astype(np.uint8),
    }
    with Client(server.endpoint) as client:
        for lane, frame in frames.items():
            (answer,) = there(client, lane, [frame])
            assert answer == here(lane, frame), lane
            assert not isinstance(answer, Code), lane
        assert there(client, "rgb", [frames["deep"]]) == [Code.BAD_DTYPE]


def test_fuzzed_files_get_the_answer_of_the_rules_and_kill_nobody(server: Server) -> None:
    """Whatever bytes come: the same pixels, or the same code, as in this process; and a good file is served after all of them."""
    files = list(fuzzed(FUZZ_FILES, FUZZ_SEED))
    seen: Counter[str] = Counter()
    with Client(server.endpoint, timeout_s=300) as client:
        for lane in ("rgb", "upright", "white", "deep"):
            part = files[list(LANES).index(lane) % 4 :: 4]
            expected = [here(lane, file) for file in part]
            assert there(client, lane, part) == expected
            seen.update(answer.name if isinstance(answer, Code) else "pixels" for answer in expected)
        good = stored_files()["hopper.jpg"]
        assert there(client, "rgb", [good]) == [here("rgb", good)]
    print(dict(seen))
    assert set(seen) <= {"pixels", "BAD_IMAGE", "TOO_LARGE"}
    assert min(seen["pixels"], seen["BAD_IMAGE"]) > FUZZ_FILES // 20


def test_a_picture_for_which_there_is_no_memory_is_answered_and_the_process_lives(make_server: StartServer) -> None:
    """The limit ends the picture, not the process: the next one is decoded."""
    large = io.BytesIO()
    Image.new("L", (3000, 3000)).save(large, "PNG")
    server = make_server(TIGHT).start()
    with Client(server.endpoint) as client:
        answers = there(client, "tight", [large.getvalue(), stored_files()["hopper.jpg"]])

    assert answers[0] is Code.OUT_OF_MEMORY
    assert answers[1] == here("rgb", stored_files()["hopper.jpg"])
    assert server.deaths() == []
    assert server.stop() == 0
