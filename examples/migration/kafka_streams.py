"""Prints the class path of Kafka Streams, after fetching what is missing.

export KAFKA_STREAMS="$(python -m examples.migration.kafka_streams)"
"""

from __future__ import annotations

from millpond.broker import jars

if __name__ == "__main__":
    print(jars.classpath("kafka-streams"))
