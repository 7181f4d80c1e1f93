"""Faults planted by someone who did not write the engine: the stress test sees each in every seed, and nothing in a right one.

``SLOTLINE_PLANTED_SEEDS=50`` runs them in 50 seeds, and the right engine in 200.
"""

from __future__ import annotations

import os

import pytest
from planted import FAULTS, is_found, run_on_cuda

from bench.order_stress import fake_engine, run_random
from stages.device_cuda import CudaDevice

SEEDS = int(os.environ.get("SLOTLINE_PLANTED_SEEDS", "8"))


@pytest.mark.parametrize("part", FAULTS, ids=lambda part: part.__name__)
def test_a_fault_of_somebody_else_is_seen_in_every_seed(part: type) -> None:
    """Not now and then: in each."""
    assert [seed for seed in range(SEEDS) if not is_found(part, seed)] == []


def test_the_right_engine_has_none_of_them() -> None:
    """In as many batches, on the fake device and by the calls of CUDA."""
    assert [seed for seed in range(4 * SEEDS) if run_random(fake_engine, 1000 + seed, batches=60)] == []
    assert [seed for seed in range(SEEDS) if run_on_cuda(CudaDevice, 1000 + seed)] == []
