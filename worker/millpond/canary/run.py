"""The steps of the canary: create a StreamApp, send records, compare its output, delete everything."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .cluster import CanaryFailed, Cluster

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from millpond.runtime.config.model import Config

__all__ = ("Canary", "check_installation", "deadline_in")

_KINDS = {"streamapps", "streamassignments", "statebootstraps"}
_WORDS = [f"word-{number % 5}" for number in range(100)]
_PARTITIONS = 2
_POLL_S = 1.0

Say = Callable[[str], None]


def check_installation(cluster: Cluster, deadline: float, say: Say) -> None:
    """Wait until the operator is ready, and check that the API server serves the definitions.

    Args:
        cluster: the cluster.
        deadline: when to stop waiting, by `time.monotonic()`.
        say: receives what was done.

    Raises:
        CanaryFailed: something is missing.
    """
    if missing := _KINDS - cluster.kinds():
        raise CanaryFailed(
            f"The API server does not serve {', '.join(sorted(missing))}: install the custom resource definitions of "
            "this version (crds.install)."
        )
    say("the API server serves all custom resources")
    while reason := cluster.operator_ready():
        _pause(deadline, f"The operator is not ready: {reason}")
    say("the operator is ready")


@dataclass(frozen=True)
class Canary:
    """One run of the canary application.

    Attributes:
        cluster: where the StreamApp is created.
        name: the name of the StreamApp.
        image: the image of its workers.
        bootstrap_servers: the Kafka brokers.
        config: the settings of Kafka clients.
        deadline: when to stop waiting, by `time.monotonic()`.
        say: receives what was done.
        image_pull_policy: of the workers.
        image_pull_secrets: names of Secrets for the registry.
        credentials_secret: the Secret with client properties; empty for none.
        replication_factor: of the topics; -1 for the brokers' default.
        application_id: the application's id, and the beginning of the topics' names.
    """

    cluster: Cluster
    name: str
    image: str
    bootstrap_servers: str
    config: Config
    deadline: float
    say: Say
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    credentials_secret: str = ""
    replication_factor: int = -1
    application_id: str = field(default_factory=lambda: f"millpond-canary-{uuid.uuid4().hex[:8]}")

    def run(self) -> None:
        """Run the application from its creation to its deletion.

        Raises:
            CanaryFailed: a step failed, or took too long. What was created is deleted all the same.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        from millpond.runtime.missing_rights import Access, Operation

        from .topology import input_topic, output_topic

        topics = [input_topic(self.application_id), output_topic(self.application_id)]
        admin = AdminClient(dict(self.config.admin_settings()))
        self._delete()  # of an earlier run that was cut off
        try:
            self._create_topics(admin, topics)
            began = time.monotonic()
            self.cluster.create(self.manifest())
            self._await_ready()
            self.say(f"StreamApp {self.name} is Ready after {time.monotonic() - began:.1f} s")
            began = time.monotonic()
            self._send(topics[0])
            self._compare(topics[1])
            self.say(f"{len(_WORDS)} records were counted in {time.monotonic() - began:.1f} s")
            self._delete()
            self.say(f"StreamApp {self.name} and its topics are deleted")
        except KafkaException as error:
            why = Access.of(self.config.admin_settings()).explained(error.args[0], topics, Operation.CREATE)
            raise CanaryFailed(f"Kafka refuses a request of the test: {why}") from error
        finally:
            with contextlib.suppress(CanaryFailed):
                self.cluster.delete(self.name)
            for future in admin.delete_topics(topics).values():
                with contextlib.suppress(KafkaException):
                    future.result()

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the StreamApp."""
        from .topology import TOPIC_PREFIX

        kafka = {"bootstrapServers": self.bootstrap_servers}
        if self.credentials_secret:
            kafka["credentialsSecret"] = self.credentials_secret
        spec: dict[str, Any] = {
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "topology": f"{__package__}.topology:topology",
            "applicationId": self.application_id,
            "processingGuarantee": "exactly_once",
            "replicas": 1,
            "kafka": kafka,
            "state": {"ephemeral": True, "size": "64Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "env": [{"name": TOPIC_PREFIX, "value": self.application_id}],
            "deletion": {"kafka": "Delete"},
        }
        if self.replication_factor > 0:
            spec["config"] = {"replication.factor": str(self.replication_factor)}
        if self.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": each} for each in self.image_pull_secrets]
        return {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def _create_topics(self, admin: AdminClient, topics: list[str]) -> None:
        from confluent_kafka.admin import NewTopic

        made = [NewTopic(each, _PARTITIONS, replication_factor=self.replication_factor) for each in topics]
        for future in admin.create_topics(made, request_timeout=30).values():
            future.result()
        self.say(f"topics {' and '.join(topics)} are created")

    def _await_ready(self) -> None:
        while True:
            app = self.cluster.find(self.name) or {}
            conditions = {each["type"]: each for each in app.get("status", {}).get("conditions", ())}
            if conditions.get("Ready", {}).get("status") == "True":
                return
            problems = [each for each in ("Degraded", "Stalled") if conditions.get(each, {}).get("status") == "True"]
            told = conditions.get(problems[0] if problems else "Ready", {})
            reason = (
                f"{told.get('reason', 'Unknown')}: {told.get('message', 'the operator has not written a condition')}"
            )
            if "Stalled" in problems:  # until a person changes something, and nobody changes the canary
                raise CanaryFailed(f"StreamApp {self.name} does not become Ready by itself. {reason}")
            _pause(self.deadline, f"StreamApp {self.name} is not Ready. {reason}")

    def _send(self, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(dict(self.config.producer_settings()))
        for word in _WORDS:
            producer.produce(topic, key=word, value="")
        if left := producer.flush(max(1.0, self.deadline - time.monotonic())):
            raise CanaryFailed(
                f"{left} records could not be written to topic {topic}: check the brokers and their ACLs."
            )

    def _compare(self, topic: str) -> None:
        from confluent_kafka import Consumer

        expected, counts = Counter(_WORDS), dict[str, int]()
        settings = dict(self.config.consumer_settings()) | {
            "group.id": f"{self.application_id}-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign(_partitions(topic))
            while counts != expected:
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    key, value = message.key(), message.value()
                    assert key is not None
                    assert value is not None
                    counts[key.decode()] = int.from_bytes(value, "big", signed=True)
                elif time.monotonic() > self.deadline:
                    raise CanaryFailed(
                        f"The application's output is wrong or late: topic {topic} has the counts {counts}, and "
                        f"{dict(expected)} is right. `kubectl describe sapp {self.name}` has its problems."
                    )
        finally:
            consumer.close()

    def _delete(self) -> None:
        self.cluster.delete(self.name)
        while self.cluster.find(self.name) is not None:
            _pause(
                self.deadline, f"StreamApp {self.name} was deleted and is still there: the operator does not finish it."
            )


def _partitions(topic: str) -> list[Any]:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    return [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(_PARTITIONS)]


def _pause(deadline: float, reason: str) -> None:
    """Wait a moment.

    Raises:
        CanaryFailed: with the reason, after the deadline.
    """
    if time.monotonic() > deadline:
        raise CanaryFailed(reason)
    time.sleep(_POLL_S)


def deadline_in(timeout: timedelta) -> float:
    """Return the time of a deadline, by `time.monotonic()`."""
    return time.monotonic() + timeout.total_seconds()
