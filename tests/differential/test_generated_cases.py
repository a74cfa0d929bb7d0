"""Generated topologies have the results of Kafka Streams: a minute of them."""

from __future__ import annotations

import pytest

from tests.differential.original import Original
from tests.differential.running import run, save

_CASES = 800
_SEED = 31337
"""A seed whose cases are known to be equal. The command takes fresh ones: it still finds a difference in some thousands
of cases, mostly in rewrites of topologies, and a change must not fail by a difference that it did not make."""
_SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(900)  # a difference is made smaller before it is shown
def test_generated_topologies_have_the_results_of_the_original(original: Original) -> None:
    """Records, stores, changelogs, internal topics and descriptions are the same, for a minute or all cases."""
    result = run(original, _CASES, _SEED, seconds=_SECONDS)
    print(f"{result.compared} cases of seed {_SEED} in {result.seconds:.0f} s")
    files = save(result)
    shown = [
        f"{what}\n{file.read_text()}replay: python -m tests.differential --replay {file}"
        for file, (_, what) in zip(files, result.differences, strict=True)
    ]
    assert not shown, "\n".join(shown)
