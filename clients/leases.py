"""Leases of shared memory as a client sees them: frames that it writes in place, and which of them the server still reads.

Pure: no socket and no clock. How a region is asked for is in ``lease_socket.py``; who waits for a frame, in
``lease_wait.py``. Owned by the thread of its client.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from schemas.arrays import Described, describe
from schemas.leases import Answer
from schemas.status import Code, RequestError
from schemas.tensors import DType
from schemas.wire_tensors import Lease as LeaseRef

from .errors import ConnectionLost, RequestRefused

# What the wire says of a tensor in a frame: as of any other, and where it is.
LeasedTensor = tuple[DType, tuple[int, ...], int, str, LeaseRef]
ENDED = "the lease ended with its connection: leave it, and ask the client for another"


class Frame:
    """One frame of a lease, yours until it is closed (``with`` does it). Closed while the server uses it, it is free afterwards.

    Give it to ``infer`` in the place of the array that was made from it, or as the place for an output.
    """

    def __init__(self, lease: Lease, number: int) -> None:
        self._lease = lease
        self._number = number
        self._arrays: list[NDArray[Any]] = []
        self._about: Described | None = None
        self._uses = 0
        self._is_open = True

    def __enter__(self) -> Self:
        """Return the frame; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the frame."""
        self.close()

    def __repr__(self) -> str:
        """Show which frame it is, and whether the server uses it."""
        state = "closed" if not self._is_open else "busy" if self._uses else "open"
        return f"<Frame {self._number} of {self._lease!r}: {state}>"

    @property
    def is_busy(self) -> bool:
        """Whether a request that names it has not been heard to be done with it: nothing may be written then."""
        return self._uses > 0

    def array(self, shape: Sequence[int] | int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return the beginning of the frame as an array to write in; from now on the frame stands for it as an input.

        Arrays of the frame are read-only while it is busy, and for good when it is closed.

        Raises:
            RuntimeError: the frame is busy or closed.
            RequestRefused: it does not fit, or the wire has no such datatype.
            ConnectionLost: the lease has ended.
        """
        self._check_open()
        if self._uses:
            raise RuntimeError(f"frame {self._number} is busy: the server still uses it; take another, or wait for the answer")
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size > self._lease.frame_bytes:
            message = f"frame: expected at most {self._lease.frame_bytes} bytes, got {size}"
            raise RequestRefused(Code.TOO_LARGE, message, field="frame")
        array: NDArray[Any] = np.ndarray(shape, dtype, self._lease.memory(self._number, size))
        try:
            self._about = describe(array, "frame")[0]
        except RequestError as error:
            raise RequestRefused(error.code, error.message, field=error.field) from None
        self._arrays.append(array)
        return array

    def close(self) -> None:
        """Give the frame back to its lease, at once or when the server has done with it."""
        if self._is_open:
            self._is_open = False
            self._freeze(writeable=False)
            if self._uses:
                self._lease.closing += 1
            else:
                self._give_back(was_busy=False)

    # --- the session's side ----------------------------------------------------------------------------------------------

    def as_input(self) -> LeasedTensor:
        """Return what the wire says of the array in it."""
        self._check_open()
        if self._about is None:
            raise RuntimeError(f"frame {self._number}: nothing was written: make an array of it first, frame.array(shape, dtype)")
        dtype, shape, nbytes, content_type = self._about
        return dtype, shape, nbytes, content_type, self._lease.ref(self._number, nbytes)

    def as_output(self) -> LeaseRef:
        """Return where the wire puts an output."""
        self._check_open()
        if self._uses:
            raise RuntimeError(f"frame {self._number} is busy: an output needs one that no request uses")
        return self._lease.ref(self._number, self._lease.frame_bytes)

    def content(self) -> memoryview:
        """Return the bytes of the array in it."""
        return self._lease.memory(self._number, self.as_input()[2])

    def use(self) -> None:
        """Take note that a request uses the frame."""
        self._uses += 1
        self._freeze(writeable=False)

    def release(self) -> None:
        """Take note that a request uses the frame no more."""
        self._uses -= 1
        if self._uses:
            return
        if self._is_open:
            self._freeze(writeable=True)
        else:
            self._give_back(was_busy=True)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError(f"frame {self._number} is closed: take another from its lease")
        self._lease.check()

    def _freeze(self, *, writeable: bool) -> None:
        for array in self._arrays:
            array.flags.writeable = writeable

    def _give_back(self, *, was_busy: bool) -> None:
        self._arrays.clear()
        self._lease.take_back(self._number, was_busy=was_busy)


class Lease:
    """A region of shared memory, lent to this client's connection: *frames* frames of *frame_bytes* bytes.

    Attributes:
        is_ended: whether the connection that it was bound to has ended.
        closing: frames that were closed and that the server still uses.
    """

    def __init__(self, answer: Answer, memory: mmap.mmap) -> None:
        self.frames = answer.frames
        self.frame_bytes = answer.frame_bytes
        self.is_ended = False
        self.closing = 0
        self._answer = answer
        # Kept no longer than the lease and the arrays of its frames: with the last of them the server gets its region back.
        self._memory: mmap.mmap | None = memory
        self._free = deque(range(answer.frames))

    def __repr__(self) -> str:
        """Show what it is."""
        return f"<Lease of {self.frames} frames of {self.frame_bytes} bytes, {len(self._free)} free>"

    def frame_nowait(self) -> Frame | None:
        """Return a frame that nobody uses, None when there is none.

        Raises:
            ConnectionLost: the lease has ended.
        """
        self.check()
        return Frame(self, self._free.popleft()) if self._free else None

    def close(self) -> None:
        """Give the region back as soon as no array of its frames is left, and no request uses it."""
        self._memory = None

    def check(self) -> None:
        """Raise ConnectionLost when the lease has ended, RuntimeError when it was closed."""
        if self.is_ended:
            raise ConnectionLost(ENDED)
        if self._memory is None:
            raise RuntimeError("the lease is closed: ask the client for another")

    def check_wait(self, limit_s: float, *, is_over: bool) -> None:
        """Raise what ends the wait for a frame: TimeoutError when the time is over, RuntimeError when none can come back."""
        if not self.closing:
            raise RuntimeError(f"all {self.frames} frames of the lease are open in this program: close one")
        if is_over:
            raise TimeoutError(f"no frame of the lease was free within {limit_s:g} s: the server uses all that are closed")

    # --- the frames' side ------------------------------------------------------------------------------------------------

    def ref(self, frame: int, nbytes: int) -> LeaseRef:
        """Return how the wire names *nbytes* bytes of a frame."""
        return LeaseRef(self._answer.region, self._answer.generation, frame, nbytes)

    def memory(self, frame: int, nbytes: int) -> memoryview:
        """Return the first *nbytes* bytes of a frame."""
        assert self._memory is not None, "checked before"
        at = frame * self._answer.stride
        return memoryview(self._memory)[at : at + nbytes]

    def take_back(self, frame: int, *, was_busy: bool) -> None:
        """Let a frame be given out again."""
        self.closing -= was_busy
        self._free.append(frame)

    def end(self) -> None:
        """Take note that the connection has ended."""
        self.is_ended = True


class LeaseBook:
    """The leases of one client, and the frames that its requests use.

    Attributes:
        held: the frames of each request whose frames are not free yet, by its id.
    """

    def __init__(self) -> None:
        self.held: dict[int, list[Frame]] = {}
        self._leases: dict[tuple[int, int], Lease] = {}

    def add(self, lease: Lease) -> None:
        """Take a new lease in."""
        ref = lease.ref(0, 0)
        self._leases[ref.region, ref.generation] = lease

    def remove(self, lease: Lease) -> None:
        """Forget a lease."""
        ref = lease.ref(0, 0)
        self._leases.pop((ref.region, ref.generation), None)

    def hold(self, request_id: int, frames: Sequence[Frame]) -> None:
        """Take note that a request uses *frames*."""
        self.held[request_id] = list(frames)
        for frame in frames:
            frame.use()

    def release(self, request_id: int) -> None:
        """Take note that the server has done with a request's frames."""
        for frame in self.held.pop(request_id, ()):
            frame.release()

    def lose(self) -> None:
        """End every lease: its connection has ended."""
        for lease in self._leases.values():
            lease.end()
        self._leases.clear()
        for request_id in list(self.held):
            self.release(request_id)

    def find(self, ref: LeaseRef) -> memoryview:
        """Return the bytes that a reply names.

        Raises:
            RequestError: BAD_LEASE when they are not in a lease of ours.
        """
        lease = self._leases.get((ref.region, ref.generation))
        if lease is None or ref.frame >= lease.frames or ref.nbytes > lease.frame_bytes:
            raise RequestError(Code.BAD_LEASE, field="lease", expected="a frame of this client's", got=f"region {ref.region}")
        return lease.memory(ref.frame, ref.nbytes)


def frames_of(inputs: Mapping[str, Any], outputs: object) -> list[Frame]:
    """Return the frames of leases that a request names, as inputs and in its option ``outputs``."""
    wanted = outputs.values() if isinstance(outputs, Mapping) else ()
    return [value for value in (*inputs.values(), *wanted) if isinstance(value, Frame)]


def contents_in_place(inputs: Mapping[str, Any]) -> list[memoryview]:
    """Return the bytes of the inputs that are in frames, in their order."""
    return [value.content() for value in inputs.values() if isinstance(value, Frame)]
