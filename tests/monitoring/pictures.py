"""Draw the pictures of the dashboards for the documentation: `make dashboard-pictures`.

A story of three minutes on the system of `tests.monitoring.live`: load, a killed worker, a burst, bad and late records,
a third worker, a rollout of a StreamApp.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from millpond.broker import EmbeddedBroker
from monitoring.render import Renderer, screenshot
from tests.monitoring import live
from tests.operating.scene import BASE, merged
from tests.support.broker import Broker
from tests.support.programs import prometheus

_PICTURES = live.ROOT / "docs/dashboards"


def main() -> None:
    """Run the story and draw all dashboards."""
    tools = prometheus.install()
    with tempfile.TemporaryDirectory(prefix="millpond-pictures-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "broker") as broker, live.running(
            Broker(broker.bootstrap_servers), tools, directory, "orders"
        ) as system:  # fmt: skip
            began = time.time()
            _story(system)
            _draw(system, began)


def _story(system: live.System) -> None:
    scene = system.scene
    system.work(30, good=400, late=0, bad=0)
    scene.apply("billing", merged(BASE, {"replicas": 2}))
    system.session.do("kill", "w1")
    system.work(35, good=400, late=2, bad=0)
    system.feed.send(120_000, late=0, bad=0)
    system.work(20, good=400, late=4, bad=2)
    system.session.do("scale", "3")
    scene.apply("billing", merged(BASE, {"replicas": 3, "image": "delays:2"}))
    system.work(45, good=600, late=1, bad=1)
    system.work(25, good=400, late=0, bad=0)


def _draw(system: live.System, began: float) -> None:
    note = (
        f"drawn by monitoring/render.py from a run of {datetime.now(UTC):%Y-%m-%d}: millpond dev with three workers on "
        "a real broker, and the operator on a simulated API server"
    )
    renderer = Renderer(system.prometheus.url, began, time.time(), note=note)
    _PICTURES.mkdir(parents=True, exist_ok=True)
    for path in sorted((live.ROOT / "helm/millpond/files/dashboards").glob("*.json")):
        page, height = renderer.page(json.loads(path.read_text()))
        screenshot(page, height, _PICTURES / f"{path.stem}.png")
        sys.stdout.write(f"{_PICTURES / path.stem}.png\n")


if __name__ == "__main__":
    main()
