"""A lane on a device that works by itself: the next batch is launched while one is on its way, and the marks cover both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_files import FLOAT, node, value, write_model
from runner_rig import FEATURES, TICKS, Run, hop, make_run, pick_model, put_features
from test_engine import make_engine

from schemas.status import Code
from schemas.words import RUN_COUNT, RUN_STARTED_NS
from stages.call_marks import CallMarks
from stages.device import Stream
from stages.device_fake import FakeDevice
from stages.engine import Engine
from stages.onnx_model import read_model
from stages.runner import POLL_NS
from stages.steps import Infer

MODEL = Path(__file__).parents[2] / "stages" / "demo" / "trading_mlp.onnx"
SMALL = TICKS.replace("max_batch_size = 32", "max_batch_size = 4")


class Stopped(FakeDevice):
    """A fake device that does nothing until it is told."""

    is_stopped = True

    def _go_on(self) -> None:
        if not self.is_stopped:
            super()._go_on()

    def _step(self) -> bool:
        return not self.is_stopped and super()._step()


def on_fake_device(run: Run, device: FakeDevice, model: Path = MODEL, *, rows: int = 4) -> Run:
    """Put the lane's model on *device*, with two flights."""
    engine = Engine(read_model(model, max_batch_size=rows), device, max_batch_size=rows, flights=2)
    infer = run.runner._infer
    assert infer is not None
    run.runner._infer = Infer(infer._source, infer._target, engine)
    run.runner._infer.adopt(run.arena.memory)
    return run


def marked(run: Run) -> list[int]:
    """Return the slots of the running call, none when no call runs."""
    count = int(run.column[RUN_COUNT]) if run.column[RUN_STARTED_NS] else 0
    return [pair >> 32 for pair in run.arena.run_pairs[1, :count].tolist()]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("direct_bytes", [1, 1 << 20])
def test_each_slot_gets_its_own_answer_whatever_the_order(seed: int, direct_bytes: int) -> None:
    """Read from the slots or gathered, the bits are those of a run on the CPU in a bucket of the same size."""
    device = FakeDevice(seed, direct_bytes=direct_bytes)
    run = on_fake_device(make_run(SMALL), device)
    finished = run.work(put_features(run, 30))
    direct = make_engine(MODEL, max_batch_size=32).call({"features": FEATURES[:30]})

    assert [done[6] for done in finished.values()] == [0] * 30
    for slot in range(30):
        for name, array in run.output(slot).items():
            assert np.array_equal(array[0], direct[name][slot])
    assert device.races == []
    assert marked(run) == []


def test_the_next_batch_is_launched_while_one_is_on_its_way() -> None:
    """Two flights; what comes after waits in the batcher, and a death now would be laid to both batches."""
    device = Stopped(0)
    run = on_fake_device(make_run(SMALL), device)
    run.runner.add(put_features(run, 12))
    for _ in range(6):
        run.turn()

    assert (len(run.runner._air), run.runner.finished, run.runner.is_flying) == (2, [], True)
    assert sorted(marked(run)) == list(range(8))
    before_ns = run.clock.now_ns
    assert before_ns < (run.runner.next_wake_ns() or 0) <= before_ns + POLL_NS + 100
    assert not run.runner.has_incoming

    device.is_stopped = False
    for _ in range(500):
        run.turn()
    assert [done[0] for done in run.runner.finished] == list(range(12))
    assert (marked(run), run.runner.next_wake_ns(), run.runner.is_flying) == ([], None, False)


def test_a_landed_batch_is_nobodys_suspect_any_more() -> None:
    """The other one still is; a step that runs meanwhile is one beside it."""
    device = Stopped(0)
    run = on_fake_device(make_run(SMALL), device)
    run.runner.add(put_features(run, 8))
    run.turn()
    run.turn()
    device.is_stopped = False
    run.runner.wait(lambda _: None)

    assert [done[0] for done in run.runner.finished] == [0, 1, 2, 3]
    assert marked(run) == [4, 5, 6, 7]


def test_a_call_beside_flights_is_marked_with_them() -> None:
    """Whose fault a death is cannot be told; nobody is marked twice."""
    run = make_run(SMALL)
    marks = CallMarks(run.arena, run.column, 1, run.clock)
    marks.on_device([hop(4), hop(5)], 1000)
    began = marks.enter((hop(7),), 500)
    assert (marked(run), int(run.column[RUN_STARTED_NS])) == ([7, 4, 5], began)

    later = marks.leave()
    assert (marked(run), int(run.column[RUN_STARTED_NS])) == ([4, 5], later)
    assert later > began

    marks.on_device([], 1000)
    marks.leave()
    assert marked(run) == []


def test_what_fails_at_launch_runs_again_alone_behind_what_flies() -> None:
    """Its uploads are over before; the others are not disturbed."""
    device = FakeDevice(5, direct_bytes=1)
    run = on_fake_device(make_run(SMALL), device)
    run.runner.add(put_features(run, 8))
    run.turn()
    device.fails_next = True
    for _ in range(500):
        run.turn()
    finished = {done[0]: done for done in run.runner.finished}

    assert sorted(finished) == list(range(8))
    assert {done[6] for done in finished.values()} == {0}
    assert [run.arena.stamps[slot, 2, 2] for slot in range(8)] == [4] * 4 + [1] * 4
    assert device.races == []


def test_a_request_that_fails_alone_gets_the_error() -> None:
    """And nothing is marked any more."""
    device = FakeDevice(0)
    run = on_fake_device(make_run(SMALL), device)
    device.fails_next = True
    finished = run.work(put_features(run, 1))

    assert finished[0][6] == Code.MODEL_FAILED
    assert run.error(0)[1] == "the fake device was told to fail"
    assert marked(run) == []


def test_what_became_too_late_behind_full_flights_is_told_so() -> None:
    """The deadline is looked at when a batch is launched."""
    device = Stopped(0)
    run = on_fake_device(make_run(SMALL), device)
    hops = put_features(run, 9)
    run.runner.add([*hops[:8], hop(8, deadline_ns=1000)])
    for _ in range(4):
        run.turn()
    run.clock.now_ns = 2000
    device.is_stopped = False
    for _ in range(500):
        run.turn()

    assert {done[0]: done[6] for done in run.runner.finished} == {**dict.fromkeys(range(8), 0), 8: Code.DEADLINE_EXCEEDED}


def test_outputs_of_unknown_size_come_from_the_model(tmp_path: Path) -> None:
    """The engine gives memory only for what it knows the size of, on any device."""
    path = write_model(
        tmp_path / "pass.onnx", [node("Neg", ["x"], ["y"])], [value("x", FLOAT, "batch", 4)], [value("y", FLOAT, "b", "n")]
    )
    model = read_model(path, max_batch_size=4)
    engine = Engine(model, FakeDevice(1), max_batch_size=4)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    assert model.sized == frozenset()
    assert np.array_equal(engine.call({"x": x})["y"], -x)
    assert np.array_equal(engine.call({"x": x[:1]})["y"], -x[:1])


def test_nothing_is_queued_for_what_has_landed() -> None:
    """A failed batch's streams are empty when its slots are given back."""
    device = FakeDevice(0)
    engine = Engine(read_model(MODEL, max_batch_size=4), device, max_batch_size=4)
    flight = engine.open(3, ((67,),))
    device.fails_next = True
    with pytest.raises(Exception, match="told to fail"):
        engine.launch(flight)
    engine.abort(flight)

    assert not device._streams[Stream.UPLOAD]
    assert not device._streams[Stream.COMPUTE]


def test_a_failing_row_is_found_on_the_cpu_too(tmp_path: Path) -> None:
    """With one flight all of it happens in one turn each."""
    run = pick_model(tmp_path, "max_batch_size = 4")
    assert {done[6] for done in run.work([hop(slot) for slot in range(8)]).values()} == {0}
