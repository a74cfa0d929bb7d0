"""One run from start to end: input, faults, the wait until everything is caught up, and all checks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from tests.chaos.applications import APPLICATION
from tests.chaos.changelogs import expected
from tests.chaos.checks.broker_log import rewound
from tests.chaos.checks.stores import Copies
from tests.chaos.checks.truth import Finding
from tests.chaos.conducting import Conductor
from tests.chaos.planning import Fault, Kind, described, make_plan
from tests.chaos.processes import Exit
from tests.chaos.stage import Options, Stage, unsettled
from tests.ownership.watch import faults, read_chains
from tests.support import choices

__all__ = ("WRITTEN_S", "Outcome", "Status", "run")

_START_S = 120.0
#: After the last fault, there has to be output at least this often until everything is processed.
_CATCH_UP_S = 90.0
#: Without output for so long, the run is stuck.
_STUCK_S = 60.0
_TICK_S = 0.02
#: Operators look for closed windows once a second, so a round of records that close windows takes longer.
_CLOSING_ROUND_S = 1.2
#: Every task has to run for so long before the workers are stopped and their state is checked.
WRITTEN_S = 5.0
_VIEW_EVERY_S = 0.2


@dataclass
class Outcome:
    """The result of a run."""

    options: Options
    plan: list[Fault]
    carried_out: list[Fault] = field(default_factory=list)
    records: int = 0
    """The number of input records whose results are counted."""
    seconds: float = 0.0
    """Seconds from the first fault to the end of the last."""
    catch_up_s: float | None = None
    """Seconds from the end of the faults until everything was committed; None if that did not happen."""
    settled_s: float | None = None
    """Seconds from then until every task had run where it is assigned for `WRITTEN_S`; None if that did not happen."""
    pauses: dict[int, float] = field(default_factory=dict)
    """Fault number -> seconds until all tasks had output that is newer than the fault."""
    exits: list[Exit] = field(default_factory=list)
    violations: list[tuple[float, str]] = field(default_factory=list)
    """Violations during the run: monotonic seconds, and a text."""
    stuck: str | None = None
    findings: list[Finding] = field(default_factory=list)
    copies: Copies = field(default_factory=Copies)
    starts: int = 0
    rewound: list[str] = field(default_factory=list)
    """When the broker may have served outdated committed offsets (`broker_log.py`)."""

    @property
    def exactly_once(self) -> bool:
        """Whether nothing was lost or repeated, and everything was processed."""
        return not (self.findings or self.violations or self.stuck)

    @property
    def good(self) -> bool:
        """Whether, in addition, no worker and no coordinator ended by itself."""
        return self.exactly_once and not self.exits


@dataclass
class Status:
    """The progress of a run."""

    phase: str
    elapsed: float
    total: float
    faults: int
    of: int
    active: list[Fault]
    last: list[Fault]
    sent: int
    seen: int
    idle_s: float
    running: list[str]
    exits: int
    violations: int


def run(
    options: Options, show: Callable[[Status], None] = lambda _status: None, plan: list[Fault] | None = None
) -> Outcome:
    """Carry out a run; all its files are kept in its directory.

    Args:
        options: the options.
        show: called periodically with the progress.
        plan: the faults; None to make them from the seed.
    """
    with Stage(options) as stage:
        plan = plan or make_plan(
            options.seed, options.faults, every=options.every, workers=stage.usual,
            spare=None if options.alone else stage.spare, session=options.session,
            stores=stage.application.stores, large_stores=stage.application.large_stores,
            coordinated=not options.alone, only=options.only,
        )  # fmt: skip
        (options.directory / "plan.txt").write_text(described(plan))
        choices.record(f"faults of {options.application} with seed {options.seed}", described(plan))
        return _Run(stage, plan, show).run()


class _Stuck(Exception):
    """There is no output any more."""


class _Run:
    def __init__(self, stage: Stage, plan: list[Fault], show: Callable[[Status], None]) -> None:
        self._stage = stage
        self._plan = plan
        self._show = show
        self._outcome = Outcome(stage.options, plan)
        application, options = stage.application, stage.options
        self._generator = application.generator(stage.address, options.seed, options.rate or application.rate)
        self._watch = application.watch(stage.address, self._generator)
        self._conductor: Conductor | None = None
        self._began = time.monotonic()
        self._next_show = 0.0
        self._next_view = 0.0
        self._runs_since = 0.0
        self._round_over_at = 0.0

    def run(self) -> Outcome:
        outcome, stage = self._outcome, self._stage
        self._watch.start()
        try:
            try:
                self._torment()
                self._finish()
            except _Stuck as stuck:
                outcome.stuck = str(stuck)
                self._note_views()
            outcome.records = self._generator.sent
            outcome.pauses = {number: seconds for number, (seconds, _) in self._watch.pauses.items()}
            self._note_pauses()
            for worker in stage.workers.values():
                worker.wanted = False
                worker.kill()
        finally:
            self._generator.stop()
            self._watch.stop()
        self._tick("checking")
        self._verify()
        outcome.violations = self._watch.violations
        outcome.exits = [exit for exit in stage.exits if not expected(exit.why)]
        outcome.starts = sum(worker.starts for worker in stage.workers.values())
        return outcome

    def _torment(self) -> None:
        stage = self._stage
        if not stage.options.alone:
            stage.coordinator.want()
        for name in stage.usual:
            stage.workers[name].want()
        self._generator.start()
        self._watch.fault(-1, time.monotonic())
        self._wait(lambda: -1 in self._watch.pauses, "starting", _START_S)
        self._began = time.monotonic()
        conductor = self._conductor = Conductor(stage, self._watch, self._plan)
        while not conductor.over:
            conductor.step()
            self._tick("faults")
            idle = time.monotonic() - max(self._watch.progressed_at, conductor.broker_back_at)
            if idle > _STUCK_S and not conductor.broker_away:
                raise _Stuck(f"no output for {idle:.0f} s; tasks: {', '.join(self._watch.stragglers())}")
        self._outcome.seconds = time.monotonic() - self._began
        self._outcome.carried_out = [fault for fault, _ in conductor.done]
        conductor.log_event("all faults are over")

    def _finish(self) -> None:
        self._generator.stop()
        ended = time.monotonic()
        self._wait(self._caught_up, "catching up", _CATCH_UP_S)
        self._outcome.catch_up_s = time.monotonic() - ended
        for _ in range(self._stage.application.closing_rounds):
            self._generator.close_windows()
            self._round_over_at = time.monotonic() + _CLOSING_ROUND_S
            self._wait(self._round_over, "closing windows", _CATCH_UP_S)
        moved = self._runs_since = time.monotonic()
        self._wait(self._settled, "settling", _CATCH_UP_S)
        self._outcome.settled_s = time.monotonic() - moved

    def _round_over(self) -> bool:
        return time.monotonic() > self._round_over_at and self._caught_up()

    def _caught_up(self) -> bool:
        return self._watch.seen >= self._generator.sent and not self._stage.lags(self._ends())

    def _ends(self) -> dict[tuple[str, int], int]:
        """Return the known ends of all inputs, by topic and partition."""
        # Copies: two other threads write these.
        return self._generator.ends | self._watch.internal_ends.copy()

    def _settled(self) -> bool:
        """Whether every task has run where it is assigned for a while.

        A worker that gets a task after all input was processed restores it and commits nothing more. The state is
        written right after the visible commit; no event marks that.
        """
        now = time.monotonic()
        if now >= self._next_view:
            self._next_view = now + _VIEW_EVERY_S
            if self._unsettled_now() is not None or not self._caught_up():
                self._runs_since = now
        return now - self._runs_since > WRITTEN_S

    def _unsettled_now(self) -> str | None:
        """Return why a task does not run where it is assigned; None if all do, or without a coordinator."""
        return None if self._stage.options.alone else unsettled(self._stage.coordinator.view())

    def _wait(self, condition: Callable[[], bool], phase: str, idle_s: float) -> None:
        """Wait until a phase is over; as long as output comes, it may take any time."""
        began = time.monotonic()
        while not condition():
            self._tick(phase)
            if time.monotonic() - max(began, self._watch.progressed_at) > idle_s:
                raise _Stuck(
                    f"{phase} was not over after {idle_s:.0f} s without output: {self._watch.seen} of "
                    f"{self._generator.sent} records came out; "
                    f"tasks by their delay: {', '.join(self._watch.stragglers()) or 'none'}; "
                    f"offsets to go: {self._stage.lags(self._ends())}; "
                    f"tasks not where assigned: {self._unsettled_now() or 'none known'}; "
                    f"errors of the reading client: {', '.join(self._watch.client_errors[-3:]) or 'none'}"
                )

    def _tick(self, phase: str) -> None:
        for exit in self._stage.supervise():
            if self._conductor is not None:
                self._conductor.log_event(f"{exit.who} ended by itself ({exit.code}): {exit.why}")
        now = time.monotonic()
        if now >= self._next_show:
            self._next_show = now + 0.2
            conductor = self._conductor
            done = [fault for fault, _ in conductor.done] if conductor else []
            self._show(
                Status(
                    phase, now - self._began, self._plan[-1].at, len(done), len(self._plan),
                    list(conductor.active.values()) if conductor else [], done[-6:],
                    self._generator.sent, self._watch.seen, now - self._watch.progressed_at,
                    [name for name, worker in self._stage.workers.items() if worker.running],
                    len(self._stage.exits), len(self._watch.violations),
                )
            )  # fmt: skip
        time.sleep(_TICK_S)

    def _note_pauses(self) -> None:
        """Write the longest pause of each fault and its task, and gaps in the output of tasks, into files."""
        directory = self._stage.directory
        pauses = [
            f"{fault}  {self._watch.pauses[fault.number][0]:.2f} s, {self._watch.pauses[fault.number][1]} last\n"
            for fault in self._plan
            if fault.number in self._watch.pauses
        ]
        directory.joinpath("pauses.txt").write_text("".join(pauses))
        gaps = [
            f"{task} from {before:.3f} to {after:.3f}: {after - before:.2f} s\n"
            for task, before, after in self._watch.gaps
        ]
        directory.joinpath("gaps.txt").write_text("".join(gaps))

    def _note_views(self) -> None:
        """Write the assignment of the coordinator and of Kafka into files, while they run."""
        stage = self._stage
        if self._conductor is not None:
            self._conductor.log_event("stuck")
            self._outcome.carried_out = [fault for fault, _ in self._conductor.done]
            self._conductor.stop()
        if not stage.options.alone:
            for worker in stage.workers.values():
                worker.show_threads()
            (stage.directory / "assignment-when-stuck.txt").write_text(repr(stage.coordinator.view()))
        with contextlib.suppress(KafkaException):
            (stage.directory / "owners-when-stuck.txt").write_text(repr(stage.owners()))

    def _find_old_rows(self) -> list[Finding]:
        """Return stores that a worker reused after it was down for longer than changelogs keep deletions."""
        if self._conductor is None:
            return []
        found = []
        for fault, began in self._conductor.done:
            if fault.kind is not Kind.AWAY:
                continue
            seen: set[tuple[str, int]] = set()
            for fact in self._stage.workers[fault.target].facts_of_life(began + 0.9 * fault.duration):
                place = (fact["store"], fact["partition"])
                if place not in seen and 0 < fact["start"] < fact["end"]:
                    found.append(Finding(fault.target, f"reused old rows of {place} after fault {fault.number}"))
                seen.add(place)
        return found

    def _verify(self) -> None:
        stage, outcome = self._stage, self._outcome
        findings, outcome.copies = stage.application.verify(stage, self._generator)
        outcome.findings += findings
        outcome.findings += [
            Finding("ownership", text.strip()) for text in faults(read_chains(stage.address, APPLICATION))
        ]
        outcome.findings += self._find_old_rows()
        outcome.findings += outcome.copies.findings
        outcome.rewound = rewound(stage.broker.log_file)
