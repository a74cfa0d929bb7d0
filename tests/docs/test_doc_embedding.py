"""The examples of docs/embedding.md run."""

from __future__ import annotations

import millpond as mp
from tests.support import kafka

from .examples import run_examples


def test_the_examples_of_embedding_run(broker, create_topic, app_id, tmp_path, monkeypatch):
    """They start, pause and close workers on a real broker, and the records come out once."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words, shouts = create_topic("words"), create_topic("shouts")
    servers = broker.bootstrap_servers
    kafka.produce(servers, words, [("a", "quiet")])
    replaced = {
        "localhost:9092": servers, '"shouting"': f'"{app_id}"', '"words"': f'"{words}"', '"shouts"': f'"{shouts}"',
        '"counting"': f'"{app_id}-counting"',
        # A worker that is closed at once may have processed nothing.
        "    print(worker.state)\n": "    print(worker.state)\n    await_the_shout()\n",
    }  # fmt: skip
    given = {"await_the_shout": lambda: kafka.read_until(servers, shouts, 1)}
    names, printed = run_examples("docs/embedding.md", replaced, given)
    assert "WorkerState.RUNNING" in printed
    assert "['0_0']" in printed
    assert "LagInfo" in printed
    assert names["worker"].state is mp.WorkerState.NOT_RUNNING
    assert [row.value for row in kafka.read(servers, shouts, settled=True)] == [b"QUIET"]
