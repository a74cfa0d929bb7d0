"""What follows each error of Kafka, for each kind of request."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from confluent_kafka import KafkaError

from millpond.runtime.error_codes import _CODES, Kind, Request, kind_of, may_repeat

CODES = {
    code: name for name in dir(KafkaError) if name.isupper() and isinstance(code := getattr(KafkaError, name), int)
}
"""All codes of the client."""
#: The codes whose exception is a `RetriableException` in Kafka's Java client 3.9, without those of share groups and of
#: elections, which workers do not request. 2 is about a record, whose producer Java repeats.
JAVA_REPEATS = (
    3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 88, 89, 100, 103, 106,
)  # fmt: skip
#: An `AuthorizationException` or an `AuthenticationException` there.
JAVA_FORBIDS = (29, 30, 31, 33, 34, 53, 58, 65)
FINAL = (Kind.FENCED, Kind.FATAL, Kind.FORBIDDEN, Kind.UNAUTHENTICATED)
#: Codes that ended workers or held them up.
REPEATED_READS = (
    "_DESTROY_BROKER", "_DESTROY", "_TRANSPORT", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_ALL_BROKERS_DOWN", "_RESOLVE",
    "_NOENT", "_WAIT_COORD", "_FAIL", "_UNKNOWN_BROKER", "_WAIT_CACHE", "BROKER_NOT_AVAILABLE", "STALE_BROKER_EPOCH",
)  # fmt: skip


def test_every_code_of_the_client_has_one_kind() -> None:
    """A new code of a later client is added on purpose. Until then it is unclear."""
    named = Counter(name for names in _CODES.values() for name in names.split())
    assert set(named) == set(CODES.values())
    assert set(named.values()) == {1}
    assert set(_CODES) == set(Kind)
    assert kind_of(KafkaError(987)) is Kind.UNCLEAR


@pytest.mark.parametrize("code", CODES, ids=CODES.values())
def test_each_code_leads_to_the_same_for_each_request(code: int) -> None:
    """By its kind alone: only reads are repeated after an unclear error, and nothing ever after a final one."""
    error = KafkaError(code)
    kind = kind_of(error)
    away, short = kind is Kind.AWAY, kind in (Kind.MISSING, Kind.UNCLEAR)
    expected = {
        Request.READ: (away or short, away),
        Request.COMMIT: (away, away),
        Request.BEGIN: (away or kind is Kind.UNCLEAR, away),
        Request.PRODUCE: (False, False),
    }
    assert {each: (may_repeat(error, each), may_repeat(error, each, math.inf)) for each in Request} == expected
    offered = KafkaError(code, "the client offers it", retriable=True)
    assert {may_repeat(offered, each, math.inf) for each in Request} == {kind not in FINAL}


@pytest.mark.parametrize("code", CODES, ids=CODES.values())
def test_fatal_error_and_failed_transaction_end_the_producer(code: int) -> None:
    """Whatever the code, and although the client calls it retriable."""
    assert not any(may_repeat(KafkaError(code, "x", fatal=True, retriable=True), each) for each in Request)
    assert not may_repeat(KafkaError(code, "x", retriable=True, txn_requires_abort=True), Request.PRODUCE)


@pytest.mark.parametrize("code", JAVA_REPEATS)
def test_reads_are_repeated_where_the_original_repeats_them(code: int) -> None:
    """At least for a while."""
    assert may_repeat(KafkaError(code), Request.READ)


@pytest.mark.parametrize("name", REPEATED_READS)
def test_reads_are_repeated_while_a_broker_is_away(name: str) -> None:
    """A frozen broker, one that restarts, or one that the cluster has replaced."""
    assert may_repeat(KafkaError(getattr(KafkaError, name)), Request.READ, math.inf)


@pytest.mark.parametrize("code", JAVA_FORBIDS)
def test_missing_rights_and_wrong_credentials_are_final(code: int) -> None:
    """They are told at once."""
    assert kind_of(KafkaError(code)) in (Kind.FORBIDDEN, Kind.UNAUTHENTICATED)
    assert not any(may_repeat(KafkaError(code), each) for each in Request)
