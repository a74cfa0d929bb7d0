"""The dashboard of an application: is it up to date, does it keep up, what does it lose, who does the work."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.panels import (
    APP,
    BLUE,
    GREEN,
    RED,
    STATE_MAPPINGS,
    YELLOW,
    Board,
    Query,
    Row,
    Stat,
    StateTimeline,
    TimeSeries,
    states_query,
)  # fmt: skip
from monitoring.rules.slo import FRESHNESS_TARGET_S, LATENCY_TARGET_S

__all__ = ("APPLICATION_VARIABLES", "dashboard")

APPLICATION_VARIABLES = (
    ("namespace", "Namespace", "label_values(millpond_worker_state, namespace)"),
    (
        "application",
        "Application",
        'label_values({__name__=~"millpond_worker_state|millpond_streamapp_info",namespace=~"$namespace"}, application_id)',
    ),
)
_LATENCY = f"rate(millpond_worker_e2e_latency_seconds_bucket{{{APP}}}[$__rate_interval])"
_COMMIT = f"rate(millpond_worker_commit_seconds_bucket{{{APP}}}[$__rate_interval])"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{APP}}}[$__rate_interval]))"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return Board(
        uid="millpond-application",
        title="millpond / Application",
        text="Applications as their users see them: latency, freshness, lag, dropped records, and how the work is shared.",
        variables=APPLICATION_VARIABLES,
        rows=(
            Row("Now", _NOW),
            Row("Service levels", _SERVICE_LEVELS),
            Row("Throughput and lag", _THROUGHPUT),
            Row("Commits and dropped records", _COMMITS),
            Row("Workers, tasks and scaling", _WORKERS),
            Row("Queries", _QUERIES),
        ),
    ).build()


_NOW = (
    Stat(
        title="Workers running",
        text="Workers that process records or wait for them (state running).",
        queries=[Query(f'sum(millpond_worker_state{{{APP},state="running"}})')],
        steps=((None, RED), (1, GREEN)),
        alert="WorkerDown",
    ),
    Stat(
        title="Active tasks",
        text="Tasks that run on a worker.",
        queries=[Query(f"sum(millpond_worker_tasks{{{APP}}})")],
        steps=((None, BLUE),),
        alert="TaskNotRunning",
    ),
    Stat(
        title="Records in",
        text="Records processed per second, over all workers.",
        queries=[Query(f"sum(rate(millpond_worker_processed_records_total{{{APP}}}[$__rate_interval]))")],
        unit="cps",
        steps=((None, BLUE),),
    ),
    Stat(
        title="Input lag",
        text="Records between the position of the tasks and the ends of their inputs.",
        queries=[Query(f"sum(millpond_input_lag_records{{{APP}}})")],
        steps=((None, GREEN), (10_000, YELLOW), (1_000_000, RED)),
        alert="LagGrowing",
    ),
    Stat(
        title="Latency, p99",
        text="Time from a record's timestamp to the commit of its results, in 99 % of commits.",
        queries=[Query(f"histogram_quantile(0.99, sum by (le) ({_LATENCY}))")],
        unit="s",
        steps=((None, GREEN), (LATENCY_TARGET_S, RED)),
        alert="EndToEndLatencyHigh",
    ),
    Stat(
        title="Behind by",
        text="The age of the newest record of the task that is furthest behind; 0 if all tasks have read their inputs to the end.",
        queries=[Query(f"max(task:millpond_staleness_seconds:max{{{APP}}})")],
        unit="s",
        steps=((None, GREEN), (FRESHNESS_TARGET_S, RED)),
        alert="DataStale",
    ),
    Stat(
        title="Dead letters in an hour",
        text="Records that an exception handler put into the dead-letter topic.",
        queries=[Query(f"round(sum(increase(millpond_task_dead_letters_total{{{APP}}}[1h])))")],
        steps=((None, GREEN), (1, RED)),
        alert="DeadLetters",
    ),
    Stat(
        title="Failed commits in an hour",
        text="Commits that failed, so that a worker processed the same records again.",
        queries=[Query(f"round(sum(increase(millpond_worker_commit_failures_total{{{APP}}}[1h])))")],
        steps=((None, GREEN), (3, YELLOW), (20, RED)),
        alert="CommitFailing",
    ),
)

_SERVICE_LEVELS = (
    TimeSeries(
        title="End-to-end latency",
        width=6,
        text="Time from a record's timestamp to the commit of its results: the first record of each commit, which waited longest. "
        f"The target is {LATENCY_TARGET_S:g} s.",
        queries=[Query(f"histogram_quantile({each / 100}, sum by (le) ({_LATENCY}))", f"p{each}") for each in (50, 90, 99)],
        unit="s",
        steps=((None, GREEN), (LATENCY_TARGET_S, RED)),
        alert="EndToEndLatencyHigh",
    ),
    TimeSeries(
        title="Latency by sub-topology, p99",
        width=6,
        text="Time from a record's timestamp to the commit of its results, by sub-topology and input topic: the first and the last record "
        "of each commit. The last sub-topology has the latency of the whole way; the difference to the one before is what it adds.",
        queries=[
            Query(
                f"histogram_quantile(0.99, sum by (le, subtopology, topic) (rate(millpond_input_e2e_latency_seconds_bucket{{{APP}}}[$__rate_interval])))",
                "{{subtopology}} {{topic}}",
            )
        ],
        unit="s",
        steps=((None, GREEN), (LATENCY_TARGET_S, RED)),
        alert="EndToEndLatencyHigh",
    ),
    TimeSeries(
        title="Behind the input",
        width=6,
        text="The age of the newest record of the task that is furthest behind, by application; 0 where all inputs are read to the end. "
        f"The target is {FRESHNESS_TARGET_S} s.",
        queries=[Query(f"max by (application_id) (task:millpond_staleness_seconds:max{{{APP}}})", "{{application_id}}")],
        unit="s",
        steps=((None, GREEN), (FRESHNESS_TARGET_S, RED)),
        alert="DataStale",
    ),
    TimeSeries(
        title="Error budget used, in an hour",
        width=6,
        text="Share of commits that were slow, and share of time in which data was stale. 1 % is the objective over 30 days.",
        queries=[
            Query(f"application:millpond_e2e_latency_slow:ratio_rate1h{{{APP}}}", "slow, {{application_id}}"),
            Query(f"application:millpond_stale:ratio_1h{{{APP}}}", "stale, {{application_id}}"),
        ],
        unit="percentunit",
        maximum=1,
        steps=((None, GREEN), (0.01, YELLOW), (0.144, RED)),
        alert="DataStale",
    ),
)  # fmt: skip

_THROUGHPUT = (
    TimeSeries(
        title="Records read, by topic",
        text="Records read per second from each input.",
        queries=[Query(_rate("millpond_processor_consumed_records_total", "topic"), "{{topic}}")],
        unit="cps",
        stacked=True,
    ),
    TimeSeries(
        title="Records written",
        text="Records sent per second, with changelog records.",
        queries=[Query(_rate("millpond_worker_produced_records_total", "application_id"), "{{application_id}}")],
        unit="cps",
    ),
    TimeSeries(
        title="Lag, by topic",
        text="Records between the position of the tasks and the end of each input.",
        queries=[Query(f"sum by (topic) (millpond_input_lag_records{{{APP}}})", "{{topic}}")],
        stacked=True,
        alert="LagGrowing",
    ),
    TimeSeries(
        title="Time to catch up",
        width=6,
        text="Lag divided by the rate of processing: how long the backlog would take if nothing new arrived.",
        queries=[
            Query(
                f"sum by (application_id) (millpond_input_lag_records{{{APP}}})"
                f" / (sum by (application_id) (rate(millpond_worker_processed_records_total{{{APP}}}[$__rate_interval])) > 0)",
                "{{application_id}}",
            )
        ],
        unit="s",
        alert="LagGrowing",
    ),
    TimeSeries(
        title="Busy, by worker",
        width=6,
        text="Share of time in which each worker processes and commits, rather than waits for records. Near 100 % it cannot do more.",
        queries=[Query(_rate("millpond_worker_busy_seconds_total", "worker"), "{{worker}}")],
        unit="percentunit",
        maximum=1,
        steps=((None, GREEN), (0.8, YELLOW)),
    ),
    TimeSeries(
        title="Lag, by partition",
        width=6,
        text="The ten partitions with the largest lag. One that is far above the others has a hot key, or its task makes no progress.",
        queries=[Query(f"topk(10, sum by (topic, partition) (millpond_input_lag_records{{{APP}}}))", "{{topic}}-{{partition}}")],
        alert="PartitionStuck",
    ),
    TimeSeries(
        title="Slowest tasks",
        width=6,
        text="The five tasks with the largest lag. One that is far above the others has a hot key, or a slow worker.",
        queries=[Query(f"topk(5, sum by (task) (millpond_input_lag_records{{{APP}}}))", "{{task}}")],
        alert="LagGrowing",
    ),
)  # fmt: skip

_COMMITS = (
    TimeSeries(
        title="Duration of a commit",
        text="Time of a commit: flush, delivery of the records, transaction, rows in the state file.",
        queries=[Query(f"histogram_quantile({each / 100}, sum by (le) ({_COMMIT}))", f"p{each}") for each in (50, 99)],
        unit="s",
    ),
    TimeSeries(
        title="Commits",
        text="Commits per second of each application.",
        queries=[Query(_rate("millpond_worker_commit_seconds_count", "application_id"), "{{application_id}}")],
        unit="ops",
    ),
    TimeSeries(
        title="Failed commits, by reason",
        text="Commits that failed: fenced (another worker took over), timeout (the transaction was open too long), or error.",
        queries=[Query(f"sum by (reason) (increase(millpond_worker_commit_failures_total{{{APP}}}[$__rate_interval]))", "{{reason}}")],
        alert="CommitFailing",
    ),
    TimeSeries(
        title="Dropped records, by reason",
        text="Records that do not reach the results: late for their window, without a key or value, failed in a handler, and others. Those of late_for_join are processed, but a join of two streams may lack results.",
        queries=[Query(_rate("millpond_task_dropped_records_total", "reason"), "{{reason}}")],
        unit="cps",
        stacked=True,
        alert="LateRecordsDropped",
    ),
    TimeSeries(
        title="Dead letters",
        text="Records sent to the dead-letter topic, by application.",
        queries=[Query(_rate("millpond_task_dead_letters_total", "application_id"), "{{application_id}}")],
        unit="cps",
        alert="DeadLetters",
    ),
    TimeSeries(
        title="Updates past retention",
        text="Updates to windows that the store does not keep any more.",
        queries=[Query(f"sum(rate(millpond_store_expired_records_total{{{APP}}}[$__rate_interval])) or vector(0)", "expired")],
        unit="cps",
        alert="LateRecordsDropped",
    ),
)  # fmt: skip

_WORKERS = (
    StateTimeline(
        title="State of each worker",
        text="What each worker does. A worker in the state error ends, and is started again.",
        queries=[Query(states_query(APP), "{{worker}}")],
        mappings=STATE_MAPPINGS,
        width=12,
        alert="WorkerDown",
    ),
    TimeSeries(
        title="Tasks by worker",
        text="Active tasks that each worker holds. Differences of one are normal.",
        queries=[Query(f"sum by (worker) (millpond_worker_tasks{{{APP}}})", "{{worker}}")],
        stacked=True,
        width=12,
    ),
    TimeSeries(
        title="Workers and tasks of the StreamApp",
        text="What the StreamApp wants and what there is (Kubernetes only).",
        queries=[
            Query(f"sum by (state) (millpond_streamapp_workers{{{APP}}})", "workers {{state}}"),
            Query(f"sum by (state) (millpond_streamapp_tasks{{{APP}}})", "tasks {{state}}"),
        ],
        alert="WorkerDown",
    ),
    TimeSeries(
        title="Autoscaling",
        text="Workers that autoscaling runs and recommends, and its limit (only with spec.autoscaling).",
        queries=[
            Query(f"sum(millpond_streamapp_autoscaling_{each}_replicas{{{APP}}})", each)
            for each in ("current", "recommended", "max")
        ],
        alert="AutoscalerAtMax",
    ),
    TimeSeries(
        title="Workers lost, tasks moved",
        text="Workers whose session timed out, and tasks that are on their way to another worker.",
        queries=[
            Query('sum(increase(millpond_coordinator_deaths_total{application_id=~"$application"}[$__rate_interval]))', "workers lost"),
            Query('sum(millpond_coordinator_tasks{application_id=~"$application",state="moving"})', "tasks that move"),
        ],
        alert="WorkerDown",
    ),
)  # fmt: skip

_QUERIES = (
    TimeSeries(
        title="Queries by outcome",
        text="Interactive queries that workers answered.",
        queries=[Query(f"sum by (outcome) (rate(millpond_query_seconds_count{{{APP}}}[$__rate_interval]))", "{{outcome}}")],
        unit="reqps",
        width=12,
    ),
    TimeSeries(
        title="Duration of queries, p99",
        text="Time of a query to the end of its answer, by kind; peer is what other workers asked for.",
        queries=[
            Query(
                f"histogram_quantile(0.99, sum by (le, kind) (rate(millpond_query_seconds_bucket{{{APP}}}[$__rate_interval])))",
                "{{kind}}",
            )
        ],
        unit="s",
        width=12,
    ),
)  # fmt: skip
