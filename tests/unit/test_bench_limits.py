"""The bare limits run and answer every request once."""

from __future__ import annotations

import pytest
from bench_helpers import PLAIN, needs_generator

from bench.limits import proxy_echo
from bench.load import Load, run_load
from bench.machine import describe, private_directory


@needs_generator
@pytest.mark.parametrize("worker", ["c", "python"])
def test_the_proxy_and_its_worker_answer_every_request(worker: str) -> None:
    """Nothing is lost or doubled between front, proxy and worker."""
    with private_directory() as directory, proxy_echo(directory, worker=worker) as endpoint:
        report = run_load(endpoint, PLAIN, Load(256, seconds=0.2, warm_up_s=0.0, drain_s=10.0, is_echo=True))

    assert report.is_clean


def test_a_figure_names_its_machine() -> None:
    """Processor, kernel, versions and revision are all there."""
    facts = describe()

    assert {"cpu", "cpus", "kernel", "python", "libzmq", "pyzmq", "revision"} <= facts.keys()
    assert all(str(value) for value in facts.values())
