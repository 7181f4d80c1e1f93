"""What one stage hands to the next, as arrays: rows of a shared region between processes, private arrays inside one.

Both kinds of link answer the same questions, so steps do not know which they use. Nobody here owns a slot: the caller holds
the hop of each slot that it names. Shapes are a slot's real ones; the first dimension is rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.arena import LaneArena, Words, read_descriptor, read_name, write_descriptor
from schemas.plan import ROW_ALIGN_BYTES, LinkPlan, LinkTensor, align
from schemas.status import Code, RequestError
from schemas.tensors import NUMPY_NAME, DType, packed_size

Array: TypeAlias = NDArray[np.generic]
Arrays: TypeAlias = dict[str, Array]

# Up to this size a batch is gathered by one fancy index (a copy more, a Python loop less); above, row by row.
FANCY_GATHER_BYTES = 65_536


class Link(Protocol):
    """One link of a lane, seen from one process."""

    plan: LinkPlan

    def read(self, slot: int) -> Arrays:
        """Return the tensors of *slot* by name, without a copy; BYTES and ENCODED as flat uint8."""

    def buffers(self, slot: int) -> Arrays:
        """Return arrays of the declared largest shape to write *slot*'s tensors into; unknown dims and BYTES as flat buffers."""

    def commit(self, slot: int, shapes: Mapping[str, tuple[int, ...]], *, strided: bool = False) -> None:
        """Say which shapes the tensors written into ``buffers`` really have.

        *strided*: they were written as corners of the largest shape, and are moved together; else they are flat already.

        Raises:
            RequestError: MODEL_FAILED when a shape is not as declared, or BYTES are not in the binary form.
        """

    def rows(self, name: str, slots: Sequence[int]) -> list[Array]:
        """Return tensor *name* of each slot where it lies, C-contiguous."""

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        """Fill *out* (rows, ...) with tensor *name* of each slot, in order."""

    def scatter(self, slots: Sequence[int], rows: Sequence[int], outputs: Mapping[str, Array]) -> list[RequestError | None]:
        """Give each slot its rows of *outputs*; return per slot why it did not fit, or None."""


class SharedLink:
    """Rows of a region of the lane's arena."""

    def __init__(self, arena: LaneArena, plan: LinkPlan, index: int) -> None:
        self.plan = plan
        self._region = arena.regions[plan.region]
        self._limit_key = f"lane.{arena.plan.name}.max_output_bytes"
        if index == 0:
            # The input is read-only for stages: a request that runs again finds it as it came.
            self._region = self._region.view()
            self._region.flags.writeable = False
        self._descriptors = arena.descriptors[index]
        self._rows = {t.name: self._row_view(t) for t in plan.tensors} if plan.static else {}
        # One row goes as bytes: a slice of a memoryview costs a third of numpy's way there.
        self._bytes = self._region.reshape(-1).data
        self._stride = self._region.shape[1]
        self._places = {t.name: (t.offset, t.offset + t.max_bytes) for t in plan.tensors} if plan.static else {}

    def _row_view(self, tensor: LinkTensor) -> Array:
        """Return tensor *tensor* of all slots as one array (slots, rows, ...), strided over the region."""
        dtype = np.dtype(NUMPY_NAME[tensor.dtype])
        slots, stride = self._region.shape
        inner = np.empty(tensor.shape, dtype).strides
        return np.ndarray((slots, *tensor.shape), dtype, self._region.data, tensor.offset, (stride, *inner))

    def read(self, slot: int) -> Arrays:
        if self.plan.static:
            return {name: rows[slot] for name, rows in self._rows.items()}
        found: Arrays = {}
        words = self._descriptors[slot]
        for index in range(len(self.plan.tensors) or _count(words)):
            name = self.plan.tensors[index].name if self.plan.tensors else read_name(words[index])
            dtype, shape, nbytes, offset = read_descriptor(words[index])
            found[name] = _view(self._flat(slot, offset, nbytes), DType(dtype), shape)
        return found

    def _flat(self, slot: int, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes that a descriptor names."""
        return self._region[slot, offset : offset + nbytes]

    def buffers(self, slot: int) -> Arrays:
        return {t.name: _buffer(self._region[slot, t.offset : t.offset + t.max_bytes], t) for t in self.plan.tensors}

    def commit(self, slot: int, shapes: Mapping[str, tuple[int, ...]], *, strided: bool = False) -> None:
        for index, tensor in enumerate(self.plan.tensors):
            shape = _as_declared(shapes[tensor.name], tensor)
            if self.plan.static:
                continue
            flat = self._region[slot, tensor.offset : tensor.offset + tensor.max_bytes]
            nbytes = _used_bytes(flat, tensor, shape, strided=strided)
            write_descriptor(self._descriptors[slot, index], tensor.dtype, shape, nbytes=nbytes, offset=tensor.offset)

    def bytes_shape(self, slot: int, name: str) -> tuple[int, ...] | None:
        """Return the shape of a BYTES tensor of *slot*, None for a tensor of any other datatype."""
        for tensor, words in zip(self.plan.tensors, self._descriptors[slot], strict=False):
            if tensor.name == name:
                return read_descriptor(words)[1] if tensor.dtype == DType.BYTES else None
        return self._open_bytes_shape(slot, name)

    def _open_bytes_shape(self, slot: int, name: str) -> tuple[int, ...] | None:
        for words in self._descriptors[slot]:
            if words[0] == DType.BYTES and read_name(words) == name:
                return read_descriptor(words)[1]
        return None

    def rows(self, name: str, slots: Sequence[int]) -> list[Array]:
        if not self.plan.static:
            return [self.read(slot)[name] for slot in slots]
        every = self._rows[name]
        return [every[slot] for slot in slots]

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        if not self.plan.static:
            _gather_each(self.rows(name, slots), out)
            return
        rows = self._rows[name]
        if len(slots) == 1:
            begin, end = self._places[name]
            at = slots[0] * self._stride
            out.data.cast("B")[:] = self._bytes[at + begin : at + end]
        elif out.nbytes <= FANCY_GATHER_BYTES:
            out[...] = rows[slots].reshape(out.shape)
        else:
            _gather_each(self.rows(name, slots), out)

    def scatter(self, slots: Sequence[int], rows: Sequence[int], outputs: Mapping[str, Array]) -> list[RequestError | None]:
        if self.plan.static:
            for name, values in outputs.items():
                if len(slots) == 1:
                    begin, end = self._places[name]
                    at = slots[0] * self._stride
                    self._bytes[at + begin : at + end] = values.data.cast("B")
                else:
                    self._rows[name][slots, 0] = values
            return [None] * len(slots)
        ends = np.cumsum(rows).tolist()
        return [
            self._pack(slot, {name: values[end - count : end] for name, values in outputs.items()})
            for slot, count, end in zip(slots, rows, ends, strict=True)
        ]

    def _pack(self, slot: int, tensors: Arrays) -> RequestError | None:
        """Lay one slot's tensors one behind the other."""
        at = 0
        for index, plan in enumerate(self.plan.tensors):
            values = tensors[plan.name]
            if at + values.nbytes > self.plan.row_bytes:
                expected = f"at most {self.plan.row_bytes} bytes of outputs"
                got = f"{at + values.nbytes} with {plan.name} {list(values.shape)}"
                return RequestError(Code.OUTPUT_TOO_LARGE, field=self._limit_key, expected=expected, got=got)
            _view(self._region[slot, at : at + values.nbytes], plan.dtype, values.shape)[...] = values
            write_descriptor(self._descriptors[slot, index], plan.dtype, values.shape, nbytes=values.nbytes, offset=at)
            at = align(at + values.nbytes, ROW_ALIGN_BYTES)
        return None


class ScratchLink:
    """Private arrays of one process, by slot. The runner drops a slot's when its hop has left."""

    def __init__(self, plan: LinkPlan) -> None:
        self.plan = plan
        self._tensors: dict[int, Arrays] = {}

    def read(self, slot: int) -> Arrays:
        return self._tensors[slot]

    def buffers(self, slot: int) -> Arrays:
        made = {t.name: _buffer(np.empty(t.max_bytes, np.uint8), t) for t in self.plan.tensors}
        self._tensors[slot] = made
        return made

    def commit(self, slot: int, shapes: Mapping[str, tuple[int, ...]], *, strided: bool = False) -> None:
        held = self._tensors[slot]
        for tensor in self.plan.tensors:
            shape = _as_declared(shapes[tensor.name], tensor)
            flat = held[tensor.name].reshape(-1).view(np.uint8)
            held[tensor.name] = _view(flat[: _used_bytes(flat, tensor, shape, strided=strided)], tensor.dtype, shape)

    def rows(self, name: str, slots: Sequence[int]) -> list[Array]:
        return [self._tensors[slot][name] for slot in slots]

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        _gather_each(self.rows(name, slots), out)

    def scatter(self, slots: Sequence[int], rows: Sequence[int], outputs: Mapping[str, Array]) -> list[RequestError | None]:
        end = 0
        for slot, count in zip(slots, rows, strict=True):
            begin, end = end, end + count
            # Copied: the engine's arrays are written again by the next batch, which may come before this slot is done.
            self._tensors[slot] = {name: values[begin:end].copy() for name, values in outputs.items()}
        return [None] * len(slots)

    def drop(self, slot: int) -> None:
        """Forget a slot's arrays."""
        self._tensors.pop(slot, None)


def make_link(arena: LaneArena, plan: LinkPlan, index: int) -> SharedLink | ScratchLink:
    """Return the link *index* of a lane as this process sees it."""
    return SharedLink(arena, plan, index) if plan.shared else ScratchLink(plan)


def _count(words: Words) -> int:
    """Return how many descriptors of a slot are in use; the writer zeroes the one behind the last."""
    return next((i for i, row in enumerate(words) if not row[0]), len(words))


def _gather_each(rows: Sequence[Array], out: Array) -> None:
    at = 0
    for values in rows:
        count = len(values)
        np.copyto(out[at : at + count], values)
        at += count


def _view(flat: NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return flat bytes as the tensor they are; BYTES and ENCODED stay flat."""
    if dtype in (DType.BYTES, DType.ENCODED):
        return flat
    return np.ndarray(shape, NUMPY_NAME[dtype], flat.data)


def _buffer(flat: NDArray[np.uint8], tensor: LinkTensor) -> Array:
    """Return the bytes reserved for *tensor* in its largest shape; flat where the shape is only a bound."""
    if tensor.dtype in (DType.BYTES, DType.ENCODED):
        return flat
    return np.ndarray(tensor.max_shape, NUMPY_NAME[tensor.dtype], flat.data)


def _as_declared(shape: tuple[int, ...], tensor: LinkTensor) -> tuple[int, ...]:
    """Return *shape* if it has the sizes that are not free; a reader of a static link would not know of another."""
    if len(shape) != len(tensor.shape) or any(want not in (-1, got) for want, got in zip(tensor.shape, shape, strict=True)):
        raise RequestError(Code.MODEL_FAILED, field=tensor.name, expected=list(tensor.shape), got=list(shape))
    return shape


def _used_bytes(flat: NDArray[np.uint8], tensor: LinkTensor, shape: tuple[int, ...], *, strided: bool) -> int:
    """Return how many bytes of the reserved ones a tensor of *shape* takes, once it is moved together where it is *strided*.

    Raises:
        RequestError: MODEL_FAILED when a stage left BYTES that are not in the binary form.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if tensor.dtype == DType.BYTES:
        try:
            return packed_size(flat.data, count)
        except ValueError as error:
            raise RequestError(Code.MODEL_FAILED, field=tensor.name, message=f"{tensor.name}: {error}") from None
    if strided and shape[1:] != tensor.max_shape[1:]:
        corner = _buffer(flat, tensor)[tuple(map(slice, shape))]
        _view(flat, tensor.dtype, shape)[...] = corner.copy()
    return count * np.dtype(NUMPY_NAME[tensor.dtype]).itemsize
