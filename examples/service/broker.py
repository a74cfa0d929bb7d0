"""A broker for a try, with the topics of the service. It forgets all at its end.

python -m examples.service.broker 9092
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millpond.broker import EmbeddedBroker

__all__ = ("main",)

TOPICS = ("transfers", "balances")


def main(port: int) -> None:
    """Run until Ctrl-C."""
    with EmbeddedBroker(port=port) as broker:
        admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic(each, num_partitions=4) for each in TOPICS]).values():
            created.result()
        print(f"a broker listens at {broker.bootstrap_servers}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 9092)
