"""The properties of librdkafka 2.16 that can be written as text: their clients, types and limits.

With this table, a misspelled property is rejected, with the nearest known name, before a client is made. A test
compares it with the installed librdkafka.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("ALIASES", "PROPERTIES", "Property")


class Property(NamedTuple):
    """One property. `limit` is `low..high` for numbers, the names with commas for choices, and empty for others."""

    name: str
    scope: str
    """``C`` for consumers, ``P`` for producers, ``*`` for every client."""
    kind: str
    """``int``, ``num``, ``str``, ``bool``, ``one`` (of the limit's names) or ``some`` (of them, with commas)."""
    limit: str


# name scope kind limit
_TABLE = """\
acks P int -1..1000
allow.auto.create.topics * bool
api.version.fallback.ms * int 0..604800000
api.version.request * bool
api.version.request.timeout.ms * int 1..300000
auto.commit.enable C bool
auto.commit.interval.ms C int 0..86400000
auto.offset.reset C one smallest,earliest,beginning,largest,latest,end,error
batch.num.messages P int 1..1000000
batch.size P int 1..2147483647
bootstrap.servers * str
broker.address.family * one any,v4,v6
broker.address.ttl * int 0..86400000
broker.version.fallback * str
check.crcs C bool
client.dns.lookup * one use_all_dns_ips,resolve_canonical_bootstrap_servers_only
client.id * str
client.rack * str
compression.codec P one none,gzip,snappy,lz4,zstd
compression.level P int -1..12
compression.type P one none,gzip,snappy,lz4,zstd
connections.max.idle.ms * int 0..2147483647
consume.callback.max.messages C int 0..1000000
coordinator.query.interval.ms C int 1..3600000
debug * some generic,broker,topic,metadata,feature,queue,msg,protocol,cgrp,security,fetch,interceptor,plugin,\
consumer,admin,eos,mock,assignor,conf,telemetry,all
delivery.report.only.error P bool
delivery.timeout.ms P int 0..2147483647
enable.auto.commit C bool
enable.auto.offset.store C bool
enable.gapless.guarantee P bool
enable.idempotence P bool
enable.metrics.push * bool
enable.partition.eof C bool
enable.random.seed * bool
enable.sasl.oauthbearer.unsecure.jwt * bool
enable.ssl.certificate.verification * bool
enabled_events * int 0..2147483647
fetch.error.backoff.ms C int 0..300000
fetch.max.bytes C int 0..2147483135
fetch.message.max.bytes C int 1..1000000000
fetch.min.bytes C int 0..2147483647
fetch.queue.backoff.ms C int 0..300000
fetch.wait.max.ms C int 0..300000
group.id C str
group.instance.id C str
group.protocol C one classic,consumer
group.protocol.type C str
group.remote.assignor C str
heartbeat.interval.ms C int 1..3600000
https.ca.location * str
https.ca.pem * str
internal.termination.signal * int 0..128
isolation.level C one read_uncommitted,read_committed
linger.ms P num 0..900000
log.connection.close * bool
log.queue * bool
log.thread.name * bool
log_level * int 0..7
max.in.flight * int 1..1000000
max.in.flight.requests.per.connection * int 1..1000000
max.partition.fetch.bytes C int 1..1000000000
max.poll.interval.ms C int 1..86400000
max.poll.records C int 1..2147483647
message.copy.max.bytes * int 0..1000000000
message.max.bytes * int 1000..1000000000
message.send.max.retries P int 0..2147483647
message.timeout.ms P int 0..2147483647
metadata.broker.list * str
metadata.max.age.ms * int 1..86400000
metadata.recovery.rebootstrap.trigger.ms * int 0..2147483647
metadata.recovery.strategy * one none,rebootstrap
offset.store.method C one none,file,broker
offset.store.path C str
offset.store.sync.interval.ms C int -1..86400000
partition.assignment.strategy C str
partitioner P str
plugin.library.paths * str
produce.offset.report P bool
queue.buffering.backpressure.threshold P int 1..1000000
queue.buffering.max.kbytes P int 1..2147483647
queue.buffering.max.messages P int 0..2147483647
queue.buffering.max.ms P num 0..900000
queued.max.messages.kbytes C int 1..2097151
queued.min.messages C int 1..10000000
queuing.strategy P one fifo,lifo
receive.message.max.bytes * int 1000..2147483647
reconnect.backoff.jitter.ms * int 0..3600000
reconnect.backoff.max.ms * int 0..3600000
reconnect.backoff.ms * int 0..3600000
request.required.acks P int -1..1000
request.timeout.ms P int 1..900000
retries P int 0..2147483647
retry.backoff.max.ms * int 1..300000
retry.backoff.ms * int 1..300000
sasl.kerberos.keytab * str
sasl.kerberos.kinit.cmd * str
sasl.kerberos.min.time.before.relogin * int 0..86400000
sasl.kerberos.principal * str
sasl.kerberos.service.name * str
sasl.mechanism * str
sasl.mechanisms * str
sasl.oauthbearer.assertion.algorithm * one RS256,ES256
sasl.oauthbearer.assertion.claim.aud * str
sasl.oauthbearer.assertion.claim.exp.seconds * int 1..2147483647
sasl.oauthbearer.assertion.claim.iss * str
sasl.oauthbearer.assertion.claim.jti.include * bool
sasl.oauthbearer.assertion.claim.nbf.seconds * int 0..2147483647
sasl.oauthbearer.assertion.claim.sub * str
sasl.oauthbearer.assertion.file * str
sasl.oauthbearer.assertion.jwt.template.file * str
sasl.oauthbearer.assertion.private.key.file * str
sasl.oauthbearer.assertion.private.key.passphrase * str
sasl.oauthbearer.assertion.private.key.pem * str
sasl.oauthbearer.client.credentials.client.id * str
sasl.oauthbearer.client.credentials.client.secret * str
sasl.oauthbearer.client.id * str
sasl.oauthbearer.client.secret * str
sasl.oauthbearer.config * str
sasl.oauthbearer.extensions * str
sasl.oauthbearer.grant.type * one client_credentials,urn:ietf:params:oauth:grant-type:jwt-bearer
sasl.oauthbearer.metadata.authentication.type * one none,azure_imds,aws_iam
sasl.oauthbearer.method * one default,oidc
sasl.oauthbearer.scope * str
sasl.oauthbearer.sub.claim.name * str
sasl.oauthbearer.token.endpoint.url * str
sasl.password * str
sasl.username * str
security.protocol * one plaintext,ssl,sasl_plaintext,sasl_ssl
session.timeout.ms C int 1..3600000
share.acknowledgement.mode C str
socket.blocking.max.ms * int 1..60000
socket.connection.setup.timeout.ms * int 1000..2147483647
socket.keepalive.enable * bool
socket.max.fails * int 0..1000000
socket.nagle.disable * bool
socket.receive.buffer.bytes * int 0..100000000
socket.send.buffer.bytes * int 0..100000000
socket.timeout.ms * int 10..300000
ssl.ca.certificate.stores * str
ssl.ca.location * str
ssl.ca.pem * str
ssl.certificate.location * str
ssl.certificate.pem * str
ssl.cipher.suites * str
ssl.crl.location * str
ssl.curves.list * str
ssl.endpoint.identification.algorithm * one none,https
ssl.engine.id * str
ssl.engine.location * str
ssl.key.location * str
ssl.key.password * str
ssl.key.pem * str
ssl.keystore.location * str
ssl.keystore.password * str
ssl.providers * str
ssl.sigalgs.list * str
statistics.interval.ms * int 0..86400000
sticky.partitioning.linger.ms P int 0..900000
topic.blacklist * str
topic.metadata.propagation.max.ms * int 0..3600000
topic.metadata.refresh.fast.cnt * int 0..1000
topic.metadata.refresh.fast.interval.ms * int 1..60000
topic.metadata.refresh.interval.ms * int -1..3600000
topic.metadata.refresh.sparse * bool
transaction.timeout.ms P int 1000..2147483647
transactional.id P str
"""

ALIASES = {
    "acks": "request.required.acks",
    "auto.commit.enable": "enable.auto.commit",
    "bootstrap.servers": "metadata.broker.list",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "retries": "message.send.max.retries",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Synonyms in librdkafka, with the names that this project uses."""


def _parse(line: str) -> Property:
    name, scope, kind, *limit = line.split(" ", 3)
    return Property(name, scope, kind, "".join(limit))


PROPERTIES = {found.name: found for found in map(_parse, _TABLE.splitlines())}
"""All properties by name, aliases included."""
