"""The batched inference engine: batches on their way through a device, two or three at a time where the device works by itself.

Reads no slots and knows no hops (``steps.py`` gathers into the views of a flight). Each method that queues work or waits for it
has one duty, in the order in which a batch meets them: open, upload, compute, download, land, release.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from schemas.status import Code, ConfigError, RequestError
from schemas.tensors import TensorSpec

from .device import Array, Bytes, Device, Model, RowShapes, Stream
from .flight import Flight

# An attribute of an enum costs as much as a call that does nothing.
_UPLOAD, _COMPUTE, _DOWNLOAD = Stream
# The first run of a shape allocates inside onnxruntime; the best of three is what a warm one costs.
_WARM_UP_RUNS = 3


class Engine:
    """A model on a device, with its flights. Owned by one thread.

    Args:
        max_batch_size: most rows of a run.
        flights: how many batches may be on their way at once; 1 where a run is done when it returns.

    Raises:
        ConfigError: the buffers do not fit into the device's memory.
    """

    def __init__(self, model: Model, device: Device, *, max_batch_size: int, flights: int = 1) -> None:
        self._model = model
        self.device = device
        self.max_batch_size = max_batch_size
        self.inputs: tuple[TensorSpec, ...] = model.inputs
        self.outputs: tuple[TensorSpec, ...] = model.outputs
        try:
            self._free = deque(Flight(model, device, max_batch_size) for _ in range(flights))
        except MemoryError as error:
            raise _does_not_fit(model.name, flights, max_batch_size) from error
        self._air: deque[Flight] = deque()
        self._flights = flights

    @property
    def row_shapes(self) -> RowShapes | None:
        """The only shapes a row can have; None when a dimension beside the rows is free."""
        shapes = tuple(spec.shape[1:] for spec in self.inputs)
        return None if any(-1 in shape for shape in shapes) else shapes

    @property
    def has_room(self) -> bool:
        """True when a flight is free."""
        return bool(self._free)

    def adopt(self, memory: Bytes) -> bool:
        """Let the device read *memory*, where slots lie, by itself; False = it cannot."""
        return self.device.adopt(memory)

    def close(self) -> None:
        """Give the device's memory back, when what is on its way has landed: an interrupt may have kept it from being taken."""
        while self._air:
            self.wait()
            self.release(self.land())
        self._free.clear()
        self.device.close()

    # --- the way of one batch --------------------------------------------------------------------------------------------

    def open(self, rows: int, shapes: RowShapes) -> Flight:
        """Return a free flight whose ``inputs`` wait to be filled; there must be one.

        Raises:
            RequestError: OUT_OF_MEMORY when a batch larger than all before does not fit.
        """
        assert 1 <= rows <= self.max_batch_size
        flight = self._free.popleft()
        try:
            flight.prepare(rows, self._bucket(rows), shapes)
        except MemoryError as error:
            self._free.append(flight)
            message = f"no memory for a batch of {rows} rows of {shapes}"
            raise RequestError(Code.OUT_OF_MEMORY, message=message) from error
        return flight

    def upload_rows(self, flight: Flight, name: str, rows: Sequence[Array]) -> bool:
        """Upload input *name* row by row from where its rows lie; False, with nothing done, where the device cannot read them.

        The rows stay as they are until the flight has landed or was aborted.
        """
        if not all(self.device.has_adopted(row) for row in rows):
            return False
        block = flight.binding.bound[name].block
        at = 0
        for row in rows:
            self.device.upload_row(block, at, row)
            at += row.nbytes
        flight.direct.add(name)
        return True

    def launch(self, flight: Flight) -> None:
        """Send a filled flight on its way.

        Raises:
            RequestError: MODEL_FAILED; the flight must be aborted.
        """
        self._upload(flight)
        self._compute(flight)
        self._download(flight)
        self._air.append(flight)

    @property
    def has_landed(self) -> bool:
        """True when the flight that was launched first has landed."""
        return bool(self._air) and self.device.is_done(self._air[0].landed)

    def wait(self) -> None:
        """Sleep until the flight that was launched first has landed."""
        self.device.wait(self._air[0].landed)

    def land(self) -> Flight:
        """Return the flight that was launched first, which has landed; its outputs are there until it is released."""
        return self._air.popleft()

    def release(self, flight: Flight) -> None:
        """Take back a flight whose outputs nobody reads any more."""
        self._free.append(flight)

    def abort(self, flight: Flight) -> None:
        """Take back a flight that was opened and not launched, or whose launch failed: what it queued is done before."""
        for stream, mark in ((_UPLOAD, flight.uploaded), (_COMPUTE, flight.computed)):
            self.device.record(stream, mark)
            self.device.wait(mark)
        self.release(flight)

    # --- its parts -------------------------------------------------------------------------------------------------------

    def _bucket(self, rows: int) -> int:
        """Return with how many rows a batch runs."""
        return min(self.max_batch_size, 1 << (rows - 1).bit_length()) if self.device.pads else rows

    def _upload(self, flight: Flight) -> None:
        """Queue what was gathered, and zeros behind it: what earlier batches left there must not reach this one's rows."""
        device, binding, rows = self.device, flight.binding, flight.rows
        for bound in binding.read:
            if bound.name not in flight.direct:
                device.upload(bound.block, bound.row_bytes * rows)
        if rows < flight.bucket:
            for bound in binding.bound.values():
                device.clear(bound.block, bound.row_bytes * rows, bound.nbytes)
        device.record(_UPLOAD, flight.uploaded)

    def _compute(self, flight: Flight) -> None:
        """Queue the model behind the upload."""
        device = self.device
        device.after(_COMPUTE, flight.uploaded)
        device.run(flight.binding.call)
        device.record(_COMPUTE, flight.computed)

    def _download(self, flight: Flight) -> None:
        """Queue the outputs of the rows that are there behind the model."""
        device = self.device
        device.after(_DOWNLOAD, flight.computed)
        for bound in flight.binding.written:
            device.download(bound.block, bound.row_bytes * flight.rows)
        device.record(_DOWNLOAD, flight.landed)

    # --- before the first request ----------------------------------------------------------------------------------------

    def call(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch at once and return copies of its outputs; nothing else may be on its way."""
        arrays = [inputs[spec.name] for spec in self.inputs]
        flight = self.open(len(arrays[0]), tuple(array.shape[1:] for array in arrays))
        try:
            for name, view in flight.inputs.items():
                np.copyto(view, inputs[name])
            self.launch(flight)
        except RequestError:
            self.abort(flight)
            raise
        self.wait()
        assert self.land() is flight
        try:
            return {name: array.copy() for name, array in flight.outputs().items()}
        finally:
            self.release(flight)

    def warm_up(self, shapes: RowShapes | None = None) -> dict[int, int]:
        """Run batches of 1, 2, 4 ... max_batch_size rows of zeros on each flight and return the best time of each in nanoseconds.

        The largest comes first: where memory does not suffice it is known at once.

        Args:
            shapes: example shapes where the model leaves them free; without them such a model is not run: {}.

        Raises:
            ConfigError: the model fails on zeros, or does not fit.
        """
        shapes = shapes or self.row_shapes or self._model.example
        if shapes is None:
            return {}
        sizes = {self.max_batch_size, *(1 << power for power in range(self.max_batch_size.bit_length()))}
        best_ns = {rows: self._best_ns(rows, shapes) for rows in sorted(sizes, reverse=True)}
        return dict(sorted(best_ns.items()))

    def _best_ns(self, rows: int, shapes: RowShapes) -> int:
        """Return the shortest of a few runs on zeros, so many on each flight."""
        return min(self._run_ns(rows, shapes) for _ in range(_WARM_UP_RUNS * self._flights))

    def _run_ns(self, rows: int, shapes: RowShapes) -> int:
        """Run zeros on the next flight and return how long it took."""
        flight = None
        try:
            flight = self.open(rows, shapes)
            for view in flight.inputs.values():
                view.fill(0)
            started_ns = time.monotonic_ns()
            self.launch(flight)
        except RequestError as error:
            if flight is not None:
                self.abort(flight)
            name = self._model.name
            raise ConfigError(f"{name}: the model fails on {rows} rows of zeros ({error}); export it again") from error
        self.wait()
        took_ns = time.monotonic_ns() - started_ns
        self.release(self.land())
        return took_ns


def _does_not_fit(name: str, flights: int, max_batch_size: int) -> ConfigError:
    cure = "lower max_batch_size or gpu.flights, or raise gpu.pool_bytes"
    return ConfigError(f"{name}: {flights} flights of {max_batch_size} rows do not fit into the device's memory: {cure}")
