"""A year of flights through a real Kafka broker, exactly once, on three workers, one of which is killed on the way.

`make demo` runs it. At the end the output is compared with a plain loop over the same data. The exit status is 0 if
they are equal, 1 if they differ, 2 if the demo failed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))  # the repository: this file is run by its path

from examples.flights.stage import data, player, truth
from examples.flights.stage.display import Display
from examples.flights.stage.session import DevSession, SessionEnded
from examples.flights.stage.topics import TOPICS, TopicsExist, create_topics, guest_topics
from examples.flights.stage.watch import Lags, Results
from examples.flights.stage.workers import Workers, WorkersStuck
from millpond.broker import jars
from millpond.broker.quick import quick_broker
from millpond.errors import MillpondError

_OUTPUT = "delays-by-airport"
_POLL_S = 0.1
_STALL_TIMEOUT_S = 90.0


class DemoFailed(Exception):
    """The demo cannot continue."""


def main() -> int:
    """Run the demo; return the exit status."""
    arguments = _arguments()
    console = Console(highlight=False)
    display = Display(console)
    try:
        if arguments.bootstrap_servers is None:
            jars.paths("kafka")  # shows the progress of downloads itself
        with display:
            found = _demo(display, arguments)
    except KeyboardInterrupt:
        console.print("interrupted.")
        return 130
    except (
        MillpondError,
        KafkaException,
        DemoFailed,
        SessionEnded,
        TopicsExist,
        WorkersStuck,
        data.MissingData,
    ) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    display.comparison(found)
    return 0 if found.equal else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description="A year of flights, exactly once, through a kill -9.")
    parser.add_argument("--days", type=int, metavar="N", help="play only the first N days of the year")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="play for so many seconds; 0: as fast as possible (default: 20)"
    )
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="number of workers (default: 3)")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="a Kafka cluster of yours, where the demo deletes its topics in the end; default: a broker of its own",
    )
    parser.add_argument("--kills", type=int, default=1, metavar="N", help="kill a worker N times (default: 1)")
    return parser.parse_args()


def _demo(display: Display, arguments: argparse.Namespace) -> truth.Comparison:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        servers = arguments.bootstrap_servers
        if servers is None:
            servers = stack.enter_context(quick_broker(directory / "kafka", display.event)).bootstrap_servers
            display.event("creating topics")
            create_topics(servers)
        else:
            display.event(f"creating topics on {servers}")
            stack.enter_context(guest_topics(servers))
        session = DevSession(servers, directory, arguments.workers)
        stack.callback(session.end)
        display.event(f"millpond dev starts {arguments.workers} workers, with a standby for every task")
        player.play_tables(servers)
        rows = data.year(arguments.days)
        flights = player.Player(servers, rows, arguments.seconds)
        stack.callback(flights.stop)
        workers = Workers(session)
        display.event("waiting until the workers process all tasks")
        display.event(workers.await_all())
        display.event(f"airlines and planes are in Kafka; playing {len(rows):,} flights")
        lags = stack.enter_context(contextlib.closing(Lags(servers)))
        results = stack.enter_context(contextlib.closing(Results(servers, _OUTPUT, TOPICS[_OUTPUT])))
        flights.start()
        _follow(display, flights, workers, lags, results, arguments.kills)
        display.event(f"all is committed; the workers ended on SIGTERM within {session.stop():.1f} s")
        display.progress.workers = "ended"
        results.read_to_end()
        display.progress.results = len(results.records)
        found = truth.compare(truth.compute(rows, data.airlines(), data.planes()), results.records)
        display.event("the output as read_committed readers see it, against a plain loop over the same data:")
        return found


def _follow(
    display: Display, flights: player.Player, workers: Workers, lags: Lags, results: Results, kills: int
) -> None:
    """Watch until everything is committed; kill a worker on the way."""
    progress = display.progress
    progress.total = flights.total
    kill_at = [flights.total * (each + 1) // (kills + 1) for each in range(kills)]
    last_commit = time.monotonic()
    killed: float | None = None
    again_s: float | None = None
    while workers.away or not (progress.played == flights.total and lags.drained(flights.total)):
        results.poll(_POLL_S)
        before = lags.committed
        lags.update()
        if flights.error is not None:
            raise DemoFailed(f"playing failed: {flights.error}")
        if lags.committed > before:
            last_commit = time.monotonic()
            again_s = last_commit - killed if again_s is None and killed is not None else again_s
        elif time.monotonic() - last_commit > _STALL_TIMEOUT_S:
            raise DemoFailed(
                f"nothing was committed for {_STALL_TIMEOUT_S:.0f} s; the last lines of the log:\n"
                f"{workers.session.log_tail()}"
            )
        for event in workers.new_events():
            display.event(event, "green")
        if again_s is not None and not workers.lost:
            display.event(f"flights are committed again {again_s:.1f} s after the kill", "green")
            killed = again_s = None
        progress.played, progress.day = flights.played, flights.day
        progress.committed, progress.results = lags.committed, len(results.records)
        progress.workers, progress.killed, progress.session = workers.summary, bool(workers.lost), workers.status
        display.update()
        if kill_at and lags.committed >= kill_at[0] and workers.settled:
            kill_at.pop(0)
            event = workers.kill_reader()
            killed = time.monotonic()
            progress.kills += 1
            display.event(f"{event}, with {lags.committed:,} of {flights.total:,} records committed", "bold red")
            lags.update()  # includes a commit that the killed worker had sent


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # also ends the workers and the broker
    sys.exit(main())
