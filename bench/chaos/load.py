"""The load beside the checker: a process of its own with the ordinary asyncio client, many calls under way at once.

``python -m bench.chaos.load FILE`` reads its task from FILE (JSON, ``checker.Task``), works until a line comes on stdin, and says
in one line what came of it: exceptions by name as a caller sees them, and how late a call ended that had a budget.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.chaos.cases import Case
from bench.chaos.checker import Task
from bench.chaos.supply import make_cases
from clients import AsyncClient, SlotlineError
from schemas.arrays import Encoded
from schemas.tensors import NUMPY_NAME, DType, pack_bytes, unpack_bytes

# A caller that was refused or lost its server comes again after this.
PAUSE_S = 0.01


class Callers:
    """Callers that share one connection.

    Attributes:
        late_ns: by how much the latest call outlived its budget.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cases = make_cases(task.supply, task.seed + 1_000_000)
        self._client = AsyncClient(task.endpoint, timeout_s=task.budget_us / 1e6, connect=False)
        self.calls = self.ok = self.wrong = self.late_ns = 0
        self.errors: Counter[str] = Counter()
        self.stopping = False

    async def run(self) -> None:
        """Call until told to stop; every call that was begun ends."""
        async with self._client, asyncio.TaskGroup() as group:
            for _ in range(self._task.outstanding):
                group.create_task(self._call_on())

    async def _call_on(self) -> None:
        every_s = self._task.outstanding / self._task.rate if self._task.rate else 0.0
        while not self.stopping:
            began = time.monotonic()
            await self._call(self._cases.next())
            await asyncio.sleep(max(0.0, began + every_s - time.monotonic()))

    async def _call(self, case: Case) -> None:
        self.calls += 1
        began_ns = time.monotonic_ns()
        try:
            result = await self._client.infer(
                case.model, _arrays(case), budget_us=self._task.budget_us, idempotent=self._task.idempotent
            )
        except SlotlineError as error:
            self.errors[type(error).__name__] += 1
            await asyncio.sleep(PAUSE_S)
        else:
            found = {name: _raw(array) for name, array in result.items()}
            self.ok += found == case.expected
            self.wrong += found != case.expected
        self.late_ns = max(self.late_ns, time.monotonic_ns() - began_ns - self._task.budget_us * 1000)

    def report(self) -> dict[str, Any]:
        """Return what the callers saw."""
        errors = dict(sorted(self.errors.items()))
        return {
            "calls": self.calls,
            "ok": self.ok,
            "errors": errors,
            "wrong": self.wrong,
            "late_ms": round(self.late_ns / 1e6, 1),
        }


def _arrays(case: Case) -> Mapping[str, Encoded | NDArray[Any]]:
    """Return a case's tensors as a caller has them."""
    arrays: dict[str, Encoded | NDArray[Any]] = {}
    for form, raw in zip(case.forms, case.tensors, strict=True):
        if form.dtype == DType.ENCODED:
            arrays[form.name] = Encoded(raw)
        elif form.dtype == DType.BYTES:
            arrays[form.name] = np.array(unpack_bytes(raw, int(np.prod(form.shape)))[0], dtype=object).reshape(form.shape)
        else:
            arrays[form.name] = np.frombuffer(raw, NUMPY_NAME[form.dtype]).reshape(form.shape)
    return arrays


def _raw(array: NDArray[Any]) -> bytes:
    """Return an output as it lies on the wire."""
    return pack_bytes(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()


async def work(task: Task) -> dict[str, Any]:
    """Call until a line comes on stdin."""
    callers = Callers(task)

    def stop() -> None:
        callers.stopping = True
        asyncio.get_running_loop().remove_reader(sys.stdin)

    asyncio.get_running_loop().add_reader(sys.stdin, stop)
    print(json.dumps({"ready": True}), flush=True)
    await callers.run()
    return callers.report()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(Task.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))))), flush=True)
