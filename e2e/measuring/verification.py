"""The application whose every record is checked, with its input, its meter, and the check at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from e2e.cluster import Cluster, eventually
from e2e.images import Images
from e2e.kafka import Kafka
from e2e.measuring.meter import Meter
from e2e.measuring.traffic import PARTITIONS, SteadyGenerator
from e2e.streamapp import StreamApp
from tests.chaos.application import CUSTOMERS, FINALS, ORDERS, RESULTS, TOTALS, WORDS
from tests.chaos.checks.truth import STORES, Truth, find_in_changelogs, find_in_topics
from tests.ownership.watch import faults, read_chains
from tests.support.kafka import committed_offsets, create_topic, end_offsets, read

__all__ = ("Verification",)

_NAME = "verifier"
_TOPICS = (ORDERS, CUSTOMERS, RESULTS, FINALS, TOTALS)
_RATE = 180.0
_SEED = 5
_DAY = "1d"
_CATCH_UP_S = 90.0


class Verification:
    """The application under a steady input, during the `with` block.

    Args:
        cluster: where it runs.
        kafka: its broker.
        images: of the application.
        rate: orders per second.

    Attributes:
        app: the StreamApp.
        meter: what measures its pauses.
    """

    def __init__(self, cluster: Cluster, kafka: Kafka, images: Images, rate: float = _RATE) -> None:
        self.app = StreamApp(cluster, kafka.namespace, _NAME)
        self.meter = Meter(kafka.address, self._repartition)
        self._kafka = kafka
        self._images = images
        self._generator = SteadyGenerator(kafka.address, _SEED, rate)

    @property
    def _repartition(self) -> str:
        return f"{_NAME}-{WORDS}-repartition"

    def spec(self, version: str = "v1", **fields: Any) -> dict[str, Any]:
        """Return the StreamApp's spec: two workers of a version, with a standby for each task."""
        return {
            "image": self._images.verifier(version),
            "imagePullPolicy": "IfNotPresent",
            "topology": "verifier:topology",
            "replicas": 2,
            "standbyReplicas": 1,
            "processingGuarantee": "exactly_once",
            "kafka": {"bootstrapServers": self._kafka.inside},
            # Internal topics are read again at the end, to the last record.
            "config": {"repartition.purge.interval.ms": _DAY, "topic.min.compaction.lag.ms": "86400000"},
            "state": {"size": "256Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
            "pod": {"terminationGracePeriodSeconds": 20},
            "rollout": {"progressDeadline": "40s", "minReady": "3s"},
            **fields,
        }

    def __enter__(self) -> Self:
        for topic in _TOPICS:
            create_topic(self._kafka.address, topic, PARTITIONS)
        self._generator.start()
        self.meter.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._generator.stop()
        self.meter.__exit__(kind)

    def findings(self) -> list[str]:
        """End the input, wait until all of it is processed, and return all faults of the output."""
        address, generator = self._kafka.address, self._generator
        generator.stop()
        self._await_all()
        generator.close_windows()
        self._await_all()
        truth = Truth(generator.orders, generator.versions)
        names = {WORDS: self._repartition, RESULTS: RESULTS, FINALS: FINALS, TOTALS: TOTALS}
        topics = {name: read(address, topic, settled=True) for name, topic in names.items()}
        changelogs = {store: read(address, f"{_NAME}-{store}-changelog", settled=True) for store in STORES}
        found = [str(each) for each in find_in_topics(topics, truth)]
        found += [str(each) for each in find_in_changelogs(changelogs, topics[RESULTS], truth)]
        found += [f"ownership: {each.strip()}" for each in faults(read_chains(address, _NAME))]
        return found

    def change_rate(self, rate: float) -> None:
        """Send this number of orders per second from now on."""
        self._generator.change_rate(rate)

    def lag(self) -> int:
        """Return the number of orders that are not committed as processed."""
        offsets = committed_offsets(self._kafka.address, _NAME, ORDERS)
        ends = end_offsets(self._kafka.address, ORDERS)
        return sum(max(0, end - max(0, offsets[partition][0])) for partition, end in ends.items())

    @property
    def sent(self) -> int:
        """Orders sent so far."""
        return self._generator.sent

    def _await_all(self) -> None:
        address = self._kafka.address
        self._await_commits(ORDERS, end_offsets(address, ORDERS))
        # After the last record a topic has transaction markers and aborted records, which are never returned.
        ends = {row.partition: row.offset + 1 for row in read(address, self._repartition, settled=True)}
        self._await_commits(self._repartition, ends)

    def _await_commits(self, topic: str, ends: Mapping[int, int]) -> None:
        def committed() -> bool:
            offsets = committed_offsets(self._kafka.address, _NAME, topic)
            return all(offsets[partition][0] >= end for partition, end in ends.items())

        eventually(committed, f"all of {topic} is committed", _CATCH_UP_S, 0.5)
