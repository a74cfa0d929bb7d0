"""The sentences about rights that an application's user of Kafka lacks: user, operation, resource, and the cure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from confluent_kafka import KafkaError

from .error_codes import Kind, kind_of

__all__ = ("Access", "Operation", "Resource", "user_of")


class Operation(enum.StrEnum):
    """An operation that a rule allows, as `kafka-acls.sh` calls it. Read, Write and Delete include Describe."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(enum.StrEnum):
    """A kind of thing that a rule is about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CLUSTER = "cluster"


_UNKNOWN_USER = "This application's user"
#: What each code is about.
_ABOUT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
}


def user_of(settings: Mapping[str, object]) -> str:
    """Return the user of a Kafka client as far as its settings tell it, to begin a sentence with.

    A name such as `User:alice` is the principal of rules, unless the brokers map names to others.

    Args:
        settings: the properties of the client, by librdkafka's names.
    """

    def given(*names: str) -> str:
        return next((str(settings[each]) for each in names if settings.get(each)), "")

    protocol = given("security.protocol").lower()
    if protocol.startswith("sasl"):
        if name := given("sasl.username"):
            return f"User:{name}"
        if name := given("sasl.kerberos.principal"):
            return f"The user of the Kerberos principal '{name}'"
        if name := given("sasl.oauthbearer.client.id"):
            return f"The user of the tokens for client '{name}'"
        return _UNKNOWN_USER
    if protocol == "ssl" and (file := given("ssl.certificate.location", "ssl.keystore.location")):
        return f"The user of the certificate in '{file}'"
    if protocol == "ssl" and given("ssl.certificate.pem", "ssl_certificate"):
        return "The user of the certificate in 'ssl.certificate.pem'"
    return "User:ANONYMOUS"


@dataclass(frozen=True)
class Access:
    """The access of an application, or of a command, to Kafka."""

    user: str = _UNKNOWN_USER
    """The user, see `user_of`."""
    application_id: str = ""
    """The group, and the prefix of transactional ids; empty where neither is used."""

    @classmethod
    def of(cls, settings: Mapping[str, object], application_id: str = "") -> Self:
        """Return the access of a client with these properties."""
        return cls(user_of(settings), application_id)

    def lacks(self, operation: Operation, resource: Resource, *names: str) -> str:
        """Return the sentence about a missing right.

        Args:
            operation: the operation that is not allowed.
            resource: the kind of thing.
            names: its name, or several; none for the cluster.
        """
        several = "s" if len(names) > 1 else ""
        named = f"{resource}{several} {', '.join(map(repr, names))}" if names else f"the {resource}"
        return self._lacks(operation, named)

    def explained(
        self, error: KafkaError, topics: Collection[str] = (), operation: Operation = Operation.READ, *, group: str = ""
    ) -> str:
        """Return an error of the client as a sentence, followed by another one about the right that is missing, if any.

        The arguments are those of `cure`.
        """
        cure = f" {self.cure(error, topics, operation, group=group)}" if kind_of(error) is Kind.FORBIDDEN else ""
        return f"{error.str()}.{cure}"

    def clause(self, error: KafkaError, topics: Collection[str] = (), operation: Operation = Operation.READ) -> str:
        """Return the same as `explained` for use inside a sentence: without its end."""
        if kind_of(error) is not Kind.FORBIDDEN:
            return error.str()
        return f"{error.str()}; {self.cure(error, topics, operation).removesuffix('.')}"

    def cure(
        self, error: KafkaError, topics: Collection[str] = (), operation: Operation = Operation.READ, *, group: str = ""
    ) -> str:
        """Return a sentence that tells what to do about a request that failed for good.

        Args:
            error: the error.
            topics: the topics of the request, for an error about topics.
            operation: what the request needs to be allowed for these, or for the group.
            group: the group of the request. Default: the application's.
        """
        kind = kind_of(error)
        if kind is Kind.FORBIDDEN and error.code() in _ABOUT:
            resource = _ABOUT[error.code()]
            if resource is Resource.TOPIC:
                return self.lacks(operation, resource, *sorted(topics)) if topics else self._lacks(operation, "a topic")
            if resource is Resource.TRANSACTIONAL_ID:
                return self._lacks(Operation.WRITE, f"transactional ids that begin with '{self.application_id}-'")
            if resource is Resource.GROUP:
                return self.lacks(operation, resource, group or self.application_id)
            return self.lacks(Operation.IDEMPOTENT_WRITE, resource)
        if kind is Kind.UNAUTHENTICATED:
            return "Check this application's credentials and the settings that begin with 'ssl.' and 'sasl.'."
        return "Check that the brokers are up."

    def _lacks(self, operation: Operation, what: str) -> str:
        return f"{self.user} lacks {operation} on {what}: grant it, as `millpond acls` prints it."
