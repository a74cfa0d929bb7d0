"""Configurations of topics that brokers do not return: for lack of time, or for lack of a right."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millpond.errors import BrokerError, TopicError
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.missing_rights import Operation
from millpond.runtime.topics.identity import TopicIdentity
from millpond.runtime.topics.window_changelogs import WindowChangelog, keep_records

LOG = "app-counts-changelog"
CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": "5000"}


class _Client:
    """An admin client whose next requests for configurations fail with these codes."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def list_topics(self, _: object, timeout: float) -> None:
        del timeout

    def describe_topics(self, _: object, request_timeout: float) -> Mapping[str, Future[Any]]:
        del request_timeout
        return {LOG: _answered(SimpleNamespace(topic_id="id"))}

    def describe_configs(self, resources: list[Any], request_timeout: float) -> Mapping[Any, Future[Any]]:
        del request_timeout
        if self._codes:
            return {resources[0]: _answered(KafkaException(KafkaError(self._codes.pop(0))))}
        return {resources[0]: _answered({name: SimpleNamespace(value=value) for name, value in CONFIG.items()})}


def _answered(content: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(content, Exception):
        future.set_exception(content)
    else:
        future.set_result(content)
    return future


def _cluster(*codes: int) -> KafkaAdmin:
    made = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, patience=timedelta(seconds=20), stopping=lambda: False)
    client: Any = _Client(*codes)
    made._admin = client
    return made


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.UNKNOWN])
def test_configuration_that_was_not_answered_is_asked_for_again(code: int) -> None:
    """A request that timed out says nothing about the topic: its deletions must not be assumed to stay for a day."""
    assert _cluster(code, code).facts([LOG])[LOG] == TopicIdentity("id", 5_000, only_compacted=True)


def test_configuration_that_may_not_be_read_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """The worker starts, warns once, and takes nothing for granted."""
    cluster = _cluster(*[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2)
    for _ in range(2):
        assert not cluster.facts([LOG])[LOG].known
    assert caplog.text.count(f"User:ANONYMOUS lacks DescribeConfigs on topic '{LOG}'") == 1


def test_wrong_credentials_are_no_missing_configuration() -> None:
    """They are told, instead of being waited for."""
    with pytest.raises(BrokerError, match="cannot read the ids and configurations"):
        _cluster(KafkaError._AUTHENTICATION).facts([LOG])


class _Denying:
    """Brokers that do not return the configuration of the changelog."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.set: list[str] = []

    def configs(self, _: object) -> dict[str, dict[str, str]]:
        return {}

    def set_configs(self, values: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        self.set += values
        return dict.fromkeys(values, self.error) if self.error else {}

    def offsets_at(self, times: Any) -> Any:
        raise NotImplementedError

    def delete_before(self, offsets: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("error", ["", "Topic authorization failed"])
def test_warning_about_an_unknown_limit_states_none(error: str, caplog: pytest.LogCaptureFixture) -> None:
    """The limit is removed without knowing it. If that is not allowed either, only that is said."""
    cluster = _Denying(error)
    assert keep_records({"counts": WindowChangelog(LOG, 1, 26 * 3_600_000, own=False)}, {LOG}, cluster) == {}
    assert set(cluster.set) == {LOG}
    assert "93600000" not in caplog.text
    assert ("Grant 'DescribeConfigs' and 'AlterConfigs'" in caplog.text) == bool(error)


class _Hiding(_Client):
    """Brokers that list no topics, and tell why by topic."""

    def __init__(self, codes: Mapping[str, int]) -> None:
        super().__init__()
        self._why = codes

    def list_topics(self, _: object = None, timeout: float = 0) -> Any:
        return SimpleNamespace(cluster_id="c", topics={})

    def describe_topics(self, topics: Any, request_timeout: float) -> Mapping[str, Future[Any]]:
        return {each: _answered(KafkaException(KafkaError(self._why[each]))) for each in self._why}


def test_topics_that_are_hidden_are_not_taken_for_deleted() -> None:
    """A pattern's input whose user loses the right to see it would be left out in silence."""
    made = _cluster()
    client: Any = _Hiding({"hidden": KafkaError.TOPIC_AUTHORIZATION_FAILED, "gone": KafkaError.UNKNOWN_TOPIC_OR_PART})
    made._admin = client
    assert made.try_topics({"hidden": 3, "gone": 2}) == {"hidden": 3}
    with pytest.raises(TopicError, match=r"not exist, or may not be seen .* lacks Read on topic 'hidden'"):
        made.check_seen(dict.fromkeys(["hidden", "gone"], Operation.READ))
    with pytest.raises(TopicError, match=r"Nothing was created or changed.* lacks Write on topic 'hidden'"):
        made.partition_count("hidden")
