"""From a StreamApp to Kubernetes objects: pure functions that make manifests, and compare them with existing objects.

app = parse(object)
template = pod_template(app, surroundings)
revision = revision_of(template)
for manifest in [*children(app, surroundings), stateful_set(app, template, revision, app.spec.replicas)]:
    if not same(manifest, observed(manifest)):
        await client.apply(kind, finish(manifest, surroundings.leader_epoch))
"""

from millpond.durations import Duration

from .assignments import InvalidStreamAssignment, stream_assignment, view_of
from .children import (
    children,
    coordinator_config_map,
    network_policy,
    pod_disruption_budget,
    service,
    service_account,
)
from .diff import content, digest, finish, same, was_applied, within
from .environment import check_environment
from .foreign_fields import Additions, additions, foreign_managers
from .metadata import cleanup_name, coordinator_config_name, labels, made_for, owned_by, revision_name, selector
from .names import (
    APP,
    APP_UID,
    APPLIED,
    BOOTSTRAP,
    FIELD_MANAGER,
    FINALIZER,
    LEADER_EPOCH,
    RECONCILE,
    RESTARTED_AT,
    REVISION,
    Object,
    Surroundings,
)
from .pods import TOKEN_AUDIENCE, pod_template, revision_of, specification_digest, with_revision
from .snapshot_jobs import snapshot_access, snapshot_job, snapshot_job_name, snapshot_settings
from .spec import Bootstrap, Requirements, Spark, StateBootstrapSpec, StreamAppSpec
from .statebootstrap import InvalidStateBootstrap, StateBootstrap, bootstrap_name, parse_bootstrap, scheduled_bootstrap
from .streamapp import InvalidStreamApp, StreamApp, parse, without_spec
from .workloads import (
    claim_growth,
    claim_of,
    cleanup_job,
    controller_revision,
    fixed_differences,
    must_be_recreated,
    stateful_set,
    template_of,
)

__all__ = (
    "APP",
    "APPLIED",
    "APP_UID",
    "BOOTSTRAP",
    "FIELD_MANAGER",
    "FINALIZER",
    "LEADER_EPOCH",
    "RECONCILE",
    "RESTARTED_AT",
    "REVISION",
    "TOKEN_AUDIENCE",
    "Additions",
    "Bootstrap",
    "Duration",
    "InvalidStateBootstrap",
    "InvalidStreamApp",
    "InvalidStreamAssignment",
    "Object",
    "Requirements",
    "Spark",
    "StateBootstrap",
    "StateBootstrapSpec",
    "StreamApp",
    "StreamAppSpec",
    "Surroundings",
    "additions",
    "bootstrap_name",
    "check_environment",
    "children",
    "claim_growth",
    "claim_of",
    "cleanup_job",
    "cleanup_name",
    "content",
    "controller_revision",
    "coordinator_config_map",
    "coordinator_config_name",
    "digest",
    "finish",
    "fixed_differences",
    "foreign_managers",
    "labels",
    "made_for",
    "must_be_recreated",
    "network_policy",
    "owned_by",
    "parse",
    "parse_bootstrap",
    "pod_disruption_budget",
    "pod_template",
    "revision_name",
    "revision_of",
    "same",
    "scheduled_bootstrap",
    "selector",
    "service",
    "service_account",
    "snapshot_access",
    "snapshot_job",
    "snapshot_job_name",
    "snapshot_settings",
    "specification_digest",
    "stateful_set",
    "stream_assignment",
    "template_of",
    "view_of",
    "was_applied",
    "with_revision",
    "within",
    "without_spec",
)
