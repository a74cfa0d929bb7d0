"""An application with everything that the console shows, and a server of it in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from aiohttp import web

from millpond.console import (
    ConsoleSource,
    Unavailable,
    add_console,
    figures_of,
    moves_of,
    tasks_of,
    topology_of,
    workers_of,
)
from millpond.console.overview import WorkerFacts
from millpond.drawing import digest, graph_of_overview, svg
from millpond.protocol import Epoch, Member, Role, SubtopologySummary, TaskReport, TaskState, TopologySummary, View
from millpond.protocol.load_rates import InputRates, TaskRates, WorkerRates
from millpond.protocol.loads import WorkerLoad
from millpond.protocol.overview import (
    ApplicationOverview,
    ApplicationSummary,
    AutoscalingOverview,
    ConditionOverview,
    EdgeOverview,
    EventOverview,
    NodeOverview,
    TopologyOverview,
)

NOW_MS = 1_790_000_000_000
SOURCE = "KSTREAM-SOURCE-0000000000"

GRAPH = TopologyOverview(
    nodes=(
        NodeOverview(name="topic flights", kind="topic", label="flights"),
        NodeOverview(name=SOURCE, kind="processor", subtopology=0, label=SOURCE),
        NodeOverview(name="delayed", kind="processor", subtopology=0, label="delayed"),
        NodeOverview(name="to-airports", kind="processor", subtopology=0, label="to-airports"),
        NodeOverview(name="topic pond-airports-repartition", kind="topic", label="pond-airports-repartition"),
        NodeOverview(name="airports", kind="processor", subtopology=1, label="airports"),
        NodeOverview(name="count", kind="processor", subtopology=1, label="count"),
        NodeOverview(name="store delays", kind="store", subtopology=1, label="delays"),
        NodeOverview(name="out", kind="processor", subtopology=1, label="out"),
        NodeOverview(name="topic delays-by-airport", kind="topic", label="delays-by-airport"),
    ),
    edges=(
        EdgeOverview(source="topic flights", target=SOURCE, topic="flights"),
        EdgeOverview(source=SOURCE, target="delayed"),
        EdgeOverview(source="delayed", target="to-airports"),
        EdgeOverview(source="to-airports", target="topic pond-airports-repartition", topic="pond-airports-repartition"),
        EdgeOverview(source="topic pond-airports-repartition", target="airports", topic="pond-airports-repartition"),
        EdgeOverview(source="airports", target="count"),
        EdgeOverview(source="count", target="store delays"),
        EdgeOverview(source="count", target="out"),
        EdgeOverview(source="out", target="topic delays-by-airport", topic="delays-by-airport"),
    ),
)


def view() -> View:
    """Three workers: one drains, and a task moves from it; a copy of another task restores."""
    running, restoring = TaskState.RUNNING, TaskState.RESTORING
    active, standby, warm_up = Role.ACTIVE, Role.STANDBY, Role.WARM_UP
    held = {
        "pond-0": {"0_0": (active, running, None), "1_0": (active, running, 0), "1_1": (standby, running, 4)},
        "pond-1": {"0_1": (active, running, None), "1_1": (active, running, 0), "1_2": (warm_up, restoring, 48_211)},
        "pond-2": {"0_2": (active, running, None), "1_2": (active, running, 0), "1_0": (standby, restoring, 1_204)},
    }
    lags = {"0_0": 0, "0_1": 12, "0_2": 3, "1_0": 0, "1_1": 0, "1_2": 5}
    topics = {"0": "flights", "1": "pond-airports-repartition"}

    def rates(tasks: Sequence[str]) -> WorkerRates:
        speeds = {task: 412.5 if task.startswith("0") else 1_240.0 for task in tasks}
        found = {
            task: TaskRates(
                records_per_second=speeds[task],
                lag=lags[task],
                lag_growth_per_second=0.0,
                inputs={topics[task[0]]: InputRates(records_per_second=speeds[task], lag=lags[task])},
            )
            for task in tasks
        }
        return WorkerRates(seconds=6, records_per_second=sum(speeds.values()), utilisation=0.43, tasks=found)

    members = tuple(
        Member(
            worker,
            incarnation="1",
            draining=worker == "pond-2",
            tasks={task: TaskReport(*report) for task, report in tasks.items()},
            load=WorkerLoad(volume_bytes=1_000, volume_free_bytes=380),
            rates=rates([task for task, report in tasks.items() if report[0] is active]),
        )
        for worker, tasks in held.items()
    )
    parts = (SubtopologySummary(0, 3, stateful=False), SubtopologySummary(1, 3, stateful=True, stores=("delays",)))
    owners = {task: name for name, tasks in held.items() for task, report in tasks.items() if report[0] is active}
    return View(
        application="pond",
        epoch=Epoch(7, 42),
        topology=TopologySummary("627dae5a8bb75986", parts),
        members=members,
        owners=owners,
        active=owners,
        standby={"1_0": ("pond-2",), "1_1": ("pond-0",)},
        warm_up={"1_2": ("pond-1",)},
        waiting={
            "1_2": "1_2 stays on pond-2 until pond-1's copy is within 10,000 records (lag 48,211)",
            "0_2": "0_2 moves to pond-0 when pond-2 has handed it over",
        },
        goals={"1_2": "pond-1", "0_2": "pond-0"},
        graph=GRAPH,
    )


def overview(*, message: str = "All 6 tasks run on 3 workers.", name: str = "pond") -> ApplicationOverview:
    """What the operator serves of this application."""
    seen = view()
    tasks, topology = tasks_of(seen), topology_of(seen)
    assert topology is not None
    figures = figures_of(tasks)
    facts = {f"pond-{number}": WorkerFacts(node=f"node-{number % 2}", revision="5f9c") for number in range(3)}
    return ApplicationOverview(
        summary=ApplicationSummary(
            name=name,
            namespace="flights",
            phase="Scaling",
            ready=True,
            message=message,
            workers_ready=3,
            workers_wanted=2,
            tasks_running=figures.running,
            tasks_total=figures.total,
            records_per_second=figures.records_per_second,
            lag=figures.lag,
            lag_seconds=figures.lag_seconds,
        ),
        application_id="pond",
        guarantee="exactly_once_v2",
        image="registry.example/pond:1.4.0",
        revision="5f9c",
        epoch="7.42",
        conditions=(
            ConditionOverview(
                type="Ready", status="True", reason="AllTasksRun", message=message, since_ms=NOW_MS - 3_600_000
            ),
            ConditionOverview(
                type="Progressing",
                status="True",
                reason="ScalingIn",
                message="pond-2 is drained: 2 tasks are still to be handed over.",
                since_ms=NOW_MS - 21_000,
            ),
            ConditionOverview(
                type="Degraded", status="False", reason="Healthy", message="", since_ms=NOW_MS - 7_200_000
            ),
            ConditionOverview(
                type="StandbysCaughtUp",
                status="False",
                reason="Restoring",
                message="1 of 2 standbys is caught up.",
                since_ms=NOW_MS - 24_000,
            ),
        ),
        events=(
            EventOverview(at_ms=NOW_MS - 21_000, reason="ScalingIn", text="spec.replicas is 2: draining pond-2."),
            EventOverview(
                at_ms=NOW_MS - 1_500_000,
                reason="WorkerLost",
                text="Worker pond-1 ended; pond-0 took over its 2 tasks.",
                warning=True,
                count=2,
            ),
        ),
        workers=workers_of(seen, facts),
        tasks=tasks,
        moves=moves_of(seen),
        topology=topology,
        drawing=digest(topology),
        autoscaling=AutoscalingOverview(
            mode="Recommend",
            current=3,
            recommended=2,
            reason="The busiest worker uses 43 % of its time; 2 workers would use 65 %.",
            rescales_left=3,
        ),
        at_ms=NOW_MS,
    )


class Source:
    """Documents that a test may change; `unavailable` answers with that sentence instead."""

    def __init__(self, *overviews: ApplicationOverview) -> None:
        self.overviews = {(each.summary.namespace, each.summary.name): each for each in overviews}
        self.unavailable = ""
        self.polls = 0

    async def summaries(self) -> Sequence[ApplicationSummary]:
        self._check()
        return [each.summary for each in self.overviews.values()]

    async def overview(self, namespace: str, name: str) -> ApplicationOverview | None:
        self._check()
        found = self.overviews.get((namespace, name))
        # Each answer is newer than the last one: the page calls figures old that do not change for ten seconds.
        return None if found is None else msgspec.structs.replace(found, at_ms=found.at_ms + self.polls)

    async def picture(self, namespace: str, name: str) -> str | None:
        self._check()
        found = self.overviews.get((namespace, name))
        if found is None or found.topology is None:
            return None
        return svg(graph_of_overview(found.topology, {0, 1}), name, live=True)

    def _check(self) -> None:
        self.polls += 1
        if self.unavailable:
            raise Unavailable(self.unavailable)


class Server:
    """A server in a thread with an event loop of its own."""

    def __init__(self, source: ConsoleSource, port: int = 0) -> None:
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self.port = port
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    async def _start(self) -> None:
        app = web.Application()
        add_console(app, self._source)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = int(self._runner.addresses[0][1])

    def pause(self) -> None:
        """Stop to listen; `start` listens on the same port again."""
        runner = self._runner
        if runner is not None:
            self._runner = None
            asyncio.run_coroutine_threadsafe(runner.cleanup(), self._loop).result(60)

    def close(self) -> None:
        self.pause()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/console/"


@contextmanager
def serving(source: ConsoleSource) -> Iterator[Server]:
    """Serve the console while the block runs."""
    server = Server(source)
    server.start()
    try:
        yield server
    finally:
        server.close()
