"""A short attack on a real operator: the others' heartbeats are answered, and the lease is kept."""

from __future__ import annotations

import pytest

from bench.hostile.__main__ import Options, run

pytestmark = [pytest.mark.slow, pytest.mark.apiserver, pytest.mark.process, pytest.mark.timeout(600)]


@pytest.mark.long
def test_short_attack_costs_the_others_nothing() -> None:
    """Delays are not checked: other tests run on the same cores."""
    figures = run(Options(apps=3, workers=2, calm=1, seconds=5, tokens=500, idle=200, huge=2, huge_mb=4))
    assert figures.attacked.answered > 0
    assert figures.attacked.broken == 0
    assert figures.lost_leases == 0
    assert "huge_200" not in figures.attack
    assert not any(key.startswith("token_2") for key in figures.attack)
    assert figures.most_mb < 400
