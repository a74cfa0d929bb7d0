"""A consumer that can be replaced by a new one while others go on using it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

__all__ = ("ReplaceableConsumer", "close_aside")

log = logging.getLogger(__name__)


class _Renewable:
    """Passes every call on to the consumer that there is now.

    After a broker was away, or a process slept, the client now and then delivers nothing more, for whatever partition, and
    says nothing of it (see `lifelines.py`). Only a new client helps.

    Args:
        make: makes a consumer.
    """

    def __init__(self, make: Callable[[], Consumer]) -> None:
        self._make = make
        self._consumer = make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def renew(self) -> None:
        """Go on with a new consumer, which has nothing assigned. The old one is closed in a thread: it may hang."""
        old, self._consumer = self._consumer, self._make()
        close_aside(old)


def close_aside(consumer: Consumer) -> None:
    """Close a consumer in a thread: it may hang."""
    threading.Thread(target=_close, args=(consumer,), name="millpond-closing", daemon=True).start()


def _close(consumer: Consumer) -> None:
    try:
        consumer.close()
    except Exception as error:
        log.info("an abandoned consumer did not close: %s", error)


if TYPE_CHECKING:

    class ReplaceableConsumer(Consumer):
        """A consumer with `renew`."""

        def __init__(self, make: Callable[[], Consumer]) -> None: ...
        def renew(self) -> None:
            """Go on with a new consumer, which has nothing assigned."""

else:
    ReplaceableConsumer = _Renewable
