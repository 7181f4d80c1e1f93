// Limits of the wire; the server's own are in its Welcome.

export const MAX_HEADER_BYTES = 65_536;
// Of the header; the rest is for names, shapes and parameters.
export const MAX_INLINE_TOTAL_BYTES = (MAX_HEADER_BYTES / 4) * 3;
export const MAX_INLINE_BYTES = 4_096;
// From here on a frame may be lent to the socket; below it, copying is cheaper than keeping track.
export const BY_REFERENCE_BYTES = 65_536;
export const MAX_PACKED = 64;
export const MAX_RANK = 8;
// What inferMany keeps in flight: four packed messages, and no more than a lane's backlog takes by default.
export const MANY_IN_FLIGHT = 256;
export const MANY_BYTES = 16 << 20;
