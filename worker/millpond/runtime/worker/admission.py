"""What a worker and its coordinator tell each other before the worker knows its tasks: who it is, what it waits for, and whether
it may begin on the Kafka cluster that it reaches.
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
from millpond.runtime.blockers import Blockers
from millpond.runtime.config.credentials import CredentialFiles, files_of
from millpond.runtime.config.model import Config
from millpond.runtime.http.server import HttpServer
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.topics.plan import Plan, summary

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("Admission", "await_admission")

_TELL_S = 1.0
#: A coordinator that does not say whether the worker may begin is waited for so long.
_ADMISSION_TIMEOUT_S = 2.0
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=1))
_UNDECIDED = frozenset({RefusalCode.CLAIM_PENDING, RefusalCode.CLAIM_REFUSED})


class Admission:
    """A worker as its coordinator meets it.

    Args:
        config: the worker's.
        http: has the event loop for heartbeats.
        address: where other workers reach this one, None where they do not.
        waiting: knows what the worker waits for.
        contact: knows whether Kafka answers it.
        stop: set when the worker is to end.

    Attributes:
        incarnation: of this start of the process.
        kafka_cluster: the id of the Kafka cluster that the worker reaches; "" while that is not known. May be set.
        alone: whether no coordinator answered when the worker asked whether it may begin.
    """

    def __init__(
        self,
        config: Config,
        http: HttpServer,
        address: Callable[[], str | None],
        waiting: Blockers,
        contact: BrokerContact,
        stop: threading.Event,
    ) -> None:
        self.incarnation: str = uuid.uuid4().hex
        self.kafka_cluster: Callable[[], str] = lambda: ""
        self.alone: bool = False
        self._config = config
        self._http = http
        self._address = address
        self._waiting = waiting
        self._contact = contact
        self._stop = stop
        self._client: CoordinatorClient | None = None
        clients = (config.admin_settings(), config.consumer, config.producer)
        self._credentials = CredentialFiles(config.credentials_dir, files_of(clients))

    def client(self, url: str, plan: Plan | None) -> CoordinatorClient:
        """What keeps the worker in touch with the coordinator.

        Args:
            url: where the coordinator is.
            plan: of the application; None while it is not known yet.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        from millpond.protocol.client import CoordinatorClient  # aiohttp: only where there is a coordinator

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
            address=config.application_server or self._address(),
            tags=dict(config.tags),
            rack=None if rack is None else str(rack),
        )
        return CoordinatorClient(
            url,
            heartbeat,
            topology,
            token_file=config.coordinator_token_file,
            ca_file=config.coordinator_ca_file,
            trouble=self._waiting.trouble,
            brokers=lambda: self._contact.brokers,
            kafka_cluster=lambda: self.kafka_cluster(),
            credentials_changed=self._credentials.changed,
        )

    @contextmanager
    def telling_trouble(self) -> Iterator[None]:
        """Meanwhile, the coordinator is told what holds up the start."""
        url = self._config.coordinator_url
        if url is None:
            yield
            return
        client = self._client = self.client(url, None)
        telling = self._http.spawn(_tell_trouble(client, self._waiting))
        try:
            yield
        finally:
            telling.cancel()
            self._client = None

    def await_admission(self, kafka_cluster: str) -> None:
        """Wait until the application may work on this Kafka cluster; see the function. For use while trouble is told.

        Raises:
            OwnershipError: the worker is to stop, and was not let in.
        """
        self.kafka_cluster = lambda: kafka_cluster
        client = self._client
        if client is not None:
            spawn = self._http.spawn
            self.alone = not await_admission(lambda: spawn(client.once()).result(), client, self._waiting, self._stop)


def await_admission(
    ask: Callable[[], bool], client: CoordinatorClient, waiting: Blockers, stop: threading.Event
) -> bool:
    """Wait until the coordinator lets the application work on the Kafka cluster that this worker reaches.

    The application's id may be another one's there, and whoever makes its topics or initialises its transactional ids
    disturbs that one. Without a coordinator the worker goes on, unless one has refused it already.

    Args:
        ask: posts one heartbeat of `client`; returns whether the coordinator answered or refused it.
        client: tells the cluster's id.
        waiting: told why the worker waits.
        stop: ends the waiting.

    Returns:
        Whether there is a coordinator.

    Raises:
        OwnershipError: the worker is to stop, and was not let in.
    """
    until = time.monotonic() + _ADMISSION_TIMEOUT_S
    waits = iter(_BACKOFF)
    refused: OwnershipError | None = None
    while True:
        answered = ask()
        refusal = client.refusal if answered else None
        if refusal is not None and refusal.code in _UNDECIDED:
            refused = OwnershipError(refusal.message)
            waiting.add("admission", refused)
        elif (answered and refusal is None) or (refused is None and time.monotonic() >= until):
            waiting.remove("admission")
            return answered
        if stop.wait(next(waits)):
            raise refused or OwnershipError("The worker was stopped before a coordinator let it in: start it again.")


async def _tell_trouble(client: CoordinatorClient, waiting: Blockers) -> None:
    """While the worker does not know its tasks, tell the coordinator what it waits for. Ends when it is cancelled."""
    while True:
        await asyncio.sleep(_TELL_S)
        if waiting.trouble() is not None:
            await client.once()
