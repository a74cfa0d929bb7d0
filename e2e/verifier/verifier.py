"""The versions of the verifier, an application with a check of every record; the image sets the version.

- `v1`, `v2`: the same application twice, as after a change that keeps its topology.
- `v3`: a store has another name, so the topology differs.
- `bad`: ends with an error before it starts.
- `hang`: hangs before it starts.
- `failing`: starts, and fails at its first record.

`VERIFIER_ORDERS` names another topic of orders. With `VERIFIER_COST`, each order takes a worker this number of seconds
in each of the two sub-topologies, without CPU. A worker that finds the file `/tmp/leak` removes it and takes memory
until the kernel kills it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import millpond as mp
from tests.chaos import application

VERSION = os.environ.get("VERIFIER_VERSION", "v1")

application.ORDERS = os.environ.get("VERIFIER_ORDERS", application.ORDERS)

if VERSION == "bad":
    raise RuntimeError("this version of the verifier cannot start")
if VERSION == "hang":
    threading.Event().wait()


def _leak_when_told() -> None:
    file = Path("/tmp/leak")  # noqa: S108 - of the container
    while not file.exists():
        time.sleep(0.5)
    file.unlink()  # the directory outlives the container
    taken: list[bytes] = []
    while True:
        taken.append(b"x" * (8 << 20))


threading.Thread(target=_leak_when_told, name="leak", daemon=True).start()


def _costly(seconds: float) -> None:
    """Let each order take a worker so long in each sub-topology; the two stores of the second one share it."""
    journal, tallied = application.Journal, application.tallied

    class Costly(journal):  # type: ignore[misc, valid-type]
        def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
            time.sleep(seconds)
            super().process(record)

    def costly_tallied(*arguments: Any) -> application.Tally:
        time.sleep(seconds / 2)
        return tallied(*arguments)

    application.Journal = Costly  # type: ignore[misc]
    application.tallied = costly_tallied  # type: ignore[assignment]


if COST := float(os.environ.get("VERIFIER_COST", "0")):
    _costly(COST)


class Failing(application.Journal):
    """A processor that fails at every record."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> Any:
        """Raise an error."""
        raise RuntimeError(f"this version of the verifier cannot process {record.key}")


def topology() -> mp.Topology:
    """Return the topology of this version."""
    if VERSION == "v3":
        application.JOURNAL = "ledger"
    if VERSION == "failing":
        application.Journal = Failing  # type: ignore[misc]
    return application.topology()
