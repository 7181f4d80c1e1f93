"""What a worker tells about its device once a lane is warm: one line in the log, and two words on the board."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.arena import Words
from schemas.logs import get_logger
from schemas.plan import LanePlan
from schemas.words import GPU_PINNED_BYTES, GPU_POOL_BYTES

from .device import Device


def say_selected(lane: LanePlan, device: Device, batches: Iterable[int]) -> None:
    """Log ``device_selected``: where the lane's model runs, why, what it took, and the batch sizes that are warm."""
    assert lane.device is not None
    say = getattr(get_logger(), lane.device.level)
    say(
        "device_selected",
        lane=lane.name,
        device=device.kind,
        reason=lane.device.reason,
        **lane.device.about,
        batches=list(batches),
        pool_bytes=device.pool_bytes,
        pinned_bytes=device.pinned_bytes,
        registered_bytes=device.registered_bytes,
    )


def show_bytes(column: Words, devices: Iterable[Device]) -> None:
    """Write what a process has on GPUs to its column of the board."""
    taken = [(device.pool_bytes, device.pinned_bytes) for device in devices]
    column[GPU_POOL_BYTES] = sum(pool for pool, _ in taken)
    column[GPU_PINNED_BYTES] = sum(pinned for _, pinned in taken)
