"""When a schema registry is asked, and how often: with retries for workers, once for those who must not wait.

A caller in `failing_fast` sends no request while an earlier failure is remembered, nor beside a request of another
thread. So queries take no longer than one attempt while the registry is away, however many they are.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from millpond.errors import BrokerError, ConfigError
from millpond.serdes.fail_fast import fails_fast
from millpond.serdes.waits import tell_wait

__all__ = ("Asking", "Retries")

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How long a failure is remembered for callers that must not wait, in seconds.
_REMEMBERED_S = 1.0
#: How long these wait for the request of another thread, in seconds.
_JOIN_S = 1.0


class Retries(NamedTuple):
    """How often and when a request is sent again: the settings of Confluent's client, with its defaults."""

    most: int = 3
    wait_s: float = 1.0
    longest_wait_s: float = 20.0

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Retries:
        """Return the retries of a client's settings.

        Raises:
            ConfigError: a setting is not a number.
        """

        def number(name: str, default: float) -> float:
            value = settings.get(name, default)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(
                    f"the settings of the schema registry cannot be used: {name} must be a number, not "
                    f"{type(value).__name__}; correct them."
                )
            return value

        return cls(
            int(number("max.retries", cls().most)),
            number("retries.wait.ms", cls().wait_s * 1000) / 1000,
            number("retries.max.wait.ms", cls().longest_wait_s * 1000) / 1000,
        )


class Asking:
    """The requests to one registry. Thread-safe.

    Args:
        name: the name of the registry in messages.
        retries: how often a request is sent again.
        may_pass: f(error) -> whether another attempt may succeed.
        monotonic: returns the seconds of a clock that never goes back.
        sleep: waits some seconds.
    """

    def __init__(
        self,
        name: str,
        retries: Retries,
        may_pass: Callable[[BrokerError], bool],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._name = name
        self._retries = retries
        self._may_pass = may_pass
        self._monotonic = monotonic
        self._sleep = sleep
        self._one_request = threading.Lock()
        #: The last failure, and when it was; None after an answer.
        self._failure: tuple[float, str] | None = None

    def ask(self, request: Callable[[], T]) -> T:
        """Return the answer to a request.

        Args:
            request: sends the request; raises BrokerError if there is no answer.

        Raises:
            BrokerError: the registry does not answer.
        """
        return self._ask_once(request) if fails_fast() else self._ask_patiently(request)

    def _ask_patiently(self, request: Callable[[], T]) -> T:
        most, wait_s, longest_wait_s = self._retries
        try:
            for attempt in range(most):
                try:
                    return self._noted(request)
                except BrokerError as error:
                    if not self._may_pass(error):
                        raise
                    if attempt == 0:
                        log.warning("%s Asking again, up to %d times; what needs it waits.", error, most)
                    tell_wait(error)
                    self._sleep(random.random() * min(wait_s * 2**attempt, longest_wait_s))
            return self._noted(request)
        finally:
            tell_wait(None)

    def _ask_once(self, request: Callable[[], T]) -> T:
        self._raise_remembered()
        failure = self._failure
        if not self._one_request.acquire(timeout=_JOIN_S if failure is None else 0):
            raise BrokerError(
                f"{self._name} has not answered for {_JOIN_S:g} s. Check that it runs."
                if failure is None
                else failure[1]
            )
        try:
            self._raise_remembered()
            return self._noted(request)
        finally:
            self._one_request.release()

    def _noted(self, request: Callable[[], T]) -> T:
        try:
            answer = request()
        except BrokerError as error:
            self._failure = self._monotonic(), str(error)
            raise
        except Exception:  # a rejection is an answer, too
            self._failure = None
            raise
        self._failure = None
        return answer

    def _raise_remembered(self) -> None:
        failure = self._failure
        if failure is not None and self._monotonic() - failure[0] < _REMEMBERED_S:
            raise BrokerError(failure[1])
