"""Alerts about StreamApps and the operator, from the operator's metrics."""

from __future__ import annotations

from datetime import timedelta

from monitoring.rules.model import CRITICAL, WARNING, Alert, Group

__all__ = ("CRITICAL_REASONS", "GROUPS", "WARNING_REASONS")

CRITICAL_REASONS = (
    "BrokerUnreachable",
    "NotServed",
    "OffsetsLost",
    "OutOfMemory",
    "OwnershipLost",
    "PartitionsUnread",
    "ProcessingFailed",
    "StateUnusable",
    "TopicInvalid",
)
"""Reasons of `Degraded` with which records are not processed. NotServed is a reason of `Ready`."""
WARNING_REASONS = (
    "ApplicationIdTaken",
    "ApplicationNotImportable",
    "AutoscalerConflict",
    "CleanupFailed",
    "ConfigMapMissing",
    "ConfigurationInvalid",
    "ContainerCannotStart",
    "FieldsAdded",
    "ImageNotPullable",
    "IncompatibleTopology",
    "NameTaken",
    "NoPod",
    "NoProgress",
    "NotAllowed",
    "OtherKafka",
    "PodFailed",
    "PodNotCreated",
    "PodNotRecognized",
    "ReconcileFailed",
    "Rejected",
    "SecretMissing",
    "SpecificationInvalid",
    "StatefulSetDiffers",
    "TopicsUnreplicated",
    "TopologyInvalid",
    "Unschedulable",
    "VolumeNotExpandable",
    "VolumeNotMountable",
    "WorkerFailed",
    "WorkerSilent",
    "WorkerWaits",
)
"""Reasons with which the application usually runs on, with its last good revision or with fewer workers."""

_CONDITION = "millpond_streamapp_condition"
_ON = "on (namespace, name)"
_CHANGING = f'{_CONDITION}{{type="Progressing",status="True",reason=~"Pending|RollingOut|RollingBack|Scaling|Suspending|Deleting"}}'
_SUSPENDED = f'{_CONDITION}{{type="Suspended",status="True"}}'
_APP = "StreamApp {{ $labels.namespace }}/{{ $labels.name }}"
_OVERLOAD = "connections|token_queue|unreviewed"


def _minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


def _state(metric: str, state: str) -> str:
    return f'millpond_streamapp_{metric}{{state="{state}"}}'


def _degraded(severity: str, reasons: tuple[str, ...], hold: timedelta, description: str) -> Alert:
    # Reasons that these lists do not know yet are warnings.
    match = "=~" if severity == CRITICAL else "!~"
    known = "|".join(reasons)
    return Alert(
        "StreamAppDegraded",
        f"""
        {_CONDITION}{{type="Degraded",status="True",reason{match}"{known}"}} == 1
        """
        + (f'or {_CONDITION}{{type="Ready",status="False",reason="NotServed"}} == 1' if severity == CRITICAL else ""),
        hold,
        severity,
        f"{_APP}: {{{{ $labels.reason }}}}",
        description,
        anchor="{{ $labels.reason | toLower }}",
    )


GROUPS = (
    Group(
        "millpond-streamapps",
        (
            Alert(
                "WorkerDown",
                f"""
                ({_state("workers", "wanted")} - ignoring (state) {_state("workers", "ready")}) > 0
                unless {_ON} {_CHANGING}
                """,
                _minutes(5),
                WARNING,
                f"{_APP}: {{{{ $value }}}} workers are not ready",
                """
                Workers have not been ready for 5 minutes, and no rollout or scaling is the reason. Their tasks run on
                other workers, with less capacity and fewer standbys; the alert TaskNotRunning tells if they do not.
                """,
            ),
            Alert(
                "TaskNotRunning",
                f"""
                ({_state("tasks", "total")} - ignoring (state) {_state("tasks", "running")}) > 0
                unless {_ON} {_SUSPENDED}
                """,
                _minutes(5),
                CRITICAL,
                f"{_APP}: {{{{ $value }}}} tasks do not run",
                """
                Tasks have not been running for 5 minutes. A move takes seconds, so they have no worker, or their state is
                being restored without a standby. The records of their partitions wait.
                """,
            ),
            _degraded(
                CRITICAL,
                CRITICAL_REASONS,
                _minutes(3),
                "Degraded has had a reason for 3 minutes with which records are not processed. The condition has the cause and the cure: "
                "kubectl describe sapp {{ $labels.name }} -n {{ $labels.namespace }}",
            ),
            _degraded(
                WARNING,
                CRITICAL_REASONS,
                _minutes(10),
                "Degraded has had another reason for 10 minutes. The condition has the cause and the cure: kubectl describe sapp {{ $labels.name }} -n {{ $labels.namespace }}",
            ),
            Alert(
                "RolloutStuck",
                """
                (time() - millpond_streamapp_rollout_step_timestamp_seconds) > 1800
                """,
                _minutes(1),
                WARNING,
                f"{_APP}: the rollout has been at one worker for {{{{ $value | humanizeDuration }}}}",
                """
                A rollout has been at one worker for more than half an hour. It restores state for a long time, or automatic
                rollback is off: without progress it would have been rolled back. Two revisions run side by side meanwhile.
                """,
            ),
            Alert(
                "RolledBack",
                f'{_CONDITION}{{type="Ready",status="False",reason="RolledBack"}} == 1',
                _minutes(1),
                WARNING,
                f"{_APP}: its new revision failed and was rolled back",
                """
                A new revision failed, and the last good one runs. The new one is not tried again until a person changes the StreamApp; the
                condition Degraded has the reason of the failure.
                """,
            ),
            Alert(
                "AutoscalerAtMax",
                f'{_CONDITION}{{type="ScalingLimited",status="True"}} == 1',
                _minutes(30),
                WARNING,
                f"{_APP}: autoscaling cannot meet the load ({{{{ $labels.reason }}}})",
                """
                For 30 minutes the load has needed more workers than autoscaling may choose (maxReplicas, the number of
                tasks, the rescales of the day), or more than one worker can do for one task. The lag grows, or soon will.
                """,
            ),
            Alert(
                "SnapshotOld",
                f"""
                time() - (millpond_streamapp_last_snapshot_timestamp_seconds or millpond_streamapp_created_timestamp_seconds)
                  > 2 * millpond_streamapp_snapshot_interval_seconds + 3600
                unless {_ON} {_SUSPENDED}
                """,
                _minutes(15),
                WARNING,
                f"{_APP}: its last snapshot is {{{{ $value | humanizeDuration }}}} old",
                """
                The last successful snapshot is older than two intervals of spec.bootstrap.schedule and an hour. A worker with an empty disk has more changelog to
                read, and restoring takes longer the older the snapshot is.
                """,
            ),
            Alert(
                "SnapshotsFailing",
                f'{_CONDITION}{{type="SnapshotsFailing",status="True"}} == 1',
                _minutes(15),
                WARNING,
                f"{_APP}: snapshots fail ({{{{ $labels.reason }}}})",
                """
                The last snapshot that spec.bootstrap asks for failed, or its schedule is invalid. Workers run on.
                """,
            ),
        ),
    ),
    Group(
        "millpond-operator",
        (
            Alert(
                "OperatorDown",
                # With several releases in the cluster, the leader of one must not hide that another has none.
                """
                absent(millpond_operator_leading == 1)
                  or (max by (namespace) (millpond_operator_leading) == 0 and on () max(millpond_operator_leading) == 1)
                """,
                _minutes(10),
                CRITICAL,
                "No replica of the millpond operator leads",
                """
                No replica of the operator has led for 10 minutes. Workers keep their tasks and process records. But the
                tasks of a worker that dies do not move, and nothing is rolled out or scaled, until an operator leads.
                """,
            ),
            Alert(
                "ReconcileErrors",
                """
                sum by (namespace) (rate(controller_runtime_reconcile_total{controller="streamapp",result="error"}[10m]))
                  / sum by (namespace) (rate(controller_runtime_reconcile_total{controller="streamapp"}[10m])) > 0.1
                """,
                _minutes(15),
                WARNING,
                "The millpond operator: {{ $value | humanizePercentage }} of its reconciles fail",
                """
                For 15 minutes more than a tenth of the operator's passes over StreamApps have failed: the API server
                rejects its writes, or does not answer. The operator retries.
                """,
            ),
            Alert(
                "CoordinatorOverloaded",
                f"""
                (rate(process_cpu_seconds_total[5m]) > 0.9 and on (instance) millpond_operator_leading == 1)
                or sum by (namespace, instance, reason)
                  (rate(millpond_coordinator_refusals_total{{reason=~"{_OVERLOAD}"}}[5m])) > 0.1
                """,
                _minutes(10),
                WARNING,
                "The coordinator on {{ $labels.instance }} is overloaded",
                """
                For 10 minutes the leading operator has used more than 0.9 of a CPU, or turns workers away because of their number. Heartbeats get late;
                when they are later than spec.sessionTimeout, workers that run are counted as dead and their tasks move.
                """,
            ),
            Alert(
                "CertificateExpiring",
                "millpond_operator_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
                timedelta(hours=1),
                WARNING,
                "The coordinator's certificate ({{ $labels.certificate }}) expires in {{ $value | humanizeDuration }}",
                """
                A certificate of the coordinator expires in less than 14 days. It should have been renewed earlier. After
                its end workers reject the coordinator, and no task moves any more.
                """,
            ),
        ),
    ),
)
