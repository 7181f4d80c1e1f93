"""A lane's part in a process: every hop it is given comes out once, in time, with its slot's result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builders import DEMO
from runner_rig import DUE_NS, FEATURES, FUNCTION, STEP_NS, TICKS, closed_by, hop, make_run, pick_model, put_bytes, put_features

from schemas.hop import LONE, HopKind
from schemas.plan import MIN_HANG_NS
from schemas.status import Code
from schemas.words import RUN_COUNT, RUN_LANE, RUN_LIMIT_NS, RUN_STARTED_NS
from stages.device_host import HostDevice
from stages.engine import Engine
from stages.onnx_model import read_model
from stages.runner import HANG_FACTOR
from stages.steps import Infer


def test_a_batch_gives_each_slot_what_a_direct_run_gives() -> None:
    """Bit by bit, and one run for all of them."""
    run = make_run(TICKS)
    finished = run.work(put_features(run, 32))
    engine = Engine(read_model(DEMO / "trading_mlp.onnx", max_batch_size=1), HostDevice(), max_batch_size=1)

    for slot in range(32):
        direct = engine.call({"features": FEATURES[slot : slot + 1]})
        assert {name: array.tobytes() for name, array in run.output(slot).items()} == {
            name: array.tobytes() for name, array in direct.items()
        }
    assert finished[5] == (5, 3, 105, 0, int(HopKind.DONE), 4, 0, 0, DUE_NS)
    assert closed_by(run) == {"full": 1, "rows": 32}


def test_a_lone_request_runs_alone_and_the_others_together(tmp_path: Path) -> None:
    """A process died while it ran in a batch: its batch mates must not be there a second time."""
    for run, hops in ((make_run(TICKS), [hop(slot) for slot in range(8)]), (pick_model(tmp_path), [hop(s) for s in range(8)])):
        hops[3] = hop(3, flags=LONE)
        run.work(hops)

        assert [int(run.arena.stamps[slot, 2, 2]) for slot in range(8)] == [7, 7, 7, 1, 7, 7, 7, 7]


def test_two_lone_requests_do_not_run_together() -> None:
    """Either may be the killer."""
    run = make_run(TICKS)
    run.work([hop(0, flags=LONE), hop(1, flags=LONE)])

    assert [int(run.arena.stamps[slot, 2, 2]) for slot in (0, 1)] == [1, 1]


def test_what_is_too_late_is_not_run() -> None:
    """Checked before the first step, and before the model."""
    run = make_run(FUNCTION.format("copy"))
    put_bytes(run, 0, b"ab")
    put_bytes(run, 1, b"cd")
    run.clock.now_ns = 500
    finished = run.work([hop(0, deadline_ns=500), hop(1, deadline_ns=501)])

    assert [finished[slot][6] for slot in (0, 1)] == [Code.DEADLINE_EXCEEDED, 0]
    assert run.arena.stamps[0].tolist() == [[0, 0, 0]] * 3
    assert run.output(1)["copy"].tobytes() == b"cd"


def test_what_became_late_while_it_waited_for_the_model_is_not_run() -> None:
    """Its batch runs without it."""
    run = make_run(TICKS)
    hops = put_features(run, 3)
    hops[1] = hop(1, deadline_ns=STEP_NS)
    finished = run.work(hops)

    assert [finished[slot][6] for slot in range(3)] == [0, Code.DEADLINE_EXCEEDED, 0]
    assert [int(run.arena.stamps[slot, 2, 2]) for slot in range(3)] == [2, 0, 2]


def test_the_first_of_64_slow_decodes_leaves_early() -> None:
    """After each piece of work the worker may send what is finished; it is told the time."""
    run = make_run(FUNCTION.format("copy"))
    for slot in range(64):
        put_bytes(run, slot, b"x")
    run.work([hop(slot) for slot in range(64)])

    assert [slots for _, slots in run.flushed] == [list(range(end + 1)) for end in range(64)]
    times = [now_ns for now_ns, _ in run.flushed]
    assert times == sorted(set(times))


def test_each_step_leaves_its_times() -> None:
    """Begin, end, and rows of the batch; nothing where nothing is done."""
    run = make_run(TICKS)
    run.work(put_features(run, 2))

    assert run.arena.stamps[1, 0].tolist() == [0, 0, 0]
    began, done, batch = run.arena.stamps[1, 2].tolist()
    assert (done - began, batch) == (STEP_NS, 2)


def test_the_running_call_is_marked_with_its_slots() -> None:
    """(slot, generation) of each; outside of calls nothing is marked."""
    run = make_run(TICKS)
    seen: list[tuple[int, int, list[int]]] = []
    infer = run.runner._infer
    assert isinstance(infer, Infer)
    real = infer.launch

    def spy(slots: Sequence[int], rows: Sequence[int], shapes: tuple[tuple[int, ...], ...]) -> None:
        count = int(run.column[RUN_COUNT])
        pairs = run.arena.run_pairs[1, :count].tolist()
        seen.append((int(run.column[RUN_STARTED_NS]), int(run.column[RUN_LANE]), pairs))
        real(slots, rows, shapes)

    infer.launch = spy  # type: ignore[method-assign]
    run.work(put_features(run, 3))
    assert seen[0][0] > 0
    assert seen[0][1:] == (0, [slot << 32 | 3 for slot in range(3)])
    assert run.column[RUN_STARTED_NS] == 0


def test_a_call_hangs_after_ten_times_its_slowest_warm_up() -> None:
    """And never before a second, or the config's own limit."""
    run = make_run(TICKS)
    for slowest_ns, limit_ns in ((1, MIN_HANG_NS), (10 * MIN_HANG_NS, HANG_FACTOR * 10 * MIN_HANG_NS)):
        run.runner.finished.clear()
        run.runner.warmed_up(slowest_ns)
        run.work(put_features(run, 1))
        assert run.column[RUN_LIMIT_NS] == limit_ns


def test_a_held_batch_is_waited_for() -> None:
    """With a delay the runner says when it wants to be called; without work, never."""
    run = make_run(TICKS + "max_queue_delay_microseconds = 50\n")
    assert run.runner.next_wake_ns() is None
    run.runner.add(put_features(run, 1))
    run.turn()

    assert (run.runner.finished, run.runner.has_incoming, run.runner.next_wake_ns()) == ([], False, 50_000)
    run.clock.now_ns = 50_000
    run.turn()
    assert len(run.runner.finished) == 1
    assert closed_by(run) == {"delay": 1, "rows": 1}


def test_a_lane_with_nothing_to_do_gives_every_hop_back() -> None:
    """The echo lane."""
    run = make_run("[lane.e]\nslots = 8\nmax_batch_size = 4\n")
    finished = run.work([hop(slot) for slot in range(8)])

    assert {done[4] for done in finished.values()} == {HopKind.DONE}
