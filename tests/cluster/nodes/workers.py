"""A worker as the control plane sees it: the real protocol of the coordinator, everything else simulated.

`millpond.protocol.client` sends the heartbeats. Answers are followed at once, except for what takes time in reality:
taking over, and restoring state that is not on the pod's disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millpond.protocol import (
    Answer,
    Epoch,
    Heartbeat,
    RefusalCode,
    Role,
    TaskReport,
    TaskState,
    Trouble,
    clock,
)
from millpond.protocol.client import CoordinatorClient
from millpond.protocol.loads import WorkerLoad
from tests.cluster.nodes.images import Image
from tests.cluster.nodes.records import Work
from tests.cluster.nodes.streams import Streams

__all__ = ("Exit", "Worker")

END = 20_000
"""Records in each task's changelogs."""
_REPORT_S = 0.5
_MEASURE_MS = 1000
_TURN_S = 0.05
_LEAVING_S = 0.2
_ADMISSION_TIMEOUT_S = 2.0
_KNOCK_S = 0.2
_UNDECIDED = frozenset({RefusalCode.CLAIM_PENDING, RefusalCode.CLAIM_REFUSED})


class Exit(NamedTuple):
    """How a container ended."""

    code: int
    message: str = ""
    """What it wrote into its termination log."""
    reason: str = "Error"


@dataclass
class _Held:
    role: Role
    offset: float = 0.0
    running: bool = False


class Worker:
    """One process of an application.

    Args:
        name: its id, which is the name of its pod.
        environment: of its container.
        files: the directories of its volumes: `token` and `ca.crt`.
        image: its image.
        streams: the data of the application in Kafka.
        disk: offsets of its state, by task; kept for the next worker with this volume.
        kafka: the id of the Kafka cluster that it reaches.
        changed: called when its readiness may have changed.

    Attributes:
        incarnation: different for each start.
        answer: the last one.
        refusal: why the coordinator rejects it, if it does.
        started: whether it has started to work.
        credentials_changed: what it reports of its credentials; tests may set it.
    """

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        files: Path,
        image: Image,
        streams: Streams,
        disk: dict[str, float],
        kafka: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.image = image
        self.incarnation = uuid.uuid4().hex
        self.answer: Answer | None = None
        self.started = False
        self.frozen = False
        self.credentials_changed = False
        self._kafka = kafka
        self._streams = streams
        self._disk = disk
        self._changed = changed
        self._attention = asyncio.Event()
        self._held: dict[str, _Held] = {}
        self._found: dict[str, str] = {}
        self._ordered: set[tuple[str, str | None, str]] = set()
        self._taking: dict[tuple[str, str | None, str], float] = {}
        self._leaving = False
        self._patience_s = _seconds(environment.get("MILLPOND_SHUTDOWN_TIMEOUT", "20s"))
        self._crashes_at = float("inf")
        self._reported_at = self._progressed_at = self._look_again_at = 0.0
        self._settled = False
        self._urgent = False
        self._work_done: Work | None = None
        self._load: WorkerLoad | None = None
        self._environment = environment
        self._files = files
        self._client: CoordinatorClient | None = None
        if "MILLPOND_COORDINATOR_URL" in environment:
            self._client = self._new_client(self._heartbeat(image.topology.hash if image.trouble is None else ""))

    @property
    def refusal(self) -> RefusalCode | None:
        refusal = self._client.refusal if self._client is not None else None
        return None if refusal is None else refusal.code

    @property
    def _rejected(self) -> bool:
        """Close everything: it is rejected for what it runs."""
        return self._client is not None and self._client.rejected

    @property
    def ready(self) -> bool:
        """The result of /readyz."""
        never_in = self.refusal is not None and self._client is not None and self._client.connected_at is None
        return self._settled and not never_in and not self._rejected

    @property
    def tasks(self) -> dict[str, Role]:
        """The tasks that it holds."""
        return {task: held.role for task, held in list(self._held.items())}

    def terminate(self) -> None:
        """Like SIGTERM: it hands over its tasks, as long as other workers can take them, and ends."""
        self._leaving = self._urgent = True
        self._attention.set()

    def freeze(self, *, frozen: bool) -> None:
        """Like SIGSTOP and SIGCONT; its network handles the connections."""
        self.frozen = frozen
        self._progressed_at = 0.0
        if frozen:
            self._stop_all("froze")
        self._attention.set()

    def _look(self) -> None:
        """Note a change that it may have to follow."""
        self._look_again_at = 0.0
        self._attention.set()

    def _heard(self) -> None:
        """Note a contact with the coordinator."""
        self._attention.set()
        self._changed()

    async def run(self) -> Exit:
        """Run until it ends; cancelled, it dies at once."""
        try:
            await asyncio.sleep(self.image.starts_after)
            if self.image.crash is not None and not self.image.crash_after:
                return _crash(self.image)
            if self.image.trouble is not None:
                return await self._wait_for_ever()
            return await self._work()
        finally:
            self._stop_all("died")

    async def _wait_for_ever(self) -> Exit:
        while not self._leaving:
            if self._client is not None and not self.frozen:
                await self._client.once()
            await asyncio.sleep(_REPORT_S)
        return Exit(0, reason="Completed")

    async def _work(self) -> Exit:
        if not await self._admitted():
            return Exit(0, reason="Completed")
        self.started = True
        if self.image.crash is not None:
            self._crashes_at = clock.monotonic() + self.image.crash_after
        self._streams.listeners[self._look] = None
        heartbeats = asyncio.create_task(self._client.run()) if self._client is not None else None
        try:
            # Kafka says so: nobody else has to.
            mine = [each for each in list(self._streams.owners) if self._may_resume(each)]
            await self._await_admission(mine)
            for task in mine:
                if not self._rejected and self._may_resume(task):
                    self._hold(task, Role.ACTIVE)
            while not (self._leaving and self._may_leave()):
                if not self.frozen:
                    if clock.monotonic() >= self._crashes_at:
                        return _crash(self.image)
                    if self.refusal is RefusalCode.REPLACED:
                        return Exit(1, '{"reason": "OwnershipError", "message": "A newer process has this name."}')
                    self._turn()
                    self._changed()
                await self._rest()
            self._stop_all("ended")
        finally:
            self._streams.listeners.pop(self._look, None)
            if heartbeats is not None:
                heartbeats.cancel()
                await asyncio.gather(heartbeats, return_exceptions=True)
        if self._client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._client.leave()
        return Exit(0, reason="Completed")

    async def _admitted(self) -> bool:
        """Wait until the coordinator admits it to its Kafka; return whether that was before it was terminated."""
        client = self._client
        if client is None:
            return True
        door = self._new_client(self._heartbeat(""))
        until, refused = clock.monotonic() + _ADMISSION_TIMEOUT_S, False
        while not self._leaving:
            if not self.frozen:
                answered = await door.once()
                undecided = door.refusal is not None and door.refusal.code in _UNDECIDED
                refused = refused or undecided
                if (answered and door.refusal is None) or (not refused and clock.monotonic() >= until):
                    return True
            await asyncio.sleep(_KNOCK_S)
        return False

    async def _rest(self) -> None:
        """Wait until something changes, or the next thing is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if self.frozen else max(0.0, self._next_s())):
                await self._attention.wait()
        await asyncio.sleep(_TURN_S)  # more may come with it
        self._attention.clear()

    def _next_s(self) -> float:
        """Seconds until the next thing is due."""
        now = clock.monotonic()
        waits = [
            self._reported_at + _REPORT_S - now,
            self._crashes_at - now,
            *(at - now for at in self._taking.values()),
        ]
        rate = self._rate()
        waits += [(END - held.offset) / rate for held in self._held.values() if held.offset < END]
        if self._leaving:
            waits.append(min(_LEAVING_S, self._patience_s))
        return min(waits)

    def _rate(self) -> float:
        """Changelog records that it restores per second."""
        return END / self.image.restores_for if self.image.restores_for else END * 1e6

    def _may_resume(self, task: str) -> bool:
        return self._streams.may_resume(task, self.name, self.image.topology.hash)

    async def _await_admission(self, mine: list[str]) -> None:
        """Wait for the admission before resuming its own tasks."""
        if self._client is None:
            return
        claims = {task: TaskReport(Role.ACTIVE, TaskState.ACQUIRING) for task in mine}
        self._client.report(claims, {task: int(offset) for task, offset in self._disk.items()}, {}, Epoch())
        until = clock.monotonic() + _ADMISSION_TIMEOUT_S
        while not self._client.heard.is_set() and clock.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - clock.monotonic()):
                    await self._attention.wait()
            self._attention.clear()

    def _may_leave(self) -> bool:
        if self._client is None or self._client.refusal is not None or self._patience_s <= 0:
            return True
        at, answer = self._client.connected_at, self.answer
        if at is None or answer is None or clock.monotonic() - at > answer.session_timeout_ms / 1000:
            return True
        return answer.may_leave or not any(each.role is Role.ACTIVE for each in self._held.values())

    # One turn.

    def _turn(self) -> None:
        before = self._standing()
        answer = self._client.news() if self._client is not None else None
        now = clock.monotonic()
        if self._rejected:
            self._withdraw()
        elif answer is not None:
            self.answer = answer
        if self.answer is not None and (answer is not None or now >= self._look_again_at):
            self._look_again_at = float("inf")
            self._follow(self.answer)
        self._take_over()
        self._progress()
        self._urgent = self._urgent or self._standing() != before
        if self._urgent or now - self._reported_at > _REPORT_S:
            self._report(urgent=self._urgent)
            self._reported_at, self._urgent = now, False

    def _withdraw(self) -> None:
        self._stop_all("withdrew")
        self._held.clear()
        self._taking.clear()
        self._ordered.clear()
        self.answer = None

    def _standing(self) -> tuple[int, dict[str, bool]]:
        return len(self._found), {task: held.running for task, held in self._held.items()}

    def _follow(self, answer: Answer) -> None:
        streams = self._streams
        orders = {(task, order.previous, owner) for order in answer.take_over for task, owner in order.owners.items()}
        for each in orders - self._ordered:  # each is carried out once, however often it is repeated
            self._taking[each] = clock.monotonic() + self.image.takes_over_after
        self._ordered = orders
        for task, owner in answer.release.items():
            held = self._held.get(task)
            if held is not None and held.role is Role.ACTIVE and streams.owners.get(task) == self.name:
                streams.end(task, self.incarnation, "released")
                self._found[task] = streams.move(task, self.name, owner, self.name, self.image.topology.hash)
                self._drop(task)
        for task, role in answer.tasks.items():
            if role is not Role.ACTIVE:
                if task not in self._held:
                    self._hold(task, role)
                elif self._held[task].role is not Role.ACTIVE:
                    self._held[task].role = role
            elif streams.owners.get(task) == self.name:
                self._hold(task, Role.ACTIVE)
            elif (found := streams.owners.get(task)) is not None:
                self._found[task] = found
        for task, held in list(self._held.items()):
            if held.role is not Role.ACTIVE and task not in answer.tasks:
                self._drop(task)

    def _take_over(self) -> None:
        now = clock.monotonic()
        for (task, previous, owner), due in list(self._taking.items()):
            if now >= due:
                del self._taking[task, previous, owner]
                found = self._streams.move(task, previous, owner, self.name, self.image.topology.hash)
                self._found[task] = found
                if self._found[task] == self.name:
                    self._hold(task, Role.ACTIVE)

    def _progress(self) -> None:
        """Restore a little, notice fencing, and activate restored tasks."""
        now = clock.monotonic()
        passed, self._progressed_at = now - (self._progressed_at or now), now
        if self._leaving:
            self._patience_s -= passed
        rate = self._rate()
        for task, held in list(self._held.items()):
            if held.role is Role.ACTIVE and self._streams.owners.get(task) != self.name:
                self._found[task] = self._streams.owners.get(task, "")
                self._drop(task)
                continue
            if held.role is Role.ACTIVE and held.running and not self._streams.runs(task, self.incarnation):
                held.running = False  # fenced meanwhile, and the owner again: the next commit fails, and it starts over
            held.offset = min(held.offset + rate * passed, END)
            if not held.running and held.offset >= END and (held.role is not Role.ACTIVE or self.image.processes):
                held.running = True
                if held.role is Role.ACTIVE:
                    self._streams.begin(task, self.name, self.incarnation, self.image.topology.hash)
        active = [held for held in self._held.values() if held.role is Role.ACTIVE]
        self._settled = self._settled or all(held.running for held in active)

    def _hold(self, task: str, role: Role) -> None:
        held = self._held.get(task)
        if held is None:
            self._held[task] = _Held(role, self._disk.pop(task, 0.0) if self._stateful(task) else END)
        elif held.role is not role:
            held.role, held.running = role, False

    def _stateful(self, task: str) -> bool:
        number = int(task.partition("_")[0])
        return any(each.id == number and each.stateful for each in self.image.topology.subtopologies)

    def _drop(self, task: str) -> None:
        held = self._held.pop(task)
        if self._stateful(task):
            self._disk[task] = held.offset

    def _stop_all(self, why: str) -> None:
        for task, held in self._held.items():
            if held.role is Role.ACTIVE:
                self._streams.end(task, self.incarnation, why)
            held.running = False
            if self._stateful(task):
                self._disk[task] = held.offset

    # Words.

    def _report(self, *, urgent: bool) -> None:
        if self._client is None:
            return
        reports = {task: self._described(held) for task, held in self._held.items()}
        on_disk = {task: int(offset) for task, offset in self._disk.items() if task not in self._held}
        epoch = self.answer.epoch if self.answer is not None else Epoch()
        self._client.report(reports, on_disk, self._found, epoch, leaving=self._leaving, urgent=urgent)
        self._found = {}

    @staticmethod
    def _described(held: _Held) -> TaskReport:
        state = TaskState.RUNNING if held.running else TaskState.RESTORING
        return TaskReport(held.role, state, int(END - held.offset), int(held.offset))

    def _heartbeat(self, topology_hash: str) -> Heartbeat:
        environment = self._environment
        return Heartbeat(
            application=environment["MILLPOND_APPLICATION_ID"],
            worker=self.name,
            incarnation=self.incarnation,
            sequence=0,
            topology_hash=topology_hash,
            address=environment.get("MILLPOND_APPLICATION_SERVER"),
            revision=environment.get("MILLPOND_REVISION", ""),
        )

    def _measured_load(self) -> WorkerLoad | None:
        records, now = self._streams.records, clock.monotonic()
        if records is None or self.frozen:
            return self._load
        self._work_done = self._work_done or Work(records)
        if self._load is None or now * 1000 - self._load.measured_ms >= _MEASURE_MS:
            running = [task for task, held in self._held.items() if held.role is Role.ACTIVE and held.running]
            self._load = self._work_done.measured(running)
        return self._load

    def _new_client(self, base: Heartbeat) -> CoordinatorClient:
        files = {"MILLPOND_COORDINATOR_TOKEN_FILE": "token", "MILLPOND_COORDINATOR_CA_FILE": "ca.crt"}
        token, ca = (self._files / name if variable in self._environment else None for variable, name in files.items())
        trouble = Trouble(*self.image.trouble) if self.image.trouble is not None else None
        client = CoordinatorClient(
            self._environment["MILLPOND_COORDINATOR_URL"],
            base,
            self.image.topology if trouble is None else None,
            token_file=token,
            ca_file=ca,
            trouble=lambda: trouble,
            kafka_cluster=lambda: self._kafka if trouble is None else "",
            credentials_changed=lambda: self.credentials_changed,
            load=self._measured_load,
        )
        client.heard = _Bell(self._heard)
        return client


class _Bell(threading.Event):
    """An event that rings each time it is set."""

    def __init__(self, ring: Callable[[], None]) -> None:
        super().__init__()
        self._ring = ring

    def set(self) -> None:
        super().set()
        self._ring()


def _crash(image: Image) -> Exit:
    assert image.crash is not None
    reason, sentence = image.crash
    if reason == "OOMKilled":
        return Exit(137, "", reason)
    return Exit(image.exit_code, json.dumps({"reason": reason, "message": sentence}))


def _seconds(text: str) -> float:
    for unit, size in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * size
    return float(text)
