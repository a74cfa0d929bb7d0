"""The processor and the application, tested without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import millpond as mp
from examples.devices.app import EPOCH, Device, Reading, Status, Watch, devices
from millpond.testing import MockProcessorContext, TestInputTopic, TestOutputTopic, TopologyTestDriver

SIX = datetime(2026, 3, 2, 6, tzinfo=UTC)


class Stores:
    """The application's topics."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self.readings: TestInputTopic[str, Reading] = driver.create_input_topic(
            "readings", key=mp.String, value=mp.Json(Reading)
        )
        self.status: TestOutputTopic[str, Status] = driver.create_output_topic(
            "device-status", key=mp.String, value=mp.Json(Status)
        )

    def read(self, device: str, *, minute: float, celsius: float = -18.0) -> None:
        """A device sends a reading, so many minutes after six."""
        self.readings.pipe_input(device, Reading(celsius), SIX + timedelta(minutes=minute))

    def told(self) -> list[tuple[str, bool, float]]:
        """Return new statuses: the device, whether it is online, and since which minute after six."""
        return [
            (device, status.online, (status.since - SIX) / timedelta(minutes=1))
            for device, status in self.status.read_key_values_to_list()
        ]


@pytest.fixture
def stores() -> Iterator[Stores]:
    with TopologyTestDriver(devices()) as driver:
        yield Stores(driver)


def test_a_silent_device_goes_offline_while_others_send(stores: Stores) -> None:
    stores.read("a", minute=0)
    stores.read("b", minute=0)
    assert stores.told() == [("a", True, 0), ("b", True, 0)]
    stores.read("b", minute=4.9)
    assert stores.told() == []
    stores.read("b", minute=7)
    assert stores.told() == [("a", False, 5)]
    stores.read("b", minute=9)
    assert stores.told() == []


def test_a_device_that_comes_back_is_online_again(stores: Stores) -> None:
    stores.read("a", minute=0)
    stores.read("b", minute=8)
    stores.read("a", minute=9)
    assert stores.told() == [("a", True, 0), ("b", True, 8), ("a", False, 5), ("a", True, 9)]


def test_an_outage_that_no_other_device_showed_is_told_when_it_ends(stores: Stores) -> None:
    stores.read("a", minute=0)
    stores.read("a", minute=60)
    assert stores.told() == [("a", True, 0), ("a", False, 5), ("a", True, 60)]


def test_late_and_repeated_readings_change_nothing(stores: Stores) -> None:
    stores.read("a", minute=3, celsius=-20)
    stores.read("a", minute=3, celsius=-20)
    stores.read("a", minute=1, celsius=-10)
    known = stores.driver.get_key_value_store("devices")
    assert known is not None
    assert known.get("a") == Device(-20, seen_ms=(SIX - EPOCH) // timedelta(milliseconds=1) + 180_000)
    assert stores.told() == [("a", True, 3)]


def test_the_metric_has_the_number_of_devices_that_are_offline() -> None:
    """One processor is tested with a context that does nothing by itself: the test calls the punctuation."""
    context = MockProcessorContext[str, Status]()
    known = context.add_state_store(Watch.stores[0])
    watch = context.init(Watch())
    for device, online in (("a", True), ("b", False), ("c", False)):
        known.put(device, Device(-18, seen_ms=0, online=online))
    every_minute, every_ten_seconds = context.scheduled_punctuators()
    assert (every_minute.interval, every_ten_seconds.interval) == (timedelta(minutes=1), timedelta(seconds=10))
    every_ten_seconds.punctuator(0)
    assert watch.offline.value == 2
