"""Figures of a coordinator, in Prometheus' format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .application import Application

__all__ = ("CoordinatorMetrics",)

#: Labels that say which application a figure is about. The first is not called `namespace`: that is where the coordinator
#: itself runs. The name is that of the StreamApp; it tells applications of one id on two Kafka clusters apart.
_APPLICATION = ("application_namespace", "application_name", "application_id")


class CoordinatorMetrics(Collector):
    """Counts heartbeats as they are answered; everything else is read from the engines at each scrape.

    Args:
        applications: gives the applications that are served now, by namespace and id.
    """

    def __init__(self, applications: Callable[[], Iterable[tuple[tuple[str, str], Application]]]) -> None:
        self._applications = applications
        self._registry = CollectorRegistry()
        self._registry.register(self)  # of its own: whoever has another one may register it there as well
        self._heartbeats: Counter[tuple[str, str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._connections: Sized = ()

    def heartbeat(self, namespace: str, application: str, outcome: str) -> None:
        """A heartbeat was answered: `ok`, or the code of its refusal.

        Applications that nobody serves must be named "": their names are the sender's invention.
        """
        self._heartbeats[namespace, application, outcome] += 1

    def refuse(self, reason: str) -> None:
        """Something was not let in, or had to wait, whoever it was from."""
        self._refusals[reason] += 1

    def watch(self, connections: Sized) -> None:
        """Expose how many connections there are."""
        self._connections = connections

    def exposed(self) -> bytes:
        """All of them, as text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees."""
        name = "millpond_coordinator_"
        per_application = list(_APPLICATION)
        heartbeats = CounterMetricFamily(
            f"{name}heartbeats", "Heartbeats, by outcome.", labels=[*_APPLICATION, "outcome"]
        )
        for labels, count in self._heartbeats.items():
            heartbeats.add_metric([*_parts(labels[0]), *labels[1:]], count)
        refusals = CounterMetricFamily(
            f"{name}refusals", "What was not let in, or had to wait, by reason.", labels=["reason"]
        )
        for reason, count in self._refusals.items():
            refusals.add_metric([reason], count)
        connections = GaugeMetricFamily(f"{name}connections", "Open connections.", value=len(self._connections))
        members = GaugeMetricFamily(f"{name}members", "Workers, by state.", labels=[*_APPLICATION, "state"])
        tasks = GaugeMetricFamily(
            f"{name}tasks",
            "Tasks: all, those without an owner among live workers, those away from their goal.",
            labels=[*_APPLICATION, "state"],
        )
        gauges = {
            "term": GaugeMetricFamily(f"{name}term", "Term of the coordinator.", labels=per_application),
            "epoch": GaugeMetricFamily(f"{name}epoch", "Number of the assignment.", labels=per_application),
            "leading": GaugeMetricFamily(
                f"{name}leading", "1 while it leads, 0 after it learned of another leader.", labels=per_application
            ),
            "waiting": GaugeMetricFamily(
                f"{name}waiting_heartbeats", "Long polls that wait for news.", labels=per_application
            ),
        }
        counters = {
            "deaths": CounterMetricFamily(
                f"{name}deaths", "Workers that fell silent without a word.", labels=per_application
            ),
            "plans": CounterMetricFamily(f"{name}assignments", "Assignments made.", labels=per_application),
            "plan_seconds": CounterMetricFamily(
                f"{name}assignment_seconds", "Time spent making assignments.", labels=per_application
            ),
            "save_seconds": CounterMetricFamily(
                f"{name}save_seconds", "Time spent writing assignments down.", labels=per_application
            ),
            "save_failures": CounterMetricFamily(
                f"{name}save_failures", "Assignments that could not be written down.", labels=per_application
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
            states.update(refused=len(engine.refused), starting=len(engine.starting))
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
