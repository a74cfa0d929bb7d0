"""`millpond reset` while workers run elsewhere: it is refused before anything is deleted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millpond.cli.application import load_topology
from millpond.cli.reset import running
from millpond.cli.reset.apply import apply_reset
from millpond.cli.reset.cluster import Cluster
from millpond.cli.reset.plan import plan_reset, topics_of
from millpond.errors import OwnershipError
from millpond.runtime.kafka.clients import transactional_id
from millpond.runtime.offsets.metadata import Claim, Partition, decode_metadata
from millpond.runtime.ownership.presence import Presence, PresenceReports, decode_presence, presence_group
from millpond.runtime.tasks.task_claims import TaskClaims
from millpond.topology import TaskId
from tests.cli.conftest import COUNT, Application, Ended, Millpond, Process
from tests.conftest import CreateTopic
from tests.runtime.running import GUARANTEES, Running, config
from tests.support import kafka
from tests.support.broker import Broker
from tests.support.presence import await_report


class Scene:
    """An application whose workers have state directories that the reset does not know."""

    def __init__(self, broker: Broker, millpond: Millpond, target: str, app_id: str, words: str, path: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.target = target
        self.app_id = app_id
        self.words = words
        self._millpond = millpond
        self._path = path

    def worker(self, guarantee: str = "exactly_once") -> Running:
        settings = {"processing.guarantee": guarantee}
        return Running(load_topology(self.target), self.servers, self.app_id, self._path / "elsewhere", settings)

    def count(self, worker: Running) -> None:
        """Let the worker count one more word."""
        before = self.offsets()
        kafka.produce(self.servers, self.words, [(None, "a", 1_700_000_000_000, 0)])
        worker.wait(lambda: self.offsets() != before, "the word is committed")

    def await_report(self) -> None:
        """Wait until the worker has reported that it runs."""
        await_report(self.servers, self.app_id, self.words, "w0")

    def reset(self, *more: object) -> Ended:
        return self._millpond(
            "reset", self.target, "--application-id", self.app_id, "--bootstrap-servers", self.servers,
            "--state-dir", self._path / "here", *more,
        )  # fmt: skip

    def offsets(self) -> dict[int, int]:
        found = kafka.committed_offsets(self.servers, self.app_id, self.words)
        return {partition: offset for partition, (offset, _) in found.items()}

    def owners(self) -> set[tuple[str | None, int]]:
        found = kafka.committed_offsets(self.servers, self.app_id, self.words).values()
        return {(metadata.owner, metadata.epoch) for _, text in found for metadata in [decode_metadata(text)]}

    def internal(self) -> set[str]:
        return kafka.topic_names(self.servers, prefix=f"{self.app_id}-")


@pytest.fixture
def scene(
    broker: Broker,
    millpond: Millpond,
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    words = create_topic("words", partitions=2)
    monkeypatch.setenv("WORDS", words)
    monkeypatch.setenv("COUNTS", create_topic("counts"))
    return Scene(broker, millpond, f"{application(COUNT)}:count", app_id, words, tmp_path)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_worker_with_another_state_directory_is_found_and_not_disturbed(scene: Scene, guarantee: str) -> None:
    """An idle worker, too: it commits nothing, but reports. It counts on after the refusal, with the same epoch."""
    with scene.worker(guarantee) as worker:
        worker.wait_running()
        scene.count(worker)
        scene.await_report()
        before = scene.offsets(), scene.owners(), scene.internal()
        dry, refused = scene.reset("--dry-run"), scene.reset("--yes")
        assert (dry.status, refused.status) == (0, 1)
        for said in (dry.out, refused.err):
            assert f"worker 'w0' on host '{socket.gethostname()}'" in said
            assert "has just reported that it runs" in said
            assert "--force" in said
        assert (scene.offsets(), scene.owners(), scene.internal()) == before
        scene.count(worker)
        assert worker.worker.metrics.recoveries == 0


def test_a_worker_that_ended_is_not_waited_for(scene: Scene) -> None:
    """It reports its end, so that a reset begins at once."""
    with scene.worker() as worker:
        worker.wait_running()
        scene.count(worker)
    ended = scene.reset("--yes")
    assert ended.status == 0, ended.err
    assert "Waiting" not in ended.err
    assert set(scene.offsets().values()) == {0}
    assert scene.internal() == set()


def test_a_killed_worker_is_waited_for_once(
    scene: Scene, start: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait and its reason are told, and then the reset works."""
    worker = start(
        "run", scene.target, "--application-id", scene.app_id, "--bootstrap-servers", scene.servers,
        "--state-dir", tmp_path / "elsewhere", "--set", "commit.interval.ms=50", "--set", "http.port=-1",
    )  # fmt: skip
    kafka.eventually(lambda: worker.says("-> running"), "it runs")
    kafka.produce(scene.servers, scene.words, [(None, "a")])
    kafka.eventually(lambda: max(scene.offsets().values()) > 0, "the word is committed")
    scene.await_report()
    worker.signal(signal.SIGKILL)
    worker.wait()
    monkeypatch.setattr(running, "_SILENT_S", 0.5)
    ended = scene.reset("--yes")
    assert ended.status == 0, ended.err
    assert ended.err.count("Waiting up to") == 1
    assert f"worker 'w0' on host '{socket.gethostname()}' (process {worker.pid})" in ended.err
    assert set(scene.offsets().values()) == {0}
    assert scene.internal() == set()


def test_force_does_not_wait(scene: Scene) -> None:
    """For a user who is sure: reports of workers do not matter."""
    with scene.worker() as worker:
        worker.wait_running()
        scene.count(worker)
    reports = PresenceReports(
        scene.app_id, "w0", lambda: {"bootstrap.servers": scene.servers}, lambda: {Partition(scene.words, 0)}
    )
    reports.start()
    try:
        scene.await_report()
        assert scene.reset("--yes").status == 1
        ended = scene.reset("--yes", "--force")
        assert (ended.status, "Waiting" in ended.err) == (0, False), ended.err
        assert set(scene.offsets().values()) == {0}
    finally:
        reports.close()
    assert "Nothing to do" in scene.reset("--yes").out


def test_a_worker_that_continues_after_it_was_fenced_stops_the_reset(scene: Scene, tmp_path: Path) -> None:
    """Its new producer fences that of the reset, which then changes and deletes nothing."""
    with scene.worker() as worker:
        worker.wait_running()
        scene.count(worker)
    before = scene.offsets(), scene.internal()
    settings = config(scene.servers, scene.app_id, tmp_path / "here")
    taken_back: list[Producer] = []

    def continues() -> None:
        taken_back.append(
            Producer(
                {"bootstrap.servers": scene.servers, "transactional.id": transactional_id(scene.app_id, "w0")},
                logger=kafka.log,
            )
        )
        taken_back[-1].init_transactions(30)

    inputs, known = topics_of(load_topology(scene.target))
    with closing(Cluster(settings)) as cluster:
        plan = plan_reset(cluster, inputs, known, lambda _cluster, partitions, _committed: dict.fromkeys(partitions, 0))
        with pytest.raises(OwnershipError, match=r"worker 'w0' .* continued after the reset had fenced it"):
            apply_reset(cluster, plan, continues)
    assert (scene.offsets(), scene.internal()) == before


@pytest.mark.slow
def test_a_fleet_under_a_coordinator_is_found(
    scene: Scene, start: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is not that of this machine's user, so only Kafka tells of it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run-of-another"))
    fleet = start(
        "dev", scene.target, "--workers", 2, "--application-id", scene.app_id, "--bootstrap-servers", scene.servers,
        "--state-dir", tmp_path / "elsewhere", "--processing-guarantee", "exactly_once",
    )  # fmt: skip
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))

    def both_report() -> bool:
        assert fleet.running, fleet.said
        with closing(Cluster(config(scene.servers, scene.app_id, tmp_path / "here"))) as cluster:
            if presence_group(scene.app_id) not in cluster.groups():
                return False
            return {each.worker for _, each in cluster.presences().values()} == {"w0", "w1"}

    kafka.eventually(both_report, "both workers report", timeout_s=60)
    before = scene.internal()
    refused = scene.reset("--yes")
    assert (refused.status, "has just reported that it runs" in refused.err) == (1, True), refused.err
    assert scene.internal() == before
    fleet.signal(signal.SIGTERM)
    assert fleet.wait() == 0, fleet.said
    ended = scene.reset("--yes")
    assert (ended.status, "Waiting" in ended.err) == (0, False), ended.err


def test_the_end_is_reported_for_tasks_that_nobody_took_over(scene: Scene, tmp_path: Path) -> None:
    """A worker that gives its tasks away while it ends: those of a worker that runs stay as that one reported them."""
    inputs = [Partition(scene.words, each) for each in range(2)]
    held = {"w0": set(inputs), "w1": set[Partition]()}
    workers = [
        PresenceReports(scene.app_id, name, lambda: {"bootstrap.servers": scene.servers}, lambda name=name: held[name])  # type: ignore[misc]
        for name in held
    ]

    def reported() -> dict[Partition, tuple[str, bool]]:
        with closing(Cluster(config(scene.servers, scene.app_id, tmp_path / "here"))) as cluster:
            if presence_group(scene.app_id) not in cluster.groups():
                return {}
            return {input: (each.worker, each.ended) for input, (_, each) in cluster.presences().items()}

    for each in workers:
        each.start()
    try:
        kafka.eventually(lambda: reported() == dict.fromkeys(inputs, ("w0", False)), "w0 reports both")
        held["w0"], held["w1"] = set(), set(inputs[1:])
        kafka.eventually(lambda: reported().get(inputs[1]) == ("w1", False), "w1 reports what it took over")
        workers[0].close()
        expected = {inputs[0]: ("w0", True), inputs[1]: ("w1", False)}
        kafka.eventually(lambda: reported() == expected, "w0 reports its end")
    finally:
        for each in workers:
            each.close()


def test_reports_that_cannot_be_read_count_as_those_of_a_worker() -> None:
    """Of a later version, for example; and bytes behind the text do not matter."""
    assert decode_presence('{"w":"w0","h":"a","p":1}\0x') == Presence("w0", "a", 1)
    assert decode_presence('{"w":"w0","h":"a","p":1,"end":true}').ended
    for text in (None, "", "{", "[]", '{"w":1}'):
        assert decode_presence(text) == Presence()
        assert not decode_presence(text).ended


def test_a_worker_whose_offsets_were_reset_says_so(tmp_path: Path) -> None:
    """After --force, no other worker has taken its tasks over."""
    claims = TaskClaims(config("localhost:1", "shop", tmp_path), "", None)  # type: ignore[arg-type]
    with pytest.raises(OwnershipError, match="the committed offsets of 'shop' were reset or deleted while worker 'w0'"):
        claims.taken_over(TaskId(0, 1), Claim.CLAIM, None)
