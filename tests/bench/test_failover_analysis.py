"""The analysis of the failover bench: moves, pauses, lost and repeated results."""

from __future__ import annotations

import random
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench.failover
import millpond as mp
from bench.failover.analysis import GAP_FLOOR_US, Fault, Gap, Move, Track, headline, others, pauses, summarise
from bench.failover.broker_log import parse_death, parse_stall
from bench.failover.fleet import Held, balanced, covered
from bench.failover.records import (
    KEYS_PER_PARTITION,
    PARTITIONS,
    STORE,
    Result,
    expected_count,
    keys,
    parse,
    record,
    result,
)
from bench.failover.streams import parse_status

JAVA = Path(bench.failover.__file__).parent / "java" / "KafkaStreamsFailover.java"
STEP_US = 2_000  # between two records of a partition
DELAY_US = 60_000  # from processing to arrival


def made(number: int, owner: str = "a", processed_us: int | None = None, partition: int = 0) -> Result:
    """A correct result."""
    at = number * STEP_US if processed_us is None else processed_us
    return Result(partition, number, expected_count(number), number * STEP_US, at, owner, at + DELAY_US)


def seen(results: list[Result]) -> Track:
    track = Track(results[0].partition)
    for each in results:
        track.observe(each)
    return track


owners = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 400), st.integers(0, 5_000_000)), min_size=1, max_size=8
)


@given(owners)
def test_every_change_of_owner_is_a_timed_move(
    runs: list[tuple[str, int, int]],
) -> None:
    """Owners take random turns with random pauses: exactly these changes and pauses are found."""
    results: list[Result] = []
    expected: list[tuple[str, str, float]] = []
    number, now = 0, 0
    for owner, length, pause_us in runs:
        if results and results[-1].owner != owner:
            now += pause_us
            expected.append((results[-1].owner, owner, (STEP_US + pause_us) / 1000))
        for _ in range(length):
            now += STEP_US
            results.append(made(number, owner, now))
            number += 1
    track = seen(results)
    found = [(move.before.owner, move.after.owner, move.pause_ms) for move in track.moves]
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in expected])
    assert not track.gaps
    track.finish(number)
    assert track.correctness.holds


@given(
    records=st.integers(1, 500),
    lost=st.sets(st.integers(0, 499), max_size=20),
    twice=st.sets(st.integers(0, 499), max_size=20),
    seed=st.integers(0, 1 << 32),
)
def test_missing_and_doubled_records_are_counted(records: int, lost: set[int], twice: set[int], seed: int) -> None:
    """Removed records are lost, also at the end; repeated ones, at once or later, are repeated."""
    lost = {number for number in lost if number < records}
    twice = {number for number in twice if number < records} - lost
    results = [made(number) for number in range(records) if number not in lost]
    chance = random.Random(seed)
    for number in twice:
        first = next(at for at, each in enumerate(results) if each.number == number)
        results.insert(chance.randint(first + 1, len(results)), made(number, processed_us=results[first].processed_us))
    track = Track(0)
    for each in results:
        track.observe(each)
    track.finish(records)
    assert (track.correctness.lost, track.correctness.twice) == (len(lost), len(twice))
    assert track.correctness.results == len(results)
    assert track.correctness.wrong == 0
    assert track.correctness.holds == (not lost and not twice)


def test_count_that_skips_a_record_is_wrong_state() -> None:
    """A new owner whose copy missed one update shows it in every result of that key from then on."""
    results = [made(number) for number in range(3 * KEYS_PER_PARTITION)]
    for number in (KEYS_PER_PARTITION + 7, 2 * KEYS_PER_PARTITION + 7):
        results[number] = results[number]._replace(total=results[number].total - 1)
    assert seen(results).correctness.wrong == 2


def test_killed_workers_tasks_are_timed_from_the_detection() -> None:
    """Pauses count from the last committed record, `again` and `visible` from the known death."""
    before, after = made(100, "w0#1", 1_000_000), made(101, "w1#1", 2_300_000)
    (pause,) = pauses([Fault("kill_known", 1_050_000, "w0#1", 1_100_000)], [Move(before, after)])
    assert pause.failover
    assert pause.pause_ms == pytest.approx(1300)
    assert pause.again_ms == pytest.approx(1200)
    assert pause.visible_ms == pytest.approx(1200 + DELAY_US / 1000)
    assert pause.late_ms == pytest.approx((2_300_000 + DELAY_US - 101 * STEP_US) / 1000)


def test_task_moved_during_a_kill_is_a_planned_move() -> None:
    """It has no death, and counts for the target of planned migrations."""
    fault = Fault("freeze", 1_000_000, "w0#1", 7_000_000)
    move = Move(made(1, "w1#1", 1_100_000), made(2, "w2#1", 1_250_000))
    (pause,) = pauses([fault], [move])
    assert (pause.failover, pause.again_ms, pause.visible_ms) == (False, None, None)
    found = headline([fault], [move])
    assert found.again is None
    assert found.planned is not None
    assert found.planned.max == pytest.approx(150)
    victims, needless = summarise([fault], [move], [])
    assert (victims.failover, victims.tasks, needless.failover, needless.tasks) == (True, 0, False, 1)


def test_death_with_unknown_moment_has_only_a_pause() -> None:
    """Without a known time of detection, there is no value."""
    fault = Fault("freeze", 0, "w0#1", None)
    (pause,) = pauses([fault], [Move(made(1, "w0#1", 10_000), made(2, "w1#1", 6_010_000))])
    assert (pause.pause_ms, pause.again_ms) == (6000.0, None)


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=6, unique=True), st.integers(0, 1_100_000))
def test_a_move_belongs_to_the_latest_fault_before_it(begins: list[int], at: int) -> None:
    """Windows have no gaps between them; moves before the first belong to none."""
    begins.sort()
    faults = [Fault("join", begin) for begin in begins]
    faults[-1] = Fault("leave", begins[-1])
    found = pauses(faults, [Move(made(1, "a", 0), made(2, "b", at))])
    if at < begins[0]:
        assert not found
    else:
        assert [pause.kind for pause in found] == ["leave" if at >= begins[-1] else "join"]


def test_pauses_of_unmoved_tasks_are_measured() -> None:
    """Each fault counts the longest gap of any task that it did not move, in its own window."""
    faults = [Fault("leave", 1_000_000), Fault("join", 5_000_000), Fault("leave", 9_000_000)]
    moves = [Move(made(1, "a", 1_900_000, partition=0), made(2, "b", 2_000_000, partition=0))]
    gaps = [
        Gap(0, 1_800_000, 700_000),  # moved in this window: its pause counts for the move
        Gap(1, 1_800_000, 90_000),
        Gap(2, 1_900_000, 120_000),
        Gap(1, 6_000_000, 30_000),
        Gap(1, 500_000, 999_000),  # before all faults
    ]
    assert others(faults, moves, gaps) == {"leave": [120.0, 0.0], "join": [30.0]}


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=200))
def test_gaps_are_kept_from_the_floor_on(lengths: list[int]) -> None:
    """Short gaps are batches; all longer ones are kept with their length."""
    results, now = [made(0, processed_us=0)], 0
    for number, length in enumerate(lengths, 1):
        now += length
        results.append(made(number, processed_us=now))
    assert [gap.length_us for gap in seen(results).gaps] == [length for length in lengths if length >= GAP_FLOOR_US]


def test_a_line_of_the_report_has_its_agreed_fields() -> None:
    """Other programs read `bench-failover.json`: its names are fixed."""
    fault = Fault("kill_known", 0, "w0#1", 50_000)
    (line,) = summarise([fault], [Move(made(1, "w0#1", 10_000), made(2, "w1#1", 400_000))], [])
    found = line.to_json()
    assert {"kind", "failover", "faults", "tasks", "pause", "again", "visible", "late", "others"} == found.keys()
    assert found["again"] == {"p50_ms": 350.0, "p99_ms": 350.0, "max_ms": 350.0}


def spread(*tasks: tuple[tuple[int, ...], dict[int, int | None]]) -> dict[str, Held]:
    return {f"w{number}": Held(frozenset(active), copies) for number, (active, copies) in enumerate(tasks)}


@pytest.mark.parametrize(
    ("holdings", "is_covered", "is_balanced"),
    [
        (
            spread(
                ((0, 1, 2), {3: 0, 4: 9, 5: 0}),
                ((3, 4, 5), {6: 0, 7: 0}),
                ((6, 7), {0: 0, 1: 0, 2: 0}),
            ),
            True,
            True,
        ),
        (spread(((0, 1, 2, 3, 4), {5: 0, 6: 0, 7: 0}), ((5, 6, 7), dict.fromkeys(range(5), 0)), ((), {})), True, False),
        (spread((tuple(range(8)), {}), ((), dict.fromkeys(range(8), 99_999)), ((), {})), False, False),
        (spread((tuple(range(8)), {}), ((), dict.fromkeys(range(8), None)), ((), {})), False, False),
        (spread((tuple(range(8)), {}), ((0,), dict.fromkeys(range(8), 0)), ((), {})), False, False),
        (spread(((0, 1, 2), {}), ((3, 4, 5), {}), ((6,), {})), False, False),
        ({}, False, False),
    ],
    ids=["even", "uneven", "far behind", "unknown lag", "processed twice", "one missing", "nobody"],
)
def test_fault_waits_for_caught_up_copies_of_all_tasks(
    holdings: dict[str, Held], is_covered: bool, is_balanced: bool
) -> None:
    """Only tasks with caught-up copies are measured: each has one owner, and a copy elsewhere near the end."""
    assert covered(holdings) == is_covered
    assert balanced(holdings) == is_balanced


def test_a_worker_that_restores_is_not_ready_for_a_fault() -> None:
    """A worker without a report is not settled either."""
    whole = {"w0": Held(frozenset(range(8)), {}), "w1": Held(frozenset(), dict.fromkeys(range(8), 0))}
    assert covered(whole)
    assert not covered({**whole, "w2": Held(ready=False)})


def test_an_instances_status_is_read_back() -> None:
    """The format of `holdings` in the Java source: state, active partitions, standbys with lag, -1 for unknown."""
    assert parse_status("RUNNING|0,3|1:17,2:-1") == Held(frozenset({0, 3}), {1: 17, 2: None}, ready=True)
    assert parse_status("REBALANCING||") == Held(ready=False)


def test_the_broker_tells_when_a_member_was_found_dead() -> None:
    """The log has the time in milliseconds; deaths in other groups are ignored."""
    line = (
        "2026-11-21 06:34:09,082 [group-coordinator-event-processor-1] INFO org.apache.kafka.coordinator.group."
        "GroupMetadataManager - [GroupCoordinator id=1 topic=__consumer_offsets partition=1] Member x-consumer-1 in "
        "group app has failed, removing it from the group.\n"
    )
    at = parse_death(line, "app")
    assert at is not None
    assert at == datetime(2026, 11, 21, 6, 34, 9, 82_000).astimezone().timestamp() * 1e6
    assert parse_death(line, "ap") is None
    assert parse_death(line.replace("has failed", "has left"), "app") is None


def test_broker_log_shows_its_own_pauses() -> None:
    """A stall of the broker is distinguished from a pause of a task."""
    line = (
        "2026-11-21 07:52:26,047 [x] ERROR y - [QuorumController id=1] Exceptionally slow controller event a(1) took "
        "3497 ms."
    )
    assert parse_stall(line) == 3497
    assert parse_stall(line.replace("Exceptionally slow", "Processed")) is None


def test_keys_lie_where_the_default_partitioner_puts_them() -> None:
    """Results of a task go to the partition with its number: open transactions hide no results of others."""
    all_keys = keys()
    assert [len(each) for each in all_keys] == [KEYS_PER_PARTITION] * PARTITIONS
    assert len({key for each in all_keys for key in each}) == KEYS_PER_PARTITION * PARTITIONS


def test_the_application_counts_each_key_and_stamps_each_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the real topology, every record has a result with the expected count, its owner and its times."""
    for name, value in (("INPUT", "in"), ("OUTPUT", "out"), ("OWNER", "w0#1")):
        monkeypatch.setenv(f"BENCH_{name}", value)
    from bench.failover.app import topology

    mine = keys()[3]
    with mp.testing.TopologyTestDriver(topology()) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for number in range(300):
            source.pipe_input(mine[number % len(mine)].decode(), record(number, 1000 + number))
        values = driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list()
    track = Track(3)
    for value in values:
        assert value is not None
        track.observe(parse(3, value.encode(), 0))
    track.finish(300)
    assert track.correctness.holds
    assert track.last is not None
    assert (track.last.owner, track.last.number, track.last.sent_us) == ("w0#1", 299, 1299)


def test_both_sides_report_the_same_fields() -> None:
    """The Java source names the same store and the fields of a result in the same order."""
    source = JAVA.read_text()
    assert re.findall(r'STORE = "(\w+)"', source) == [STORE]
    assert 'return count + " " + record + " " + now + " " + owner;' in source
    assert parse(0, result("7 5", "", "w0#1").encode(), 9)._replace(processed_us=0) == Result(0, 7, 1, 5, 0, "w0#1", 9)
