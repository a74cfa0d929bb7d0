"""What an application's settings say about its coordination."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millpond_operator.assignment import AssignmentOptions

__all__ = ("MOST_TASKS", "EngineOptions", "KafkaClaim")

#: Beyond this a topology is taken for a mistake.
MOST_TASKS = 1_000_000


@dataclass(frozen=True)
class KafkaClaim:
    """What is known of the Kafka cluster on which an application's id is its own.

    An application is its id on a Kafka cluster, however that is spelled in its addresses. Its workers say which cluster they
    reach, and get tasks only when that is the claimed one.
    """

    cluster: str = ""
    """The id of the cluster; "" while the application has none: then workers wait, and `Engine.reached` tells theirs."""
    refusal: str = ""
    """Why no worker is let in, as a sentence with cause and cure; "" when that is not so."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What the application's settings say about its coordination."""

    assignment: AssignmentOptions = AssignmentOptions()
    session_timeout: timedelta = timedelta(seconds=6)
    """A worker that is silent for longer counts as gone."""
    reconnect_timeout: timedelta = timedelta(seconds=1)
    """A worker whose connection broke counts as gone when it has not come back within this time: a process that was
    killed shows so. Never longer than the session timeout; a network that is cut for longer moves tasks in vain."""
    return_timeout: timedelta = timedelta(0)
    """How long the workers of the last assignment have at least to find a coordinator that starts again."""
    gathering: timedelta = timedelta(milliseconds=500)
    """A new application waits so long for further workers before its first assignment, and four times that at most."""
    pinned: str = ""
    """The hash of the only topology that is let in, whatever others run or ran; "" lets in the one that others run, and
    any one when nobody does."""
    claim: KafkaClaim | None = None
    """On which Kafka cluster workers may be; None for any, where there is nobody whose id it could be besides."""
    most_tasks: int = MOST_TASKS
    """Topologies of more are refused."""
    latest_term: int | None = None
    """No later coordinator has that term or a greater one, whatever workers say; None to believe them."""
