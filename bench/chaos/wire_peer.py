"""The least that speaks to a server: one DEALER and the codec. No retry, no client library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import zmq

from bench.chaos.cases import Case, Expected
from schemas.layout import Layout, read_route
from schemas.layout_cache import LayoutCache
from schemas.messages import Body, Control, ControlReply, Failure, Hello, Metadata, MetadataReply, read_message, write_message
from schemas.params import Params
from schemas.status import ConfigError, ControlOp, Flag, Kind, Place, RequestError
from schemas.templates import RequestTemplate, TensorForm

ASK_S = 30.0
_ERROR, _REPLY = int(Kind.ERROR), int(Kind.INFER_REPLY)
MAX_TEMPLATES = 4096


class WirePeer:
    """One connection.

    Args:
        packed_replies: say in a Hello that replies may come packed.
    """

    def __init__(self, endpoint: str, *, packed_replies: bool = False) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
            self.socket.setsockopt(option, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self.socket.connect(endpoint)
        self._cache = LayoutCache()
        self._templates: dict[tuple[str, tuple[TensorForm, ...]], RequestTemplate] = {}
        if packed_replies:
            self.ask(Hello("slotline-chaos/1", ("SLT1",), True))

    def ask(self, body: Body) -> Body:
        """Ask something that is no inference, and return the answer; nothing else may be in flight.

        Raises:
            ConfigError: no answer.
        """
        self.socket.send(write_message(body, (1, 0, 0)))
        if not self.socket.poll(int(ASK_S * 1000)):
            raise ConfigError(f"the server did not answer a {type(body).__name__} within {ASK_S:g} s")
        _, answer = read_message(self.socket.recv())
        assert answer is not None
        assert not isinstance(answer, Layout)
        return answer

    # --- sending ---------------------------------------------------------------------------------------------------------

    def frames_of(self, case: Case, request_id: int, budget_us: int, flags: int = Flag.IDEMPOTENT) -> list[bytes]:
        """Return the frames of one request."""
        template = self._template(case)
        inline = [raw for form, raw in zip(case.forms, case.tensors, strict=True) if form.inline]
        header = template.header(request_id, budget_us, inline, flags=flags)
        return [header, *(raw for form, raw in zip(case.forms, case.tensors, strict=True) if not form.inline)]

    def _template(self, case: Case) -> RequestTemplate:
        key = (case.model, case.forms)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = RequestTemplate(case.model, case.forms)
        return template

    # --- receiving -------------------------------------------------------------------------------------------------------

    def finals(self) -> Iterator[tuple[int, Expected | None]]:
        """Yield (id, outcome) of each final that is there: outputs by name, an error's code, None for what cannot be read."""
        while self.socket.poll(0):
            frames = self.socket.recv_multipart()
            if len(frames) > 1 and self._is_packed(frames[0]):
                for header in frames:
                    yield self._final(header, ())
            else:
                yield self._final(frames[0], frames[1:])

    def _is_packed(self, header: bytes) -> bool:
        return bool(read_route(header, self._cache.read(header)).flags & Flag.PACKED)

    def _final(self, header: bytes, frames: Sequence[bytes]) -> tuple[int, Expected | None]:
        try:
            layout = self._cache.read(header)
        except RequestError:
            return 0, None
        route = read_route(header, layout)
        if route.kind == _ERROR:
            failure = read_message(header)[1]
            assert isinstance(failure, Failure)
            return route.request_id, failure.code.name
        if route.kind != _REPLY:
            return route.request_id, None
        return route.request_id, _outputs(header, layout, frames)

    def close(self) -> None:
        """Close the connection at once; what was not sent is dropped."""
        self.socket.close(linger=0)
        self._context.term()


def _outputs(header: bytes, layout: Layout, frames: Sequence[bytes]) -> dict[str, bytes] | None:
    found: dict[str, bytes] = {}
    for tensor in layout.tensors:
        if tensor.place == Place.INLINE:
            found[tensor.name] = header[tensor.inline_at : tensor.inline_at + tensor.nbytes]
        elif tensor.frame < len(frames) and len(frames[tensor.frame]) == tensor.nbytes:
            found[tensor.name] = frames[tensor.frame]
        else:
            return None
    return found


def statistics(control: str) -> Params:
    """Return a server's statistics by name.

    Raises:
        ConfigError: no answer.
    """
    peer = WirePeer(control)
    try:
        answer = peer.ask(Control(ControlOp.STATS))
    finally:
        peer.close()
    assert isinstance(answer, ControlReply)
    return answer.stats


def metadata(endpoint: str, model: str) -> MetadataReply:
    """Return what a lane takes and gives.

    Raises:
        ConfigError: the server does not say.
    """
    peer = WirePeer(endpoint)
    try:
        answer = peer.ask(Metadata(model))
    finally:
        peer.close()
    if not isinstance(answer, MetadataReply):
        raise ConfigError(f"the server does not describe lane {model}: {answer}")
    return answer
