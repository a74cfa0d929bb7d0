"""Checks in a thread whether brokers answer this worker (docs/decisions/0025-workers-without-brokers.md).

Without brokers, polls are empty, and without a commit, nothing fails. So a thread sends a request every
few seconds. Its result goes to the coordinator, to `/readyz` and to the metrics. If a broker answers, each
broker that the application needs is asked, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from millpond.errors import BrokerError
from millpond.protocol import BrokerReach, Brokers
from millpond.runtime.blockers import Blockers

from .leading_brokers import BrokerAnswers, BrokerCheck

__all__ = ("BrokerContact",)

log: logging.Logger = logging.getLogger(__name__)

#: Number of checks without an answer until brokers count as lost.
_CHECKS = 10
_MAX_PERIOD_S = 3.0
#: Share of that time that one request may take; a check sends up to two, with two clients.
_ANSWER_SHARE = 1 / 6
#: Share of that time for which a worker whose brokers answer again waits before it reports so. By then all other
#: workers have noticed, too: no task moves because one worker is earlier than the others.
_SETTLED_SHARE = 0.5
_REPORTED_AFTER_S = 10.0
_BLOCKER = "brokers of a running worker"
_MISSING = "some brokers of a running worker"


class BrokerContact:
    """The check of the brokers in a thread, from `start` to `close`.

    Args:
        probe: returns whether a broker answers within a number of seconds.
        lost_after_s: the time without an answer after which brokers count as lost, in seconds.
        blockers: the worker's blockers, to which unreachable brokers are added.
        servers: the brokers' addresses, for messages.
        now: returns the time of a clock, in seconds.
        each: returns which of the brokers that the application needs answer within a number of seconds; without it,
            none is needed.

    Attributes:
        doubts: how often the worker was `doubtful` and is no longer; it grows before that.
    """

    def __init__(  # noqa: PLR0913 - each argument has one use, in one call
        self,
        probe: Callable[[float], bool],
        lost_after_s: float,
        blockers: Blockers,
        servers: str,
        now: Callable[[], float] = time.monotonic,
        each: Callable[[float], BrokerCheck] | None = None,
    ) -> None:
        self._probe = probe
        self._each = each
        #: Of what is known of each broker, and of the doubt: what was reported is doubted.
        self._lock = threading.Lock()
        self._answers = BrokerAnswers(lost_after_s)
        #: The brokers that were told as missing, until all of them answer again.
        self._told: frozenset[int] = frozenset()
        self.doubts: int = 0
        self._doubtful_since: float | None = None
        self._lost_after_s = lost_after_s
        self._blockers = blockers
        self._servers = servers
        self._now = now
        self._period_s = min(lost_after_s / _CHECKS, _MAX_PERIOD_S)
        self._answer_s = lost_after_s * _ANSWER_SHARE
        self._answering_since: float | None = now()
        self._silent_since = now()
        self._logged = False
        self._closed = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="millpond-brokers", daemon=True).start()

    def close(self) -> None:
        """Stop the thread, without waiting for it."""
        self._closed.set()

    @property
    def silent_s(self) -> float:
        """The time for which no broker has answered, in seconds; 0 while brokers answer."""
        return 0.0 if self._answering_since is not None else self._now() - self._silent_since

    @property
    def lost(self) -> bool:
        """Whether no broker has answered for `lost_after_s`."""
        return self.silent_s >= self._lost_after_s

    @property
    def brokers(self) -> Brokers:
        """The state of the brokers as reported to the coordinator."""
        since = self._answering_since
        if since is None:
            return Brokers.LOST if self.lost else Brokers.SILENT
        settled = self._now() - since >= self._lost_after_s * _SETTLED_SHARE
        return Brokers.ANSWERING if settled else Brokers.SILENT

    @property
    def reach(self) -> BrokerReach:
        """The brokers that answer, as reported to the coordinator. From the first report of a missing one, in doubt."""
        with self._lock:
            return self._reach()

    @property
    def doubtful(self) -> bool:
        """Whether other workers may have taken tasks over, because brokers are missing or were a moment ago."""
        with self._lock:
            self._reach()
            return self._doubtful_since is not None

    def check(self) -> None:
        """Check the brokers once."""
        requested_at = self._now()
        if self._probe(self._answer_s):
            if self._answering_since is None:
                self._answering_since = self._now()
                self._blockers.remove(_BLOCKER)
                if self._logged:
                    log.info("brokers at %s: answering again", self._servers)
                self._logged = False
            self._check_each()
            return
        with self._lock:
            self._reach()
            self._answers.note_silence()
        self._blockers.remove(_MISSING)
        if self._answering_since is not None:
            # At most the time of a check: if the process was suspended meanwhile, the brokers are not lost yet.
            self._silent_since = max(requested_at, self._now() - 2 * self._answer_s)
            self._answering_since = None
            self._blockers.add(_BLOCKER, self._error(), min(self._lost_after_s, _REPORTED_AFTER_S))
        if self.lost and not self._logged:
            self._logged = True
            log.warning("%s", self._error())

    def _check_each(self) -> None:
        if self._each is None:
            return
        check, now = self._each(self._answer_s), self._now()
        # At most the time of a check, as above.
        check = replace(check, asked_at=max(check.asked_at, now - 2 * self._answer_s))
        with self._lock:
            self._reach()
            self._answers.note(check)
            reach = self._reach()
            self._end_doubt(reach, now)
        self._tell(reach.missing)

    def _reach(self) -> BrokerReach:
        reach = self._answers.reach(now := self._now())
        if reach.missing and self._doubtful_since is None:
            self._doubtful_since = now
        return reach

    def _end_doubt(self, reach: BrokerReach, now: float) -> None:
        """End the doubt, as the coordinator decides that the worker is not cut off any more."""
        since = self._doubtful_since
        if since is not None and reach.settled and not reach.missing and now - since >= self._lost_after_s:
            self.doubts += 1
            self._doubtful_since = None

    def _tell(self, missing: tuple[int, ...]) -> None:
        """Tell each broker that is missing once, in the log and as a blocker, until all of these answer again."""
        silent = self._told.intersection(self._answers.silent)
        if not silent.issuperset(missing):
            silent = silent.union(missing)
            log.warning("%s", _missing_error(silent))
        elif self._told and not silent:
            log.info("brokers %s: no longer missing", _listed(self._told))
            self._told = frozenset()
        self._told |= silent
        if silent:
            self._blockers.add(_MISSING, _missing_error(silent), 0.0)
        else:
            self._blockers.remove(_MISSING)

    def _error(self) -> BrokerError:
        # Always the same sentence: a changed one would look like news.
        return BrokerError(
            f"no broker at '{self._servers}' answers this worker, so its tasks move to workers that reach the brokers. "
            f"Check the brokers, and the network between them and this worker."
        )

    def _run(self) -> None:
        while not self._closed.wait(self._period_s):
            try:
                self.check()
            except Exception:
                log.exception("brokers at %s: cannot check whether they answer; checking again", self._servers)


def _missing_error(missing: Collection[int]) -> BrokerError:
    brokers, do, these = ("broker", "does", "it") if len(missing) == 1 else ("brokers", "do", "them")
    return BrokerError(
        f"{brokers} {_listed(missing)} {do} not answer this worker, although other brokers do. If another worker "
        f"reaches {these}, the tasks of this worker move. Check the network between this worker and {these}."
    )


def _listed(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
