"""The StreamAssignment: the coordinator's stored assignment, arranged by worker."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from millpond.errors import MillpondError
from millpond.protocol import Epoch, Mark, Member, TopologySummary, View

from .metadata import metadata
from .names import API_VERSION, Object
from .streamapp import StreamApp

__all__ = ("InvalidStreamAssignment", "stream_assignment", "view_of")


_MARK = re.compile(r"(\d{1,19}):(\d{1,19})")


class InvalidStreamAssignment(MillpondError):
    """The object is not a StreamAssignment that this operator can read."""


class _Subtopology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: int
    partitions: int
    stateful: bool
    stores: list[str] = []
    sources: dict[str, int] = {}


class _Topology(msgspec.Struct, frozen=True, kw_only=True):
    hash: str
    subtopologies: list[_Subtopology]


class _Worker(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    incarnation: str = ""
    replaced: list[str] = []
    alive: bool = False
    draining: bool = False
    gone: bool = False
    """Whether only its owned tasks are known."""
    revision: str = ""
    address: str | None = None
    tags: dict[str, str] = {}
    rack: str | None = None
    owns: list[str] = []
    active: list[str] = []
    standby: list[str] = []
    warm_up: list[str] = []


class _Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    application: str
    term: int
    number: int
    worker_count: int | None = None
    task_count: int | None = None
    topology: _Topology | None = None
    workers: list[_Worker] = []
    committed: dict[str, str] = {}
    """How far each task was committed: owner epoch and sum of offsets, separated by a colon."""


def stream_assignment(app: StreamApp, view: View) -> Object:
    """Return the object that is stored before workers get the assignment.

    It omits what a later coordinator does not need: why tasks wait, the time since heartbeats, and the lag of copies.
    """
    workers = {member.worker: _worker(member) for member in view.members}

    def named(name: str) -> _Worker:
        if name not in workers:
            workers[name] = _Worker(name=name, gone=True)
        return workers[name]

    for task, owner in view.owners.items():
        named(owner).owns.append(task)
    for task, worker in view.active.items():
        named(worker).active.append(task)
    for task, several in view.standby.items():
        for worker in several:
            named(worker).standby.append(task)
    for task, several in view.warm_up.items():
        for worker in several:
            named(worker).warm_up.append(task)
    spec = _Spec(
        application=view.application,
        term=view.epoch.term,
        number=view.epoch.number,
        worker_count=sum(member.alive for member in view.members),
        task_count=sum(part.partitions for part in view.topology.subtopologies) if view.topology else 0,
        topology=msgspec.convert(view.topology, _Topology, from_attributes=True) if view.topology else None,
        workers=[worker for _, worker in sorted(workers.items())],
        committed={task: f"{mark.epoch}:{mark.offset}" for task, mark in sorted(view.committed.items())},
    )
    return {
        "apiVersion": API_VERSION,
        "kind": "StreamAssignment",
        "metadata": metadata(app),
        "spec": msgspec.to_builtins(spec),
    }


def view_of(object: Mapping[str, Any]) -> View:
    """Return the stored assignment as a coordinator needs it.

    Standbys and warm-ups of a task are in the order of their workers' names.

    Raises:
        InvalidStreamAssignment: the object is not valid.
    """
    try:
        spec = msgspec.convert(object["spec"], _Spec)
    except msgspec.ValidationError as error:
        metadata = object["metadata"]
        raise InvalidStreamAssignment(
            f"Cannot decode StreamAssignment '{metadata.get('namespace')}/{metadata.get('name')}' ({error}): delete "
            "it. The coordinator then learns everything from the workers."
        ) from error
    standby: dict[str, list[str]] = defaultdict(list)
    warm_up: dict[str, list[str]] = defaultdict(list)
    marks = {task: _MARK.fullmatch(text) for task, text in spec.committed.items()}
    for worker in spec.workers:
        for task in worker.standby:
            standby[task].append(worker.name)
        for task in worker.warm_up:
            warm_up[task].append(worker.name)
    return View(
        application=spec.application,
        epoch=Epoch(spec.term, spec.number),
        topology=msgspec.convert(spec.topology, TopologySummary, from_attributes=True) if spec.topology else None,
        members=tuple(_member(worker) for worker in spec.workers if not worker.gone),
        owners={task: worker.name for worker in spec.workers for task in worker.owns},
        active={task: worker.name for worker in spec.workers for task in worker.active},
        standby={task: tuple(workers) for task, workers in standby.items()},
        warm_up={task: tuple(workers) for task, workers in warm_up.items()},
        committed={task: Mark(int(found[1]), int(found[2])) for task, found in marks.items() if found is not None},
    )


def _worker(member: Member) -> _Worker:
    return _Worker(
        name=member.worker,
        incarnation=member.incarnation,
        replaced=list(member.replaced),
        alive=member.alive,
        draining=member.draining,
        revision=member.revision,
        address=member.address,
        tags=member.tags,
        rack=member.rack,
    )


def _member(worker: _Worker) -> Member:
    return Member(
        worker=worker.name,
        incarnation=worker.incarnation,
        replaced=tuple(worker.replaced),
        alive=worker.alive,
        draining=worker.draining,
        revision=worker.revision,
        address=worker.address,
        tags=worker.tags,
        rack=worker.rack,
    )
