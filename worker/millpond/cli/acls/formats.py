"""The forms of grants: command lines of `kafka-acls.sh`, a `KafkaUser` of Strimzi, or JSON."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from millpond.errors import ConfigError
from millpond.runtime.missing_rights import Resource

from .grants import Grant, Grants

__all__ = ("as_json", "kafka_acls", "kafka_user")

_OPTIONS = {Resource.TOPIC: "--topic", Resource.GROUP: "--group", Resource.TRANSACTIONAL_ID: "--transactional-id"}
_STRIMZI = {
    Resource.TOPIC: "topic",
    Resource.GROUP: "group",
    Resource.TRANSACTIONAL_ID: "transactionalId",
    Resource.CLUSTER: "cluster",
}
#: A name of an object of Kubernetes.
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def kafka_acls(grants: Grants, principal: str, bootstrap_servers: str) -> Iterator[str]:
    """Yield the lines of a shell script that adds the grants. Comments say what each is for.

    Args:
        grants: the grants.
        principal: the user, as `User:alice`.
        bootstrap_servers: the brokers; empty if they are not known.
    """
    where = shlex.quote(bootstrap_servers) if bootstrap_servers else '"$BOOTSTRAP_SERVERS"'
    begin = f"kafka-acls.sh --bootstrap-server {where} --add --allow-principal {shlex.quote(principal)}"
    for each in grants.unknown:
        yield f"# Not known: {each}"
    for grant in grants.needed:
        yield from _comments(grant)
        yield f"{begin} {_arguments(grant)}"
    for grant in grants.optional:
        yield from _comments(grant)
        yield "# Only in this case:"
        yield f"# {begin} {_arguments(grant)}"


def _comments(grant: Grant) -> Iterator[str]:
    for operation, why in zip(grant.operations, grant.why, strict=True):
        yield f"# {operation} {_shown(grant)}: {why}"


def _shown(grant: Grant) -> str:
    return f"{grant.resource} {grant.name}{'*' if grant.prefixed else ''}".strip()


def _arguments(grant: Grant) -> str:
    operations = " ".join(f"--operation {each}" for each in grant.operations)
    if grant.resource is Resource.CLUSTER:
        return f"{operations} --cluster"
    pattern = " --resource-pattern-type prefixed" if grant.prefixed else ""
    return f"{operations} {_OPTIONS[grant.resource]} {shlex.quote(grant.name)}{pattern}"


def kafka_user(grants: Grants, principal: str, cluster: str, namespace: str | None) -> Iterator[str]:
    """Yield the lines of a `KafkaUser` of Strimzi with these grants.

    Args:
        grants: the grants.
        principal: the user: `User:NAME` for a user with a password, `User:CN=NAME` for one with a certificate.
        cluster: the name of the Kafka cluster.
        namespace: the namespace of the object; None to leave it out.

    Raises:
        ConfigError: no KafkaUser has this principal.
    """
    kind, _, name = principal.partition(":")
    certificate = name.startswith("CN=")
    name = name.removeprefix("CN=")
    if kind != "User" or not _OBJECT.fullmatch(name):
        raise ConfigError(
            f"--principal {principal} is not that of a KafkaUser, whose name is one of an object of Kubernetes: give "
            "User:NAME for a user with a password, or User:CN=NAME for one with a certificate."
        )
    yield "# Strimzi before 0.49: kafka.strimzi.io/v1beta2"
    yield "apiVersion: kafka.strimzi.io/v1"
    yield "kind: KafkaUser"
    yield "metadata:"
    yield f"  name: {_quoted(name)}"
    if namespace is not None:
        yield f"  namespace: {_quoted(namespace)}"
    yield "  labels:"
    yield f"    strimzi.io/cluster: {_quoted(cluster)}"
    yield "spec:"
    yield "  authentication:"
    yield f"    type: {'tls' if certificate else 'scram-sha-512'}"
    yield "  authorization:"
    yield "    type: simple"
    for each in grants.unknown:
        yield f"    # Not known: {each}"
    yield "    acls:"
    for grant in grants.needed:
        yield from (f"      {line}" for line in _comments(grant))
        yield from (f"      {line}" for line in _rule(grant))
    for grant in grants.optional:
        yield from (f"      {line}" for line in _comments(grant))
        yield "      # Only in this case:"
        yield from (f"      # {line}" for line in _rule(grant))


def _rule(grant: Grant) -> Iterator[str]:
    yield "- resource:"
    yield f"    type: {_STRIMZI[grant.resource]}"
    if grant.resource is not Resource.CLUSTER:
        yield f"    name: {_quoted(grant.name)}"
        yield f"    patternType: {'prefix' if grant.prefixed else 'literal'}"
    yield f"  operations: [{', '.join(grant.operations)}]"


def _quoted(text: str) -> str:
    """Return a text as a YAML string."""
    return msgspec.json.encode(text).decode()


def as_json(grants: Grants, principal: str) -> str:
    """Return the grants as one JSON object, for programs."""

    def plain(grant: Grant) -> dict[str, object]:
        return {
            "resource": _STRIMZI[grant.resource],
            "name": grant.name,
            "pattern": "prefixed" if grant.prefixed else "literal",
            "operations": list(map(str, grant.operations)),
            "why": list(grant.why),
        }

    shown = {
        "principal": principal,
        "grants": list(map(plain, grants.needed)),
        "optional": list(map(plain, grants.optional)),
        "unknown": list(grants.unknown),
    }
    return msgspec.json.encode(shown).decode()
