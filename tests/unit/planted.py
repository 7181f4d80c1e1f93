"""Ordering faults, each a small change of a part that is right; planted by someone who did not write the engine.

A fault is a subclass of what it spoils: the engine, its flights, the step that fills and empties them, or the CUDA device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from unittest import mock

from fake_cupy import FakeCupy, QueuedSumModel

from bench.order_stress import DIRECT_BYTES, FLIGHTS, MAX_BATCH_SIZE, fake_engine, run_random
from stages.device import Array, Block, Bytes, Call, Mark, RowShapes, Stream
from stages.device_cuda import CudaDevice
from stages.engine import Engine
from stages.flight import Binding, Flight
from stages.steps import Infer, Shapes

UPLOAD, COMPUTE, DOWNLOAD = Stream
# So many batches of the stress test meet every way in which two can overlap.
BATCHES = 60
Part = TypeVar("Part", bound=type[Engine] | type[Flight] | type[Infer] | type[CudaDevice])
FAULTS: list[type[Engine] | type[Flight] | type[Infer] | type[CudaDevice]] = []


def plant(part: Part) -> Part:
    """Add a fault to the list."""
    FAULTS.append(part)
    return part


def is_found(part: type[Engine] | type[Flight] | type[Infer] | type[CudaDevice], seed: int) -> bool:
    """Return whether the stress test sees the fault *part*: by a wrong row, a race, or because something breaks."""
    try:
        return bool(_said_of(part, seed))
    except (AssertionError, IndexError, ValueError):
        return True


def _said_of(part: type[Engine] | type[Flight] | type[Infer] | type[CudaDevice], seed: int) -> list[str]:
    """Return what the stress test says of an engine with the fault *part*."""
    if issubclass(part, CudaDevice):
        return run_on_cuda(part, seed)
    if issubclass(part, Engine):
        return run_random(lambda number: fake_engine(number, part), seed, BATCHES)
    place = "stages.engine.Flight" if issubclass(part, Flight) else "bench.order_stress.Infer"
    with mock.patch(place, part):
        return run_random(fake_engine, seed, BATCHES)


def run_on_cuda(kind: type[CudaDevice], seed: int) -> list[str]:
    """Return what the stress test says of the right engine on this CUDA device, over the stand-in for cupy."""
    cupy = FakeCupy(seed)
    with mock.patch("stages.device_cuda.load_cupy", return_value=cupy):
        device = kind(0, pool_bytes=1 << 30)
    device.direct_bytes = DIRECT_BYTES

    def make(_: int) -> Engine:
        return Engine(QueuedSumModel(cupy), device, max_batch_size=MAX_BATCH_SIZE, flights=FLIGHTS)

    said = run_random(make, seed, BATCHES) + cupy.device.races
    return said or [f"registered still: {address:x}" for address in cupy.registered]


# --- a wait that is missing, or is for the wrong thing ---------------------------------------------------------------------


@plant
class ComputesAtOnce(Engine):
    """The model does not wait for the upload."""

    def _compute(self, flight: Flight) -> None:
        self.device.run(flight.binding.call)
        self.device.record(COMPUTE, flight.computed)


@plant
class DownloadsAtOnce(Engine):
    """The download does not wait for the model."""

    def _download(self, flight: Flight) -> None:
        for bound in flight.binding.written:
            self.device.download(bound.block, bound.row_bytes * flight.rows)
        self.device.record(DOWNLOAD, flight.landed)


@plant
class DownloadWaitsForTheUpload(Engine):
    """The download waits for the wrong one of the two marks."""

    def _download(self, flight: Flight) -> None:
        flight.computed, computed = flight.uploaded, flight.computed
        super()._download(flight)
        flight.computed = computed


@plant
class WrongStreamWaits(Engine):
    """It is the download that waits for the upload, not the model."""

    def _compute(self, flight: Flight) -> None:
        self.device.after(DOWNLOAD, flight.uploaded)
        self.device.run(flight.binding.call)
        self.device.record(COMPUTE, flight.computed)


@plant
class UploadMarkedOnTheWrongStream(Engine):
    """The mark behind the upload is put into the compute stream."""

    def _upload(self, flight: Flight) -> None:
        super()._upload(flight)
        self.device.record(COMPUTE, flight.uploaded)


@plant
class ModelMarkedOnTheWrongStream(Engine):
    """The mark behind the model is put into the upload stream."""

    def _compute(self, flight: Flight) -> None:
        super()._compute(flight)
        self.device.record(UPLOAD, flight.computed)


@plant
class MarksBeforeTheUpload(Engine):
    """The mark of the upload is recorded before what it stands for is queued."""

    def _upload(self, flight: Flight) -> None:
        self.device.record(UPLOAD, flight.uploaded)
        with mock.patch.object(self.device, "record"):
            super()._upload(flight)


@plant
class MarksBeforeThePadding(Engine):
    """The mark of the upload is recorded between the rows and the zeros behind them."""

    def _upload(self, flight: Flight) -> None:
        with mock.patch.object(self.device, "clear"):
            super()._upload(flight)
        for bound in flight.binding.bound.values():
            if flight.rows < flight.bucket:
                self.device.clear(bound.block, bound.row_bytes * flight.rows, bound.nbytes)


@plant
class MarksBeforeTheModel(Engine):
    """The mark of the model is recorded before it is queued."""

    def _compute(self, flight: Flight) -> None:
        self.device.after(COMPUTE, flight.uploaded)
        self.device.record(COMPUTE, flight.computed)
        self.device.run(flight.binding.call)


@plant
class MarksBeforeTheDownload(Engine):
    """The mark of the download is recorded before it is queued."""

    def _download(self, flight: Flight) -> None:
        self.device.after(DOWNLOAD, flight.computed)
        self.device.record(DOWNLOAD, flight.landed)
        for bound in flight.binding.written:
            self.device.download(bound.block, bound.row_bytes * flight.rows)


@plant
class WaitsForTheBatchBefore(Engine):
    """The model is told to wait before the mark is recorded, which means the mark's last record: the flight's last batch."""

    def _upload(self, flight: Flight) -> None:
        self.device.after(COMPUTE, flight.uploaded)
        super()._upload(flight)

    def _compute(self, flight: Flight) -> None:
        self.device.run(flight.binding.call)
        self.device.record(COMPUTE, flight.computed)


@plant
class OneMarkForAllUploads(Engine):
    """Where a flight is under way, the next one's upload counts as done when that one's is."""

    def _compute(self, flight: Flight) -> None:
        self.device.after(COMPUTE, self._air[0].uploaded if self._air else flight.uploaded)
        self.device.run(flight.binding.call)
        self.device.record(COMPUTE, flight.computed)


# --- what counts as landed -------------------------------------------------------------------------------------------------


@plant
class LandsWhenComputed(Engine):
    """A flight counts as landed when its model is done: its outputs are read before they are there."""

    @property
    def has_landed(self) -> bool:
        return bool(self._air) and self.device.is_done(self._air[0].computed)

    def wait(self) -> None:
        self.device.wait(self._air[0].computed)


@plant
class NeverSleeps(Engine):
    """Only the look is right: who waits gets outputs that are not there yet."""

    def wait(self) -> None:
        pass


@plant
class LooksNotAtTheMark(Engine):
    """Only waiting is right: who looks is told that the first has landed as soon as another is behind it."""

    @property
    def has_landed(self) -> bool:
        return len(self._air) > 1 or super().has_landed


@plant
class RemembersThatItLanded(Engine):
    """That a flight has landed is remembered with it, and not forgotten when it is launched again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: set[int] = set()

    @property
    def has_landed(self) -> bool:
        if self._air and id(self._air[0]) not in self._seen and super().has_landed:
            self._seen.add(id(self._air[0]))
        return bool(self._air) and id(self._air[0]) in self._seen


@plant
class LandsTheLast(Engine):
    """The flight that was launched last is landed in place of the first."""

    def land(self) -> Flight:
        return self._air.pop()


@plant
class LandsWhatIsDone(Engine):
    """Both have landed, the second is taken first: results go to the other batch's slots."""

    def land(self) -> Flight:
        if len(self._air) > 1 and self.device.is_done(self._air[1].landed):
            self._air.rotate(-1)
        return self._air.popleft()


@plant
class WaitsForTheWrongFlight(Engine):
    """Waiting for two flights waits for that which was launched last but one before: none."""

    def wait(self) -> None:
        self.device.wait((self._free[0] if self._free else self._air[0]).landed)


# --- flights and slots that are given back too early -----------------------------------------------------------------------


@plant
class OpensWithoutTaking(Engine):
    """An opened flight stays among the free ones until it has landed: two batches are launched into one flight."""

    def open(self, rows: int, shapes: RowShapes) -> Flight:
        flight = super().open(rows, shapes)
        self._free.append(flight)
        return flight

    def land(self) -> Flight:
        flight = super().land()
        self._free.remove(flight)
        return flight

    def abort(self, flight: Flight) -> None:
        self._free.remove(flight)
        super().abort(flight)


@plant
class ReusesAfterTheModel(Engine):
    """A flight whose model is done takes the next batch, though its outputs are still being downloaded."""

    @property
    def has_room(self) -> bool:
        return bool(self._free) or self.device.is_done(self._air[0].computed)

    def open(self, rows: int, shapes: RowShapes) -> Flight:
        if not self._free:
            self._free.append(self._air[0])
        return super().open(rows, shapes)


@plant
class ReleasesBeforeReading(Infer):
    """The flight is given back before its outputs are read."""

    def land(self) -> Any:
        slots, rows = self._launched.popleft()
        flight = self.engine.land()
        outputs = flight.outputs()
        self.engine.release(flight)
        return self._target.scatter(slots, rows, outputs)


@plant
class FreesSlotsAtLaunch(Infer):
    """The slots are given back as soon as the launch returns, and their next requests come in."""

    def launch(self, slots: Sequence[int], rows: Sequence[int], shapes: Shapes) -> None:
        super().launch(slots, rows, shapes)
        for slot in slots:
            self._source.free(slot)  # type: ignore[attr-defined]


@plant
class FreesSlotsWhenTheGatherIsDone(Infer):
    """The slots are given back when the model's inputs are gathered, though some were not gathered but are being read."""

    def _is_read(self, flight: Flight, name: str, slots: Sequence[int]) -> bool:
        was_read = super()._is_read(flight, name, slots)
        if was_read:
            self._source._x[slots[-1]] = 0  # type: ignore[attr-defined]
        return was_read


# --- the path of an error --------------------------------------------------------------------------------------------------


@plant
class AbortsAtOnce(Engine):
    """A failed flight and its slots are given back without a wait."""

    def abort(self, flight: Flight) -> None:
        self.release(flight)


@plant
class AbortForgetsTheUpload(Engine):
    """It waits for the model alone, which waits for the upload: but not where the gather failed, before the model was queued."""

    def abort(self, flight: Flight) -> None:
        self.device.record(COMPUTE, flight.computed)
        self.device.wait(flight.computed)
        self.release(flight)


@plant
class AbortForgetsTheModel(Engine):
    """It waits for the upload alone; what the failed run has queued still writes."""

    def abort(self, flight: Flight) -> None:
        self.device.record(UPLOAD, flight.uploaded)
        self.device.wait(flight.uploaded)
        self.release(flight)


@plant
class AbortWaitsForOldMarks(Engine):
    """It waits for the marks as they were recorded last, and the model's was not in this batch."""

    def abort(self, flight: Flight) -> None:
        self.device.wait(flight.uploaded)
        self.device.wait(flight.computed)
        self.release(flight)


@plant
class AbortsAfterTheRelease(Engine):
    """It gives the flight back first and waits then."""

    def abort(self, flight: Flight) -> None:
        self.release(flight)
        with mock.patch.object(self, "release"):
            super().abort(flight)


@plant
class AbortsTwice(Engine):
    """A failed flight is given back two times: two batches get it."""

    def abort(self, flight: Flight) -> None:
        super().abort(flight)
        self._free.append(flight)


@plant
class FailedFlightsFly(Engine):
    """A flight counts as on its way before its model is queued; when that fails it is both there and free."""

    def launch(self, flight: Flight) -> None:
        self._air.append(flight)
        with mock.patch.object(self, "_air"):
            super().launch(flight)


@plant
class FailsWithoutAbort(Infer):
    """An error of the launch gives the flight back by the short way of one that has landed."""

    def launch(self, slots: Sequence[int], rows: Sequence[int], shapes: Shapes) -> None:
        with mock.patch.object(self.engine, "abort", self.engine.release):
            super().launch(slots, rows, shapes)


# --- buffers of two flights, buckets, bindings -----------------------------------------------------------------------------


class _Shares(Engine):
    """The flights have a buffer in common; *share* makes the second's block out of the first's and its own."""

    given = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first, *others = self._free
        for flight in others:
            of = (lambda f: f._blocks) if self.given else (lambda f: f._output_blocks)
            for name, block in of(flight).items():
                of(flight)[name] = self.share(of(first)[name], block)

    def share(self, first: Block, own: Block) -> Block:
        raise NotImplementedError


@plant
class OneStagingForAll(_Shares):
    """All flights gather into one page-locked buffer, and nobody waits until it was uploaded."""

    def share(self, first: Block, own: Block) -> Block:
        return dataclasses.replace(own, host=first.host)


@plant
class OneDeviceInputForAll(_Shares):
    """All flights upload to one place on the device."""

    def share(self, first: Block, own: Block) -> Block:
        return dataclasses.replace(own, address=first.address, owner=first.owner)


@plant
class OneDeviceOutputForAll(_Shares):
    """All models write to one place on the device."""

    given = False

    def share(self, first: Block, own: Block) -> Block:
        return dataclasses.replace(own, address=first.address, owner=first.owner)


@plant
class OneLandingForAll(_Shares):
    """All downloads go to one buffer."""

    given = False

    def share(self, first: Block, own: Block) -> Block:
        return dataclasses.replace(own, host=first.host)


@plant
class RunsTheOthersBinding(Engine):
    """Bindings are kept by the batch's shape alone: the second flight runs the first's call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: dict[int, Any] = {}

    def _compute(self, flight: Flight) -> None:
        call = self._calls.setdefault(flight.bucket, flight.binding.call)
        flight.binding = dataclasses.replace(flight.binding, call=call)
        super()._compute(flight)


@plant
class BucketTooSmall(Engine):
    """The number of rows is rounded down to a power of two for the model."""

    def _compute(self, flight: Flight) -> None:
        smaller = 1 << flight.rows.bit_length() - 1
        flight.binding = dataclasses.replace(flight.binding, call=flight._bound(smaller, _shapes(flight)).call)
        super()._compute(flight)


@plant
class BucketOfTheBatchBefore(Flight):
    """The model runs with the call of the flight's batch before."""

    def prepare(self, rows: int, bucket: int, shapes: RowShapes) -> None:
        before: Binding | None = getattr(self, "binding", None)
        super().prepare(rows, bucket, shapes)
        if before is not None:
            self.binding = dataclasses.replace(self.binding, call=before.call)


@plant
class FirstBucketForEver(Flight):
    """A binding is found by the shapes of a row alone, without how many rows it was made for, once the largest is there."""

    def _bound(self, bucket: int, shapes: RowShapes) -> Binding:
        known = super()._bound(8, shapes)
        right = super()._bound(bucket, shapes)
        return dataclasses.replace(right, call=known.call)


# --- rows ------------------------------------------------------------------------------------------------------------------


@plant
class NoPadding(Engine):
    """What earlier batches left behind the rows stays there."""

    def _upload(self, flight: Flight) -> None:
        with mock.patch.object(self.device, "clear"):
            super()._upload(flight)


@plant
class PadsOneRowTooLate(Engine):
    """The first row behind the batch's stays as it was."""

    def _upload(self, flight: Flight) -> None:
        clear = self.device.clear
        one = {id(b.block): b.row_bytes for b in flight.binding.bound.values()}
        late = lambda block, start, end: clear(block, min(start + one[id(block)], end), end)  # noqa: E731
        with mock.patch.object(self.device, "clear", late):
            super()._upload(flight)


@plant
class PadsWhatWasGathered(Engine):
    """Inputs whose rows were read from where they lie are forgotten when zeros are put behind the rows."""

    def _upload(self, flight: Flight) -> None:
        clear = self.device.clear
        gathered = {id(b.block) for name, b in flight.binding.bound.items() if name not in flight.direct}
        some = lambda block, start, end: clear(block, start, end) if id(block) in gathered else None  # noqa: E731
        with mock.patch.object(self.device, "clear", some):
            super()._upload(flight)


@plant
class PadsOnce(Engine):
    """A flight whose padding was cleared for a batch of as many rows counts as clean."""

    def _upload(self, flight: Flight) -> None:
        clean: set[int] = self.__dict__.setdefault("_clean", set())
        key = id(flight) << 8 | flight.rows
        with mock.patch.object(self.device, "clear") if key in clean else mock.patch.object(self, "_unused", create=True):
            super()._upload(flight)
        clean.add(key)


@plant
class PadsOnTheHost(Engine):
    """Zeros are written behind the rows of the page-locked buffer, and not uploaded."""

    def _upload(self, flight: Flight) -> None:
        for name, view in flight.binding.inputs.items():
            view[flight.rows :] = 0
            assert name in flight.inputs
        with mock.patch.object(self.device, "clear"):
            super()._upload(flight)


@plant
class ReadsOneRowLess(Engine):
    """Of several requests read from where they lie the last is forgotten."""

    def upload_rows(self, flight: Flight, name: str, rows: Sequence[Array]) -> bool:
        return super().upload_rows(flight, name, rows[:-1] if len(rows) > 1 else rows)


@plant
class CountsRequestsNotRows(Engine):
    """Each request read from where it lies is put as many bytes behind the last as the first has."""

    def upload_rows(self, flight: Flight, name: str, rows: Sequence[Array]) -> bool:
        block = flight.binding.bound[name].block
        for number, row in enumerate(rows):
            self.device.upload_row(block, min(number * rows[0].nbytes, len(block.host) - row.nbytes), row)
        flight.direct.add(name)
        return True


@plant
class ForgetsWhatWasRead(Engine):
    """An input read from where it lies is uploaded from the page-locked buffer too."""

    def upload_rows(self, flight: Flight, name: str, rows: Sequence[Array]) -> bool:
        done = super().upload_rows(flight, name, rows)
        flight.direct.clear()
        return done


@plant
class ReadsAgain(Infer):
    """What was read from where it lies in the batch before counts as read in this one: sometimes nothing is uploaded."""

    def _is_read(self, flight: Flight, name: str, slots: Sequence[int]) -> bool:
        read = len(slots) > 1 and super()._is_read(flight, name, slots)
        kept: set[str] = flight.__dict__.setdefault("_kept", set())
        flight.direct |= kept
        kept |= flight.direct
        return read


@plant
class UploadsBeforeTheGather(Engine):
    """The page-locked buffers are uploaded when the flight is opened, before they are filled."""

    def open(self, rows: int, shapes: RowShapes) -> Flight:
        flight = super().open(rows, shapes)
        super()._upload(flight)
        return flight

    def _upload(self, flight: Flight) -> None:
        pass


@plant
class DownloadsOneRowLess(Engine):
    """The last row stays as the batch before left it."""

    def _download(self, flight: Flight) -> None:
        rows, flight.rows = flight.rows, max(flight.rows - 1, 1)
        super()._download(flight)
        flight.rows = rows


@plant
class ReadsTheLastRows(Flight):
    """The outputs of a batch with padding are taken from the bucket's end."""

    def outputs(self) -> Mapping[str, Array]:
        return {name: array[self.bucket - self.rows :] for name, array in self.binding.outputs.items()}


@plant
class UploadsCopies(Engine):
    """What was gathered is uploaded from a page-locked copy that nobody keeps."""

    def _upload(self, flight: Flight) -> None:
        upload = self.device.upload

        def from_copy(block: Block, nbytes: int) -> None:
            copy = self.device.block(nbytes)
            copy.host[:] = block.host[:nbytes]
            upload(dataclasses.replace(block, host=copy.host), nbytes)

        with mock.patch.object(self.device, "upload", from_copy):
            super()._upload(flight)


# --- the calls to CUDA -----------------------------------------------------------------------------------------------------


@plant
class CudaHoldsBackTheDownload(CudaDevice):
    """An event is waited for on another stream than was asked."""

    def after(self, stream: Stream, mark: Mark) -> None:
        super().after(DOWNLOAD, mark)


@plant
class CudaRecordsOnOneStream(CudaDevice):
    """Each event is recorded on the upload stream."""

    def record(self, stream: Stream, mark: Mark) -> None:
        super().record(UPLOAD, mark)


@plant
class CudaClearsOnTheWrongStream(CudaDevice):
    """The padding is cleared on the stream of the downloads, beside the uploads."""

    def clear(self, block: Block, start: int, end: int) -> None:
        self._runtime.memsetAsync(block.address + start, 0, end - start, self._addresses[DOWNLOAD])


@plant
class CudaNeverSleeps(CudaDevice):
    """Waiting for an event returns at once."""

    def wait(self, mark: Mark) -> None:
        pass


@plant
class CudaIsAlwaysDone(CudaDevice):
    """The answer of the query counts as yes, whatever it is."""

    def is_done(self, mark: Mark) -> bool:
        return bool(mark.done) or True


@plant
class CudaRunsOnNoStream(CudaDevice):
    """The model is queued on the stream that is current by chance."""

    def run(self, call: Call) -> None:
        call.run()


@plant
class CudaIgnoresTheOffset(CudaDevice):
    """Each row goes to where the first belongs."""

    def upload_row(self, block: Block, offset: int, source: Array) -> None:
        super().upload_row(block, 0, source)


@plant
class CudaLendsPinnedMemoryTwice(CudaDevice):
    """Page-locked memory is kept by its size, and who wants as much gets the same."""

    def _pinned_memory(self, nbytes: int) -> Bytes:
        known: dict[int, Bytes] = self.__dict__.setdefault("_known", {})
        return known.setdefault(nbytes, super()._pinned_memory(nbytes))


@plant
class CudaDropsItsMemory(CudaDevice):
    """The address is kept, what owns it is not: the pool gives the same memory again."""

    def block(self, nbytes: int) -> Block:
        return dataclasses.replace(super().block(nbytes), owner=None)


@plant
class CudaStaysRegistered(CudaDevice):
    """The lane's memory goes, and its registration does not."""

    def close(self) -> None:
        self._registered.clear()
        super().close()


def _shapes(flight: Flight) -> RowShapes:
    return tuple(bound.shape[1:] for bound in flight.binding.bound.values())
