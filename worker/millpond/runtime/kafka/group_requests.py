"""Requests of admin clients to the coordinator of a consumer group, in a way that cannot end the process.

If such a request times out inside the client while no coordinator can be reached, and one can be reached later,
librdkafka 2.16 sends the request from memory that it has freed, and aborts the process: a worker would end because its
broker was restarted. So no request is allowed to time out inside the client: the caller waits as long as it likes, and
then drops the client, which forgets the request.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from confluent_kafka import KafkaException

__all__ = ("REQUEST_TIMEOUT_S", "FutureTimeout", "answer")

#: The `request_timeout` to send such requests with, in seconds: the longest that clients accept.
REQUEST_TIMEOUT_S: float = 3600.0

T = TypeVar("T")


def answer(future: Future[T], timeout_s: float) -> T:
    """Wait for the answer to a request.

    After any error the caller drops its client. The error that is raised does not keep the client alive: that of the
    future would, since it refers to the caller's frame, until the garbage is collected.

    Args:
        future: the answer, from a request that was sent with `REQUEST_TIMEOUT_S`.
        timeout_s: how long to wait, in seconds.

    Raises:
        KafkaException: the broker rejected the request.
        FutureTimeout: no broker answered in time.
    """
    error = future.exception(timeout_s)
    if isinstance(error, KafkaException):
        raise KafkaException(*error.args)
    if error is not None:
        raise error
    return future.result()
