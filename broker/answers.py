"""Answers to what is not inference: Hello, health, metadata, statistics. Owner: the broker's main thread."""

from __future__ import annotations

from heapq import nlargest

from schemas.arena import Words
from schemas.config import ServerConfig
from schemas.messages import (
    Body,
    Control,
    ControlReply,
    Health,
    HealthReply,
    Hello,
    Limits,
    Metadata,
    MetadataReply,
    Welcome,
)
from schemas.params import Params
from schemas.status import VERSION, Code, ControlOp, HealthScope, RequestError, printable
from schemas.wire import MAX_FRAMES, MAX_HEADER_BYTES, MAX_LIST, MAX_STATS
from schemas.words import GPU_PINNED_BYTES, GPU_POOL_BYTES, column_of

from . import accelerator
from .core import Core
from .lanes import Lane
from .lease_door import LeaseDoor
from .life import Client
from .metrics import Snapshot, of_client
from .outbox import Outbox
from .roster import Roster

SERVER = f"slotline/{VERSION}"
# Whose ledgers are told.
TOP_CLIENTS = 8
EXTENSIONS = ("packed", "deadline_budget", "born_us")


class Answers:
    """Knows the server well enough to describe it.

    *outboxes* are those of all its doors: what waits there is in flight.

    Args:
        columns: the board's, where workers write what memory they have on a GPU; None where there is no board.
        lease_door: where regions are lent, if any are.
    """

    def __init__(
        self, core: Core, config: ServerConfig, epoch: int, columns: Words | None = None, lease_door: LeaseDoor | None = None
    ) -> None:
        self._core = core
        self._columns = columns
        self._config = config
        self._epoch = epoch
        self._lanes = {lane.plan.name: lane for lane in core.lanes}
        self._lease_door = lease_door
        self.outboxes: list[Outbox] = []
        self.rosters: list[Roster] = []
        self._accelerated = accelerator.load()[0] is not None

    def answer(self, client: Client, body: object, *, is_control: bool) -> Body:
        """Return the reply to a message that asks something.

        Raises:
            RequestError: BAD_KIND for what clients do not send, MODEL_NOT_FOUND, NOT_SUPPORTED.
        """
        if isinstance(body, Hello):
            client.packed_replies = body.packed_replies
            client.name = client.name or body.client[:64]
            return self._welcome(client, is_control=is_control)
        if isinstance(body, Health):
            return self._health(body)
        if isinstance(body, Metadata):
            return self._metadata(body)
        if isinstance(body, Control) and is_control:
            return self._control(body)
        expected = "a question of a client" if is_control else "a question of a client; control messages on the control socket"
        raise RequestError(Code.BAD_KIND, field="kind", expected=expected, got=type(body).__name__)

    @property
    def state(self) -> str:
        """What the server is doing: starting, serving, degraded or draining."""
        if self._core.draining:
            return "draining"
        ready = [lane.is_ready for lane in self._core.lanes]
        return "serving" if all(ready) else "degraded" if any(ready) else "starting"

    def stats(self) -> Params:
        """Return every counter by name; the ledger is compared with what is really in flight."""
        ledger = self.ledger()
        codes = ledger.pop("codes")
        assert isinstance(codes, dict)
        stats: dict[str, int | float | str | bool] = {f"ledger.{k}": v for k, v in ledger.items() if not isinstance(v, dict)}
        stats |= {f"ledger.codes.{name}": count for name, count in codes.items()}
        stats |= {"state": self.state, "epoch": f"{self._epoch:016x}", "accelerated": self._accelerated}
        stats |= {f"leases.{name}": count for name, count in self._core.leases.stats().items()} if self._core.leases.count else {}
        for lane in self._core.lanes:
            stats |= {f"lane.{lane.plan.name}.{key}": value for key, value in _lane_stats(lane).items()}
            stats |= {f"lane.{lane.plan.name}.gpu.{key}": value for key, value in self._gpu_bytes(lane).items()}
        return stats | self._client_stats()

    def ledger(self) -> Snapshot:
        """Return the ledger, compared with what is really in flight."""
        finals_waiting = sum(outbox.finals_waiting for outbox in self.outboxes)
        return self._core.ledger.snapshot(self._core.in_flight + finals_waiting)

    def _client_stats(self) -> dict[str, int | float | str | bool]:
        """Return the ledgers of the connections that sent most. They are numbered: a routing id is nobody's business."""
        clients = [client for roster in self.rosters for client in roster.clients.values() if client.received]
        stats: dict[str, int | float | str | bool] = {}
        for rank, client in enumerate(nlargest(TOP_CLIENTS, clients, key=lambda client: client.received), 1):
            in_flight = len(client.in_flight) + sum(outbox.finals_for(client) for outbox in self.outboxes)
            stats[f"client.{rank}.name"] = printable(client.name)
            ledger = of_client(client.received, client.finals, in_flight)
            stats |= {f"client.{rank}.{key}": value for key, value in ledger.items()}
        return stats

    def _gpu_bytes(self, lane: Lane) -> dict[str, int]:
        """Return what the processes that serve a lane have on GPUs; lanes that share a process all show what it has."""
        words = {"pool_bytes": GPU_POOL_BYTES, "pinned_bytes": GPU_PINNED_BYTES}
        if self._columns is None:
            return dict.fromkeys(words, 0)
        columns = [column_of(number) for serving in lane.replicas for number in serving]
        return {name: sum(int(self._columns[column, word]) for column in columns) for name, word in words.items()}

    def _welcome(self, client: Client, *, is_control: bool) -> Welcome:
        config = self._config
        limits = Limits(
            max_header=MAX_HEADER_BYTES,
            max_payload=config.max_message_bytes,
            max_frames=MAX_FRAMES,
            max_in_flight=config.max_in_flight,
            default_budget_us=min(lane.plan.default_budget_us for lane in self._core.lanes),
            max_budget_us=config.max_budget_us,
        )
        door = None if is_control else self._lease_door
        if door is None:
            return Welcome(SERVER, self._epoch, limits)
        return Welcome(SERVER, self._epoch, limits, door.path, door.token_of(client))

    def _health(self, body: Health) -> HealthReply:
        lanes = self._core.lanes
        if body.scope == HealthScope.MODEL_READY:
            lanes = [self._lane(body.model, body.version)]
        ready = all(lane.is_ready for lane in lanes) and not self._core.draining
        return HealthReply(
            ok=body.scope == HealthScope.LIVE or ready,
            state=self.state,
            queued=sum(lane.backlog.count for lane in lanes),
            in_flight=sum(lane.in_flight for lane in lanes),
        )

    def _lane(self, model: str, version: str) -> Lane:
        lane = self._lanes.get(model)
        if lane is None:
            known = ", ".join(sorted(self._lanes))
            raise RequestError(Code.MODEL_NOT_FOUND, field="model", expected=f"one of {known}", got=model)
        if version not in ("", lane.plan.version):
            raise RequestError(Code.VERSION_NOT_FOUND, field="version", expected=lane.plan.version, got=version)
        return lane

    def _metadata(self, body: Metadata) -> MetadataReply:
        if not body.model:
            return MetadataReply(SERVER, versions=tuple(sorted(self._lanes))[:MAX_LIST], extensions=EXTENSIONS)
        plan = self._lane(body.model, body.version).plan
        return MetadataReply(
            plan.name,
            (plan.version,),
            plan.platform,
            plan.inputs,
            plan.outputs,
            EXTENSIONS,
            plan.max_batch_size,
            tuple(step.stage for step in plan.steps),
        )

    def _control(self, body: Control) -> ControlReply:
        if body.op != ControlOp.STATS:
            raise RequestError(Code.NOT_SUPPORTED, field="op", expected="STATS", got=body.op.name)
        return ControlReply(True, dict(list(self.stats().items())[:MAX_STATS]))


def _lane_stats(lane: Lane) -> dict[str, int | float | str | bool]:
    used, effects = lane.slots.used_count, lane.plan.batch_effects
    causes, mean_rows = lane.batches()
    return {
        "ready": lane.is_ready,
        "reason": lane.unavailable,
        "queued": lane.backlog.count,
        "queued_bytes": lane.backlog.bytes,
        "in_flight": lane.in_flight,
        "slots": lane.slots.count,
        "slots_free": lane.slots.count - used,
        "slots_waiting": len(lane.waiting),
        "slots_condemned": len(lane.slots.condemned),
        "slots_kept": lane.kept,
        "slots_overheld": lane.overheld,
        "window": lane.window.size,
        **{f"batches.{cause}": count for cause, count in causes.items()},
        "batch_rows": round(mean_rows, 3),
        "batch_dependent": "unknown" if effects is None else ", ".join(name for name, _ in effects),
        "replicas": "/".join(str(len(serving)) for serving in lane.replicas),
    }
