"""The observer of a session: collects its status from the coordinator, the workers' metrics and logs, and Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec

from millpond.cli.dev.coordinator import CoordinatorUnavailable
from millpond.cli.dev.status import Restoring, SessionEventKind, SessionStatus, WorkerPhase, WorkerStatus
from millpond.cli.dev.summary import summary
from millpond.cli.dev.supervisor import Fleet
from millpond.cli.dev.worker import WorkerProcess
from millpond.console import tasks_of
from millpond.protocol import Epoch, Member, Role, SubtopologySummary, TaskReport, TaskState, View

from .increases import Increases
from .input_ends import InputEnds, Partition
from .losses import RepeatedLosses, is_stopped
from .worker_metrics import RecentMetrics, Scrape, parse

__all__ = ("Observer",)

log: logging.Logger = logging.getLogger("millpond.cli")

_POLL_S = 0.25
_FAST_POLL_S = 0.03  # while tasks do not run
_SCRAPE_INTERVAL_S = 1.0
_SCRAPE_TIMEOUT_S = 2.0
_MAX_NAMED = 12
_STALLED = "WorkerStalled"
"""The kind of trouble of `millpond.runtime.worker.stalls`, which workers report."""
_SILENT = 0.9  # of the session timeout: a worker that was silent for so long did not leave, it hangs


@dataclass
class _Loss:
    """The tasks of a worker that was lost, until each of them is processed again."""

    worker: str
    at: float
    tasks: frozenset[str]
    incarnation: str
    """The incarnation that is dead; empty for one that may come back."""
    regained: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Tasks that are processed again: the worker, and the seconds since the loss."""


class Observer:
    """The observer that keeps the `SessionStatus` of a session up to date.

    Args:
        fleet: the session's workers and coordinator.
        title: the application's name.
        console: the URL of the console.

    Attributes:
        status: the latest status; replaced, never changed.
    """

    def __init__(self, fleet: Fleet, title: str, console: str = "") -> None:
        self._fleet = fleet
        config = fleet.launch.config
        self._ends = InputEnds(config)
        self._metrics: dict[str, tuple[int, RecentMetrics]] = {}
        self._dropped: defaultdict[str, Increases] = defaultdict(Increases)  # by worker
        self._dead_letters: defaultdict[str, Increases] = defaultdict(Increases)
        self._view = View(config.application_id, Epoch())
        self._losses: list[_Loss] = []
        self._was_complete = False
        self._told_complete = False
        self._told_dead: dict[str, str] = {}  # by worker: the incarnation that was last told as dead
        self._told_troubles: dict[str, str] = {}  # by worker: what it reported of a long call
        self._repeated = RepeatedLosses(config.coordinator_session_timeout_ms / 1000)
        self._skip_complete_event = False
        self._processed_before = 0
        self._warnings: dict[str, str] = {}  # of the present workers: what each is about, and the first text
        self._told_warnings: set[str] = set()
        self.status: SessionStatus = SessionStatus(
            application=config.application_id,
            title=title,
            guarantee=config.processing_guarantee,
            bootstrap_servers=config.bootstrap_servers,
            directory=str(fleet.launch.directory),
            state_dir=str(config.state_dir.absolute()),
            target=fleet.launch.target,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name or "",
            console=console,
            wanted=fleet.wanted,
            usual=fleet.usual,
        )

    def detailed(self) -> SessionStatus:
        """Return the latest status with the details of tasks, which are made for those who ask."""
        return msgspec.structs.replace(self.status, details=tasks_of(self._view))

    @property
    def view(self) -> View:
        """The coordinator's last view."""
        return self._view

    async def run(self) -> None:
        """Observe the session until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._scrape())

    # The coordinator's view

    async def _watch(self) -> None:
        while True:
            view = self._view
            with contextlib.suppress(CoordinatorUnavailable):
                view = await self._fleet.coordinator.view()
            self.observe(view)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAST_POLL_S if self._losses or not self._was_complete else _POLL_S):
                    await self._fleet.died.wait()
            self._fleet.died.clear()

    def observe(self, view: View) -> None:
        """Compare a view of the coordinator with the last one: tell what happened, and update `status`."""
        before = {name: member for name, member in _members(self._view).items() if member.alive}
        self._view = view
        while self._fleet.deaths:
            self._note_death(before, *self._fleet.deaths.popleft())
        self._note_silent_workers(before)
        self._note_regained_tasks()
        self.update_status()

    def _note_death(self, members: dict[str, Member], worker: str, at: float) -> None:
        """Remember the tasks of a worker that died."""
        member = members.get(worker)
        if member is None:
            return
        self._told_dead[worker] = member.incarnation
        tasks = _active(member)
        for loss in list(self._losses):  # it had taken over tasks, of which nothing was told yet
            again = {task for task in loss.tasks & tasks if loss.regained.get(task, ("", 0))[0] == worker}
            loss.tasks -= again
            for task in again:
                del loss.regained[task]
            if not loss.tasks:
                self._losses.remove(loss)
        if not tasks:
            self._fleet.add_event(f"{worker} died; it had no active tasks")
            return
        self._losses.append(_Loss(worker, at, tasks, member.incarnation))
        self._fleet.add_event(
            f"{worker} died; it processed {_task_names(tasks)}",
            logging.WARNING,
            kind=SessionEventKind.LOST,
            worker=worker,
        )

    def _note_silent_workers(self, before: dict[str, Member]) -> None:
        """Remember the tasks of workers that the coordinator takes for dead, although their processes exist."""
        members = _members(self._view)
        silent_ms = self._fleet.launch.config.coordinator_session_timeout_ms * _SILENT
        for name, member in before.items():
            now, worker = members.get(name), self._fleet.workers.get(name)
            if now is None or now.alive or now.incarnation != member.incarnation:
                continue
            if now.silent_ms < silent_ms:
                continue  # it has said that it leaves, and its process is about to end
            if self._fleet.stopping or worker is None or worker.child is None or worker.leaving:
                continue
            if self._told_dead.get(name) == member.incarnation or not (tasks := _active(member)):
                continue
            self._losses.append(_Loss(name, time.monotonic() - now.silent_ms / 1000, tasks, ""))
            self._tell_silent(worker, worker.child.pid, now.silent_ms / 1000, tasks)

    def _tell_silent(self, worker: WorkerProcess, pid: int, silent_s: float, tasks: frozenset[str]) -> None:
        """Tell that a worker is lost, with the likely cause if it is not the first time."""
        times = self._repeated.note(worker.id, tasks)
        lost = f"is lost ({times} times so far)" if times > 1 else "is lost"
        text = (
            f"{worker.id} (pid {pid}) {lost}: it has sent no heartbeat for {silent_s:.1f} s; "
            f"it processed {_task_names(tasks)}"
        )
        paused = worker.phase is WorkerPhase.PAUSED
        if not paused and is_stopped(pid):
            text = f"{text}. Its process is stopped by a signal; `kill -CONT {pid}` lets it go on"
        elif not paused and (cause := self._repeated.cause(worker.id, tasks, self._next_records(tasks))):
            self._warnings["lost workers"] = text = f"{text}. {cause}"
        self._fleet.add_event(text, logging.WARNING, kind=SessionEventKind.LOST, worker=worker.id)

    def _next_records(self, tasks: frozenset[str]) -> dict[Partition, int]:
        """Return the offsets of the next records of tasks, as of the last metrics of any worker.

        A worker that has just taken a task over may not have told its offset yet. Partitions without a next record are
        left out.
        """
        found: dict[Partition, int] = {}
        for _, metrics in self._metrics.values():
            for (task, topic), each in metrics.last.inputs.items():
                if task in tasks:
                    partition = topic, _partition(task)
                    found[partition] = max(each.position, found.get(partition, 0))
        ends = self._ends.known
        return {partition: offset for partition, offset in found.items() if ends.get(partition, offset + 1) > offset}

    def _note_regained_tasks(self) -> None:
        """Record which tasks of lost workers are processed again, and tell it once it is likely to last."""
        now = time.monotonic()
        for loss in list(self._losses):
            for name, member in _members(self._view).items():
                if name == loss.worker and member.incarnation == loss.incarnation:
                    continue
                for task in loss.tasks & set(_processing(member)):
                    loss.regained.setdefault(task, (name, now - loss.at))
            if len(loss.regained) == len(loss.tasks) and self._steady({name for name, _ in loss.regained.values()}):
                self._losses.remove(loss)
                self._fleet.add_event(
                    f"{loss.worker}'s tasks are processed again: {_where(loss.regained)}",
                    kind=SessionEventKind.REGAINED,
                    worker=loss.worker,
                    seconds={task: after for task, (_, after) in loss.regained.items()},
                )
                self._skip_complete_event = True

    # Metrics of the workers

    async def _scrape(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_SCRAPE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while True:
                due = time.monotonic() + _SCRAPE_INTERVAL_S
                workers = list(self._fleet.workers.values())
                self._fleet.coordinator.log.read()
                await asyncio.gather(self._update_ends(), *(self._scrape_one(http, worker) for worker in workers))
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _scrape_one(self, http: aiohttp.ClientSession, worker: WorkerProcess) -> None:
        worker.log.read()
        self._tell_warnings(worker)
        child = worker.child
        if child is None or worker.phase is WorkerPhase.PAUSED or not worker.log.metrics:
            return
        try:
            async with http.get(worker.log.metrics) as response:
                scrape = parse(await response.text())
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            log.debug("%s: %s", worker.log.metrics, error)
            return
        if worker.child is not child:
            return
        known = self._metrics.get(worker.id)
        if known is None or known[0] != child.pid:
            known = self._metrics[worker.id] = (child.pid, RecentMetrics())
        known[1].add(scrape, time.monotonic())
        self._dropped[worker.id].add(child.pid, scrape.dropped)
        self._dead_letters[worker.id].add(child.pid, scrape.dead_letters)
        if scrape.state == "running":
            self._fleet.ran = True
            if worker.phase is WorkerPhase.STARTING:
                worker.phase = WorkerPhase.RUNNING

    def _tell_warnings(self, worker: WorkerProcess) -> None:
        """Tell what a worker's log warns of: drops of each worker, and others once, whichever worker has them first.

        A join of which results may be missing stays in the status: nothing else tells of them later.
        """
        while worker.log.drops:
            text = worker.log.drops.pop(0)
            self._fleet.add_event(f"{worker.id}: {text}", logging.WARNING, worker=worker.id)
            if text.startswith("join "):
                self._warnings.setdefault(text.partition(":")[0], text)
        while worker.log.warnings:
            text = worker.log.warnings.pop(0)
            about = re.sub(r"\d+", "#", text)  # one of each partition, or of each start
            self._warnings.setdefault(about, text)
            if about not in self._told_warnings:
                self._told_warnings.add(about)
                self._fleet.add_event(f"{worker.id}: {text}", logging.WARNING, worker=worker.id)

    async def _update_ends(self) -> None:
        await self._ends.update(
            {partition for _, metrics in self._metrics.values() for partition in _inputs(metrics.last)}
        )

    def _metrics_of(self, worker: WorkerProcess) -> RecentMetrics | None:
        """Return the metrics of the current process; None for a paused one, which does not respond."""
        if worker.phase is WorkerPhase.PAUSED:
            return None
        pid, metrics = self._metrics.get(worker.id, (0, None))
        return metrics if worker.child is not None and worker.child.pid == pid else None

    def _lag(self, scrape: Scrape) -> int | None:
        """Return the number of input records that are not processed; None while an end offset is not known."""
        lag = 0
        for (task, topic), found in scrape.inputs.items():
            end = self._ends.known.get((topic, _partition(task)))
            if end is None:
                return None
            # Transaction markers at the end of a partition have offsets, but are no records.
            lag += 0 if found.caught_up else max(0, end - found.position)
        return lag

    # Status

    def update_status(self) -> None:
        """Update `status`."""
        fleet, view = self._fleet, self._view
        members = _members(view)
        if not fleet.wanted and not any(worker.child for worker in fleet.workers.values()):
            # What is done while no worker runs, such as a reset, is the cure of most, and lets all records come again.
            for each in (self._warnings, self._dropped, self._dead_letters):
                each.clear()
        rows = tuple(self._row(worker, members.get(worker.id)) for worker in fleet.workers.values())
        alive = {row.worker for row in rows if row.pid}
        running = {task: name for name, member in members.items() if name in alive for task in _processing(member)}
        commits = [metrics.last_commit for _, metrics in self._metrics.values() if metrics.last_commit is not None]
        old = self.status
        self.status = SessionStatus(
            application=old.application,
            title=old.title,
            guarantee=old.guarantee,
            bootstrap_servers=old.bootstrap_servers,
            directory=old.directory,
            state_dir=old.state_dir,
            target=old.target,
            dead_letter_topic=old.dead_letter_topic,
            console=old.console,
            coordinator=fleet.coordinator.url if fleet.coordinator.listening else "",
            coordinator_note=fleet.coordinator.log.recent_error,
            epoch=f"{view.epoch.term}.{view.epoch.number}",
            stopping=fleet.stopping,
            wanted=fleet.wanted,
            usual=fleet.usual,
            workers=rows,
            dead_letters=_total(self._dead_letters),
            tasks=sum(each.partitions for each in view.topology.subtopologies) if view.topology else 0,
            running=running,
            waiting=dict(view.waiting),
            committed_s_ago=time.monotonic() - max(commits) if commits else None,
            warnings=tuple(self._warnings.values()),
            events=tuple(fleet.events),
        )
        self._was_complete = self.status.complete
        if not self._was_complete:
            self._told_complete = False
        elif self._skip_complete_event:
            self._told_complete, self._skip_complete_event = True, False
        elif not self._told_complete and self._steady(set(running.values())):
            self._told_complete = True
            self._fleet.add_event(
                f"all {self.status.tasks} tasks are processed: {_by_worker(running)}", kind=SessionEventKind.COMPLETE
            )

    def _steady(self, names: set[str]) -> bool:
        """Return whether none of these workers is likely to fail again at once, as workers do in a loop of failures."""
        return all(worker.steady for name in names if (worker := self._fleet.workers.get(name)) is not None)

    def _row(self, worker: WorkerProcess, member: Member | None) -> WorkerStatus:
        held = member.tasks if member is not None and member.alive and worker.child is not None else {}
        if held and worker.phase is WorkerPhase.STARTING:  # its metrics are not scraped yet
            worker.phase = WorkerPhase.RUNNING
        of = {role: tuple(sorted(task for task, each in held.items() if each.role is role)) for role in Role}
        metrics = self._metrics_of(worker)
        return WorkerStatus(
            worker=worker.id,
            phase=worker.phase,
            pid=worker.child.pid if worker.child is not None else 0,
            active=of[Role.ACTIVE],
            standby=of[Role.STANDBY],
            warm_up=of[Role.WARM_UP],
            records_per_second=metrics.records_per_second if metrics is not None else None,
            processed=metrics.last.processed if metrics is not None else 0,
            dropped=self._dropped[worker.id].total,
            dead_letters=self._dead_letters[worker.id].total,
            commit_p99_ms=metrics.commit_p99_ms if metrics is not None else None,
            lag=self._lag(metrics.last) if metrics is not None else None,
            restoring=self._restoring(metrics.last, held) if metrics is not None else (),
            restarts=max(0, worker.restarts),
            note=worker.shown_note or self._trouble(worker, member),
            log=str(worker.log.path),
            metrics=worker.log.metrics,
            queries=_address(member, metrics),
        )

    def _trouble(self, worker: WorkerProcess, member: Member | None) -> str:
        """Return what a worker reports as the reason why it processes nothing; tell each new text of a long call."""
        alive = member is not None and member.alive and worker.phase is WorkerPhase.RUNNING
        trouble = member.trouble if member is not None and alive else None
        if trouble is None:
            self._told_troubles.pop(worker.id, None)
            return ""
        if trouble.reason == _STALLED and self._told_troubles.get(worker.id) != trouble.message:
            self._told_troubles[worker.id] = trouble.message
            self._fleet.add_event(trouble.message, logging.WARNING, worker=worker.id)
        return trouble.message

    def _restoring(self, scrape: Scrape, held: Mapping[str, TaskReport]) -> tuple[Restoring, ...]:
        """Return the store partitions that tasks wait for, without those of standbys, which always have some lag."""
        waiting = {task for task, report in held.items() if report.state is TaskState.RESTORING}
        parts = self._view.topology.subtopologies if self._view.topology is not None else ()
        wanted = {(store, _partition(task)) for task in waiting for store in _stores(parts, task)}
        return tuple(each for each in scrape.restoring if (each.store, each.partition) in wanted)

    def line(self) -> str | None:
        """Return a summary in one line; None if nothing was processed since the last call."""
        processed = sum(row.processed for row in self.status.workers)
        if processed == self._processed_before:
            return None
        self._processed_before = processed
        return summary(self.status, _total(self._dropped))


def _total(of_workers: Mapping[str, Increases]) -> int:
    """Return the sum over all workers that the session has had."""
    return sum(each.total for each in of_workers.values())


def _members(view: View) -> dict[str, Member]:
    return {member.worker: member for member in view.members}


def _address(member: Member | None, metrics: RecentMetrics | None) -> str:
    """Return the URL for queries of a worker's present process; empty before it runs.

    Until then the coordinator may know the URL of its last process only.
    """
    runs = metrics is not None and metrics.last.state == "running"
    return (member.address or "") if runs and member is not None and member.alive else ""


def _active(member: Member) -> frozenset[str]:
    return frozenset(task for task, report in member.tasks.items() if report.role is Role.ACTIVE)


def _processing(member: Member) -> list[str]:
    """Return the tasks that a live member processes."""
    if not member.alive:
        return []
    return [
        task
        for task, report in member.tasks.items()
        if report.role is Role.ACTIVE and report.state is TaskState.RUNNING
    ]


def _partition(task: str) -> int:
    return int(task.rpartition("_")[2])


def _stores(parts: Iterable[SubtopologySummary], task: str) -> Iterable[str]:
    return (store for part in parts if str(part.id) == task.partition("_")[0] for store in part.stores)


def _inputs(scrape: Scrape) -> list[Partition]:
    return [(topic, _partition(task)) for task, topic in scrape.inputs]


def _task_names(tasks: frozenset[str]) -> str:
    """Return the names of tasks; of many tasks, their number."""
    return " ".join(sorted(tasks)) if len(tasks) <= _MAX_NAMED else f"{len(tasks)} tasks"


def _where(regained: dict[str, tuple[str, float]]) -> str:
    """Return the worker of each task and the time it took; of many tasks, a summary."""
    if len(regained) > _MAX_NAMED:
        last = max(after for _, after in regained.values())
        return f"{_by_worker({task: name for task, (name, _) in regained.items()})}, the last after {last:.2f} s"
    rows = sorted(regained.items(), key=lambda each: (len(each[0]), each[0]))
    return ", ".join(f"{task} on {name} after {after:.2f} s" for task, (name, after) in rows)


def _by_worker(running: dict[str, str]) -> str:
    names = sorted(set(running.values()), key=lambda name: (len(name), name))
    if len(running) <= _MAX_NAMED:
        return ", ".join(
            f"{name} {' '.join(sorted(task for task, by in running.items() if by == name))}" for name in names
        )
    return ", ".join(f"{sum(by == name for by in running.values())} by {name}" for name in names)
