"""One reconcile pass over one StreamApp: observe, decide, save the intent, act.

A pass is level-based: it needs to know nothing but the current state, may be interrupted after every write, and writes
nothing when there is nothing to change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from millpond.protocol import clock
from millpond_operator.autoscaling import AutoscalingStatus
from millpond_operator.controllers.allowed import Allowed
from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.events import EventHistory, EventRecorder
from millpond_operator.controllers.pass_context import AppMemory, Key, ReconcilePass, sooner
from millpond_operator.controllers.rollout.decide import decide
from millpond_operator.controllers.rollout.model import Decision, Existing, WantedWorkers, pinned_by
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, ConditionType, Rendered
from millpond_operator.controllers.snapshots.due import SnapshotSchedules
from millpond_operator.controllers.snapshots.snapshots import Bootstraps
from millpond_operator.coordinator import KafkaClaim, StoreError
from millpond_operator.kubernetes import Cache, Client, Forbidden, Invalid, LeadershipLost, Object, kinds
from millpond_operator.resources import (
    InvalidStreamApp,
    Surroundings,
    check_environment,
    parse,
    pod_template,
    revision_of,
    specification_digest,
)

from .admission import Admission
from .applier import Applier, NameTaken
from .autoscaling import autoscale, with_wanted_replicas
from .debounce import Debounce
from .deletion import Deletion
from .failures import Failures, rejected
from .id_claims import IdClaims, id_taken
from .observed_status import ObservedStatus
from .observer import Observer
from .rival_operators import RivalOperators
from .status_writer import StatusWriter, changed
from .upgrades import Upgrades

__all__ = ("Reconciler",)

_ANYTHING = Allowed()
#: How long a name may be taken, or a StreamAssignment unusable, before the status shows it.
_REPORT_AFTER = timedelta(seconds=3)
#: How often to check a taken name: one that Kubernetes is about to free, and one that a person has to free.
_LEAVING_NAME_INTERVAL, _TAKEN_NAME_INTERVAL = timedelta(seconds=1), timedelta(seconds=5)
#: How often to retry what others prevent, such as the growth of volumes.
_RETRY_INTERVAL = timedelta(minutes=1)
#: How soon to check whether a StatefulSet that is being recreated has been deleted.
_RECREATE_INTERVAL = timedelta(milliseconds=500)


class Reconciler:
    """Reconciles StreamApps, one pass at a time for each.

    Args:
        client: writes objects.
        cache: the known objects.
        hosting: the coordinator.
        surroundings: the data of manifests that is not in the StreamApp.
        enqueue: requests another pass over a StreamApp.
        clock: returns the current time.
        instance: the reporting instance of events.
        upgrade_budget: the number of StreamApps that restart workers at a time because of the operator's version.
        allowed: what StreamApps may use.

    Attributes:
        history: the last events of StreamApps, for the console.
    """

    def __init__(  # noqa: PLR0913 - the parts of the operator that a pass works with
        self,
        client: Client,
        cache: Cache,
        hosting: CoordinatorHost,
        surroundings: Surroundings,
        enqueue: Callable[[Key], None],
        clock: Callable[[], datetime] = clock.now,
        instance: str = "millpond-operator",
        upgrade_budget: int = 1,
        allowed: Allowed = _ANYTHING,
    ) -> None:
        self._allowed = allowed
        self._cache = cache
        self._host = hosting
        self._surroundings = surroundings
        self._clock = clock
        self._applier = Applier(client, cache, surroundings)
        self.history = EventHistory()
        self._events = EventRecorder(client, instance, self.history)
        self._rivals = RivalOperators(surroundings.leader_epoch, self._events)
        self._claims = IdClaims(enqueue)
        self._admission = Admission(self._claims, hosting)
        self._upgrades = Upgrades(upgrade_budget, enqueue)
        self._debounce = Debounce()
        self._observer = Observer(client, cache, hosting)
        self._observed_status = ObservedStatus(cache, self._applier, self._debounce)
        self._status_writer = StatusWriter(client, cache, self._events, surroundings.leader_epoch, self.history)
        self._failures = Failures(cache, self._status_writer, clock)
        self._deletion = Deletion(client, cache, self._applier, self._claims)
        self._bootstraps = Bootstraps(client, cache, self._events, surroundings, clock, allowed)
        self._schedules = SnapshotSchedules(client, cache)
        self._memories: dict[Key, AppMemory] = {}
        self._primed = False

    def trust(self, ca_pem: str) -> None:
        """Give workers these authorities to trust, from the next pass on."""
        self._surroundings = replace(self._surroundings, ca_pem=ca_pem)
        self._applier.use_surroundings(self._surroundings)

    @property
    def upgrades_waiting(self) -> int:
        """The number of StreamApps that wait to restart workers because of the operator's version."""
        return self._upgrades.waiting

    async def __call__(self, key: Key) -> timedelta | None:
        """Make one pass. A pass that fails leaves a condition with the cause.

        Returns:
            After which time another pass is due; None to wait for a change.

        Raises:
            ApiError: the API server rejected a request or did not answer; retry later.
            StoreError: the StreamAssignment could not be read or written; retry later.
            LeadershipLost: this operator does not lead any more.
        """
        if not self._primed:  # with the saved state of all StreamApps
            apps, now = list(self._cache.all(kinds.STREAM_APP)), self._clock()
            self._claims.prime(apps, now)
            self._upgrades.prime(apps, now)
            self._primed = True
        try:
            requeue_after = await self._reconcile(key)
        except LeadershipLost:
            raise
        except Exception as error:  # whatever fails, people must find it in a condition
            await self._failures.report(key, self._memories.setdefault(key, AppMemory()), error)
            due = await self._bootstraps(key)  # snapshots do not depend on the workers
            if isinstance(error, InvalidStreamApp):  # only a change of the specification helps
                return due
            raise
        self._failures.forget(key)
        return sooner(requeue_after, await self._bootstraps(key))

    async def _reconcile(self, key: Key) -> timedelta | None:
        raw = self._cache.get(kinds.STREAM_APP, *key)
        if raw is None:
            await self._forget(key)
            return None
        app = parse(raw)
        if app.deleting and not app.has_finalizer:
            await self._forget(key)
            return None
        known = self._memories.get(key)
        if known is not None and known.uid not in {"", app.uid}:
            await self._forget(key)  # it was deleted and created again between two passes
        memory = self._memories.setdefault(key, AppMemory())
        memory.uid = app.uid
        now = self._clock()
        if (shared := await self._rivals.wait(app, memory, now)) is not None:
            return shared
        work = ReconcilePass(app, AppStatus.of(app.status), now, memory)
        await self._begin(work, raw)
        return work.requeue_after

    async def _begin(self, work: ReconcilePass, raw: Object) -> None:
        """Check who may use the application id, set the finalizer, and make the pass."""
        app = work.app
        rival = self._claims.rival(raw, work.now)
        # One that has a target revision may have tasks in Kafka already, so it continues.
        waits_for_id = rival is not None and not work.status.target_revision
        if rival is not None:
            work.id_conflict = id_taken(app, rival)
            if rival.until is not None:
                work.requeue(rival.until - work.now)
        if waits_for_id:
            if app.has_finalizer:  # it never had a worker, nor anything in Kafka
                work.app = await self._deletion.set_finalizer(app, raw, wanted=False)
                if app.deleting:
                    work.requeue_after = None
                    return
            assert work.id_conflict is not None
            await self._status_writer.reject(work, work.id_conflict)
            return
        if app.cleans_up_kafka != app.has_finalizer and not app.deleting:
            work.app = await self._deletion.set_finalizer(app, raw, wanted=app.cleans_up_kafka)
        if app.paused:
            await self._paused(work)
        else:
            await self._pass(work)

    async def _pass(self, work: ReconcilePass) -> None:
        app = work.app = with_wanted_replicas(work.app, work.status)
        if not app.deleting and not (await self._is_allowed(work) and await self._has_names(work)):
            return
        await self._observe(work)
        await self._upgrades.take_turn(work, self._applier.templates)
        autoscaling = await autoscale(work, self._host.view)
        app = work.app = with_wanted_replicas(work.app, msgspec.structs.replace(work.status, autoscaling=autoscaling))
        existing = self._observer.existing(work)
        claim = self._admission.claim(work)
        decision = await self._decide(work, existing, autoscaling)
        await self._save(work, decision)
        for event in (*work.events, *decision.events):
            await self._events.record(app, *event)
        try:
            self._host.admit(app, decision.pinned, claim)  # what admission depends on is saved
            await self._act(work, decision, existing)
        except NameTaken as error:
            await self._wait_for_name(work, error)
        except (Invalid, Forbidden) as error:
            # Later passes report it too, until it changes: they decide the same and are rejected for the same reason.
            work.memory.rejection = rejected(error)
            await self._status_writer.reject(work, rejected(error))
            raise
        finally:
            for event in self._applier.drift.take_events(app):
                await self._events.record(app, *event)
        if work.memory.rejection is not None:
            work.memory.rejection = None
            work.requeue(timedelta(0))  # to update the conditions

    async def _is_allowed(self, work: ReconcilePass) -> bool:
        """Return whether the operator's settings allow what the StreamApp uses; otherwise report what they do not."""
        problem = self._allowed.problem(work.app)
        if problem is None:
            return True
        if self._has_workers(work):  # they keep running
            await self._serve(work)
        await self._status_writer.reject(work, problem)
        return False

    async def _has_names(self, work: ReconcilePass) -> bool:
        """Return whether the names of all objects are free or the application's own; otherwise report it."""
        try:
            await self._applier.check_names(work.app)
        except NameTaken as error:
            # Running workers need their coordinator all the same, unless the StreamAssignment itself is foreign.
            if self._has_workers(work) and error.kind != kinds.STREAM_ASSIGNMENT.kind:
                await self._serve(work)
            await self._wait_for_name(work, error)
            return False
        self._debounce.lasts(work, f"{work.name} name", _REPORT_AFTER, condition=False)
        return True

    async def _observe(self, work: ReconcilePass) -> None:
        app = work.app
        if app.spec.suspended and work.status.phase == AppPhase.SUSPENDED and not app.deleting:
            # When it is resumed, its workers wait for each other as with any new coordinator.
            await self._host.forget(app.namespace, app.name)
            work.memory.served_since = None
        else:
            await self._serve(work)
        work.template = pod_template(app, self._surroundings)
        work.revision = revision_of(work.template)
        work.specification = specification_digest(app)
        if not app.deleting:
            check_environment(app, work.template)
        await self._observer.observe(work)

    async def _decide(
        self, work: ReconcilePass, existing: Existing | None, autoscaling: AutoscalingStatus | None
    ) -> Decision:
        app, key = work.app, (work.app.namespace, work.app.name)
        status = msgspec.structs.replace(work.status, kafka=self._claims.proof(key), autoscaling=autoscaling)
        if not app.deleting:
            snapshots = await self._schedules.keep_up(work, self._host.view(app))
            status = msgspec.structs.replace(status, bootstrap=snapshots)
        decision = decide(self._wanted(work), existing, work.observed, status, work.now)
        if decision.requeue_after is not None:
            work.requeue(decision.requeue_after)
        self._upgrades.note(key, waits=work.upgrade_waits, restarts=decision.status.rollout is not None)
        return decision

    def _wanted(self, work: ReconcilePass) -> WantedWorkers:
        app, rollout = work.app, work.app.spec.rollout
        return WantedWorkers(
            revision=work.revision,
            replicas=app.spec.replicas,
            strategy=rollout.strategy,
            min_ready=rollout.min_ready,
            progress_deadline=rollout.progress_deadline,
            auto_rollback=rollout.auto_rollback,
            suspended=app.spec.suspended,
            deleting=app.deleting,
            kept=self._applier.templates.kept_revisions(app) | {work.revision},
            upgrade=work.upgrade,
            drain=app.workers_to_drain,
        )

    @staticmethod
    def _has_workers(work: ReconcilePass) -> bool:
        """Return whether workers were started and not stopped, by the saved status."""
        return bool(work.status.target_revision) and work.status.phase not in {"", AppPhase.SUSPENDED}

    async def _serve(self, work: ReconcilePass) -> None:
        """Serve the workers as their coordinator.

        Raises:
            StoreError: the StreamAssignment cannot be read or written; the condition Ready reports it.
        """
        status, memory = work.status, work.memory
        claim = KafkaClaim(status.kafka.cluster_id) if status.kafka is not None else KafkaClaim()
        try:
            await self._host.serve(work.app, pinned=pinned_by(status), claim=claim)
        except StoreError as error:
            memory.served_since = None
            if self._debounce.lasts(work, f"{work.name} serving", _REPORT_AFTER, condition=True):
                not_served = changed(work, status, ConditionType.READY, "False", "NotServed", str(error))
                await self._status_writer.save(work, not_served)
            raise
        self._debounce.lasts(work, f"{work.name} serving", _REPORT_AFTER, condition=False)
        memory.served_since = memory.served_since or work.now

    async def _save(self, work: ReconcilePass, decision: Decision) -> None:
        """Save the status before acting: the intent and the observation."""
        rendered = Rendered(work.specification, work.revision)
        status = self._observed_status.build(work, decision)
        await self._status_writer.save(work, msgspec.structs.replace(status, rendered=rendered))

    async def _act(self, work: ReconcilePass, decision: Decision, existing: Existing | None) -> None:
        app, applier = work.app, self._applier
        if app.deleting:
            await self._deletion.proceed(work, decision, existing)
            return
        await applier.children(app)
        self._host.drain(app, decision.drain)
        if not await applier.stateful_set(app, decision, work.template, work.revision):
            work.requeue(_RECREATE_INTERVAL)
            return
        await applier.delete(app, decision.delete)
        await self._host.rewrite(app)
        problem = await applier.volumes.grow(app) or applier.problem(app)
        if problem != work.memory.apply_problem:
            work.requeue(timedelta(0))  # to update the conditions
        elif problem is not None:
            work.requeue(_RETRY_INTERVAL)
        work.memory.apply_problem = problem
        if decision.status.rollout is None and decision.phase is AppPhase.RUNNING:
            status = decision.status
            keep = {status.current_revision, status.target_revision, status.failed.revision if status.failed else ""}
            await applier.templates.delete_others(app, frozenset(keep))

    async def _paused(self, work: ReconcilePass) -> None:
        """Observe a paused StreamApp and keep its coordinator running, but change nothing."""
        app, status = with_wanted_replicas(work.app, work.status), work.status
        work.app = app
        if not app.deleting and self._has_workers(work):
            await self._serve(work)
            work.template = pod_template(app, self._surroundings)
            work.revision = revision_of(work.template)
            await self._observer.observe(work)
            work.memory.rejection = None  # nothing is written that could be rejected
            unchanged = Decision(AppPhase(status.phase), status.target_revision, 0, status)
            status = self._observed_status.build(work, unchanged)
            for event in work.events:
                await self._events.record(app, *event)
        message = "Nothing is changed while the annotation millpond.dev/reconcile is 'paused': remove it to continue."
        if app.deleting:
            message += " Then the internal topics and the consumer group are deleted, and after them the StreamApp."
        status = changed(work, status, ConditionType.PROGRESSING, "False", "Paused", message)
        await self._status_writer.save(work, status, generation=work.status.observed_generation)

    async def _wait_for_name(self, work: ReconcilePass, error: NameTaken) -> None:
        """Report a taken name and check it again later, since foreign objects are not watched."""
        work.requeue(_LEAVING_NAME_INTERVAL if error.leaving else _TAKEN_NAME_INTERVAL)
        lasting = self._debounce.lasts(work, f"{work.name} name", _REPORT_AFTER, condition=True)
        if not error.leaving:
            await self._status_writer.reject(work, Problem("NameTaken", str(error), persistent=True))
        elif lasting:
            status = msgspec.structs.replace(work.status, phase=work.status.phase or AppPhase.PENDING.value)
            status = changed(work, status, ConditionType.READY, "False", "NameTaken", str(error))
            await self._status_writer.save(work, status)

    async def _forget(self, key: Key) -> None:
        """Forget a deleted StreamApp."""
        await self._host.forget(*key)
        self._claims.release(key)
        self._upgrades.forget(key)
        self._observer.forget(key)
        self._applier.forget(*key)
        self._memories.pop(key, None)
        self._debounce.forget(f"{key[0]}/{key[1]} ")
        self._events.forget(kinds.STREAM_APP, *key)
        self._failures.forget(key)
