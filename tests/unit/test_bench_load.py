"""The load generator: what it sends, what it counts, and what it says when it cannot be built."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bench_helpers import PLAIN, Answer, message, needs_generator, plain_id, scripted_router

from bench import build as build_module
from bench.build import build
from bench.limits import ipc_echo, ipc_sink
from bench.load import PYTHON, C, Load, Report, run_load
from bench.machine import private_directory
from bench.requests import Requests
from schemas.status import Code, ConfigError, Flag

each_generator = pytest.mark.parametrize("generator", [pytest.param(C, marks=needs_generator), PYTHON])


def short(
    *,
    outstanding: int = 8,
    rate: float = 0.0,
    is_poisson: bool = False,
    sockets: int = 1,
    is_echo: bool = True,
    drain_s: float = 10.0,
    generator: str = C,
) -> Load:
    """Return a load of 0.2 measured seconds without warm-up, in windows of 0.05."""
    return Load(
        outstanding, rate, is_poisson, seconds=0.2, warm_up_s=0.0, drain_s=drain_s, window_s=0.05, connections=sockets,
        is_echo=is_echo, generator=generator,
    )  # fmt: skip


def run_against(answer: Answer, load: Load) -> Report:
    """Return the generator's report about a server that answers as *answer* says."""
    with private_directory() as directory, scripted_router(directory, answer) as endpoint:
        return run_load(endpoint, PLAIN, load)


@needs_generator
@pytest.mark.parametrize(("outstanding", "sockets"), [(1, 1), (256, 1), (64, 8)])
@pytest.mark.parametrize("generator", [C, PYTHON])
def test_every_request_of_a_closed_loop_is_answered_once(outstanding: int, sockets: int, generator: str) -> None:
    """Against an honest echo nothing is lost, doubled or strange, and each answer has a latency."""
    with private_directory() as directory, ipc_echo(directory) as endpoint:
        report = run_load(endpoint, PLAIN, short(outstanding=outstanding, sockets=sockets, generator=generator))

    assert report.is_clean
    assert report.latency.samples >= outstanding
    assert 0 < report.p50_us <= report.latency.max_ns / 1e3
    assert len(report.windows) == 4
    assert sum(window.rate * 0.05 for window in report.windows) == pytest.approx(report.rate * 0.2)


@needs_generator
@pytest.mark.parametrize("is_poisson", [False, True])
def test_an_open_loop_sends_at_the_wanted_rate(is_poisson: bool) -> None:
    """The schedule decides how many are sent, not the server: 2,000/s are 400 in 0.2 s."""
    with private_directory() as directory, ipc_echo(directory) as endpoint:
        report = run_load(endpoint, PLAIN, short(outstanding=4096, rate=2000, is_poisson=is_poisson))

    assert report.is_clean
    # Never more than the schedule says (five standard deviations of a Poisson count); fewer where the machine stands still.
    assert 40 <= report.sent <= (500 if is_poisson else 401)
    assert report.late_us >= 0


@each_generator
def test_each_request_has_its_own_id_and_the_headers_are_taken_in_turn(generator: str) -> None:
    """Ids count from 1; the bytes around them are those of the table."""
    seen: list[tuple[int, int]] = []

    def note(_count: int, frame: bytes) -> Sequence[bytes]:
        seen.append((plain_id(frame), frame[0]))
        return [frame]

    report = run_against(note, short(outstanding=3, generator=generator))

    assert seen == [(number + 1, number % 8) for number in range(report.sent)]


@each_generator
def test_a_doubled_reply_is_counted(generator: str) -> None:
    """One request answered twice is one doubled reply, and still one answer."""
    report = run_against(lambda count, frame: [frame, frame] if count == 5 else [frame], short(generator=generator))

    assert (report.doubled, report.lost, report.sent) == (1, 0, report.ok)
    assert not report.is_clean


@each_generator
def test_a_missing_reply_is_lost(generator: str) -> None:
    """One request never answered is one lost when the drain time is over."""
    report = run_against(lambda count, frame: [] if count == 5 else [frame], short(drain_s=0.5, generator=generator))

    assert (report.lost, report.doubled, report.ok) == (1, 0, report.sent - 1)
    assert not report.is_clean


@each_generator
def test_a_reply_to_nobody_is_strange(generator: str) -> None:
    """An id that was never sent, and a frame too short for one, answer nothing."""
    nobody = bytes(16) + (1 << 60).to_bytes(8, "little")
    report = run_against(lambda count, frame: [nobody, b"short", frame] if count == 5 else [frame], short(generator=generator))

    assert (report.strange, report.lost, report.doubled) == (2, 0, 0)


@each_generator
def test_the_id_is_read_from_the_route_of_a_reply(generator: str) -> None:
    """Slotline's own replies are matched by Route.request_id, wherever their vtable puts it."""
    report = run_against(lambda _count, frame: [message(plain_id(frame))], short(is_echo=False, generator=generator))

    assert report.is_clean


@each_generator
def test_errors_are_counted_by_code_and_give_no_latency(generator: str) -> None:
    """Each Error answers its request; a fast BUSY does not improve the percentiles."""
    report = run_against(
        lambda _count, frame: [message(plain_id(frame), code=Code.BUSY)], short(is_echo=False, generator=generator)
    )

    assert report.errors == report.sent > 0
    assert report.errors_by_code == {"200": report.errors}
    assert (report.latency.samples, report.lost, report.is_clean) == (0, 0, False)


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


@each_generator
def test_a_stall_is_charged_to_all_requests_that_it_delays(generator: str) -> None:
    """In an open loop latency runs from the due time: a pause of 0.1 s in 0.2 s delays half of the requests."""
    pause = threading.Event()

    def pausing(count: int, frame: bytes) -> Sequence[bytes]:
        if count == 50:
            pause.wait(0.1)
        return [frame]

    report = run_against(pausing, short(outstanding=4096, rate=1000, generator=generator))

    assert report.latency.max_ns >= 100_000_000
    # Half of 200 requests wait evenly between 0 and 100 ms: one in ten for at least 80 ms. A closed-loop view would show one.
    assert (report.latency.percentile_us(0.9) or 0) >= 60_000


@needs_generator
def test_the_histogram_gives_percentiles_to_three_digits(tmp_path: Path) -> None:
    """Percentiles of log-uniform values are the exact ones or at most 0.1 % above."""
    source = tmp_path / "histogram.c"
    source.write_text(
        '#include <stdio.h>\n#include "histogram.h"\nstatic struct histogram all;\nint main(void) { unsigned long long value;'
        '  while (scanf("%llu", &value) == 1) record(&all, value);'
        '  for (int q = 1; q <= 999; q++) printf("%llu\\n", (unsigned long long)percentile(&all, q / 1000.0)); }\n'
    )
    subprocess.run(["cc", "-I", build_module.SOURCES, source, "-o", tmp_path / "histogram"], check=True)
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
    monkeypatch.setattr(build_module, "BINARIES", tmp_path)

    with pytest.raises(ConfigError, match=r"no compiler: install .*libzmq3-dev"):
        build("load")


@needs_generator
def test_missing_headers_are_said_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the compiler does not find is named, with what to install; nothing half-made stays behind."""
    monkeypatch.setattr(build_module, "FLAGS", ("-nostdinc",))
    monkeypatch.setattr(build_module, "BINARIES", tmp_path)

    with pytest.raises(ConfigError, match=r"errno.h.*install .*libzmq3-dev"):
        build("echo")
    assert list(tmp_path.iterdir()) == []


@each_generator
def test_packed_requests_are_answered_each(generator: str) -> None:
    """Ids are patched into every header of a message, and every header of a packed reply answers one."""
    packed = Requests(((bytes(64), bytes(64), bytes(64)),), headers=3, id_at=16)
    seen: list[int] = []

    def answer(_count: int, frame: bytes) -> Sequence[bytes]:
        seen.append(plain_id(frame))
        return [message(seen[-1], flags=Flag.PACKED)]

    with private_directory() as directory, scripted_router(directory, answer) as endpoint:
        report = run_load(endpoint, packed, short(is_echo=False, generator=generator))

    assert report.is_clean
    assert seen == list(range(1, report.sent + 1))
    assert report.sent % 3 == 0


@needs_generator
@pytest.mark.parametrize("generator", [C, PYTHON])
def test_payloads_travel_behind_their_header(generator: str) -> None:
    """The bare receiver copies a frame and answers with the header alone."""
    rng = np.random.default_rng(1)
    frames = Requests(tuple((bytes(32), rng.bytes(100_000 + size)) for size in range(3)), headers=1, id_at=8)
    with private_directory() as directory, ipc_sink(directory) as endpoint:
        report = run_load(endpoint, frames, short(outstanding=2, generator=generator))

    assert report.is_clean


@needs_generator
@pytest.mark.parametrize("table", [b"", b"\1" * 40, Requests(((b"short",),), 1, 0).table(), PLAIN.table()[:-1]])
def test_a_broken_table_of_requests_is_one_line(table: bytes, tmp_path: Path) -> None:
    """Whatever is cut or wrong in it, nothing is read beyond its end."""
    path = tmp_path / "table"
    path.write_bytes(table)
    result = subprocess.run([build("load"), "--endpoint", "ipc:///nowhere", "--requests", path], capture_output=True, check=False)

    assert result.returncode == 2
    assert result.stderr.decode().startswith(f"load: {path}: ")
