"""What fails in a stage is the fault of one request: it gets its own error, the others their results, the process goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import DEMO
from runner_rig import FUNCTION, Run, closed_by, hop, make_run, pick_model, put_bytes, put_pick

from schemas.arena import write_descriptor
from schemas.hop import HopKind
from schemas.status import Code
from schemas.tensors import DType


def test_one_request_that_fails_a_batch_of_32_is_found_alone(tmp_path: Path) -> None:
    """31 answers and 1 error: a batch that raises is run again one by one."""
    run = pick_model(tmp_path)
    put_pick(run, 7, 99)
    finished = run.work([hop(slot) for slot in range(32)])

    assert [slot for slot, done in finished.items() if done[6]] == [7]
    assert finished[7][6] == Code.MODEL_FAILED
    assert "GatherElements" in run.error(7)[1]
    for slot in set(range(32)) - {7}:
        assert run.output(slot)["y"].tolist() == [[np.float32(slot + np.float32(slot % 4) / np.float32(10))]]


def test_what_is_run_again_alone_is_stamped_as_alone(tmp_path: Path) -> None:
    """The batch that failed leaves no time behind."""
    run = pick_model(tmp_path)
    put_pick(run, 0, 99)
    run.work([hop(0), hop(1)])

    assert run.arena.stamps[1, 2].tolist()[2] == 1
    assert run.arena.stamps[0, 2].tolist() == [0, 0, 0]
    assert closed_by(run) == {"no_delay": 1, "alone": 2, "rows": 4}


def test_an_error_is_left_in_the_slot_with_its_field() -> None:
    """The others of the same message are not touched by it."""
    run = make_run(FUNCTION.format("refuse_odd"))
    for slot, content in enumerate((b"\2ok", b"\3no", b"\4ok")):
        put_bytes(run, slot, content)
    finished = run.work([hop(slot) for slot in range(3)])

    assert [finished[slot][6] for slot in range(3)] == [0, Code.BAD_IMAGE, 0]
    assert run.error(1) == ("image", "image: expected an even byte, got 3")
    assert run.output(2)["copy"].tobytes() == b"\4ok"


def test_an_exception_of_a_users_function_is_that_requests_error() -> None:
    """Cut to what a slot holds; an older, longer text does not shine through."""
    run = make_run(FUNCTION.format("refuse_odd"))
    put_bytes(run, 0, b"\xff")
    assert run.work([hop(0)])[0][6] == Code.MODEL_FAILED
    assert run.error(0)[1].startswith("ZeroDivisionError: xxx")

    run.runner.finished.clear()
    put_bytes(run, 0, b"\1")
    run.work([hop(0)])
    assert run.error(0) == ("image", "image: expected an even byte, got 1")


def test_a_broken_picture_is_refused_and_the_good_ones_are_judged() -> None:
    """The demo's own lane, in one process."""
    text = (DEMO / "demo.toml").read_text().partition("[lane.ticks]")[0]
    run = make_run("\n".join(line for line in text.splitlines() if not line.startswith("processes")))
    pictures = [path.read_bytes() for path in sorted((DEMO / "parts").glob("*.png"))[:3]]
    pictures[1] = pictures[1][:100]
    for slot, content in enumerate(pictures):
        put_picture(run, slot, content)
    finished = run.work([hop(slot) for slot in range(3)])

    assert [finished[slot][6] for slot in range(3)] == [0, Code.BAD_IMAGE, 0]
    assert all(run.output(slot)["verdict"][4:6].tobytes() in (b"OK", b"NG") for slot in (0, 2))


def put_picture(run: Run, slot: int, content: bytes) -> None:
    """Write an encoded picture into a slot, as the broker does."""
    run.arena.regions[0][slot, : len(content)] = np.frombuffer(content, np.uint8)
    write_descriptor(run.arena.descriptors[0, slot, 0], DType.ENCODED, (1,), nbytes=len(content), offset=0)


@pytest.mark.parametrize("rows", [0, 4, 9])
def test_rows_that_no_batch_takes_are_the_functions_fault(rows: int) -> None:
    """Not the end of the process: a user's function may write any number of them; the lane has room for max_rows."""
    run = make_run(
        '[lane.t]\nmax_rows = 3\nmodel = "trading_mlp.onnx"\n[lane.t.decode]\nuse = "stage_functions:repeat"\n'
        'outputs = [{ name = "features", dtype = "FP32", shape = [-1, 67], max_shape = [16, 67] }]\n'
    )
    put_bytes(run, 0, bytes([rows]))
    put_bytes(run, 1, bytes([3]))
    finished = run.work([hop(0), hop(1)])

    assert [finished[slot][6] for slot in (0, 1)] == [Code.BAD_SHAPE, 0]


def test_what_goes_on_to_another_process_says_from_which_step() -> None:
    """An error goes back to the broker instead."""
    run = make_run(
        FUNCTION.format("refuse_odd").replace("[lane.f]", '[lane.f]\nprocesses = [["decode"], ["preprocess", "postprocess"]]')
    )
    put_bytes(run, 0, b"\2")
    put_bytes(run, 1, b"\3")
    finished = run.work([hop(0), hop(1)])

    assert [(finished[slot][4], finished[slot][5]) for slot in (0, 1)] == [(HopKind.WORK, 1), (HopKind.DONE, 1)]


def test_an_error_says_which_step_it_comes_from() -> None:
    """Also where one process runs all steps: the client is told the stage."""
    run = make_run(FUNCTION.format("refuse_odd"))
    put_bytes(run, 0, b"\3")

    assert run.work([hop(0)])[0][5] == 1


def test_private_arrays_are_dropped_with_the_hop() -> None:
    """Also when it fails."""
    run = make_run(
        FUNCTION.format("copy") + '[lane.f.preprocess]\nuse = "stage_functions:refuse_odd"\n'
        'outputs = [{ name = "copy", dtype = "UINT8", shape = [-1], max_shape = [64] }]\n'
    )
    put_bytes(run, 0, b"\2")
    put_bytes(run, 1, b"\3")
    run.work([hop(0), hop(1)])

    assert len(run.runner._scratch) == 1
    assert [link._tensors for link in run.runner._scratch] == [{}]


CORNER = """
[lane.f]
processes = [["decode"], ["preprocess", "postprocess"]]
[lane.f.decode]
use = "stage_functions:corner"
outputs = [{ name = "plane", dtype = "FP32", shape = [-1, -1], max_shape = [8, 9] },
           { name = "words", dtype = "BYTES", shape = [-1], max_shape = [4], max_bytes = 64 }]
"""


@pytest.mark.parametrize("text", [CORNER, CORNER.replace("processes", "# processes")])
def test_a_small_plane_in_the_corner_of_a_large_one_arrives_whole(text: str) -> None:
    """A function writes into the largest shape and says the real one, which has shorter rows."""
    run = make_run(text)
    put_bytes(run, 0, b"x")

    assert run.work([hop(0)])[0][6] == 0
    assert run.output(0)["plane"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert run.output(0)["words"].tobytes() == b"\1\0\0\0a\1\0\0\0b"


def test_what_a_function_does_not_write_is_zero_and_not_the_last_requests_answer() -> None:
    """Slots are used again and again; an answer may have been another client's."""
    run = make_run(FUNCTION.format("write_large_ones"))
    put_bytes(run, 0, b"\x32")
    run.work([hop(0)])
    assert run.output(0)["copy"].reshape(-1)[0] == 50
    run.runner.finished.clear()

    put_bytes(run, 0, b"\1")
    run.work([hop(0)])

    assert not run.output(0)["copy"].any()


def test_an_output_cannot_be_replaced_by_another_array() -> None:
    """What a function puts in its place would be lost in silence."""
    run = make_run(FUNCTION.format("assign"))
    put_bytes(run, 0, b"\1")

    assert run.work([hop(0)])[0][6] == Code.MODEL_FAILED
    assert "does not support item assignment" in run.error(0)[1]


def test_an_error_of_a_function_says_where_it_arose() -> None:
    """File and line are what its author needs; the traceback is in the log."""
    run = make_run(FUNCTION.format("assign"))
    put_bytes(run, 0, b"\1")
    run.work([hop(0)])

    assert "(stage_functions.py:" in run.error(0)[1]
