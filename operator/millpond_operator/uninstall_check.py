"""Refuse to uninstall the operator while StreamApps need it: `python -m millpond_operator.uninstall_check`.

The chart runs this before `helm uninstall` deletes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from millpond.errors import MillpondError
from millpond_operator.kubernetes import Client, Connection, NotFound, Object, kinds
from millpond_operator.kubernetes.errors import Expired
from millpond_operator.resources.names import FINALIZER

__all__ = ("main", "reason_to_refuse")

_SHOWN = 20
_NEEDED = frozenset({"namespace", "name", "finalizers"})
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def reason_to_refuse(apps: Iterable[Object], *, definitions_go_too: bool = False) -> str:
    """Return why the operator must stay, with the names of the StreamApps and the cure; "" if it may go.

    Args:
        apps: all StreamApps that the operator serves.
        definitions_go_too: whether the custom resource definitions are deleted with the operator.
    """
    found = sorted(
        f"{app['metadata']['namespace']}/{app['metadata']['name']}"
        for app in apps
        if definitions_go_too or FINALIZER in (app["metadata"].get("finalizers") or ())
    )
    if not found:
        return ""
    names = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    if definitions_go_too:
        return (
            f"Deleting the custom resource definitions would delete these StreamApps, with their workers and volumes: "
            f"{names}. Set crds.keep to true with `helm upgrade`, or delete the StreamApps first."
        )
    return (
        f"Only the operator can delete these StreamApps, since it deletes their topics in Kafka first: {names}. "
        "Delete them first with `kubectl delete sapp`, or set spec.deletion.kafka to Retain in each of them."
    )


async def _listed(connection: Connection, namespaces: Sequence[str]) -> list[Object]:
    found: list[Object] = []
    async with Client(connection) as client:
        for namespace in namespaces or (None,):
            with contextlib.suppress(NotFound):  # the definition is deleted, and all StreamApps with it
                found += await _metadata(client, namespace)
    return found


async def _metadata(client: Client, namespace: str | None) -> list[Object]:
    """Return all StreamApps without their specifications and statuses: thousands of them need not fit into memory."""
    while True:
        with contextlib.suppress(Expired):
            return [
                {"metadata": {name: value for name, value in _decode(item)["metadata"].items() if name in _NEEDED}}
                async for page in client.pages(kinds.STREAM_APP, namespace)
                for item in page.items
            ]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--namespace", "namespaces", multiple=True, help="A namespace that the operator serves; all by default.")
@click.option(
    "--definitions-go-too", is_flag=True, help="The definitions are deleted too, and with them all StreamApps."
)
@click.option("--kubeconfig", help="Kubeconfig file; by default $KUBECONFIG, or the pod's service account.")
def _command(namespaces: tuple[str, ...], definitions_go_too: bool, kubeconfig: str | None) -> None:  # noqa: FBT001 - a flag
    """Exit with 1 while StreamApps need the operator, and name them."""
    apps = asyncio.run(_listed(Connection.find(kubeconfig), namespaces))
    if reason := reason_to_refuse(apps, definitions_go_too=definitions_go_too):
        click.echo(f"The operator is not uninstalled. {reason}", err=True)
        sys.exit(1)
    click.echo("No StreamApp needs the operator.")


def main() -> None:
    """Run the check and end the process: exit code 1 to refuse, 2 if the StreamApps cannot be read."""
    try:
        _command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (MillpondError, OSError) as error:
        click.echo(f"The operator is not uninstalled, because its StreamApps cannot be read: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
