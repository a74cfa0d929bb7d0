"""The processor and the HTTP interface, tested without a broker: a test driver has the place of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from fastapi.testclient import TestClient

import millpond as mp
from examples.service.app import Balance, Transfer, accounts
from examples.service.main import service
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver


class Inside:
    """What the service has inside: the driver, as worker and as inbox."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self._driver = driver
        self.transfers: TestInputTopic[str, Transfer] = driver.create_input_topic(
            "transfers", key=mp.String, value=mp.Json(Transfer)
        )
        self.balances: TestOutputTopic[str, Balance] = driver.create_output_topic(
            "balances", key=mp.String, value=mp.Json(Balance)
        )
        self.state = mp.WorkerState.CREATED
        self.exception: Exception | None = None
        self.broken = False

    def store(self, name: str, _kind: object) -> Any:
        return self._driver.get_key_value_store(name)

    def start(self) -> None:
        self.state = mp.WorkerState.RUNNING

    def close(self) -> None:
        self.state = mp.WorkerState.NOT_RUNNING

    async def send(self, topic: str, key: bytes, value: bytes) -> tuple[int, int]:
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        assert topic == "transfers"
        self.transfers.pipe_input(key.decode(), msgspec.json.decode(value, type=Transfer))
        return 0, 0


@pytest.fixture
def inside() -> Iterator[Inside]:
    with TopologyTestDriver(accounts()) as driver:
        yield Inside(driver)


@pytest.fixture
def client(inside: Inside) -> Iterator[TestClient]:
    part: Any = inside
    with TestClient(service(part, part)) as started:
        yield started


def test_a_balance_follows_each_transfer(inside: Inside) -> None:
    inside.transfers.pipe_key_value_list([("ann", Transfer("1", 500)), ("ann", Transfer("2", -200))])
    assert inside.balances.read_values_to_list() == [Balance(500, 1), Balance(300, 2)]


def test_a_transfer_that_comes_twice_counts_once(inside: Inside) -> None:
    inside.transfers.pipe_key_value_list([("ann", Transfer("1", 500)), ("ann", Transfer("1", 500))])
    inside.transfers.pipe_input("bob", Transfer("1", 70))
    assert inside.balances.read_key_values_to_list() == [("ann", Balance(500, 1)), ("bob", Balance(70, 1))]


def test_an_id_that_comes_again_with_another_transfer_changes_nothing(client: TestClient, inside: Inside) -> None:
    for cents in (500, 900):
        client.put("/accounts/ann/transfers/1", json={"cents": cents})
    assert client.get("/accounts/ann/transfers/1").json() == {"cents": 500, "purpose": ""}
    assert client.get("/accounts/ann").json() == {"account": "ann", "cents": 500, "transfers": 1}


def test_transfers_come_in_and_balances_go_out_by_http(client: TestClient) -> None:
    for _ in range(2):
        answer = client.put("/accounts/ann/transfers/rent-3", json={"cents": -90000, "purpose": "rent"})
        assert (answer.status_code, answer.json()) == (202, {"partition": 0, "offset": 0})
    assert client.get("/accounts/ann").json() == {"account": "ann", "cents": -90000, "transfers": 1}


def test_an_account_without_transfers_is_not_found(client: TestClient) -> None:
    assert client.get("/accounts/nobody").status_code == 404
    assert client.get("/accounts/nobody/transfers/1").status_code == 404


def test_a_transfer_without_an_amount_is_rejected(client: TestClient, inside: Inside) -> None:
    assert client.put("/accounts/ann/transfers/1", json={"purpose": "rent"}).status_code == 422
    assert inside.balances.is_empty()


def test_a_transfer_that_kafka_may_not_have_is_not_accepted(client: TestClient, inside: Inside) -> None:
    inside.broken = True
    answer = client.put("/accounts/ann/transfers/1", json={"cents": 1})
    assert answer.status_code == 503
    assert "send it again" in answer.json()["detail"]


def test_health_follows_the_worker(client: TestClient, inside: Inside) -> None:
    assert (client.get("/live").status_code, client.get("/ready").status_code) == (200, 200)
    inside.state = mp.WorkerState.RESTORING
    assert (client.get("/live").status_code, client.get("/ready").status_code) == (200, 503)
    inside.state, inside.exception = mp.WorkerState.ERROR, RuntimeError("the disk is full")
    assert (client.get("/live").status_code, client.get("/ready").status_code) == (503, 503)
    assert "the disk is full" in client.get("/live").json()["detail"]
