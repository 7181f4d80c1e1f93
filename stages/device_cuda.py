"""A GPU by CUDA, through cupy, which is imported here and nowhere else. Belongs to the inference process alone.

Three streams and events between them; device memory from a pool of our own with a limit; page-locked memory of exactly the size
that is needed (cupy's own pool would round it up to a power of two); memory of lanes registered once, so that the GPU reads rows
from where they lie. After warm-up nothing is allocated.

Not run on a GPU yet, see docs/gpu.md.
"""

from __future__ import annotations

import statistics
import time
import weakref
from types import ModuleType
from typing import Any

import numpy as np

from schemas.logs import get_logger
from schemas.status import DeviceError, printable

from .device import Array, Block, Bytes, Call, Mark, Stream

# One call that registers 512 GiB fails on some drivers.
MAX_REGISTERED_BYTES = 64 << 30
# hostRegister's flags: the registration holds for every context of the process; nothing is mapped, copies do not need it.
_PORTABLE = 1
# Where gathering may end and reading rows from where they lie begin, whatever the measurement says.
MIN_DIRECT_BYTES, MAX_DIRECT_BYTES = 4 << 10, 1 << 20
# What is copied to measure both: a row that is cheap to copy, and one that no cache keeps for nothing.
_PROBE_COPIES, _PROBE_BYTES = 64, 256 << 10
_OUT_OF_MEMORY = 2


def load_cupy() -> ModuleType:
    """Import cupy; that makes no CUDA call.

    Raises:
        ImportError: it is not installed, or not whole.
    """
    import cupy

    module: ModuleType = cupy
    return module


class CudaDevice:
    """One GPU; see :class:`stages.device.Device`.

    Args:
        index: which GPU, as CUDA counts them.
        pool_bytes: most bytes that its buffers may take.

    Attributes:
        stream_address: of the compute stream, for what queues work there by itself.
        registered_bytes: memory of lanes that it reads from where it lies.

    Raises:
        DeviceError: cupy is missing, or the GPU cannot be used.
    """

    kind = "cuda"
    pads = True

    def __init__(self, index: int, *, pool_bytes: int) -> None:
        try:
            self._cupy: Any = load_cupy()
        except ImportError as error:
            raise DeviceError(f"a GPU needs cupy ({error}): pip install 'slotline[gpu]'") from error
        self._runtime: Any = self._cupy.cuda.runtime
        self.index = index
        self.registered_bytes = 0
        self.pinned_bytes = 0
        self._registered: list[tuple[int, int]] = []
        self._adopted: list[Bytes] = []
        try:
            self._start(pool_bytes)
        except self._runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"GPU {index} cannot be used: {printable(error, 200)}; see what the driver says: nvidia-smi"
            ) from error

    def _start(self, pool_bytes: int) -> None:
        """Take the GPU, make streams and pool, and measure from which size on rows are read from where they lie."""
        cuda = self._cupy.cuda
        cuda.Device(self.index).use()
        self._pool = cuda.MemoryPool()
        self._pool.set_limit(size=pool_bytes)
        # What a kernel of cupy needs by the way shall come from here as well, not from a pool without a limit.
        cuda.set_allocator(self._pool.malloc)
        self._streams = [cuda.Stream(non_blocking=True) for _ in Stream]
        self._addresses = [stream.ptr for stream in self._streams]
        self.stream_address: int = self._addresses[Stream.COMPUTE]
        self.direct_bytes = self._measure_direct_bytes()
        self._pool.free_all_blocks()
        # A lane that is dropped and not closed takes its device along: what is mapped there later must not count as registered.
        weakref.finalize(self, _let_go, self._runtime, self._streams, self._registered, self._adopted).atexit = False

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pool has taken from the GPU."""
        return int(self._pool.total_bytes())

    @property
    def free_bytes(self) -> int:
        """Bytes that nobody has taken from the GPU."""
        return int(self._runtime.memGetInfo()[0])

    # --- memory ----------------------------------------------------------------------------------------------------------

    def block(self, nbytes: int) -> Block:
        host = self._pinned_memory(nbytes)
        memory = self._pool.malloc(max(nbytes, 1))
        return Block(host, int(memory.ptr), memory)

    def adopt(self, memory: Bytes) -> bool:
        """Register *memory* with the driver, which locks its pages: 0.1 s for each GB. What it refuses is gathered instead."""
        start = memory.ctypes.data
        parts = chunks(start, memory.nbytes)
        for number, (address, nbytes) in enumerate(parts):
            try:
                self._runtime.hostRegister(address, nbytes, _PORTABLE)
            except self._runtime.CUDARuntimeError as error:
                # Containers, WSL and some virtual machines forbid it.
                _unregister(self._runtime, parts[:number])
                get_logger().warning("memory_not_registered", bytes=memory.nbytes, reason=printable(error, 200))
                return False
        self._registered += parts
        self._adopted.append(memory)
        self.registered_bytes += memory.nbytes
        return True

    def has_adopted(self, source: Array) -> bool:
        at, _ = source.__array_interface__["data"]
        return any(start <= at and at + source.nbytes <= start + nbytes for start, nbytes in self._registered)

    def _pinned_memory(self, nbytes: int) -> Bytes:
        """Return page-locked memory of this size; it lives as long as the array."""
        cuda = self._cupy.cuda
        try:
            pointer = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(nbytes, 1)), 0)
        except self._runtime.CUDARuntimeError as error:
            if error.status == _OUT_OF_MEMORY:
                raise MemoryError(str(error)) from error
            raise
        host: Bytes = np.frombuffer(pointer, np.uint8, max(nbytes, 1))[:nbytes]
        self.pinned_bytes += nbytes
        weakref.finalize(host, self._unpin, nbytes).atexit = False
        return host

    def _unpin(self, nbytes: int) -> None:
        self.pinned_bytes -= nbytes

    def close(self) -> None:
        _let_go(self._runtime, self._streams, self._registered, self._adopted)
        self.registered_bytes = 0
        self._cupy.cuda.set_allocator(None)
        self._pool.free_all_blocks()

    # --- work ------------------------------------------------------------------------------------------------------------

    def upload(self, block: Block, nbytes: int) -> None:
        self._copy_in(block.address, block.host.ctypes.data, nbytes)

    def upload_row(self, block: Block, offset: int, source: Array) -> None:
        self._copy_in(block.address + offset, source.__array_interface__["data"][0], source.nbytes)

    def _copy_in(self, target: int, source: int, nbytes: int) -> None:
        kind = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(target, source, nbytes, kind, self._addresses[Stream.UPLOAD])

    def clear(self, block: Block, start: int, end: int) -> None:
        self._runtime.memsetAsync(block.address + start, 0, end - start, self._addresses[Stream.UPLOAD])

    def run(self, call: Call) -> None:
        with self._streams[Stream.COMPUTE]:
            call.run()

    def download(self, block: Block, nbytes: int) -> None:
        kind = self._runtime.memcpyDeviceToHost
        self._runtime.memcpyAsync(block.host.ctypes.data, block.address, nbytes, kind, self._addresses[Stream.DOWNLOAD])

    def compile(self, source: str, options: tuple[str, ...], name: str) -> Any:
        """Return kernel *name* of CUDA *source* for this GPU; a call (grid, block, arguments) queues it on the current stream."""
        return self._cupy.RawModule(code=source, options=options).get_function(name)

    def new_mark(self) -> Mark:
        """Return an event on which a waiting thread sleeps and does not spin."""
        return self._cupy.cuda.Event(block=True, disable_timing=True)

    def record(self, stream: Stream, mark: Mark) -> None:
        mark.record(self._streams[stream])

    def after(self, stream: Stream, mark: Mark) -> None:
        self._streams[stream].wait_event(mark)

    def is_done(self, mark: Mark) -> bool:
        return bool(mark.done)

    def wait(self, mark: Mark) -> None:
        mark.synchronize()

    # --- direct or gathered ----------------------------------------------------------------------------------------------

    def _measure_direct_bytes(self) -> int:
        """Return from which size on telling the GPU to fetch a row costs the CPU less than copying the row."""
        block = self.block(2 * _PROBE_BYTES)
        half = block.host[:_PROBE_BYTES]
        told_ns, copied_ns = [], []
        for _ in range(_PROBE_COPIES):
            started_ns = time.perf_counter_ns()
            self.upload_row(block, 0, half)
            told_ns.append(time.perf_counter_ns() - started_ns)
            self._streams[Stream.UPLOAD].synchronize()
            started_ns = time.perf_counter_ns()
            np.copyto(block.host[_PROBE_BYTES:], half)
            copied_ns.append(time.perf_counter_ns() - started_ns)
        return break_even(statistics.median(told_ns), statistics.median(copied_ns) / _PROBE_BYTES)


def _let_go(runtime: Any, streams: list[Any], registered: list[tuple[int, int]], adopted: list[Bytes]) -> None:
    """Take back the registration of *adopted* memory when no copy reads it any more, and let it go only then."""
    for stream in streams:
        stream.synchronize()
    _unregister(runtime, registered)
    registered.clear()
    adopted.clear()


def _unregister(runtime: Any, parts: list[tuple[int, int]]) -> None:
    for address, _ in parts:
        runtime.hostUnregister(address)


def chunks(address: int, nbytes: int, most: int = MAX_REGISTERED_BYTES) -> list[tuple[int, int]]:
    """Return (address, bytes) of the parts in which memory is registered; nothing for no bytes, which the driver refuses."""
    return [(address + at, min(most, nbytes - at)) for at in range(0, nbytes, most)]


def break_even(told_ns: float, copied_ns_per_byte: float) -> int:
    """Return the size of a row whose copy takes as long as telling the device to fetch it, within its limits."""
    even = int(told_ns / copied_ns_per_byte) if copied_ns_per_byte > 0 else MAX_DIRECT_BYTES
    return min(max(even, MIN_DIRECT_BYTES), MAX_DIRECT_BYTES)
