"""Kafka client properties: from millpond's configuration to librdkafka.

A property with the prefix ``consumer.``, ``producer.`` or ``admin.`` goes to that client, one without a prefix to
every client that has it; the prefixed one wins. A Java name is translated if librdkafka has the same property under
another name, and is otherwise rejected with a hint. Properties that exactly-once, ordering or co-partitioning depend
on are set by millpond, and rejected with the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from .client_properties import ALIASES, PROPERTIES, Property
from .parsers import HIDDEN, Secret, as_bool, is_secret, nearest

__all__ = (
    "CLIENTS",
    "ClientSettings",
    "ClientValue",
    "Route",
    "route",
    "split_prefix",
    "suggest",
    "topic_value",
    "value_for",
)

CLIENTS = ("consumer", "producer", "admin")

ClientValue = str | int | float | Secret

_SCOPE = {"consumer": "C*", "producer": "P*", "admin": "*"}

_TRANSLATED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
"""Java names of properties that librdkafka has under another name, with the same unit and meaning."""

_OWN_SETTING = "it follows from millpond's setting '{}'"
_OFFSETS = "millpond commits offsets itself, together with state and output"
_NO_MEMBER = "a worker is not a member of a Kafka group; set 'coordinator.session.timeout.ms' instead"
_ALL_OWNED = "millpond assigns partitions itself, by tasks, and uses no group protocol"

_PROTECTED = {
    "bootstrap.servers": _OWN_SETTING.format("bootstrap.servers"),
    "metadata.broker.list": _OWN_SETTING.format("bootstrap.servers"),
    "group.id": _OWN_SETTING.format("application.id"),
    "transactional.id": "it is '<application.id>-<worker.id>', which protects the ownership of tasks",
    "isolation.level": _OWN_SETTING.format("processing.guarantee"),
    "enable.auto.commit": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "enable.partition.eof": "a worker needs the event that a partition has no more records",
    "group.instance.id": _ALL_OWNED,
    "group.protocol": _ALL_OWNED,
    "group.remote.assignor": _ALL_OWNED,
    "partition.assignment.strategy": _ALL_OWNED,
    "session.timeout.ms": _NO_MEMBER,
    "heartbeat.interval.ms": _NO_MEMBER,
    "enable.idempotence": "without it a retry could write a record twice or out of order",
    "request.required.acks": "a commit is only safe when all in-sync replicas have the records (acks=all)",
    "partitioner": "records with equal keys must go to the partition that Kafka Streams and joins expect (murmur2); "
    "give a sink a partitioner= of its own instead",
    "delivery.report.only.error": "millpond counts deliveries before it commits",
}
"""Properties that only millpond sets, by librdkafka's name, with the reason."""

_REDIRECTED = {
    "transaction.timeout.ms": "transaction.timeout.ms",
    "auto.offset.reset": "auto.offset.reset",
}
"""Client properties that are settings of millpond: `consumer.auto.offset.reset` is `auto.offset.reset`."""

_REJECTED = {
    "key.serializer": "serdes are given in the topology, or by 'default.key.serde'",
    "value.serializer": "serdes are given in the topology, or by 'default.value.serde'",
    "key.deserializer": "serdes are given in the topology, or by 'default.key.serde'",
    "value.deserializer": "serdes are given in the topology, or by 'default.value.serde'",
    "max.poll.records": "millpond takes all records that have arrived; limit them by 'buffered.records.per.partition'",
    "buffer.memory": "librdkafka's name is 'queue.buffering.max.kbytes', in units of 1024 bytes",
    "max.block.ms": "librdkafka does not block on a full buffer; limit deliveries by 'message.timeout.ms'",
    "default.api.timeout.ms": "librdkafka's name is 'socket.timeout.ms'",
    "partitioner.class": "give a sink a partitioner= of its own",
    "partitioner.ignore.keys": "give a sink a partitioner= of its own",
    "interceptor.classes": "librdkafka loads no Java classes",
    "metric.reporters": "metrics are served for Prometheus on 'http.port'",
    "metadata.max.idle.ms": "librdkafka's nearest is 'metadata.max.age.ms'",
    "ssl.truststore.location": "librdkafka's name is 'ssl.ca.location', a PEM file or directory",
    "ssl.truststore.certificates": "librdkafka's name is 'ssl.ca.pem'",
    "ssl.truststore.password": "librdkafka reads certificates in PEM, without a password, from 'ssl.ca.location'",
    "ssl.truststore.type": "librdkafka reads certificates in PEM from 'ssl.ca.location'",
    "ssl.keystore.type": "librdkafka reads PKCS#12 from 'ssl.keystore.location', PEM from 'ssl.certificate.location'",
    "ssl.keystore.key": "librdkafka's name is 'ssl.key.pem'",
    "ssl.keystore.certificate.chain": "librdkafka's name is 'ssl.certificate.pem'",
    "ssl.protocol": "OpenSSL negotiates the protocol; 'ssl.cipher.suites' restricts it",
    "ssl.enabled.protocols": "OpenSSL negotiates the protocol; 'ssl.cipher.suites' restricts it",
    "sasl.jaas.config": "librdkafka's names are 'sasl.username' and 'sasl.password'",
    "sasl.login.callback.handler.class": "librdkafka's name is 'sasl.oauthbearer.method', with the value 'oidc'",
    "sasl.client.callback.handler.class": "librdkafka loads no Java classes",
    "sasl.kerberos.ticket.renew.window.factor": "librdkafka's nearest is 'sasl.kerberos.min.time.before.relogin'",
}
"""Java properties that librdkafka does not have, with what to write instead."""

_TOPIC_CONFIGS = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)

_PROTECTED_TOPIC_CONFIGS = {
    "cleanup.policy": "it follows from the kind of topic",
    "message.timestamp.type": "event time is in the records' timestamps (CreateTime)",
}

_OTHER_PREFIXES = ("main.consumer.", "restore.consumer.", "global.consumer.")


class ClientSettings(dict[str, str | int | float]):
    """The properties of a Kafka client, with secrets in clear. Its text form hides them."""

    def __repr__(self) -> str:
        return repr({key: HIDDEN if is_secret(key) else value for key, value in self.items()})

    __str__ = __repr__


class Route(NamedTuple):
    """The target of a key: a property of clients, or, without clients, a setting of millpond."""

    name: str
    clients: tuple[str, ...]
    prefixed: bool = False


def split_prefix(key: str) -> tuple[str | None, str]:
    """Return the client that a key has as its prefix, or None, and the rest of the key."""
    prefix, dot, rest = key.partition(".")
    return (prefix, rest) if dot and prefix in CLIENTS else (None, key)


def route(key: str) -> Route | None:
    """Return a key's clients and librdkafka's name for it; None if it is not a client property.

    Raises:
        ValueError: only millpond sets the property, or another client or Java has it. The message is the end
            of a sentence that begins with the key.
    """
    client, name = split_prefix(key)
    for prefix in _OTHER_PREFIXES:
        if key.startswith(prefix):
            raise ValueError(f"does not exist, since a worker has one consumer{_of_consumer(key.removeprefix(prefix))}")
    name = _TRANSLATED.get(name, name)
    name = ALIASES.get(name, name)
    if name in _REDIRECTED and client is not None:
        return Route(_REDIRECTED[name], ())
    if reason := _PROTECTED.get(name):
        raise ValueError(f"cannot be set: {reason}")
    if reason := _REJECTED.get(name):
        raise ValueError(f"is a setting of the Java clients: {reason}")
    found = PROPERTIES.get(name)
    if found is None:
        if client is not None:
            known = [one.name for one in PROPERTIES.values() if one.scope in _SCOPE[client]]
            near = nearest(name, [*known, *_TRANSLATED, *_REJECTED])
            raise ValueError(f"is unknown{'' if near is None else suggest(f'{client}.{near}')}")
        return None
    if client is None:
        return Route(name, tuple(one for one in CLIENTS if found.scope in _SCOPE[one]))
    if found.scope not in _SCOPE[client]:
        other = "consumer" if found.scope == "C" else "producer"
        raise ValueError(f"is unknown: '{name}' is a property of the {other}; write '{other}.{name}'")
    return Route(name, (client,), prefixed=True)


def value_for(name: str, given: object) -> ClientValue:
    """Return the value of a client property, checked against librdkafka's limits.

    Raises:
        ValueError: the value is outside the limits; the message never shows the value of a secret.
    """
    found = PROPERTIES[name]
    if is_secret(name):
        if isinstance(given, Secret):
            return given
        return Secret(str(given))
    if isinstance(given, Secret):
        return given
    match found.kind:
        case "bool":
            return "true" if as_bool(given) else "false"
        case "int" | "num":
            return _number(found, given)
        case "one" | "some":
            return _choice(found, given)
        case _:
            return str(given)


def topic_value(name: str, given: object) -> str:
    """Return a configuration value of internal topics. The broker checks unknown names that resemble no known name.

    Raises:
        ValueError: the name is misspelled, or only millpond sets it; the message is the end of a sentence.
    """
    if reason := _PROTECTED_TOPIC_CONFIGS.get(name):
        raise ValueError(f"cannot be set: {reason}")
    if name not in _TOPIC_CONFIGS and (near := nearest(name, [*_TOPIC_CONFIGS, *_PROTECTED_TOPIC_CONFIGS])):
        reason = _PROTECTED_TOPIC_CONFIGS.get(near)
        if reason:
            raise ValueError(f"is unknown, and 'topic.{near}' cannot be set: {reason}")
        raise ValueError(f"is unknown; did you mean 'topic.{near}'?")
    return str(given).lower() if isinstance(given, bool) else str(given)


def _number(found: Property, given: object) -> int | float:
    low, _, high = found.limit.partition("..")
    try:
        if isinstance(given, bool):
            raise ValueError
        number: int | float = int(str(given)) if found.kind == "int" else float(str(given))
    except ValueError:
        raise ValueError(f"expected a number from {low} to {high}") from None
    if not float(low) <= number <= float(high):
        raise ValueError(f"expected a number from {low} to {high}")
    return number


def _choice(found: Property, given: object) -> str:
    text = str(given).strip()
    known = found.limit.split(",")
    chosen = text.split(",") if found.kind == "some" else [text]
    for one in chosen:
        if one.strip().lstrip("-").lower() not in known:
            near = nearest(one.lower(), known)
            raise ValueError(f"expected one of {', '.join(known)}" + (f"; did you mean '{near}'?" if near else ""))
    return text


def suggest(near: str) -> str:
    """Return the end of a sentence about an unknown key near `near`: a suggestion, or the reason not to set `near`."""
    try:
        route(near)
    except ValueError as error:
        return f", and '{near}' {error}"
    return f"; did you mean '{near}'?"


def _of_consumer(name: str) -> str:
    key = f"consumer.{name}"
    try:
        route(key)
    except ValueError as error:
        return f", and '{key}' {error}"
    return f"; write '{key}'"
