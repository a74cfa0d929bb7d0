"""Iterators over the state file do not stay open if nobody reads them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from millpond.state import StateFile
from millpond.state.rocksdb import state_file
from tests.state import helpers


class Holder:
    """A reader in another thread between two reads."""

    def __init__(self, store: str, rows: Iterator[Any]) -> None:
        self.store, self.rows, self.opened_at = store, rows, time.monotonic()

    def end_iterator(self) -> None:
        self.rows = iter(())


def test_iterators_that_nobody_reads_do_not_stay_open(tmp_path, monkeypatch):
    """They end when they are collected or read to the end; those of readers also by age and with their task."""
    with StateFile.open(tmp_path, helpers.SMALL) as file:
        file.write([(store, 0, [(b"%03d" % number, b"") for number in range(9)]) for store in ("a", "b")])

        def opened() -> int:
            return file.usage()["open_iterators"]

        assert opened() == 0
        read, left = file.range("a", b"", None), file.range("a", b"", None)
        next(left)
        assert opened() == 2
        assert len(list(read)) == 9
        assert opened() == 1
        del left
        gc.collect()
        assert opened() == 0

        holders = [Holder(store, file.range(store, b"", None)) for store in ("a", "b")]
        for holder in holders:
            file.hold(holder)
        file.write([("a", 0, [(b"x", b"")])])
        assert opened() == 2
        file.end_iterators(["a", "other"])
        assert opened() == 1
        assert len(list(holders[0].rows)) == 0
        monkeypatch.setattr(state_file, "MAX_ITERATOR_AGE_S", -1.0)
        file.write([("a", 0, [(b"y", b"")])])
        assert opened() == 0
