"""A supply of requests by name, so that the checker and the load, which are other processes, can make the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.cases import (
    Cases,
    DigestCases,
    MixedCases,
    PoolCases,
    SpikedCases,
    photo_pool,
    pool_from_json,
    tick_pool,
)

# Photos cost a hundred times what ticks cost; enough of them that their stages have work in hand.
TICKS_PER_PHOTO = 20


@dataclass(frozen=True, slots=True)
class Supply:
    """Which requests.

    Args:
        kind: digests (the built-in lane), ticks, demo (ticks and photos), mixed (all three), or pool.
        pool: file with the pool's JSON, for the kind pool.
        poison_every: every so manieth request is the poison; 0 = none.
        poison_code: the error that it must get.
    """

    kind: str
    pool: str = ""
    poison_every: int = 0
    poison_code: str = ""


def make_cases(supply: Supply, seed: int) -> Cases:
    """Return the requests of *supply*; the same *seed* gives the same ones."""
    cases = _plain(supply, seed)
    return SpikedCases(cases, supply.poison_every, supply.poison_code) if supply.poison_every else cases


def _plain(supply: Supply, seed: int) -> Cases:
    if supply.kind == "digests":
        return DigestCases(seed)
    if supply.kind == "ticks":
        return PoolCases(tick_pool(), seed)
    if supply.kind == "pool":
        return PoolCases(pool_from_json(json.loads(Path(supply.pool).read_text(encoding="utf-8"))), seed)
    photos = PoolCases(photo_pool(), seed)
    parts: list[tuple[Cases, int]] = [(PoolCases(tick_pool(), seed), TICKS_PER_PHOTO), (photos, 1)]
    if supply.kind == "mixed":
        parts.append((DigestCases(seed), TICKS_PER_PHOTO))
    return MixedCases(parts, seed)
