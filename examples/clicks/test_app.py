"""The application, tested without a broker, in event time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import millpond as mp
from examples.clicks.app import Click, Impression, Outcome, View, Visit, clicks
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def after(minutes: float) -> datetime:
    """Return the time so many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


class Site:
    """The application's topics."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.impressions: TestInputTopic[str, Impression] = driver.create_input_topic(
            "impressions", key=mp.String, value=mp.Json(Impression)
        )
        self.clicks: TestInputTopic[str, Click] = driver.create_input_topic(
            "clicks", key=mp.String, value=mp.Json(Click)
        )
        self.views: TestInputTopic[str, View] = driver.create_input_topic("views", key=mp.String, value=mp.Json(View))
        self.outcomes: TestOutputTopic[str, Outcome] = driver.create_output_topic(
            "outcomes", key=mp.String, value=mp.Json(Outcome)
        )
        self.visits: TestOutputTopic[mp.Windowed[str], Visit] = driver.create_output_topic(
            "visits", key=mp.SessionWindowedSerde(mp.String), value=mp.Json(Visit)
        )

    def show(self, impression: str, *, at: float) -> None:
        self.impressions.pipe_input(impression, Impression("skis", "/boots", after(at)))

    def click(self, impression: str, *, at: float) -> None:
        self.clicks.pipe_input(impression, Click(after(at)))

    def view(self, page: str, *, at: float, user: str = "ann") -> None:
        self.views.pipe_input(user, View(page, after(at)))

    def seconds(self) -> list[tuple[str, int | None]]:
        """Return new outcomes: the impression, and the seconds until the click."""
        return [(key, found.seconds) for key, found in self.outcomes.read_key_values_to_list()]


@pytest.fixture
def site() -> Iterator[Site]:
    with TopologyTestDriver(clicks()) as driver:
        yield Site(driver)


def test_a_click_within_ten_minutes_is_the_outcome_of_its_impression(site: Site) -> None:
    site.show("i1", at=0)
    site.show("i2", at=1)
    site.click("i1", at=10)
    assert site.seconds() == [("i1", 600)]


def test_a_click_that_arrives_before_its_impression_counts(site: Site) -> None:
    site.click("i1", at=2)
    site.show("i1", at=1)
    assert site.seconds() == [("i1", 60)]


def test_an_impression_without_a_click_is_told_once_when_its_time_has_passed(site: Site) -> None:
    site.show("i1", at=0)
    site.click("i1", at=11)  # too late
    site.show("i2", at=15)
    assert site.seconds() == []
    site.show("i3", at=16)
    assert site.seconds() == [("i1", None)]
    site.show("i4", at=60)
    assert site.seconds() == [("i2", None), ("i3", None)]


def test_a_visit_is_told_once_when_it_has_ended(site: Site) -> None:
    for page, at in (("/", 0), ("/boots", 20), ("/sale", 45)):
        site.view(page, at=at)
    site.view("/", at=79, user="bob")
    assert site.visits.is_empty()
    site.view("/", at=81, user="bob")  # half an hour and five minutes of grace after 12:45
    [(key, visit)] = site.visits.read_key_values_to_list()
    assert (key.key, key.window.start_time, key.window.end_time) == ("ann", after(0), after(45))
    assert visit == Visit(3, landing=(after(0), "/"), exit=(after(45), "/sale"))


def test_a_late_view_joins_two_visits_to_one(site: Site) -> None:
    for page, at in (("/", 0), ("/sale", 34), ("/hats", 15)):
        site.view(page, at=at)
    site.view("/", at=200, user="bob")
    [visit] = site.visits.read_values_to_list()
    assert visit == Visit(3, landing=(after(0), "/"), exit=(after(34), "/sale"))
