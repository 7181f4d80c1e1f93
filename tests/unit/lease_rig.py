"""What tests of leases need: regions of real shared memory, and a pool over them."""

from __future__ import annotations

import os

import numpy as np
from builders import memory

from broker.leases import Grant, LeasePool
from broker.life import Client
from schemas.lease_regions import LeaseRegions
from schemas.leases import RegionForm
from schemas.wire_tensors import Lease

FORM = RegionForm(frames=3, frame_bytes=5000)


def make_pool(count: int = 2, first: int = 100) -> LeasePool:
    """Return a pool of *count* regions of FORM."""
    return LeasePool(FORM, [first] * count)


def make_regions(count: int = 2) -> tuple[LeaseRegions, list[int]]:
    """Return mapped regions and their descriptors, which are the test's to close."""
    descriptors = [memory(FORM.region_bytes) for _ in range(count)]
    return LeaseRegions(descriptors, FORM, writable=True), descriptors


def close(descriptors: list[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def lend(pool: LeasePool, client: Client) -> Grant:
    """Lend a region that there must be."""
    grant = pool.lend(client)
    assert grant is not None
    return grant


def ref(grant: Grant, frame: int = 0, nbytes: int = 100) -> Lease:
    """Return how the wire names a frame of *grant*."""
    return Lease(grant.region, grant.generation, frame, nbytes)


def write(regions: LeaseRegions, grant: Grant, content: bytes, frame: int = 0) -> None:
    """Write into a frame, as its client does."""
    at = frame * FORM.stride
    regions.region(grant.region)[at : at + len(content)] = np.frombuffer(content, np.uint8)
