"""An application id belongs to one StreamApp on each Kafka cluster."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from millpond_operator.controllers.reconcile.id_claims import PROOF_TIMEOUT, IdClaims, Rival
from millpond_operator.controllers.reconcile.reconciler import Reconciler
from millpond_operator.kubernetes import Cache, kinds
from millpond_operator.resources import Surroundings
from tests.simulation.running import simulate

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROVEN_A = {"kafka": {"clusterId": "K", "since": "2026-01-01T00:00:00Z", "address": "kafka.money:9092"}}


def _app(
    name: str,
    *,
    namespace: str = "money",
    servers: str = "kafka:9092",
    id: str = "pay",
    created: datetime = NOW,
    **status,
):
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": created.isoformat()}
    return {
        "metadata": metadata,
        "spec": {"applicationId": id, "kafka": {"bootstrapServers": servers}},
        "status": status,
    }


@pytest.fixture
def enqueued() -> list:
    return []


@pytest.fixture
def claims(enqueued) -> IdClaims:
    return IdClaims(enqueued.append)


def test_first_at_an_address_may_prove_its_claim_before_others(claims):
    """Not even an older StreamApp precedes it; those at another address do not wait."""
    waiting = Rival(("money", "b"), NOW + PROOF_TIMEOUT)
    assert claims.rival(_app("b"), NOW) is None
    assert claims.rival(_app("a", created=NOW - timedelta(days=1)), NOW) == waiting
    assert claims.rival(_app("b"), NOW) is None
    assert claims.rival(_app("c", servers="elsewhere:9092"), NOW) is None


def test_a_streamapp_that_is_made_again_has_proven_nothing(claims, enqueued):
    """It has the former one's name and id, and no pass saw the deletion; others may have the id now."""
    former, again, other = _app("a"), _app("a"), _app("b", servers="elsewhere:9092")
    former["metadata"]["uid"], again["metadata"]["uid"] = "former", "again"
    assert claims.rival(former, NOW) is None
    claims.prove(("money", "a"), "K", NOW)
    assert claims.rival(other, NOW) is None
    assert claims.prove(("money", "b"), "K", NOW) == Rival(("money", "a"))
    assert claims.rival(again, NOW) is None
    assert claims.proof(("money", "a")) is None
    assert not claims.holds(("money", "a")), "what has its id in Kafka is not its own to delete"
    assert enqueued[-1] == ("money", "b")
    assert claims.prove(("money", "b"), "K", NOW).cluster_id == "K"


def test_claim_that_is_not_proven_gives_way(claims):
    """An unproven claim does not hold the id: the StreamApp whose workers reach the cluster first gets it."""
    claims.rival(_app("squatter", namespace="evil", servers="kafka.money.svc:9092"), NOW)
    assert claims.rival(_app("a"), NOW).key == ("evil", "squatter")
    later = NOW + PROOF_TIMEOUT
    assert claims.rival(_app("a"), later) is None
    assert claims.prove(("money", "a"), "K", later).cluster_id == "K"
    squatter = _app("squatter", namespace="evil", servers="kafka.money.svc:9092")
    assert claims.rival(squatter, later) == Rival(("money", "a"))
    assert claims.prove(("evil", "squatter"), "K", later) == Rival(("money", "a"))


def test_proven_claim_counts_under_every_address(claims, enqueued):
    """The claim lasts as long as the StreamApp; then the next one whose workers reach the cluster gets the id."""
    claims.rival(_app("a"), NOW)
    claims.rival(_app("b", servers="broker.example.com:9092"), NOW)
    assert claims.prove(("money", "a"), "K", NOW).since == "2026-01-01T12:00:00Z"
    assert claims.prove(("money", "b"), "K", NOW) == Rival(("money", "a"))
    assert claims.prove(("money", "b"), "L", NOW).cluster_id == "L"
    claims.release(("money", "b"))
    claims.rival(_app("b", servers="broker.example.com:9092"), NOW)
    enqueued.clear()
    claims.release(("money", "a"))
    assert enqueued == [("money", "b")]
    assert claims.prove(("money", "b"), "K", NOW).cluster_id == "K"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_proofs_outlive_the_operator(claims, order):
    """In whatever order the next leader sees the StreamApps, and whatever their age."""
    apps = [_app("z", **PROVEN_A), _app("a", created=NOW - timedelta(days=9)), _app("b", servers="other:9092")]
    claims.prime([apps[index] for index in order], NOW)
    assert [claims.rival(app, NOW) for app in apps] == [None, Rival(("money", "z")), None]
    assert claims.prove(("money", "b"), "K", NOW) == Rival(("money", "z"))
    assert claims.holds(("money", "z"))
    assert not claims.holds(("money", "a"))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_proofs_the_older_one_counts(claims, order):
    """Two leaders that wrote at the same time leave such a state behind."""
    second = {"kafka": PROVEN_A["kafka"] | {"since": "2026-01-01T00:00:01Z"}}
    apps = [_app("z", **PROVEN_A), _app("a", **second)]
    claims.prime([apps[index] for index in order], NOW)
    assert [claims.rival(app, NOW) for app in apps] == [None, Rival(("money", "z"))]


def test_started_app_goes_before_waiting_ones_after_a_restart(claims):
    """Its workers may be about to report their Kafka cluster."""
    apps = [_app("a"), _app("z", targetRevision="r1")]
    claims.prime(apps, NOW)
    assert [claims.rival(app, NOW) is None for app in apps] == [False, True]


def test_ambiguous_name_does_not_keep_others_out(claims):
    """`kafka.money` may be a pod of a Service `money`, so its proof does not cover the namespace `money`."""
    claims.rival(_app("squatter", namespace="evil", servers="kafka.money:9092"), NOW)
    claims.prove(("evil", "squatter"), "E", NOW)
    assert claims.rival(_app("a"), NOW) is None
    assert claims.prove(("money", "a"), "K", NOW).cluster_id == "K"


def test_moving_to_another_address_keeps_a_proof(claims):
    """It lasts until its workers have proven another cluster."""
    claims.rival(_app("a"), NOW)
    claims.prove(("money", "a"), "K", NOW)
    moved = _app("a", servers="other:9092")
    assert claims.rival(moved, NOW) is None
    assert claims.proof(("money", "a")).cluster_id == "K"
    assert claims.rival(_app("b"), NOW) is None, "nothing is known of that address any more"
    assert claims.prove(("money", "a"), "L", NOW).address == "other.money:9092"
    assert claims.prove(("money", "b"), "K", NOW).cluster_id == "K"


def test_changed_application_gives_its_id_back(claims, enqueued):
    """A StreamApp of the same name with another id releases the old id."""
    claims.rival(_app("a"), NOW)
    claims.prove(("money", "a"), "K", NOW)
    claims.rival(_app("b"), NOW)
    assert claims.rival(_app("a", id="other"), NOW) is None
    assert not claims.holds(("money", "a"))
    assert ("money", "b") in enqueued
    assert claims.rival(_app("b"), NOW) is None


def test_all_claims_count_from_the_first_pass_on():
    """This holds whichever StreamApp is reconciled first; otherwise that one would get the id."""

    class Hosting:
        async def forget(self, *key: str) -> None: ...

    cache = Cache()
    first = _app("z", **PROVEN_A)
    first["metadata"] |= {"resourceVersion": "1", "uid": "1"}
    cache.put(kinds.STREAM_APP, first)
    surroundings = Surroundings("https://coordinator:7070", "CA", 1, "ops")
    reconciler = Reconciler(None, cache, Hosting(), surroundings, lambda _: None)
    simulate(reconciler(("money", "gone")))
    assert reconciler._claims.holds(("money", "z"))
