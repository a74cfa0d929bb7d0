"""`millpond produce` while no broker answers."""

from __future__ import annotations

from millpond.cli.records.lines import Line
from millpond.cli.records.produce import _Writer
from millpond.runtime.config.model import Config
from tests.support.broker import free_port
from tests.support.kafka import eventually


def test_it_says_once_that_it_waits_and_for_how_long() -> None:
    """A minute without a word looks as if the command hung."""
    told: list[str] = []
    writer = _Writer(
        Config.of({"application.id": "a", "bootstrap.servers": f"127.0.0.1:{free_port()}"}), "orders", told.append
    )
    writer.write(Line(key=None, value=b"1"))

    def waited() -> bool:
        writer._producer.poll(0.1)
        return bool(told)

    eventually(waited, "it is told")
    for _ in range(20):
        writer._producer.poll(0.1)
    (text,) = told
    assert text == "no broker answers: records wait for up to 60 s until it is back. Ctrl-C ends the wait."
    writer._producer.purge()
