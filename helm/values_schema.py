"""The JSON schema of the chart's values. Every object refuses names that it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ("values_schema",)

Schema = dict[str, Any]

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_CIDR = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"


def _object(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return made | ({"required": list(required)} if required else {})


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _text(pattern: str | None = None, **more: Any) -> Schema:
    return {"type": "string", **({"pattern": pattern} if pattern else {}), **more}


def _or_empty(pattern: str) -> Schema:
    return _text(f"^$|{pattern}")


def _number(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


_BOOLEAN: Schema = {"type": "boolean"}
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
"""A map of labels or annotations: its names are the user's."""
_AMOUNT: Schema = {"anyOf": [_text(_QUANTITY), {"type": "number", "minimum": 0}]}
_AMOUNTS: Schema = {"type": "object", "additionalProperties": _AMOUNT}
_PULL_POLICY = _one_of("Always", "IfNotPresent", "Never")
_PERCENTAGE = r"^([1-9]|[1-9][0-9])%$"
_ID = _or_null(_number(1))
_MAY_BE_REMOVED = frozenset({"resources"})
"""Groups that may be null, and of which each part may be null: null removes a default request or limit."""


def _image() -> Schema:
    return _object(
        registry=_text(r"^[^\s@]*$"),
        repository=_text(r"^[a-z0-9][a-z0-9._/-]*$"),
        tag=_text(r"^$|^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"),
        digest=_or_empty("^sha256:[0-9a-f]{64}$"),
        pullPolicy=_PULL_POLICY,
    )


def _selector() -> Schema:
    requirement = _object(
        ("key", "operator"),
        key=_text(),
        operator=_one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        values=_list(_text()),
    )
    return _object(matchLabels=_STRINGS, matchExpressions=_list(requirement))


def _affinity() -> Schema:
    requirement = _selector()["properties"]["matchExpressions"]
    term = _object(matchExpressions=requirement, matchFields=requirement)
    pods = _object(
        ("topologyKey",),
        labelSelector=_selector(),
        namespaceSelector=_selector(),
        namespaces=_list(_text()),
        topologyKey=_text(),
        matchLabelKeys=_list(_text()),
        mismatchLabelKeys=_list(_text()),
    )
    weight = _number(1, 100)
    between_pods = _object(
        requiredDuringSchedulingIgnoredDuringExecution=_list(pods),
        preferredDuringSchedulingIgnoredDuringExecution=_list(
            _object(("weight", "podAffinityTerm"), weight=weight, podAffinityTerm=pods)
        ),
    )
    return _object(
        nodeAffinity=_object(
            requiredDuringSchedulingIgnoredDuringExecution=_object(
                ("nodeSelectorTerms",), nodeSelectorTerms=_list(term)
            ),
            preferredDuringSchedulingIgnoredDuringExecution=_list(
                _object(("weight", "preference"), weight=weight, preference=term)
            ),
        ),
        podAffinity=between_pods,
        podAntiAffinity=between_pods,
    )


def _toleration() -> Schema:
    return _object(
        key=_text(),
        operator=_one_of("Exists", "Equal"),
        value=_text(),
        effect=_one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        tolerationSeconds={"type": "integer"},
    )


def _spread() -> Schema:
    return _object(
        ("topologyKey", "maxSkew", "whenUnsatisfiable"),
        topologyKey=_text(),
        maxSkew=_number(1),
        minDomains=_number(1),
        whenUnsatisfiable=_one_of("DoNotSchedule", "ScheduleAnyway"),
        labelSelector=_selector(),
        matchLabelKeys=_list(_text()),
        nodeAffinityPolicy=_one_of("Honor", "Ignore"),
        nodeTaintsPolicy=_one_of("Honor", "Ignore"),
    )


def _variable() -> Schema:
    key = _object(("name", "key"), name=_text(), key=_text(), optional=_BOOLEAN)
    source = _object(
        configMapKeyRef=key,
        secretKeyRef=key,
        fieldRef=_object(("fieldPath",), apiVersion=_text(), fieldPath=_text()),
        resourceFieldRef=_object(("resource",), containerName=_text(), resource=_text(), divisor=_AMOUNT),
    )
    return _object(("name",), name=_text(r"^[A-Za-z_][A-Za-z0-9_]*$"), value=_text(), valueFrom=source)


def _volume() -> Schema:
    """Return the schema of volumes that the restricted Pod Security standard allows."""
    mode = _number(0, 0o777)
    items = _list(_object(("key", "path"), key=_text(), path=_text(), mode=mode))
    reference = {"items": items, "optional": _BOOLEAN}
    token = _object(("path",), audience=_text(), expirationSeconds=_number(600), path=_text())
    field = _object(("path", "fieldRef"), path=_text(), mode=mode, fieldRef=_object(("fieldPath",), fieldPath=_text()))
    source = _object(
        secret=_object(("name",), name=_text(), **reference),
        configMap=_object(("name",), name=_text(), **reference),
        serviceAccountToken=token,
        downwardAPI=_object(items=_list(field)),
    )
    return _object(
        ("name",),
        name=_text(_NAME),
        configMap=_object(("name",), name=_text(), defaultMode=mode, **reference),
        secret=_object(("secretName",), secretName=_text(), defaultMode=mode, **reference),
        emptyDir=_object(medium=_one_of("", "Memory"), sizeLimit=_AMOUNT),
        projected=_object(("sources",), sources=_list(source), defaultMode=mode),
        csi=_object(
            ("driver",),
            driver=_text(),
            readOnly=_BOOLEAN,
            fsType=_text(),
            volumeAttributes=_STRINGS,
            nodePublishSecretRef=_object(("name",), name=_text()),
        ),
        persistentVolumeClaim=_object(("claimName",), claimName=_text(), readOnly=_BOOLEAN),
    )


def _mount() -> Schema:
    return _object(
        ("name", "mountPath"),
        name=_text(_NAME),
        mountPath=_text("^/"),
        subPath=_text(),
        readOnly=_BOOLEAN,
    )


def _egress_rule() -> Schema:
    peer = _object(
        ipBlock=_object(("cidr",), cidr=_text(_CIDR), **{"except": _list(_text(_CIDR))}),
        namespaceSelector=_selector(),
        podSelector=_selector(),
    )
    port = _object(
        port={"anyOf": [_number(1, 65535), _text()]}, endPort=_number(1, 65535), protocol=_one_of("TCP", "UDP", "SCTP")
    )
    return _object(to=_list(peer), ports=_list(port))


def _operator() -> Schema:
    duration = _text(_DURATION)
    pattern = _text(r"^[^\s,]+$")
    return _object(
        logLevel=_one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        logFormat=_one_of("text", "json"),
        lease=_object(name=_or_empty(_SUBDOMAIN), duration=duration, renewDeadline=duration, retryPeriod=duration),
        resyncInterval=duration,
        upkeepInterval=duration,
        watchPatience=duration,
        trustDelay=duration,
        longestReconcile=duration,
        requestTimeout=duration,
        concurrency=_number(1),
        upgradeBudget=_number(1),
        coordinatorConnections=_number(1),
        defaultWorkerResources=_object(requests=_AMOUNTS, limits=_AMOUNTS),
        allowedMounts=_list(pattern),
        allowedTolerations=_list(pattern),
        allowedPriorityClasses=_list(pattern),
    )


def _pod_values() -> dict[str, Schema]:
    return {
        "resources": _object(requests=_AMOUNTS, limits=_AMOUNTS),
        "affinity": _affinity(),
        "topologySpreadConstraints": _list(_spread()),
        "tolerations": _list(_toleration()),
        "nodeSelector": _STRINGS,
        "priorityClassName": _or_empty(_SUBDOMAIN),
        "terminationGracePeriodSeconds": _number(1),
        "podSecurityContext": _object(
            runAsNonRoot={"const": True},
            runAsUser=_ID,
            runAsGroup=_ID,
            fsGroup=_ID,
            fsGroupChangePolicy=_one_of("OnRootMismatch", "Always"),
            supplementalGroups=_list(_number(1)),
            seccompProfile=_object(("type",), type=_one_of("RuntimeDefault", "Localhost"), localhostProfile=_text()),
            seLinuxOptions=_object(level=_text(), role=_text(), type=_text(), user=_text()),
        ),
        "securityContext": _object(
            allowPrivilegeEscalation={"const": False},
            readOnlyRootFilesystem={"const": True},
            capabilities=_object(drop={"const": ["ALL"]}),
        ),
        "podDisruptionBudget": _object(
            create=_BOOLEAN,
            maxUnavailable=_or_null({"anyOf": [_number(1), _text(r"^([1-9]|[1-9][0-9]|100)%$")]}),
            minAvailable=_or_null({"anyOf": [_number(1), _text(_PERCENTAGE)]}),
        ),
        "podLabels": _STRINGS,
        "podAnnotations": _STRINGS,
        "deploymentAnnotations": _STRINGS,
        "extraEnv": _list(_variable()),
        "extraArgs": _list(_text()),
        "extraVolumes": _list(_volume()),
        "extraVolumeMounts": _list(_mount()),
    }


def values_schema(defaults: Mapping[str, Any]) -> Schema:
    """Return the schema of `values.yaml`.

    Args:
        defaults: the content of `values.yaml`.
    """
    duration = _text(_DURATION)
    peers = _object(namespaceLabels=_STRINGS, podLabels=_STRINGS)
    issuer = _object(name=_or_empty(_SUBDOMAIN), kind=_text(r"^\w+$"), group=_text(_SUBDOMAIN))
    whole = _object(
        nameOverride=_or_empty(_NAME),
        fullnameOverride=_or_empty(_NAME),
        commonLabels=_STRINGS,
        commonAnnotations=_STRINGS,
        crds=_object(install=_BOOLEAN, keep=_BOOLEAN, annotations=_STRINGS),
        watchNamespaces=_list(_text(_NAME), uniqueItems=True),
        rbac=_object(create=_BOOLEAN, clusterRights=_BOOLEAN, aggregate=_BOOLEAN),
        admissionPolicy=_object(create=_BOOLEAN, failurePolicy=_one_of("Fail", "Ignore")),
        image=_image(),
        imagePullSecrets=_list(_object(("name",), name=_text(_SUBDOMAIN))),
        replicas=_number(1),
        **_pod_values(),
        serviceAccount=_object(create=_BOOLEAN, name=_or_empty(_SUBDOMAIN), annotations=_STRINGS),
        certificates=_object(
            source=_one_of("managed", "secret", "certManager"),
            secretName=_or_empty(_SUBDOMAIN),
            certManager=_object(
                issuerRef=issuer, duration=_text(r"^[0-9]+(s|m|h)$"), renewBefore=_text(r"^[0-9]+(s|m|h)$")
            ),
        ),
        networkPolicy=_object(
            create=_BOOLEAN,
            scrape=peers,
            query=peers,
            apiServerCIDRs=_list(_text(_CIDR)),
            egress=_object(
                restrict=_BOOLEAN,
                apiServerPorts=_list(_number(1, 65535), minItems=1),
                extra=_list(_egress_rule()),
            ),
        ),
        monitoring=_object(
            runbookUrl=_text(r"^https?://[^\s/]+(/[^\s]*)?$"),
            podMonitors=_object(
                create=_BOOLEAN, workers=_BOOLEAN, labels=_STRINGS, interval=duration, scrapeTimeout=duration
            ),
            rules=_object(create=_BOOLEAN, labels=_STRINGS),
            dashboards=_object(create=_BOOLEAN, labels=_STRINGS, annotations=_STRINGS),
        ),
        operator=_operator(),
        uninstallCheck=_object(enabled=_BOOLEAN),
        test=_object(
            bootstrapServers=_text(r"^$|^[^\s,]+:[0-9]+(,[^\s,]+:[0-9]+)*$"),
            credentialsSecret=_or_empty(_SUBDOMAIN),
            replicationFactor={"anyOf": [{"const": -1}, _number(1)]},
            timeout=duration,
            image=_image(),
        ),
        # `global` is for charts that have this one as a part.
        **{"global": {"type": "object"}},
    )
    whole = _with_required(whole, defaults)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart millpond", **whole}


def _with_required(schema: Schema, defaults: Mapping[str, Any]) -> Schema:
    """Return the schema with the names that must not be null: Helm removes the default of a value that is null.

    A value whose default is empty may be null, and so may lists, labels and resources: null means none there. All
    others have no meaning without a value.
    """
    properties = dict(schema["properties"])
    required = {*schema.get("required", ())}
    for name, default in defaults.items():
        each = properties[name]
        if name in _MAY_BE_REMOVED or _may_be_null(each, default):
            continue
        required.add(name)
        if isinstance(default, Mapping):
            properties[name] = _with_required(each, default)
    return schema | {"properties": properties} | ({"required": sorted(required)} if required else {})


def _may_be_null(schema: Schema, default: Any) -> bool:
    if "const" in schema or "minItems" in schema:
        return False
    labels = isinstance(default, Mapping) and "properties" not in schema
    return not default or labels or schema.get("type") == "array" or {"type": "null"} in schema.get("anyOf", ())
