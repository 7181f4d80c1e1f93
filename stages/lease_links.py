"""The input link of a server that lends regions: a slot's input lies in its row, or, where its descriptor says so, in a lease.

A lease's client may write into it at any time, so bytes may change while they are read: they are data here, never sizes or
offsets or anything else that was checked before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.arena import LaneArena
from schemas.lease_regions import LeaseRegions
from schemas.leases import IN_LEASE
from schemas.plan import LinkPlan
from schemas.tensors import NUMPY_NAME

from .links import Array, Arrays, SharedLink

_OFFSET_WORD = 3
_IN_LEASE = np.uint64(IN_LEASE)


class LeasedInput(SharedLink):
    """The first link of a lane. The broker writes descriptors also where every slot's tensors lie alike."""

    def __init__(self, arena: LaneArena, plan: LinkPlan, regions: LeaseRegions) -> None:
        super().__init__(arena, plan, 0)
        self._lease_regions = regions
        self._offsets = self._descriptors[:, : len(plan.tensors), _OFFSET_WORD]

    def read(self, slot: int) -> Arrays:
        """Return the tensors of *slot* by name, each where it lies."""
        found = super().read(slot)
        if self.plan.static:
            for tensor, word in zip(self.plan.tensors, self._offsets[slot].tolist(), strict=True):
                if word & IN_LEASE:
                    flat = self._lease_regions.view(word, tensor.max_bytes)
                    found[tensor.name] = np.ndarray(tensor.shape, NUMPY_NAME[tensor.dtype], flat.data)
        return found

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        """Fill *out* with tensor *name* of each slot: for the model, which so has a copy that nobody changes."""
        if not self.plan.static or not (self._offsets[slots] & _IN_LEASE).any():
            super().gather(name, slots, out)
            return
        for index, slot in enumerate(slots):
            np.copyto(out[index : index + 1], self.read(slot)[name])

    def _flat(self, slot: int, offset: int, nbytes: int) -> NDArray[np.uint8]:
        if offset & IN_LEASE:
            return self._lease_regions.view(offset, nbytes)
        return super()._flat(slot, offset, nbytes)
