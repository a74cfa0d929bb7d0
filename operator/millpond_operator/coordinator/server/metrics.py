"""Metrics of a coordinator, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .application import Application

__all__ = ("CoordinatorMetrics",)

#: Labels of an application. The first is not `namespace`, which is that of the coordinator itself. The second is the
#: name of the StreamApp, which distinguishes applications of one id on two Kafka clusters.
_APPLICATION = ("application_namespace", "application_name", "application_id")

#: Reasons of rejections that tell of an overload. They are exposed before they occur, so that their rate is known.
_OVERLOAD = ("connections", "delayed", "token_queue", "unreviewed")


class CoordinatorMetrics(Collector):
    """Counts heartbeats; reads everything else from the engines at each scrape.

    Args:
        applications: returns the applications that are served now, by namespace and id.

    Attributes:
        answered: the number of heartbeats so far.
    """

    def __init__(self, applications: Callable[[], Iterable[tuple[tuple[str, str], Application]]]) -> None:
        self._applications = applications
        self._registry = CollectorRegistry()
        self._registry.register(self)  # its own registry; a caller may register it elsewhere too
        self._heartbeats: Counter[tuple[str, str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self.answered: int = 0
        self._connections: Sized = ()

    def heartbeat(self, namespace: str, application: str, outcome: str) -> None:
        """Count a heartbeat by its outcome: `ok`, or the code of its refusal.

        Pass "" as the name of an application that is not served: otherwise the sender could invent labels.
        """
        self._heartbeats[namespace, application, outcome] += 1
        self.answered += 1

    def count_rejection(self, reason: str) -> None:
        """Count a rejected or delayed request or connection, by reason."""
        self._refusals[reason] += 1

    def watch(self, connections: Sized) -> None:
        """Expose the number of these connections."""
        self._connections = connections

    def exposition(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of one scrape."""
        name = "millpond_coordinator_"
        per_application = list(_APPLICATION)
        heartbeats = CounterMetricFamily(
            f"{name}heartbeats",
            "Heartbeats of workers that the coordinator answered, by application and outcome. Bad when an "
            "outcome other than ok grows.",
            labels=[*_APPLICATION, "outcome"],
        )
        for labels, count in self._heartbeats.items():
            heartbeats.add_metric([*_parts(labels[0]), *labels[1:]], count)
        refusals = CounterMetricFamily(
            f"{name}refusals",
            "Requests and connections that the coordinator rejected or delayed, by reason. Bad when it grows: "
            "for the reasons connections, delayed, token_queue and unreviewed the coordinator has too much to "
            "do.",
            labels=["reason"],
        )
        for reason, count in (dict.fromkeys(_OVERLOAD, 0) | self._refusals).items():
            refusals.add_metric([reason], count)
        connections = GaugeMetricFamily(
            f"{name}connections",
            "Connections of workers to the coordinator that are open now. Bad when it nears "
            "--coordinator-connections: more workers are turned away.",
            value=len(self._connections),
        )
        members = GaugeMetricFamily(
            f"{name}members",
            "Workers that the coordinator knows, by application and state: alive, draining, leaving, gone, "
            "refused, starting. Bad when gone or refused is above 0 for minutes.",
            labels=[*_APPLICATION, "state"],
        )
        tasks = GaugeMetricFamily(
            f"{name}tasks",
            "Tasks of the application, by state: all, without a live owner (unowned), and not on the worker of"
            " their goal (moving). Bad when one without an owner stays above 0: its records are not processed.",
            labels=[*_APPLICATION, "state"],
        )
        gauges = {
            "term": GaugeMetricFamily(
                f"{name}term",
                "Term of the coordinator: it grows by 1 with each coordinator that begins to lead. Bad when it "
                "grows often: the operator changes its leader.",
                labels=per_application,
            ),
            "epoch": GaugeMetricFamily(
                f"{name}epoch",
                "Number of the coordinator's assignment within its term. Bad when it grows all the time: tasks "
                "move, and do not come to rest.",
                labels=per_application,
            ),
            "leading": GaugeMetricFamily(
                f"{name}leading",
                "1 while the coordinator leads the application, 0 after a worker reported a later coordinator. Bad"
                " when it is 0 for minutes.",
                labels=per_application,
            ),
            "waiting": GaugeMetricFamily(
                f"{name}waiting_heartbeats",
                "Heartbeats that the coordinator holds until there is news for the worker. Never bad by itself: "
                "there is about one for each worker.",
                labels=per_application,
            ),
        }
        counters = {
            "deaths": CounterMetricFamily(
                f"{name}deaths",
                "Workers whose session timed out, so that others took over their tasks. Bad when it grows: workers"
                " crash, or lose their network.",
                labels=per_application,
            ),
            "plans": CounterMetricFamily(
                f"{name}assignments",
                "Assignments that the coordinator computed. Bad when it grows all the time: workers come and go.",
                labels=per_application,
            ),
            "plan_seconds": CounterMetricFamily(
                f"{name}assignment_seconds",
                "Seconds that the coordinator spent on computing assignments. Bad when it grows by nearly 1 per "
                "second: take-overs wait for it.",
                labels=per_application,
            ),
            "save_seconds": CounterMetricFamily(
                f"{name}save_seconds",
                "Seconds that the coordinator spent on storing assignments. Bad when it grows by nearly 1 per "
                "second: the API server or the disk is slow.",
                labels=per_application,
            ),
            "save_failures": CounterMetricFamily(
                f"{name}save_failures",
                "Failed attempts to store an assignment. Bad when it grows: assignments do not take effect until "
                "one is stored.",
                labels=per_application,
            ),
        }
        for (namespace, id), each in self._applications():
            engine, key = each.engine, [*_parts(namespace), id]
            states = Counter(
                "gone"
                if not member.alive
                else "draining"
                if member.draining
                else "leaving"
                if member.leaving
                else "alive"
                for member in engine.members.values()
            )
            states.update(refused=len(engine.rejected), starting=len(engine.starting))
            for state in ("alive", "draining", "leaving", "gone", "refused", "starting"):
                members.add_metric([*key, state], states[state])
            for state, count in engine.task_counts().items():
                tasks.add_metric([*key, state], count)
            gauges["term"].add_metric(key, engine.epoch.term)
            gauges["epoch"].add_metric(key, engine.epoch.number)
            gauges["leading"].add_metric(key, engine.superseded_by is None)
            gauges["waiting"].add_metric(key, each.waiting)
            counters["deaths"].add_metric(key, engine.deaths)
            counters["plans"].add_metric(key, each.plans)
            counters["plan_seconds"].add_metric(key, each.plan_seconds)
            counters["save_seconds"].add_metric(key, each.save_seconds)
            counters["save_failures"].add_metric(key, each.save_failures)
        yield from (heartbeats, refusals, connections, members, tasks, *gauges.values(), *counters.values())


def _parts(namespace: str) -> tuple[str, str]:
    first, _, second = namespace.partition("/")
    return first, second
