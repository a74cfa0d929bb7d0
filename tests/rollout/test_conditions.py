"""A condition is True only if its facts hold: generated situations, with each condition checked against the facts."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond_operator.controllers.rollout.conditions import ConditionInputs, conditions, problems
from millpond_operator.controllers.rollout.model import Decision, WantedWorkers
from millpond_operator.controllers.rollout.observation import ObservedApp, ObservedPod, ObservedWorker, Tasks
from millpond_operator.controllers.rollout.problems import (
    REPORTED_BY_WORKERS,
    Problem,
    creation_problem,
    mount_problem,
    of_pod,
)
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, Condition, ConditionType, FailedRevision
from tests.rollout.world import World

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOVING = {
    AppPhase.PENDING,
    AppPhase.ROLLING_OUT,
    AppPhase.ROLLING_BACK,
    AppPhase.SCALING,
    AppPhase.SUSPENDING,
    AppPhase.DELETING,
}
LONG = "The API server answered with all of an object. " * 60

_problems = st.sampled_from([None, Problem("Rejected", LONG, persistent=True), Problem("WorkerFailed", "It failed.")])
_pods = st.lists(
    st.builds(
        dict, ready=st.booleans(), terminating=st.booleans(), alive=st.sampled_from([True, False, None])
    ),
    max_size=4,
)  # fmt: skip
_tasks = st.builds(
    Tasks,
    known=st.booleans(),
    total=st.just(4),
    running=st.integers(0, 4),
    caught_up=st.integers(0, 8),
    standbys_wanted=st.sampled_from([0, 4, 8]),
    standbys_placeable=st.sampled_from([0, 4, 8]),
)
_before = st.builds(
    lambda ready, standbys: AppStatus(
        conditions=tuple(
            Condition(type, "True" if true else "False", reason)
            for type, true, reason in (("Ready", ready, "Running"), ("StandbysCaughtUp", standbys, "CaughtUp"))
        )
    ),
    st.booleans(),
    st.booleans(),
)


@st.composite
def stories(draw) -> tuple[ConditionInputs, AppStatus]:
    """A situation and the conditions before it."""
    pods, workers = [], {}
    for ordinal, each in enumerate(draw(_pods)):
        name = f"app-{ordinal}"
        ready = each["ready"] and not each["terminating"]
        pods.append(ObservedPod(name, ordinal, "r1", str(ordinal), ready=ready, terminating=each["terminating"]))
        if each["alive"] is not None:
            workers[name] = ObservedWorker(name, alive=each["alive"])
    failed = draw(
        st.sampled_from(
            [
                None,
                FailedRevision("r1", "Rolling", "NoProgress", "It failed."),
                FailedRevision("r2", "Rolling", "X", LONG),
            ]
        )
    )
    decision = Decision(draw(st.sampled_from(AppPhase)), "r1", 3, AppStatus(failed=failed))
    story = ConditionInputs(
        "app",
        decision,
        ObservedApp(tuple(pods), workers, draw(_tasks), draw(st.booleans())),
        draw(st.integers(0, 3)),
        problem=draw(_problems),
        blocked_by=draw(_problems),
        tasks_stopped=draw(st.booleans()),
        standbys_lag=draw(st.booleans()),
        standby_replicas=draw(st.integers(0, 2)),
    )
    return story, draw(_before)


_A_POD_TO_GO_IS_READY = (
    ConditionInputs(
        "app",
        Decision(AppPhase.RUNNING, "r1", 3, AppStatus()),
        ObservedApp(
            tuple(ObservedPod(f"app-{at}", at, "r1", str(at), ready=at == 1, terminating=False) for at in range(2)),
            {"app-1": ObservedWorker("app-1", alive=True)},
            Tasks(known=True, total=4, running=4),
            informed=True,
        ),
        1,
        problem=None,
        blocked_by=None,
        tasks_stopped=False,
        standbys_lag=False,
        standby_replicas=0,
    ),
    AppStatus(),
)


@given(given=stories())
@example(given=_A_POD_TO_GO_IS_READY)
def test_true_conditions_hold(given):
    """True conditions, and False ones that report a settled state, follow from the facts."""
    story, before = given
    told = {each.type: each for each in conditions(story, before, 1, NOW)}
    true = {type for type, each in told.items() if each.status == "True"}
    decision, observed, tasks = story.decision, story.observed, story.observed.tasks
    phase, failed = decision.phase, decision.status.failed
    heard = {name for name, worker in observed.workers.items() if worker.alive}
    unheard = set() if observed.informed else {pod.name for pod in observed.pods} - observed.workers.keys()
    at_work = [pod for pod in observed.pods if pod.ready and pod.name in heard | unheard]
    working = len(at_work)
    missing = (
        sum(pod.ordinal < story.replicas for pod in at_work) < story.replicas
    )  # one that is to go stands in for none
    run = tasks.known and tasks.running == tasks.total
    if "Ready" in true:
        assert story.blocked_by is None
        assert failed is None
        assert phase is AppPhase.RUNNING or phase is AppPhase.DEGRADED
        assert working >= story.replicas
        assert run or (before.is_true(ConditionType.READY) and not story.tasks_stopped)
    if "StandbysCaughtUp" in true and story.standby_replicas and not (tasks.known and not tasks.standbys_wanted):
        assert phase is not AppPhase.SUSPENDED
        assert tasks.known
        assert tasks.standbys_placeable >= tasks.standbys_wanted
        was = before.condition(ConditionType.STANDBYS_CAUGHT_UP)
        assert tasks.caught_up >= tasks.standbys_wanted or (was.status == "True" and not story.standbys_lag)
    assert ("Suspended" in true) == (phase is AppPhase.SUSPENDED)
    assert ("Degraded" in true) == (failed is not None or story.problem is not None or story.blocked_by is not None)
    if "Stalled" in told:
        assert story.blocked_by is not None or failed is not None
        recovers = told["Progressing"].reason == "Recovering"  # a worker, whatever became of the revision
        assert "Progressing" not in true or phase in MOVING or recovers
    if "Progressing" in true:
        assert phase in MOVING or story.tasks_stopped or missing
    elif told["Progressing"].reason == "Settled":
        assert phase not in MOVING
        assert phase is AppPhase.SUSPENDED or not missing
        assert phase is AppPhase.SUSPENDED or not story.tasks_stopped or not story.replicas


@given(given=stories())
def test_long_messages_are_cut_and_said_once(given):
    """A message of the API server may be long: one condition has it, and the others refer to that one."""
    story, before = given
    messages = [each.message for each in conditions(story, before, 1, NOW) if len(each.message) > 100]
    assert all(len(each) <= 1_000 for each in messages)
    assert len(messages) == len(set(messages)) <= 1


def _story(replicas: int = 2, **changes) -> ConditionInputs:
    pods = tuple(ObservedPod(f"app-{number}", number, "r1", "u", ready=True) for number in range(2))
    workers = {pod.name: ObservedWorker(pod.name, alive=True) for pod in pods}
    tasks = Tasks(known=True, total=4, running=4)
    given = {
        "observed": ObservedApp(pods, workers, tasks),
        "decision": Decision(AppPhase.RUNNING, "r1", 2, AppStatus()),
    }
    return ConditionInputs("app", replicas=replicas, **{**given, **changes})


NOTHING = AppStatus()


def _told(story: ConditionInputs, type: str, before: AppStatus = NOTHING) -> Condition:
    return next((each for each in conditions(story, before, 1, NOW) if each.type == type), None)


def _with_standbys(caught_up: int, **changes) -> ConditionInputs:
    story = _story()
    tasks = Tasks(True, 4, 4, caught_up=caught_up, standbys_wanted=4, standbys_placeable=4)
    return _story(
        observed=ObservedApp(story.observed.pods, story.observed.workers, tasks), standby_replicas=1, **changes
    )


def test_standbys_that_are_wanted_and_absent_are_not_caught_up():
    """Standbys for which there are too few workers are still wanted."""
    found = _told(_with_standbys(0), "StandbysCaughtUp")
    assert (found.status, found.reason, found.message) == ("False", "Restoring", "0 of 4 standbys are caught up.")
    assert _told(_with_standbys(4), "StandbysCaughtUp").status == "True"
    one = _story(
        1,
        observed=ObservedApp(tasks=Tasks(True, 4, 4, standbys_wanted=4, standbys_placeable=0)),
        standby_replicas=1,
    )
    found = _told(one, "StandbysCaughtUp")
    assert (found.status, found.reason) == ("False", "TooFewWorkers")
    unknown = _story(observed=ObservedApp(tasks=Tasks()), standby_replicas=1)
    assert _told(unknown, "StandbysCaughtUp").status == "Unknown"


def test_standbys_that_lag_for_a_moment_stay_caught_up():
    """A moving standby is reported only if that lasts; until then the message stays the same."""
    before = AppStatus(conditions=(_told(_with_standbys(4), "StandbysCaughtUp"),))
    assert _told(_with_standbys(3), "StandbysCaughtUp", before) == before.conditions[0]
    assert _told(_with_standbys(3, standbys_lag=True), "StandbysCaughtUp", before).status == "False"


def test_a_ready_pod_whose_worker_is_silent_is_not_ready():
    """The API server learns of a lost node later than the coordinator."""
    story = _story()
    workers = story.observed.workers | {"app-1": ObservedWorker("app-1", alive=False)}
    lost = ObservedApp(story.observed.pods, workers, story.observed.tasks)
    assert _told(_story(observed=lost), "Ready").message == "1 of 2 workers are ready."
    found = _told(_story(observed=lost), "Progressing")
    assert (found.status, found.reason) == ("True", "Recovering")
    assert "app-1" in found.message
    uninformed = ObservedApp(story.observed.pods, {}, story.observed.tasks, informed=False)
    assert _told(_story(observed=uninformed), "Ready").status == "True"


def test_a_first_revision_that_fails_is_stalled():
    """There is no revision to roll back to, so there is no progress."""
    world = World(random.Random(1), WantedWorkers("r1", 2, progress_deadline=timedelta(seconds=60)), bad={"r1"})
    world.until(lambda decision: decision.status.failed is not None)
    decision = world.turn()
    story = _story(decision=decision, observed=world.observed())
    found = _told(story, "Stalled")
    assert (found.status, found.reason) == ("True", "ApplicationNotImportable")
    assert _told(story, "Progressing").status == "False"
    assert _told(story, "Degraded").status == "True"
    world.bad.clear()
    world.until(lambda decision: decision.phase is AppPhase.RUNNING)
    assert _told(_story(decision=world.turn(), observed=world.observed()), "Stalled") is None


def test_a_revision_that_is_rolled_back_is_stalled_afterwards():
    """While the good revision is being restored there is progress."""
    status = msgspec.structs.replace(AppStatus(), failed=FailedRevision("r2", "Rolling", "NoProgress", "No."))
    for phase, stalled in ((AppPhase.ROLLING_BACK, False), (AppPhase.DEGRADED, True)):
        story = _story(decision=Decision(phase, "r1", 2, status))
        assert (_told(story, "Stalled") is not None) == stalled


def test_problems_that_stay_come_first():
    """Warnings come last. Problems of terminating pods do not count, unless their node is lost."""
    warning = Problem("TopicsUnreplicated", "Worker app-0 warns.")
    passing, staying = Problem("WorkerFailed", "Once."), Problem("ImageNotPullable", "No.", persistent=True)
    silent = Problem("WorkerSilent", "It is silent.")
    pods = (
        ObservedPod("app-first", 0, "r", "u", problem=warning),
        ObservedPod("app-0", 0, "r", "u", problem=passing),
        ObservedPod("app-1", 1, "r", "u", problem=staying),
        ObservedPod("app-2", 2, "r", "u", problem=staying, terminating=True),
        ObservedPod("app-3", 3, "r", "u", problem=silent, terminating=True, containers_ready=True),
    )
    found = problems(ObservedApp(pods))
    assert found == [("app-1", staying), ("app-0", passing), ("app-3", silent), ("app-first", warning)]


def _pending(reason: str, message: str) -> dict:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"metadata": {"name": "app-0", "uid": "u"}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("reason", "words"),
    [("Unschedulable", "does not fit on any node"), ("SchedulerError", "The scheduler cannot bind pod app-0")],
)
def test_scheduling_trouble_waits_before_it_is_told(reason, words):
    """A conflict while binding a volume is gone at the next attempt, and has nothing to do with the nodes."""
    problem = of_pod(_pending(reason, "running PreBind plugin: the object has been modified."))
    assert problem.reason == "Unschedulable"
    assert words in problem.message
    assert "modified. " in problem.message
    assert problem.patience == timedelta(seconds=10)
    assert Problem("X", "", persistent=True).patience == timedelta(0)


@pytest.mark.parametrize("turned", [False, True], ids=["oldest first", "newest first"])
def test_a_volume_is_told_of_by_what_happened_last(turned):
    """A busy node could not read the Secret at first and found later that it does not exist; events are not ordered."""
    pod = {"metadata": {"name": "app-0", "uid": "u", "namespace": "shop"}}

    def failed(at, message):
        return {
            "reason": "FailedMount", "message": message, "lastTimestamp": at, "involvedObject": {"uid": "u"},
        }  # fmt: skip

    cache = failed("2026-11-22T17:01:40Z", "failed to sync secret cache: timed out waiting for the condition")
    missing = failed("2026-11-22T17:01:44Z", 'MountVolume.SetUp failed for volume "c" : secret "nowhere" not found')
    events = [missing, cache] if turned else [cache, missing]
    assert mount_problem(pod, events).reason == "SecretMissing"
    missing["lastTimestamp"] = cache["lastTimestamp"]
    assert mount_problem(pod, events).reason == "SecretMissing"
    cache["lastTimestamp"] = "2026-11-22T17:01:48Z"
    assert mount_problem(pod, events).reason == "VolumeNotMountable"


@pytest.mark.parametrize(
    ("why", "cure"),
    [
        ('pods "app-1" is forbidden: exceeded quota: small, requested: pods=1', "lower spec.replicas"),
        ('pods "app-1" is forbidden: violates PodSecurity "restricted:latest": seccompProfile', "spec.pod"),
        ('pods "app-1" is forbidden: no PriorityClass with name gold was found', "priorityClassName"),
        ('admission webhook "policy.example" denied the request: no labels', "owner of the webhook"),
        ("something that nobody has seen before", "spec.pod forbids"),
    ],
)
def test_a_pod_that_cannot_be_created_is_a_problem_with_a_cure(why, cure):
    """The message has the API server's text and a cure; once the pod was created, the old event is no problem."""

    def event(reason, message, at):
        return {"reason": reason, "message": message, "lastTimestamp": at}

    failed = event("FailedCreate", f"create Pod app-1 in StatefulSet app failed error: {why}.", "2026-11-22T17:00:05Z")
    others = [
        event("SuccessfulCreate", "create Pod app-1 in StatefulSet app successful", "2026-11-22T17:00:01Z"),
        event("SuccessfulCreate", "create Pod app-10 in StatefulSet app successful", "2026-11-22T17:00:09Z"),
        event("SuccessfulDelete", "delete Pod app-1 in StatefulSet app successful", "2026-11-22T17:00:09Z"),
    ]
    found = creation_problem("app-1", [failed, *others])
    assert found.reason == "PodNotCreated"
    assert why in found.message
    assert ".." not in found.message
    assert cure in found.message
    assert creation_problem("app-10", [failed, *others]) is None
    exists = event(
        "FailedCreate",
        f'{failed["message"].partition(" failed")[0]} failed error: pods "app-1" already exists',
        "2026-11-22T17:00:07Z",
    )
    assert creation_problem("app-1", [exists, failed, *others]) is None
    made = event("SuccessfulCreate", "create Pod app-1 in StatefulSet app successful", "2026-11-22T17:00:10Z")
    assert creation_problem("app-1", [made, failed, *others]) is None


def test_a_volume_that_was_mounted_after_all_is_no_problem():
    """The event of the failure stays for an hour; a later event shows that the volume was mounted."""
    pod = {"metadata": {"name": "app-0", "uid": "u", "namespace": "shop"}}

    def event(reason, message="", uid="u"):
        return {"reason": reason, "message": message, "involvedObject": {"uid": uid}}

    failed = event("FailedMount", "MountVolume.SetUp failed: timed out")
    assert mount_problem(pod, [failed]).reason == "VolumeNotMountable"
    assert mount_problem(pod, [failed, event("Pulling", uid="other")]) is not None
    for later in ("Pulling", "Pulled", "Created"):
        assert mount_problem(pod, [failed, event(later)]) is None


def test_the_page_has_every_reason_of_degraded():
    """A person who sees a reason finds it in the table."""
    controllers = ROOT / "operator/millpond_operator/controllers"
    files = [*(controllers / "rollout").glob("*.py"), *(controllers / "reconcile").glob("*.py")]
    sources = "".join(file.read_text() for file in files)
    reasons = REPORTED_BY_WORKERS | set(re.findall(r'Problem\(\s*"(\w+)"', sources))
    page = (ROOT / "docs/kubernetes.md").read_text()
    rows = re.findall(r"^\| (`[A-Z].*?) \|", page.partition("| reason of `Degraded` |")[2], re.MULTILINE)
    assert len(reasons) > 20
    missing = sorted(reasons - set(re.findall(r"\w+", " ".join(rows))))
    assert not missing, f"add {missing} to the table of reasons in docs/kubernetes.md"
