"""Test an installation on Kubernetes from a pod in it: `python -m millpond.canary`. `helm test` runs this.

Without brokers it only looks at the operator and the API server, and needs no more than the operator's image has.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import click

from millpond.durations import Duration
from millpond.errors import MillpondError

from .cluster import PodCluster
from .run import Canary, check_installation, deadline_in

__all__ = ("main",)

_RESERVE = timedelta(seconds=20)
"""The part of the timeout for deleting what was created: the pod is killed at its end."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--operator-url", required=True, help="Base URL of the operator's HTTP port.")
@click.option("--timeout", default="5m", help="How long the test may take.", show_default=True)
@click.option("--bootstrap-servers", default="", help="Kafka brokers; without them no application is run.")
@click.option("--name", default="millpond-test", help="Name of the StreamApp.", show_default=True)
@click.option("--image", default="", help="Image of its workers.")
@click.option("--image-pull-policy", default="IfNotPresent", help="When workers' images are pulled.", show_default=True)
@click.option("--image-pull-secret", "image_pull_secrets", multiple=True, help="Secret for the registry.")
@click.option("--credentials-secret", default="", help="Secret with client properties, for the workers.")
@click.option("--credentials-dir", help="Directory in which the same Secret is mounted here.")
@click.option("--replication-factor", default=-1, help="Of the topics; -1 for the brokers' default.")
def _command(  # noqa: PLR0913 - the flags of the command
    operator_url: str,
    timeout: str,
    bootstrap_servers: str,
    name: str,
    image: str,
    image_pull_policy: str,
    image_pull_secrets: tuple[str, ...],
    credentials_secret: str,
    credentials_dir: str | None,
    replication_factor: int,
) -> None:
    """Test an installation of millpond from a pod in its cluster."""
    whole = Duration.parse(timeout)
    deadline = deadline_in(max(whole - _RESERVE, whole / 2))
    cluster = PodCluster(operator_url)
    check_installation(cluster, deadline, click.echo)
    if not bootstrap_servers:
        click.echo("No application was run: set test.bootstrapServers to the address of Kafka brokers for that.")
        return
    from millpond.runtime.config.model import Config

    flags: dict[str, object] = {"bootstrap.servers": bootstrap_servers, "application.id": name}
    if credentials_dir is not None:
        flags["credentials.dir"] = Path(credentials_dir)
    Canary(
        cluster=cluster,
        name=name,
        image=image,
        bootstrap_servers=bootstrap_servers,
        config=Config.load(environ={}, flags=flags),
        deadline=deadline,
        say=click.echo,
        image_pull_policy=image_pull_policy,
        image_pull_secrets=image_pull_secrets,
        credentials_secret=credentials_secret,
        replication_factor=replication_factor,
    ).run()
    click.echo("The installation works.")


def main() -> None:
    """Run the test and end the process: exit code 1 if the installation does not work."""
    try:
        _command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (MillpondError, ValueError, OSError) as error:
        click.echo(f"The installation does not work: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
