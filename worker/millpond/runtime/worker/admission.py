"""The contact of a worker with its coordinator at the start, before the worker knows its tasks.

The worker reports its id and its blockers, and asks whether the application may run on the Kafka cluster that the
worker reaches.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from millpond.backoff import Backoff
from millpond.errors import OwnershipError
from millpond.protocol import Heartbeat, RefusalCode
from millpond.protocol.loads import WorkerLoad
from millpond.protocol.overview import TopologyOverview
from millpond.runtime.blockers import Blockers
from millpond.runtime.config.credentials import CredentialFiles, files_of
from millpond.runtime.config.model import Config
from millpond.runtime.http.server import HttpServer
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.topics.plan import Plan, summary

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("Admission", "await_admission")

_REPORT_INTERVAL_S = 1.0
#: How long a worker waits for a coordinator that does not answer.
_ADMISSION_TIMEOUT_S = 2.0
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=1))
_UNDECIDED = frozenset({RefusalCode.CLAIM_PENDING, RefusalCode.CLAIM_REFUSED})


class Admission:
    """The worker's admission: makes its client for the coordinator, and waits for admission to the Kafka cluster.

    Args:
        config: the worker's configuration.
        http: runs the event loop for heartbeats.
        address: returns the address for queries of other workers, or None if the worker has none.
        blockers: the blockers of the worker.
        contact: reports whether brokers answer.
        stop: set when the worker has to end.

    Attributes:
        incarnation: the id of this start of the process.
        kafka_cluster: returns the id of the Kafka cluster that the worker reaches; "" while it is unknown. May be set.
        load: returns the last measurement of the worker's load. May be set.
        coordinator_silent: whether no coordinator answered when the worker asked for admission.
    """

    def __init__(  # noqa: PLR0913 - the parts of the worker that it reports about
        self,
        config: Config,
        http: HttpServer,
        address: Callable[[], str | None],
        blockers: Blockers,
        contact: BrokerContact,
        stop: threading.Event,
    ) -> None:
        self.incarnation: str = uuid.uuid4().hex
        self.kafka_cluster: Callable[[], str] = lambda: ""
        self.load: Callable[[], WorkerLoad | None] = lambda: None
        self.coordinator_silent: bool = False
        self._config = config
        self._http = http
        self._address = address
        self._blockers = blockers
        self._contact = contact
        self._stop = stop
        self._client: CoordinatorClient | None = None
        clients = (config.admin_settings(), config.consumer, config.producer)
        self._credentials = CredentialFiles(config.credentials_dir, files_of(clients))

    @property
    def address(self) -> str | None:
        """The URL at which the worker answers queries; None if it does not."""
        return self._config.application_server or self._address()

    def client(self, url: str, plan: Plan | None, graph: TopologyOverview | None = None) -> CoordinatorClient:
        """Return a client that sends this worker's heartbeats.

        Args:
            url: the coordinator's address.
            plan: the application's plan; None while it is unknown.
            graph: the drawing of the topology.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        from millpond.protocol.client import CoordinatorClient  # imports aiohttp, which only coordinated workers need

        config = self._config
        topology = summary(plan) if plan is not None else None
        rack = config.consumer.get("client.rack")
        heartbeat = Heartbeat(
            application=config.application_id,
            worker=config.worker_id,
            incarnation=self.incarnation,
            sequence=0,
            topology_hash=topology.hash if topology is not None else "",
            revision=config.revision,
            address=self.address,
            tags=dict(config.tags),
            rack=None if rack is None else str(rack),
        )
        return CoordinatorClient(
            url,
            heartbeat,
            topology,
            token_file=config.coordinator_token_file,
            ca_file=config.coordinator_ca_file,
            trouble=self._blockers.trouble,
            brokers=lambda: self._contact.brokers,
            reach=lambda: self._contact.reach,
            kafka_cluster=lambda: self.kafka_cluster(),
            credentials_changed=self._credentials.changed,
            load=lambda: self.load(),
            graph=graph,
        )

    @contextmanager
    def reporting_trouble(self) -> Iterator[None]:
        """Report the blockers of the start to the coordinator, while the `with` block runs."""
        url = self._config.coordinator_url
        if url is None:
            yield
            return
        client = self._client = self.client(url, None)
        reports = self._http.spawn(_report_trouble(client, self._blockers))
        try:
            yield
        finally:
            reports.cancel()
            self._client = None

    def await_admission(self, kafka_cluster: str) -> None:
        """Wait until the application may run on this Kafka cluster. Call it within `reporting_trouble`.

        Raises:
            OwnershipError: the worker was stopped before it was admitted.
        """
        self.kafka_cluster = lambda: kafka_cluster
        client = self._client
        if client is not None:
            spawn = self._http.spawn
            self.coordinator_silent = not await_admission(
                lambda: spawn(client.once()).result(), client, self._blockers, self._stop
            )


def await_admission(
    ask: Callable[[], bool], client: CoordinatorClient, blockers: Blockers, stop: threading.Event
) -> bool:
    """Wait until the coordinator admits the application to the Kafka cluster that this worker reaches.

    Another application may use the same id there: creating its topics or initialising its transactional ids would
    disturb it. If no coordinator answers, the worker continues, unless a coordinator has rejected it before.

    Args:
        ask: sends one heartbeat of `client`; returns whether the coordinator answered or rejected it.
        client: reports the id of the Kafka cluster.
        blockers: the blockers of the worker.
        stop: ends the wait.

    Returns:
        Whether a coordinator answered.

    Raises:
        OwnershipError: the worker was stopped before it was admitted.
    """
    until = time.monotonic() + _ADMISSION_TIMEOUT_S
    waits = iter(_BACKOFF)
    rejection: OwnershipError | None = None
    while True:
        answered = ask()
        refusal = client.refusal if answered else None
        if refusal is not None and refusal.code in _UNDECIDED:
            rejection = OwnershipError(refusal.message)
            blockers.add("admission", rejection)
        elif (answered and refusal is None) or (rejection is None and time.monotonic() >= until):
            blockers.remove("admission")
            return answered
        if stop.wait(next(waits)):
            raise rejection or OwnershipError(
                "The worker was stopped before a coordinator admitted it. Start it again."
            )


async def _report_trouble(client: CoordinatorClient, blockers: Blockers) -> None:
    """Report the blockers of the worker's start to the coordinator, until cancelled."""
    while True:
        await asyncio.sleep(_REPORT_INTERVAL_S)
        if blockers.trouble() is not None:
            await client.once()
