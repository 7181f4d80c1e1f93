"""Leased regions as one of the server's processes sees them. Their clients may write into them at any time.

So nobody takes from here what was checked before: a content is copied first where it is checked at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from .arena import Bytes, map_shared
from .leases import RegionForm, place_of


class LeaseRegions:
    """All regions, mapped.

    Args:
        descriptors: of the regions, by number.
        writable: the broker's way to write replies; stages only read.
    """

    def __init__(self, descriptors: Sequence[int], form: RegionForm, *, writable: bool) -> None:
        self.form = form
        self._regions = [map_shared(fd, form.region_bytes, writable=writable, populate=True) for fd in descriptors]

    def __len__(self) -> int:
        """Return how many regions there are."""
        return len(self._regions)

    def region(self, number: int) -> Bytes:
        """Return all bytes of a region."""
        return self._regions[number]

    def view(self, word: int, nbytes: int) -> Bytes:
        """Return *nbytes* bytes at the place that a descriptor's *word* names."""
        region, offset = place_of(word)
        return self._regions[region][offset : offset + nbytes]
