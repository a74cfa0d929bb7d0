"""Checks in a thread whether brokers answer this worker (docs/decisions/0025-workers-without-brokers.md).

Without brokers, polls are empty, and without a commit, nothing fails. So a thread sends a request every
few seconds. Its result goes to the coordinator, to `/readyz` and to the metrics. If a broker answers, each
broker that the application needs is asked, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from millpond.errors import BrokerError
from millpond.protocol import BrokerReach, Brokers
from millpond.runtime.blockers import Blockers

from .leading_brokers import BrokerAnswers

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
        each: returns which of the brokers that the application needs answer within a number of seconds, by broker id.

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
        each: Callable[[float], Mapping[int, bool]] = lambda _: {},
    ) -> None:
        self._probe = probe
        self._each = each
        self._answers = BrokerAnswers(lost_after_s)
        self._missing: tuple[int, ...] = ()
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
        """The brokers that answer, as reported to the coordinator."""
        return self._answers.reach(self._now())

    @property
    def doubtful(self) -> bool:
        """Whether other workers may have taken tasks over, because brokers are missing or were a moment ago."""
        return self._doubtful_since is not None or bool(self.reach.missing)

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
        self._note({}, requested_at)
        if self._answering_since is not None:
            # At most the time of a check: if the process was suspended meanwhile, the brokers are not lost yet.
            self._silent_since = max(requested_at, self._now() - 2 * self._answer_s)
            self._answering_since = None
            self._blockers.add(_BLOCKER, self._error(), min(self._lost_after_s, _REPORTED_AFTER_S))
        if self.lost and not self._logged:
            self._logged = True
            log.warning("%s", self._error())

    def _check_each(self) -> None:
        requested_at = self._now()
        self._note(self._each(self._answer_s), requested_at)

    def _note(self, answers: Mapping[int, bool], requested_at: float) -> None:
        now = self._now()
        self._doubt(self._answers.reach(now), now)
        # At most the time of a check, as above.
        self._answers.note(answers, max(requested_at, now - self._answer_s), now)
        reach = self._answers.reach(now)
        self._doubt(reach, now)
        if reach.missing == self._missing:
            return
        if reach.missing:
            error = _missing_error(reach.missing)
            self._blockers.add(_MISSING, error, 0.0)
            log.warning("%s", error)
        else:
            self._blockers.remove(_MISSING)
            log.info("brokers %s: no longer missing", ", ".join(map(str, self._missing)))
        self._missing = reach.missing

    def _doubt(self, reach: BrokerReach, now: float) -> None:
        """Begin or end the doubt, as the coordinator decides that the worker is cut off."""
        since = self._doubtful_since
        if reach.missing:
            self._doubtful_since = now if since is None else since
        elif since is not None and reach.settled and now - since >= self._lost_after_s:
            self.doubts += 1
            self._doubtful_since = None

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


def _missing_error(missing: tuple[int, ...]) -> BrokerError:
    brokers, do, these = ("broker", "does", "it") if len(missing) == 1 else ("brokers", "do", "them")
    return BrokerError(
        f"{brokers} {', '.join(map(str, missing))} {do} not answer this worker, although other brokers do. If another "
        f"worker reaches {these}, the tasks of this worker move. Check the network between this worker and {these}."
    )
