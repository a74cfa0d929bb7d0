"""`millpond snapshot create` on a Spark cluster: executors share only Kafka and a bucket with the driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.snapshots import versions
from millpond.snapshots.locations import open_location
from tests.cli.conftest import ROOTS, Process, require_spark
from tests.snapshots.s3_server import KEY, SECRET, serving
from tests.support import kafka
from tests.support.broker import Broker
from tests.support.clusters.spark import SparkCluster, spark_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.soak,
    pytest.mark.usefixtures("versitygw", "processes"),
]

KEYS = 200_000


def test_an_executor_that_is_killed_costs_only_time(
    broker: Broker,
    start: Callable[..., Process],
    counted: Callable[[int], str],
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """One executor dies while changelogs are read, another while files are written."""
    require_spark()
    target = counted(KEYS)
    _configure_driver(tmp_path / "conf", monkeypatch)
    served, secret = tmp_path / "served", tmp_path / "secret"
    (served / "bucket").mkdir(parents=True)
    secret.mkdir()
    with serving(served) as endpoint:
        for name, text in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "ENDPOINT_URL": endpoint}.items():
            (secret / f"AWS_{name}").write_text(text)
        with spark_cluster(tmp_path / "spark", {**os.environ, "PYTHONPATH": ROOTS}) as cluster:
            job = start(
                "snapshot", "create", target, "--location", "s3://bucket/states",
                "--credentials-dir", secret, "--catalog", "s3://bucket/tables", "--master", cluster.url,
                "--application-id", app_id, "--bootstrap-servers", broker.bootstrap_servers,
            )  # fmt: skip
            for stage in ("reading changelogs", "writing files"):
                kafka.eventually(lambda stage=stage: job.says(stage), f"Spark is {stage}", 300)  # type: ignore[misc]
                _kill_one(cluster)
            status = job.wait(400)
            lost = cluster.log.read_text(errors="replace").count("exitStatus 137")
        assert lost, "an executor was killed while the job ran"
        assert status == 0, f"{job.said}\n{cluster.log.read_text(errors='replace')[-5000:]}"
        location = open_location("s3://bucket/states", secret)
        (version,) = versions.versions(location, app_id)
        manifest = versions.read(location, app_id, version)
        assert versions.verify(location, manifest) == []
        assert sum(part.rows for part in manifest.stores[0].parts) == KEYS
        listed = {f"{app_id}/{version}/{file.path}" for file in manifest.files}
        assert {path for path, _ in location.list(app_id)} == {*listed, f"{app_id}/{version}/manifest.json"}


def _configure_driver(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure two small executors in Spark."""
    directory.mkdir()
    settings = {
        "spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }  # fmt: skip
    (directory / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(directory))


def _kill_one(cluster: SparkCluster) -> None:
    kafka.eventually(lambda: bool(cluster.executors()), "an executor runs", 120)
    os.kill(cluster.executors()[0], signal.SIGKILL)
