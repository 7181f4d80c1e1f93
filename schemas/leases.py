"""Leases: shared-memory regions that the server lends to one client each, and the handshake that hands them over.

A region has frames of equal size, each at a multiple of *stride* bytes. What requests say about frames is in ``wire_tensors.py``.
No numpy: the supervisor makes these regions.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from schemas.config_endpoint import MAX_IPC_PATH_BYTES
from schemas.plan import PAGE_BYTES, align
from schemas.status import Code

SOCKET_SUFFIX = ".leases"
TOKEN_CHARS = 32

# What a client sends on the lease socket (SOCK_SEQPACKET), one packet, 56 bytes, little-endian
#   0 magic 4 bytes "SLL1" | 4 op u16 | 6 reserved u16 | 8 token 32 characters
#   40 frame_bytes u64 | 48 frames u32 | 52 reserved u32
_ASK = struct.Struct("<4sHH32sQII")
# What the server answers, 48 bytes and a text; with code 0 the packet carries the region's descriptor (SCM_RIGHTS)
#   0 magic | 4 code u16 | 6 reserved u16 | 8 region u32 | 12 generation u32 | 16 frames u32 | 20 reserved u32
#   24 frame_bytes u64 | 32 stride u64 | 40 retry_after_us u64 | 48 message, ASCII, at most 512 bytes
_ANSWER = struct.Struct("<4sHHIIIIQQQ")
_MAGIC = b"SLL1"
ASK_BYTES = _ASK.size
MAX_ANSWER_BYTES = _ANSWER.size + 512

# Word 3 of an input's descriptor when its bytes are in a lease and not in the slot's row:
#   bit 63 = 1 | bits 40..62 region | bits 0..39 offset in the region
IN_LEASE = 1 << 63
_REGION_SHIFT = 40
MAX_REGION_BYTES = 1 << _REGION_SHIFT
_OFFSET_MASK = MAX_REGION_BYTES - 1


class LeaseOp(IntEnum):
    """What a client says on the lease socket. LEASE: lend me a region. GOODBYE: I have unmapped it."""

    UNSET = 0
    LEASE = 1
    GOODBYE = 2


@dataclass(frozen=True, slots=True)
class RegionForm:
    """What each region of a server is: *frames* of *frame_bytes* bytes, *stride* bytes apart."""

    frames: int
    frame_bytes: int

    @property
    def stride(self) -> int:
        """Bytes from one frame to the next: whole pages, so that a frame can be mapped, or given to a device, alone."""
        return align(self.frame_bytes, PAGE_BYTES)

    @property
    def region_bytes(self) -> int:
        """Bytes of a region."""
        return self.frames * self.stride


class Ask(NamedTuple):
    """A client's wish: at least *frames* frames of at least *frame_bytes* bytes; 0 = whatever there is."""

    op: LeaseOp
    token: str = ""
    frame_bytes: int = 0
    frames: int = 0


class Answer(NamedTuple):
    """The server's answer: a region, or (code) why there is none."""

    code: Code
    region: int = 0
    generation: int = 0
    frames: int = 0
    frame_bytes: int = 0
    stride: int = 0
    retry_after_us: int = 0
    message: str = ""


def write_ask(ask: Ask) -> bytes:
    """Return the packet of a client's wish."""
    return _ASK.pack(_MAGIC, ask.op, 0, ask.token.encode(), ask.frame_bytes, ask.frames, 0)


def read_ask(packet: bytes) -> Ask | None:
    """Return the wish in *packet*, None when it is none."""
    if len(packet) != _ASK.size:
        return None
    magic, op, _, token, frame_bytes, frames, _ = _ASK.unpack(packet)
    if magic != _MAGIC or op not in (LeaseOp.LEASE, LeaseOp.GOODBYE):
        return None
    return Ask(LeaseOp(op), token.decode("ascii", "replace"), frame_bytes, frames)


def write_answer(answer: Answer) -> bytes:
    """Return the packet of the server's answer; its text is ASCII of ours."""
    code, region, generation, frames, frame_bytes, stride, retry_after_us, message = answer
    head = _ANSWER.pack(_MAGIC, code, 0, region, generation, frames, 0, frame_bytes, stride, retry_after_us)
    return head + message.encode("ascii", "replace")[: MAX_ANSWER_BYTES - _ANSWER.size]


def read_answer(packet: bytes) -> Answer | None:
    """Return the answer in *packet*, None when it is none."""
    if len(packet) < _ANSWER.size or not packet.startswith(_MAGIC):
        return None
    _, code, _, region, generation, frames, _, frame_bytes, stride, retry_after_us = _ANSWER.unpack_from(packet)
    try:
        known = Code(code)
    except ValueError:
        known = Code.NOT_SUPPORTED
    text = packet[_ANSWER.size :].decode("ascii", "replace")
    return Answer(known, region, generation, frames, frame_bytes, stride, retry_after_us, text)


def place_word(region: int, offset: int) -> int:
    """Return the descriptor's word for bytes at *offset* of *region*."""
    return IN_LEASE | region << _REGION_SHIFT | offset


def place_of(word: int) -> tuple[int, int]:
    """Return (region, offset) of a word that ``place_word`` made."""
    return (word & ~IN_LEASE) >> _REGION_SHIFT, word & _OFFSET_MASK


def socket_beside(endpoint: str) -> str:
    """Return the lease socket's path beside an ipc endpoint, "" for others and where it would be too long."""
    path = endpoint.removeprefix("ipc://") + SOCKET_SUFFIX
    return path if endpoint.startswith("ipc://") and len(os.fsencode(path)) <= MAX_IPC_PATH_BYTES else ""


def socket_path(endpoint: str, directory: str) -> str:
    """Return where the server lends regions: beside its endpoint, or else in its private *directory*."""
    return socket_beside(endpoint) or f"{directory}/leases"
