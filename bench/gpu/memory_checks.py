"""Copies between host and GPU, and what registering an arena's memory allows: tier A."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import cuda
from bench.gpu.pictures import SPECS, pictures_for
from bench.gpu.registry import Outcome, check
from stages.resize import Pixels, resize_rows

MIB = 1 << 20
# A slab that is registered must copy as fast as memory that CUDA itself pinned.
MIN_SLAB_SHARE = 0.95
# Of a PCIe 5 x16 link, which carries 63 GB/s at best.
PCIE5_X16, MIN_PCIE5_GBPS = (32.0, 16), 45.0
SMALL_SIZES = (1024, 4096, 16_384, 65_536, 150_528, 602_112)
SMALL_ITEMS = 32
ATTRIBUTES = {
    "integrated": 18, "can_map_host_memory": 19, "copy_engines": 40, "unified_addressing": 41, "managed_concurrently": 89,
    "same_pointer_for_registered": 91, "register": 99, "register_read_only": 113,
}  # fmt: skip
ANOTHER_PROCESS = """
import sys
from bench.gpu import cuda
cupy = cuda.load()
memory = cuda.map_slab(int(sys.argv[1]), int(sys.argv[2]))
cupy.cuda.runtime.hostRegister(memory.ctypes.data, memory.nbytes, 0)
there = cupy.empty(memory.nbytes, cupy.uint8)
there.data.copy_from_host(memory.ctypes.data, memory.nbytes)
print(int(there.sum(dtype=cupy.uint64)))
"""


@check("A")
def attributes() -> Outcome:
    """What the GPU says it can do; registering host memory must be among it."""
    cupy = cuda.load()
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    found = {name: int(runtime.deviceGetAttribute(number, 0)) for name, number in ATTRIBUTES.items()}
    speed, width = cuda.link(properties)
    told = {
        "name": properties["name"].decode(),
        "capability": f"{properties['major']}.{properties['minor']}",
        "memory_bytes": properties["totalGlobalMem"],
        "pcie": f"{speed} GT/s x{width}",
        "runtime": runtime.runtimeGetVersion(),
        "driver": runtime.driverGetVersion(),
        "cupy": cupy.__version__,
    }
    return bool(found["register"]), {**told, **found}


@check("A")
def bandwidth() -> Outcome:
    """GB/s to the GPU and back, from pageable, pinned and registered memory."""
    cupy = cuda.load()
    rates = {f"{size}MiB": _rates(cupy, size * MIB) for size in (4, 64)}
    large = rates["64MiB"]
    well = all(large[f"{way}_slab"] >= MIN_SLAB_SHARE * large[f"{way}_pinned"] for way in ("h2d", "d2h"))
    is_fast_link = cuda.link(cupy.cuda.runtime.getDeviceProperties(0)) == PCIE5_X16
    fast = not is_fast_link or large["h2d_slab"] >= MIN_PCIE5_GBPS
    return well and fast, {"gb_per_s": rates, "is_pcie5_x16": is_fast_link}


def _rates(cupy: Any, nbytes: int) -> dict[str, float]:
    """Return GB/s by way and kind of memory."""
    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    there, (registered, _) = cupy.empty(nbytes, cupy.uint8), cuda.slab(nbytes)
    runtime.hostRegister(registered.ctypes.data, nbytes, 0)
    rates = {}
    hosts = {"pageable": np.ones(nbytes, np.uint8), "pinned": cuda.pinned(cupy, nbytes), "slab": registered}
    for kind, host in hosts.items():
        ways = {
            "h2d": (there.data.ptr, host.ctypes.data, runtime.memcpyHostToDevice),
            "d2h": (host.ctypes.data, there.data.ptr, runtime.memcpyDeviceToHost),
        }
        for way, (to, start, how) in ways.items():
            ms = cuda.gpu_ms(
                cupy,
                stream,
                lambda to=to, start=start, how=how: runtime.memcpyAsync(to, start, nbytes, how, stream.ptr),  # type: ignore[misc]
                repeats=30,
            )
            rates[f"{way}_{kind}"] = round(nbytes / ms / 1e6, 2)
    runtime.hostUnregister(registered.ctypes.data)
    return rates


@check("A")
def small_copy_cost() -> Outcome:
    """Microseconds per item: each copied from its slot, or all gathered and copied at once. Sets a threshold."""
    cupy = cuda.load()
    costs = {size: _item_costs(cupy, size) for size in SMALL_SIZES}
    direct_from = next((size for size, cost in costs.items() if cost["direct_us"] <= cost["gathered_us"]), None)
    return True, {"items": SMALL_ITEMS, "us_per_item": costs, "direct_from_bytes": direct_from}


def _item_costs(cupy: Any, size: int) -> dict[str, float]:
    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    memory, _ = cuda.slab(size * SMALL_ITEMS)
    runtime.hostRegister(memory.ctypes.data, memory.nbytes, 0)
    there, staging = cupy.empty(memory.nbytes, cupy.uint8), cuda.pinned(cupy, memory.nbytes)
    rows = memory.reshape(SMALL_ITEMS, size)

    def direct() -> None:
        for row in range(SMALL_ITEMS):
            runtime.memcpyAsync(there.data.ptr + row * size, rows[row].ctypes.data, size, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()

    def gathered() -> None:
        np.concatenate(list(rows), out=staging)
        runtime.memcpyAsync(there.data.ptr, staging.ctypes.data, memory.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()

    costs = {name: cuda.wall_us(work, repeats=50) / SMALL_ITEMS for name, work in (("direct", direct), ("gathered", gathered))}
    runtime.hostUnregister(memory.ctypes.data)
    return {f"{name}_us": round(us, 2) for name, us in costs.items()}


@check("A", limit_s=60)
def register_edges() -> Outcome:
    """What the driver refuses when memory is registered, with which error, and that the next call works all the same."""
    cupy = cuda.load()
    runtime = cupy.cuda.runtime
    memory, descriptor = cuda.slab(4 * MIB)
    at = memory.ctypes.data
    memory[:] = np.arange(memory.nbytes, dtype=np.uint8)

    def register(offset: int, nbytes: int, flags: int = 0) -> int:
        return cuda.error_code(cupy, lambda: runtime.hostRegister(at + offset, nbytes, flags))

    def unregister(offset: int) -> int:
        return cuda.error_code(cupy, lambda: runtime.hostUnregister(at + offset))

    found = {"zero_bytes": register(0, 0), "well": register(0, 4 * MIB), "twice": register(0, 4 * MIB)}
    found |= {"inside": register(MIB, MIB), "after_errors": _copy_error(cupy, memory)}
    found |= {"unregistered": unregister(0), "unregistered_again": unregister(0), "once_more": register(0, 4 * MIB)}
    expected = {
        "zero_bytes": cuda.INVALID_VALUE, "well": 0, "twice": cuda.ALREADY_REGISTERED, "inside": cuda.ALREADY_REGISTERED,
        "after_errors": 0, "unregistered": 0, "unregistered_again": cuda.NOT_REGISTERED, "once_more": 0,
    }  # fmt: skip
    shared = _registered_elsewhere(descriptor, memory)
    unregister(0)
    told = {"unaligned": register(100, MIB), "read_only": _read_only(cupy, descriptor)}
    unregister(100)
    return found == expected and shared, {"errors": found, "expected": expected, "two_processes": shared, "told_only": told}


def _copy_error(cupy: Any, memory: Any) -> int:
    """Return the error of a copy from *memory*, -1 when it copied something else."""
    there = cupy.empty(memory.nbytes, cupy.uint8)
    code = cuda.error_code(cupy, lambda: there.data.copy_from_host(memory.ctypes.data, memory.nbytes))
    return code or (0 if np.array_equal(there.get(), memory) else -1)


def _registered_elsewhere(descriptor: int, memory: Any) -> bool:
    """Return whether another process can register the same memory meanwhile, and reads what is there."""
    os.set_inheritable(descriptor, True)
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(descriptor), str(memory.nbytes)]
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(command, cwd=root, pass_fds=(descriptor,), capture_output=True, text=True, timeout=40, check=False)
    return run.returncode == 0 and int(run.stdout) == int(memory.sum(dtype=np.uint64))


def _read_only(cupy: Any, descriptor: int) -> int:
    """Return the error of registering a read-only mapping, with the flag for it."""
    mapped = cuda.map_slab(descriptor, 4 * MIB, mmap.PROT_READ)
    code = cuda.error_code(cupy, lambda: cupy.cuda.runtime.hostRegister(mapped.ctypes.data, mapped.nbytes, cuda.READ_ONLY_FLAG))
    if code == 0:
        cupy.cuda.runtime.hostUnregister(mapped.ctypes.data)
    return code


@check("A")
def mapped() -> Outcome:
    """The kernel reads pictures where they lie in host memory, without a copy: same bits; the rate is told."""
    cupy = cuda.load()
    runtime, spec = cupy.cuda.runtime, SPECS[0]
    pictures: list[Pixels] = [p for p in pictures_for(spec) if p is not None and p.flags.c_contiguous]
    memory, _ = cuda.slab(sum(p.nbytes for p in pictures))
    runtime.hostRegister(memory.ctypes.data, memory.nbytes, cuda.MAPPED_FLAG)
    base, at, sources = runtime.pointerGetAttributes(memory.ctypes.data).devicePointer, 0, []
    for picture in pictures:
        memory[at : at + picture.nbytes] = picture.reshape(-1)
        sources.append(base + at)
        at += picture.nbytes
    dims = np.array([(p.shape[0], p.shape[1], p.strides[0]) for p in pictures], np.int32)
    out, twin = cupy.empty((len(pictures), *spec.shape), cupy.float32), np.empty((len(pictures), *spec.shape), np.float32)
    stream, kernel = cupy.cuda.Stream(non_blocking=True), cuda.resize_kernel(cupy, spec)
    given = cupy.array(sources, cupy.uint64), cupy.asarray(dims)
    cupy.cuda.Device(0).synchronize()
    with stream:
        ms = cuda.gpu_ms(
            cupy,
            stream,
            lambda: kernel.launch(
                sources_ptr=given[0].data.ptr, dims_ptr=given[1].data.ptr, out_ptr=out.data.ptr, rows=len(pictures)
            ),
            repeats=20,
        )
    resize_rows(spec, pictures, twin)
    same = np.array_equal(out.get().view(np.uint32), twin.view(np.uint32))
    runtime.hostUnregister(memory.ctypes.data)
    return same, {"same_bits": same, "ms": round(ms, 3), "picture_bytes": memory.nbytes}
