"""Damaged headers are refused with an error of the peer, or read as the C++ verifier reads them; nothing else ever happens."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fields_text import Checker, fields_text
from golden_messages import stored
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.layout import Layout, read_layout, route_if_readable
from schemas.layout_cache import LayoutCache
from schemas.messages import read_message
from schemas.status import Code, RequestError
from schemas.verify import verify

STORED = stored()
VERIFIER_CODES = {Code.BAD_HEADER, Code.UNSUPPORTED_VERSION}
WORDS = (0, 1, 2, 4, 6, 0x40, 0xFFFF, 0x10000, 0x7FFFFFFC, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
STEPS = (-64, -8, -4, -1, 1, 2, 4, 8, 64)


def mutants(header: bytes) -> Iterator[bytes]:
    """Yield *header* with each u32 word replaced by extreme and by neighbouring values."""
    for at in range(0, len(header) - 3, 4):
        (word,) = struct.unpack_from("<I", header, at)
        for value in {*WORDS, *((word + step) % 2**32 for step in STEPS)} - {word}:
            yield header[:at] + struct.pack("<I", value) + header[at + 4 :]


def outcome(read: Callable[[bytes], object], header: bytes) -> object:
    """Return what *read* gives, or the code with which it refuses."""
    try:
        return read(header)
    except RequestError as error:
        return error.code


@pytest.mark.parametrize("name", STORED)
def test_one_wrong_word_is_refused_or_harmless(name: str) -> None:
    """The readers raise nothing but RequestError, and the verifier only its own codes."""
    for mutant in mutants(STORED[name]):
        verified = outcome(verify, mutant)
        assert isinstance(verified, tuple) or verified in VERIFIER_CODES
        outcome(read_message, mutant)
        route_if_readable(mutant)


@pytest.mark.parametrize("name", STORED)
def test_a_header_that_ends_early_is_refused(name: str) -> None:
    """At whatever byte it was cut, unless only the padding at its end is missing."""
    header = STORED[name]
    for size in range(len(header)):
        cut = outcome(verify, header[:size])
        if isinstance(cut, Code):
            assert cut in VERIFIER_CODES
        else:
            assert fields_text(header[:size]) == fields_text(header)
        route_if_readable(header[:size])


def test_cpp_accepts_all_that_we_accept_and_reads_the_same(cpp_fields: Checker) -> None:
    """So a foreign reader behind us never meets a header that it would read differently."""
    accepted = [mutant for header in STORED.values() for mutant in mutants(header) if isinstance(outcome(verify, mutant), tuple)]

    assert len(accepted) > 100
    assert cpp_fields(accepted) == [fields_text(header) for header in accepted]


def test_a_warm_cache_never_changes_what_a_header_means() -> None:
    """Not even when damaged headers of the same length were read before it."""
    cache = LayoutCache(limit=10_000)
    headers = [mutant for name in ("tick_request", "full_request", "tick_reply") for mutant in mutants(STORED[name])]
    for header in [*STORED.values(), *headers, *STORED.values()]:
        cached = outcome(cache.read, header)
        if isinstance(cached, Layout):
            cached = replace(cached, key=0)
        assert cached == outcome(read_layout, header)


@given(st.sampled_from(sorted(STORED)), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_wrong_bytes_are_refused_or_harmless(name: str, changes: list[tuple[int, int]]) -> None:
    """Several at once."""
    header = bytearray(STORED[name])
    for at, value in changes:
        header[at % len(header)] = value
    outcome(read_message, bytes(header))
    route_if_readable(bytes(header))


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused(raw: bytes) -> None:
    """With and without the right identifier."""
    assert outcome(read_message, raw) in VERIFIER_CODES
    outcome(read_message, raw[:4] + b"SLT1" + raw[4:])
    route_if_readable(raw[:4] + b"SLT1" + raw[4:])
