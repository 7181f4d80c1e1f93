"""Leases with real processes: frames read where they lie, whatever their clients write meanwhile, and whoever dies."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lease_stages import EACH, FRAME_BYTES, FUSED, TILE, lease_config, model_lanes, tile_sums
from raw_client import statistics
from server import ROOT, Server, wait_until
from shared_server import shared_server

from clients import (
    AsyncClient,
    Busy,
    Client,
    DeadlineExceeded,
    Encoded,
    Frame,
    RequestRefused,
    Unauthorized,
)
from clients.lease_socket import take_lease
from schemas.leases import Ask, LeaseOp
from schemas.tensors import DType

RNG = np.random.default_rng(7)


def image(size: int = 8 * TILE) -> np.ndarray:
    """Return random bytes."""
    return RNG.integers(0, 256, size, np.uint8)


def fill(frame: Frame, values: np.ndarray) -> np.ndarray:
    """Put *values* into a frame and return the array there."""
    array = frame.array(values.shape, values.dtype)
    array[...] = values
    return array


def lease_stats(server: Server) -> dict[str, Any]:
    """Return the server's counts of leases."""
    stats = statistics(server.control)
    return {name.removeprefix("leases."): value for name, value in stats.items() if name.startswith("leases.")}


@pytest.fixture(params=[FUSED, EACH], ids=["fused", "each"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that lends two leases of three frames, in both cuts."""
    cut = request.param
    with shared_server(lambda place: lease_config(place, processes=cut) + model_lanes(processes=cut)) as running:
        yield running


@pytest.fixture
def signals(server: Server) -> Iterator[Path]:
    """Where the lane ``slow`` says that it reads, and looks whether it may go on."""
    yield server.place
    for name in ("reading", "go"):
        (server.place / name).unlink(missing_ok=True)


def check_all_free(server: Server, count: int = 2) -> None:
    """Fail unless every lease comes back, no frame is in use, and the ledger balances."""
    wait_until(lambda: lease_stats(server)["free"] == count, "all leases to be free")
    stats = statistics(server.control)
    assert (stats["leases.frames_in_use"], stats["leases.lent"], stats["ledger.balanced"]) == (0, 0, True)
    assert server.deaths() == []


@pytest.mark.parametrize(
    ("lane", "name", "values"),
    [
        ("tiles", "image", image(FRAME_BYTES)),
        ("tiles", "image", image().reshape(4, -1)),
        ("rows", "features", RNG.standard_normal((1, 67), np.float32)),
        ("many", "features", RNG.standard_normal((16, 67), np.float32)),
        ("echo", "any", image(5000)),
        ("grey", "image", image(240 * 320).reshape(240, 320)),
    ],
)
def test_answers_are_bit_equal_with_ordinary_sends(server: Server, lane: str, name: str, values: np.ndarray) -> None:
    """In place where stages read raw tensors, by a copy where the lane answers with its input."""
    with Client(server.endpoint) as client, client.lease() as lease:
        sent = client.infer(lane, {name: values})
        for _ in range(5):
            with lease.frame() as frame:
                fill(frame, values)
                result = client.infer(lane, {name: frame})
            assert {key: value.tobytes() for key, value in result.items()} == {k: v.tobytes() for k, v in sent.items()}
            assert not frame.is_busy
        outcomes = client.infer_many(lane, [{name: values}, {name: values}])
        assert all(o[key].tobytes() == sent[key].tobytes() for o in outcomes for key in sent)
    del frame
    check_all_free(server)


def test_outputs_come_into_a_frame_and_those_that_do_not_fit_in_the_reply(server: Server) -> None:
    """Each output as it was asked; a frame too small for one is no error."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as source, lease.frame() as target:
        values = fill(source, image(FRAME_BYTES)).copy()
        result = client.infer("tiles", {"image": source}, outputs={"turned": target, "sums": None})
        assert np.array_equal(result["turned"], values[::-1])
        assert np.array_equal(result["sums"], tile_sums(values))
        assert np.shares_memory(result["turned"], target.array(FRAME_BYTES))
        only = client.infer("tiles", {"image": values[: 8 * TILE].copy()}, outputs={"turned": target})
        assert list(only) == ["turned"]
        del result, only
    check_all_free(server)


def test_one_frame_may_be_read_by_several_requests_at_once(server: Server) -> None:
    """It is busy until the last of them is done with it."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        values = fill(frame, image())
        calls = [client.submit("tiles", {"image": frame}) for _ in range(10)]
        assert frame.is_busy
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
        with pytest.raises(RuntimeError, match="busy"):
            frame.array(10)
        assert all(np.array_equal(call.result()["sums"], tile_sums(values)) for call in calls)
        values[0] = 1
        del values
    check_all_free(server)


def test_what_is_checked_is_what_the_stages_get(server: Server) -> None:
    """A picture, a checksum and finite floats are copied before they are checked, so the frame may change at once."""
    rows = RNG.standard_normal((1, 67), np.float32)
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        fill(frame, rows)
        sent = client.infer("rows", {"features": rows})
        for options in ({"checksum": True}, {"finite": True}):
            result = client.infer("rows", {"features": frame}, **options)  # type: ignore[arg-type]
            assert all(np.array_equal(result[key], sent[key]) for key in sent)
        fill(frame, np.full((1, 67), np.nan, np.float32))
        with pytest.raises(RequestRefused, match="NOT_FINITE"):
            client.infer("rows", {"features": frame}, finite=True)
        assert not frame.is_busy
    check_all_free(server)


# --- other clients -------------------------------------------------------------------------------------------------------------


def test_a_region_belongs_to_the_connection_that_got_it(server: Server) -> None:
    """Another client that names it is told what it would be told of one that does not exist."""
    other = Client(server.endpoint)
    with other, other.lease(), Client(server.endpoint) as mine, mine.lease() as lease, lease.frame() as frame:
        values = fill(frame, image()).copy()
        with pytest.raises(RequestRefused, match=r"BAD_LEASE.*image: expected a region leased to this connection"):
            other.infer("tiles", {"image": frame})
        assert not frame.is_busy
        result = mine.infer("tiles", {"image": frame})
        assert np.array_equal(result["sums"], tile_sums(values))
    check_all_free(server)


def test_a_stale_generation_is_refused(server: Server) -> None:
    """A lease that was given back, its region lent again to the same connection."""
    with Client(server.endpoint) as client:
        with client.lease() as lease, lease.frame() as frame:
            fill(frame, image())
            client.infer("tiles", {"image": frame})
            stale = frame.as_input()[4]
        wait_until(lambda: lease_stats(server)["free"] == 2, "the region to come back")
        with client.lease(), client.lease() as again, again.frame() as new:
            fill(new, image())
            new.as_input = lambda: (*Frame.as_input(new)[:4], stale)  # type: ignore[method-assign]
            expected = "expected generation [0-9]+ of region" if new.as_output().region == stale.region else "expected a"
            with pytest.raises(RequestRefused, match=f"BAD_LEASE.*image: {expected}"):
                client.infer("tiles", {"image": new})
    check_all_free(server)


def test_leases_run_out_and_come_back(server: Server) -> None:
    """The third is Busy with a hint; a larger one than there is, is refused for good."""
    with Client(server.endpoint) as client:
        with client.lease(), client.lease():
            with pytest.raises(Busy, match="all 2 leases are lent") as caught:
                client.lease()
            assert caught.value.retry_after_us > 0
        check_all_free(server)
        with pytest.raises(RequestRefused, match=r"TOO_LARGE.*at most 3 frames of 300000 bytes"):
            client.lease(frame_bytes=FRAME_BYTES + 1)
        with client.lease(frame_bytes=FRAME_BYTES, frames=3):
            pass
    check_all_free(server)


def test_frames_run_out_and_are_waited_for(server: Server, signals: Path) -> None:
    """Frames that are open in the program are not waited for; those that the server reads are."""
    with Client(server.endpoint) as client, client.lease() as lease:
        opened = [lease.frame() for _ in range(3)]
        with pytest.raises(RuntimeError, match="all 3 frames of the lease are open"):
            lease.frame()
        values = fill(opened[0], image()).copy()
        call = client.submit("slow", {"image": opened[0]})
        opened[0].close()
        wait_until((signals / "reading").exists, "the stage to read")
        with pytest.raises(TimeoutError, match="no frame of the lease was free"):
            lease.frame(timeout_s=0.05)
        (signals / "go").touch()
        with lease.frame():
            assert np.array_equal(call.result()["after"], tile_sums(values))
    check_all_free(server)


def test_whoever_shows_no_token_gets_no_lease(server: Server) -> None:
    """Nor who says something else; the door stays open for others."""
    with Client(server.endpoint) as client:
        path, token = client._session.lease_access
        for wrong in ("", "0" * 32, token[:-1] + ("0" if token[-1] != "0" else "1")):
            with pytest.raises(Unauthorized, match="token"):
                take_lease(path, Ask(LeaseOp.LEASE, wrong), 10.0)
        for garbage in (b"x", b"SLL1" + bytes(52), bytes(1000)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rude:
                rude.settimeout(10.0)
                rude.connect(path)
                rude.send(garbage)
                assert rude.recv(100) == b""
        many = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(100)]
        for silent in many:
            silent.connect(path)
        with client.lease():
            assert lease_stats(server)["lent"] == 1
        for silent in many:
            silent.close()
    check_all_free(server)


# --- what is answered early ----------------------------------------------------------------------------------------------------


def ended_early(server: Server) -> int:
    """Return how many requests failed or were cancelled."""
    stats = statistics(server.control)
    return int(stats["ledger.failed"] + stats["ledger.cancelled"])


@pytest.mark.parametrize("ending", ["deadline", "cancel"])
def test_a_frame_stays_busy_until_its_stage_is_done(server: Server, signals: Path, ending: str) -> None:
    """The call ends at once, the frame only when nobody reads it any more."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        fill(frame, image())
        ended = ended_early(server)
        call = client.submit("slow", {"image": frame}, budget_us=3_000_000 if ending == "deadline" else 0)
        wait_until((signals / "reading").exists, "the stage to read")
        if ending == "cancel":
            assert client.cancel(call)
        else:
            with pytest.raises(DeadlineExceeded):
                call.result()
        wait_until(lambda: ended_early(server) == ended + 1, "the server to answer")
        client.health()
        assert frame.is_busy
        (signals / "go").touch()
        wait_until(lambda: client.health() and not frame.is_busy, "the frame")
        fill(frame, image())
        assert client.infer("tiles", {"image": frame})["sums"].any()
    check_all_free(server)


def test_a_refused_request_holds_no_frame(server: Server) -> None:
    """Of the codes 1xx and 2xx alike."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        fill(frame, image())
        with pytest.raises(RequestRefused, match="MODEL_NOT_FOUND"):
            client.infer("nothing", {"image": frame})
        assert not frame.is_busy
        with pytest.raises(RequestRefused, match=r"BAD_DTYPE"):
            client.infer("rows", {"features": frame})
        assert not frame.is_busy
    check_all_free(server)


# --- writes at the wrong time, and deaths ------------------------------------------------------------------------------------


def scribble(target: np.ndarray, stop: threading.Event) -> None:
    """Write random bytes over a frame without a pause."""
    noise = [image(target.size) for _ in range(4)]
    while not stop.is_set():
        for values in noise:
            target[:] = values


@pytest.mark.parametrize("lane", ["tiles", "grey", "many", "echo"])
def test_wild_writes_hurt_only_their_own_answers(server: Server, lane: str) -> None:
    """A client that scribbles over its frame all the time: another's answers are right, and no process dies."""
    shapes: dict[str, tuple[str, tuple[int, ...], Any]] = {
        "tiles": ("image", (FRAME_BYTES,), np.uint8),
        "grey": ("image", (240, 320), np.uint8),
        "many": ("features", (16, 67), np.float32),
        "echo": ("any", (4096,), np.uint8),
    }
    name, shape, dtype = shapes[lane]
    values = image()
    good = Client(server.endpoint)
    with good, good.lease() as clean, clean.frame() as mine, Client(server.endpoint) as wild, wild.lease() as lease:
        fill(mine, values)
        with lease.frame() as frame:
            raw = np.ndarray(frame.array(shape, dtype).nbytes, np.uint8, lease.memory(0, FRAME_BYTES))
            stop = threading.Event()
            scribbler = threading.Thread(target=scribble, args=(raw, stop))
            scribbler.start()
            for _ in range(100):
                call = wild.submit(lane, {name: frame})
                assert np.array_equal(good.infer("tiles", {"image": mine})["sums"], tile_sums(values))
                assert call.result().keys() == good.infer(lane, {name: np.zeros(shape, dtype)}).keys()
            stop.set()
            scribbler.join()
            del raw
    check_all_free(server)


def test_a_picture_that_changes_while_it_is_decoded_is_refused_or_decoded(server: Server) -> None:
    """Its bytes are copied before anybody reads them; one that is no picture is BAD_IMAGE, and nobody dies."""
    picture = (ROOT / "tests" / "data").glob("**/*.png")
    content = np.frombuffer(next(picture).read_bytes(), np.uint8)
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        array = fill(frame, content)
        described = frame.as_input()
        frame.as_input = lambda: (DType.ENCODED, (1,), *described[2:])  # type: ignore[method-assign]
        plain = client.infer("grey", {"image": Encoded(content.tobytes())})
        leased = client.infer("grey", {"image": frame})
        assert {k: v.tobytes() for k, v in leased.items()} == {k: v.tobytes() for k, v in plain.items()}
        array[: content.size // 2] = 0
        with pytest.raises(RequestRefused, match="BAD_IMAGE"):
            client.infer("grey", {"image": frame})
        del array
    check_all_free(server)


# --- asyncio -------------------------------------------------------------------------------------------------------------------


def test_frames_are_awaited(server: Server) -> None:
    """A pipeline of more images than there are frames: each is sent and closed, and its frame comes back."""

    async def stream() -> None:
        async with AsyncClient(server.endpoint) as client, client.lease() as lease:
            pictures = [image() for _ in range(50)]
            calls = []
            for picture in pictures:
                with await lease.frame() as frame:
                    fill(frame, picture)
                    calls.append(client.submit("tiles", {"image": frame}))
            results = await asyncio.gather(*calls)
            assert all(np.array_equal(r["sums"], tile_sums(p)) for r, p in zip(results, pictures, strict=True))

    asyncio.run(stream())
    check_all_free(server)


def test_a_cancelled_task_leaves_its_frame_to_the_server(server: Server, signals: Path) -> None:
    """It is free again when the stage is done."""

    async def give_up() -> None:
        async with AsyncClient(server.endpoint) as client, client.lease() as lease:
            with await lease.frame() as frame:
                fill(frame, image())
                call = client.submit("slow", {"image": frame})
                await asyncio.to_thread(wait_until, (signals / "reading").exists, "the stage to read")
                call.cancel()
                assert frame.is_busy
                (signals / "go").touch()
                end = time.monotonic() + 30
                while frame.is_busy and time.monotonic() < end:
                    await asyncio.sleep(0.01)
                assert not frame.is_busy

    asyncio.run(give_up())
    check_all_free(server)
