"""The states of the ownership model: what is committed, what each holder of a transactional id knows, transactions.

Three workers, two tasks, and Kafka. What a state holds, and why no more is needed:

- **Offsets** are only compared with each other. So nobody has a number: what somebody knows of a task is either still
  what is committed, or stale. However many commits there are, the number of states stays finite.
- **Producer epochs** decide one thing: whose producer of a transactional id is the newest one. So each id has a
  holder: the worker itself, or the executor of a take-over. What a process believes that lost an id, by a crash, a
  pause or an executor, does not matter: all its requests are rejected until it initialises the id again. It is
  therefore the same as a worker that is down. A second process of a worker is the worker after `init_transactions`;
  the first has lost the id. A process that initialised an id and has read nothing yet has no name: it may lose the
  id to another with no other effect. So this step leaves the id without a holder, with its open transaction
  aborted, and the first reading names it.
- **Late requests** of a producer that is silent now arrive as long as its id is not initialised again: a transaction
  whose producer has gone can still become pending, and be committed.
- **Transactions** have a stage; the marker that commits offsets and each changelog's marker are written separately and
  in any order. An abort's markers are written together: nobody may act on the id's tasks before all of them are.
- **Lookups** change nothing before Kafka reads for them, so request and reading are one step, possible whenever the
  offsets are stable. The answer travels: `Know.MINE` is an answer on its way or a task that restores. An answer to an
  older number is ignored, which is the same as no answer: it exists only in the mutant that accepts it.
- **Outdated answers** (docs/decisions/0064-offsets-of-a-frozen-broker.md): a broker that coordinated the group once may
  tell anybody that a task is still his, at an offset that others went on from. The model gives such an answer whenever
  somebody may ask, also where no earlier commit would explain it, and its offset is always stale. The comparison
  before a commit reads the truth.
- **The coordinator** does not occur: every order is possible at any time. Hold, drop, release to anybody, take over
  from anybody for anybody, by any number of executors.
- **Time** does not occur: a step may be put off for ever, so every pause and every timeout is possible at every point.

Three workers, since a commit concerns at most the owner whose id it uses, the owner it names and one who comes between;
two tasks, since a task is bound to others only by sharing a transaction, which may name two different owners.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = (
    "IN_FLIGHT",
    "NOBODY",
    "NOTHING_KNOWN",
    "OPEN",
    "TASKS",
    "UNOWNED",
    "WORKERS",
    "Content",
    "Extra",
    "Holder",
    "Identity",
    "Know",
    "Knowledge",
    "Stage",
    "State",
    "Step",
    "after_marker",
    "as_aborted",
    "as_normal",
    "as_settled",
    "as_stale",
    "forgetting",
    "is_pending",
    "knowing",
)

WORKERS = (0, 1, 2)
TASKS = (0, 1)
NOBODY = 3
"""The owner of unowned tasks; and the place, in a state, of the identity under which they are claimed."""
UNOWNED = NOBODY


class Holder(enum.IntEnum):
    """The process with the newest producer of a transactional id."""

    NONE = 0
    """No process, or one that has read nothing yet."""
    SELF = 1
    EXECUTOR = 2


class Know(enum.IntEnum):
    """The holder's knowledge of a task."""

    NOTHING = 0
    MINE = 1
    """A stable read named the holder: an answer on its way, a task that restores, or an executor's reading."""
    RUNS = 2
    INCOMPLETE = 3
    """It runs on state that lacks commits of its predecessor."""
    COMMITTING = 4
    """In the transaction in flight, and running after it."""
    LEAVING = 5
    """In the transaction in flight, and handed over by it."""
    AHEAD = 6
    """It runs, and its last commit is decided; the marker that makes its offset the committed one is not written."""


class Stage(enum.IntEnum):
    """The stage of the transaction of an id."""

    NONE = 0
    BEGUN = 1
    """Changelog records are written; the request that makes offsets pending is on its way."""
    PENDING = 2
    """Offsets are pending; the request that commits is on its way."""
    COMMITTED = 3
    """The transaction coordinator has decided; some marker is not written yet."""
    ABORTED = 4
    COMPARED = 5
    """Pending, and the offsets from which it goes on were still the committed ones. Only with outdated answers."""


OPEN = frozenset({Stage.BEGUN, Stage.PENDING, Stage.COMPARED})


class Content(NamedTuple):
    """The offset and owner that a transaction commits for a task."""

    owner: int
    work: bool
    """Whether it moves the offset; a change of owner alone does not."""
    stale: bool = False
    incomplete: bool = False


Knowledge = tuple[Know, bool]
"""The knowledge of a task, and whether it is stale."""
IN_FLIGHT = frozenset({Know.COMMITTING, Know.LEAVING})
NOTHING_KNOWN: Knowledge = (Know.NOTHING, False)


class Identity(NamedTuple):
    """A transactional id: its newest producer's holder, and its transaction."""

    holder: Holder = Holder.NONE
    knows: tuple[Knowledge, ...] = (NOTHING_KNOWN,) * len(TASKS)
    stage: Stage = Stage.NONE
    contents: tuple[Content | None, ...] = (None,) * len(TASKS)
    """Offsets whose marker is not written yet."""
    logs: tuple[bool, ...] = (False,) * len(TASKS)
    """Changelogs whose marker is not written yet."""


class Extra(NamedTuple):
    """Something that exists only in a mutant: an old answer, an executor without fencing, a late duplicate."""

    kind: str
    identity: int
    task: int
    stale: bool


State = tuple[int, int, int, int, int, int, frozenset[Extra]]
"""The owner committed for each task, the identities of the three workers and `UNOWNED` (as numbers), extras."""


class Step(NamedTuple):
    """One step: what happens, and the state after it."""

    label: str
    after: State
    violation: str | None = None
    progress: int | None = None
    """Tasks whose offsets it moved, as bits."""
    actor: int | None = None
    """The worker without which it cannot happen; None for brokers and executors."""
    late: bool = False
    """Whether it is a request of a silent process, or offsets that expire: nothing to rely on."""


def is_pending(identity: Identity, task: int) -> bool:
    return identity.contents[task] is not None and identity.stage is not Stage.BEGUN


def as_aborted(identity: Identity) -> Identity:
    """The identity after its transaction was aborted, by an initialisation of the id or a timeout."""
    if identity.stage is Stage.BEGUN:
        return identity._replace(stage=Stage.ABORTED, contents=(None, None))
    if identity.stage in {Stage.PENDING, Stage.COMPARED}:
        contents = tuple(None if each is None else Content(NOBODY, work=False) for each in identity.contents)
        return identity._replace(stage=Stage.ABORTED, contents=contents)
    return identity


def as_normal(identity: Identity) -> Identity:
    """The identity without a holder if that knows nothing."""
    return identity if identity.knows != Identity().knows else identity._replace(holder=Holder.NONE)


def as_settled(identity: Identity) -> Identity:
    """The identity without a transaction whose markers are all written."""
    if identity.stage is Stage.COMMITTED and not any(identity.contents) and not any(identity.logs):
        return identity._replace(stage=Stage.NONE)
    return identity


def after_marker(knowledge: Knowledge, content: Content | None) -> Knowledge:
    know, stale = knowledge
    if know is Know.COMMITTING:
        return Know.RUNS if content is None else Know.AHEAD, stale
    return NOTHING_KNOWN if know is Know.LEAVING else knowledge


def knowing(identity: Identity, task: int, know: Know) -> Identity:
    knows = list(identity.knows)
    knows[task] = (know, knows[task][1])
    return identity._replace(knows=tuple(knows))


def forgetting(identity: Identity, task: int) -> Identity:
    return identity._replace(
        knows=tuple(NOTHING_KNOWN if each == task else know for each, know in enumerate(identity.knows))
    )


def as_stale(identity: Identity, task: int, *, own: bool) -> Identity:
    know, stale = identity.knows[task]
    content = identity.contents[task]
    if own and know is Know.AHEAD:
        knows = list(identity.knows)
        knows[task] = (Know.RUNS, stale)
        identity = identity._replace(knows=tuple(knows))
    elif know is not Know.NOTHING and not stale and not (own and know in IN_FLIGHT):
        knows = list(identity.knows)
        knows[task] = (know, True)
        identity = identity._replace(knows=tuple(knows))
    if content is not None and not content.stale and identity.stage is not Stage.ABORTED:
        contents = list(identity.contents)
        contents[task] = content._replace(stale=True)
        identity = identity._replace(contents=tuple(contents))
    return identity
