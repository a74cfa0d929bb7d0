"""The dashboard of the operator: StreamApps at a glance, reconciling, the API server, the coordinator."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.panels import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Board,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
)  # fmt: skip

__all__ = ("dashboard",)

_LEADING = "and on (instance) (millpond_operator_leading == 1)"
_CONDITION = 'millpond_streamapp_condition{namespace=~"$namespace"'
_COORDINATED = 'application_namespace=~"$namespace"'


def _quantile(quantile: float, histogram: str, by: str = "") -> str:
    return f"histogram_quantile({quantile}, sum by (le{by}) (rate({histogram}_bucket[$__rate_interval])))"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return Board(
        uid="millpond-operator",
        title="millpond / Operator",
        text="The operator and its coordinator, and the StreamApps that they serve.",
        variables=(("namespace", "Namespace", "label_values(millpond_streamapp_info, namespace)"),),
        rows=(
            Row("StreamApps", _STREAM_APPS),
            Row("Reconciling", _RECONCILING),
            Row("API server", _API_SERVER),
            Row("Coordinator", _COORDINATOR),
            Row("Process", _PROCESS),
        ),
    ).build()


_STREAM_APPS = (
    Stat(
        title="Leading replicas",
        text="Replicas of the operator that lead. One is right; without one, nothing is reconciled and no lost worker is replaced.",
        queries=[Query("sum(millpond_operator_leading)")],
        steps=((None, RED), (1, GREEN), (2, RED)),
        alert="OperatorDown",
    ),
    Stat(
        title="StreamApps",
        text="StreamApps that the operator knows.",
        queries=[Query('count(millpond_streamapp_info{namespace=~"$namespace"})')],
        steps=((None, BLUE),),
    ),
    Stat(
        title="Not ready",
        text="StreamApps whose condition Ready is not True.",
        queries=[Query(f'count({_CONDITION},type="Ready",status!="True"}}) or vector(0)')],
        steps=((None, GREEN), (1, YELLOW)),
    ),
    Stat(
        title="Degraded",
        text="StreamApps with a problem: their condition Degraded is True, with the reason and the cure.",
        queries=[Query(f'count({_CONDITION},type="Degraded",status="True"}}) or vector(0)')],
        steps=((None, GREEN), (1, RED)),
        alert="StreamAppDegraded",
    ),
    Stat(
        title="Workers missing",
        text="Workers that are wanted and not ready, over all StreamApps.",
        queries=[
            Query(
                'sum(millpond_streamapp_workers{namespace=~"$namespace",state="wanted"})'
                ' - sum(millpond_streamapp_workers{namespace=~"$namespace",state="ready"})'
            )
        ],
        steps=((None, GREEN), (1, YELLOW)),
        alert="WorkerDown",
    ),
    Stat(
        title="Tasks not running",
        text="Tasks that do not run, over all StreamApps.",
        queries=[
            Query(
                'sum(millpond_streamapp_tasks{namespace=~"$namespace",state="total"})'
                ' - sum(millpond_streamapp_tasks{namespace=~"$namespace",state="running"})'
            )
        ],
        steps=((None, GREEN), (1, RED)),
        alert="TaskNotRunning",
    ),
    Stat(
        title="Rollouts",
        text="Rollouts in progress.",
        queries=[Query('count(millpond_streamapp_rollout_start_timestamp_seconds{namespace=~"$namespace"}) or vector(0)')],
        steps=((None, GREEN), (1, BLUE)),
        alert="RolloutStuck",
    ),
    Stat(
        title="Certificate expires in",
        text="Time until the first certificate of the coordinator expires. It is renewed 30 days before.",
        queries=[Query("min(millpond_operator_certificate_expiry_timestamp_seconds) - time()")],
        unit="s",
        steps=((None, RED), (14 * 86400, GREEN)),
        alert="CertificateExpiring",
    ),
    StateTimeline(
        title="Ready",
        text="The condition Ready of each StreamApp over time.",
        queries=[
            Query(
                f'max by (namespace, name) (({_CONDITION},type="Suspended",status="True"}} * 3)'
                f' or ({_CONDITION},type="Ready",status="True"}} * 2)'
                f' or ({_CONDITION},type="Ready",status="False"}}))',
                "{{namespace}}/{{name}}",
            )
        ],
        mappings=(("3", "suspended", BLUE), ("2", "ready", GREEN), ("1", "not ready", RED)),
        width=12,
    ),
    Table(
        title="Conditions now",
        text="Conditions of StreamApps that tell of a change or a problem: anything but Ready, settled and caught up.",
        queries=[
            Query(
                f'{_CONDITION},type=~"Ready|StandbysCaughtUp",status!="True"}}'
                f' or {_CONDITION},type!~"Ready|StandbysCaughtUp",status="True"}}'
                f' or {_CONDITION},type="Ready",status="True"}}'
            )
        ],
        columns=(
            ("namespace", "Namespace"), ("name", "StreamApp"), ("type", "Condition"), ("status", "Status"),
            ("reason", "Reason"),
        ),
        width=12,
    ),
)  # fmt: skip

_RECONCILING = (
    TimeSeries(
        title="Reconciles by result",
        text="Passes over StreamApps: success, requeue_after (there is something to wait for), error (they are retried).",
        queries=[Query('sum by (result) (rate(controller_runtime_reconcile_total{controller="streamapp"}[$__rate_interval]))', "{{result}}")],
        unit="ops",
        alert="ReconcileErrors",
    ),
    TimeSeries(
        title="Duration of a reconcile",
        text="Time of a pass over one StreamApp, with its requests to the API server.",
        queries=[
            Query(_quantile(0.5, "controller_runtime_reconcile_time_seconds"), "p50"),
            Query(_quantile(0.99, "controller_runtime_reconcile_time_seconds"), "p99"),
        ],
        unit="s",
    ),
    TimeSeries(
        title="Work queue",
        text="StreamApps that wait for a pass, and those in a pass.",
        queries=[
            Query('sum(workqueue_depth{name="streamapp"})', "waiting"),
            Query('sum(controller_runtime_active_workers{controller="streamapp"})', "in a pass"),
        ],
        width=8,
    ),
    TimeSeries(
        title="Wait in the queue",
        text="Time from a change, or from the moment when a periodic check is due, to the start of the pass. Checks wait while there are changes.",
        queries=[
            Query(_quantile(0.5, "workqueue_queue_duration_seconds"), "p50"),
            Query(_quantile(0.99, "workqueue_queue_duration_seconds"), "p99"),
        ],
        unit="s",
    ),
    TimeSeries(
        title="Longest pass in progress",
        text="How long the longest pass that has not ended has been in progress. The liveness probe fails when it is stuck.",
        queries=[Query('max(workqueue_longest_running_processor_seconds{name="streamapp"})', "longest")],
        unit="s",
        steps=((None, GREEN), (60, RED)),
    ),
    TimeSeries(
        title="Retries",
        text="Passes that are repeated after a failure, and applications that wait for their restart by an upgrade of the operator.",
        queries=[
            Query('sum(rate(workqueue_retries_total{name="streamapp"}[$__rate_interval]))', "retries per second"),
            Query("sum(millpond_operator_upgrades_waiting)", "waiting for their upgrade"),
        ],
    ),
)  # fmt: skip

_API_SERVER = (
    TimeSeries(
        title="Requests by status",
        text="Requests to the API server. <error> means that there was no answer; 409 is a conflict, which is retried.",
        queries=[Query("sum by (code) (rate(rest_client_requests_total[$__rate_interval]) and on (instance) millpond_operator_leading)", "{{code}}")],
        unit="reqps",
        width=12,
    ),
    TimeSeries(
        title="Duration of requests, p99",
        text="Time of requests to the API server, by verb.",
        queries=[Query(_quantile(0.99, "rest_client_request_duration_seconds", ", verb"), "{{verb}}")],
        unit="s",
        width=12,
    ),
)  # fmt: skip

_COORDINATOR = (
    TimeSeries(
        title="Heartbeats by outcome",
        width=6,
        text="Heartbeats of workers: ok, or why they were rejected.",
        queries=[Query(f"sum by (outcome) (rate(millpond_coordinator_heartbeats_total{{{_COORDINATED}}}[$__rate_interval]))", "{{outcome}}")],
        unit="reqps",
    ),
    TimeSeries(
        title="Workers by state",
        width=6,
        text="Workers as the coordinator sees them: gone are those whose session timed out.",
        queries=[Query(f"sum by (state) (millpond_coordinator_members{{{_COORDINATED}}})", "{{state}}")],
        stacked=True,
    ),
    TimeSeries(
        title="Tasks without an owner, and moving",
        width=6,
        text="Tasks without a live owner, and tasks that are not on the worker that the assignment gives them.",
        queries=[Query(f'sum by (state) (millpond_coordinator_tasks{{{_COORDINATED},state!="all"}})', "{{state}}")],
        alert="TaskNotRunning",
    ),
    TimeSeries(
        title="Workers lost",
        width=6,
        text="Workers whose session timed out, by application.",
        queries=[Query(f"sum by (application_id) (increase(millpond_coordinator_deaths_total{{{_COORDINATED}}}[$__rate_interval]))", "{{application_id}}")],
        alert="WorkerDown",
    ),
    TimeSeries(
        title="Assignments",
        width=6,
        text="Assignments computed, and the share of time that it takes. They are computed when workers come, go or report.",
        queries=[
            Query(f"sum(rate(millpond_coordinator_assignments_total{{{_COORDINATED}}}[$__rate_interval]))", "assignments per second"),
            Query(f"sum(rate(millpond_coordinator_assignment_seconds_total{{{_COORDINATED}}}[$__rate_interval]))", "seconds per second"),
        ],
    ),
    TimeSeries(
        title="Storing assignments",
        width=6,
        text="Seconds per second spent on storing assignments in the API server, and failed attempts. Workers get an assignment only once it is stored.",
        queries=[
            Query(f"sum(rate(millpond_coordinator_save_seconds_total{{{_COORDINATED}}}[$__rate_interval]))", "seconds per second"),
            Query(f"sum(increase(millpond_coordinator_save_failures_total{{{_COORDINATED}}}[$__rate_interval]))", "failures"),
        ],
    ),
    TimeSeries(
        title="Connections",
        width=6,
        text="Open connections of workers, and heartbeats that wait for news (long polls).",
        queries=[
            Query("sum(millpond_coordinator_connections)", "connections"),
            Query(f"sum(millpond_coordinator_waiting_heartbeats{{{_COORDINATED}}})", "waiting heartbeats"),
        ],
    ),
    TimeSeries(
        title="Rejected or delayed requests",
        width=6,
        text="Requests and connections that were rejected or delayed, by reason. The limits protect the tenants from each other.",
        queries=[Query("sum by (reason) (rate(millpond_coordinator_refusals_total[$__rate_interval]))", "{{reason}}")],
        unit="reqps",
        alert="CoordinatorOverloaded",
    ),
)  # fmt: skip

_PROCESS = (
    TimeSeries(
        title="CPU",
        text="CPUs that each replica uses. One process uses at most about one.",
        queries=[Query("rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) millpond_operator_leading", "{{instance}}")],
        steps=((None, GREEN), (0.9, RED)),
        alert="CoordinatorOverloaded",
    ),
    TimeSeries(
        title="Memory",
        text="Memory of each replica that is in RAM.",
        queries=[Query("process_resident_memory_bytes and on (instance) millpond_operator_leading", "{{instance}}")],
        unit="bytes",
    ),
    TimeSeries(
        title="Open files",
        text="Open files and connections of each replica.",
        queries=[Query("process_open_fds and on (instance) millpond_operator_leading", "{{instance}}")],
    ),
)  # fmt: skip
