"""The packets of the lease socket, the place words of slots, and where the socket is."""

from __future__ import annotations

import pytest

from schemas.leases import (
    ASK_BYTES,
    IN_LEASE,
    MAX_ANSWER_BYTES,
    MAX_REGION_BYTES,
    Answer,
    Ask,
    LeaseOp,
    RegionForm,
    place_of,
    place_word,
    read_answer,
    read_ask,
    socket_path,
    write_answer,
    write_ask,
)
from schemas.status import Code

TOKEN = "0123456789abcdef" * 2


def test_a_wish_is_these_bytes() -> None:
    """As docs/protocol.md has them."""
    packet = write_ask(Ask(LeaseOp.LEASE, TOKEN, 0x1122334455, 3))

    assert packet == b"SLL1" + b"\1\0\0\0" + TOKEN.encode() + b"\x55\x44\x33\x22\x11\0\0\0" + b"\3\0\0\0" + bytes(4)
    assert len(packet) == ASK_BYTES == 56
    assert read_ask(packet) == Ask(LeaseOp.LEASE, TOKEN, 0x1122334455, 3)
    assert read_ask(write_ask(Ask(LeaseOp.GOODBYE))) == Ask(LeaseOp.GOODBYE, "\0" * 32)


def test_an_answer_is_these_bytes() -> None:
    """A region, or the reason why there is none, cut to what a packet holds."""
    packet = write_answer(Answer(Code.NONE, 1, 2, 3, 5000, 8192))

    assert packet == b"SLL1" + bytes(4) + b"\1\0\0\0\2\0\0\0\3\0\0\0" + bytes(4) + b"\x88\x13" + bytes(6) + b"\0\x20" + bytes(14)
    assert read_answer(packet) == Answer(Code.NONE, 1, 2, 3, 5000, 8192)
    refusal = write_answer(Answer(Code.BUSY, retry_after_us=9, message="x" * 1000))
    assert len(refusal) == MAX_ANSWER_BYTES
    assert read_answer(refusal) == Answer(Code.BUSY, retry_after_us=9, message="x" * 512)


@pytest.mark.parametrize("packet", [b"", b"SLL1", bytes(56), b"SLL1\3" + bytes(51), b"SLL1\1" + bytes(52), b"SLL1" + bytes(52)])
def test_what_is_no_wish_is_none(packet: bytes) -> None:
    """Too short, too long, another magic, another op."""
    assert read_ask(packet) is None


@pytest.mark.parametrize("packet", [b"", b"SLL1" + bytes(43), bytes(48)])
def test_what_is_no_answer_is_none(packet: bytes) -> None:
    """Too short, or another magic; a code of a newer server is a refusal all the same."""
    assert read_answer(packet) is None
    newer = read_answer(b"SLL1\xff\x7f" + bytes(42))
    assert newer is not None
    assert newer.code == Code.NOT_SUPPORTED


@pytest.mark.parametrize("place", [(0, 0), (1, 4096), ((1 << 23) - 1, MAX_REGION_BYTES - 1)])
def test_a_place_word_says_region_and_offset(place: tuple[int, int]) -> None:
    """And that it is one: no offset in a row has its highest bit."""
    word = place_word(*place)

    assert place_of(word) == place
    assert IN_LEASE <= word < 1 << 64


def test_frames_begin_at_whole_pages() -> None:
    """A frame of 5000 bytes takes two."""
    form = RegionForm(3, 5000)

    assert (form.stride, form.region_bytes) == (8192, 24576)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("ipc:///run/s.ipc", "/run/s.ipc.leases"),
        ("tcp://127.0.0.1:7000", "/private/leases"),
        ("ipc:///" + "x" * 100, "/private/leases"),
    ],
)
def test_the_socket_is_beside_an_ipc_endpoint_or_in_the_private_directory(endpoint: str, path: str) -> None:
    """A path that a socket cannot have is not tried."""
    assert socket_path(endpoint, "/private") == path
