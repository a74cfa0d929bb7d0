"""The demo application on a cluster: its output equals that of a plain loop over the data."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from e2e.cluster import Cluster, eventually
from e2e.commands import ROOT
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.streamapp import StreamApp
from examples.flights.stage import data, player, topics, truth
from examples.flights.stage.session import APPLICATION_ID
from examples.flights.stage.watch import Lags, Results

_MANIFEST = ROOT / "examples" / "flights" / "streamapp.yaml"
_OUTPUT = "delays-by-airport"
_DAYS = 60
_SECONDS = 10.0


def test_demo_output_equals_a_plain_loop(
    cluster: Cluster, kafka: Kafka, images: Images, operator: Installation
) -> None:
    """Two months of flights are sent to a running application: the output is identical, with every hour once."""
    topics.create_topics(kafka.address)
    player.play_tables(kafka.address)
    manifest = _manifest(cluster, kafka, images)
    app = StreamApp(cluster, kafka.namespace, manifest["metadata"]["name"])
    app.apply(manifest["spec"])
    app.settled(manifest["spec"]["replicas"], 180)
    rows = data.year(_DAYS)
    flights = player.Player(kafka.address, rows, _SECONDS)
    with (
        contextlib.closing(Lags(kafka.address)) as lags,
        contextlib.closing(Results(kafka.address, _OUTPUT, topics.TOPICS[_OUTPUT])) as results,
    ):
        flights.start()

        def all_through() -> bool:
            results.poll(0.1)
            lags.update()
            return flights.played == flights.total and lags.drained(flights.total)

        eventually(all_through, "all flights are committed", 120)
        assert flights.error is None
        app.kubectl("delete", "sapp", app.name, "--wait=false")
        results.read_to_end()
        found = truth.compare(truth.compute(rows, data.airlines(), data.planes()), results.records)
    assert found.equal, found
    assert found.total.hours_read > 1_000
    eventually(lambda: not app.exists() and not app.pods(), "the demo is gone", 120)


def _manifest(cluster: Cluster, kafka: Kafka, images: Images) -> dict[str, Any]:
    """The demo's manifest, as a user would edit it: their image, their broker."""
    manifest: dict[str, Any] = json.loads(
        cluster.kubectl("create", "-f", str(_MANIFEST), "--dry-run=client", "--output=json", f"-n={kafka.namespace}")
    )
    assert manifest["spec"]["applicationId"] == APPLICATION_ID
    manifest["spec"] |= {"image": images.flights, "imagePullPolicy": "IfNotPresent"}
    manifest["spec"]["kafka"] = {"bootstrapServers": kafka.inside}
    return manifest
