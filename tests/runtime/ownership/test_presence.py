"""The reports of a running worker while its only broker is away."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from millpond.runtime.ownership.presence import presence_group
from tests.support import kafka
from tests.support.broker import Broker

_WORKER = """
import gc, logging, sys
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership import presence

gc.disable()  # the workers' garbage is collected seldom
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
presence._TIMEOUT_S, presence.PERIOD_S = 0.5, 0.1
settings = {"bootstrap.servers": sys.argv[1], "reconnect.backoff.max.ms": 500}
reports = presence.PresenceReports("app", "w0", lambda: settings, lambda: [Partition("input", 0)])
reports.start()
sys.stdin.read()
reports.close()
"""


@pytest.mark.long
def test_a_worker_outlives_reports_that_nobody_answered(own_broker: Broker) -> None:
    """Its client may abort the process when the coordinator answers after a request has timed out.

    See `runtime/kafka/group_requests.py`.
    """
    servers = own_broker.bootstrap_servers
    kafka.create_topic(servers, "input")

    def reported() -> int:
        return kafka.committed_offsets(servers, presence_group("app"), "input").get(0, (0, ""))[0]

    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, servers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as worker:  # fmt: skip
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            kafka.eventually(lambda: reported() > 0, "the first report")
            own_broker.kill()
            said = next((line for line in worker.stdout if "cannot commit to the consumer group" in line), "")
            assert "no answer from the broker" in said
            own_broker.start()
            back_ms = int(time.time() * 1000)
            kafka.eventually(lambda: worker.poll() is not None or reported() > back_ms, "a report after the restart")
            worker.stdin.close()
            assert worker.wait(60) == 0, worker.stdout.read()
        finally:
            worker.kill()
