"""`millpond topics`: the topics of a cluster, or the partitions of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

import click
import msgspec
from rich.text import Text

from millpond.cli.cluster.printable import printable
from millpond.cli.options import key_and_value, verbose_option
from millpond.cli.session import Session
from millpond.cli.status.view import grid
from millpond.errors import BrokerError, TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.missing_rights import Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.topology import is_repartition_topic

from .broker import Place, broker_options
from .reading import admin_of, counted, partitions_of, quiet
from .topic_deletion import delete_topic, readers_of, reject_internal

__all__ = ("application_of", "command", "retention")

_NARROW = 110
"""Width of a terminal below which names have the place of their application and kind, which they contain."""

_KINDS = {True: "repartition", False: "changelog"}


class TopicRow(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One topic, for the table and for programs."""

    topic: str
    partitions: int
    records: int
    """Offsets between first and last record: an upper limit, since compaction and transactions leave gaps."""
    cleanup_policy: str = ""
    retention_ms: int | None = None
    """None if records are kept for ever, or if the configuration may not be read."""
    internal: str = ""
    """`changelog` or `repartition`; empty for other topics."""
    application: str = ""
    """The application of an internal topic; empty if it is not known."""


@click.command("topics", short_help="Show topics, or the partitions of one.")
@click.argument("topic", required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="Show Kafka's own topics, too.")
@click.option("--create", "partitions", type=click.IntRange(1), metavar="PARTITIONS",
              help="Create TOPIC with so many partitions, unless it exists with them.")  # fmt: skip
@click.option("--with", "given", metavar="KEY=VALUE", multiple=True,
              help="With --create: a setting of the topic, as cleanup.policy=compact; may be repeated.")  # fmt: skip
@click.option("--delete", "deleting", is_flag=True, help="Delete TOPIC, for development. It asks before.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Show JSON for programs.")
@broker_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    topic: str | None,
    partitions: int | None,
    given: tuple[str, ...],
    find: Callable[[], Place],
    *,
    everything: bool,
    deleting: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the topics of a broker: partitions, records, retention, and the application of internal topics.

    With TOPIC, show its partitions and its configuration. Records are offsets between the first and the last one:
    compaction and transactions leave gaps, so there may be fewer. With --create, create TOPIC, and show nothing else;
    its settings are the broker's defaults but for those given by --with.

    With --delete, delete TOPIC with its records, after a question. Internal topics, and topics that a running
    application reads, are not deleted. Stop the applications that write to it first.

    \b
    millpond topics
    millpond topics orders
    millpond topics orders --create 4
    millpond topics customers --create 4 --with cleanup.policy=compact
    millpond topics orders --delete
    """  # noqa: D301 - click's mark for lines that are not wrapped
    _reject_options(topic, partitions, given, deleting=deleting)
    settings = dict(key_and_value(each, "--with", "cleanup.policy=compact") for each in given)
    quiet(session)
    place = find()
    if not as_json:
        session.err.print(f"broker {place.where}", style="dim", markup=False, highlight=False, soft_wrap=True)
    admin = admin_of(place.config)
    counts = admin.topics()
    if topic is not None and partitions is not None:
        created = topic not in counts
        if created:
            admin.create(topic, partitions, place.config.replication_factor, settings)
        else:
            _reject_difference(topic, partitions, counts[topic], settings, admin.configs([topic]).get(topic, {}))
        _show_created(session, topic, partitions, created=created, as_json=as_json)
        return
    if topic is not None and deleting:
        count = partitions_of(admin, counts, topic, Operation.DELETE)
        _delete(session, admin, topic, count, place.config, yes=yes, as_json=as_json)
        return
    if topic is not None:
        count = partitions_of(admin, counts, topic, Operation.DESCRIBE)
        _show_partitions(session, admin, topic, count, as_json=as_json)
        return
    hasty = admin_of(place.config, patience=timedelta(0))
    rows = _all_rows(hasty, admin, counts, {*admin.groups(), place.application} - {""}, everything=everything)
    if as_json:
        click.echo(msgspec.json.encode({"topics": rows}))
    elif not rows:
        session.out.print("There are no topics.")
    else:
        _show(session, rows)


def _reject_options(topic: str | None, partitions: int | None, given: tuple[str, ...], *, deleting: bool) -> None:
    if partitions is not None and topic is None:
        raise click.UsageError("--create needs the name of the topic: millpond topics NAME --create PARTITIONS.")
    if deleting and (topic is None or partitions is not None):
        raise click.UsageError("--delete needs the name of the topic, and no --create: millpond topics NAME --delete.")
    if given and partitions is None:
        raise click.UsageError("--with is for new topics: millpond topics NAME --create PARTITIONS --with KEY=VALUE.")


def _all_rows(
    hasty: KafkaAdmin, admin: KafkaAdmin, counts: Mapping[str, int], applications: Collection[str], *, everything: bool
) -> list[TopicRow]:
    """Return the rows of all topics that still exist, with Kafka's own ones or without.

    The client `hasty` waits for no topic that brokers do not know: topics that were deleted meanwhile are left out.
    """

    def listed(found: Mapping[str, int]) -> dict[str, int]:
        return {each: found[each] for each in sorted(found) if everything or not each.startswith("__")}

    while True:
        try:
            return _rows(hasty, listed(counts), applications)
        except BrokerError:
            left = admin.topics()
            if counts.keys() <= left.keys():
                return _rows(admin, listed(counts), applications)  # their broker may be down for a moment
            counts = {each: left[each] for each in counts if each in left}


def _reject_difference(
    topic: str, partitions: int, existing: int, settings: Mapping[str, str], configured: Mapping[str, str]
) -> None:
    """Reject a topic that exists with other partitions or settings.

    Args:
        topic: its name.
        partitions: the number of partitions that it should have.
        existing: the number that it has.
        settings: the settings that it should have.
        configured: those that it has; empty if they may not be read.

    Raises:
        TopicError: it has another number of partitions, or another value of a setting.
    """
    if existing != partitions:
        raise TopicError(
            f"topic '{topic}' exists with {_counted(existing)}, not {partitions}: give --create {existing}, or choose "
            "another name. The partitions of a topic with keyed records must not change."
        )
    for key, value in settings.items():
        if configured and configured.get(key) != value:
            has = f"{key}={configured[key]}" if key in configured else f"no setting {key}"
            raise TopicError(
                f"topic '{topic}' exists with {has}, not {key}={value}: change it with Kafka's kafka-configs.sh, or "
                "choose another name."
            )


def _show_created(session: Session, topic: str, partitions: int, *, created: bool, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, "partitions": partitions, "created": created}))
        return
    what = "created topic" if created else "there is already a topic"
    session.out.print(f"{what} {printable(topic)} with {_counted(partitions)}", markup=False, highlight=False)


def _delete(  # noqa: PLR0913 - the topic, and the options
    session: Session, admin: KafkaAdmin, topic: str, count: int, config: Config, *, yes: bool, as_json: bool
) -> None:
    """Delete a topic after a question, unless it is internal, or a running application reads it."""
    reject_internal(topic, application_of(topic, ())[0])
    readers = readers_of(config, topic, lambda line: session.err.print(line, markup=False, soft_wrap=True))
    ranges = admin.ranges([Partition(topic, each) for each in range(count)])
    records = sum(end - first for first, end in ranges.values())
    if not yes:
        what = f"{_counted(count)} and {counted(records)}"
        click.confirm(f"Delete topic {printable(topic)} with {what}?", abort=True, err=True)
        readers = readers_of(config, topic, lambda _line: None)  # one may have been started meanwhile
    delete_topic(config, topic)
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, "deleted": True, "readers": readers}))
        return
    session.out.print(f"deleted topic {printable(topic)}", markup=False, highlight=False)
    if readers:
        session.out.print(
            f"It was read by {printable(', '.join(readers))}: reset these before they read a new topic of this name.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def _rows(admin: KafkaAdmin, counts: Mapping[str, int], applications: Collection[str]) -> list[TopicRow]:
    ranges = admin.ranges([Partition(topic, each) for topic, count in counts.items() for each in range(count)])
    configs = admin.configs(counts) if counts else {}
    sizes = dict.fromkeys(counts, 0)
    for place, (first, end) in ranges.items():
        sizes[place.topic] += end - first
    rows = []
    for topic, count in counts.items():
        config = configs.get(topic, {})
        policy = config.get("cleanup.policy", "")
        kept_ms = int(config.get("retention.ms", "-1")) if "delete" in policy else -1
        kind, application = application_of(topic, applications)
        row = TopicRow(topic, count, sizes[topic], policy, None if kept_ms < 0 else kept_ms, kind, application)
        rows.append(row)
    return rows


def application_of(topic: str, applications: Collection[str]) -> tuple[str, str]:
    """Return the kind of an internal topic and its application; empty texts for other topics, and if it is unknown.

    Args:
        topic: the topic.
        applications: the known `application.id`s. Of several that fit, the longest one is the topic's.
    """
    repartition = is_repartition_topic(topic)
    if not repartition and not topic.endswith("-changelog"):
        return "", ""
    fitting = [each for each in applications if topic.startswith(f"{each}-")]
    return _KINDS[repartition], max(fitting, key=len, default="")


def retention(row: TopicRow) -> str:
    """Return how long a topic keeps its records, for people."""
    if not row.cleanup_policy:
        return "unknown"
    parts = []
    if "compact" in row.cleanup_policy:
        parts.append("newest of each key")
    if "delete" in row.cleanup_policy:
        parts.append("for ever" if row.retention_ms is None else _span(row.retention_ms))
    return ", ".join(parts)


def _show(session: Session, rows: Collection[TopicRow]) -> None:
    columns = ["topic+", "partitions>", "records>", "kept", "internal"]
    table = grid(*(columns if session.out.width >= _NARROW else columns[:-1]))
    for row in rows:
        of = f"{row.internal} of {row.application}" if row.application else row.internal
        name = Text(printable(row.topic), style="dim" if row.internal else "bold")
        cells = name, f"{row.partitions:,}", f"{row.records:,}", retention(row), Text(printable(of), style="dim")
        table.add_row(*cells[: len(table.columns)])
    session.out.print(table)


def _show_partitions(session: Session, admin: KafkaAdmin, topic: str, count: int, *, as_json: bool) -> None:
    ranges = admin.ranges([Partition(topic, each) for each in range(count)])
    config = admin.configs([topic]).get(topic, {})
    rows: list[dict[str, Any]] = [
        {"partition": each.partition, "first": first, "end": end, "records": end - first}
        for each, (first, end) in sorted(ranges.items())
    ]
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, "partitions": rows, "config": config}))
        return
    table = grid("partition>", "first offset>", "end offset>", "records>")
    for row in rows:
        table.add_row(*(f"{each:,}" for each in row.values()))
    session.out.print(table)


def _span(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms:,} ms"
