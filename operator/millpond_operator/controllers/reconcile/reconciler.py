"""One pass over one StreamApp: look, decide, write the intent down, act.

It is level-based: it needs to know nothing but what there is, may be interrupted after every write, and writes nothing
when there is nothing to change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.events import EventRecorder
from millpond_operator.controllers.pass_context import Key, Memory, ReconcilePass, sooner
from millpond_operator.controllers.preconditions import read_again
from millpond_operator.controllers.rollout.conditions import ConditionStory, conditions, problems
from millpond_operator.controllers.rollout.decide import Decision, Existing, WantedWorkers, decide, pinned_by
from millpond_operator.controllers.rollout.observation import ordinal_of
from millpond_operator.controllers.rollout.pod_problems import TOLD_BY_WORKERS, Problem, cleanup_problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, ConditionType, KafkaProof, Rendered
from millpond_operator.controllers.snapshots.due import SnapshotSchedules
from millpond_operator.controllers.snapshots.snapshots import Bootstraps
from millpond_operator.coordinator import KafkaClaim, StoreError
from millpond_operator.kubernetes import (
    Cache,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    LeadershipLost,
    NotFound,
    Object,
    kinds,
)
from millpond_operator.resources import (
    APP_UID,
    FINALIZER,
    InvalidStreamApp,
    StreamApp,
    Surroundings,
    check_environment,
    cleanup_name,
    parse,
    pod_template,
    revision_of,
    selector,
    specification_digest,
)

from .applier import Applier, NameTaken
from .debounce import Debounce
from .failures import Failures, rejected
from .id_claims import IdClaims, Rival, taken
from .observer import Observer
from .status_writer import Reporter, changed
from .upgrades import Upgrades

__all__ = ("Reconciler",)

log = logging.getLogger(__name__)

#: What lasts no longer than this is a task that moves, and no state worth writing down.
_SETTLES_IN = timedelta(seconds=3)
#: A copy that lags is no trouble by itself: what is told of copies has been so for less long.
_COPIES_SETTLE_IN = timedelta(seconds=2)
#: How often to look whether a name is free that is somebody else's, for now or until a person does something.
_LEAVES_IN, _FREE_IN = timedelta(seconds=1), timedelta(seconds=5)
#: How often to see whether volumes can grow after all.
_GROWS_IN = timedelta(minutes=1)


class Reconciler:
    """Reconciles StreamApps, one at a time per application.

    Args:
        client: to write with.
        cache: what there is.
        hosting: the coordinator.
        surroundings: what manifests need to know.
        enqueue: asks for another pass over an application.
        clock: the time of day.
        instance: who reports events.
        upgrade_budget: how many StreamApps at a time restart workers because of the operator's version.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        hosting: CoordinatorHost,
        surroundings: Surroundings,
        enqueue: Callable[[Key], None],
        clock: Callable[[], datetime] = clock.now,
        instance: str = "millpond-operator",
        upgrade_budget: int = 1,
    ) -> None:
        self._client = client
        self._cache = cache
        self._hosting = hosting
        self._surroundings = surroundings
        self._applier = Applier(client, cache, surroundings)
        self._events = EventRecorder(client, instance)
        self._claims = IdClaims(enqueue)
        self._upgrades = Upgrades(upgrade_budget, enqueue)
        self._primed = False
        self._debounce = Debounce()
        self._clock = clock
        self._looker = Observer(client, cache, hosting)
        self._reporter = Reporter(client, cache, self._events, surroundings.leader_epoch)
        self._failures = Failures(cache, self._reporter, clock)
        self._bootstraps = Bootstraps(client, cache, self._events, surroundings.leader_epoch, clock)
        self._schedules = SnapshotSchedules(client, cache)
        self._memories: dict[Key, Memory] = {}

    def trust(self, ca_pem: str) -> None:
        """Tell workers from the next pass on to trust these authorities."""
        self._surroundings = replace(self._surroundings, ca_pem=ca_pem)
        self._applier.go_on_with(self._surroundings)

    async def __call__(self, key: Key) -> timedelta | None:
        """One pass. One that fails leaves a condition that says so.

        Returns:
            After which time to come again even though nothing is heard; None for never.

        Raises:
            ApiError, StoreError: something could not be written or read; come again later.
            LeadershipLost: this operator does not lead any more.
        """
        if not self._primed:  # with what an earlier operator wrote down of all of them
            apps, now = list(self._cache.all(kinds.STREAM_APP)), self._clock()
            self._claims.prime(apps, now)
            self._upgrades.prime(apps, now)
            self._primed = True
        try:
            again = await self._reconcile(key)
        except LeadershipLost:
            raise
        except Exception as error:
            await self._failures.tell(key, self._memories.setdefault(key, Memory()), error)
            due = await self._bootstraps(key)  # snapshots go on, whatever becomes of the workers
            if isinstance(error, InvalidStreamApp):  # nothing but another specification makes a difference
                return due
            raise
        self._failures.over(key)
        return sooner(again, await self._bootstraps(key))

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
            await self._forget(key)  # it was deleted and made again between two passes
        now = self._clock()
        work = ReconcilePass(app, AppStatus.of(app.status), now, self._memories.setdefault(key, Memory()))
        work.memory.uid = app.uid
        rival = self._claims.rival(raw, now)
        waits = rival is not None and not work.status.target_revision
        if waits and app.has_finalizer:  # it never had a worker, nor anything in Kafka
            work.app = await self._set_finalizer(app, raw, wanted=False)
            if app.deleting:
                return None
        elif not waits and app.cleans_up_kafka != app.has_finalizer and not app.deleting:
            work.app = await self._set_finalizer(app, raw, wanted=app.cleans_up_kafka)
        if rival is not None:
            work.taken = taken(app, rival)
            if rival.until is not None:
                work.come_again(rival.until - now)
        if waits and work.taken is not None:
            await self._reporter.refuse(work, work.taken)
        elif app.paused:
            await self._paused(work)
        else:
            await self._pass(work)
        return work.again

    @property
    def upgrades_waiting(self) -> int:
        """How many StreamApps wait for their turn to restart workers because of the operator's version."""
        return self._upgrades.waiting

    async def _pass(self, work: ReconcilePass) -> None:
        app = work.app
        if not app.deleting:
            try:
                await self._applier.claim_names(app)
            except NameTaken as error:
                # Workers that run need their coordinator all the same: only a foreign assignment is in its way.
                if self._has_workers(work) and error.kind != kinds.STREAM_ASSIGNMENT.kind:
                    await self._served(work)
                await self._await_name(work, error)
                return
            self._lasting(work, f"{work.name} name", _SETTLES_IN, condition=False)
        if app.spec.suspended and work.status.phase == AppPhase.SUSPENDED and not app.deleting:
            # When it goes on, those that come back wait for each other, as with any coordinator that has just begun.
            await self._hosting.forget(app.namespace, app.name)
            work.memory.served_since = None
        else:
            await self._served(work)
        work.template = pod_template(app, self._surroundings)
        work.revision = revision_of(work.template)
        work.specification = specification_digest(app)
        if not app.deleting:
            check_environment(app, work.template)
        await self._looker.look(work)
        await self._upgrades.take_turn(work, self._applier)
        existing = self._looker.existing(work)
        claim = self._claim(work)
        status = msgspec.structs.replace(work.status, kafka=self._claims.proof((app.namespace, app.name)))
        if not app.deleting:
            snapshots = await self._schedules.keep_up(work, self._hosting.view(app))
            status = msgspec.structs.replace(status, bootstrap=snapshots)
        decision = decide(self._wanted(work), existing, work.observed, status, work.now)
        if decision.again is not None:
            work.come_again(decision.again)
        rolls = decision.status.rollout is not None
        self._upgrades.note((app.namespace, app.name), waits=work.upgrade_waits, restarts=rolls)
        await self._write_down(work, decision)
        for event in (*work.events, *decision.events):
            await self._events.record(app, *event)
        try:
            self._hosting.admit(app, decision.pinned, claim)  # what it goes by is written down
            await self._act(work, decision, existing)
        except NameTaken as error:
            await self._await_name(work, error)
        except (Invalid, Forbidden) as error:
            # Said now, and by the next passes until it is different: they find the same and are refused the same.
            work.memory.rejected = rejected(error)
            await self._reporter.refuse(work, rejected(error))
            raise
        finally:
            for event in self._applier.drift.told(app):
                await self._events.record(app, *event)
        if work.memory.rejected is not None:
            work.memory.rejected = None
            work.come_again(timedelta(0))  # to tell

    @staticmethod
    def _has_workers(work: ReconcilePass) -> bool:
        """Whether workers were started and not stopped, as far as was written down."""
        return bool(work.status.target_revision) and work.status.phase not in {"", AppPhase.SUSPENDED}

    async def _served(self, work: ReconcilePass) -> None:
        """Serve the workers, whatever became of that before.

        Raises:
            StoreError: its assignment cannot be read or written; that is told.
        """
        status, memory = work.status, work.memory
        claim = KafkaClaim(status.kafka.cluster_id) if status.kafka is not None else KafkaClaim()
        try:
            await self._hosting.serve(work.app, pinned=pinned_by(status), claim=claim)
        except StoreError as error:
            memory.served_since = None
            if self._lasting(work, f"{work.name} serving", _SETTLES_IN, condition=True):
                told = changed(status, work, ConditionType.READY, "False", "NotServed", str(error))
                await self._reporter.save(work, told)
            raise
        self._lasting(work, f"{work.name} serving", _SETTLES_IN, condition=False)
        memory.served_since = memory.served_since or work.now

    def _claim(self, work: ReconcilePass) -> KafkaClaim:
        """The Kafka cluster on which workers may be let in.

        The first claim is on whichever cluster they reach. Later ones may be on another when any topology may take the place
        of the old one, too: nobody runs that any more.
        """
        app, memory = work.app, work.memory
        key = (app.namespace, app.name)
        proof = self._claims.proof(key)
        by_ordinal = sorted(self._hosting.reached(app).items(), key=lambda each: (ordinal_of(each[0]), each[0]))
        reached = tuple(dict.fromkeys(cluster for _, cluster in by_ordinal))
        if proof is None:
            # Who was refused there stays so while its workers start again.
            memory.reached = reached = reached or memory.reached
        free = not pinned_by(work.status) and not any(each.alive for each in work.observed.workers.values())
        if work.taken is None and (proof is None or free):
            proof = self._proven(work, reached) or proof
        if work.taken is not None:
            return KafkaClaim("" if proof is None else proof.cluster_id, work.taken.message)
        return KafkaClaim() if proof is None else KafkaClaim(proof.cluster_id)

    def _proven(self, work: ReconcilePass, reached: tuple[str, ...]) -> KafkaProof | None:
        """Claim the first cluster that was reached and is free; None when none is."""
        rivals = []
        for cluster in reached:
            found = self._claims.prove((work.app.namespace, work.app.name), cluster, work.now)
            if not isinstance(found, Rival):
                return found
            rivals.append(found)
        if rivals:
            work.taken = taken(work.app, rivals[0])
        return None

    async def _act(self, work: ReconcilePass, decision: Decision, existing: Existing | None) -> None:
        app = work.app
        if app.deleting:
            await self._stop_for_good(work, decision, existing)
            return
        await self._applier.children(app)
        self._hosting.drain(app, decision.drain)
        if not await self._applier.stateful_set(app, decision, work.template, work.revision):
            work.come_again(timedelta(milliseconds=500))
            return
        await self._applier.delete(app, decision.delete)
        await self._hosting.rewrite(app)
        trouble = await self._applier.grow(app) or self._applier.trouble(app)
        if trouble != work.memory.stunted:
            work.come_again(timedelta(0))  # to tell
        elif trouble is not None:
            work.come_again(_GROWS_IN)
        work.memory.stunted = trouble
        if decision.status.rollout is None and decision.phase is AppPhase.RUNNING:
            status = decision.status
            keep = {status.current_revision, status.target_revision, status.failed.revision if status.failed else ""}
            await self._applier.forget_revisions(app, frozenset(keep))

    async def _stop_for_good(self, work: ReconcilePass, decision: Decision, existing: Existing | None) -> None:
        """Workers end, then a Job deletes what is in Kafka, then the finalizer goes."""
        app = work.app
        if existing is not None and existing.replicas:
            await self._applier.stateful_set(app, decision, work.template, work.revision)
        if work.observed.pods:
            return
        job = self._applier.cleanup(app)
        # Without a claim of its own on a Kafka cluster, what has its id there is somebody else's.
        if app.cleans_up_kafka and self._claims.holds((app.namespace, app.name)):
            if job is None:
                if await self._clean_up(work):
                    return
            elif not any(each.get("type") == "Complete" and each.get("status") == "True" for each in _conditions(job)):
                return
        if job is not None:  # done, or not wanted any more
            await self._client.delete(
                kinds.JOB, app.namespace, cleanup_name(app), uid=job["metadata"]["uid"], propagation="Background"
            )
        raw = self._cache.get(kinds.STREAM_APP, app.namespace, app.name)
        if raw is not None:
            await self._set_finalizer(app, raw, wanted=False)

    async def _clean_up(self, work: ReconcilePass) -> bool:
        """Start the Job that deletes what is in Kafka; False when its namespace is being deleted and takes no Job."""
        app = work.app
        try:
            await self._applier.clean_up(app, work.status.current_revision)
        except Forbidden as error:
            if "being terminated" not in str(error):
                raise
            log.warning("%s/%s goes with its namespace; what it has in Kafka stays.", app.namespace, app.name)
            return False
        return True

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
            kept=self._applier.kept(app) | {work.revision},
            upgrade=work.upgrade,
        )

    # The status.

    async def _write_down(self, work: ReconcilePass, decision: Decision) -> None:
        """Bring the status up to date: what is about to be done, and what there is."""
        rendered = Rendered(work.specification, work.revision)
        await self._reporter.save(work, msgspec.structs.replace(self._seen(work, decision), rendered=rendered))

    def _seen(self, work: ReconcilePass, decision: Decision) -> AppStatus:
        """Return the status with what there is: numbers and conditions."""
        app, observed, tasks = work.app, work.observed, work.observed.tasks
        # Until the workers have reported to a new leader, nobody knows whether their tasks run: they did.
        stands = observed.reported and not tasks.all_run
        lags = observed.reported and tasks.caught_up < tasks.standbys_wanted
        standing = self._lasting(work, f"{work.name} tasks", _SETTLES_IN, condition=stands)
        story = ConditionStory(
            app.name,
            decision,
            observed,
            app.spec.replicas,
            self._problem(work, decision),
            stuck=work.memory.rejected or work.taken,
            standing=standing,
            lagging=self._lasting(work, f"{work.name} standbys", _COPIES_SETTLE_IN, condition=lags),
            upgrade_waits=work.upgrade_waits,
            standby_replicas=app.spec.standby_replicas,
            snapshots=work.snapshots,
        )
        ready = len(observed.working)
        holds = work.status.is_true(ConditionType.READY) and not standing and decision.phase is not AppPhase.SUSPENDED
        running = tasks.total if holds else tasks.running
        return msgspec.structs.replace(
            decision.status,
            phase=decision.phase.value,
            replicas=len(observed.pods),
            ready_replicas=ready,
            workers=f"{ready}/{app.spec.replicas}",
            tasks=f"{running}/{tasks.total}" if tasks.known else "",
            image=observed.images,
            conditions=conditions(story, work.status, app.generation, work.now),
        )

    def _problem(self, work: ReconcilePass, decision: Decision) -> Problem | None:
        lasting = self._lasting_problem(work)
        if decision.phase in {AppPhase.SUSPENDING, AppPhase.SUSPENDED}:
            return None
        cleanup = self._cleanup_problem(work.app) if work.app.deleting else None
        return cleanup or work.memory.rejected or work.taken or lasting or work.memory.stunted

    def _lasting_problem(self, work: ReconcilePass) -> Problem | None:
        """The first problem of a worker that will stay, or has lasted for longer than such a one may.

        What was told last has lasted already. This operator may be new: what workers tell goes on until each was heard.
        """
        before = work.status.condition(ConditionType.DEGRADED)
        told = before if before is not None and before.status == "True" else None
        found = problems(work.observed)
        prefix = f"{work.name} problem "
        names = {f"{prefix}{pod} {problem.reason}": problem for pod, problem in found}
        self._debounce.forget(prefix, names)
        lasting = [
            problem
            for what, problem in names.items()
            if self._lasting(work, what, problem.patience, condition=True)
            or (told is not None and told.reason == problem.reason)
        ]
        if not lasting and told is not None and told.reason in TOLD_BY_WORKERS and not work.observed.all_reported:
            return Problem(told.reason, told.message)
        return lasting[0] if lasting else None

    def _cleanup_problem(self, app: StreamApp) -> Problem | None:
        labels = (selector(app, "cleanup") | {APP_UID: app.uid}).items()
        pods = self._cache.of_app(kinds.POD, app.namespace, app.name)
        return cleanup_problem(
            self._applier.cleanup(app),
            [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()],
        )

    def _lasting(self, work: ReconcilePass, what: str, patience: timedelta, *, condition: bool) -> bool:
        lasting, again = self._debounce.lasting(what, work.now, patience, condition=condition)
        if again is not None:
            work.come_again(again)
        return lasting

    async def _paused(self, work: ReconcilePass) -> None:
        """Somebody wants to be alone with the application: say so and how it is, and keep its coordinator going."""
        status = work.status
        if not work.app.deleting and self._has_workers(work):
            await self._served(work)
            work.template = pod_template(work.app, self._surroundings)
            work.revision = revision_of(work.template)
            await self._looker.look(work)
            work.memory.rejected = None  # nothing is tried that could be rejected
            status = self._seen(work, Decision(AppPhase(status.phase), status.target_revision, 0, status))
            for event in work.events:
                await self._events.record(work.app, *event)
        message = "Nothing is changed while the annotation millpond.dev/reconcile is 'paused': remove it to go on."
        if work.app.deleting:
            message = f"{message} Its internal topics and consumer group are deleted then, and the StreamApp is gone after that."
        status = changed(status, work, ConditionType.PROGRESSING, "False", "Paused", message)
        await self._reporter.save(work, status, generation=work.status.observed_generation)

    async def _await_name(self, work: ReconcilePass, error: NameTaken) -> None:
        """Nothing tells when a name is free that somebody else has."""
        work.come_again(_LEAVES_IN if error.leaving else _FREE_IN)
        lasting = self._lasting(work, f"{work.name} name", _SETTLES_IN, condition=True)
        if not error.leaving:
            await self._reporter.refuse(work, Problem("NameTaken", str(error), settled=True))
        elif lasting:
            status = msgspec.structs.replace(work.status, phase=work.status.phase or AppPhase.PENDING.value)
            await self._reporter.save(
                work, changed(status, work, ConditionType.READY, "False", "NameTaken", str(error))
            )

    # Coming and going.

    async def _set_finalizer(self, app: StreamApp, raw: Object, *, wanted: bool) -> StreamApp:
        left = [each for each in raw["metadata"].get("finalizers") or () if each != FINALIZER]
        patch: Object = {
            "metadata": {
                "finalizers": [*left, FINALIZER] if wanted else left,
                "resourceVersion": raw["metadata"]["resourceVersion"],
            }
        }
        try:
            changed = await self._client.patch(kinds.STREAM_APP, app.namespace, app.name, patch)
        except (Conflict, NotFound):
            await read_again(self._client, self._cache, kinds.STREAM_APP, app.namespace, app.name)
            raise
        if app.deleting and not wanted and not left:
            # That was its end, and the answer is the object as it was before.
            self._cache.remove(kinds.STREAM_APP, changed)
        else:
            self._cache.put(kinds.STREAM_APP, changed)
        return parse(changed)

    async def _forget(self, key: Key) -> None:
        await self._hosting.forget(*key)
        self._claims.release(key)
        self._upgrades.forget(key)
        self._looker.forget(key)
        self._applier.forget(*key)
        self._memories.pop(key, None)
        self._debounce.forget(f"{key[0]}/{key[1]} ")
        self._events.forget(kinds.STREAM_APP, *key)
        self._failures.over(key)


def _conditions(object: Object) -> list[Object]:
    found: list[Object] = object.get("status", {}).get("conditions") or []
    return found
