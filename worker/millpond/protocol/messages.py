"""The messages of the coordinator's protocol (design.md, "The coordinator").

A worker posts heartbeats; each is answered with the whole of what that worker should hold, at once when that differs
from what the heartbeat says it knows, else when it changes or `wait_ms` is over. A worker that has news while one is
waiting posts another, and the one that waits is answered without further delay.

The protocol is versioned as a whole. Unknown fields are ignored, so fields may be added within a version; what
changes the meaning of the others raises `PROTOCOL_VERSION`. Durations are integer milliseconds; nobody's clock is
compared with anybody else's.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = (
    "NOBODY",
    "PROTOCOL_VERSION",
    "Answer",
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
"""Stands for the owner of a task that has none, in `Heartbeat.taken_over`."""


class Role(enum.StrEnum):
    """What a worker is to a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARM_UP = "warm_up"
    """A standby that is bound to become active here: it does not count as a replica."""


class TaskState(enum.StrEnum):
    """How far a worker is with a task it holds."""

    ACQUIRING = "acquiring"
    """Active: it looks up whose the task is and where it stands."""
    RESTORING = "restoring"
    """Its stores are behind the changelogs: an active task does not process yet."""
    RUNNING = "running"
    """An active task processes; a copy has seen the ends of its changelogs at least once and follows them."""
    RELEASING = "releasing"
    """Active: the commit that names the next owner is on its way."""


class Brokers(enum.StrEnum):
    """Whether Kafka's brokers answer a worker."""

    ANSWERING = "answering"
    SILENT = "silent"
    """They do not, or did not a moment ago: it may be a broker that restarts."""
    LOST = "lost"
    """For longer than `brokers.unreachable.timeout.ms`: whoever has brokers should run its tasks."""


class Epoch(NamedTuple):
    """Orders what coordinators say: the term of the coordinator, and the number of the assignment within it."""

    term: int = 0
    number: int = 0


class Mark(NamedTuple):
    """How far a task was committed: of two marks of one task the greater is the later one."""

    epoch: int
    """Of its owner (`OffsetMetadata.epoch` of the worker)."""
    offset: int
    """The committed offsets of its inputs, summed."""


class SubtopologySummary(msgspec.Struct, frozen=True):
    """One sub-topology, as far as its placement goes."""

    id: int
    partitions: int
    """Tasks it has."""
    stateful: bool
    """Whether it has a store with a changelog."""
    stores: tuple[str, ...] = ()
    """Names of its stores."""
    sources: dict[str, int] = {}
    """Real names of its source topics, a pattern as `/pattern/`, each with the number of tasks that read it."""
    follows_inputs: bool = False
    """Whether the number of its tasks is that of its inputs' partitions at any time: it has no store and reads no internal topic."""


class TopologySummary(msgspec.Struct, frozen=True):
    """What the coordinator has to know about an application's topology."""

    hash: str
    """Equal for topologies whose workers may share an application: sub-topologies, stores and topics are alike."""
    subtopologies: tuple[SubtopologySummary, ...]


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that a worker holds."""

    role: Role
    state: TaskState = TaskState.RUNNING
    lag: int | None = None
    """Changelog records to go, over all stores; None while unknown. Meaningless for a task without state."""
    offset: int = 0
    """Changelog offsets reached, summed over all stores."""


def without_lags(tasks: Mapping[str, TaskReport]) -> dict[str, TaskReport]:
    """The tasks, with the lags of copies unknown: who reports them was frozen, and they may be far behind by now."""
    return {
        task: report if report.role is Role.ACTIVE else msgspec.structs.replace(report, lag=None)
        for task, report in tasks.items()
    }


class Trouble(msgspec.Struct, frozen=True):
    """Why a worker does not get on."""

    reason: str
    """The kind of trouble, as the class of an error is called: `BrokerError`."""
    message: str
    """One sentence with cause and cure."""


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says of itself."""

    application: str
    worker: str
    incarnation: str
    """Different for each start of the worker's process."""
    sequence: int
    """Grows with each heartbeat of an incarnation: of two that overtook each other the later one counts."""
    topology_hash: str
    """"" while it does not know yet: it is about to start, holds nothing, and is no member before it knows."""
    version: int = PROTOCOL_VERSION
    topology: TopologySummary | None = None
    """Sent with the first heartbeat, and when the answer asks for it."""
    epoch: Epoch = Epoch()
    """Of the last answer that the worker carries out; zero for none."""
    known_revision: int = 0
    """`Answer.revision` of the last answer."""
    coordinator: str = ""
    """`Answer.coordinator` of the last answer: of two coordinators with one term the greater counts."""
    acknowledged: int = 0
    """`Answer.sequence` of the last answer: what is repeated although it was acknowledged was found again."""
    tasks: dict[str, TaskReport] = {}
    """Everything it holds, by task id. An active task listed here is its own in Kafka, or it is about to find out."""
    committed: dict[str, Mark] = {}
    """How far it committed its active tasks, by task id; not those that it only looks up."""
    on_disk: dict[str, int] = {}
    """Tasks it has state of but does not hold: the sum of their changelog offsets."""
    taken_over: dict[str, str] = {}
    """Owners it found or made in Kafka since the last answer it had, by task id: the results of `Answer.take_over`
    and of hand-overs. They are repeated until an answer acknowledges the heartbeat's sequence."""
    address: str | None = None
    """Base URL of its HTTP interface, for other workers and people."""
    tags: dict[str, str] = {}
    """`client.tag.*`, e.g. zone and cluster."""
    rack: str | None = None
    """`client.rack`."""
    leaving: bool = False
    """It wants to end: its tasks go to others as soon as they can, and nothing new comes."""
    ended: bool = False
    """Its last word: the process ends now, and counts as gone at once."""
    revision: str = ""
    """What it runs, as whoever started it calls that: shown to people and tools, used for nothing else."""
    trouble: Trouble | None = None
    """What it has been waiting for, for longer than is usual."""
    brokers: Brokers = Brokers.ANSWERING
    """Whether Kafka answers it. A worker that lost its brokers cannot know whether any task is its own still."""
    kafka_cluster: str = ""
    """The id of the Kafka cluster that it reaches, as brokers tell it; "" while it does not know."""
    credentials_changed: bool = False
    """The files with its credentials are not those that it started with: its connections use the old ones."""
    clock_ms: int = 0
    """Its wall clock, epoch ms: shown to people, who see skew; used for nothing else."""
    wait_ms: int = 0
    """How long it would wait for news; 0 for none."""


class TakeOver(msgspec.Struct, frozen=True):
    """The order to move tasks to new owners in Kafka, under the transactional id of the previous one."""

    previous: str | None
    """Who must still own the tasks; None for nobody."""
    owners: dict[str, str]
    """The new owner of each task, by task id."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker should hold: the whole of it, not the difference."""

    epoch: Epoch
    coordinator: str
    """Different for each start of a coordinator; a later start has a greater one."""
    sequence: int = 0
    """Of the latest heartbeat taken in."""
    revision: int = 0
    """Grows when this worker's part changes; `epoch` grows when anybody's does."""
    version: int = PROTOCOL_VERSION
    tasks: dict[str, Role] = {}
    """Tasks to hold, by task id. An active one is the worker's own in Kafka already, as far as the coordinator knows."""
    release: dict[str, str] = {}
    """Active tasks of this worker to hand over, with their next owners: it names those in its last commit of them."""
    take_over: tuple[TakeOver, ...] = ()
    """What to take from owners that are gone, or from nobody."""
    committed: dict[str, Mark] = {}
    """How far others, or its former self, committed tasks that this worker has or is to take over, where it did not say so
    itself. What Kafka answers that is less is out of date (docs/decisions/0039-offsets-of-the-past.md)."""
    send_topology: bool = False
    """The next heartbeat should carry the topology."""
    may_leave: bool = False
    """Answer to `leaving`: nothing is left to wait for."""
    session_timeout_ms: int = 6_000
    """A worker that is not heard of for so long counts as gone."""


class RefusalCode(enum.StrEnum):
    """Why a heartbeat is refused."""

    UNSUPPORTED_VERSION = "unsupported_version"
    TOPOLOGY_MISMATCH = "topology_mismatch"
    """Others run another topology under this application's id."""
    REPLACED = "replaced"
    """A newer process has this worker's name."""
    UNKNOWN_APPLICATION = "unknown_application"
    UNAUTHORIZED = "unauthorized"
    """No token, or one that is not valid."""
    FORBIDDEN = "forbidden"
    """A valid token, for another worker."""
    BAD_REQUEST = "bad_request"
    CLAIM_PENDING = "claim_pending"
    """It is not decided yet whether the application's id is its own on the worker's Kafka cluster: ask again."""
    CLAIM_REFUSED = "claim_refused"
    """The application's id belongs to another application on that Kafka cluster, or the application to another cluster."""
    NOT_LEADING = "not_leading"
    """This coordinator does not lead, or learned that another one leads: ask again."""


class Refusal(msgspec.Struct, frozen=True):
    """Instead of an answer."""

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
    """Since its last heartbeat."""
    clock_skew_ms: int = 0
    tags: dict[str, str] = {}
    rack: str | None = None
    tasks: dict[str, TaskReport] = {}
    replaced: tuple[str, ...] = ()
    """Earlier incarnations that were seen, oldest first: they stay refused."""
    revision: str = ""
    """What it runs, as whoever started it calls that."""
    brokers: Brokers = Brokers.ANSWERING
    """Whether Kafka answers it."""
    trouble: Trouble | None = None
    """What it waits for, for longer than is usual. A worker that is not alive and has one is about to start."""
    credentials_changed: bool = False
    """It runs with credentials that are not those in its files any more."""


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole assignment, for people, for tools, and for workers that forward queries."""

    application: str
    epoch: Epoch
    topology: TopologySummary | None = None
    members: tuple[Member, ...] = ()
    owners: dict[str, str] = {}
    """Who owns each task in Kafka, as far as is known."""
    active: dict[str, str] = {}
    """Who should be active, by task id."""
    standby: dict[str, tuple[str, ...]] = {}
    warm_up: dict[str, tuple[str, ...]] = {}
    waiting: dict[str, str] = {}
    """Why a task is not where it should be, by task id, in words."""
    committed: dict[str, Mark] = {}
    """How far tasks were committed, as it was known when this was written down; nothing in what people and tools are shown."""


_encoder = msgspec.json.Encoder()
_heartbeats = msgspec.json.Decoder(Heartbeat)
_answers = msgspec.json.Decoder(Answer)
_refusals = msgspec.json.Decoder(Refusal)


def encode(message: msgspec.Struct) -> bytes:
    """A message as JSON."""
    return _encoder.encode(message)


def decode_heartbeat(raw: bytes) -> Heartbeat:
    """A heartbeat read back.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: it is none.
    """
    return _heartbeats.decode(raw)


def decode_answer(raw: bytes) -> Answer:
    """An answer read back; raises as `decode_heartbeat`."""
    return _answers.decode(raw)


def decode_refusal(raw: bytes) -> Refusal:
    """A refusal read back; raises as `decode_heartbeat`."""
    return _refusals.decode(raw)
