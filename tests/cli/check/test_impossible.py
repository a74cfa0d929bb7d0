"""`millpond check` finds what an API server takes and nothing can be made of, and what no parser ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Millpond

pytest.importorskip("celpy")
pytest.importorskip("cronsim")

APP = """\
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: words
spec:
  image: registry.example.com/words:1
  topology: elsewhere:build
  kafka:
    bootstrapServers: kafka:9092
"""
BOOTSTRAP = """\
  bootstrap:
    location: s3://bucket/snapshots
    spark:
      image: registry.example.com/spark:1
    schedule: {schedule}
    timeZone: {zone}
"""


#: Each list has the list before it nine times.
ALIASES = "a: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


def refused(millpond: Millpond, text: str) -> str:
    Path("streamapp.yaml").write_text(text)
    ended = millpond("check", "streamapp.yaml")
    assert ended.status == 1, ended.out
    assert "Traceback" not in ended.err
    return ended.err


@pytest.mark.parametrize(
    ("schedule", "zone", "line", "message"),
    [
        ("'61 3 * * *'", "Etc/UTC", 14, "The schedule '61 3 * * *' is invalid"),
        ("'0 3 * *'", "Etc/UTC", 14, "wrong number of fields"),
        ("'0 0 30 2 *'", "Etc/UTC", 14, "The schedule '0 0 30 2 *' is invalid"),
        ("daily", "Etc/UTC", 14, "in cron's five fields"),
        ("'0 3 * * *'", "Mars/Olympus", 15, "The time zone 'Mars/Olympus' does not exist"),
        ("'0 3 * * *'", "/etc/passwd", 15, "does not exist"),
    ],
)
def test_impossible_schedules_are_faults(millpond: Millpond, schedule: str, zone: str, line: int, message: str) -> None:
    """The line is that of the field."""
    told = refused(millpond, APP + BOOTSTRAP.format(schedule=schedule, zone=zone))
    assert told.startswith(f"streamapp.yaml:{line}: ")
    assert message in told


def test_possible_schedules_are_valid(millpond: Millpond) -> None:
    Path("streamapp.yaml").write_text(APP + BOOTSTRAP.format(schedule="'0 3 29 2 *'", zone="Europe/Berlin"))
    ended = millpond("check", "streamapp.yaml")
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("  resources: {limits: {memory: 500m}}\n", "whole number of bytes: write a number with a unit, such as 500Mi"),
        ("  resources: {limits: {memory: '0.5'}}\n", "spec.resources.limits.memory is '0.5', which is no whole"),
        ("  resources: {requests: {memory: 1500u}}\n", "spec.resources.requests.memory is '1500u'"),
        ("  resources: {limits: {memory: 512}}\n", "which is 512 bytes: write at least 32Mi"),
        ("  resources: {limits: {ephemeral-storage: 1m}}\n", "spec.resources.limits.ephemeral-storage is '1m'"),
    ],
)  # fmt: skip
def test_sizes_that_hold_nothing_are_faults(millpond: Millpond, more: str, message: str) -> None:
    """`m` is a thousandth in Kubernetes, so 500m of memory are half a byte."""
    told = refused(millpond, APP + more)
    assert told.startswith("streamapp.yaml:10: ")
    assert message in told


def test_fractions_of_a_core_are_valid(millpond: Millpond) -> None:
    Path("streamapp.yaml").write_text(APP + "  resources: {limits: {cpu: 500m, memory: 1.5Gi}}\n")
    assert millpond("check", "streamapp.yaml").status == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]\n", "1: an alias (*…) stands within what it names"),
        ("&a {b: *a}\n", "an alias (*…) stands within what it names"),
        ("a: &a\n  b: {c: [*a]}\n", "an alias (*…) stands within what it names"),
        (ALIASES, "fields, its aliases written out"),
        ("a: \x00\n", "this is not YAML"),
        ("[" * 5_000, "this is nested too deeply to be read"),
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_yaml_without_an_end_is_a_fault(millpond: Millpond, text: str, message: str) -> None:
    """One sentence, in a moment: aliases of aliases stand for as many fields as somebody likes."""
    assert message in refused(millpond, text)


def test_an_alias_beside_what_it_names_is_valid(millpond: Millpond) -> None:
    Path("streamapp.yaml").write_text(
        APP + "  resources:\n    limits: &amounts {memory: 1Gi}\n    requests: *amounts\n"
    )
    ended = millpond("check", "streamapp.yaml")
    assert (ended.status, ended.err) == (0, "")
