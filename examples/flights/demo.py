"""A year of flights through a real Kafka broker, exactly once, with a worker killed by SIGKILL in the middle.

`make demo` runs it. At the end the output is compared with a plain loop over the same data; the exit status is 0 when
they are the same, 1 when they differ, 2 when the demo could not come to an end.
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
from examples.flights.stage.process import WorkerEnded, WorkerProcess
from examples.flights.stage.watch import Lags, Results
from millpond.broker import EmbeddedBroker
from millpond.errors import MillpondError

_OUTPUT = "delays-by-airport"
_LOOK_EVERY_S = 0.1
_STALLED_S = 90.0


class DemoFailed(Exception):
    """The demo cannot come to an end."""


def main() -> int:
    """Run the demo; returns the exit status."""
    arguments = _arguments()
    console = Console(highlight=False)
    display = Display(console)
    try:
        with display:
            found = _demo(display, arguments)
    except KeyboardInterrupt:
        console.print("interrupted.")
        return 130
    except (MillpondError, KafkaException, DemoFailed, WorkerEnded, data.MissingData) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    display.comparison(found)
    return 0 if found.equal else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py", description="A year of flights, exactly once, through a kill -9.")
    parser.add_argument("--days", type=int, metavar="N", help="play only the first N days of the year")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="play for so long; 0: as fast as it goes (default: 20)"
    )
    parser.add_argument("--kills", type=int, default=1, metavar="N", help="kill the worker N times (default: 1)")
    return parser.parse_args()


def _demo(display: Display, arguments: argparse.Namespace) -> truth.Comparison:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        servers = stack.enter_context(EmbeddedBroker(directory / "kafka")).bootstrap_servers
        display.event(f"Kafka runs on {servers}")
        player.create_topics(servers)
        worker = WorkerProcess(servers, directory)
        stack.callback(worker.kill)
        worker.start()
        display.event(f"worker started, pid {worker.pid}")
        player.play_tables(servers)
        rows = data.year(arguments.days)
        flights = player.Player(servers, rows, arguments.seconds)
        stack.callback(flights.stop)
        display.event(f"airlines and planes are in Kafka; playing {len(rows):,} flights")
        lags = stack.enter_context(contextlib.closing(Lags(servers)))
        results = stack.enter_context(contextlib.closing(Results(servers, _OUTPUT, player.TOPICS[_OUTPUT])))
        flights.start()
        _follow(display, flights, worker, lags, results, arguments.kills)
        display.event(f"all is committed; the worker ended on SIGTERM within {worker.stop():.1f} s")
        display.progress.worker = "ended"
        results.read_to_end()
        display.progress.results = len(results.records)
        found = truth.compare(truth.compute(rows, data.airlines(), data.planes()), results.records)
        display.event("the output as read_committed readers see it, against a plain loop over the same data:")
        return found


def _follow(
    display: Display, flights: player.Player, worker: WorkerProcess, lags: Lags, results: Results, kills: int
) -> None:
    """Watch until everything is committed; kill the worker on the way, and start it again."""
    progress = display.progress
    progress.total = flights.total
    kill_at = [flights.total * (each + 1) // (kills + 1) for each in range(kills)]
    moved = time.monotonic()
    killed: float | None = None
    while not (progress.played == flights.total and lags.drained(flights.total)):
        results.poll(_LOOK_EVERY_S)
        before = lags.committed
        lags.look()
        worker.check()
        if flights.error is not None:
            raise DemoFailed(f"playing failed: {flights.error}")
        if lags.committed > before:
            moved = time.monotonic()
            if killed is not None and worker.running:  # not the last commit of the one that was killed
                replayed = worker.restored()
                told = "" if replayed is None else f", with {replayed:,} changelog records to replay"
                display.event(f"it goes on {moved - killed:.1f} s after the kill{told}", "green")
                killed = None
                progress.worker = f"pid {worker.pid}"
        elif time.monotonic() - moved > _STALLED_S:
            raise DemoFailed(
                f"nothing was committed for {_STALLED_S:.0f} s; the worker's log ends:\n{worker.log_end()}"
            )
        progress.played, progress.day = flights.played, flights.day
        progress.committed, progress.results = lags.committed, len(results.records)
        display.update()
        if kill_at and lags.committed >= kill_at[0]:
            kill_at.pop(0)
            pid = worker.pid
            worker.kill()
            progress.worker = "killed"
            moved = killed = time.monotonic()
            display.event(f"kill -9 {pid}, with {lags.committed:,} of {flights.total:,} records committed", "bold red")
            worker.start()
            progress.worker, progress.restarts = f"pid {worker.pid}, coming back", progress.restarts + 1
            display.event(f"worker started again, pid {worker.pid}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the worker and the broker, too
    sys.exit(main())
