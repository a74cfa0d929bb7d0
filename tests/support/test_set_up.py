"""Steps of a set-up that are late: tried once more, counted, and no failure of a test."""

from __future__ import annotations

import signal
import threading
import uuid
from datetime import timedelta
from os import kill

import pytest

from tests.support import kafka, set_up


@pytest.fixture
def run(request, tmp_path, run_directory):
    """The directory of a run of its own."""
    set_up.begin(tmp_path, "tests/a.py::test_b")
    yield tmp_path
    set_up.begin(run_directory, request.node.nodeid)


def test_a_broker_that_hangs_is_replaced_when_a_topic_is_created(own_brokers, run, monkeypatch):
    """The topic is there, and the run tells of the second try."""
    monkeypatch.setattr(kafka, "_TIMEOUT_S", 3.0)
    with own_brokers() as broker:
        first, name = broker.pid, f"in-{uuid.uuid4().hex[:8]}"
        kill(first, signal.SIGSTOP)
        kafka.create_topic(broker.bootstrap_servers, name)
        assert broker.pid != first
        assert kafka.topic_names(broker.bootstrap_servers, name) == {name}
    (told,) = set_up.repeated(run)
    assert told.startswith(f"tests/a.py::test_b: creating topic {name} ")


def test_a_broker_that_is_late_twice_is_an_error_of_the_set_up(own_brokers, run, tmp_path):
    """It names what was late and the load of the machine, and has the broker's own log."""
    broker = own_brokers(tmp_path / "broker", start_timeout=timedelta(milliseconds=100))
    with pytest.raises(set_up.SetUpError, match="and so it was at a second try: the machine is too busy"):
        broker.start()
    assert len(set_up.repeated(run)) == 1
    assert not broker.running


def test_a_broker_that_ends_is_not_tried_again(own_brokers, run):
    """It would end again, and the message of its end is what helps."""
    broker = own_brokers(properties={"num.partitions": "-5"})
    with pytest.raises(Exception, match="ended while it was starting"):
        broker.start()
    assert set_up.repeated(run) == []
    broker._failed = False
    broker.close()


def test_the_time_limit_of_a_test_does_not_run_during_set_up(request):
    """Set-up has limits of its own, and the end of a test's limit would end the whole process."""

    def limits() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.endswith(request.node.nodeid)]

    assert len(limits()) == 1
    assert set_up.twice(lambda: set_up.twice(limits)) == []
    assert len(limits()) == 1
