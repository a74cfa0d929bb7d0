"""`python -m millpond_operator`: the operator."""

from __future__ import annotations

import logging
import resource
import sys

import click

from millpond.errors import ConfigError, MillpondError
from millpond_operator.controllers.process.operator import operate
from millpond_operator.controllers.settings import Settings, settings_options

from . import ending
from .kubernetes import LeadershipLost

__all__ = ("main",)

log = logging.getLogger("millpond_operator")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@settings_options
def command(settings: Settings) -> None:
    """Run StreamApps: stand by until this replica leads, then reconcile them and coordinate their workers.

    Each flag is an environment variable too: --resync-interval is MILLPOND_OPERATOR_RESYNC_INTERVAL.
    """
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # A worker holds a connection or two, and the kernel grants more than is usual.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A big assignment is made in a thread; heartbeats can bear to wait for it for longer than the usual 5 ms.
    sys.setswitchinterval(0.05)
    ending.run(operate(settings))


def main() -> None:
    """Run the operator and end the process: status 2 when it is set up wrongly, 1 when it cannot go on."""
    try:
        command.main(standalone_mode=False)
    except ConfigError as error:
        click.echo(f"millpond-operator: {error}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except LeadershipLost as error:
        log.error("%s", error)
        sys.exit(1)
    except (MillpondError, OSError) as error:
        click.echo(f"millpond-operator: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
