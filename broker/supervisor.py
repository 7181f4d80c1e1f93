"""The supervisor: makes the memory, starts broker and workers, knows their deaths and reaps them, starts them again.

One thread, neither zmq nor numpy: it must not die of what its children do. A worker's death is told to the broker; the broker's
own ends the epoch, and everything below is started anew with fresh memory.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from schemas.config import Config
from schemas.logs import get_logger
from schemas.plan import Plan
from schemas.spawn import Spawn, plan_path
from schemas.words import BOARD_BYTES, COLUMN_WORDS, HEAD_BEAT_NS, HEAD_WORDS, RUN_STARTED_NS, column_of

from .channel import Channel
from .children import Child, Post, child_of, environment, make_posts, reap, status_text, why_hanging
from .memory import EpochMemory
from .notify import Notifier
from .places import Places
from .restarts import Restarts

# How often children are looked at for being stopped, and the broker's beat.
WATCH_NS = 200_000_000
# A broker that has not beaten for this long hangs; it beats every 0.2 s.
BROKER_SILENCE_NS = 5_000_000_000
# Until its first beat: a start on a machine that is busy with other starts takes seconds.
BROKER_START_NS = 30_000_000_000
# Given on top of drain_s before a broker that does not end is killed.
DRAIN_GRACE_NS = 5_000_000_000
EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2


class Supervisor:
    """Runs one server until it is told to stop.

    Args:
        command: the command line that starts a child, the spawn's JSON is appended.
        log_level: of every process.
        on_serving: called once with the clients' endpoint, when every lane is ready.
    """

    def __init__(
        self, config: Config, plan: Plan, places: Places, *, command: list[str], log_level: str, on_serving: Callable[[str], None]
    ) -> None:
        self._config = config
        self._plan = plan
        self._places = places
        self._command = command
        self._log_level = log_level
        self._on_serving = on_serving
        self._posts = make_posts(plan)
        self._broker_restarts = Restarts()
        self._notifier = Notifier(os.environ)
        self._served_at = ""  # the clients' endpoint, its port too, once every lane was served
        self._signals = 0
        self._kill_broker_at_ns = 0
        self._log = get_logger()

    def run(self) -> int:
        """Serve epochs until the last one ends well; return the exit code."""
        plan_path(self._places.directory).write_text(self._plan.to_json())
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        while True:
            code = self._run_epoch()
            if code is not None:
                return code
            restart = self._broker_restarts.died(time.monotonic_ns(), self._broker.ready_ns)
            if restart.is_crash_loop and not self._served_at:
                reason = f"the broker died five times while the server started, last by {self._broker_end}"
                print(f"slotline: {reason}: see its log lines above", file=sys.stderr, flush=True)
                return EXIT_FAILED
            self._pause(min(restart.at_ns, time.monotonic_ns() + 5_000_000_000))
            if self._signals:
                return EXIT_FAILED

    # --- one epoch -------------------------------------------------------------------------------------------------------

    def _run_epoch(self) -> int | None:
        """Start everything, watch until the broker is gone; return the exit code, None to begin another epoch."""
        self._epoch = secrets.randbits(64)
        self._memory = EpochMemory(self._plan, self._config.leases)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = Channel(ours.detach())
        self._board = memoryview(mmap.mmap(self._memory.board, BOARD_BYTES)).cast("Q")
        self._refusal = ""
        try:
            self._broker = self._start("broker", process=-1, replica=0, incarnation=0, channel=theirs.fileno())
            theirs.close()
            self._watch_ns = 0
            for post in self._posts:
                post.start_at_ns = 0
            return self._watch_epoch()
        finally:
            self._end_epoch()

    def _watch_epoch(self) -> int | None:
        while True:
            self._ask_for_starts()
            self._poll()
            now_ns = time.monotonic_ns()
            if now_ns >= self._watch_ns:
                self._watch_ns = now_ns + WATCH_NS
                self._watch(now_ns)
            self._listen()
            for post in self._posts:
                status = None if post.child is None else reap(post.child)
                if post.child is not None and status is not None and self._worker_died(post, post.child, status):
                    return EXIT_FAILED
            status = reap(self._broker)
            if status is not None:
                self._listen()  # for a refusal that came between the look at the channel and its death
                return self._broker_died(status)

    def _poll(self) -> None:
        """Sleep until a child dies, the broker speaks, a signal comes, or something is due."""
        poller = select.poll()
        children = [self._broker, *(post.child for post in self._posts if post.child is not None)]
        for descriptor in (self._wake, self._channel.fileno(), *(child.pidfd for child in children)):
            poller.register(descriptor, select.POLLIN)
        due = [self._watch_ns, *(post.start_at_ns for post in self._posts if post.start_at_ns is not None)]
        wait_ms = max(0, (min(due) - time.monotonic_ns()) // 1_000_000 + 1)
        events = poller.poll(min(wait_ms, WATCH_NS // 1_000_000))
        if any(descriptor == self._wake for descriptor, _ in events):
            for _ in os.read(self._wake, 512):
                self._terminate()

    def _terminate(self) -> None:
        """Ask the broker to finish what it accepted; a second signal makes it hurry."""
        self._signals += 1
        self._channel.send("terminate")
        drain_ns = 0 if self._signals > 1 else int(self._config.server.drain_s * 1e9)
        self._kill_broker_at_ns = time.monotonic_ns() + drain_ns + DRAIN_GRACE_NS
        self._notifier.stopping()
        self._log.info("stopping", signals=self._signals)

    def _ask_for_starts(self) -> None:
        now_ns = time.monotonic_ns()
        for post in self._posts:
            if post.child is None and post.start_at_ns is not None and post.start_at_ns <= now_ns:
                post.start_at_ns = None
                self._channel.send("prepare", process=post.process, replica=post.replica)

    def _listen(self) -> None:
        for event in self._channel.receive() or ():
            name = event["event"]
            if name == "start":
                self._start_worker(event["process"], event["replica"], event["incarnation"])
            elif name == "later":
                self._post(event["process"], event["replica"]).start_at_ns = time.monotonic_ns() + WATCH_NS
            elif name == "up":
                self._came_up(event["incarnation"])
            elif name == "kill":
                self._kill_hanging(event["incarnation"], event["reason"])
            elif name == "serving" and not self._served_at:
                self._served_at = event["endpoint"]
                self._on_serving(self._served_at)
                self._notifier.ready()
            elif name == "refused":
                self._refusal = event["reason"]

    # --- children --------------------------------------------------------------------------------------------------------

    def _start(self, name: str, *, process: int, replica: int, incarnation: int, channel: int) -> Child:
        spawn = Spawn(
            name=name,
            process=process,
            replica=replica,
            incarnation=incarnation,
            epoch=self._epoch,
            config=str(Path(self._config.source).absolute()),
            # A port that was chosen at the first start is the clients' from then on.
            endpoint=self._served_at or self._config.server.endpoint,
            control=self._config.server.control or "",
            rebinds=bool(self._served_at),
            log_level=self._log_level,
            directory=self._places.directory,
            board=self._memory.board,
            arenas=self._memory.arenas,
            leases=self._memory.leases,
            channel=channel,
            parent=os.getpid(),
        )
        # A group of its own, so that a terminal's Ctrl-C reaches the supervisor alone.
        process_ = subprocess.Popen(
            [*self._command, spawn.to_json()],
            pass_fds=spawn.descriptors,
            stdin=subprocess.DEVNULL,
            process_group=0,
            env=environment(process),
        )
        process_.returncode = 0  # reaped here, not by Popen
        self._log.info("started", child=name, child_pid=process_.pid, incarnation=incarnation)
        return Child(name, process_.pid, os.pidfd_open(process_.pid), incarnation, time.monotonic_ns())

    def _start_worker(self, process: int, replica: int, incarnation: int) -> None:
        post = self._post(process, replica)
        post.child = self._start(post.name, process=process, replica=replica, incarnation=incarnation, channel=-1)

    def _post(self, process: int, replica: int) -> Post:
        return next(p for p in self._posts if (p.process, p.replica) == (process, replica))

    def _came_up(self, incarnation: int) -> None:
        child = child_of(self._posts, incarnation)
        if child is not None:
            child.ready_ns = time.monotonic_ns()
            self._broker.ready_ns = self._broker.ready_ns or child.ready_ns

    def _kill_hanging(self, incarnation: int, reason: str) -> None:
        child = child_of(self._posts, incarnation)
        if child is not None:
            self._log.warning("killed_hanging", child=child.name, child_pid=child.pid, reason=reason)
            os.kill(child.pid, signal.SIGKILL)

    def _watch(self, now_ns: int) -> None:
        """Kill children that are stopped or do not get ready, and a broker that does not beat or does not end."""
        for child in (self._broker, *(post.child for post in self._posts if post.child is not None)):
            reason = why_hanging(child, now_ns)
            if reason:
                self._log.warning("killed_hanging", child=child.name, child_pid=child.pid, reason=reason)
                os.kill(child.pid, signal.SIGKILL)
        beat_ns = self._board[HEAD_BEAT_NS]
        silent = now_ns - beat_ns > BROKER_SILENCE_NS if beat_ns else now_ns - self._broker.started_ns > BROKER_START_NS
        too_late = bool(self._kill_broker_at_ns) and now_ns > self._kill_broker_at_ns
        if silent or too_late:
            self._log.error("killed_broker", reason="it does not end" if too_late else "it does not beat")
            os.kill(self._broker.pid, signal.SIGKILL)
        elif beat_ns:
            self._notifier.alive(now_ns)

    def _worker_died(self, post: Post, child: Child, status: int) -> bool:
        """Tell the broker and plan the next start; True when the server never came up and never will."""
        now_ns = time.monotonic_ns()
        run_started = HEAD_WORDS + column_of(child.incarnation) * COLUMN_WORDS + RUN_STARTED_NS
        restart = post.restarts.died(now_ns, child.ready_ns, in_call=self._board[run_started] != 0)
        self._log.warning("died", child=child.name, child_pid=child.pid, status=status_text(status))
        post.child = None
        post.start_at_ns = restart.at_ns
        self._channel.send("reaped", incarnation=child.incarnation)
        if not restart.is_crash_loop:
            return False
        reason = f"process {post.name} died five times, last by {status_text(status)}"
        self._log.error("crash_loop", child=post.name, reason=reason)
        self._channel.send("unavailable", process=post.process, reason=reason)
        if not self._served_at:
            print(f"slotline: {reason}: see its log lines above", file=sys.stderr, flush=True)
        return not self._served_at

    def _broker_died(self, status: int) -> int | None:
        if self._refusal:
            print(f"slotline: {self._refusal}", file=sys.stderr, flush=True)
            return EXIT_REFUSED
        if self._signals:
            return EXIT_OK if status == 0 else EXIT_FAILED
        self._broker_end = status_text(status)
        self._log.error("broker_died", status=self._broker_end)
        return None

    def _end_epoch(self) -> None:
        """Kill and reap every child, give the memory back, remove the sockets."""
        children = [post.child for post in self._posts if post.child is not None]
        if hasattr(self, "_broker"):
            children.append(self._broker)
        for child in children:
            if child.pidfd >= 0:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        for child in children:
            if child.pidfd >= 0:
                os.waitpid(child.pid, 0)
                os.close(child.pidfd)
        for post in self._posts:
            post.child = None
        self._channel.close()
        mapping = self._board.obj
        self._board.release()
        assert isinstance(mapping, mmap.mmap)
        self._memory.close()
        self._places.sweep()

    def _pause(self, until_ns: int) -> None:
        """Wait out the broker's back-off; a signal ends it."""
        wait_ms = max(0, (until_ns - time.monotonic_ns()) // 1_000_000)
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        if poller.poll(wait_ms):
            self._signals += 1
