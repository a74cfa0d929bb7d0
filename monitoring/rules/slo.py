"""Recording rules of the service levels, and alerts on their error budgets.

Two service levels, both for each application:

- end-to-end latency: 99 % of commits have a latency of at most 10 s (`LATENCY_TARGET_S`);
- freshness: in 99 % of the time no task is more than 60 s (`FRESHNESS_TARGET_S`) behind its input.

An alert fires when the error budget of 30 days is used up 14.4 times (critical) or 6 times (warning) too fast, in a long
and in a short window: the short one ends the alert soon after the cause is gone.
"""

from __future__ import annotations

from datetime import timedelta

from monitoring.rules.model import CRITICAL, WARNING, Alert, Group, Recording

__all__ = ("FRESHNESS_TARGET_S", "GROUPS", "LATENCY_TARGET_S", "OBJECTIVE")

OBJECTIVE = 0.99
LATENCY_TARGET_S = 10.0
"""A bucket of `millpond_worker_e2e_latency_seconds`."""
FRESHNESS_TARGET_S = 60
_WINDOWS = ("5m", "30m", "1h", "6h")
_WORDS = {"5m": "5 minutes", "30m": "30 minutes", "1h": "hour", "6h": "6 hours"}
_BURNS = ((CRITICAL, 14.4, "1h", "5m"), (WARNING, 6, "6h", "30m"))

_BY_TASK = "by (namespace, application_id, task)"
_BY_APP = "by (namespace, application_id)"
_LATENCY = "millpond_worker_e2e_latency_seconds"


def _slow_ratio(window: str) -> str:
    fast = f'sum {_BY_APP} (rate({_LATENCY}_bucket{{le="{LATENCY_TARGET_S}"}}[{window}]))'
    return f"1 - {fast} / (sum {_BY_APP} (rate({_LATENCY}_count[{window}])) > 0)"


def _burn(name: str, ratio: str, summary: str, description: str) -> tuple[Alert, ...]:
    budget = 1 - OBJECTIVE
    return tuple(
        Alert(
            name,
            f"{ratio}{long} > {factor} * {budget:.2g} and {ratio}{short} > {factor} * {budget:.2g}",
            timedelta(minutes=2),
            severity,
            summary,
            f"{description.format(share=f'{100 * factor * budget:.3g} %', long=_WORDS[long], short=_WORDS[short])} At this "
            f"rate the error budget of 30 days is used up in {30 / factor:.0f} days.",
            labels={"window": long},
        )
        for severity, factor, long, short in _BURNS
    )


GROUPS = (
    Group(
        "millpond-service-levels",
        (
            Recording(
                "application:millpond_processed_records:rate5m",
                f"sum {_BY_APP} (rate(millpond_worker_processed_records_total[5m]))",
            ),
            Recording("application:millpond_input_lag_records:sum", f"sum {_BY_APP} (millpond_input_lag_records)"),
            Recording(
                "application:millpond_e2e_latency_seconds:p50_rate5m",
                f"histogram_quantile(0.5, sum by (namespace, application_id, le) (rate({_LATENCY}_bucket[5m])))",
            ),
            Recording(
                "application:millpond_e2e_latency_seconds:p99_rate5m",
                f"histogram_quantile(0.99, sum by (namespace, application_id, le) (rate({_LATENCY}_bucket[5m])))",
            ),
            # The age of the newest record, not of the last one, which may be late. A task that has read its inputs to
            # their ends is fresh, however old that is.
            Recording(
                "task:millpond_staleness_seconds:max",
                f"""
                clamp_min(max {_BY_TASK} (millpond_task_record_e2e_latency_seconds - millpond_task_record_lateness_seconds), 0)
                  * (1 - min {_BY_TASK} (millpond_processor_caught_up))
                """,
            ),
            Recording(
                "application:millpond_staleness_seconds:max", f"max {_BY_APP} (task:millpond_staleness_seconds:max)"
            ),
            Recording(
                "application:millpond_stale:bool",
                f"application:millpond_staleness_seconds:max > bool {FRESHNESS_TARGET_S}",
            ),
            *(
                Recording(f"application:millpond_e2e_latency_slow:ratio_rate{window}", _slow_ratio(window))
                for window in _WINDOWS
            ),
            *(
                Recording(
                    f"application:millpond_stale:ratio_{window}",
                    f"avg_over_time(application:millpond_stale:bool[{window}])",
                )
                for window in _WINDOWS
            ),
        ),
    ),
    Group(
        "millpond-service-level-alerts",
        (
            *_burn(
                "EndToEndLatencyHigh",
                "application:millpond_e2e_latency_slow:ratio_rate",
                "Application {{ $labels.application_id }}: {{ $value | humanizePercentage }} of its commits are slow",
                f"""
                More than {{share}} of the commits of the last {{long}}, and of the last {{short}}, had an end-to-end latency
                above {LATENCY_TARGET_S:g} s. Readers of the output get results late.
                """,
            ),
            *_burn(
                "DataStale",
                "application:millpond_stale:ratio_",
                "Application {{ $labels.application_id }}: stale in {{ $value | humanizePercentage }} of the time",
                f"""
                In more than {{share}} of the last {{long}}, and of the last {{short}}, a task was more than {FRESHNESS_TARGET_S} s
                behind its input. State and output lack the newest records.
                """,
            ),
        ),
    ),
)
