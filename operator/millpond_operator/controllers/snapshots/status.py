"""The status of a StateBootstrap."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from millpond_operator.controllers.rollout.status import Condition, timestamp
from millpond_operator.kubernetes import shortened

__all__ = ("BootstrapPhase", "BootstrapStatus", "Count", "WrittenTable", "WrittenTables", "told_as")

_LONGEST = 1_000


class BootstrapPhase(StrEnum):
    """How far a snapshot is."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_FINISHED = frozenset({BootstrapPhase.SUCCEEDED, BootstrapPhase.FAILED})

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The API server refuses a status with a larger one."""


class WrittenTable(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A table of the state catalog."""

    store: Annotated[str, msgspec.Meta(max_length=256)]
    rows: Count = 0
    undecoded_keys: Count = 0
    undecoded_values: Count = 0


WrittenTables = Annotated[tuple[WrittenTable, ...], msgspec.Meta(max_length=64)]
"""As many as the CRD takes."""


class BootstrapStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the operator writes down of a StateBootstrap. Its progress is written by the Job's pod, and not known here."""

    observed_generation: int = 0
    phase: str = ""
    job: str = ""
    started_at: str = ""
    finished_at: str = ""
    failures: int = 0
    version: str = ""
    base: str = ""
    records: int | None = None
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    table_count: int | None = None
    tables: WrittenTables = ()
    """By store; the first ones where there are many."""
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> BootstrapStatus:
        """The status of an object from the API server; an empty one when it has none or none that can be read."""
        try:
            return msgspec.convert(raw or {}, cls)
        except msgspec.ValidationError:  # written by somebody else: everything in it can be found out again
            return cls()

    @property
    def finished(self) -> bool:
        """Whether nothing more is done for it."""
        return self.phase in _FINISHED

    @property
    def message(self) -> str:
        """What is told of it."""
        return next((each.message for each in self.conditions if each.type == "Ready"), "")


def told_as(
    before: BootstrapStatus, phase: BootstrapPhase, reason: str, message: str, generation: int, now: datetime
) -> BootstrapStatus:
    """The status in a phase, with the conditions that follow from it.

    Args:
        before: the status so far: a condition that does not flip keeps its time.
        phase: how far it is.
        reason: one word.
        message: a sentence or two.
        generation: of the StateBootstrap.
        now: the time of day.
    """
    known = {each.type: each for each in before.conditions}

    def condition(type: str, *, true: bool) -> Condition:
        last, status = known.get(type), str(true)
        since = last.last_transition_time if last is not None and last.status == status else timestamp(now)
        return Condition(type, status, reason, shortened(message, _LONGEST), since, generation)

    conditions = [
        condition("Ready", true=phase is BootstrapPhase.SUCCEEDED),
        condition("Progressing", true=phase not in {*_FINISHED, BootstrapPhase.SUSPENDED}),
    ]
    if phase is BootstrapPhase.FAILED:
        conditions.append(condition("Stalled", true=True))
    return msgspec.structs.replace(
        before, phase=phase.value, observed_generation=generation, conditions=tuple(conditions)
    )
