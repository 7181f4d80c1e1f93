"""Forms: where tensors go, what is part of a form, and what a server's limits refuse."""

from __future__ import annotations

from typing import Any

import pytest

from clients.forms import MAX_FORMS, MAX_INLINE_TOTAL_BYTES, Forms, Tensors, make_form
from schemas.layout import read_layout
from schemas.messages import Limits
from schemas.status import Code, RequestError
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES


def tensors(*sizes: int) -> Tensors:
    """Return UINT8 tensors of these sizes."""
    return tuple((f"x{index}", (DType.UINT8, (size,), size, "")) for index, size in enumerate(sizes))


def test_small_tensors_are_inline_and_large_ones_in_frames() -> None:
    """The border is the wire's."""
    form = make_form("m", tensors(MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 0), {})

    assert (form.inline, form.frames) == ((0, 2), (1,))


def test_small_tensors_take_frames_when_the_header_is_full() -> None:
    """The header stays below its limit."""
    count = MAX_INLINE_TOTAL_BYTES // MAX_INLINE_BYTES

    form = make_form("m", tensors(*[MAX_INLINE_BYTES] * (count + 2)), {})

    assert (len(form.inline), form.frames) == (count, (count, count + 1))


def test_a_form_is_found_again() -> None:
    """Also when what differs is not in the template."""
    forms = Forms()

    assert forms.find("m", tensors(4), {}) is forms.find("m", tensors(4), {"budget_us": 5, "key": 1, "born_us": 2})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"priority": 1}),
        ({"params": {"a": 1}}, {"params": {"a": True}}),
        ({"params": {"a": 1}}, {"params": {"a": 1.0}}),
        ({"outputs": ("a",)}, {"outputs": ("a", "b")}),
        ({"version": "1"}, {"client_request_id": "1"}),
    ],
)
def test_what_a_header_says_is_part_of_the_form(one: Any, other: Any) -> None:
    """1, 1.0 and True are equal in Python and not on the wire."""
    forms = Forms()

    assert forms.find("m", tensors(4), one) is not forms.find("m", tensors(4), other)


def test_options_are_in_the_header() -> None:
    """A server reads what was asked."""
    form = make_form(
        "m", tensors(1), {"version": "2", "outputs": ["y"], "params": {"top": 3}, "finite": True, "client_request_id": "r1"}
    )

    layout = read_layout(form.template.header(1, 0, [b"a"]))

    assert (layout.version, layout.outputs, layout.params, layout.finite) == ("2", ("y",), {"top": 3}, True)
    assert layout.client_request_id_bytes == 2


def test_forms_are_bounded() -> None:
    """Pictures of ever new sizes do not fill the memory."""
    forms = Forms()
    first = forms.find("m", tensors(4), {})
    for size in range(5, 5 + MAX_FORMS):
        forms.find("m", tensors(size), {})

    assert forms.find("m", tensors(4), {}) is not first


@pytest.mark.parametrize(
    ("limits", "field"),
    [(Limits(max_frames=1), "payload_frames"), (Limits(max_payload=9_999), "inputs"), (Limits(max_header=64), "header")],
)
def test_each_limit_of_the_server_is_checked(limits: Limits, field: str) -> None:
    """The error names it."""
    forms = Forms()
    forms.use_limits(limits)

    with pytest.raises(RequestError, match="server's limit") as raised:
        forms.find("m", tensors(5_000, 5_000), {})
    assert (raised.value.code, raised.value.field) == (Code.TOO_LARGE, field)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"outputs": "y"}, "outputs: expected a sequence of names"),
        ({"params": {"a": [1]}}, "a: expected a bool, i64, finite double or text, got list"),
        ({"params": {"a": float("nan")}}, "a: expected"),
    ],
)
def test_an_option_that_cannot_be_written_is_refused(options: Any, match: str) -> None:
    """The error names it."""
    with pytest.raises(RequestError, match=match):
        make_form("m", tensors(1), options)


@pytest.mark.parametrize("model", ["", None, 5])
def test_a_model_needs_a_name(model: Any) -> None:
    """A text that is not empty."""
    with pytest.raises(RequestError, match="model: expected a name"):
        make_form(model, tensors(1), {})
