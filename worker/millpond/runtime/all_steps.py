"""Steps that are all taken, even if some fail: the end of a worker, and the instructions of the life cycle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException

from millpond.errors import MillpondError

__all__ = ("take_all",)

log: logging.Logger = logging.getLogger(__name__)


def take_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take all steps in this order, whichever of them fail.

    Raises:
        Exception: the error of the first step that failed. Those of later steps are logged.
    """
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:
            if first is None:
                first = error
            else:
                explained = isinstance(error, (MillpondError, KafkaException))
                log.error("after another error: %s", repr(error), exc_info=None if explained else error)
    if first is not None:
        raise first
