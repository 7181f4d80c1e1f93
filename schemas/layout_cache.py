"""The layout cache: a header whose layout was seen before is not verified again.

A tick differs from the one before in its Route, its inline bytes and its client_request_id: *free* contents that the verifier
reports. The cache's key is the header without them. A free span never overlaps a byte that decides the layout (the verifier
refuses that), so equal keys of equal length mean equal layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from schemas.layout import Layout, layout_of
from schemas.verify import Span, verify

# Makes the function that takes the bytes of these slices of a header, joined.
Decider: TypeAlias = Callable[[Sequence[slice]], Callable[[bytes], bytes]]


def plain_decider(slices: Sequence[slice]) -> Callable[[bytes], bytes]:
    """Return the function that joins *slices*, two or more, of a header."""
    take = itemgetter(*slices)
    return lambda header: b"".join(take(header))


class _Mask(NamedTuple):
    """The deciding slices of a header, the function that joins them, and the layouts by what it returns."""

    slices: list[slice]
    deciding: Callable[[bytes], bytes]
    layouts: dict[bytes, Layout]


# A layout takes about ten times the bytes that decide it. Longer ones than this come from people who try what we do with them, or
# from requests with so many tensors that checking them anew costs little beside the rest; more of them than this start over.
MAX_DECIDING_BYTES = 4096
MAX_BYTES = 1 << 20


class LayoutCache:
    """Layouts by the bytes that decide them. Owned by one thread; cleared when *limit* layouts or MAX_BYTES are in it.

    Args:
        decider: makes what joins the deciding slices.
    """

    # Free spans lie differently in headers of one length only when they come from different builders or shapes.
    _MASKS_PER_LENGTH = 8

    def __init__(self, limit: int = 1024, decider: Decider = plain_decider) -> None:
        self._limit = limit
        self._decider = decider
        self._count = 0
        self._bytes = 0
        self._next_key = 1
        self._masks: dict[int, list[_Mask]] = {}  # by header length

    def read(self, header: bytes) -> Layout:
        """Return the layout of *header*, verified now or when another with the same deciding bytes was.

        Raises:
            RequestError: what ``read_layout`` raises; a header that was refused is not remembered.
        """
        for _, deciding, layouts in self._masks.get(len(header), ()):
            layout = layouts.get(deciding(header))
            if layout is not None:
                return layout
        return self._add(header)

    def _add(self, header: bytes) -> Layout:
        verified = verify(header)
        self._next_key += 1
        slices = _deciding_slices(verified.free, len(header))
        deciding_bytes = sum(part.stop - part.start for part in slices)
        if deciding_bytes > MAX_DECIDING_BYTES:
            return layout_of(verified, -self._next_key)
        layout = layout_of(verified, self._next_key)
        if self._count >= self._limit or self._bytes + deciding_bytes > MAX_BYTES:
            self._clear()
        mask = self._mask(len(header), slices)
        mask.layouts[mask.deciding(header)] = layout
        self._count += 1
        self._bytes += deciding_bytes
        return layout

    def _mask(self, length: int, slices: list[slice]) -> _Mask:
        """Return the mask of these *slices* of a header, a new one when there is none."""
        masks = self._masks.get(length, [])
        for mask in masks:
            if mask.slices == slices:
                return mask
        if len(masks) >= self._MASKS_PER_LENGTH:
            self._clear()
        mask = _Mask(slices, self._decider(slices), {})
        self._masks.setdefault(length, []).append(mask)
        return mask

    def _clear(self) -> None:
        self._masks.clear()
        self._count = 0
        self._bytes = 0


def _deciding_slices(free: list[Span], size: int) -> list[slice]:
    """Return the slices between the *free* spans of a header of *size* bytes; two or more, as itemgetter needs for a tuple."""
    slices: list[slice] = []
    at = 0
    for start, end in sorted(free):
        if start > at:
            slices.append(slice(at, start))
        at = max(at, end)
    return [*slices, slice(at, size), slice(0, 0)]
