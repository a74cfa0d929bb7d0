"""The messages between workers and the coordinator.

A worker posts heartbeats. Each answer contains all tasks that the worker should hold. The coordinator answers at once
if that differs from the answer the worker has, else when it changes or after `wait_ms`. A worker with an urgent report
posts a second heartbeat; then the coordinator answers the first at once.

The protocol has one version for all messages. Unknown fields are ignored, so fields may be added within a version; a
change to the meaning of other fields raises `PROTOCOL_VERSION`. Durations are integer milliseconds; clocks of different
machines are never compared.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from millpond.texts import encoded

from .load_rates import WorkerRates
from .loads import Int64, WorkerLoad
from .overview import TopologyOverview

__all__ = (
    "NOBODY",
    "PROTOCOL_VERSION",
    "Answer",
    "BrokerReach",
    "Brokers",
    "Epoch",
    "Heartbeat",
    "Mark",
    "Member",
    "Refusal",
    "RefusalCode",
    "Role",
    "SubtopologySummary",
    "TakeOver",
    "TaskReport",
    "TaskState",
    "TopologySummary",
    "Trouble",
    "View",
    "decode_answer",
    "decode_heartbeat",
    "decode_refusal",
    "encode",
    "without_lags",
)

PROTOCOL_VERSION = 1

NOBODY = ""
"""The owner of a task without an owner, in `Heartbeat.taken_over`."""


class Role(enum.StrEnum):
    """The role of a worker for a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARM_UP = "warm_up"
    """A standby that will be promoted on this worker; it does not count as a replica."""


class TaskState(enum.StrEnum):
    """The state of a task on a worker that holds it."""

    ACQUIRING = "acquiring"
    """Active: the worker looks up the owner and the committed offsets of the task."""
    RESTORING = "restoring"
    """The stores are behind the changelogs; an active task does not process yet."""
    RUNNING = "running"
    """An active task processes; a copy has reached the ends of its changelogs at least once and follows them."""
    RELEASING = "releasing"
    """Active: the commit that hands the task over is in progress."""


class Brokers(enum.StrEnum):
    """The contact of a worker with Kafka's brokers."""

    ANSWERING = "answering"
    SILENT = "silent"
    """The brokers do not answer, or did not answer a moment ago: a broker may be restarting."""
    LOST = "lost"
    """The brokers have not answered for `brokers.unreachable.timeout.ms`: another worker should run the tasks."""


class BrokerReach(msgspec.Struct, frozen=True):
    """Which of the brokers that the application needs answer a worker, by broker id.

    A broker that has changed its state a short time ago is in neither tuple.
    """

    reached: tuple[int, ...]
    """Brokers that have answered for at least two thirds of the limit."""
    missing: tuple[int, ...]
    """Brokers that have not answered for at least half of the limit, although they lead partitions."""
    settled: bool
    """Whether each broker is in one of the two tuples."""
    limit_ms: Annotated[int, msgspec.Meta(gt=0)]
    """`brokers.unreachable.timeout.ms` of the worker."""


class Epoch(NamedTuple):
    """The order of assignments: the term of the coordinator, and the number of the assignment within the term."""

    term: int = 0
    number: int = 0


class Mark(NamedTuple):
    """The progress of a task's commits. Of two marks of a task, the greater is the later one."""

    epoch: int
    """The epoch of the task's owner (`OffsetMetadata.epoch` of the worker)."""
    offset: int
    """The sum of the committed offsets of the task's inputs."""


class SubtopologySummary(msgspec.Struct, frozen=True):
    """A sub-topology, with the facts that matter for the assignment."""

    id: int
    partitions: Annotated[int, msgspec.Meta(ge=0)]
    """The number of tasks."""
    stateful: bool
    """Whether the sub-topology has a store with a changelog."""
    stores: tuple[str, ...] = ()
    """The names of the stores."""
    sources: dict[str, int] = {}
    """Number of tasks that read each source topic, by real name; a pattern is written as `/pattern/`."""
    follows_inputs: bool = False
    """Whether the number of tasks follows the partitions of the inputs: the case without stores and internal inputs."""


class TopologySummary(msgspec.Struct, frozen=True):
    """The facts about a topology that the coordinator needs."""

    hash: str
    """Equal for topologies with the same sub-topologies, stores and topics; their workers may share an application."""
    subtopologies: tuple[SubtopologySummary, ...]


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that a worker holds."""

    role: Role
    state: TaskState = TaskState.RUNNING
    lag: Int64 | None = None
    """Lag over all stores, in changelog records; None while unknown. Meaningless for a task without state."""
    offset: Int64 = 0
    """Sum of the changelog offsets of its stores."""


def without_lags(tasks: Mapping[str, TaskReport]) -> dict[str, TaskReport]:
    """Return the tasks with unknown lags of copies, for a worker that was frozen: the lags may be out of date."""
    return {
        task: report if report.role is Role.ACTIVE else msgspec.structs.replace(report, lag=None)
        for task, report in tasks.items()
    }


class Trouble(msgspec.Struct, frozen=True):
    """The reason why a worker makes no progress, or a warning that it gives while it works."""

    reason: str
    """The kind of trouble, named like the class of an error: `BrokerError`."""
    message: str
    """One sentence with cause and cure."""


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report of a worker about itself."""

    application: str
    worker: str
    incarnation: str
    """Different for each start of the worker's process."""
    sequence: int
    """Increases with each heartbeat of an incarnation, so that a heartbeat that arrives late is recognized."""
    topology_hash: str
    """Hash of the topology; "" while a starting worker does not know it. Such a worker is not a member yet."""
    version: int = PROTOCOL_VERSION
    topology: TopologySummary | None = None
    """Sent with the first heartbeat, and when an answer requests it."""
    epoch: Epoch = Epoch()
    """Epoch of the last answer that the worker applies; zero for none."""
    known_revision: int = 0
    """`Answer.revision` of the last answer."""
    coordinator: str = ""
    """`Answer.coordinator` of the last answer: of two coordinators with the same term, the greater one leads."""
    acknowledged: int = 0
    """`Answer.sequence` of the last answer: an owner that is repeated after its acknowledgement was found again."""
    tasks: dict[str, TaskReport] = {}
    """All held tasks, by task id. The worker owns the active ones in Kafka, or is looking up their owners."""
    committed: dict[str, Mark] = {}
    """Progress of the commits of active tasks, by task id, without tasks whose owner lookup has no answer yet."""
    on_disk: dict[str, int] = {}
    """Sum of changelog offsets of tasks that have state on disk but are not held, by task id."""
    taken_over: dict[str, str] = {}
    """Owners that the worker found or set in Kafka since the last answer, by task id: the results of
    `Answer.take_over` and of hand-overs. They are repeated until an answer acknowledges the heartbeat's sequence."""
    address: str | None = None
    """Base URL of the worker's HTTP interface, for other workers and people."""
    tags: dict[str, str] = {}
    """`client.tag.*`, such as zone and cluster."""
    rack: str | None = None
    """`client.rack`."""
    leaving: bool = False
    """Whether the worker wants to end: its tasks move to other workers as soon as possible, and it gets no new ones."""
    ended: bool = False
    """Whether the process ends now, so that the worker counts as dead at once."""
    revision: str = ""
    """Name of the worker's revision, set by its deployment; only shown to people and tools."""
    trouble: Trouble | None = None
    """The reason why the worker makes no progress, if any."""
    brokers: Brokers = Brokers.ANSWERING
    """Whether Kafka answers the worker. Without brokers, a worker cannot know whether it still owns its tasks."""
    kafka_cluster: str = ""
    """Id of the worker's Kafka cluster, from the brokers; "" while unknown."""
    credentials_changed: bool = False
    """Whether the files with credentials have changed since the worker's start; its connections use the old ones."""
    clock_ms: Int64 = 0
    """The worker's wall-clock time, epoch ms; only shown to people as clock skew."""
    wait_ms: int = 0
    """How long the coordinator may delay the answer; 0 for an answer at once."""
    load: WorkerLoad | None = None
    """The last measurement of the worker's load; None if an earlier heartbeat carried it."""
    graph: TopologyOverview | None = None
    """The drawing of the topology, sent together with `topology` and when an answer requests it; None for a topology
    that is too large to draw."""
    reach: BrokerReach | None = None
    """Which brokers answer the worker; None while this is not known."""


class TakeOver(msgspec.Struct, frozen=True):
    """The instruction to set new owners of tasks in Kafka, under the transactional id of the previous owner."""

    previous: str | None
    """The worker that must still own the tasks; None for tasks without an owner."""
    owners: dict[str, str]
    """The new owner of each task, by task id."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """All tasks that a worker should hold, not only the changes."""

    epoch: Epoch
    coordinator: str
    """Id of the coordinator's process; a later start has a greater one."""
    sequence: int = 0
    """`Heartbeat.sequence` of the latest heartbeat processed."""
    revision: int = 0
    """Increases when this worker's part of the assignment changes; `epoch` increases with every change."""
    version: int = PROTOCOL_VERSION
    tasks: dict[str, Role] = {}
    """Tasks to hold, by task id. As far as the coordinator knows, the worker already owns the active ones in Kafka."""
    release: dict[str, str] = {}
    """Next owner of each active task to hand over, by task id: the worker names it in its last commit of the task."""
    take_over: tuple[TakeOver, ...] = ()
    """Tasks to take over from dead owners, or to claim."""
    committed: dict[str, Mark] = {}
    """Progress of the commits of other workers, or of this worker's earlier processes, for tasks that it holds or takes
    over. A smaller committed offset from Kafka is out of date (docs/decisions/0039-offsets-of-the-past.md)."""
    send_topology: bool = False
    """Whether the next heartbeat should carry the topology."""
    send_graph: bool = False
    """Whether the next heartbeat should carry the drawing of the topology."""
    may_leave: bool = False
    """The answer to `leaving`: the worker may end."""
    session_timeout_ms: int = 6_000
    """A worker without a heartbeat for this long counts as dead, in milliseconds."""
    interval_ms: int = 0
    """The longest time between two heartbeats, in milliseconds; 0 for nearly a third of the session timeout, the
    longest that a worker accepts."""


class RefusalCode(enum.StrEnum):
    """The reason why a heartbeat is rejected."""

    UNSUPPORTED_VERSION = "unsupported_version"
    TOPOLOGY_MISMATCH = "topology_mismatch"
    """Other workers run another topology under this application id."""
    REPLACED = "replaced"
    """A newer process runs under this worker's name."""
    UNKNOWN_APPLICATION = "unknown_application"
    UNAUTHORIZED = "unauthorized"
    """The request has no valid token."""
    FORBIDDEN = "forbidden"
    """The token is valid, but for another worker."""
    BAD_REQUEST = "bad_request"
    CLAIM_PENDING = "claim_pending"
    """The claim of the application id on the worker's Kafka cluster is not decided yet: retry."""
    CLAIM_REFUSED = "claim_refused"
    """The application id is claimed by another application on this Kafka cluster, or by this one on another cluster."""
    NOT_LEADING = "not_leading"
    """This coordinator does not lead, or no longer leads: retry."""


class Refusal(msgspec.Struct, frozen=True):
    """The rejection of a heartbeat."""

    code: RefusalCode
    message: str
    """One sentence with cause and cure."""


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker as the coordinator sees it, for people and for queries."""

    worker: str
    address: str | None = None
    incarnation: str = ""
    alive: bool = True
    draining: bool = False
    silent_ms: int = 0
    """Time since the last heartbeat."""
    clock_skew_ms: int = 0
    tags: dict[str, str] = {}
    rack: str | None = None
    tasks: dict[str, TaskReport] = {}
    replaced: tuple[str, ...] = ()
    """Earlier incarnations, oldest first; their heartbeats are rejected."""
    revision: str = ""
    """Name of the worker's revision, set by its deployment."""
    brokers: Brokers = Brokers.ANSWERING
    """Whether Kafka answers the worker."""
    cut_off: bool = False
    """Whether it gets no tasks, because brokers that another worker reaches do not answer it."""
    trouble: Trouble | None = None
    """The reason why the worker makes no progress, if any. A worker that has one and is not alive is starting."""
    credentials_changed: bool = False
    """Whether the files with credentials have changed since the worker's start."""
    load: WorkerLoad | None = None
    """The load of its process, as it reported it last; None while it does not measure."""
    rates: WorkerRates | None = None
    """The rates of the last 6 to 12 s; None until they are known."""


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole assignment, for people, tools, and workers that forward queries."""

    application: str
    epoch: Epoch
    topology: TopologySummary | None = None
    members: tuple[Member, ...] = ()
    owners: dict[str, str] = {}
    """Known owner of each task in Kafka, by task id."""
    active: dict[str, str] = {}
    """Worker that each task is assigned to as active, by task id."""
    standby: dict[str, tuple[str, ...]] = {}
    warm_up: dict[str, tuple[str, ...]] = {}
    waiting: dict[str, str] = {}
    """Why a task is not yet where it is assigned, by task id, as text."""
    committed: dict[str, Mark] = {}
    """Progress of the commits of tasks, by task id, in the saved assignment; empty in views for people and tools."""
    graph: TopologyOverview | None = None
    """The drawing of the topology, without figures; None while no worker has sent it. It is not saved."""
    goals: dict[str, str] = {}
    """Worker that each waiting task runs on in the end, by task id. It is not saved."""


_encoder = msgspec.json.Encoder()
_heartbeats = msgspec.json.Decoder(Heartbeat)
_answers = msgspec.json.Decoder(Answer)
_refusals = msgspec.json.Decoder(Refusal)


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message as JSON."""
    return encoded(message, _encoder)


def decode_heartbeat(raw: bytes) -> Heartbeat:
    """Decode a heartbeat.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: the bytes are not a valid heartbeat.
    """
    return _heartbeats.decode(raw)


def decode_answer(raw: bytes) -> Answer:
    """Decode an answer; raises like `decode_heartbeat`."""
    return _answers.decode(raw)


def decode_refusal(raw: bytes) -> Refusal:
    """Decode a rejection; raises like `decode_heartbeat`."""
    return _refusals.decode(raw)
