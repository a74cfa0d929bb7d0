"""Sends records for handlers of HTTP requests, and tells them when the brokers have them."""

from __future__ import annotations

import asyncio
import logging
import threading

from confluent_kafka import KafkaException, Message, Producer

__all__ = ("Inbox",)

#: The client's own lines. The worker beside it tells of brokers that are away; this client would repeat it each second.
log: logging.Logger = logging.getLogger(__name__)
log.setLevel(logging.CRITICAL)


class Inbox:
    """An idempotent producer, whose deliveries are awaited.

    Args:
        servers: the brokers.
        timeout_s: how long the brokers may take for a record.
    """

    def __init__(self, servers: str, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "partitioner": "murmur2_random",  # as in Java and in millpond
                "enable.idempotence": True,
                "linger.ms": 1,
                "delivery.timeout.ms": int(timeout_s * 1000),
            },
            logger=log,  # without one, they would go to standard error, past the program's logs
        )
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="inbox", daemon=True)

    def start(self) -> None:
        """Begin to tell about deliveries."""
        self._thread.start()

    async def send(self, topic: str, key: bytes, value: bytes) -> tuple[int, int]:
        """Send a record; return its partition and offset once all in-sync replicas have it.

        Raises:
            KafkaException: the brokers do not have it, or it is not known whether they do.
        """
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[tuple[int, int]] = loop.create_future()

        def delivered(error: object, message: Message) -> None:
            loop.call_soon_threadsafe(settle, error, (message.partition() or 0, message.offset() or 0))

        def settle(error: object, where: tuple[int, int]) -> None:
            if sent.done():  # the client of the request has gone
                return
            if error is None:
                sent.set_result(where)
            else:
                sent.set_exception(KafkaException(error))

        self._producer.produce(topic, key=key, value=value, on_delivery=delivered)
        return await sent

    def close(self) -> None:
        """Wait for all deliveries, and end."""
        self._producer.flush(self._timeout_s)
        self._closing.set()
        self._thread.join()
        self._producer.close()

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)
