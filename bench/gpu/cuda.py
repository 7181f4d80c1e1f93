"""What the checks share of cupy: memory of each kind, timed copies, a compiled kernel. cupy is imported when first used."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.gpu.registry import Skipped
from stages.gpu_kernel import OPTIONS, ResizeKernel, entry_name, source
from stages.resize import ResizeSpec

Bytes: TypeAlias = NDArray[np.uint8]
# Numbers of the runtime's attributes and error codes, for those that cupy does not name.
MAPPED_FLAG, READ_ONLY_FLAG = 2, 8
INVALID_VALUE, ALREADY_REGISTERED, NOT_REGISTERED = 1, 712, 713
# One thread counts the clock up to `ticks`, then copies `n` floats: work of a known length that later work must wait for.
SLOW_COPY = """
extern "C" __global__ void slow_copy(const float* from, float* to, int n, long long ticks) {
    long long start = clock64();
    while (clock64() - start < ticks) { }
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}
"""


def load() -> Any:
    """Return cupy with device 0 current.

    Raises:
        ImportError: it is not installed.
    """
    from stages.device_cuda import load_cupy

    cupy: Any = load_cupy()
    cupy.cuda.Device(0).use()
    return cupy


def slab(nbytes: int) -> tuple[Bytes, int]:
    """Return memory as an arena has it (memfd, populated, page-aligned) and its descriptor."""
    descriptor = os.memfd_create("gpu_check")
    os.ftruncate(descriptor, nbytes)
    os.posix_fallocate(descriptor, 0, nbytes)
    return map_slab(descriptor, nbytes), descriptor


def map_slab(descriptor: int, nbytes: int, access: int = mmap.PROT_READ | mmap.PROT_WRITE) -> Bytes:
    """Return a mapping of a slab; it lives as long as the array."""
    return np.frombuffer(mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED, prot=access), np.uint8)


def pinned(cupy: Any, nbytes: int) -> Bytes:
    """Return page-locked memory of exactly this size."""
    pointer = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(nbytes), 0)
    return np.frombuffer(pointer, np.uint8, nbytes)


def gpu_ms(cupy: Any, stream: Any, work: Callable[[], object], *, repeats: int) -> float:
    """Return the milliseconds between two events on *stream* for one of *repeats* calls of *work*, which queues on it."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(3):
        work()
    stream.synchronize()
    start.record(stream)
    for _ in range(repeats):
        work()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / repeats


def wall_us(work: Callable[[], object], *, repeats: int) -> float:
    """Return the microseconds of one of *repeats* calls by the wall clock."""
    work()
    started_ns = time.perf_counter_ns()
    for _ in range(repeats):
        work()
    return (time.perf_counter_ns() - started_ns) / repeats / 1000


def error_code(cupy: Any, work: Callable[[], object]) -> int:
    """Return the runtime's error of *work*, 0 when it has none."""
    try:
        work()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return int(error.status)
    return 0


def device_view(cupy: Any, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a cupy array over memory that somebody else owns."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, None, 0)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def resize_kernel(cupy: Any, spec: ResizeSpec) -> ResizeKernel:
    """Return the preprocess kernel of *spec*, compiled for this GPU."""
    return ResizeKernel(spec, cupy.RawModule(code=source(), options=OPTIONS).get_function(entry_name(spec)))


def slow_copy(cupy: Any, stream: Any, source_array: Any, target: Any, ms: float) -> None:
    """Queue a copy on *stream* that takes at least about *ms* milliseconds."""
    khz = cupy.cuda.runtime.deviceGetAttribute(CLOCK_RATE_KHZ, 0) or 1_500_000
    kernel = cupy.RawKernel(SLOW_COPY, "slow_copy")
    with stream:
        kernel((1,), (256,), (source_array, target, np.int32(target.size), np.int64(ms * khz)))


CLOCK_RATE_KHZ = 13


def link(properties: dict[str, Any]) -> tuple[float, int]:
    """Return the PCIe link of a GPU as (gigatransfers per second, lanes), zeros where the system does not tell."""
    name = f"{properties['pciDomainID']:04x}:{properties['pciBusID']:02x}:{properties['pciDeviceID']:02x}.0"
    try:
        with open(f"/sys/bus/pci/devices/{name}/max_link_speed") as file:
            speed = float(file.read().split()[0])
        with open(f"/sys/bus/pci/devices/{name}/max_link_width") as file:
            return speed, int(file.read())
    except (OSError, ValueError):
        return 0.0, 0


def need(condition: bool, what: str) -> None:
    """Skip the check unless *condition* holds."""
    if not condition:
        raise Skipped(what)
