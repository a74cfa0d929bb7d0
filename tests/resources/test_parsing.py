from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond_operator.resources import Duration, InvalidStreamApp, parse
from tests.resources.examples import stream_app


def test_defaults_are_filled_in():
    """Fields that users may omit."""
    spec = stream_app().spec
    assert spec.processing_guarantee == "exactly_once"
    assert (spec.replicas, spec.standby_replicas, spec.max_warmup_replicas) == (1, 0, 2)
    assert spec.session_timeout == timedelta(seconds=6)
    assert spec.commit_interval is None
    assert spec.rollout.progress_deadline == timedelta(minutes=5)
    assert spec.state.retention_policy.when_deleted == "Delete"


def test_the_applications_id_is_its_name_unless_it_has_one():
    """The id in Kafka."""
    assert stream_app().application_id == "delays"
    assert stream_app(applicationId="shop.delays").application_id == "shop.delays"


def test_annotations_pause_and_restart():
    """What users request by annotations."""
    assert not stream_app().paused
    assert stream_app({"millpond.dev/reconcile": "paused"}).paused
    assert not stream_app({"millpond.dev/reconcile": "resumed"}).paused
    assert stream_app({"millpond.dev/restartedAt": "now"}).restarted_at == "now"


def test_fields_of_a_newer_definition_are_passed_over():
    """During an upgrade the operator may be older than the CRDs."""
    assert stream_app(weather={"enabled": True}, state={"size": "2Gi", "tier": "hot"}).spec.state.size == "2Gi"


@pytest.mark.parametrize("spec", [{"replicas": "many"}, {"sessionTimeout": "soon"}, {"image": None}, {"kafka": {}}])
def test_parser_refuses_what_the_definition_refuses(spec):
    """Another CRD than the operator's own may be installed."""
    with pytest.raises(InvalidStreamApp, match=r"Cannot decode .*'shop/delays' .*: install the CRDs"):
        stream_app(**spec)


def test_deletion_timestamp_is_read():
    """A finalizer holds the object."""
    metadata = {"namespace": "shop", "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["millpond.dev/kafka-cleanup"]}  # fmt: skip
    spec = {"image": "a", "topology": "a:b", "kafka": {"bootstrapServers": "a:1"}, "deletion": {"kafka": "Delete"}}
    app = parse({"metadata": metadata, "spec": spec})
    assert app.deleting
    assert app.has_finalizer
    assert app.cleans_up_kafka
    assert app.status == {}


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h"]))
def test_durations_are_read_back_as_they_were_written(number, unit):
    """In every notation."""
    duration = Duration.parse(f"{number}{unit}")
    assert Duration.parse(str(duration)) == duration
    assert duration == timedelta(**{{"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}[unit]: number})


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        ({"seconds": 90}, "90s"),
        ({"minutes": 2}, "2m"),
        ({"hours": 1}, "1h"),
        ({"milliseconds": 1500}, "1500ms"),
        ({}, "0ms"),
    ],
)
def test_durations_are_written_shortly(duration, text):
    """In the largest unit that gives a whole number."""
    assert str(Duration(**duration)) == text


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1m30s", "1w", "1.5ms", "9999999999999999h"])
def test_invalid_duration_is_refused(text):
    """The message has an example, or says that it is too long."""
    with pytest.raises(ValueError, match=r"write a number with a unit|longer than any|whole number of milliseconds"):
        Duration.parse(text)
