"""A real broker that denies by default: each user may do what a rule allows, and the test's own clients everything."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support import kafka
from tests.support.broker import OwnBroker, free_port

__all__ = ("DenyingBroker", "Rule", "denying_broker", "rules_of")

#: A rule: the kind of the resource, its name or the beginning of it, whether it is a beginning, and one operation.
Rule = tuple[ResourceType, str, bool, AclOperation]

_OPTIONS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {each.name.replace("_", "").lower(): each for each in AclOperation}
_PASSWORD = "secret-of-{user}"


@dataclass(frozen=True)
class DenyingBroker:
    """A broker with users."""

    bootstrap_servers: str
    """The listener of the test's own clients, which may do everything."""
    users: str
    """The listener of users, who log in with a password (SASL/PLAIN)."""
    broker: OwnBroker

    def settings(self, user: str) -> dict[str, str]:
        """Return the settings of a user's clients."""
        return {
            "bootstrap.servers": self.users,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": _PASSWORD.format(user=user),
        }

    @contextmanager
    def allowing(self, user: str, rules: Iterable[Rule]) -> Iterator[None]:
        """Allow a user these operations during the block."""
        wanted = [_binding(user, rule) for rule in rules]
        admin = kafka.admin(self.bootstrap_servers)
        for future in admin.create_acls(wanted).values():
            kafka.answer(future, "creating rules")
        self._await_rules(lambda found: set(wanted) <= found)
        try:
            yield
        finally:
            self.revoke(user, rules)

    def revoke(self, user: str, rules: Iterable[Rule]) -> None:
        """Take rights away from a user."""
        gone = [_binding(user, rule) for rule in rules]
        filters = [
            AclBindingFilter(
                each.restype, each.name, each.resource_pattern_type, each.principal, each.host, each.operation,
                each.permission_type,
            )
            for each in gone
        ]  # fmt: skip
        admin = kafka.admin(self.bootstrap_servers)
        for future in admin.delete_acls(filters).values():
            kafka.answer(future, "deleting rules")
        self._await_rules(lambda found: not set(gone) & found)

    def _await_rules(self, condition: Callable[[set[Any]], bool]) -> None:
        """Wait until the broker applies rules: it learns of them a moment after its controller."""
        admin = kafka.admin(self.bootstrap_servers)
        anything: Any = None
        everything = AclBindingFilter(
            ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        kafka.eventually(
            lambda: condition(set(kafka.answer(admin.describe_acls(everything), "reading rules"))), "rules apply"
        )


@contextmanager
def denying_broker(
    make: type[OwnBroker],
    directory: Path,
    users: Collection[str] = ("alice",),
    properties: Mapping[str, str] | None = None,
) -> Iterator[DenyingBroker]:
    """Run a broker that denies by default.

    Args:
        make: the class of brokers, from the fixture `own_brokers`.
        directory: a directory for its data.
        users: the names of its users.
        properties: further properties of the broker.
    """
    port, controller, of_users = (free_port() for _ in range(3))
    listening = f"PLAINTEXT://127.0.0.1:{port},USERS://127.0.0.1:{of_users}"
    accounts = " ".join(f'user_{each}="{_PASSWORD.format(user=each)}"' for each in users)
    given = {
        "listeners": f"{listening},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listening,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
        **(properties or {}),
    }
    with make(directory, port=port, properties=given) as broker:
        yield DenyingBroker(broker.bootstrap_servers, f"127.0.0.1:{of_users}", broker)


def rules_of(script: str, principal: str) -> list[Rule]:
    """Return the rules that the lines of `kafka-acls.sh` in a script add, one for each operation."""
    found: list[Rule] = []
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "kafka-acls.sh", line
        assert "--add" in words
        assert _after(words, "--allow-principal") == [principal]
        kind, name = next(
            ((kind, names[0]) for option, kind in _OPTIONS.items() if (names := _after(words, option))),
            (ResourceType.BROKER, "kafka-cluster"),
        )
        assert (kind is ResourceType.BROKER) == ("--cluster" in words)
        prefixed = _after(words, "--resource-pattern-type") == ["prefixed"]
        found += [(kind, name, prefixed, _OPERATIONS[each.lower()]) for each in _after(words, "--operation")]
    return found


def _after(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def _binding(user: str, rule: Rule) -> Any:
    kind, name, prefixed, operation = rule
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
