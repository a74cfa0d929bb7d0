"""Tell how far a snapshot is, while Spark is at work."""

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

_EVERY_S = 0.2


class Stage(StrEnum):
    """What is done at the moment."""

    BOUNDARIES = "asking the brokers"
    READING = "reading changelogs"
    WRITING = "writing files"
    TABLES = "writing tables"
    PUBLISHING = "publishing"


OnProgress = Callable[[Stage, int, int], None]
"""Told the stage, the tasks of Spark that are done, and how many are known; 0 of 0 while none are. Called from any thread."""


def no_progress(_stage: Stage, _done: int, _total: int) -> None:
    """Drop what is told."""


@contextlib.contextmanager
def watched(context: SparkContext, stage: Stage, on_progress: OnProgress) -> Iterator[None]:
    """Tell how many tasks are done of all jobs that start within the block; when it fails, cancel them.

    Args:
        context: runs the jobs.
        stage: what they are for.
        on_progress: is told, a few times per second.
    """
    group = f"millpond-{uuid.uuid4().hex}"  # not that of another snapshot in the same Spark
    context.setJobGroup(group, f"millpond: {stage}", interruptOnCancel=True)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY_S):
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
    """Return the tasks that are done, and all tasks, of the stages of a group of jobs that have begun."""
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
