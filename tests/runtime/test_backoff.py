"""Back-off: each wait is twice the one before it, up to the longest, minus the jitter."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from millpond.backoff import Backoff

BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=1))


def test_waits_double_up_to_the_longest():
    assert list(islice(BACKOFF, 6)) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert list(islice(BACKOFF, 1)) == [0.1], "each iteration begins with the shortest wait"


@given(failures=st.integers(1, 10**6), jitter=st.floats(0.0, 1.0), seed=st.integers(0, 2**32))
def test_jitter_only_shortens_a_wait(failures: int, jitter: float, seed: int):
    full = BACKOFF.wait_s(failures)
    some = Backoff(BACKOFF.first, BACKOFF.longest, jitter).wait_s(failures, random.Random(seed))
    assert full * (1 - jitter) <= some <= full <= 1.0
