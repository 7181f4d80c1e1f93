"""The checker sees what it is there to see: lost, doubled, wrong, strange, and what ended with its epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from bench.chaos import checker as checker_module
from bench.chaos.checker import Checker, Task
from bench.chaos.functions import answer_of
from bench.chaos.judge import Judge
from bench.chaos.supply import Supply
from schemas.layout import read_layout, read_route
from schemas.status import Place
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType

RIGHT = {"y": b"1"}


def test_each_id_ends_in_one_class() -> None:
    """Five requests, five fates."""
    judge = Judge()
    for _ in range(5):
        judge.send(RIGHT, 0)

    found = [judge.answer(1, RIGHT, 5), judge.answer(2, {"y": b"2"}, 5), judge.answer(3, "BUSY", 5), judge.answer(4, None, 5)]

    assert found == ["ok", "wrong", "BUSY", "wrong"]
    report = judge.report()
    assert [report[name] for name in ("sent", "ok", "wrong", "lost", "doubled")] == [5, 1, 2, 1, 0]
    assert report["errors"] == {"BUSY": 1}


def test_a_second_answer_is_doubled_and_an_id_that_was_never_sent_is_strange() -> None:
    """Strange ones count as wrong."""
    judge = Judge()
    judge.send(RIGHT, 0)

    assert [judge.answer(1, RIGHT, 1), judge.answer(1, "BUSY", 2), judge.answer(2, RIGHT, 3)] == ["ok", "doubled", "strange"]
    assert (judge.report()["doubled"], judge.report()["wrong"]) == (1, 1)


def test_an_error_that_was_expected_is_counted_as_such_and_a_result_instead_is_wrong() -> None:
    """The poison must not be answered."""
    judge = Judge()
    judge.send("QUARANTINED", 0)
    judge.send("QUARANTINED", 0)

    assert (judge.answer(1, "QUARANTINED", 1), judge.answer(2, RIGHT, 1)) == ("QUARANTINED", "wrong")
    assert judge.report()["expected_errors"] == 1


def test_what_ends_with_its_epoch_is_not_lost_but_a_late_answer_must_be_right() -> None:
    """One never comes, one comes rightly, one wrongly."""
    judge = Judge()
    for _ in range(3):
        judge.send(RIGHT, 0)
    judge.end_epoch()
    judge.send(RIGHT, 1)

    assert [judge.answer(2, RIGHT, 2), judge.answer(3, {}, 2)] == ["ok", "wrong"]
    report = judge.report()
    assert [report[name] for name in ("lost", "ended_by_epoch", "wrong", "ok")] == [1, 1, 1, 1]


def test_only_what_was_sent_after_the_signal_may_stay_unanswered() -> None:
    """What the server had before, it owes."""
    judge = Judge()
    judge.send(RIGHT, 10)
    judge.send(RIGHT, 30)
    judge.end_after(20)

    assert (judge.report()["lost"], judge.report()["ended_by_epoch"]) == (1, 1)


def test_recovery_is_the_first_result_of_a_request_that_was_sent_after_the_death() -> None:
    """Results of earlier requests, and errors, say nothing."""
    judge = Judge()
    judge.send(RIGHT, 5)
    judge.mark(10)
    judge.send(RIGHT, 20)
    judge.send(RIGHT, 21)

    judge.answer(1, RIGHT, 30)
    judge.answer(2, "STAGE_DIED", 40)
    assert (judge.recoveries_ns, judge.report()["not_recovered"]) == ([], 1)
    judge.answer(3, RIGHT, 50)
    assert (judge.recoveries_ns, judge.report()["not_recovered"]) == ([40], 0)


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[str]:
    """A server that answers ids 1 rightly, 2 twice, 3 wrongly, 4 never, and the others rightly."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{tmp_path}/liar")
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            while router.poll(20):
                peer, header, *frames = router.recv_multipart()
                layout = read_layout(header)
                (tensor,) = layout.tensors
                at = tensor.inline_at
                payload = header[at : at + tensor.nbytes] if tensor.place == Place.INLINE else frames[0]
                request_id = read_route(header, layout).request_id
                answer = answer_of(payload)
                if request_id == 3:
                    answer = answer[:-1] + bytes([answer[-1] ^ 1])
                form = TensorForm("answer", DType.UINT8, (len(answer),), len(answer))
                reply = ReplyTemplate("chaos", "1", [form], 0).header((request_id, 0, 0), b"", 0, 0)
                for _ in range({2: 2, 4: 0}.get(request_id, 1)):
                    router.send_multipart([peer, reply, answer])

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"ipc://{tmp_path}/liar"
    ended.set()
    thread.join()
    router.close(linger=0)
    context.term()


def test_the_checker_finds_a_server_out(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lost, one doubled, one wrong, and no more."""
    monkeypatch.setattr(checker_module, "DRAIN_S", 0.5)
    checker = Checker(Task(liar, Supply("digests"), outstanding=8))
    while checker.judge.ok < 100:
        checker.turn()

    report = checker.obey(["finish"])

    assert [report[name] for name in ("lost", "doubled", "wrong")] == [1, 1, 1]
    assert report["examples"] == {"lost": [4], "doubled": [2], "wrong": [3], "strange": []}
    assert report["ok"] == report["sent"] - 2
    checker.close()
