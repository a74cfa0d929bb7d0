"""Raw rows over HTTP: of all workers, active tasks and copies, with the access rules of queries."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError
from millpond.inspection.reading import all_rows, places
from millpond.inspection.sources import NotReadable
from millpond.inspection.workers import RunningWorker, find_workers
from millpond.protocol import Role
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.access import Access
from tests.queries.application import APPLICATION, Application
from tests.queries.conftest import start  # noqa: F401  (fixture)

Find = Callable[..., list[RunningWorker]]


@pytest.fixture
def find() -> Iterator[Find]:
    """Return a function that finds workers; their connections are closed with the test."""
    found: list[RunningWorker] = []

    def of(application: Application, **options: Any) -> list[RunningWorker]:
        found.extend(find_workers((application.urls()[0],), APPLICATION, **options))
        return found

    yield of
    for each in found:
        each.close()


def filled(application: Application, count: int = 2_500) -> Application:
    """Put more rows than one piece has, in one commit per partition."""
    info = application.catalog["counts"]
    for number in range(count):
        key = f"k{number:05}"
        owner = application.owners[info.partition_of(key.encode())]
        partition, value = info.partition_of(key.encode()), mp.ValueAndTimestamp(number, number)
        owner.do(functools.partial(owner.put, "counts", partition, key, value))
    for partition, owner in application.owners.items():
        owner.do(lambda partition=partition, owner=owner: owner.commit(partition))
    return application


def test_all_workers_are_found_through_one_and_give_their_rows(start: Any, find: Find) -> None:  # noqa: F811
    """In the order of keys, with the partition and the changelog offset."""
    workers = find(filled(start(2, 2)))
    assert [each.name for each in workers] == ["w0", "w1"]
    assert {(held.store, held.partition) for each in workers for held in each.held()} == {
        (store, partition)
        for store in ("counts", "history", "points", "uuids", "visits", "windows")
        for partition in range(2)
    }
    rows = list(all_rows(places(workers, "counts", 2), "counts"))
    assert rows == sorted(rows)
    assert sorted((key[4:].decode(), int.from_bytes(value[8:], "big")) for key, value in rows) == [
        (f"k{number:05}", number) for number in range(2_500)
    ]
    with workers[1].open("counts", 1) as found:
        assert (found.offset, found.topic_id, next(found.rows)[0][:4]) == (1, "", b"\0\0\0\1")


def test_rows_do_not_change_while_they_are_read(start: Any, find: Find) -> None:  # noqa: F811
    """A commit during the read is not visible; rows that are dropped meanwhile are."""
    application = filled(start(1, 1), 3_000)
    (worker,) = find(application)
    with worker.open("counts", 0) as found:
        first = next(found.rows)
        application.put("counts", "k99999", mp.ValueAndTimestamp(1, 1))
        application.workers[0].drop(0)
        assert len([first, *found.rows]) == 3_000
    with (
        pytest.raises(NotReadable, match="does not have partition 0 of store 'counts': the task has moved"),
        worker.open("counts", 0),
    ):
        pass


def test_database_closed_during_a_read_is_an_error(start: Any, find: Find) -> None:  # noqa: F811
    """It is not taken for the end of the rows."""
    application = start(1, 1)
    (owner,) = application.workers

    def fill() -> None:  # with more than the buffers between worker and reader take
        for number in range(2_000):
            owner.put("uuids", 0, uuid.UUID(int=number), bytes(20_000))
        owner.commit(0)

    owner.do(fill)
    (worker,) = find(application)
    with worker.open("uuids", 0) as found:
        next(found.rows)
        owner.file.rebuild("points")
        with pytest.raises(NotReadable, match="closed partition 0 of store 'uuids' during the read"):
            list(found.rows)


def test_copies_are_read_where_there_is_no_active_task(start: Any, find: Find) -> None:  # noqa: F811
    """An active task is preferred."""
    application = filled(start(2, 1), 10)
    application.workers[1].take(0, Role.STANDBY)
    workers = find(application)
    assert {each.held()[0].role for each in workers} == {"active", "standby"}
    assert places(workers, "counts", 1)[0].name == "w0"
    assert places(workers[1:], "counts", 1)[0].name == "w1"
    assert len(list(all_rows(places(workers[1:], "counts", 1), "counts"))) == 10
    with pytest.raises(MillpondError, match="no rows of partition 1 of store 'counts' now"):
        places(workers, "counts", 2)


def test_the_rules_of_access_are_those_of_queries(start: Any, find: Find, tmp_path: Path) -> None:  # noqa: F811
    """A token if one is configured; and the application must be the requested one."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-long-secret")
    application = filled(start(1, 1, access=Access(token_file=tokens)), 10)
    with pytest.raises(QueryFailed) as failed:
        find(application)
    assert failed.value.reason is FailureReason.UNAUTHORIZED
    (worker,) = find(application, token_file=tokens)
    assert len(list(all_rows(places([worker], "counts"), "counts"))) == 10
    with pytest.raises(MillpondError, match="belongs to application 'app', not to 'other'"):
        find_workers((application.urls()[0],), "other", token_file=tokens)
    with pytest.raises(NotReadable, match="has no store 'nope' on disk"), worker.open("nope", 0):
        pass
    with pytest.raises(NotReadable, match="has no partition '7'; its partitions are 0 to 0"), worker.open("counts", 7):
        pass
