"""The view of an application that has only one worker and no coordinator: what the worker knows of itself."""

from __future__ import annotations

from millpond.protocol import Epoch, Member, Role, View
from millpond.protocol.load_rates import rates
from millpond.protocol.loads import WorkerLoad
from millpond.protocol.topology_overview import topology_overview
from millpond.runtime.topics.plan import summary

from .parts import WorkerParts

__all__ = ("own_view",)


def own_view(parts: WorkerParts, before: WorkerLoad | None) -> View:
    """Return the view of the worker's own application. Only the loop may call it.

    Args:
        parts: the worker.
        before: an earlier load of the same process, for rates; None for no rates.
    """
    config, load = parts.config, parts.load.latest
    held = {str(task): each.report() for task, each in parts.executor.held.items()}
    later = load is not None and before is not None and load.measured_ms > before.measured_ms
    member = Member(
        config.worker_id,
        address=parts.admission.address,
        tasks=held,
        brokers=parts.contact.brokers,
        trouble=parts.blockers.trouble(),
        load=load,
        rates=rates(before, load) if later and before is not None and load is not None else None,
    )
    own = {task: config.worker_id for task, report in held.items() if report.role is Role.ACTIVE}
    return View(
        application=config.application_id,
        epoch=Epoch(),
        topology=summary(parts.assembly.plan),
        members=(member,),
        owners=own,
        active=own,
        graph=topology_overview(parts.topology, parts.assembly.environment.real_topic),
    )
