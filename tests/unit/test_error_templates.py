"""Error replies are patched, whatever their texts."""

from __future__ import annotations

import pytest

from schemas.error_templates import ErrorTemplates
from schemas.fb.Failure import Failure as GeneratedFailure
from schemas.fb.Message import Message
from schemas.messages import Failure, read_message
from schemas.status import Code, Flag, Kind


def test_an_error_carries_ids_code_and_texts() -> None:
    """And the waiting time."""
    header = ErrorTemplates().header((1, 2, 3), Code.BUSY, "full", retry_after_us=5, stage="broker", field="backlog")
    route, body = read_message(header)

    assert body == Failure(Code.BUSY, "full", 5, "broker", "backlog")
    assert (route.request_id, route.born_us, route.key) == (1, 2, 3)
    assert (route.kind, route.flags, route.payload_frames) == (Kind.ERROR, Flag.FINAL, 0)


def test_texts_of_one_length_share_a_template() -> None:
    """The second is not the first again."""
    templates = ErrorTemplates()
    templates.header((1, 2, 3), Code.BUSY, "one", retry_after_us=5, field="a")

    assert read_message(templates.header((4, 5, 6), Code.INTERNAL, "two", field="b"))[1] == Failure(
        Code.INTERNAL, "two", 0, "", "b"
    )


def test_the_generated_accessors_read_an_error() -> None:
    """Texts and numbers."""
    table = Message.GetRootAs(ErrorTemplates().header((1, 2, 3), Code.BUSY, "full", retry_after_us=5)).Body()
    read = GeneratedFailure()
    read.Init(table.Bytes, table.Pos)

    assert (read.Code(), read.Message(), read.RetryAfterUs(), read.Stage(), read.Field()) == (200, b"full", 5, b"", b"")


@pytest.mark.parametrize(("text", "cut"), [("x" * 600, "x" * 512), ("ä" * 300, "ä" * 256), ("x" + "ä" * 300, "x" + "ä" * 255)])
def test_a_long_message_is_cut_between_characters(text: str, cut: str) -> None:
    """At 512 bytes."""
    _, body = read_message(ErrorTemplates().header((0, 0, 0), Code.INTERNAL, text))

    assert body == Failure(Code.INTERNAL, cut)


def test_a_flood_of_lengths_starts_over() -> None:
    """And is answered all the same."""
    templates = ErrorTemplates()
    lengths = [(message, field) for message in range(40) for field in range(30)]
    for message, field in lengths:
        header = templates.header((1, 2, 3), Code.BUSY, "m" * message, field="f" * field)

    assert read_message(header)[1] == Failure(Code.BUSY, "m" * 39, 0, "", "f" * 29)
