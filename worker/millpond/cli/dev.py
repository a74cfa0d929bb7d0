"""`millpond dev`: an application with a broker of its own, on one machine, with one command."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millpond.cli.application import attribute_name, load_topology
from millpond.cli.options import configuration_options, load_config, target_argument, verbose_option
from millpond.cli.session import Session
from millpond.errors import BrokerError
from millpond.runtime.config import Config
from millpond.topology import Topology

__all__ = ("command", "missing_topics")

log = logging.getLogger("millpond.cli")

_TIMEOUT_S = 30.0


@click.command("dev", short_help="Run an application on a broker of its own, on this machine.")
@target_argument
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True, help="Of topics it has to create.")
@click.option("--port", type=click.IntRange(1, 65535), help="The broker's port. Default: a free one.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep topics and state here; else they go."
)
@configuration_options
@verbose_option
@click.pass_obj
def command(
    session: Session,
    target: str,
    partitions: int,
    port: int | None,
    data_dir: Path | None,
    file: Path | None,
    flags: dict[str, object],
) -> None:
    """Start a Kafka broker and a worker of the application at MODULE:ATTRIBUTE, until Ctrl-C.

    Topics that the application reads or writes and that do not exist are created. Everything is gone afterwards,
    unless --data-dir says where to keep it. With --bootstrap-servers that broker is used and none is started.
    At least once, results are committed every second here unless commit.interval.ms says otherwise.
    """
    from millpond.cli.running import run_worker

    session.log_to_stderr()
    topology = load_topology(target)
    title = attribute_name(target)
    with contextlib.ExitStack() as stack:
        directory = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-dev-")))
        config = load_config(file, flags, required=())
        flags.setdefault("application.id", config.application_id or title)
        if not config.bootstrap_servers:
            flags["bootstrap.servers"] = stack.enter_context(_broker(session, directory / "kafka", port))
            # State belongs to the topics it was made from: it lives and goes with them.
            flags["state.dir"] = str(directory / "state")
        if "commit.interval.ms" not in config.origins and not config.exactly_once:
            # Whoever tries something out wants to see it: the default of 30 s is for throughput.
            flags["commit.interval.ms"] = 1_000
        config = load_config(file, flags)
        _create_topics(topology, config, partitions)
        where = f"broker {config.bootstrap_servers}"
        session.err.print(f"[bold]{where}[/]   Ctrl-C stops")
        run_worker(topology, config, session, title, more=where)


@contextlib.contextmanager
def _broker(session: Session, directory: Path, port: int | None) -> Iterator[str]:
    from millpond.broker import EmbeddedBroker

    with contextlib.ExitStack() as stack:
        with session.err.status("starting a Kafka broker"):
            broker = stack.enter_context(EmbeddedBroker(directory, port=port or 0))
        yield broker.bootstrap_servers


def missing_topics(topology: Topology, existing: Mapping[str, int], partitions: int) -> dict[str, int]:
    """Topics the application names that do not exist, with the partition count to create them with.

    Topics that must have equal counts get that of those which exist already.
    """
    internal = topology.repartition_topics
    wanted: dict[str, int] = {}
    for part in topology.subtopologies():
        named = {topic for source in part.sources for topic in source.topics}
        named |= {sink.topic for sink in part.sinks if isinstance(sink.topic, str)}
        for topic in named:
            if topic not in internal:
                wanted.setdefault(topic, partitions)
    for table in topology.global_stores:
        for topic in table.source.topics:
            wanted.setdefault(topic, partitions)
    for group in topology.copartition_groups:
        counts = {existing[topic] for topic in group if topic in existing}
        if len(counts) == 1:
            wanted.update(dict.fromkeys(group & wanted.keys(), counts.pop()))
    return {topic: count for topic, count in sorted(wanted.items()) if topic not in existing}


def _create_topics(topology: Topology, config: Config, partitions: int) -> None:
    admin = AdminClient(dict(config.admin_settings()), logger=log)
    try:
        existing = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=_TIMEOUT_S).topics.items()}
        missing = missing_topics(topology, existing, partitions)
        new = [NewTopic(topic, count, config.replication_factor) for topic, count in missing.items()]
        for topic, created in admin.create_topics(new).items() if new else ():
            created.result(_TIMEOUT_S)
            log.info("created topic %s with %d partitions", topic, missing[topic])
    except KafkaException as error:
        raise BrokerError(f"the application's topics cannot be created: {error.args[0].str()}.") from error
