"""Heartbeats of many workers at one coordinator: `python -m bench.heartbeats`.

One process is the coordinator, in its normal form: HTTPS and a file store. This process simulates the workers: each has
its own connection with a long poll, and carries out its assignment at once. When everything has settled, the run
measures

- the share of one core that the coordinator uses, and its response time. Long polls are answered late on purpose, so
  one heartbeat in twenty requests an immediate answer, and the others measure the delay beyond their wait;
- the time until all workers concerned know what follows from a worker's death.

    python -m bench.heartbeats workers=2000 tasks=10000 seconds=12 tls=yes loads=yes
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.options import from_arguments
from millpond.protocol import (
    Answer,
    Epoch,
    Heartbeat,
    Role,
    SubtopologySummary,
    TaskReport,
    TaskState,
    TopologySummary,
    decode_answer,
    encode,
)
from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from tests.cluster.certificates import Authority

_APP = "bench"
#: The id of the Kafka cluster of all simulated workers.
KAFKA = "bench"
_INTERVAL_S = 2.0
_SHORTENED = 0.85, 1.0  # like the worker's client
_PROBES = 0.05
RESULT = Path("build/bench-heartbeats.json")


@dataclass(frozen=True)
class Way:
    """The address of a coordinator.

    Attributes:
        port: its port on this machine.
        tls: trusts its certificate; None for plain HTTP.
        hostname: the name in its certificate.
    """

    port: int
    tls: ssl.SSLContext | None = None
    hostname: str | None = None

    async def open(self, source: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection from an address of this machine."""
        return await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            limit=2**24,
            ssl=self.tls,
            server_hostname=self.hostname if self.tls is not None else None,
            local_addr=None if source is None else (source, 0),
        )


class Fleet:
    """The simulated workers and the measurements of their heartbeats.

    Attributes:
        workers: by id.
        owners: the owner of each task, as Kafka would know it.
        probes: response times of heartbeats that request an immediate answer, in seconds.
        lateness: delays of answers to long polls without news beyond their wait, in seconds.
        counting: whether both are recorded now.
    """

    def __init__(
        self,
        way: Way,
        workers: int,
        tasks: int,
        *,
        application: str = _APP,
        prefix: str = "",
        probes: float = _PROBES,
        loads: bool = True,
    ) -> None:
        """Args:
        way: to the coordinator.
        workers: the number of workers.
        tasks: the number of tasks.
        application: its id.
        prefix: the path prefix of its namespace.
        probes: the share of heartbeats that request an immediate answer.
        loads: whether heartbeats carry the load of their workers.
        """
        stores = SubtopologySummary(0, tasks, True, ("counts",), {"input": tasks})
        self.topology = TopologySummary("bench", (stores,))
        self.way = way
        self.application = application
        self.prefix = prefix
        self.probing = probes
        self.loads = loads
        self.owners: dict[str, str] = {}
        self.probes: list[float] = []
        self.lateness: list[float] = []
        self.counting = False
        self.answers = 0
        self.last_news = time.monotonic()
        self.workers = {id: self.worker(id) for id in map(self.name, range(workers))}

    def name(self, number: int) -> str:
        """Return the id of a worker."""
        return f"w{number}"

    def worker(self, id: str) -> Worker:
        """Return a new worker."""
        return Worker(self, id)

    async def settled(self, quiet_s: float, timeout_s: float) -> None:
        """Wait until every task runs and no worker has had news for a while."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() - self.last_news < quiet_s or not self.complete():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not settled within {timeout_s} s")
            await asyncio.sleep(0.05)

    def complete(self) -> bool:
        """Return whether every task is held by the live worker that owns it."""
        held = sum(worker.active for worker in self.workers.values() if worker.running)
        return held == self.topology.subtopologies[0].partitions


class Worker:
    """One simulated worker: sends a heartbeat, waits for the answer, carries it out, sends the next."""

    def __init__(self, fleet: Fleet, id: str) -> None:
        self.id = id
        self.running = False
        self.active = 0
        self.answer: Answer | None = None
        self.learned_at = 0.0
        self._fleet = fleet
        self._path = f"{fleet.prefix}/v1/applications/{fleet.application}/workers/{id}/heartbeat"
        self.headers = ""
        self._sequence = 0
        self._tasks: dict[str, TaskReport] = {}
        self._found: dict[str, str] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        reader, writer = await self._fleet.way.open()
        self.running = True
        try:
            while True:
                await self.turn(reader, writer)
        finally:
            self.running = False
            writer.close()

    async def turn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send one heartbeat, and carry out the answer."""
        fleet = self._fleet
        probe = self.answer is not None and random.random() < fleet.probing
        known = self.answer
        interval_ms = 1_900 if known is None or not known.interval_ms else known.interval_ms
        wait_ms = 0 if probe else int(interval_ms * random.uniform(*_SHORTENED))
        began = time.monotonic()
        writer.write(self.request(wait_ms))
        answer = decode_answer(await response(reader))
        took = time.monotonic() - began
        news = known is None or answer.revision != known.revision
        fleet.answers += 1
        if fleet.counting and not news:
            if probe:
                fleet.probes.append(took)
            else:
                fleet.lateness.append(took - wait_ms / 1000)
        self.answer = answer
        if news:
            self.learned_at = fleet.last_news = time.monotonic()
            self.follow(answer)
        else:
            self._found = {}

    def heartbeat(self, wait_ms: int) -> Heartbeat:
        """Return the next heartbeat."""
        self._sequence += 1
        for task, report in self._tasks.items():  # lags change all the time
            if report.role is not Role.ACTIVE:
                self._tasks[task] = TaskReport(report.role, report.state, random.randrange(500), self._sequence * 1000)
        known, fleet = self.answer, self._fleet
        return Heartbeat(
            self._fleet.application,
            self.id,
            f"{self.id}-1",
            self._sequence,
            self._fleet.topology.hash,
            topology=self._fleet.topology if known is None else None,
            epoch=known.epoch if known is not None else Epoch(),
            known_revision=known.revision if known is not None else 0,
            coordinator=known.coordinator if known is not None else "",
            tasks=self._tasks,
            taken_over=self._found,
            address=f"http://{self.id}.bench:8080",
            tags={"zone": f"z{zlib.crc32(self.id.encode()) % 3}"},
            kafka_cluster=KAFKA,
            clock_ms=time.time_ns() // 1_000_000,
            wait_ms=wait_ms,
            load=self._load() if fleet.loads else None,
        )

    def request(self, wait_ms: int) -> bytes:
        """Return the next heartbeat as an HTTP request."""
        body = encode(self.heartbeat(wait_ms))
        head = f"POST {self._path} HTTP/1.1\r\nHost: bench\r\n{self.headers}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def _load(self) -> WorkerLoad:
        """Return a load whose counters grow."""
        now_ms, count = time.monotonic_ns() // 1_000_000, self._sequence * 1_000
        tasks = {
            task: TaskLoad(count, {"input": InputLoad(count, 10)}, 25)
            for task, report in self._tasks.items()
            if report.role is Role.ACTIVE
        }
        return WorkerLoad(now_ms, now_ms // 2, count, tasks, 10**9, 10**10, 10**9)

    def follow(self, answer: Answer) -> None:
        """Carry out an answer like a worker whose Kafka needs no time."""
        owners = self._fleet.owners
        found: dict[str, str] = {}
        for order in answer.take_over:
            for task, owner in order.owners.items():
                if owners.get(task) == order.previous:
                    owners[task] = owner
                found[task] = owners[task]
        for task, owner in answer.release.items():
            if owners.get(task) == self.id:
                owners[task] = found[task] = owner
        self._found = found
        self._tasks = {
            task: TaskReport(role, TaskState.RUNNING, 0, 1000)
            for task, role in answer.tasks.items()
            if role is not Role.ACTIVE or owners.get(task) == self.id
        }
        self.active = sum(report.role is Role.ACTIVE for report in self._tasks.values())


async def response(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(body.decode(errors="replace"))
    return body


async def _ask(way: Way, method: str, path: str) -> bytes:
    reader, writer = await way.open()
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n".encode())
    body = await response(reader)
    writer.close()
    return body


async def _metric(way: Way, name: str) -> float:
    """Return a metric of the coordinator."""
    text = (await _ask(way, "GET", "/metrics")).decode()
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return next(sample.value for sample in samples if sample.name == f"millpond_coordinator_{name}")


class Figures(msgspec.Struct):
    """The measurements of a run. Times in seconds."""

    workers: int
    tasks: int
    start_s: float
    """From the first heartbeat until every task ran on its worker."""
    heartbeats_per_s: float
    coordinator_core_share: float
    """CPU time of the coordinator's process per second, while nothing changed."""
    interval_s: float
    """The longest time between two heartbeats of a worker, as the coordinator asks for it."""
    cpu_per_heartbeat_us: float
    """CPU time per heartbeat, in microseconds."""
    load_average: float
    """Load average of the machine: above its number of cores, other processes distort the times."""
    tls: bool
    empty_mb: float
    """Memory of the coordinator before the first worker."""
    rss_mb: float
    answer_p50_s: float
    answer_p99_s: float
    lateness_p50_s: float
    lateness_p99_s: float
    death_concerned: int
    """Workers whose assignment changed after the death."""
    death_told_s: float
    """From the report of a death until a survivor was told to take its tasks over."""
    death_owned_s: float
    """From the report until all new owners were assigned its tasks."""
    death_learned_s: float
    """From the report until all workers concerned, including standbys, had their assignment."""
    death_assignments: int
    """Assignments computed until everything had settled again."""
    death_assignment_s: float
    """The time for these assignments, including heartbeats in between."""
    death_save_s: float
    """The time to save these assignments."""
    death_cpu_s: float
    """CPU time of the coordinator for all of that."""


async def measure(
    process: subprocess.Popen[bytes], way: Way, workers: int, tasks: int, seconds: float, *, loads: bool
) -> Figures:
    """Run the fleet with a running coordinator; return the measurements."""
    watched = psutil.Process(process.pid)
    empty_mb = watched.memory_info().rss / 2**20
    fleet = Fleet(way, workers, tasks, loads=loads)
    began = time.monotonic()
    running = {id: asyncio.create_task(worker.run()) for id, worker in fleet.workers.items()}
    try:
        await fleet.settled(quiet_s=_INTERVAL_S, timeout_s=300)
        start_s = fleet.last_news - began
        # Heartbeats that were answered together have to spread over the interval.
        await asyncio.sleep(2 * _INTERVAL_S)

        fleet.counting, answers, cpu, at = True, fleet.answers, _cpu(watched), time.monotonic()
        await asyncio.sleep(seconds)
        fleet.counting, took = False, time.monotonic() - at
        share, rate = (_cpu(watched) - cpu) / took, (fleet.answers - answers) / took
        load = os.getloadavg()[0]

        victim = max(fleet.workers.values(), key=lambda worker: worker.active)
        orphans = {task for task, owner in fleet.owners.items() if owner == victim.id}
        before = {id: worker.learned_at for id, worker in fleet.workers.items()}
        counters = ("assignments_total", "assignment_seconds_total", "save_seconds_total")
        totals = [await _metric(way, name) for name in counters]
        running[victim.id].cancel()
        await asyncio.wait([running[victim.id]])
        cpu, died = _cpu(watched), time.monotonic()
        told_s, owned_s = await _death(fleet, victim, orphans, died)
        await fleet.settled(quiet_s=_INTERVAL_S, timeout_s=60)
        learned = [w.learned_at - died for id, w in fleet.workers.items() if w.learned_at > max(before[id], died)]
        totals = [await _metric(way, name) - before for name, before in zip(counters, totals, strict=True)]
        death_cpu = _cpu(watched) - cpu - share * (time.monotonic() - died)
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
    return Figures(
        workers=workers,
        tasks=tasks,
        start_s=start_s,
        heartbeats_per_s=rate,
        coordinator_core_share=share,
        interval_s=max(each.answer.interval_ms for each in fleet.workers.values() if each.answer) / 1000,
        cpu_per_heartbeat_us=share / rate * 1e6,
        load_average=load,
        tls=way.tls is not None,
        empty_mb=empty_mb,
        rss_mb=watched.memory_info().rss / 2**20,
        answer_p50_s=statistics.median(fleet.probes),
        answer_p99_s=_percentile(fleet.probes, 0.99),
        lateness_p50_s=statistics.median(fleet.lateness),
        lateness_p99_s=_percentile(fleet.lateness, 0.99),
        death_concerned=len(learned),
        death_told_s=told_s,
        death_owned_s=owned_s,
        death_learned_s=max(learned),
        death_assignments=int(totals[0]),
        death_assignment_s=totals[1],
        death_save_s=totals[2],
        death_cpu_s=death_cpu,
    )


async def _death(fleet: Fleet, victim: Worker, orphans: set[str], died: float) -> tuple[float, float]:
    """Report a death, and wait until other workers own its tasks."""
    await _ask(fleet.way, "POST", f"/v1/applications/{_APP}/workers/{victim.id}/gone")
    told_s = 0.0
    survivors = [worker for worker in fleet.workers.values() if worker.running]
    while True:
        now = time.monotonic()
        if not told_s and any(
            worker.learned_at > died and worker.answer.take_over for worker in survivors if worker.answer
        ):
            told_s = max(worker.learned_at for worker in survivors) - died
        if not any(fleet.owners[task] == victim.id for task in orphans):
            holders = {fleet.owners[task] for task in orphans}
            if all(
                (answer := fleet.workers[id].answer) is not None
                and all(answer.tasks.get(task) is Role.ACTIVE for task in orphans if fleet.owners[task] == id)
                for id in holders
            ):
                return told_s or now - died, now - died
        if now - died > 60:
            raise TimeoutError("the dead worker's tasks were not taken over within 60 s")
        await asyncio.sleep(0.001)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def coordinator_command(store: Path) -> list[str]:
    """Return the command line of the coordinator."""
    return [
        *(sys.executable, "-m", "millpond_operator.coordinator", "--application", _APP, "--store", str(store)),
        *("--standby-replicas", "1", "--log-level", "WARNING"),
    ]


def run(workers: int, tasks: int, seconds: float, *, tls: bool = True, loads: bool = True) -> Figures:
    """Start a coordinator, measure, stop it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="millpond-heartbeats-") as directory:
        command, way = coordinator_command(Path(directory) / "assignment.json"), Way(0)
        if tls:
            authority = Authority(Path(directory))
            pem = str(authority.server("coordinator", "coordinator.bench"))
            command += ["--tls-cert", pem, "--tls-key", pem]
            way = Way(0, ssl.create_default_context(cafile=str(authority.ca_file)), "coordinator.bench")
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            way = replace(way, port=int(url.rpartition(":")[2]))
            return asyncio.run(measure(process, way, workers, tasks, seconds, loads=loads))
        finally:
            process.terminate()
            process.wait(10)


def main(arguments: Sequence[str]) -> None:
    """Measure, then print and save the results."""
    options = {"workers": "2000", "tasks": "10000", "seconds": "10", "tls": "yes", "loads": "yes"}
    options |= from_arguments(arguments)
    tls, loads = (options[name] == "yes" for name in ("tls", "loads"))
    figures = run(int(options["workers"]), int(options["tasks"]), float(options["seconds"]), tls=tls, loads=loads)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    print(
        f"{figures.workers:,} workers, {figures.tasks:,} tasks, {figures.heartbeats_per_s:,.0f} heartbeats/s, "
        f"one per {figures.interval_s:.1f} s and worker\n"
        f"  coordinator        {figures.coordinator_core_share:.0%} of a core, {figures.rss_mb:.0f} MB "
        f"({figures.empty_mb:.0f} MB without workers, "
        f"{(figures.rss_mb - figures.empty_mb) * 1024 / figures.workers:.0f} KiB per worker"
        f"{', TLS' if figures.tls else ''}), "
        f"{figures.cpu_per_heartbeat_us:.0f} us of CPU per heartbeat (load average {figures.load_average:.1f})\n"
        f"  answers            p50 {_ms(figures.answer_p50_s)}, p99 {_ms(figures.answer_p99_s)}\n"
        f"  long polls, late   p50 {_ms(figures.lateness_p50_s)}, p99 {_ms(figures.lateness_p99_s)}\n"
        f"  a worker dies      {figures.death_concerned} workers concerned: told to take over after "
        f"{_ms(figures.death_told_s)}, tasks with new owners after {_ms(figures.death_owned_s)}, "
        f"all assigned after {_ms(figures.death_learned_s)}; {figures.death_cpu_s:.1f} s of CPU\n"
        f"                     {figures.death_assignments} assignments in {_ms(figures.death_assignment_s)}, saved "
        f"in {_ms(figures.death_save_s)}\n"
        f"  start              {figures.start_s:.1f} s until every task ran\n"
        f"{RESULT}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


if __name__ == "__main__":
    main(sys.argv[1:])
