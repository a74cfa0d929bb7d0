"""A broker for a try, with topics. It forgets all at its end.

python -m examples.broker 9092 TOPIC ...
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millpond.broker import EmbeddedBroker

__all__ = ("run",)

_PARTITIONS = 4


def run(port: int, topics: list[str]) -> None:
    """Run a broker until Ctrl-C."""
    with EmbeddedBroker(port=port) as broker:
        admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic(each, num_partitions=_PARTITIONS) for each in topics]).values():
            created.result()
        print(f"a broker listens at {broker.bootstrap_servers}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Kafka broker for a try.")
    parser.add_argument("port", type=int, help="its port")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic to create")
    given = parser.parse_args()
    run(given.port, given.topics)
