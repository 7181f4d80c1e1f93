"""The workers as the broker deals with them: starts and deaths by the supervisor's word, hanging ones by the board.

Owner: the broker's main thread.
"""

from __future__ import annotations

from typing import Any

from schemas.logs import get_logger

from .channel import Channel
from .core import Core
from .dispatch import Dispatcher
from .incarnations import Incarnations
from .lanes import Lane
from .results import Results


class Crew:
    """All workers of one epoch.

    Args:
        endpoint: where clients really connect, told when every lane is ready; a port of 0 or * has a number by now.
        results: the sink is emptied at a reap, so that finished work is not run again; and it answers what ended.
    """

    def __init__(
        self,
        core: Core,
        incarnations: Incarnations,
        dispatcher: Dispatcher,
        channel: Channel,
        *,
        results: Results,
        endpoint: str,
    ) -> None:
        self._core = core
        self._incarnations = incarnations
        self._dispatcher = dispatcher
        self._channel = channel
        self._endpoint = endpoint
        self._results = results
        self._broken: dict[int, str] = {}  # processes with a replica in a crash loop, and why
        self._out_of_reach: set[int] = set()
        self._said_serving = False

    def obey(self, event: dict[str, Any]) -> None:
        """Do what one event of the supervisor asks."""
        name = event["event"]
        if name == "prepare":
            self._prepare(event["process"], event["replica"])
        elif name == "reaped":
            self._reaped(event["incarnation"])
        elif name == "unavailable":
            self._broken[event["process"]] = event["reason"]
            for lane in self._served_by(event["process"]):
                reason = self._why_unavailable(lane)
                for ended in self._core.make_unavailable(lane, reason) if reason else ():
                    self._results.answer(ended)

    def ready(self, number: int) -> None:
        """Put a warm process on the board; its lanes may have been given up before."""
        incarnation = self._incarnations.by_number.get(number)
        if incarnation is None or incarnation.ready:
            return
        if not self._dispatcher.connect(incarnation.process, number):
            if number not in self._out_of_reach:
                get_logger().error("no_descriptors", incarnation=number)
            self._out_of_reach.add(number)
            return
        self._out_of_reach.discard(number)
        self._incarnations.show(incarnation)
        self._broken.pop(incarnation.process, None)
        for lane in self._served_by(incarnation.process):
            lane.add_replica(incarnation.process, number)
            lane.unavailable = self._why_unavailable(lane)
        self._channel.send("up", incarnation=number)
        if not self._said_serving and all(lane.is_ready for lane in self._core.lanes):
            self._said_serving = True
            self._channel.send("serving", endpoint=self._endpoint)

    def report_hanging(self, now_ns: int) -> None:
        """Ask the supervisor to kill what hangs; look whether there are descriptors again for who is ready and out of reach."""
        for number in list(self._out_of_reach):
            self.ready(number)
        busy: set[int] = set()
        for lane in self._core.lanes:
            if lane.slots.used_count:
                busy |= lane.slots.takers()
        for number, reason in self._incarnations.hanging(now_ns, busy):
            self._channel.send("kill", incarnation=number, reason=reason)

    def _prepare(self, process: int, replica: int) -> None:
        """Make a column for a start; the incarnation is live before anybody can send to it."""
        made = self._incarnations.prepare(process)
        if made is None:
            self._channel.send("later", process=process, replica=replica)
            return
        self._core.live.add(made.number)
        self._channel.send("start", process=process, replica=replica, incarnation=made.number)

    def _reaped(self, number: int) -> None:
        """A process is dead and waited for: take what it still sent, condemn what it held, answer what may not run again."""
        if number not in self._incarnations.by_number:
            return
        self._out_of_reach.discard(number)
        self._results.drain_all()
        call = self._incarnations.remove(number)
        for ended in self._core.reaped(number, call):
            self._results.answer(ended)
        self._core.settle()
        self._dispatcher.disconnect(number)
        self._incarnations.release_column(number)

    def _why_unavailable(self, lane: Lane) -> str:
        """Return why a lane is closed: one of its processes cannot start and has no other replica; "" when it is open."""
        for part, serving in zip(lane.plan.cut, lane.replicas, strict=True):
            if part.process in self._broken and not serving:
                return self._broken[part.process]
        return ""

    def _served_by(self, process: int) -> list[Lane]:
        return [lane for lane in self._core.lanes if any(part.process == process for part in lane.plan.cut)]
