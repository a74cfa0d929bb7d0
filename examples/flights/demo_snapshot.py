"""A worker loses its disk: replay and snapshot restore its state side by side; and one table as of three dates.

`make demo-snapshot` runs it. The exit status is 0 if both ways restore the same tables, 1 if they do not, 2 if the demo
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[2]))  # the repository: this file is run by its path

from examples.flights.board import boards
from examples.flights.stage import boards as stage
from examples.flights.stage import data
from millpond.broker import EmbeddedBroker
from millpond.broker.java import find_jre
from millpond.errors import MillpondError
from millpond.inspection.decoding import RowDecoder, stores_of
from millpond.inspection.reading import all_rows, places
from millpond.inspection.snapshot import SnapshotSource
from millpond.inspection.sources import RowSource
from millpond.inspection.workers import find_workers
from millpond.runtime.config.model import Config
from millpond.snapshots import versions
from millpond.snapshots.locations import open_location

_POLL_S = 0.1
_STALL_TIMEOUT_S = 90.0
_STORES = ("board", "airports")
_NAMES = {"EWR": "EWR Newark", "JFK": "JFK Kennedy", "LGA": "LGA LaGuardia"}
_BAR = 36


class DemoFailed(Exception):
    """The demo cannot continue."""


@dataclass(frozen=True)
class Way:
    """One way to restore the state."""

    name: str
    seconds: float
    """Seconds from the start of the worker until its tasks run."""
    ingested: int
    """Rows ingested from the snapshot."""
    digests: dict[str, str]
    """The digest of all rows of each store."""


@dataclass
class Outcome:
    """The result of the demo."""

    ways: list[Way]
    dates: list[tuple[str, list[dict[str, Any]]]]
    """The rows of the table of airports as of each date."""

    @property
    def equal(self) -> bool:
        """Whether both ways restore the same rows."""
        first, *others = [each.digests for each in self.ways]
        return all(each == first for each in others)


class Demo:
    """The steps of the demo, and their display."""

    def __init__(self, console: Console, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self._console = console
        self._arguments = arguments
        self._stack = stack
        self._begun = time.monotonic()
        self._terminal = console.is_terminal and not console.is_dumb_terminal
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boards-")))
        self.snapshots = self.directory / "snapshots"
        columns = (TextColumn("         {task.description}"), BarColumn(_BAR), TextColumn("{task.fields[detail]}"))
        self._progress = stack.enter_context(
            Progress(*columns, console=console, transient=True, disable=not self._terminal)
        )
        self._bar: TaskID = self._progress.add_task("", total=None, detail="", visible=False)

    def run(self) -> Outcome:
        """Run all steps."""
        arguments = self._arguments
        find_jre()  # before anything else takes time
        # Spark starts while Kafka does.
        spark = self._spark()
        rows = data.year(arguments.days)
        servers = self._stack.enter_context(EmbeddedBroker(self.directory / "kafka")).bootstrap_servers
        self._event(f"Kafka runs on {servers}; Spark is starting")
        stage.create_topic(servers)
        config = Config.of(
            {
                "bootstrap.servers": servers,
                "application.id": stage.APPLICATION_ID,
                "processing.guarantee": "exactly_once",
            }
        )
        board = stage.Board(servers, self.directory)
        self._stack.callback(board.stop)
        board.start()
        took = board.await_ready(lambda _s: None)
        total = len(rows) * arguments.updates
        self._event(f"one worker runs after {took:.1f} s; {total:,} updates of {len(rows):,} flights are being sent")

        dates = _three_dates(rows)
        player = stage.Player(servers, stage.updates(rows, arguments.updates), dates)
        committed = self._stack.enter_context(contextlib.closing(stage.Committed(servers)))
        player.start()
        made = []
        for day in dates:
            self._await_committed(player, committed, board, total)
            made.append((day, self._snapshot(config, spark, player, day)))
        self._await_committed(player, committed, board, total)
        self._event(f"all of {player.played:,} updates are committed, {player.day}")

        ways = [
            self._restore(board, "replay", None),
            self._restore(board, "snapshot", self.snapshots),
        ]
        board.stop()
        return Outcome(ways, [(day, self._table_as_of(config, version)) for day, version in made])

    # Spark and its snapshots

    def _spark(self) -> Future[Any]:
        from millpond_spark.session import new_session, require_spark

        require_spark()
        starter = ThreadPoolExecutor(1, thread_name_prefix="spark")
        started = starter.submit(new_session)
        starter.shutdown(wait=False)

        def stop() -> None:
            with contextlib.suppress(Exception):  # a failed start was reported already
                started.result().stop()

        self._stack.callback(stop)
        return started

    def _snapshot(self, config: Config, spark: Future[Any], player: stage.Player, day: str) -> str:
        """Make a snapshot; return its version. The player continues once the snapshot's end offsets are fixed."""
        from millpond_spark.job import create_snapshot
        from millpond_spark.progress import Stage

        def show(now: Stage, done: int, total: int) -> None:
            if now is Stage.READING and not fixed.is_set():
                fixed.set()
                player.resume()
            self._show(f"snapshot: {now.value}", done, total, "" if not total else f"{done} of {total} tasks")

        fixed = threading.Event()
        begun = time.monotonic()
        before = player.played
        self._show("Spark starts", 0, 0, "")
        session = spark.result()
        made = create_snapshot(
            boards(), config, str(self.snapshots), lambda: contextlib.nullcontext(session), on_progress=show
        )
        took = time.monotonic() - begun
        self._hide()
        rows = sum(part.rows for store in made.manifest.stores for part in store.parts)
        how = "built on the previous one" if made.base else "from the whole changelogs"
        self._event(
            f"snapshot as of {day}: {rows:,} rows, {how}, in {took:.1f} s; "
            f"{player.played - before:,} more updates were sent meanwhile",
            "green",
        )
        return made.manifest.version

    def _manifest(self, version: str) -> Any:
        return versions.read(open_location(str(self.snapshots)), stage.APPLICATION_ID, version)

    def _table_as_of(self, config: Config, version: str) -> list[dict[str, Any]]:
        """Return the rows of `airports` in one version, like `millpond state show airports --snapshot VERSION`."""
        source = SnapshotSource(open_location(str(self.snapshots)), self._manifest(version))
        store = stores_of(boards(), config)["airports"]
        decode = RowDecoder(store.layout, store).row
        rows = (decode(*row) for row in all_rows(places([source], "airports"), "airports"))
        return sorted(rows, key=lambda row: str(row["key"]))

    # The worker

    def _await_committed(
        self, player: stage.Player, committed: stage.Committed, board: stage.Board, total: int
    ) -> None:
        """Wait until everything sent before the player's next pause is committed."""
        most, last_commit = -1, time.monotonic()
        while True:
            paused = player.paused.is_set()
            found = committed.count()
            if player.error is not None:
                raise DemoFailed(f"sending updates failed: {player.error}")
            if found > most:
                most, last_commit = found, time.monotonic()
            elif time.monotonic() - last_commit > _STALL_TIMEOUT_S:
                raise DemoFailed(
                    f"nothing was committed for {_STALL_TIMEOUT_S:.0f} s; the last lines of the worker's log:\n"
                    f"{board.log_tail()}"
                )
            self._show(f"updates, {player.day}", found, total, f"{found:,} of {total:,} committed")
            if paused and found >= player.played and board.totals() >= player.final:
                break
            time.sleep(_POLL_S)
        self._hide()

    def _restore(self, board: stage.Board, name: str, snapshots: Path | None) -> Way:
        size = board.lose_disk()
        self._event(
            f"kill -9, and the worker's disk is deleted, {size / 1e6:.0f} MB; starting it again: {name}", "bold red"
        )
        board.start(snapshots)
        took = board.await_ready(lambda seconds: self._show(name, 0, 0, f"{seconds:.1f} s"))
        self._hide()
        ingested = board.ingested
        self._event(
            f"its tasks run after {took:.1f} s" + (f", {ingested:,} rows from the snapshot" if ingested else "")
        )
        digests = {}
        workers = find_workers((board.url,), stage.APPLICATION_ID)
        try:
            for store in _STORES:
                digests[store] = _digest(workers, store, lambda done: self._show("comparing", 0, 0, f"{done:,} rows"))
        finally:
            for worker in workers:
                worker.close()
        self._hide()
        return Way(name, took, ingested, digests)

    # Display

    def _event(self, text: str, style: str = "") -> None:
        line = Text(f"{time.monotonic() - self._begun:6.1f} s  ", style="dim").append(
            text, style=f"not dim {style}".strip()
        )
        self._console.print(line, soft_wrap=True)

    def _show(self, what: str, done: int, total: int, detail: str) -> None:
        if self._terminal:
            self._progress.update(
                self._bar, description=what, completed=done, total=total or None, detail=detail, visible=True
            )

    def _hide(self) -> None:
        self._progress.update(self._bar, visible=False)


def main() -> int:
    """Run the demo; return the exit status."""
    arguments = _arguments()
    console = Console(highlight=False)
    try:
        with contextlib.ExitStack() as stack:
            outcome = Demo(console, arguments, stack).run()
    except KeyboardInterrupt:
        console.print("interrupted.")
        return 130
    except (MillpondError, KafkaException, DemoFailed, stage.BoardEnded, data.MissingData) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    show_outcome(console, outcome)
    return 0 if outcome.equal else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo_snapshot.py", description="A lost disk, and two ways to restore its state."
    )
    parser.add_argument("--days", type=int, metavar="N", help="only the flights of the first N days of the year")
    parser.add_argument(
        "--updates", type=int, default=5, metavar="N", help="number of updates of each flight (default: 5)"
    )
    return parser.parse_args()


def _three_dates(rows: Sequence[data.Row]) -> list[str]:
    """Return three days. The last one is some days before the end, so that the changelog has a tail to replay."""
    days = sorted({row["scheduled"][:10] for row in rows})
    return [days[len(days) * part // 10] for part in (3, 6, 9)]


def _digest(sources: Sequence[RowSource], store: str, on_rows: Callable[[int], None]) -> str:
    """Return a digest of all rows that the worker holds of a store."""
    digest, count = hashlib.sha256(), 0
    for key, value in all_rows(places(sources, store), store):
        digest.update(b"%d %d " % (len(key), len(value)) + key + value)
        count += 1
        if count % 10_000 == 0:
            on_rows(count)
    return f"{count} {digest.hexdigest()}"


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print both ways side by side, the table as of three dates, and the verdict."""
    slowest = max(way.seconds for way in outcome.ways)
    ways = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    ways.add_column("restore by", no_wrap=True)
    ways.add_column("")
    ways.add_column("seconds", justify="right", no_wrap=True)
    ways.add_column("rows loaded", justify="right", no_wrap=True)
    for way in outcome.ways:
        bar = ProgressBar(slowest, way.seconds, width=_BAR)
        ways.add_row(way.name, bar, f"{way.seconds:.1f}", f"{way.ingested:,}" if way.ingested else "-")
    console.print(ways)
    dates = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    dates.add_column("as of\nairport", no_wrap=True)
    for day, _ in outcome.dates:
        dates.add_column(f"{day}\ndeparted", justify="right", no_wrap=True)
        dates.add_column("\nlate", justify="right", no_wrap=True)
    airports = sorted({str(row["key"]) for _, rows in outcome.dates for row in rows})
    for airport in airports:
        cells = []
        for _, rows in outcome.dates:
            found = next((row["value"] for row in rows if row["key"] == airport), None)
            cells += ["-", "-"] if found is None else [f"{found['departed']:,}", f"{found['mean_delay']:.1f} m"]
        dates.add_row(_NAMES.get(airport, airport), *cells)
    console.print(dates)
    if outcome.equal:
        counted = ", ".join(
            f"{int(each.split()[0]):,} rows of '{store}'" for store, each in outcome.ways[0].digests.items()
        )
        console.print(
            f"IDENTICAL: both ways restore the same {counted}, byte by byte.", style="bold green", soft_wrap=True
        )
    else:
        console.print("DIFFERENT: the two ways do not restore the same rows.", style="bold red", soft_wrap=True)


if __name__ == "__main__":
    logging.getLogger("millpond").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # also ends the worker and the broker
    sys.exit(main())
