"""The grants of one application: the table of rights, with the names of its topics, groups and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import Operation, Resource
from millpond.runtime.ownership.presence import presence_group
from millpond.runtime.processing.handlers import continue_on_error, fail_on_error
from millpond.runtime.topics.plan import Plan
from millpond.runtime.topics.window_changelogs import window_changelogs
from millpond.state.builders import SessionStoreBuilder, WindowStoreBuilder
from millpond.topology import Topology

from .table import RIGHTS, Part, Right, Scope

__all__ = ("Grant", "Grants", "grants_of", "topics_of_rights")

_DESCRIBES = {Operation.READ, Operation.WRITE, Operation.DELETE}


@dataclass(frozen=True)
class Grant:
    """The operations that are allowed on one resource, or on all of a kind whose names begin alike."""

    resource: Resource
    name: str
    """The name, or its beginning; `*` for all, and empty for the cluster."""
    prefixed: bool
    operations: tuple[Operation, ...]
    why: tuple[str, ...]
    """What each operation is for."""


@dataclass(frozen=True)
class Grants:
    """All grants of an application."""

    needed: tuple[Grant, ...]
    optional: tuple[Grant, ...]
    """Needed in cases that neither code nor settings show."""
    unknown: tuple[str, ...]
    """What cannot be known: each a sentence with the option that adds it."""


def grants_of(
    topology: Topology, config: Config, parts: Iterable[Part], reads: Collection[str] = (), writes: Collection[str] = ()
) -> Grants:
    """Return the grants of an application.

    Args:
        topology: the topology.
        config: the settings, with `application.id`.
        parts: the parts of millpond that use them.
        reads: further inputs, such as those that match a pattern; `orders-*` stands for all that begin so.
        writes: further outputs, such as those that functions choose.
    """
    names = _names(topology, config, set(reads), set(writes))
    wanted = set(parts)
    rights = [each for each in RIGHTS if each.part in wanted]
    needed = _merged(rights, names, optional=False)
    unknown = _unknown(topology, config, reads=bool(reads), writes=bool(writes))
    return Grants(
        needed, _without(_merged(rights, names, optional=True), needed),
        tuple(" ".join(each.split()) for each in unknown),  # a pattern may have several lines
    )  # fmt: skip


def topics_of_rights(topology: Topology, config: Config, plan: Plan) -> dict[Right, list[str]]:
    """Return the rights to topics that a worker needs after its topics are created, each with these topics.

    Args:
        topology: the topology.
        config: the settings, with `application.id`.
        plan: its plan on the cluster, with the topics that match patterns.
    """
    internal = {each.name for each in plan.internal}
    repartition, windows = set(plan.repartition), {each.topic for each in window_changelogs(plan).values()}
    names = {
        **_names(topology, config, set(plan.partitions) - internal, set()),
        Scope.INTERNAL: internal,
        Scope.PURGED: repartition | windows,
        Scope.REPARTITION: repartition,
        Scope.CHANGELOGS: internal - repartition,
    }
    return {
        right: sorted(names[right.scope])
        for right in RIGHTS
        if right.part is Part.WORKER
        and right.scope.resource is Resource.TOPIC
        and right.operation is not Operation.CREATE
        and not right.optional
    }


def _names(topology: Topology, config: Config, reads: set[str], writes: set[str]) -> Mapping[Scope, set[str]]:
    """Return the names of the resources in each scope."""
    id, repartition = config.application_id, topology.repartition_topics.keys()
    inputs, outputs, own, reused, windows = set(reads), set(writes), False, set[str](), False
    for store in topology.global_stores:
        inputs |= set(store.source.topics)
        reused |= set(store.source.topics)
    for part in topology.subtopologies():
        inputs |= part.source_topics - repartition
        outputs |= part.sink_topics - repartition
        for builder in part.stores:
            changelog = part.changelogs.get(builder.name)
            if changelog is None:
                continue
            if changelog in part.source_topics and changelog not in repartition:
                reused.add(changelog)
            elif changelog not in repartition:
                own = True
                windows |= isinstance(builder, WindowStoreBuilder | SessionStoreBuilder)
    dead_letters = config.errors_dead_letter_queue_topic_name
    prefix = {f"{id}-*"}
    internal = prefix if repartition or own else set()
    dead = {dead_letters} if dead_letters else set()
    silent = not (config.exactly_once or internal or outputs or dead)
    return {
        Scope.INPUTS: inputs,
        Scope.STATE_SOURCES: reused,
        Scope.OUTPUTS: outputs,
        Scope.DEAD_LETTERS: dead,
        Scope.INTERNAL: internal,
        Scope.PURGED: prefix if repartition or windows else set(),
        Scope.REPARTITION: prefix if repartition else set(),
        Scope.CHANGELOGS: prefix if own else set(),
        Scope.WINDOW_CHANGELOGS: prefix if windows else set(),
        Scope.GROUP: {id},
        Scope.REUSED_GROUP: {id} if reused else set(),
        Scope.PRESENCE: {presence_group(id)},
        Scope.TRANSACTIONS: prefix if config.exactly_once else set(),
        Scope.SILENT: {""} if silent else set(),
        Scope.CLUSTER: {""},
    }


def _merged(rights: Iterable[Right], names: Mapping[Scope, set[str]], *, optional: bool) -> tuple[Grant, ...]:
    """Return one grant for each resource, with its operations, without those that others include."""
    found: dict[tuple[Resource, str], dict[Operation, list[str]]] = {}
    for right in rights:
        if right.optional is optional:
            for name in sorted(names[right.scope]):
                of_operation = found.setdefault((right.scope.resource, name), {}).setdefault(right.operation, [])
                if right.why not in of_operation:
                    of_operation.append(right.why)
    grants = []
    for (resource, name), operations in found.items():
        if _DESCRIBES & operations.keys():
            operations.pop(Operation.DESCRIBE, None)
        grants.append(
            Grant(
                resource, name.removesuffix("*") or name, len(name) > 1 and name.endswith("*"), tuple(operations),
                tuple("; ".join(why) for why in operations.values()),
            )
        )  # fmt: skip
    return tuple(grants)


def _without(grants: Iterable[Grant], others: Iterable[Grant]) -> tuple[Grant, ...]:
    """Return the grants with operations that others do not have."""
    given = {(each.resource, each.name, operation) for each in others for operation in each.operations}
    return tuple(
        each for each in grants if any((each.resource, each.name, one) not in given for one in each.operations)
    )


def _unknown(topology: Topology, config: Config, *, reads: bool, writes: bool) -> Iterable[str]:
    parts = topology.subtopologies()
    for source in [] if reads else [each for part in parts for each in part.sources if each.pattern is not None]:
        assert source.pattern is not None
        yield (
            f"source '{source.name}' reads the topics that match '{source.pattern.pattern}', as far as the user may "
            "see them: name them by --reads."
        )
    if writes:
        return
    for sink in [each for part in parts for each in part.sinks if not isinstance(each.topic, str)]:
        yield f"a function chooses the topics of sink '{sink.name}': name them by --writes."
    for key, handler in _handlers(config).items():
        if handler not in (fail_on_error, continue_on_error):
            yield f"the handler of '{key}' may choose topics for dead letters: name them by --writes."


def _handlers(config: Config) -> Mapping[str, Callable[..., object]]:
    return {
        "deserialization.exception.handler": config.deserialization_exception_handler,
        "processing.exception.handler": config.processing_exception_handler,
        "production.exception.handler": config.production_exception_handler,
    }
