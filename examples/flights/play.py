"""Play the year of flights into a Kafka that runs elsewhere: `python -m examples.flights.play localhost:9092`.

It waits for the broker, creates the topics, sends both tables and then the flights, for as long as `--minutes` says.
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka import KafkaError, KafkaException

from examples.flights.stage import data, player, topics

_PAUSE_S = 1.0
_SHOWN_S = 10.0


def main() -> None:
    """Play the year."""
    parser = argparse.ArgumentParser(prog="examples.flights.play", description=__doc__)
    parser.add_argument("bootstrap_servers")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long the year takes (default: 20)")
    arguments = parser.parse_args()
    servers = arguments.bootstrap_servers
    _create_topics(servers)
    player.play_tables(servers)
    flights = player.Player(servers, data.year(None), 60 * arguments.minutes)
    flights.start()
    while flights.is_alive():
        flights.join(_SHOWN_S)
        print(f"{flights.day}: {flights.played:,} of {flights.total:,} flights sent", flush=True)
    if flights.error is not None:
        raise SystemExit(f"play: {flights.error}")


def _create_topics(servers: str) -> None:
    """Create the topics, once the broker answers; those of an earlier run stay."""
    while True:
        try:
            return topics.create_topics(servers)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return None
            print(f"waiting for Kafka at {servers}: {error.args[0].str()}", flush=True)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
