"""A consumer that can be replaced by a new one without a change for its users."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

__all__ = ("ReplaceableConsumer", "close_in_background")

#: How long the end of a worker waits for a consumer that closes, in seconds.
_CLOSE_S = 2.0

log: logging.Logger = logging.getLogger(__name__)


class _Proxy:
    """A consumer that passes every call on to the current client.

    After a broker was down, or the process was suspended, a client sometimes stops delivering records of all
    partitions, and reports no error (see `reconnect.py`). Only a new client helps.

    Args:
        make: makes a consumer.
    """

    def __init__(self, make: Callable[[], Consumer]) -> None:
        self._make = make
        self._consumer = make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def renew(self) -> None:
        """Replace the consumer by a new one, without an assignment. The old one is closed in the background."""
        old, self._consumer = self._consumer, self._make()
        close_in_background(old)

    def close(self) -> None:
        """Close the consumer. One that waits for brokers that do not answer is left behind after a short time."""
        closing = close_in_background(self._consumer)
        closing.join(_CLOSE_S)
        if closing.is_alive():
            log.warning("a consumer does not end, since no broker answers it; it is left behind")


def close_in_background(consumer: Consumer) -> threading.Thread:
    """Close a consumer in a thread, since this may block for ever; return the thread."""
    thread = threading.Thread(target=_close, args=(consumer,), name="millpond-closing", daemon=True)
    thread.start()
    return thread


def _close(consumer: Consumer) -> None:
    try:
        consumer.close()
    except Exception as error:  # noqa: BLE001 - the end of a thread that no code waits for
        log.info("replaced consumer: cannot close it: %s", error)


if TYPE_CHECKING:

    class ReplaceableConsumer(Consumer):
        """A consumer with `renew`."""

        def __init__(self, make: Callable[[], Consumer]) -> None: ...
        def renew(self) -> None:
            """Replace the consumer by a new one, without an assignment."""

else:
    ReplaceableConsumer = _Proxy
