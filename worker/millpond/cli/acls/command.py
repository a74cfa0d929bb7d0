"""`millpond acls`: the rights that an application needs in Kafka, as rules to add."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from millpond.cli.application import load_topology
from millpond.cli.options import load_config, settings_options, verbose_option
from millpond.errors import ConfigError
from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import user_of
from millpond.topology.settings.checking import check_configured

from .formats import as_json, kafka_acls, kafka_user
from .grants import Grants, grants_of
from .page import markdown
from .table import Part

__all__ = ("command",)

_PRINCIPAL = re.compile(r"\w+:\S(.*\S)?")


@click.command("acls", short_help="Print the rights that an application needs in Kafka.")
@click.argument("target", metavar="MODULE:ATTRIBUTE", required=False)
@click.option("--principal", metavar="TYPE:NAME", help="The user, as User:alice. Default: that of 'sasl.username'.")
@click.option(
    "--for", "parts", multiple=True, type=click.Choice([each.value for each in Part]),
    help="The part of millpond that needs the rights; may be repeated. Default: worker.",
)  # fmt: skip
@click.option(
    "--reads", metavar="TOPIC", multiple=True, help="A further input; TOPIC* for all that begin so, * for all."
)
@click.option(
    "--writes", metavar="TOPIC", multiple=True, help="A further output; TOPIC* for all that begin so, * for all."
)
@click.option(
    "-o", "--output", type=click.Choice(["kafka-acls", "strimzi", "json"]), default="kafka-acls", show_default=True,
    help="Lines of kafka-acls.sh, a KafkaUser of Strimzi, or JSON for programs.",
)  # fmt: skip
@click.option("--cluster", metavar="NAME", help="With --output strimzi: the Kafka cluster of the KafkaUser.")
@click.option("-n", "--namespace", metavar="NAME", help="With --output strimzi: the namespace of the KafkaUser.")
@click.option("--application-id", metavar="NAME", help="The consumer group and the prefix of internal topics.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the page docs/rights.md.")
@settings_options
@verbose_option
def command(  # noqa: PLR0913 - one parameter per option
    target: str | None,
    principal: str | None,
    parts: tuple[str, ...],
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    output: str,
    cluster: str | None,
    namespace: str | None,
    application_id: str | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    as_markdown: bool,
) -> None:
    """Print the rights that the application at MODULE:ATTRIBUTE needs in Kafka, and no others, as rules to add.

    The settings are those of `millpond run`, from the same sources. No broker is asked.

    \b
    millpond acls app:build --principal User:alice
    millpond acls app:build --principal User:alice --output strimzi --cluster my-cluster
    millpond acls app:build --principal User:carol --for reset --for topics
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    if target is None:
        raise click.UsageError("the application is missing: write MODULE:ATTRIBUTE, as in 'app:build'.")
    if output == "strimzi" and cluster is None:
        raise click.UsageError("a KafkaUser names its Kafka cluster: add --cluster NAME.")
    if output != "strimzi" and (cluster is not None or namespace is not None):
        raise click.UsageError("--cluster and --namespace are for --output strimzi: leave them out, or add it.")
    if application_id is not None:
        flags["application.id"] = application_id
    early = load_config(file, flags, required=(), beside_session=True, imports=False)
    topology = load_topology(target, early.topology_optimization)
    config = load_config(file, flags, required=("application.id",), beside_session=True)
    check_configured(topology, config)
    grants = grants_of(topology, config, [Part(each) for each in parts or ("worker",)], reads, writes)
    for line in _lines(grants, _principal(principal, config), output, cluster, namespace, config.bootstrap_servers):
        click.echo(line)


def _lines(  # noqa: PLR0913 - the options of the command
    grants: Grants, principal: str, output: str, cluster: str | None, namespace: str | None, bootstrap_servers: str
) -> Iterator[str]:
    if output == "strimzi":
        assert cluster is not None
        yield from kafka_user(grants, principal, cluster, namespace)
    elif output == "json":
        yield as_json(grants, principal)
    else:
        yield from kafka_acls(grants, principal, bootstrap_servers)


def _principal(given: str | None, config: Config) -> str:
    """Return the principal of the rules.

    Raises:
        ConfigError: it is given in a wrong form, or the settings have none.
    """
    if given is None:
        user = user_of(config.producer_settings())
        if not user.startswith("User:") or user == "User:ANONYMOUS":
            raise ConfigError(
                "the user is not known, since 'sasl.username' is not set: add --principal, as in "
                "--principal User:alice."
            )
        return user
    if not _PRINCIPAL.fullmatch(given):
        raise ConfigError(f"--principal {given!r}: expected TYPE:NAME, as in --principal User:alice.")
    return given
