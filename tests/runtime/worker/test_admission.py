"""A worker changes nothing in a Kafka cluster before its coordinator admits the application's id there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import millpond as mp
from millpond.errors import OwnershipError
from millpond.protocol import Refusal, RefusalCode
from millpond.runtime.blockers import Blockers
from millpond.runtime.worker.admission import await_admission
from millpond_operator.coordinator import CoordinatorServer, Engine, KafkaClaim
from tests.runtime.running import Running
from tests.runtime.worker.test_startup_blockers import coordinator, readiness
from tests.support import kafka


def counting(source: str, target: str) -> mp.Topology:
    """Counts by key, with a changelog."""
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts").to_stream().to(target, key=mp.String, value=mp.Long)
    return builder.build()


@contextlib.contextmanager
def claiming(application: str, claim: KafkaClaim) -> Iterator[tuple[CoordinatorServer, Engine]]:
    with coordinator(application) as service:
        engine = service.application(application, "shop").engine
        engine.claim(claim)
        yield service, engine


def settings_for(service: CoordinatorServer) -> dict[str, object]:
    return {"coordinator.url": f"{service.url}/namespaces/shop", "http.port": 0}


def test_worker_begins_when_its_cluster_is_claimed(broker, create_topic, app_id, tmp_path):
    """Until then it creates no topic, is not ready, and reports why."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    cluster = kafka.admin(servers).list_topics(timeout=60).cluster_id
    with (
        claiming(app_id, KafkaClaim("another")) as (service, engine),
        Running(counting(source, target), servers, app_id, tmp_path, settings_for(service)) as running,
    ):
        running.wait(lambda: engine.reached_clusters == {"w0": cluster}, "it tells its cluster")
        running.wait(lambda: "reaches Kafka cluster" in readiness(running)[1], "it says why it waits")
        assert readiness(running)[0] == 503
        assert not kafka.topic_names(servers, prefix=app_id)
        engine.claim(KafkaClaim())
        running.wait(lambda: not engine.rejected, "it is not refused any more")
        assert not kafka.topic_names(servers, prefix=app_id)
        engine.claim(KafkaClaim(cluster))
        running.wait_running()
        running.wait(lambda: engine.owners, "it has its task")
        assert kafka.topic_names(servers, prefix=app_id)


def test_running_worker_lets_go_when_its_id_is_anothers(broker, create_topic, app_id, tmp_path):
    """It drops its tasks, and activates them again after it is admitted."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    cluster = kafka.admin(servers).list_topics(timeout=60).cluster_id
    with (
        claiming(app_id, KafkaClaim(cluster)) as (service, engine),
        Running(counting(source, target), servers, app_id, tmp_path, settings_for(service)) as running,
    ):
        running.wait_running()
        running.wait(lambda: running.worker._parts.executor.running, "it processes")
        engine.claim(KafkaClaim(cluster, "Another application has that id: take another one."))
        running.wait(lambda: not running.worker._parts.executor.held, "it lets go")
        assert "take another one" in readiness(running)[1]
        engine.claim(KafkaClaim(cluster))
        running.wait(lambda: running.worker._parts.executor.running, "it processes again")


def test_worker_that_is_not_let_in_ends_when_it_is_told_to(broker, create_topic, app_id, tmp_path):
    """Without an error, since it has nothing to commit."""
    with claiming(app_id, KafkaClaim("another")) as (service, engine):
        topology = counting(create_topic("in"), create_topic("out"))
        running = Running(topology, broker.bootstrap_servers, app_id, tmp_path, settings_for(service)).start()
        running.wait(lambda: engine.rejected, "it is refused")
        running.worker.stop()
        assert running.join() is None


class Door:
    """A coordinator with given answers, on a clock that the waits advance."""

    def __init__(self, *outcomes: RefusalCode | bool) -> None:
        self.outcomes = list(outcomes)
        self.refusal: Refusal | None = None
        self.now = 0.0
        self.stops_at = float("inf")

    def ask(self) -> bool:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, bool):
            self.refusal = None
            return outcome
        self.refusal = Refusal(outcome, f"{outcome}: cure.")
        return True

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.stops_at


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Door], bool]:
    """Wait for admission; return whether a coordinator answered."""

    def wait(door: Door) -> bool:
        monkeypatch.setattr("millpond.runtime.worker.admission.time.monotonic", lambda: door.now)
        return await_admission(door.ask, door, Blockers(), door)  # type: ignore[arg-type]

    return wait


def test_worker_goes_on_without_a_coordinator(admitted):
    """It waits for two seconds, also if the coordinator does not know the worker, which is no decision about its id."""
    for silence in (False, RefusalCode.UNKNOWN_APPLICATION, RefusalCode.UNAUTHORIZED):
        door = Door(silence)
        assert admitted(door) is (silence is not False)
        assert 2 <= door.now < 4


def test_worker_that_was_refused_waits_for_the_coordinators_return(admitted):
    """The coordinator is away for an hour after its rejection: the id still belongs to another application."""
    door = Door(RefusalCode.CLAIM_REFUSED, *[False] * 3_600, RefusalCode.CLAIM_PENDING, True)
    assert admitted(door)
    assert door.now > 3_000


def test_refused_worker_stops_waiting_when_told_to_end(admitted):
    """The error is the coordinator's last rejection."""
    door = Door(RefusalCode.CLAIM_REFUSED)
    door.stops_at = 5
    with pytest.raises(OwnershipError, match="cure"):
        admitted(door)
