"""Values that the API server takes, and that no pod or schedule can be made of."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from millpond_operator.resources import StateBootstrapSpec, StreamAppSpec

from .quantities import value_of

__all__ = ("checks_schedules", "impossible_in_app", "impossible_in_bootstrap")

_BYTES = frozenset({"memory", "ephemeral-storage"})
_MIB = 1024**2
#: A process with Python, librdkafka and RocksDB needs more at its start.
_LEAST_MEMORY = 32 * _MIB


def checks_schedules() -> bool:
    """Return whether the library that reads schedules is installed: cronsim."""
    return importlib.util.find_spec("cronsim") is not None


def impossible_in_app(spec: StreamAppSpec) -> Iterator[tuple[str, str]]:
    """Yield paths below `spec` and sentences about a StreamApp."""
    yield from _requirements("resources", {"requests": spec.resources.requests, "limits": spec.resources.limits})
    bootstrap = spec.bootstrap
    if bootstrap is None:
        return
    if bootstrap.spark is not None:
        needs = bootstrap.spark.resources
        yield from _requirements("bootstrap.spark.resources", {"requests": needs.requests, "limits": needs.limits})
    if bootstrap.schedule is not None and checks_schedules():
        from millpond_operator.resources.cron import CronSchedule, ScheduleInvalid

        try:
            CronSchedule(bootstrap.schedule, bootstrap.time_zone)
        except ScheduleInvalid as error:
            yield f"bootstrap.{'timeZone' if 'time zone' in str(error) else 'schedule'}", str(error)


def impossible_in_bootstrap(spec: StateBootstrapSpec) -> Iterator[tuple[str, str]]:
    """Yield paths below `spec` and sentences about a StateBootstrap."""
    needs = spec.spark.resources
    yield from _requirements("spark.resources", {"requests": needs.requests, "limits": needs.limits})


def _requirements(path: str, needs: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for kind, amounts in needs.items():
        for name, amount in amounts.items():
            if name in _BYTES:
                least = _LEAST_MEMORY if (kind, name) == ("limits", "memory") else 0
                yield from _size(f"{path}.{kind}.{name}", amount, least)


def _size(path: str, given: object, least: int) -> Iterator[tuple[str, str]]:
    value = value_of(str(given))
    if value != value.to_integral_value():
        hint = f", such as {int(value * 1000)}Mi" if str(given).endswith("m") else ", such as 512Mi"
        yield path, f"spec.{path} is '{given}', which is no whole number of bytes: write a number with a unit{hint}."
    elif value < least:
        yield path, f"spec.{path} is '{given}', which is {value} bytes: write at least {least // _MIB}Mi."
