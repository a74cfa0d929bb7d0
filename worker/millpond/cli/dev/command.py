"""`millpond dev`: an application with a broker of its own, on one machine, with one command."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millpond.cli.application import attribute_name, load_topology
from millpond.cli.options import configuration_options, load_config, target_argument, verbose_option
from millpond.cli.session import Session
from millpond.errors import BrokerError
from millpond.runtime.config.model import Config
from millpond.topology import Topology

from .children import Leash

__all__ = ("command", "missing_topics")

log: logging.Logger = logging.getLogger("millpond.cli")

_TIMEOUT_S = 30.0
_SESSION_COMMANDS = ("status", "scale", "kill", "drain", "pause", "resume")


_EPILOG = """\b
A session with --workers takes commands from other terminals:
    millpond dev status            the table, once
    millpond dev scale 5           have five workers
    millpond dev kill w1           end a worker by SIGKILL; it comes back
    millpond dev drain w2          move its tasks to others, then stop it
    millpond dev pause w0          SIGSTOP; `millpond dev resume w0` is SIGCONT
and keys in its own: + and - for a worker more or less, k or d and a digit to kill or drain one.
"""


class _Dev(click.Command):
    """`millpond dev APP`, and commands for a session that runs: no application is named as those are, without a colon."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in _SESSION_COMMANDS:
            from .commands import COMMANDS

            return COMMANDS[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    "dev", cls=_Dev, epilog=_EPILOG, short_help="Run an application on a broker of its own, on this machine."
)
@target_argument
@click.option(
    "-n", "--workers", type=click.IntRange(1), metavar="N", help="Run N workers, each a process, and a coordinator."
)
@click.option("--standbys", type=click.IntRange(0), metavar="N", help="Copies of each task (num.standby.replicas).")
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
    workers: int | None,
    standbys: int | None,
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

    Without --workers the one worker runs in this process. With it, workers w0, w1, … are processes that share the tasks;
    one that dies is started again, and others go on with its tasks meanwhile.
    """
    session.log_to_stderr()
    topology = load_topology(target)
    title = attribute_name(target)
    with contextlib.ExitStack() as stack:
        temporary = None
        if data_dir is None:
            temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-dev-")))
        directory = data_dir or temporary
        assert directory is not None
        leash = stack.enter_context(Leash(temporary))
        if standbys is not None:
            flags["num.standby.replicas"] = standbys
        config = load_config(file, flags, required=())
        flags.setdefault("application.id", config.application_id or title)
        own_broker = not config.bootstrap_servers
        if own_broker:
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
        if workers is None:
            from millpond.cli.worker_process import run_worker

            # A session before this one may have had more workers; on a broker of its own none of them runs any more.
            run_worker(topology, config, session, title, more=where, take_over=own_broker)
        else:
            from .session_run import run_fleet
            from .worker import Launch

            launch = Launch(target, config, flags, file, (directory / "workers").absolute(), session.verbose)
            run_fleet(launch, workers, session, title, leash)


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
