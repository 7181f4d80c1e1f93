"""Engines with one ordering fault each, for the random driver: every one is wrong somewhere that a CPU alone would never show."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.order_stress import fake_engine, run_random
from schemas.tensors import element_count
from stages.device import Stream
from stages.engine import Engine
from stages.flight import Flight

# A batch more often than not is one of several requests; this many of them meet every way in which two can overlap.
BATCHES = 60


def is_found(kind: type[Engine], seed: int) -> bool:
    """Return whether the random driver notices that *kind* is wrong: by a wrong row, a race, or because the engine breaks."""
    try:
        return bool(run_random(lambda number: fake_engine(number, kind), seed, BATCHES))
    except (AssertionError, ValueError, IndexError):
        return True


class ComputesTooEarly(Engine):
    """Does not wait for the upload before the model runs."""

    def _compute(self, flight: Flight) -> None:
        self.device.run(flight.binding.call)
        self.device.record(Stream.COMPUTE, flight.computed)


class DownloadsTooEarly(Engine):
    """Does not wait for the model before the download."""

    def _download(self, flight: Flight) -> None:
        for bound in flight.binding.written:
            self.device.download(bound.block, bound.nbytes // flight.bucket * flight.rows)
        self.device.record(Stream.DOWNLOAD, flight.landed)


class MarksUploadTooEarly(Engine):
    """Puts the upload's mark in front of the upload."""

    def _upload(self, flight: Flight) -> None:
        self.device.record(Stream.UPLOAD, flight.uploaded)
        super()._upload(flight)
        flight.uploaded, flight.spare = flight.spare, flight.uploaded  # type: ignore[attr-defined]

    def open(self, rows: int, shapes: Any) -> Flight:
        flight = super().open(rows, shapes)
        flight.spare = self.device.new_mark()  # type: ignore[attr-defined]
        return flight


class ReadsTooEarly(Engine):
    """Takes a flight for landed that is on its way."""

    @property
    def has_landed(self) -> bool:
        return bool(self._air)

    def wait(self) -> None:
        pass


class LandsWhenComputed(Engine):
    """Waits for the model, not for the download."""

    @property
    def has_landed(self) -> bool:
        return bool(self._air) and self.device.is_done(self._air[0].computed)


class LandsWhenUploaded(Engine):
    """Gives slots back as soon as their rows are uploaded."""

    @property
    def has_landed(self) -> bool:
        return bool(self._air) and self.device.is_done(self._air[0].uploaded)


class ReusesUnlanded(Engine):
    """Opens a flight that is still on its way when none is free."""

    @property
    def has_room(self) -> bool:
        return True

    def open(self, rows: int, shapes: Any) -> Flight:
        if not self._free:
            self._free.append(self._air[0])
        return super().open(rows, shapes)


class ReleasesAtLaunch(Engine):
    """Takes the flight back when it is launched: its buffers are filled again before they are uploaded."""

    def launch(self, flight: Flight) -> None:
        super().launch(flight)
        self._free.append(flight)

    def release(self, flight: Flight) -> None:
        pass


class AbortsWithoutWaiting(Engine):
    """Gives slots back after a failure while uploads still read them."""

    def abort(self, flight: Flight) -> None:
        self.release(flight)


class AbortWaitsForTheModelAlone(Engine):
    """Waits for the compute stream, which does not wait for the uploads of a batch whose launch failed before it."""

    def _compute(self, flight: Flight) -> None:
        self.device.run(flight.binding.call)
        super()._compute(flight)

    def abort(self, flight: Flight) -> None:
        self.device.record(Stream.COMPUTE, flight.computed)
        self.device.wait(flight.computed)
        self.release(flight)


class LeavesPadding(Engine):
    """Runs with what an earlier batch left behind the rows of this one."""

    def _upload(self, flight: Flight) -> None:
        for name, bound in flight.binding.bound.items():
            if name not in flight.direct:
                self.device.upload(bound.block, bound.nbytes // flight.bucket * flight.rows)
        self.device.record(Stream.UPLOAD, flight.uploaded)


class UploadsWholeBuckets(Engine):
    """Uploads the staging rows behind the batch too, which are an earlier one's."""

    def _upload(self, flight: Flight) -> None:
        for name, bound in flight.binding.bound.items():
            if name not in flight.direct:
                self.device.upload(bound.block, bound.nbytes)
        self.device.record(Stream.UPLOAD, flight.uploaded)


class PadsByComputeStream(Engine):
    """Records the upload's mark before the padding is cleared."""

    def _upload(self, flight: Flight) -> None:
        for name, bound in flight.binding.bound.items():
            if name not in flight.direct:
                self.device.upload(bound.block, bound.nbytes // flight.bucket * flight.rows)
        self.device.record(Stream.UPLOAD, flight.uploaded)
        for bound in flight.binding.bound.values():
            self.device.clear(bound.block, bound.nbytes // flight.bucket * flight.rows, bound.nbytes)


class RunsAnotherFlight(Engine):
    """Runs what is bound to the other flight's buffers."""

    def _compute(self, flight: Flight) -> None:
        other = self._free[0] if self._free else self._air[0]
        mine = flight.binding
        if other is not flight and (flight.bucket, _shapes(flight)) in other._bindings:
            flight.binding = other._bindings[flight.bucket, _shapes(flight)]
        super()._compute(flight)
        flight.binding = mine


class RunsASmallerBucket(Engine):
    """Runs what is bound for half the rows."""

    def _compute(self, flight: Flight) -> None:
        mine = flight.binding
        if flight.bucket > 1:
            flight.binding = flight._bound(flight.bucket // 2, _shapes(flight))
        super()._compute(flight)
        flight.binding = mine


class SharesInputs(Engine):
    """All flights have the same input buffers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for flight in self._free:
            flight._blocks = self._free[0]._blocks


class SharesOutputs(Engine):
    """All flights have the same output buffers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for flight in self._free:
            flight._output_blocks = self._free[0]._output_blocks


class DownloadsTooLittle(Engine):
    """Leaves the last row where it is."""

    def _download(self, flight: Flight) -> None:
        self.device.after(Stream.DOWNLOAD, flight.computed)
        for bound in flight.binding.written:
            self.device.download(bound.block, bound.nbytes // flight.bucket * (flight.rows - 1))
        self.device.record(Stream.DOWNLOAD, flight.landed)


class UploadsToTheWrongRow(Engine):
    """Begins the rows that are read from where they lie one row too late."""

    def upload_rows(self, flight: Flight, name: str, rows: Any) -> bool:
        block, bound = flight.binding.bound[name].block, flight.binding.bound[name]
        at = element_count(bound.shape[1:]) * np.dtype(np.uint32).itemsize
        for row in rows[:-1]:
            self.device.upload_row(block, at, row)
            at += row.nbytes
        flight.direct.add(name)
        return True


def _shapes(flight: Flight) -> tuple[tuple[int, ...], ...]:
    return tuple(bound.shape[1:] for bound in flight.binding.bound.values())


FAULTS: tuple[type[Engine], ...] = (
    ComputesTooEarly, DownloadsTooEarly, MarksUploadTooEarly, ReadsTooEarly, LandsWhenComputed, LandsWhenUploaded, ReusesUnlanded,
    ReleasesAtLaunch, AbortsWithoutWaiting, AbortWaitsForTheModelAlone, LeavesPadding, UploadsWholeBuckets, PadsByComputeStream,
    RunsAnotherFlight, RunsASmallerBucket, SharesInputs, SharesOutputs, DownloadsTooLittle, UploadsToTheWrongRow,
)  # fmt: skip
