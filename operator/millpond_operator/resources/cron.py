"""Snapshot schedules in cron's syntax. Nothing here reads a clock, so they work in virtual time as well."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from millpond.errors import MillpondError

__all__ = ("CronSchedule", "ScheduleInvalid")

_FIELDS = 5


class ScheduleInvalid(MillpondError):
    """A schedule or a time zone is invalid; the message is one sentence."""


class CronSchedule:
    """A schedule in a time zone.

    Args:
        cron: five fields: minute, hour, day of the month, month, day of the week.
        zone: the name of a time zone, such as `Europe/Berlin`.

    Raises:
        ScheduleInvalid: either is invalid, or the schedule is never due.
    """

    def __init__(self, cron: str, zone: str) -> None:
        self._cron = cron
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ScheduleInvalid(
                f"The time zone '{zone}' does not exist: correct spec.bootstrap.timeZone, for example to Europe/Berlin."
            ) from error
        try:
            if len(cron.split()) != _FIELDS:
                raise CronSimError("Wrong number of fields")
            next(CronSim(cron, datetime(2026, 1, 1, tzinfo=self._zone)))
        except (CronSimError, StopIteration) as error:
            why = str(error).lower() or "it is never due"
            raise ScheduleInvalid(
                f"The schedule '{cron}' is invalid ({why}): write spec.bootstrap.schedule in cron's five fields, for "
                "example '0 3 * * *' for every day at three."
            ) from error

    def after(self, moment: datetime) -> datetime | None:
        """Return the first due time after a moment, in whole minutes; None when there is none within fifty years."""
        return next(CronSim(self._cron, moment.astimezone(self._zone)), None)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last due time after `since` and up to `until`; None when there is none. Missed ones count once."""
        beyond = until.astimezone(self._zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        found = next(CronSim(self._cron, beyond, reverse=True), None)
        return found if found is not None and since < found <= until else None
