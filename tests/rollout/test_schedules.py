"""When snapshots are due: by a schedule, across clock changes, and by the growth of changelogs."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from millpond.protocol import Member, Role, TaskReport, View
from millpond_operator.controllers.snapshots.due import offsets_of, replay_s
from millpond_operator.resources.cron import CronSchedule, ScheduleInvalid


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_what_was_due_several_times_is_due_once() -> None:
    """The last due time counts, including the current moment."""
    nightly = CronSchedule("0 3 * * *", "Etc/UTC")
    assert nightly.latest(at("2026-03-01T00:00"), at("2026-03-05T12:00")) == at("2026-03-05T03:00")
    assert nightly.latest(at("2026-03-05T03:00"), at("2026-03-05T12:00")) is None
    assert nightly.latest(at("2026-03-05T02:59"), at("2026-03-05T03:00")) == at("2026-03-05T03:00")
    assert nightly.latest(at("2026-03-05T02:00"), at("2026-03-05T02:59:59")) is None
    assert nightly.after(at("2026-03-05T03:00")) == at("2026-03-06T03:00")


def test_a_schedule_is_kept_over_the_changes_of_the_clock() -> None:
    """Every day has one due time, including days with 23 and 25 hours."""
    berlin = ZoneInfo("Europe/Berlin")
    for first in (datetime(2026, 3, 27, tzinfo=berlin), datetime(2026, 10, 23, tzinfo=berlin)):
        nightly, due, moment = CronSchedule("30 2 * * *", "Europe/Berlin"), [], first
        while moment < first + timedelta(days=5):
            after = moment + timedelta(minutes=7)
            if (found := nightly.latest(moment, after)) is not None:
                due.append(found)
            moment = after
        assert len(due) == 5
        assert len({each.date() for each in due}) == 5


def test_latest_and_after_agree(seed: int) -> None:
    """For any schedule, nothing is due between a moment and the returned next one."""
    chance = random.Random(seed)
    for _ in range(50):
        minute, hour, weekday = (
            chance.choice(each) for each in (["*", "*/7", "5,50"], ["*", "3", "*/5"], ["*", "1-5"])
        )
        cron = f"{minute} {hour} * * {weekday}"
        schedule = CronSchedule(cron, chance.choice(["Etc/UTC", "Asia/Tokyo", "America/New_York"]))
        moment = at("2026-01-01T00:00") + timedelta(seconds=chance.randrange(31_536_000))
        upcoming = schedule.after(moment)
        assert upcoming is not None
        assert upcoming > moment
        assert schedule.latest(moment, upcoming) == upcoming
        assert schedule.latest(moment, upcoming - timedelta(seconds=1)) is None


@pytest.mark.parametrize(
    ("cron", "zone", "told"),
    [
        ("", "Etc/UTC", "wrong number of fields"),
        ("@daily", "Etc/UTC", "wrong number of fields"),
        ("* * * * * *", "Etc/UTC", "wrong number of fields"),
        ("61 * * * *", "Etc/UTC", "bad minute"),
        ("0 0 30 2 *", "Etc/UTC", "bad day-of-month"),
        ("0 3 * * *", "Berlin", "The time zone 'Berlin' does not exist"),
        ("0 3 * * *", "../../etc/passwd", "does not exist"),
        ("0 3 * * *", "Europe", "does not exist"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(cron: str, zone: str, told: str) -> None:
    """The message has the cure."""
    with pytest.raises(ScheduleInvalid, match=told) as caught:
        CronSchedule(cron, zone)
    assert "for example" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_longest_replay_of_a_task_counts() -> None:
    """A replay begins where the last snapshot began; a task without a snapshot is replayed from the beginning."""
    active = TaskReport(Role.ACTIVE, offset=900_000)
    members = (
        Member("delays-0", tasks={"0_0": active, "0_1": TaskReport(Role.ACTIVE, offset=300_000)}),
        Member("delays-1", tasks={"0_0": TaskReport(Role.STANDBY, offset=5_000_000)}),
        Member("delays-2", alive=False, tasks={"0_2": TaskReport(Role.ACTIVE, offset=9_000_000)}),
    )
    offsets = offsets_of(View("delays", None, None, members))
    assert offsets == {"0_0": 900_000, "0_1": 300_000}
    assert replay_s(offsets, {}) == pytest.approx(6.0)
    assert replay_s(offsets, {"0_0": 750_000}) == pytest.approx(2.0)
    assert replay_s(offsets, {"0_0": 900_000, "0_1": 400_000}) == 0
    assert replay_s({}, {}) == 0
    assert offsets_of(None) == {}
