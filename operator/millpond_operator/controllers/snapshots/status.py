"""The status of a StateBootstrap."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from millpond_operator.controllers.rollout.status import Condition, timestamp
from millpond_operator.kubernetes import shortened

__all__ = ("BootstrapPhase", "BootstrapStatus", "Count", "WrittenTable", "WrittenTables", "updated")

_MAX_MESSAGE = 1_000


class BootstrapPhase(StrEnum):
    """The phase of a snapshot."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_FINISHED = frozenset({BootstrapPhase.SUCCEEDED, BootstrapPhase.FAILED})

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number in the status; the API server rejects a larger one."""


class WrittenTable(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A table of the state catalog."""

    store: Annotated[str, msgspec.Meta(max_length=256)]
    rows: Count = 0
    undecoded_keys: Count = 0
    undecoded_values: Count = 0


WrittenTables = Annotated[tuple[WrittenTable, ...], msgspec.Meta(max_length=64)]
"""At most as many tables as the CRD allows."""


class BootstrapStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The part of a StateBootstrap's status that the operator writes. The Job's pod writes the progress."""

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
    """The tables by store; only the first ones where there are many."""
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> BootstrapStatus:
        """Return the status of an API server object; an empty one when it has none or an invalid one."""
        try:
            return msgspec.convert(raw or {}, cls)
        except msgspec.ValidationError:  # not written by the operator; its content can be observed again
            return cls()

    @property
    def finished(self) -> bool:
        """Whether the snapshot succeeded or failed."""
        return self.phase in _FINISHED

    @property
    def message(self) -> str:
        """The message of the condition Ready."""
        return next((each.message for each in self.conditions if each.type == "Ready"), "")


def updated(  # noqa: PLR0913 - the fields of a condition
    before: BootstrapStatus, phase: BootstrapPhase, reason: str, message: str, generation: int, now: datetime
) -> BootstrapStatus:
    """Return the status in a phase, with the conditions that follow from it.

    Args:
        before: the status so far: a condition whose status stays the same keeps its transition time.
        phase: the phase.
        reason: one word.
        message: one or two sentences.
        generation: the generation of the StateBootstrap.
        now: the current time.
    """
    known = {each.type: each for each in before.conditions}

    def condition(type: str, *, true: bool) -> Condition:
        last, status = known.get(type), str(true)
        since = last.last_transition_time if last is not None and last.status == status else timestamp(now)
        return Condition(type, status, reason, shortened(message, _MAX_MESSAGE), since, generation)

    conditions = [
        condition("Ready", true=phase is BootstrapPhase.SUCCEEDED),
        condition("Progressing", true=phase not in {*_FINISHED, BootstrapPhase.SUSPENDED}),
    ]
    if phase is BootstrapPhase.FAILED:
        conditions.append(condition("Stalled", true=True))
    return msgspec.structs.replace(
        before, phase=phase.value, observed_generation=generation, conditions=tuple(conditions)
    )
