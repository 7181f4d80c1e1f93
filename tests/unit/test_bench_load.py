"""The load generator: what it sends, what it counts, and what it says when it cannot be built."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bench_helpers import PLAIN, Answer, message, needs_generator, plain_id, scripted_router

from bench import load as load_module
from bench.limits import ipc_echo
from bench.load import Headers, Load, build, route_at, run_load
from bench.machine import private_directory
from schemas.status import Code, ConfigError


def short(
    *,
    outstanding: int = 8,
    rate: float = 0.0,
    is_poisson: bool = False,
    sockets: int = 1,
    is_echo: bool = True,
    drain_s: float = 10.0,
) -> Load:
    """Return a load of 0.2 measured seconds without warm-up."""
    return Load(outstanding, rate, is_poisson, seconds=0.2, warm_up_s=0.0, drain_s=drain_s, sockets=sockets, is_echo=is_echo)


def run_against(answer: Answer, load: Load) -> load_module.Report:
    """Return the generator's report about a server that answers as *answer* says."""
    with private_directory() as directory, scripted_router(directory, answer) as endpoint:
        return run_load(endpoint, PLAIN, load)


@needs_generator
@pytest.mark.parametrize(("outstanding", "sockets"), [(1, 1), (256, 1), (64, 8)])
def test_every_request_of_a_closed_loop_is_answered_once(outstanding: int, sockets: int) -> None:
    """Against an honest echo nothing is lost, doubled or strange, and each answer has a latency."""
    with private_directory() as directory, ipc_echo(directory) as endpoint:
        report = run_load(endpoint, PLAIN, short(outstanding=outstanding, sockets=sockets))

    assert report.is_clean
    assert report.samples >= outstanding
    assert 0 < report.p50_us <= report.p90_us <= report.p99_us <= report.max_us


@needs_generator
@pytest.mark.parametrize("is_poisson", [False, True])
def test_an_open_loop_sends_at_the_wanted_rate(is_poisson: bool) -> None:
    """The schedule decides how many are sent, not the server: 2,000/s are about 400 in 0.2 s."""
    with private_directory() as directory, ipc_echo(directory) as endpoint:
        report = run_load(endpoint, PLAIN, short(outstanding=4096, rate=2000, is_poisson=is_poisson))

    assert report.is_clean
    # Five standard deviations of a Poisson count of 400; the constant schedule is well inside.
    assert report.sent == pytest.approx(400, abs=100 if is_poisson else 8)
    assert report.late_us >= 0


@needs_generator
def test_each_request_has_its_own_id_and_the_headers_are_taken_in_turn() -> None:
    """Ids count from 1; the bytes around them are those of the table."""
    seen: list[tuple[int, int]] = []

    def note(_count: int, frame: bytes) -> Sequence[bytes]:
        seen.append((plain_id(frame), frame[0]))
        return [frame]

    report = run_against(note, short(outstanding=3))

    assert seen == [(number + 1, number % 8) for number in range(report.sent)]


@needs_generator
def test_a_doubled_reply_is_counted() -> None:
    """One request answered twice is one doubled reply, and still one answer."""
    report = run_against(lambda count, frame: [frame, frame] if count == 5 else [frame], short())

    assert (report.doubled, report.lost, report.sent) == (1, 0, report.ok)
    assert not report.is_clean


@needs_generator
def test_a_missing_reply_is_lost() -> None:
    """One request never answered is one lost when the drain time is over."""
    report = run_against(lambda count, frame: [] if count == 5 else [frame], short(drain_s=0.5))

    assert (report.lost, report.doubled, report.ok) == (1, 0, report.sent - 1)
    assert not report.is_clean


@needs_generator
def test_a_reply_to_nobody_is_strange() -> None:
    """An id that was never sent, and a frame too short for one, answer nothing."""
    nobody = bytes(16) + (1 << 60).to_bytes(8, "little")
    report = run_against(lambda count, frame: [nobody, b"short", frame] if count == 5 else [frame], short())

    assert (report.strange, report.lost, report.doubled) == (2, 0, 0)


@needs_generator
def test_the_id_is_read_from_the_route_of_a_reply() -> None:
    """Slotline's own replies are matched by Route.request_id, wherever their vtable puts it."""
    report = run_against(lambda _count, frame: [message(plain_id(frame))], short(is_echo=False))

    assert report.is_clean


@needs_generator
def test_errors_are_counted_by_code_and_give_no_latency() -> None:
    """Each Error answers its request; a fast BUSY does not improve the percentiles."""
    report = run_against(lambda _count, frame: [message(plain_id(frame), code=Code.BUSY)], short(is_echo=False))

    assert report.errors == report.sent > 0
    assert report.errors_by_code == {"200": report.errors}
    assert (report.samples, report.lost, report.is_clean) == (0, 0, False)


@needs_generator
def test_a_broken_reply_is_strange_and_harmless() -> None:
    """Every cut of a reply and every offset set to 0xFF is survived; the whole one is counted."""
    whole = message(1, code=Code.INTERNAL)
    broken = [whole[:size] for size in range(len(whole) - 60)]
    broken += [whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :] for at in range(0, 24, 4)]

    def breaking(count: int, frame: bytes) -> Sequence[bytes]:
        return [*(broken if count == 0 else ()), message(plain_id(frame))]

    report = run_against(breaking, short(outstanding=1, is_echo=False))

    assert report.lost == 0
    assert report.sent == report.errors + report.ok
    assert report.strange > len(broken) / 2


@needs_generator
def test_a_stall_is_charged_to_all_requests_that_it_delays() -> None:
    """In an open loop latency runs from the due time: a pause of 0.1 s in 0.2 s delays half of the requests."""
    pause = threading.Event()

    def pausing(count: int, frame: bytes) -> Sequence[bytes]:
        if count == 50:
            pause.wait(0.1)
        return [frame]

    report = run_against(pausing, short(outstanding=4096, rate=1000))

    assert report.max_us >= 100_000
    # Half of 200 requests wait evenly between 0 and 100 ms: one in ten for at least 80 ms. A closed-loop view would show one.
    assert report.p90_us >= 60_000


@needs_generator
def test_the_histogram_gives_percentiles_to_three_digits(tmp_path: Path) -> None:
    """Percentiles of log-uniform values are the exact ones or at most 0.1 % above."""
    source = tmp_path / "histogram.c"
    source.write_text(
        '#include <stdio.h>\n#include "histogram.h"\nstatic struct histogram all;\nint main(void) { unsigned long long value;'
        '  while (scanf("%llu", &value) == 1) record(&all, value);'
        '  for (int q = 1; q <= 999; q++) printf("%llu\\n", (unsigned long long)percentile(&all, q / 1000.0)); }\n'
    )
    subprocess.run(["cc", "-I", load_module.SOURCES, source, "-o", tmp_path / "histogram"], check=True)
    values = np.sort(np.exp(np.random.default_rng(3).uniform(0, 25, 20_000)).astype(np.int64))
    text = "\n".join(map(str, values))
    output = subprocess.run([tmp_path / "histogram"], input=text, capture_output=True, text=True, check=True).stdout

    got = np.array(output.split(), dtype=np.int64)
    exact = values[np.ceil(np.arange(1, 1000) / 1000 * len(values)).astype(int) - 1]
    assert np.all(got >= exact)
    assert np.all(got <= exact * 1.001)


@needs_generator
def test_a_wrong_option_is_one_line() -> None:
    """A number out of range names the option and what is allowed."""
    with pytest.raises(ConfigError, match=r"--outstanding 0: expected a number from 1 to 65536"):
        run_load("ipc:///nowhere", PLAIN, short(outstanding=0))


def test_no_compiler_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a compiler one line says what to install."""
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(load_module, "BINARIES", tmp_path)

    with pytest.raises(ConfigError, match=r"no compiler: install .*libzmq3-dev"):
        build("load")


@needs_generator
def test_missing_headers_are_said_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the compiler does not find is named, with what to install; nothing half-made stays behind."""
    monkeypatch.setattr(load_module, "FLAGS", ("-nostdinc",))
    monkeypatch.setattr(load_module, "BINARIES", tmp_path)

    with pytest.raises(ConfigError, match=r"errno.h.*install .*libzmq3-dev"):
        build("echo")
    assert list(tmp_path.iterdir()) == []


def test_headers_share_one_layout() -> None:
    """The generator patches one offset, so a table of different layouts is refused."""
    one = message(1)
    assert Headers.of([one, message(2)]).id_at == route_at(one)

    with pytest.raises(ValueError, match="one layout"):
        Headers.of([one, message(1, code=Code.BUSY)])
