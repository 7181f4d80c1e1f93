"""Faults on demand: which processes have one, and when it strikes. The actions themselves are proved by tests/e2e."""

from __future__ import annotations

import pytest

from schemas.hop import HOP
from schemas.status import Code, ConfigError, RequestError
from stages import faults
from stages.faults import fault_hook, input_digest

HOPS = [HOP.pack(slot, 1, slot, 0, 1, 1, 0, 0, 0) for slot in range(3)]


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions done, instead of doing them to this process."""
    done: list[str] = []
    monkeypatch.setattr(faults, "_ACTIONS", {name: lambda name=name: done.append(name) for name in ("kill", "stop", "stall")})
    return done


def test_without_the_variable_there_is_no_hook() -> None:
    """The worker then has nothing to call."""
    assert fault_hook("ticks.0", {}) is None


def test_another_process_has_no_hook() -> None:
    """PROCESS is the beginning of a name."""
    assert fault_hook("qc.infer.0", {"SLOTLINE_FAULT": "after_take:kill:1:ticks"}) is None


def test_it_strikes_at_each_nth_pass_of_its_point(struck: list[str]) -> None:
    """Other points do not count."""
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_write:stop:2:ticks"})
    assert hit is not None

    for point in ("after_write", "after_send", "after_take"):
        hit(point)
    assert struck == []
    for _ in range(3):
        hit("after_write")
    assert struck == ["stop", "stop"]


def test_it_strikes_at_intervals(struck: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first counts from the first pass, the next from the one before."""
    now_ns = 5_000_000
    monkeypatch.setattr("stages.faults.time.monotonic_ns", lambda: now_ns)
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_send:stall:3ms"})
    assert hit is not None

    found = []
    for at_ns in (5_000_000, 7_999_999, 9_000_000, 9_000_000, 11_999_999, 12_000_000):
        now_ns = at_ns
        hit("after_send")
        found.append(len(struck))
    assert found == [0, 0, 1, 1, 1, 2]


def test_a_process_may_have_several_faults(struck: list[str]) -> None:
    """Each counts for itself."""
    hit = fault_hook("ticks.0", {"SLOTLINE_FAULT": "after_take:kill:1:qc,after_take:stop:1,after_send:stall:2:ticks"})
    assert hit is not None

    for point in ("after_take", "after_send", "after_send"):
        hit(point)

    assert struck == ["stop", "stall"]


@pytest.mark.parametrize(
    "text",
    [
        "after_take",
        "after_take:kill",
        "nowhere:kill:1",
        "after_take:burn:1",
        "after_take:kill:x",
        ",",
        "after_take:drop:1",
        "hop:kill:1",
        "hop:sleep2ms:1",
        "in_call:sleepms:1",
        "after_take:kill:=0123456789abcdef",
        "in_call:abort:=0123",
    ],
)
def test_a_text_that_cannot_be_understood_is_refused(text: str) -> None:
    """A typing error must not make a chaos run pass."""
    with pytest.raises(ConfigError, match="expected POINT:ACTION:N"):
        fault_hook("ticks.0", {"SLOTLINE_FAULT": text})


def test_hops_are_dropped_doubled_and_sent_again_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always the first of a message; the others go as they came. A late one goes with the first message after its time."""
    now_ns = 0
    monkeypatch.setattr("stages.faults.time.monotonic_ns", lambda: now_ns)
    sent: list[bytes] = []
    for action, expected in (("drop", HOPS[1:]), ("duplicate", [*HOPS, HOPS[0]]), ("late", HOPS)):
        sent.clear()
        hook = fault_hook("ticks.0", {"SLOTLINE_FAULT": f"hop:{action}:1"})
        assert hook is not None
        hook.sender(sent.append)(b"".join(HOPS))
        assert b"".join(sent) == b"".join(expected)

    now_ns = faults.LATE_NS
    sent.clear()
    assert hook is not None
    hook.sender(sent.append)(HOPS[2])
    assert sent == [HOPS[2], HOPS[0]]


def test_a_message_of_one_dropped_hop_is_not_sent() -> None:
    """An empty message would be another fault."""
    sent: list[bytes] = []
    hook = fault_hook("ticks.0", {"SLOTLINE_FAULT": "hop:drop:1"})
    assert hook is not None

    hook.sender(sent.append)(HOPS[0])

    assert sent == []


def test_a_call_is_struck_by_what_it_works_on() -> None:
    """Only the request with this input; its digest says where one tensor ends by nothing, so split tensors are the same."""
    digest = input_digest([b"poi", b"son"])
    hook = fault_hook("ticks.0", {"SLOTLINE_FAULT": f"in_call:raise:={digest}"})
    assert hook is not None
    hook.call(lambda: [input_digest([b"other"])])
    hook(faults.IN_CALL)

    with pytest.raises(RequestError) as raised:
        hook.call(lambda: [input_digest([b"other"]), input_digest([b"poison"])])
    assert raised.value.code == Code.MODEL_FAILED


def test_a_call_takes_longer_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By so many milliseconds, at each second call here."""
    slept: list[float] = []
    monkeypatch.setattr("stages.faults.time.sleep", slept.append)
    hook = fault_hook("ticks.0", {"SLOTLINE_FAULT": "in_call:sleep25ms:2"})
    assert hook is not None

    for _ in range(4):
        hook.call(list)

    assert slept == [0.025, 0.025]
