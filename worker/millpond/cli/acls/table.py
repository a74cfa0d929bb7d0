"""The table of rights: which part of millpond needs which operation on which resource of Kafka, and why.

`docs/rights.md` and the grants that `millpond acls` prints follow from it. A test runs an application with these grants
and no others, and takes each of them away.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from millpond.runtime.missing_rights import Operation, Resource

__all__ = ("RIGHTS", "Part", "Right", "Scope")


class Part(enum.Enum):
    """A part of millpond that talks to Kafka. The value is its name in `--for`."""

    WORKER = "worker"
    SNAPSHOT = "snapshot"
    RESET = "reset"
    DELETE = "delete"
    STATE = "state"
    TOPICS = "topics"
    CREATE_TOPICS = "topics-create"
    DELETE_TOPICS = "topics-delete"
    PRODUCE = "produce"
    CONSUME = "consume"
    CHECK = "check"

    @property
    def described(self) -> str:
        """What the part is, for the page and for comments."""
        return _DESCRIBED[self]


_DESCRIBED = {
    Part.WORKER: "worker: `millpond run`, pods of a StreamApp",
    Part.SNAPSHOT: "snapshot: `millpond snapshot create`, the job of a StateBootstrap",
    Part.RESET: "`millpond reset`",
    Part.DELETE: "`millpond reset --delete`, the cleanup of a StreamApp with `deletion.kafka: Delete`",
    Part.STATE: "`millpond state verify`",
    Part.TOPICS: "`millpond topics`",
    Part.CREATE_TOPICS: "`millpond topics --create`",
    Part.DELETE_TOPICS: "`millpond topics --delete`",
    Part.PRODUCE: "`millpond produce`",
    Part.CONSUME: "`millpond consume`",
    Part.CHECK: "`millpond check --connect`, beside the rights of a worker, which it checks",
}


class Scope(enum.Enum):
    """The resources that a right is about. The value is their description."""

    INPUTS = "inputs"
    STATE_SOURCES = "inputs that serve as changelogs: of global tables, read-only stores and reused source topics"
    OUTPUTS = "outputs"
    DEAD_LETTERS = "the dead-letter topic"
    INTERNAL = "internal topics: `<application.id>-*`"
    PURGED = "internal topics, if some are repartition topics or changelogs of windows or sessions"
    REPARTITION = "internal topics, if some are repartition topics"
    CHANGELOGS = "internal topics, if some are changelogs"
    WINDOW_CHANGELOGS = "internal topics, if some are changelogs of windows or sessions"
    GROUP = "`<application.id>`"
    REUSED_GROUP = "`<application.id>`, if inputs serve as changelogs"
    PRESENCE = "`<application.id>/workers`"
    TRANSACTIONS = "`<application.id>-*`, with `exactly_once`"
    SILENT = "the cluster, if the application writes no topic, with `at_least_once`"
    CLUSTER = "the cluster"

    @property
    def resource(self) -> Resource:
        """The kind of these resources."""
        return _RESOURCES.get(self, Resource.TOPIC)


_RESOURCES = {
    Scope.GROUP: Resource.GROUP,
    Scope.REUSED_GROUP: Resource.GROUP,
    Scope.PRESENCE: Resource.GROUP,
    Scope.TRANSACTIONS: Resource.TRANSACTIONAL_ID,
    Scope.SILENT: Resource.CLUSTER,
    Scope.CLUSTER: Resource.CLUSTER,
}


@dataclass(frozen=True)
class Right:
    """One right of one part."""

    part: Part
    scope: Scope
    operation: Operation
    why: str
    """What the part does with it."""
    without: str
    """What happens without it."""
    optional: bool = False
    """Whether it is needed in a case only that neither code nor settings show; `why` says which."""

    @property
    def ends(self) -> bool:
        """Whether a worker does not start, or ends, without it."""
        return self.without in (_STARTS_NOT, _ENDS)


def _rights(part: Part, *rows: tuple[Scope, Operation, str, str]) -> tuple[Right, ...]:
    return tuple(Right(part, *row) for row in rows)


_STARTS_NOT = "it does not start"
_ENDS = "it ends"
_FAILS = "it fails"
_KINDS = (Scope.INPUTS, Scope.OUTPUTS, Scope.DEAD_LETTERS)

RIGHTS: tuple[Right, ...] = (
    *_rights(
        Part.WORKER,
        (Scope.INPUTS, Operation.READ, "read records, and commit their offsets", _STARTS_NOT),
        (
            Scope.STATE_SOURCES,
            Operation.DESCRIBE_CONFIGS,
            "know how long deletions stay in the topic",
            "a warning; local rows that are behind are restored from the beginning",
        ),
        (Scope.OUTPUTS, Operation.WRITE, "write results", _STARTS_NOT),
        (Scope.DEAD_LETTERS, Operation.WRITE, "write records that failed", _STARTS_NOT),
        (Scope.INTERNAL, Operation.CREATE, "create them at the first start", _STARTS_NOT),
        (Scope.INTERNAL, Operation.READ, "restore stores, and read repartition topics", _ENDS),
        (Scope.INTERNAL, Operation.WRITE, "write changelogs and repartition topics", _ENDS),
        (
            Scope.PURGED,
            Operation.DELETE,
            "delete records that are processed or have expired",
            "a warning; the topics grow",
        ),
        (
            Scope.CHANGELOGS,
            Operation.DESCRIBE_CONFIGS,
            "know how long deletions stay in a changelog",
            "a warning; local rows that are behind are restored from the beginning",
        ),
        (Scope.GROUP, Operation.READ, "read and commit offsets, whose metadata names the owners of tasks", _STARTS_NOT),
        (Scope.PRESENCE, Operation.READ, "report that it runs", "a warning; `millpond reset` does not see it"),
        (
            Scope.TRANSACTIONS,
            Operation.WRITE,
            "commit transactions, and take over the tasks of dead workers",
            _STARTS_NOT,
        ),
        (
            Scope.SILENT,
            Operation.IDEMPOTENT_WRITE,
            "get a producer id, which a right to write any topic includes",
            _ENDS,
        ),
    ),
    Right(
        Part.WORKER,
        Scope.WINDOW_CHANGELOGS,
        Operation.ALTER_CONFIGS,
        "remove the time limit of changelogs that Kafka Streams has created",
        "a warning; restored stores may lack windows",
        optional=True,
    ),
    *_rights(
        Part.SNAPSHOT,
        *((each, Operation.DESCRIBE, "know the tasks", _FAILS) for each in (*_KINDS, Scope.REPARTITION)),
        (Scope.STATE_SOURCES, Operation.READ, "read rows", _FAILS),
        (Scope.CHANGELOGS, Operation.READ, "read rows", _FAILS),
        (
            Scope.STATE_SOURCES,
            Operation.DESCRIBE_CONFIGS,
            "know how long deletions stay in the topic",
            "a warning; ten minutes are assumed",
        ),
        (
            Scope.CHANGELOGS,
            Operation.DESCRIBE_CONFIGS,
            "know how long deletions stay in a changelog",
            "a warning; ten minutes are assumed",
        ),
        (Scope.REUSED_GROUP, Operation.DESCRIBE, "end where the application has committed", _FAILS),
    ),
    *_rights(
        Part.RESET,
        (Scope.INPUTS, Operation.READ, "commit other offsets", _FAILS),
        (Scope.REPARTITION, Operation.READ, "commit other offsets", _FAILS),
        (Scope.INTERNAL, Operation.DELETE, "delete them", _FAILS),
        (Scope.GROUP, Operation.READ, "read and commit offsets", _FAILS),
        (Scope.PRESENCE, Operation.DESCRIBE, "see workers that run", "it fails, unless with `--force`"),
        (Scope.TRANSACTIONS, Operation.WRITE, "fence the owners of tasks", _FAILS),
        (
            Scope.CLUSTER,
            Operation.DESCRIBE,
            "list the groups of other applications, whose topics stay",
            "without the topology, it keeps topics that may be of others",
        ),
    ),
    *_rights(
        Part.DELETE,
        (Scope.INPUTS, Operation.DESCRIBE, "see the owners of tasks, and workers that run", "it does not see them"),
        (Scope.INTERNAL, Operation.DELETE, "delete them", _FAILS),
        (Scope.GROUP, Operation.DELETE, "delete it", _FAILS),
        (Scope.PRESENCE, Operation.DELETE, "delete it", _FAILS),
        (Scope.TRANSACTIONS, Operation.WRITE, "fence the owners of tasks", _FAILS),
        (
            Scope.CLUSTER,
            Operation.DESCRIBE,
            "list the groups of other applications, whose topics stay",
            "without the topology, it keeps topics that may be of others",
        ),
    ),
    *_rights(
        Part.STATE,
        (Scope.INTERNAL, Operation.READ, "read what was written since", _FAILS),
        (Scope.STATE_SOURCES, Operation.READ, "read what was written since", _FAILS),
        *(
            (each, Operation.DESCRIBE_CONFIGS, "know how long deletions stay in the topic", "a warning")
            for each in (Scope.CHANGELOGS, Scope.STATE_SOURCES)
        ),
    ),
    *_rights(
        Part.TOPICS,
        *((each, Operation.DESCRIBE, "list the topic", "it is left out") for each in (*_KINDS, Scope.INTERNAL)),
        *(
            (each, Operation.DESCRIBE_CONFIGS, "show its settings", "they are left out")
            for each in (*_KINDS, Scope.INTERNAL)
        ),
        (Scope.GROUP, Operation.DESCRIBE, "name the application of internal topics", "it is left out"),
    ),
    *_rights(
        Part.CREATE_TOPICS,
        *((each, Operation.CREATE, "create the topic", _FAILS) for each in _KINDS),
        *((each, Operation.DESCRIBE, "wait until it exists", _FAILS) for each in _KINDS),
        *(
            (each, Operation.DESCRIBE_CONFIGS, "compare the settings of one that exists", "they are not compared")
            for each in _KINDS
        ),
    ),
    *_rights(
        Part.DELETE_TOPICS,
        *((each, Operation.DELETE, "delete the topic", _FAILS) for each in _KINDS),
        (Scope.GROUP, Operation.DESCRIBE, "see that the application reads the topic", "it does not see it"),
        (Scope.PRESENCE, Operation.DESCRIBE, "see workers that run", "it does not see them"),
    ),
    *_rights(Part.PRODUCE, (Scope.INPUTS, Operation.WRITE, "write records", _FAILS)),
    *_rights(
        Part.CONSUME,
        *((each, Operation.READ, "read records", _FAILS) for each in (*_KINDS, Scope.INTERNAL)),
    ),
    *_rights(
        Part.CHECK,
        (
            Scope.CLUSTER,
            Operation.DESCRIBE_CONFIGS,
            "know how many replicas topics get by default, where `replication.factor` is -1",
            "a note",
        ),
    ),
)
"""All rights, by part. Read, Write and Delete include Describe; AlterConfigs includes DescribeConfigs."""
