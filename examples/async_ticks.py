"""Ticks from many symbols through one asyncio client: each symbol waits for its own answers, all of them share one connection.

Start the demo's lanes with `slotline serve demo`, then: python examples/async_ticks.py ipc://run/slotline.ipc
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from clients import AsyncClient, DeadlineExceeded

SYMBOLS, TICKS = 50, 20


async def follow(client: AsyncClient, seed: int) -> int:
    """Score the ticks of one symbol, and return how many answers came in time."""
    ticks = np.random.default_rng(seed).standard_normal((TICKS, 1, 67)).astype(np.float32)
    scored = 0
    for tick in ticks:
        try:
            await client.infer("ticks", {"features": tick}, budget_us=500_000)
            scored += 1
        except DeadlineExceeded:
            continue  # An old tick is worth nothing: on to the next one.
    return scored


async def main(endpoint: str) -> None:
    """Follow all symbols at once."""
    async with AsyncClient(endpoint) as client:
        scored = await asyncio.gather(*(follow(client, seed) for seed in range(SYMBOLS)))
    print(f"{sum(scored)} of {SYMBOLS * TICKS} ticks scored")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
