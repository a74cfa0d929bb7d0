"""A real Prometheus that scrapes a running application and an operator.

The application is `millpond dev` with two workers and a coordinator on a real broker. The operator is the real program
on the simulated API server, whose time goes as fast as the clock on the wall: each `turn` is one second of both.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from unittest import mock

import msgspec
import yaml

from millpond.cli.dev.status import SessionStatus
from tests.cluster.nodes.images import Image
from tests.operating.scene import BASE, Scene, merged, scene_of
from tests.operating.world import World
from tests.simulation import background as simulation
from tests.simulation.world import simulated_world
from tests.support import kafka
from tests.support.broker import Broker, free_port
from tests.support.programs.prometheus import Tools

__all__ = ("ROOT", "Prometheus", "System", "running")

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm/millpond/files/rules"
_START_S = 60.0

APPLICATION = """
    import os
    from datetime import timedelta
    import millpond as mp

    def build():
        builder = mp.StreamsBuilder()
        orders = builder.stream(os.environ["ORDERS"], key=mp.String, value=mp.Json(dict))
        orders.group_by_key().count(store="orders-by-shop").to_stream().to(os.environ["COUNTS"], value=mp.Long)
        windows = mp.TimeWindows(timedelta(seconds=10), grace=timedelta(seconds=2))
        orders.group_by_key().windowed_by(windows).count(store="orders-in-window")
        return builder.build()
"""
"""Orders by shop: a count, and one of windows, for which some records are late."""


@dataclass
class Feed:
    """Sends orders: most are good, some are late, some cannot be decoded."""

    bootstrap_servers: str
    topic: str
    random: random.Random = field(default_factory=lambda: random.Random(7))

    def send(self, good: int, late: int = 1, bad: int = 1) -> None:
        """Send some orders with the current time."""
        now = int(time.time() * 1000)
        records: list[Any] = [
            (f"shop-{self.random.randrange(40)}", json.dumps({"amount": each}), now) for each in range(good)
        ]
        records += [(f"shop-{each}", json.dumps({"amount": 1}), now - 60_000) for each in range(late)]
        records += [(f"shop-{each}", "no JSON", now) for each in range(bad)]
        kafka.produce(self.bootstrap_servers, self.topic, records)


class OperatorMetrics:
    """Serves the last metrics of the simulated operator, which only the thread of the test may ask."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._text = b""
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(metrics._text)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def refresh(self) -> None:
        """Read the metrics again."""
        self._text = self._read().encode()

    def __enter__(self) -> Self:
        self.refresh()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Prometheus:
    """A Prometheus with the rules of the chart.

    Args:
        tools: its programs.
        directory: for its data and configuration.
    """

    def __init__(self, tools: Tools, directory: Path) -> None:
        self._tools = tools
        self._directory = directory
        self._targets = directory / "targets.json"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        config = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": [str(each) for each in sorted(RULES.glob("*.yaml"))],
            # As the chart's PodMonitors: namespaces in the operator's metrics are those of StreamApps.
            "scrape_configs": [
                {
                    "job_name": "millpond",
                    "honor_labels": True,
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }
        path = self._directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        log = (self._directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                self._tools.prometheus, f"--config.file={path}", f"--storage.tsdb.path={self._directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}", "--storage.tsdb.retention.size=200MB",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log.close()
        kafka.eventually(self._ready, "Prometheus is ready", timeout_s=_START_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def scrape(self, targets: list[dict[str, Any]]) -> None:
        """Set the targets: addresses with labels."""
        text = json.dumps(targets)
        if not self._targets.exists() or self._targets.read_text() != text:
            part = self._targets.with_suffix(".part")
            part.write_text(text)
            part.rename(self._targets)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "prometheus.log").read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def get(self, path: str, **arguments: str) -> Any:
        """Return the data of an answer of its API.

        Raises:
            AssertionError: it rejects the query.
        """
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the result of a query at this moment."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found


def apply_streamapps(scene: Scene, application_id: str) -> None:
    """Apply StreamApps: one that runs and has a snapshot, one that cannot start, one that is suspended."""
    scene.kubelets.images["spark:1"] = Image()
    snapshots = {"location": "s3://states/orders", "schedule": "0 3 * * *", "spark": {"image": "spark:1"}}
    orders = {
        "replicas": 2,
        "applicationId": application_id,
        "bootstrap": snapshots,
        "autoscaling": {"minReplicas": 2, "maxReplicas": 6},
    }
    scene.apply("orders", merged(BASE, orders))
    scene.apply("payments", merged(BASE, {"replicas": 2, "image": "payments:missing"}))
    scene.apply("archive", merged(BASE, {"replicas": 1, "suspended": True}))
    spec = {"streamApp": "orders", "location": "s3://states/orders", "spark": {"image": "spark:1"}}
    scene.api.apply(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StateBootstrap",
            "metadata": {"name": "orders-nightly", "namespace": scene.namespace},
            "spec": spec,
        }
    )


class _Named(World):
    """A world whose namespaces have the names that a test gives them."""

    def namespace(self, stem: str) -> str:
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stem}})
        return stem


class Session:
    """`millpond dev` with two workers, each task with a standby."""

    def __init__(self, directory: Path, bootstrap_servers: str, application_id: str, orders: str, counts: str) -> None:
        self._directory = directory
        (directory / "run").mkdir()
        (directory / "orders_app.py").write_text(textwrap.dedent(APPLICATION))
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")} | {
            "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in ("worker", "operator")),
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "TMPDIR": str(directory / "run"),
            "ORDERS": orders,
            "COUNTS": counts,
        }
        self._arguments = [
            "dev", "orders_app:build", "--workers", "2", "--standbys", "1", "--bootstrap-servers", bootstrap_servers,
            "--application-id", application_id, "--processing-guarantee", "exactly_once",
            "--set", "deserialization.exception.handler=continue", "--set", "metrics.recording.level=DEBUG",
            "--set", f"errors.dead.letter.queue.topic.name={counts}-dead",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._logs = directory

    def __enter__(self) -> Self:
        with (self._directory / "session.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millpond.cli", *self._arguments],
                cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)

    def do(self, *command: str) -> str:
        """Run `millpond dev COMMAND` beside the session; return its output, empty if it fails."""
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "session.log").read_text()[-4000:]
        done = subprocess.run(
            [sys.executable, "-m", "millpond.cli", "dev", *command],
            cwd=self._directory, env=self._environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def status(self) -> SessionStatus | None:
        """Return its status; None before it has begun."""
        text = self.do("status", "--json")
        return msgspec.json.decode(text, type=SessionStatus) if text else None

    def workers(self) -> list[str]:
        """Return the addresses of the workers' latest processes, by their logs."""
        logs = sorted(self._logs.glob("w*.log"))
        found = [re.findall(r"metrics on http://(\S+?)/metrics", each.read_text()) for each in logs]
        return [each[-1] for each in found if each]

    def started(self) -> SessionStatus:
        """Wait until all tasks run and have standbys; return the status."""
        found: list[SessionStatus] = []

        def complete() -> bool:
            status = self.status()
            if status is None or len(status.running) < 4 or not all(each.metrics for each in status.workers):
                return False
            found.append(status)
            return sum(len(each.standby) for each in status.workers) == 4

        kafka.eventually(complete, "all tasks run and have standbys", timeout_s=150)
        self._logs = Path(found[-1].workers[0].log).parent
        return found[-1]


@dataclass
class System:
    """Everything that runs."""

    prometheus: Prometheus
    session: Session
    feed: Feed
    background: Any
    operator: OperatorMetrics
    scene: Scene
    coordinator: str
    """The address of the application's coordinator."""

    def turn(self) -> None:
        """Let one second pass, on the wall and in the simulation."""
        began = time.monotonic()
        self.background.sleep(1)
        self.operator.refresh()
        self.find_targets()
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))

    def find_targets(self) -> None:
        """Let Prometheus scrape what runs now."""
        where = {"namespace": self.scene.namespace}
        self.prometheus.scrape(
            [
                *({"targets": [each], "labels": where} for each in self.session.workers()),
                {"targets": [self.coordinator], "labels": where},
                {"targets": [self.operator.address], "labels": {"pod": "millpond-operator-0"}},
            ]
        )

    def ask(self) -> None:
        """Send a query to a worker."""
        with contextlib.suppress(OSError):
            urllib.request.urlopen(
                f"http://{self.session.workers()[0]}/v1/stores/orders-by-shop/keys/shop-1", timeout=10
            ).close()

    def work(self, seconds: int, good: int = 200, late: int = 1, bad: int = 1) -> None:
        """Send orders and queries for some seconds."""
        for _ in range(seconds):
            self.feed.send(good, late, bad)
            self.ask()
            self.turn()

    def await_data(self) -> None:
        """Let everything run until each target was scraped some times and each rule evaluated."""
        self.work(8)
        kafka.eventually(self._complete, "all targets are scraped and all rules evaluated", timeout_s=90)

    def _complete(self) -> bool:
        self.work(1)
        targets = self.prometheus.get("targets")["activeTargets"]
        scraped = all(each["health"] == "up" for each in targets)
        rules = [rule for group in self.prometheus.get("rules")["groups"] for rule in group["rules"]]
        return len(targets) == 4 and scraped and all(rule["health"] == "ok" for rule in rules)


@contextlib.contextmanager
def running(broker: Broker, tools: Tools, directory: Path, application_id: str = "orders") -> Iterator[System]:
    """Run everything while the block runs."""
    servers = broker.bootstrap_servers
    names = [f"{application_id}-{name}" for name in ("in", "counts", "counts-dead")]
    for name in names:
        kafka.create_topic(servers, name, 4)
    try:
        with (
            mock.patch.object(simulation, "_BEGINNING", datetime.now(UTC)),
            Session(directory, servers, application_id, *names[:2]) as session,
            simulated_world(7) as world,
            scene_of(_Named(world.api, world.background, world.server, world.operator), directory, "shop") as scene,
            OperatorMetrics(lambda: scene.operator.fetch("/metrics")) as operator,
        ):
            apply_streamapps(scene, application_id)
            feed = Feed(servers, names[0])
            feed.send(100)
            status = session.started()
            coordinator = status.coordinator.removeprefix("http://")
            with Prometheus(tools, directory) as prometheus:
                yield System(prometheus, session, feed, world.background, operator, scene, coordinator)
    finally:
        kafka.delete_topics(servers, kafka.topic_names(servers, prefix=f"{application_id}-"))
