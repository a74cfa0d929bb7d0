"""`millpond dev`: run an application on this machine, with a Kafka broker of its own."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.markup import escape

from millpond.cli.application import attribute_name, load_topology
from millpond.cli.options import configuration_options, load_config, target_argument, verbose_option
from millpond.cli.own_broker import OwnBroker, own_broker
from millpond.cli.reloading import ApplicationFiles
from millpond.cli.session import Session
from millpond.errors import BrokerError, MillpondError
from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import Access, Operation
from millpond.topology import Topology
from millpond.topology.settings.checking import check_startable

from .actions import ACTIONS, KEYS
from .child_processes import ChildReaper

__all__ = ("command", "missing_topics")

log: logging.Logger = logging.getLogger("millpond.cli")

_SEVERAL = "millpond.cli.dev.session_run"
_TIMEOUT_S = 30.0
_SESSION = ("--session", "--app")
_ARGUMENTS = "millpond.cli.dev.arguments"
"""The key of the command's arguments in click's context."""


def _examples() -> str:
    rows = [
        ("status", "Show the workers once."),
        *((f"{each.name} {each.example}", each.summary) for each in ACTIONS.values()),
    ]
    return "".join(f"    millpond dev {verb:<11}{summary}\n" for verb, summary in rows)


_EPILOG = f"""\b
A session with --workers takes commands from other terminals:
{_examples()}and keys in its own: {", ".join(key.hint for key in KEYS.values())}.
A session without --workers takes `status`, `scale 0` and `scale 1`.
"""


class _Dev(click.Command):
    """`millpond dev APP`, or `millpond dev VERB` for a running session: verbs have no colon, applications have one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        given = list(args)
        named, rest = _session_of(args)
        if rest and (rest[0] == "status" or rest[0] in ACTIONS):
            from .verbs import VERBS

            return VERBS[rest[0]].make_context(f"{info_name} {rest[0]}", [*named, *rest[1:]], parent, **extra)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[_ARGUMENTS] = given
        return context


def _session_of(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the option that names a session, if it stands before the verb, and the other arguments."""
    if args and args[0].startswith(tuple(f"{option}=" for option in _SESSION)):
        return args[:1], args[1:]
    return (args[:2], args[2:]) if args and args[0] in _SESSION else ([], args)


@click.command(
    "dev", cls=_Dev, epilog=_EPILOG, short_help="Run an application on this machine, with a Kafka broker of its own."
)
@target_argument
@click.option("-n", "--workers", type=click.IntRange(1), metavar="N", help="Run N worker processes and a coordinator.")
@click.option("--standbys", type=click.IntRange(0), metavar="N", help="Standbys of each task (num.standby.replicas).")
@click.option(
    "--partitions", type=click.IntRange(1), default=4, show_default=True, help="Partitions of topics that it creates."
)
@click.option("--port", type=click.IntRange(1, 65535), help="The broker's port. Default: a free one.")
@click.option("--console-port", type=click.IntRange(1, 65535), help="The console's port. Default: a free one.")
@click.option(
    "--coordinator-port", type=click.IntRange(1, 65535), help="The port of --workers' coordinator. Default: a free one."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep topics and state here. Default: delete them.",
)
@click.option(
    "--registry",
    "own_registry",
    is_flag=True,
    help="Start a schema registry for development, too.",
)
@click.option("--registry-port", type=click.IntRange(1, 65535), help="The port of --registry. Default: a free one.")
@click.option(
    "--take-over",
    is_flag=True,
    help="With a broker that is not its own: take over the tasks of other workers, which must not run any more.",
)
@configuration_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    target: str,
    workers: int | None,
    standbys: int | None,
    partitions: int,
    port: int | None,
    console_port: int | None,
    coordinator_port: int | None,
    data_dir: Path | None,
    registry_port: int | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    own_registry: bool,
    take_over: bool,
) -> None:
    """Start a Kafka broker and a worker of the application at MODULE:ATTRIBUTE, until Ctrl-C.

    Missing input, output and dead-letter topics of the application are created. At the end everything is deleted,
    unless --data-dir is given. With --bootstrap-servers, that broker is used and none is started. At least once,
    results are committed every second, unless commit.interval.ms is set.

    Without --workers, one worker runs in this process; `millpond dev scale 0` stops it, and keeps the broker. With
    --workers, workers w0, w1, … are processes that share the tasks; a worker that dies is started again, and other
    workers process its tasks meanwhile.

    With --registry, the application uses a schema registry of the session, and so do `millpond consume` and others.

    The console, a page that shows tasks, moves, rates and lags, is served on this machine only.
    """
    _check_alone(workers, coordinator_port, take_over=take_over)
    session.log_to_stderr()
    early = load_config(file, flags, required=(), imports=False)
    _check_registry(early, registry_port, own_registry=own_registry)
    if not own_registry:
        # A mistake in the application is told before anything is started.
        topology = _load(target, file, flags)
    with contextlib.ExitStack() as stack:
        temporary = None
        if data_dir is None:
            temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-dev-")))
        directory = data_dir or temporary
        assert directory is not None
        if own_registry:
            # The application makes its SchemaRegistry while it is loaded.
            flags["schema.registry.url"] = stack.enter_context(_registry(directory, registry_port))
            topology = _load(target, file, flags)
        reaper = stack.enter_context(ChildReaper(temporary))
        if standbys is not None:
            flags["num.standby.replicas"] = standbys
        config = load_config(file, flags, required=(), imports=False)
        title = config.application_id or attribute_name(target)
        flags.setdefault("application.id", title)
        _import_ahead(
            *(("millpond.cli.run.worker_process", "millpond.cli.dev.console") if workers is None else (_SEVERAL,))
        )
        broker = None
        if not config.bootstrap_servers:
            again = click.get_current_context().meta[_ARGUMENTS]
            broker = stack.enter_context(own_broker(session, directory / "kafka", port, again, data_dir))
            flags["bootstrap.servers"] = broker.servers
            # State belongs to its topics: both are kept, or both are deleted.
            flags["state.dir"] = str(directory / "state")
        if "commit.interval.ms" not in config.origins and not config.exactly_once:
            # The default of 30 s is for throughput; a developer wants to see results.
            flags["commit.interval.ms"] = 1_000
        config = load_config(file, flags)
        _tell_where_json_is(config, several=workers is not None)
        _create_topics(topology, config, partitions)
        session.err.print(f"[bold]broker {config.bootstrap_servers}[/]   Ctrl-C stops")
        if workers is None:
            # An earlier session may have had more workers; with a broker of its own, none of them runs now.
            load = functools.partial(_load_again, ApplicationFiles(Path.cwd()), target, file, flags, partitions)
            _run_one((topology, config), load, session, title, target, console_port or 0, broker, take_over=take_over)
        else:
            from .session_run import run_fleet
            from .worker import Launch

            launch = Launch(target, config, flags, file, (directory / "workers").absolute(), session.verbose)
            workers = run_fleet(
                launch, workers, session, title, reaper, console_port or 0, coordinator_port or 0, broker
            )
    if broker is not None:
        session.err.print(escape(_how_to_go_on(target, data_dir, workers or 1)), soft_wrap=True)


def _load(target: str, file: Path | None, flags: dict[str, object]) -> Topology:
    # The application comes first: what is wrong with it is told in its own words, not in those of a setting.
    topology = load_topology(target, load_config(file, flags, required=(), imports=False).topology_optimization)
    check_startable(topology, load_config(file, flags, required=()))
    return topology


def _check_alone(workers: int | None, coordinator_port: int | None, *, take_over: bool) -> None:
    """Check the options that need a coordinator, or exclude one.

    Raises:
        click.UsageError: options exclude each other, or one is missing.
    """
    if take_over and workers is not None:
        raise click.UsageError(
            "--take-over and --workers exclude each other, since the coordinator of the workers decides which tasks "
            "are taken over: leave out one of them."
        )
    if coordinator_port is not None and workers is None:
        raise click.UsageError("--coordinator-port is the port of the coordinator of --workers: give that, too.")


def _load_again(
    files: ApplicationFiles, target: str, file: Path | None, flags: dict[str, object], partitions: int
) -> tuple[Topology, Config]:
    """Load the application and its configuration as their files are now, and create missing topics."""
    for path in files.forget():
        log.warning("%s was changed, and is not loaded again, since it is not in this directory: end the session, and "
                    "start it again, to use it", path)  # fmt: skip
    topology = _load(target, file, flags)
    config = load_config(file, flags)
    _create_topics(topology, config, partitions)
    return topology, config


def _tell_where_json_is(config: Config, *, several: bool) -> None:
    if config.log_format == "json":
        where = "the workers' log files have JSON" if several else "`millpond run` writes JSON"
        log.info("log.format is json: `millpond dev` shows text here, and %s", where)


def _check_registry(config: Config, port: int | None, *, own_registry: bool) -> None:
    """Check the options of the session's registry.

    Raises:
        click.UsageError: options exclude each other, or one is missing.
    """
    if not own_registry and port is not None:
        raise click.UsageError("--registry-port is the port of --registry: give that, too.")
    if own_registry and config.schema_registry_url:
        raise click.UsageError(
            f"--registry starts a schema registry, but another one is configured "
            f"({config.origins['schema.registry.url']}): leave out one of them."
        )


def _run_one(  # noqa: PLR0913 - the parts of a session
    first: tuple[Topology, Config],
    load_again: Callable[[], tuple[Topology, Config]],
    session: Session,
    title: str,
    target: str,
    console_port: int,
    broker: OwnBroker | None,
    *,
    take_over: bool,
) -> None:
    """Run one worker in this process; `load_again` loads the application for each start after the first one."""
    from millpond.cli.run.worker_process import run_worker

    from .console import worker_console
    from .single import run_switched

    loaded: tuple[Topology, Config] | None = first
    with worker_console(first[1], title, console_port, target) as console:
        log.info("console: %s", console.url)
        servers = first[1].bootstrap_servers
        where = f"broker {servers}   console {console.url}   pid {os.getpid()}"

        def run() -> bool:
            nonlocal loaded
            try:
                topology, config = loaded or load_again()
            except MillpondError as error:
                session.err.print(f"millpond: {error}", style="bold red", markup=False, soft_wrap=True)
                console.switch.park()
                return False
            loaded = None
            return run_worker(
                topology, config, session, title=title, footer=where, take_over=broker is not None or take_over,
                on_created=console.attach,
            )  # fmt: skip

        def parked() -> None:
            console.detach()
            session.err.print(
                f"The worker has stopped, and the broker {servers} keeps running: `millpond dev "
                "scale 1` starts the worker again, Ctrl-C ends the session.",
                soft_wrap=True,
            )

        with contextlib.nullcontext() if broker is None else broker.watched(console.switch.end):
            run_switched(run, console.switch, parked)


def _how_to_go_on(target: str, data_dir: Path | None, workers: int) -> str:
    """Return the last line of a session with a broker of its own."""
    if data_dir is None:
        return "Topics and state of this session are deleted. --data-dir DIR keeps them for the next one."
    return (
        f"Topics and state are kept in {data_dir}: the same command continues with them. To process the inputs again, "
        f"start it, and run `millpond dev scale 0`, `millpond reset {target}` and `millpond dev scale {workers}` in "
        "another terminal."
    )


@contextlib.contextmanager
def _registry(directory: Path, port: int | None) -> Iterator[str]:
    from millpond.broker.registry import Schemas, serving_registry

    # Records cannot be decoded without their schemas: both are kept, or both are deleted.
    with serving_registry(Schemas(directory / "schemas.jsonl"), port or 0) as url:
        log.info("schema registry: %s, for development: it accepts any schema; for programs of your own, "
                 "export SCHEMA_REGISTRY_URL=%s", url, url)  # fmt: skip
        yield url


def _import_ahead(*names: str) -> None:
    """Import modules in a thread, so that they are there when the broker is. Errors come with the import itself."""

    def run() -> None:
        with contextlib.suppress(Exception):
            for name in names:
                importlib.import_module(name)

    threading.Thread(target=run, name="imports", daemon=True).start()


def missing_topics(
    topology: Topology, existing: Mapping[str, int], partitions: int, dead_letter_topic: str | None = None
) -> dict[str, int]:
    """Return the missing topics of the application, with the number of partitions to create.

    Topics that must have the same number of partitions get that of the existing ones. The dead-letter topic gets one:
    it has few records, and a person reads them in the order in which they failed.
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
    if dead_letter_topic is not None:
        wanted.setdefault(dead_letter_topic, 1)
    return {topic: count for topic, count in sorted(wanted.items()) if topic not in existing}


def _create_topics(topology: Topology, config: Config, partitions: int) -> None:
    admin = AdminClient(dict(config.admin_settings()), logger=log)
    missing: Mapping[str, int] = {}
    try:
        existing = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=_TIMEOUT_S).topics.items()}
        missing = missing_topics(topology, existing, partitions, config.errors_dead_letter_queue_topic_name)
        new = [NewTopic(topic, count, config.replication_factor) for topic, count in missing.items()]
        for topic, created in admin.create_topics(new).items() if new else ():
            created.result(_TIMEOUT_S)
            count = missing[topic]
            log.info("created topic %s with %d partition%s", topic, count, "" if count == 1 else "s")
    except KafkaException as error:
        why = Access.of(config.admin_settings()).explained(error.args[0], missing, Operation.CREATE)
        raise BrokerError(f"the application's topics cannot be created: {why}") from error
