"""Report the progress of a snapshot while Spark works."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("OnProgress", "Stage", "no_progress", "watched")

_INTERVAL_S = 0.2


class Stage(StrEnum):
    """The current step of a snapshot."""

    BOUNDARIES = "asking the brokers"
    READING = "reading changelogs"
    WRITING = "writing files"
    TABLES = "writing tables"
    PUBLISHING = "publishing"


OnProgress = Callable[[Stage, int, int], None]
"""Called with the stage, the number of finished Spark tasks, and of known ones; 0 and 0 at first. From any thread."""


def no_progress(_stage: Stage, _done: int, _total: int) -> None:
    """Report nothing."""


@contextlib.contextmanager
def watched(context: SparkContext, stage: Stage, on_progress: OnProgress) -> Iterator[None]:
    """Report the finished tasks of all Spark jobs that start within the block; cancel the jobs if the block fails.

    Args:
        context: runs the jobs.
        stage: the current step of the snapshot.
        on_progress: called a few times per second.
    """
    group = f"millpond-{uuid.uuid4().hex}"  # unique, for other snapshots in the same Spark
    context.setJobGroup(group, f"millpond: {stage}", interruptOnCancel=True)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_INTERVAL_S):
            with contextlib.suppress(Exception):  # Spark may be stopped meanwhile
                on_progress(stage, *_tasks(context, group))

    on_progress(stage, 0, 0)
    watcher = threading.Thread(target=watch, name="millpond-spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # Spark may be what failed
            context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        watcher.join()


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Return the number of finished tasks, and of all tasks, in the stages of a job group that have begun."""
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for number in found.stageIds if found is not None else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total
