"""An application's id belongs to one StreamApp."""

from __future__ import annotations

import itertools

import pytest

from millpond_operator.controllers.claims import Claims


def _app(
    name: str, *, servers: str = "kafka:9092", id: str = "pay", created: str = "2026-01-01", started: bool = False
):
    return {
        "metadata": {"namespace": "money", "name": name, "creationTimestamp": created},
        "spec": {"applicationId": id, "kafka": {"bootstrapServers": servers}},
        "status": {"targetRevision": "r1"} if started else {},
    }


@pytest.fixture
def enqueued() -> list:
    return []


@pytest.fixture
def claims(enqueued) -> Claims:
    return Claims(enqueued.append)


def test_first_holder_keeps_the_application_id(claims):
    """Not even an older one gets it: its workers would meet those that run."""
    assert claims.taken_by(_app("b")) is None
    assert claims.taken_by(_app("a", created="2025-01-01")) == ("money", "b")
    assert claims.taken_by(_app("b")) is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_after_a_restart_started_apps_keep_their_ids(claims, order):
    """In whatever order they are seen first, paused or not."""
    apps = [_app("z", created="2024-01-01", started=True), _app("a"), _app("b", created="2023-01-01")]
    claims.prime([apps[index] for index in order])
    assert [claims.taken_by(app) for app in apps] == [None, ("money", "z"), ("money", "z")]


def test_free_id_goes_to_the_longest_waiting_app(claims, enqueued):
    """And that one is told."""
    for name in ("a", "b", "c"):
        claims.taken_by(_app(name))
    claims.release(("money", "a"))
    assert set(enqueued) == {("money", "b"), ("money", "c")}
    assert claims.taken_by(_app("c")) == ("money", "b")
    assert claims.taken_by(_app("b")) is None


def test_same_id_on_another_kafka_is_independent(claims):
    """It may be the same one under another name, which matters when something is to be deleted there."""
    assert claims.taken_by(_app("a")) is None
    assert claims.taken_by(_app("b", servers="elsewhere:9092")) is None
    assert claims.others(("money", "a")) == [("money", "b")]
    claims.release(("money", "b"))
    assert claims.others(("money", "a")) == []


def test_order_of_bootstrap_servers_does_not_matter(claims):
    """One Kafka, two spellings."""
    assert claims.taken_by(_app("a", servers="x:1, y:2")) is None
    assert claims.taken_by(_app("b", servers="y:2,x:1")) == ("money", "a")
