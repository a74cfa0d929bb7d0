"""Start the operator: `python -m millpond_operator`."""

from __future__ import annotations

import logging
import resource
import sys

import click

from millpond.errors import ConfigError, MillpondError
from millpond.json_logs import log_as_json, logs_json
from millpond_operator.controllers.process import event_loop
from millpond_operator.controllers.process.operator import operate
from millpond_operator.controllers.settings import Settings, settings_options

from .kubernetes import LeadershipLost

__all__ = ("main",)

log = logging.getLogger("millpond_operator")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@settings_options
def command(settings: Settings) -> None:
    """Run the operator: stand by until this replica leads, then reconcile StreamApps and coordinate their workers.

    Each flag is an environment variable too: --resync-interval is MILLPOND_OPERATOR_RESYNC_INTERVAL.
    """
    if settings.log_format == "json":
        log_as_json(settings.log_level.upper())
    else:
        logging.basicConfig(
            level=settings.log_level.upper(),
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # Each worker holds one or two connections; the default soft limit of open files is too low for many workers.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A thread computes large assignments. Switching less often than every 5 ms speeds it up, and heartbeats can wait
    # that long.
    sys.setswitchinterval(0.05)
    event_loop.run(operate(settings))


def main() -> None:
    """Run the operator and end the process: exit code 2 for a wrong configuration, 1 when it cannot continue."""
    try:
        command.main(standalone_mode=False)
    except ConfigError as error:
        _tell(error)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except LeadershipLost as error:
        log.error("%s", error)
        sys.exit(1)
    except (MillpondError, OSError) as error:
        _tell(error)
        sys.exit(1)


def _tell(error: Exception) -> None:
    """Write why the operator ends, in the format of the logs."""
    if logs_json():
        log.critical("%s", error, exc_info=error)
    else:
        click.echo(f"millpond-operator: {error}", err=True)


if __name__ == "__main__":
    main()
