"""When a schema registry is asked again, and when not."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from millpond.errors import BrokerError, ConfigError, SerializationError
from millpond.serdes.fail_fast import failing_fast, fails_fast
from millpond.serdes.registry import asking
from millpond.serdes.registry.asking import Asking, Retries
from millpond.serdes.waits import telling_waits


class Registry:
    """A registry that is away, with a clock."""

    def __init__(self, *, may_pass: bool = True, most: int = 3) -> None:
        self.requests = 0
        self.away = True
        self.rejects = False
        self.now = 100.0
        self.waits: list[float] = []
        self._asking = Asking(
            "the registry at http://r", Retries(most), lambda _error: may_pass, lambda: self.now, self.waits.append
        )

    def request(self) -> str:
        self.requests += 1
        if self.away:
            raise BrokerError("the registry at http://r does not answer.")
        if self.rejects:
            raise SerializationError("no such schema")
        return "schema"

    def ask(self) -> str:
        return self._asking.ask(self.request)

    def ask_fast(self) -> str:
        return failing_fast(self.ask)


def test_worker_asks_again_before_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason at the first failure, once."""
    registry = Registry()
    with caplog.at_level(logging.WARNING), pytest.raises(BrokerError, match="does not answer"):
        registry.ask()
    assert registry.requests == 4
    assert len(registry.waits) == 3
    assert all(0 <= wait <= longest for wait, longest in zip(registry.waits, (1, 2, 4), strict=True))
    assert [record.getMessage() for record in caplog.records] == [
        "the registry at http://r does not answer. Asking again, up to 3 times; what needs it waits."
    ]


def test_worker_is_told_of_the_wait() -> None:
    """From the first failure to the end, by an answer or not; a query does not wait."""
    registry, told = Registry(), []
    with telling_waits(lambda error: told.append(None if error is None else str(error))):
        with pytest.raises(BrokerError) as raised:
            registry.ask()
        assert told == [str(raised.value)] * 3 + [None]
        with pytest.raises(BrokerError):
            registry.ask_fast()
        assert len(told) == 4
    with pytest.raises(BrokerError):
        registry.ask()
    assert len(told) == 4


def test_credentials_that_are_rejected_are_sent_once() -> None:
    """They stay wrong."""
    registry = Registry(may_pass=False)
    with pytest.raises(BrokerError):
        registry.ask()
    assert (registry.requests, registry.waits) == (1, [])


def test_queries_send_one_request_a_second_while_the_registry_is_away() -> None:
    """The others fail at once, with its error, and none waits."""
    registry = Registry()
    for _ in range(8):
        with pytest.raises(BrokerError, match="does not answer"):
            registry.ask_fast()
    assert (registry.requests, registry.waits) == (1, [])
    registry.now += 1.0
    with pytest.raises(BrokerError):
        registry.ask_fast()
    assert registry.requests == 2
    registry.now += 1.0
    registry.away = False
    assert [registry.ask_fast(), registry.ask_fast()] == ["schema"] * 2
    assert registry.requests == 4


def test_worker_does_not_give_up_for_a_failure_of_a_query() -> None:
    """It asks for itself."""
    registry = Registry()
    with pytest.raises(BrokerError):
        registry.ask_fast()
    registry.away = False
    assert registry.ask() == "schema"
    assert registry.ask_fast() == "schema"


def test_rejection_is_an_answer() -> None:
    """A registry that knows no such schema runs: nothing is remembered."""
    registry = Registry()
    with pytest.raises(BrokerError):
        registry.ask_fast()
    registry.away, registry.rejects = False, True
    registry.now += 1.0
    for _ in range(2):
        with pytest.raises(SerializationError):
            registry.ask_fast()
    assert registry.requests == 3


@pytest.mark.parametrize("known", [False, True], ids=["first failure", "known to be away"])
def test_query_does_not_wait_for_a_request_that_hangs(monkeypatch: pytest.MonkeyPatch, *, known: bool) -> None:
    """One query waits for the registry's answer, the others fail."""
    monkeypatch.setattr(asking, "_JOIN_S", 0 if not known else 3600)
    registry, begun, answered = Registry(), threading.Event(), threading.Event()
    if known:
        with pytest.raises(BrokerError):
            registry.ask_fast()
        registry.now += 1.0

    def hanging() -> Any:
        begun.set()
        assert answered.wait(60)
        return "schema"

    found: list[str] = []
    asks = threading.Thread(target=lambda: found.append(failing_fast(registry._asking.ask, hanging)), daemon=True)
    asks.start()
    assert begun.wait(60)
    with pytest.raises(BrokerError, match="does not answer" if known else "http://r has not answered for 0 s"):
        registry.ask_fast()
    answered.set()
    asks.join(60)
    assert found == ["schema"]


def test_only_calls_inside_fail_fast() -> None:
    """Also after an error."""
    with pytest.raises(ZeroDivisionError):
        failing_fast(lambda: 1 / 0)
    assert not fails_fast()
    assert failing_fast(fails_fast)


def test_settings_of_confluents_client_are_followed() -> None:
    """They keep their meaning, and their defaults."""
    given = {"max.retries": 5, "retries.wait.ms": 100, "retries.max.wait.ms": 2_000}
    assert Retries.of(given) == Retries(5, 0.1, 2.0)
    assert Retries.of({}) == Retries(3, 1.0, 20.0)
    with pytest.raises(ConfigError, match=r"max\.retries must be a number, not str"):
        Retries.of({"max.retries": "many"})
