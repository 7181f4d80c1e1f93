"""The preprocess step ``use = "resize"`` on the CPU: one picture at a time, by the numpy twin of the GPU's kernel."""

from __future__ import annotations

from schemas.config import LaneConfig

from .image_libraries import no_memory
from .links import Link
from .resize import resize_row
from .resize_plan import spec_of


class Resize:
    """Pixels of any size to a model's row of one size, by the numpy twin of the GPU's kernel."""

    def __init__(self, source: Link, target: Link, lane: LaneConfig) -> None:
        self._source, self._target = source, target
        (self._row,) = target.plan.tensors
        self._spec = spec_of(lane, self._row.dtype, self._row.shape[1:])

    def run(self, slot: int) -> None:
        """Write the row of the slot's picture."""
        (pixels,) = self._source.read(slot).values()
        try:
            row = self._target.buffers(slot)[self._row.name].reshape(self._row.shape)
            resize_row(self._spec, pixels, row[0])  # type: ignore[arg-type]
        except MemoryError as error:
            raise no_memory() from error
        self._target.commit(slot, {self._row.name: self._row.shape})
