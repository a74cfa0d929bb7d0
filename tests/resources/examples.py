"""Example StreamApps and surroundings: one of each kind, and generated ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from millpond_operator.resources import (
    Object,
    StreamApp,
    Surroundings,
    children,
    cleanup_job,
    controller_revision,
    parse,
    pod_template,
    revision_of,
    stateful_set,
)

SURROUNDINGS = Surroundings(
    "https://millpond-coordinator.millpond-system.svc:7070", "CERTIFICATE", 4, "millpond-system"
)


def stream_app(annotations: dict[str, str] | None = None, **spec: Any) -> StreamApp:
    """The StreamApp `delays` in the namespace `shop`."""
    return parse(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {
                "name": "delays",
                "namespace": "shop",
                "uid": "6a9c",
                "generation": 2,
                "resourceVersion": "77",
                "annotations": annotations or {},
            },
            "spec": {"image": "delays:3", "topology": "app:delays", "kafka": {"bootstrapServers": "kafka:9092"}} | spec,
        }
    )


def everything(app: StreamApp, surroundings: Surroundings = SURROUNDINGS) -> list[Object]:
    """All manifests of a StreamApp."""
    template = pod_template(app, surroundings)
    revision = revision_of(template)
    return [
        *children(app, surroundings),
        controller_revision(app, template, revision),
        stateful_set(app, template, revision, 3),
        cleanup_job(app),
    ]


def variables(template: Object) -> dict[str, str | None]:
    """The environment of a template's container, without values that are resolved when the pod starts."""
    return {each["name"]: each.get("value") for each in template["spec"]["containers"][0]["env"]}


_words = st.text("abcxyz", min_size=1, max_size=4)
_amounts = st.sampled_from(["500m", "0.5", 1, "1Gi", "1024Mi", "2e9"])
_durations = st.sampled_from(["500ms", "6s", "90s", "5m", "1h"])


def _by(field: str, items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(items, max_size=3, unique_by=lambda each: each[field])


def _record(required: dict[str, Any] | None = None, **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required or {}, optional=optional)


_reference = _record({"name": _words, "key": _words}, optional=st.booleans())
_source = st.one_of(
    st.fixed_dictionaries({"secretKeyRef": _reference}), st.fixed_dictionaries({"configMapKeyRef": _reference})
)
_variable = st.one_of(
    st.fixed_dictionaries({"name": _words, "value": st.text("a$()=B ", max_size=6)}),
    st.fixed_dictionaries({"name": _words, "valueFrom": _source}),
)
_mount = st.one_of(
    st.fixed_dictionaries({"name": _words, "path": _words.map("/{}".format), kind: _words})
    for kind in ("secret", "configMap")
)
_requirements = st.dictionaries(st.sampled_from(["cpu", "memory"]), _amounts)

specs = _record(
    imagePullPolicy=st.sampled_from(["Always", "Never"]),
    imagePullSecrets=_by("name", st.fixed_dictionaries({"name": _words})),
    applicationId=_words,
    processingGuarantee=st.sampled_from(["exactly_once", "at_least_once"]),
    replicas=st.integers(0, 9),
    commitInterval=_durations,
    sessionTimeout=_durations,
    kafka=_record({"bootstrapServers": st.just("kafka:9092")}, credentialsSecret=_words),
    config=st.dictionaries(_words, st.text("a$('\"é", max_size=4), max_size=3),
    env=_by("name", _variable),
    state=_record(
        size=_amounts,
        storageClassName=_words,
        ephemeral=st.booleans(),
        retentionPolicy=_record(
            whenDeleted=st.sampled_from(["Delete", "Retain"]), whenScaled=st.sampled_from(["Delete", "Retain"])
        ),
    ),
    resources=_record(requests=_requirements, limits=_requirements),
    pod=_record(
        labels=st.dictionaries(_words, _words, max_size=2),
        annotations=st.dictionaries(_words, st.text(max_size=3), max_size=2),
        nodeSelector=st.dictionaries(_words, _words, max_size=2),
        tolerations=st.lists(
            _record(
                key=_words,
                operator=st.sampled_from(["Exists", "Equal"]),
                value=st.sampled_from(["", "a"]),
                tolerationSeconds=st.integers(0, 3),
            ),
            max_size=2,
        ),
        priorityClassName=_words,
        topologySpreadConstraints=_by("topologyKey", _record({"topologyKey": _words}, maxSkew=st.integers(1, 3))),
        terminationGracePeriodSeconds=st.integers(15, 100),
        mounts=st.lists(_mount, max_size=3, unique_by=(lambda each: each["name"], lambda each: each["path"])),
    ),
)
"""Any specification, but for image and topology."""

stream_apps = st.builds(lambda spec, annotations: stream_app(annotations, **spec), specs, st.just({}))
