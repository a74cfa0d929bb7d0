"""The errors of Kafka: the kind of each code, and which requests may be repeated after an error of that kind.

Codes of brokers are in `KafkaError` under public names. The constants here are the codes of librdkafka itself: each is
the attribute of `KafkaError` with an underscore before its name.
"""
# ruff: noqa: SLF001 - confluent-kafka has no public names for them

from __future__ import annotations

import enum

from confluent_kafka import KafkaError

__all__ = (
    "ALL_BROKERS_DOWN",
    "AUTHENTICATION",
    "AUTO_OFFSET_RESET",
    "BAD_COMPRESSION",
    "BAD_MSG",
    "FATAL",
    "FENCED",
    "GAPLESS_GUARANTEE",
    "INCONSISTENT",
    "MSG_TIMED_OUT",
    "NOENT",
    "NOT_IMPLEMENTED",
    "PARTITION_EOF",
    "RECORDS_GONE",
    "RESOLVE",
    "SSL",
    "STATE",
    "TIMED_OUT",
    "TRANSPORT",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
    "WAIT_COORD",
    "Kind",
    "Request",
    "kind_of",
    "may_repeat",
)

ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
AUTHENTICATION = KafkaError._AUTHENTICATION
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
BAD_COMPRESSION = KafkaError._BAD_COMPRESSION
BAD_MSG = KafkaError._BAD_MSG
FATAL = KafkaError._FATAL
FENCED = KafkaError._FENCED
GAPLESS_GUARANTEE = KafkaError._GAPLESS_GUARANTEE
INCONSISTENT = KafkaError._INCONSISTENT
MSG_TIMED_OUT = KafkaError._MSG_TIMED_OUT
NOENT = KafkaError._NOENT
NOT_IMPLEMENTED = KafkaError._NOT_IMPLEMENTED
PARTITION_EOF = KafkaError._PARTITION_EOF
RESOLVE = KafkaError._RESOLVE
SSL = KafkaError._SSL
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION
UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC
WAIT_COORD = KafkaError._WAIT_COORD
#: The codes of a client that is told to read records that the log no longer has, or does not have yet.
RECORDS_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, AUTO_OFFSET_RESET)


class Kind(enum.Enum):
    """What an error says."""

    AWAY = "away"
    """A broker, a leader or a coordinator is not there at the moment, or asks to wait."""
    MISSING = "missing"
    """A topic or a partition does not exist. One whose broker is down for a moment looks the same to a client."""
    UNCLEAR = "unclear"
    """An error without a known cause; also any code that this table lacks."""
    RECORD = "record"
    """A broker or the client rejects a record."""
    UNREADABLE = "unreadable"
    """The client cannot decode records."""
    ABORTED = "aborted"
    """The transaction, or the delivery of a record, has failed; a new producer may repeat it."""
    FENCED = "fenced"
    """Another client uses the same transactional id or instance id."""
    FATAL = "fatal"
    """The client cannot be used any more."""
    FORBIDDEN = "forbidden"
    """This application's user lacks a right."""
    UNAUTHENTICATED = "unauthenticated"
    """Brokers do not accept the credentials, or the client does not accept theirs."""
    REFUSED = "refused"
    """The request itself is wrong, or it cannot be fulfilled; and events that are no errors."""


class Request(enum.Enum):
    """A kind of request."""

    READ = "read"
    """It changes nothing: metadata, offsets, configurations, records."""
    COMMIT = "commit"
    """A consumer's commit of offsets, which has the same effect if it is repeated."""
    BEGIN = "begin"
    """The initialisation of a producer's transactions; another attempt may use another producer."""
    PRODUCE = "produce"
    """Any other call of a producer."""


_CODES = {
    Kind.AWAY: """
        _DESTROY _DESTROY_BROKER _FAIL _TRANSPORT _RESOLVE _ALL_BROKERS_DOWN _UNKNOWN_BROKER _NODE_UPDATE _NOENT
        _TIMED_OUT _TIMED_OUT_QUEUE _WAIT_COORD _WAIT_CACHE _IN_PROGRESS _PREV_IN_PROGRESS _INTR _PARTIAL _OUTDATED
        _RETRY _QUEUE_FULL _ISR_INSUFF
        LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE
        REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION STALE_BROKER_EPOCH
        COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR STALE_CTRL_EPOCH NOT_CONTROLLER
        UNKNOWN_CONTROLLER_ID NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND CONCURRENT_TRANSACTIONS
        KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND REASSIGNMENT_IN_PROGRESS LISTENER_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND
        INVALID_FETCH_SESSION_EPOCH PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE
        UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED OPERATION_NOT_ATTEMPTED REBOOTSTRAP_REQUIRED
    """,
    Kind.MISSING: "_UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID",
    Kind.UNCLEAR: "UNKNOWN _CRIT_SYS_RESOURCE _FS _UNSUPPORTED_FEATURE _APPLICATION",
    Kind.RECORD: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP INVALID_MSG",
    Kind.UNREADABLE: "_BAD_MSG _BAD_COMPRESSION _NOT_IMPLEMENTED _UNDERFLOW",
    Kind.ABORTED: """
        INVALID_TXN_STATE TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED _MSG_TIMED_OUT _PURGE_QUEUE
        _PURGE_INFLIGHT _INVALID_DIFFERENT_RECORD
    """,
    Kind.FENCED: "_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING FENCED_INSTANCE_ID",
    Kind.FATAL: """
        _FATAL _GAPLESS_GUARANTEE _INCONSISTENT OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER
        UNKNOWN_PRODUCER_ID
    """,
    Kind.FORBIDDEN: """
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED
    """,
    Kind.UNAUTHENTICATED: """
        _AUTHENTICATION _SSL SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SECURITY_DISABLED
        DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE UNACCEPTABLE_CREDENTIAL
        PRINCIPAL_DESERIALIZATION_FAILURE
    """,
    Kind.REFUSED: """
        NO_ERROR _PARTITION_EOF _AUTO_OFFSET_RESET _LOG_TRUNCATION _NO_OFFSET _NOOP _ASSIGN_PARTITIONS
        _REVOKE_PARTITIONS _ASSIGNMENT_LOST _MAX_POLL_EXCEEDED _INVALID_ARG _INVALID_TYPE _STATE _CONFLICT _READ_ONLY
        _UNKNOWN_GROUP _UNKNOWN_PROTOCOL _EXISTING_SUBSCRIPTION _NOT_CONFIGURED _KEY_SERIALIZATION _VALUE_SERIALIZATION
        _KEY_DESERIALIZATION _VALUE_DESERIALIZATION
        OFFSET_OUT_OF_RANGE INVALID_MSG_SIZE OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE TOPIC_EXCEPTION
        INVALID_REQUIRED_ACKS ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID
        INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS INVALID_PARTITIONS
        INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG INVALID_REQUEST
        UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION INVALID_TRANSACTION_TIMEOUT NON_EMPTY_GROUP GROUP_ID_NOT_FOUND
        TOPIC_DELETION_DISABLED UNSUPPORTED_COMPRESSION_TYPE MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED
        ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC RESOURCE_NOT_FOUND DUPLICATE_RESOURCE
        INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
        UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE
        UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND
        INVALID_SHARE_SESSION_EPOCH SHARE_SESSION_LIMIT_REACHED FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER
        VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH
        STREAMS_TOPOLOGY_FENCED
    """,
}
#: Names that the installed client lacks are left out.
_KINDS: dict[int, Kind] = {
    getattr(KafkaError, name): kind
    for kind, names in _CODES.items()
    for name in names.split()
    if hasattr(KafkaError, name)
}
#: A repetition never helps, whatever the client says.
_FINAL = frozenset({Kind.FENCED, Kind.FATAL, Kind.FORBIDDEN, Kind.UNAUTHENTICATED})
#: These may pass, but not after a long time.
_SHORT = {
    Request.READ: frozenset({Kind.MISSING, Kind.UNCLEAR}),
    Request.BEGIN: frozenset({Kind.UNCLEAR}),
}
_SHORT_S = 30.0


def kind_of(error: KafkaError) -> Kind:
    """Return the kind of an error, by its code."""
    return _KINDS.get(error.code(), Kind.UNCLEAR)


def may_repeat(error: KafkaError, request: Request, waited_s: float = 0.0) -> bool:
    """Return whether a request that ended with an error may be repeated.

    Args:
        error: the error.
        request: the kind of the request.
        waited_s: the time since the first attempt, in seconds.
    """
    kind = kind_of(error)
    if kind in _FINAL or error.fatal():
        return False
    if request is Request.PRODUCE:
        # Only the client knows whether its state allows that. All else ends the producer (decision 0013).
        return error.retriable() and not error.txn_requires_abort()
    if kind is Kind.AWAY or error.retriable():
        return True
    return kind in _SHORT.get(request, ()) and waited_s < _SHORT_S
