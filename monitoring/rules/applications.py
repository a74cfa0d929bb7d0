"""Alerts about applications, from the metrics of their workers. They work without the operator, too."""

from __future__ import annotations

from datetime import timedelta

from monitoring.rules.model import CRITICAL, WARNING, Alert, Group

__all__ = ("ACCEPTABLE_RECOVERY_LAG", "GROUPS")

ACCEPTABLE_RECOVERY_LAG = 10_000
"""The default of `acceptable.recovery.lag`: a standby with more than that does not take over at once."""

_BY_APP = "by (namespace, application_id)"
_BY_WORKER = "by (namespace, application_id, worker)"
_BY_STORE = "by (namespace, application_id, worker, store)"
_APP = "Application {{ $labels.application_id }}"
_WORKER = "Worker {{ $labels.worker }} of {{ $labels.application_id }}"


def _minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


GROUPS = (
    Group(
        "millpond-applications",
        (
            Alert(
                "LagGrowing",
                """
                sum by (namespace, application_id, topic) (millpond_input_lag_records) > 1000
                and sum by (namespace, application_id, topic) (millpond_input_lag_records)
                  > 1.1 * sum by (namespace, application_id, topic) (millpond_input_lag_records offset 10m)
                """,
                _minutes(10),
                WARNING,
                f"{_APP}: the lag of {{{{ $labels.topic }}}} grows, to {{{{ $value | humanize }}}} records",
                """
                For 10 minutes the lag has been above 1,000 records and at least 10 % larger than 10 minutes before:
                records arrive faster than they are processed. Results get later and later.
                """,
            ),
            Alert(
                "PartitionStuck",
                """
                max by (namespace, application_id, task, topic, partition) (millpond_input_lag_records) > 0
                and on (namespace, application_id, task, topic)
                  max by (namespace, application_id, task, topic) (changes(millpond_processor_position_offset[10m])) == 0
                """,
                _minutes(5),
                CRITICAL,
                f"{_APP}: partition {{{{ $labels.partition }}}} of {{{{ $labels.topic }}}} is stuck, {{{{ $value | humanize }}}} records wait",
                """
                A partition of an input has records to process, and for 10 minutes its task has processed none. Other
                partitions may be fine, so that the lag of the topic does not show it.
                """,
            ),
            Alert(
                "CommitFailing",
                f"sum {_BY_WORKER} (increase(millpond_worker_commit_failures_total[10m])) >= 3",
                _minutes(5),
                CRITICAL,
                f"{_WORKER}: commits fail ({{{{ $value | humanize }}}} in 10 minutes)",
                """
                At least 3 commits of a worker have failed in 10 minutes. Each time the worker goes back to its last
                commit and processes the same records again. Nothing is lost or doubled, but if no commit succeeds, there is no progress.
                """,
            ),
            Alert(
                "RestoreStuck",
                f"""
                (
                  max by (namespace, application_id, worker, store, partition) (millpond_restore_remaining_records) > 0
                  and max by (namespace, application_id, worker, store, partition)
                    (increase(millpond_restore_records_total[10m])) == 0
                )
                or (
                  max {_BY_WORKER} (millpond_bootstrap_waiting_tasks) > 0
                  and max {_BY_WORKER} (increase(millpond_bootstrap_fetched_bytes_total[10m])) == 0
                  and max {_BY_WORKER} (increase(millpond_bootstrap_ingested_rows_total[10m])) == 0
                )
                """,
                _minutes(5),
                CRITICAL,
                f"{_WORKER}: restoring state makes no progress",
                """
                A store has changelog records to read, or a task waits for a snapshot, and nothing was read for 10
                minutes. A task whose state is not restored does not run, and a standby cannot take over.
                """,
            ),
            Alert(
                "StandbyLagging",
                f"""
                max by (namespace, application_id, worker, task)
                  (millpond_task_changelog_lag_records{{role="standby"}}) > {ACCEPTABLE_RECOVERY_LAG}
                and max by (namespace, application_id, worker, task)
                  (millpond_task_changelog_lag_records{{role="standby"}})
                  >= max by (namespace, application_id, worker, task)
                  (millpond_task_changelog_lag_records{{role="standby"}} offset 15m)
                """,
                _minutes(15),
                WARNING,
                f"{_WORKER}: its standby of task {{{{ $labels.task }}}} falls behind",
                """
                The copy of the state has had more than acceptable.recovery.lag (10,000) records to read for 15 minutes,
                and the number does not fall. If the active worker dies, the task pauses until they are read.
                """,
            ),
            Alert(
                "StoreIncomplete",
                f"max {_BY_STORE} (millpond_store_restored_incomplete) > 0",
                timedelta(0),
                CRITICAL,
                f"{_APP}: store {{{{ $labels.store }}}} of {{{{ $labels.worker }}}} was restored without all of its windows",
                """
                A store was restored from a changelog from which brokers had deleted windows that have not expired
                yet. Results of these windows are missing or too small, and nothing fails: they stay wrong until the
                application is reset and its input processed again.
                """,
            ),
            Alert(
                "DeadLetters",
                f"sum {_BY_APP} (increase(millpond_task_dead_letters_total[15m])) > 0",
                timedelta(0),
                WARNING,
                f"{_APP}: {{{{ $value | humanize }}}} records went to the dead-letter topic in 15 minutes",
                """
                An exception handler put records into the dead-letter topic in the last 15 minutes. They are missing in the
                results until a person corrects and sends them again.
                """,
            ),
            Alert(
                "LateRecordsDropped",
                f"""
                sum {_BY_APP} (increase(millpond_task_late_records_total[15m]))
                  > 0.01 * sum {_BY_APP} (increase(millpond_task_processed_records_total[15m]))
                and sum {_BY_APP} (increase(millpond_task_late_records_total[15m])) > 10
                """,
                _minutes(10),
                WARNING,
                f"{_APP}: {{{{ $value | humanize }}}} late records dropped in 15 minutes",
                """
                More than 1 % of the records of the last 15 minutes, and more than 10, came after their window and its grace
                had ended. They are missing in the results of windows and of joins of two streams.
                """,
            ),
            Alert(
                "VolumeFilling",
                """
                millpond_worker_volume_free_bytes < 0.15 * millpond_worker_volume_bytes
                or (
                  millpond_worker_volume_free_bytes < 0.4 * millpond_worker_volume_bytes
                  and predict_linear(millpond_worker_volume_free_bytes[6h], 24 * 3600) < 0
                )
                """,
                _minutes(15),
                WARNING,
                f"{_WORKER}: its volume fills, {{{{ $value | humanize1024 }}}}B are free",
                """
                Less than 15 % of the volume of the state directory is free; or less than 40 % is, and it will be full
                within a day at the growth of the last six hours.
                """,
            ),
            Alert(
                "VolumeFilling",
                "millpond_worker_volume_free_bytes < 0.05 * millpond_worker_volume_bytes",
                _minutes(2),
                CRITICAL,
                f"{_WORKER}: its volume is nearly full, {{{{ $value | humanize1024 }}}}B are free",
                """
                Less than 5 % of the volume of the state directory is free. When it is full, the worker stops, and so does
                each worker that takes over its tasks and has as little room.
                """,
            ),
        ),
    ),
)
