"""Mistakes that only a broker can tell, on the shared one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.on_broker import said_on_broker
from tests.mistakes.table import MISTAKES, Mistake, Moment
from tests.support.broker import Broker

ON_A_BROKER = [mistake for mistake in MISTAKES if mistake.moment is Moment.BROKER]


@pytest.mark.long
@pytest.mark.parametrize("mistake", ON_A_BROKER, ids=lambda each: each.title.replace(" ", "-"))
def test_a_mistake_is_told_when_the_worker_meets_the_broker(
    mistake: Mistake, broker: Broker, app_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a record is processed, or with the first ones; the words are those of the table."""
    said = said_on_broker(mistake, broker.bootstrap_servers, app_id, tmp_path, capsys)
    assert said == (mistake.moment, mistake.says)
