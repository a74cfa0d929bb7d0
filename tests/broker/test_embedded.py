"""The embedded broker: stops, kills, the end of its owner, and starts that fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from millpond.broker import EmbeddedBroker, embedded, jars
from millpond.errors import BrokerError
from tests.support import kafka


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_committed_records_and_the_port_outlive_the_process(own_broker, end):
    """After SIGTERM or SIGKILL the same address answers, and a read_committed consumer finds the committed records."""
    topic = f"outlives-{end}"
    kafka.create_topic(own_broker.bootstrap_servers, topic, partitions=2)
    producer = Producer(
        {"bootstrap.servers": own_broker.bootstrap_servers, "transactional.id": end, "log_level": 0}, logger=kafka.log
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, key=b"k", value=b"committed")
    producer.commit_transaction()
    address, first_pid = own_broker.bootstrap_servers, own_broker.pid

    getattr(own_broker, end)()

    assert not own_broker.running
    assert own_broker.pid is None
    own_broker.start()
    assert own_broker.bootstrap_servers == address
    assert own_broker.pid != first_pid
    kafka.read_until(address, topic, 1)  # a commit may be complete only now: it counts when it is logged
    assert [row.value for row in kafka.read(address, topic)] == [b"committed"]


def test_topics_are_not_created_automatically(own_broker):
    """A metadata request for a missing topic does not create it."""
    client = kafka.admin(own_broker.bootstrap_servers)
    client.list_topics("misspelled", timeout=60)
    assert kafka.topic_names(own_broker.bootstrap_servers, "misspelled") == set()


def test_the_broker_is_in_the_session_of_its_owner(own_broker):
    """Linux may leave a session of its own without time on a busy machine; a group keeps Ctrl-C away just as well."""
    assert os.getsid(own_broker.pid) == os.getsid(0)
    assert os.getpgid(own_broker.pid) != os.getpgid(0)


def test_records_of_any_age_are_kept_unless_a_topic_says_otherwise(own_broker):
    """A replay of old records takes longer than the default retention; a topic's own retention still applies."""
    servers = own_broker.bootstrap_servers
    kafka.create_topic(servers, "of-any-age")
    kafka.create_topic(servers, "of-a-day", config={"retention.ms": "86400000"})
    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in ("of-any-age", "of-a-day")]
    admin = kafka.admin(servers)  # one that goes ends its requests
    found = admin.describe_configs(wanted)
    retention = {resource.name: future.result(60)["retention.ms"].value for resource, future in found.items()}
    assert retention == {"of-any-age": "-1", "of-a-day": "86400000"}


def test_new_broker_reuses_a_given_data_directory(tmp_path, own_brokers):
    """A given data directory is kept: the next broker has its topics, and its port unless that is taken."""
    with own_brokers(tmp_path / "kafka", properties={"message.max.bytes": "2000000"}) as first:
        kafka.create_topic(first.bootstrap_servers, "kept")
        kafka.produce(first.bootstrap_servers, "kept", [("k", "v")])
    assert first.log_file.exists()
    with own_brokers(tmp_path / "kafka") as second:
        assert second.bootstrap_servers == first.bootstrap_servers
        assert [row.key for row in kafka.read(second.bootstrap_servers, "kept")] == [b"k"]
    host, port = first.bootstrap_servers.split(":")
    with socket.create_server((host, int(port))), own_brokers(tmp_path / "kafka") as third:
        assert third.bootstrap_servers != first.bootstrap_servers
        assert [row.key for row in kafka.read(third.bootstrap_servers, "kept")] == [b"k"]


def test_broker_that_ends_at_once_names_cause_and_log(own_brokers):
    """A setting that the broker rejects becomes an error that names it and the log, which is kept."""
    broker = own_brokers(properties={"num.partitions": "-5"})
    with pytest.raises(BrokerError, match=r"num\.partitions") as failure, broker:
        pass
    log = re.search(r"its log is (\S+):", str(failure.value))
    assert log is not None
    assert "num.partitions" in Path(log.group(1)).read_text(encoding="utf-8")
    broker._failed = False
    broker.close()


def test_a_broker_that_crashes_with_a_class_archive_starts_without_it(tmp_path, monkeypatch):
    """A truncated archive ends Java by SIGABRT, at each start. It is removed once, and other failures are told."""
    archive, launched, told = tmp_path / "classes.jsa", [], []
    archive.touch()
    broker = EmbeddedBroker(tmp_path / "kafka", on_step=told.append)

    def launch(command):
        launched.append(command)
        broker._crashed = any("Archive" in each for each in command)
        if broker._crashed:
            raise BrokerError("The embedded broker ended while it was starting")

    def command():
        return ["java", *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else [])]

    monkeypatch.setattr(broker, "_launch", launch)
    monkeypatch.setattr(broker, "_command", command)
    monkeypatch.setattr(jars, "remove_damaged", lambda _set: [])
    broker.start()
    assert [len(each) for each in launched] == [2, 1]
    assert "without damaged files" in told[0]
    monkeypatch.setattr(broker, "_command", lambda: ["java", "-XX:SharedArchiveFile=/nonexistent"])
    with pytest.raises(BrokerError, match="ended while"):
        broker.start()
    assert len(launched) == 3


def test_two_brokers_do_not_start_in_one_data_directory(tmp_path, monkeypatch):
    """They would damage its metadata before Kafka looks at its own lock. Later the directory is free again."""
    monkeypatch.setattr(embedded, "_LOCK_TIMEOUT_S", 0)
    first, second = EmbeddedBroker(tmp_path), EmbeddedBroker(tmp_path)
    for broker in (first, second):
        monkeypatch.setattr(broker, "_command", lambda: ["java"])
        monkeypatch.setattr(broker, "_launch", lambda _command: None)
    first.start()
    with pytest.raises(BrokerError, match=f"Another broker uses the data directory {tmp_path}: stop it, or choose"):
        second.start()
    first.close()
    second.start()
    second.close()


def test_the_data_directory_is_locked_until_java_has_ended(own_brokers, monkeypatch):
    """Also if its owner was killed, and its watchdog has yet to stop it."""
    monkeypatch.setattr(embedded, "_LOCK_TIMEOUT_S", 0)
    with own_brokers() as broker:
        broker._release_directory()
        with pytest.raises(BrokerError, match="Another broker uses"):
            EmbeddedBroker(broker.data_dir).start()
        assert broker.running


def test_taken_port_is_an_error_when_requested(tmp_path, own_brokers):
    """An explicit port is never replaced by another one."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        broker = own_brokers(tmp_path, port=port)
        with pytest.raises(BrokerError, match=rf"{port} \(Address already in use\); choose another port"):
            broker.start()
    assert not broker.running


def test_free_port_taken_meanwhile_is_replaced(monkeypatch, own_brokers):
    """Another program may bind a free port first: the broker then uses other ports."""
    tried = []

    def launch(broker, _command):
        tried.append((broker._port, broker._controller_port))
        if len(tried) < 3:
            raise BrokerError("Socket server failed to bind: Address already in use.")

    monkeypatch.setattr(EmbeddedBroker, "_launch", launch)
    with own_brokers() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{tried[-1][0]}"
    assert len({port for ports in tried for port in ports}) == 6


def test_temporary_directory_is_deleted_on_close(own_brokers):
    """Before the first start there is no address; after close no file remains."""
    broker = own_brokers()
    with pytest.raises(BrokerError, match="before it is started"):
        _ = broker.bootstrap_servers
    with pytest.raises(BrokerError, match="before it is started"):
        _ = broker.data_dir
    with pytest.raises(BrokerError, match="running"):
        broker.detach()
    with broker:
        directory = broker.data_dir
        assert directory.is_dir()
    assert not directory.exists()


def test_nothing_is_left_when_the_owner_is_killed(own_brokers):
    """SIGKILL to the owner process ends the broker, too, and removes its temporary directory."""
    code = """
        import sys
        from millpond.broker import EmbeddedBroker
        broker = EmbeddedBroker().start()
        print(broker.pid, broker.data_dir, flush=True)
        sys.stdin.read()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert Path(directory).is_dir()
        owner.send_signal(signal.SIGKILL)
    kafka.eventually(lambda: not Path(f"/proc/{pid}").exists(), "the broker is gone")
    kafka.eventually(lambda: not Path(directory).is_dir(), "its directory is gone")
