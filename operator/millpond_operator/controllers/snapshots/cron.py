"""When snapshots are due, by a schedule in cron's syntax: in virtual time as in real time, nothing here asks for the time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from millpond.errors import MillpondError

__all__ = ("CronSchedule", "ScheduleInvalid")

_FIELDS = 5


class ScheduleInvalid(MillpondError):
    """A schedule that cannot be read; the message is one sentence."""


class CronSchedule:
    """A schedule in a time zone.

    Args:
        cron: five fields: minute, hour, day of the month, month, day of the week.
        zone: the name of a time zone, such as `Europe/Berlin`.

    Raises:
        ScheduleInvalid: either cannot be read, or the schedule has no moment at all.
    """

    def __init__(self, cron: str, zone: str) -> None:
        self._cron = cron
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ScheduleInvalid(
                f"There is no time zone '{zone}': correct spec.bootstrap.timeZone, for example to Europe/Berlin."
            ) from error
        try:
            if len(cron.split()) != _FIELDS:
                raise CronSimError("Wrong number of fields")
            next(CronSim(cron, datetime(2026, 1, 1, tzinfo=self._zone)))
        except (CronSimError, StopIteration) as error:
            why = str(error).lower() or "it is never due"
            raise ScheduleInvalid(
                f"The schedule '{cron}' cannot be read ({why}): write spec.bootstrap.schedule in cron's five fields, for "
                "example '0 3 * * *' for every day at three."
            ) from error

    def after(self, moment: datetime) -> datetime | None:
        """Return the first moment after another one, in whole minutes; None when there is none in fifty years."""
        return next(CronSim(self._cron, moment.astimezone(self._zone)), None)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last moment after `since` and up to `until`: what was due several times is made up for once."""
        beyond = until.astimezone(self._zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        found = next(CronSim(self._cron, beyond, reverse=True), None)
        return found if found is not None and since < found <= until else None
