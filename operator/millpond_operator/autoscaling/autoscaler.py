"""The autoscaler of one application."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from .budget import may_rescale, noted, with_recent
from .choice import Choice, Demand, Load, anticipating, choose
from .measurement import WINDOW, Measurement, Meter, Unmeasured
from .model import AUTO, AutoscalingStatus, Policy, Reason, ReportedLoad, Situation, past
from .replicas import clamped, effective_replicas
from .trend import Trend
from .wording import Words

__all__ = ("Autoscaler",)

_QUIET, _QUIET_OVER = timedelta(minutes=1), timedelta(hours=1)
"""Reason and recommendation change after this time, for each such change within the longer time, unless it acts."""
_UNMEASURED = timedelta(minutes=2)
"""How long rates may be unknown, as after a move, before that is told."""
_LAG_FOR_SCALE_IN = 0.5
"""Lag counts as worked off below this share of the target."""
_LITTLE_LAG = 0.1
"""Records that a worker processes within this share of the target are no lag, however seldom others arrive."""
_WORTH, _WORTH_LATE = 2 / 3, 1 / 2
"""A scale-in leaves at most this share of the workers: while half of the budget is left, and after that."""


class Autoscaler:
    """Decides on the number of workers of one application.

    What it remembers between calls are measurements of the last minutes; a new one measures again. All else is in the
    status.

    Args:
        policy: what the StreamApp asks for.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._meter = Meter()
        self._trend = Trend()
        self._wanted: deque[tuple[datetime, int]] = deque()
        self._short_since: datetime | None = None
        self._unmeasured_since: datetime | None = None
        self._stuck_since: datetime | None = None
        self._paused = False
        self._told: deque[datetime] = deque()
        self._reworded: deque[datetime] = deque()
        self._last: datetime | None = None
        self._policy_changed = False

    @property
    def policy(self) -> Policy:
        """What the StreamApp asks for."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy != self._policy:
            self._policy = policy
            self._policy_changed = True
            self._forget_wishes()

    def observe(self, now: datetime, loads: Mapping[str, ReportedLoad]) -> None:
        """Remember the last load reports of all live workers."""
        self._notice(now)
        self._meter.add(now, loads)

    def decide(self, now: datetime, situation: Situation, status: AutoscalingStatus | None) -> AutoscalingStatus:
        """Return the new status: what is wanted, what is recommended, and why.

        It is equal to the given one unless something changed that people or the operator should know. Save it before
        acting on it.

        Args:
            now: the current time.
            situation: what is known besides the load.
            status: the saved status; None for none.
        """
        self._notice(now)
        policy = self._policy
        before = status or AutoscalingStatus()
        if before.mode != policy.mode:  # a new start, but the rescales of the day have happened
            before = AutoscalingStatus(rescales=before.rescales, last_scale_time=before.last_scale_time)
        acting = policy if not situation.conflict else None
        current = effective_replicas(situation.spec_replicas, acting, before)
        most = self._most(situation)
        state = msgspec.structs.replace(
            with_recent(before, now),
            mode=policy.mode,
            spec_replicas=situation.spec_replicas,
            current_replicas=current,
            max_replicas=most,
        )
        if current != before.current_replicas:  # someone else changed it: what was said is about the former number
            self._forget_wishes()
            state = msgspec.structs.replace(state, recommended_replicas=current, reason="")
        words = Words(policy, current, most, sum(situation.tasks.values()))
        decided = self._decided(now, situation, state, words)
        return self._quiet(now, before, decided)

    def _most(self, situation: Situation) -> int:
        """Return the largest number of workers that can process: every one has a task."""
        tasks = sum(situation.tasks.values())
        return min(self._policy.max_replicas, tasks) if tasks else self._policy.max_replicas

    def _decided(
        self, now: datetime, situation: Situation, state: AutoscalingStatus, words: Words
    ) -> AutoscalingStatus:
        if situation.spec_replicas == 0:
            return _stays(state, Reason.DISABLED, words.disabled())
        if situation.unsteady:
            self._meter.clear()
            self._forget_wishes()
            if (
                state.reason in {Reason.SCALE_OUT, Reason.SCALE_IN}
                and state.recommended_replicas == state.current_replicas
            ):
                return state  # it is this rescale that is going on
            return _stays(state, Reason.SETTLING, words.settling(situation.unsteady))
        measured = self._meter.measure(sum(situation.tasks.values()))
        if isinstance(measured, Unmeasured):
            self._unmeasured_since = self._unmeasured_since or now
            self._stuck_since = (self._stuck_since or now) if measured.still and not measured.idle else None
            if measured.idle or (self._stuck_since is not None and now - self._stuck_since < _UNMEASURED):
                self._short_since = None
                self._paused = True  # times between few records say nothing about the workers
            else:
                self._forget_wishes()
            brief = now - self._unmeasured_since < _UNMEASURED and not self._policy_changed
            if state.reason and not measured.idle and brief:
                return state
            return _stays(state, Reason.IDLE if measured.idle else Reason.UNMEASURED, words.unmeasured(measured))
        self._unmeasured_since = self._stuck_since = None
        self._trend.add(now, measured.load)
        found = self._compare(now, state, measured, words)
        if situation.conflict:
            message = words.conflict(situation.conflict)
            return msgspec.structs.replace(
                found, current_replicas=state.current_replicas, reason=Reason.CONFLICT.value, message=message
            )
        return found

    def _compare(
        self, now: datetime, state: AutoscalingStatus, measured: Measurement, words: Words
    ) -> AutoscalingStatus:
        """Compare the workers with the demand."""
        policy, current, most = self._policy, state.current_replicas, state.max_replicas
        demand = Demand(measured, policy)
        load = demand.now
        if load.exceeds(policy):
            return self._out(now, state, measured, demand, words)
        self._short_since = None
        choice = self._anticipated(choose(demand, policy, most, slack=1.0), demand, most)
        if choice.replicas > current:  # its busiest worker is within the target, as measured
            choice = Choice(current, load, enough=True)
        self._wish(now, choice.replicas)
        if choice.replicas == current:
            return _stays(state, Reason.STEADY, words.steady(load))
        return self._in(now, state, measured, choice, load, words)

    def _out(
        self, now: datetime, state: AutoscalingStatus, measured: Measurement, demand: Demand, words: Words
    ) -> AutoscalingStatus:
        policy, current, most, load = self._policy, state.current_replicas, state.max_replicas, demand.now
        choice = self._anticipated(choose(demand, policy, most), demand, most)
        self._short_since = self._short_since or now
        wanted = max(clamped(choice.replicas, policy), current)
        self._wish(now, wanted)
        if wanted <= current:
            if current >= most or choose(demand, policy, demand.tasks).replicas > current:
                return _limited(state, current, Reason.AT_MAX, words.at_max(load))
            return _limited(state, current, Reason.HOT_TASK, words.hot_task(load))
        if now - self._short_since < WINDOW:  # until then, rates are partly of the time before
            return _stays(state, Reason.STEADY, words.steady(load))
        message = words.out(load, choice)
        in_danger = measured.lag_seconds > policy.target_lag.total_seconds() or load.arriving > 1
        # If that is not enough, it does what it can, and says so.
        state = msgspec.structs.replace(state, limited=not choice.enough)
        return self._rescaled(now, state, wanted, Reason.SCALE_OUT, message, words, in_danger=in_danger)

    def _in(  # noqa: PLR0913 - what a scale-in depends on
        self,
        now: datetime,
        state: AutoscalingStatus,
        measured: Measurement,
        choice: Choice,
        load: Load,
        words: Words,
    ) -> AutoscalingStatus:
        policy, current = self._policy, state.current_replicas
        target = policy.target_lag.total_seconds()
        lag_seconds = measured.lag_seconds_beyond(target * _LITTLE_LAG)
        if lag_seconds > target * _LAG_FOR_SCALE_IN:
            self._forget_wishes()
            return _stays(state, Reason.CATCHING_UP, words.catching_up(lag_seconds))
        wanted = clamped(max(number for _, number in self._wanted), policy)
        since = max(filter(None, (self._wanted[0][0], past(state.last_scale_time, now))))
        if now - since < policy.stabilization / 2:
            return _stays(state, Reason.STEADY, words.steady(load))
        if now - since < policy.stabilization:
            return _stays(state, Reason.STABILIZING, words.stabilizing(choice))
        late = 2 * len(state.rescales) >= policy.rescales_per_day
        if wanted >= current or wanted > current * (_WORTH_LATE if late else _WORTH):
            return _stays(state, Reason.STEADY, words.steady(load))
        state = msgspec.structs.replace(state, limited=False)
        return self._rescaled(now, state, wanted, Reason.SCALE_IN, words.into(wanted), words, in_danger=False)

    def _rescaled(  # noqa: PLR0913 - what a rescale depends on
        self,
        now: datetime,
        state: AutoscalingStatus,
        wanted: int,
        reason: Reason,
        message: str,
        words: Words,
        *,
        in_danger: bool,
    ) -> AutoscalingStatus:
        """Return the status of a rescale, or of one that is only recommended or not allowed."""
        policy = self._policy
        if policy.mode == AUTO and not may_rescale(state, policy, in_danger=in_danger):
            blocked = msgspec.structs.replace(state, recommended_replicas=wanted, limited=reason is Reason.SCALE_OUT)
            return msgspec.structs.replace(
                blocked, reason=Reason.BUDGET_SPENT.value, message=words.budget_spent(wanted, len(state.rescales))
            )
        told = msgspec.structs.replace(state, recommended_replicas=wanted, reason=reason.value, message=message)
        if policy.mode != AUTO:
            return told
        self._meter.clear()
        self._forget_wishes()
        return noted(msgspec.structs.replace(told, current_replicas=wanted), now)

    def _anticipated(self, choice: Choice, demand: Demand, most: int) -> Choice:
        """Return the choice with the growth until the next rescale that the budget allows, if the load is growing."""
        growth = self._trend.factor(timedelta(days=1) / self._policy.rescales_per_day / 2)
        return anticipating(choice, demand, self._policy, most, growth) if growth > 1 and choice.enough else choice

    def _wish(self, now: datetime, wanted: int) -> None:
        """Remember a number of workers that would be enough. Times in which no records are processed do not count."""
        if self._paused and self._wanted:
            gap = now - self._wanted[-1][0]
            self._wanted = deque((at + gap, number) for at, number in self._wanted)
        self._paused = False
        self._wanted.append((now, wanted))
        while len(self._wanted) > 1 and self._wanted[1][0] <= now - self._policy.stabilization:
            self._wanted.popleft()

    def _notice(self, now: datetime) -> None:
        """Measure anew if the clock was set back: times before that would block decisions until it is later."""
        if self._last is not None and now < self._last:
            self._meter.clear()
            self._trend = Trend()
            self._told.clear()
            self._reworded.clear()
            self._unmeasured_since = self._stuck_since = None
            self._forget_wishes()
        self._last = now

    def _forget_wishes(self) -> None:
        self._wanted.clear()
        self._short_since = None
        self._paused = False

    def _quiet(self, now: datetime, before: AutoscalingStatus, after: AutoscalingStatus) -> AutoscalingStatus:
        """Return the former words and recommendation while they changed a moment ago, or only numbers in them do."""
        if self._policy_changed:  # the former words name numbers of the former policy
            self._policy_changed = False
            return after
        said = ("recommended_replicas", "reason", "limited")
        if all(getattr(after, each) == getattr(before, each) for each in said):
            reworded = _without_numbers(after.message) != _without_numbers(before.message)
            if reworded and _may_change(self._reworded, now):
                return after
            return msgspec.structs.replace(after, message=before.message)
        kept = msgspec.structs.replace(after, message=before.message, **{each: getattr(before, each) for each in said})
        return after if kept != before or _may_change(self._told, now) else before


def _may_change(changes: deque[datetime], now: datetime) -> bool:
    """Note a change of what is told, and return True, unless the last one was a moment ago."""
    while changes and now - changes[0] > _QUIET_OVER:
        changes.popleft()
    if changes and now - changes[-1] < _QUIET * len(changes):
        return False
    changes.append(now)
    return True


def _without_numbers(message: str) -> str:
    return re.sub("[0-9]+", "", message)


def _stays(state: AutoscalingStatus, reason: Reason, message: str) -> AutoscalingStatus:
    return msgspec.structs.replace(
        state, recommended_replicas=state.current_replicas, reason=reason.value, message=message, limited=False
    )


def _limited(state: AutoscalingStatus, recommended: int, reason: Reason, message: str) -> AutoscalingStatus:
    return msgspec.structs.replace(
        state, recommended_replicas=recommended, reason=reason.value, message=message, limited=True
    )
