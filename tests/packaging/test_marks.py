"""Tests are marked by what they need, and a run of tests can be repeated."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time

import pytest

from tests.cluster import binaries
from tests.support import evidence, preparing, seeds
from tests.support.needs import MARKERS, needs


def test_marks_follow_from_fixtures():
    """Fixtures of fixtures count, and two fixtures with the same need give one mark."""
    assert needs(["tmp_path", "create_topic", "broker"]) == ["broker"]
    assert needs(["api_server", "namespace", "processes"]) == ["apiserver", "process"]
    assert needs(["stage", "world"]) == ["slow"]
    assert needs(["tmp_path", "monkeypatch"]) == []


def test_a_test_without_needs_gets_no_mark(request):
    """A test that needs nothing has no mark."""
    assert not {each.name for each in request.node.iter_markers()} & MARKERS.keys()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_derives_its_own_seed(number, request):
    """A run's seed gives each test the same seed again, and different tests different seeds."""
    name = request.node.nodeid
    assert seeds.derived(7, name) == seeds.derived(7, name)
    assert seeds.derived(7, name) != seeds.derived(8, name)
    assert seeds.derived(7, name) != seeds.derived(7, f"{name}x")


class _Case:
    """A case of a long test, marked with a share."""

    def __init__(self, nodeid, share=3):
        self.nodeid = nodeid
        self.share = share

    def get_closest_marker(self, name):
        return pytest.mark.share(self.share).mark if name == "share" and self.share else None


def test_each_run_takes_another_share_of_long_cases():
    """Of each test as many as its mark says; the same seed takes the same, and in time every case has its turn."""
    cases = [_Case(f"tests/a/test_b.py::test_{name}[{number}]") for name in "cd" for number in range(9)]
    runs = [[each.nodeid for each in cases if each not in seeds.left_out(cases, seed)] for seed in range(30)]
    assert all(sum("test_c" in each for each in run) == 3 and len(run) == 6 for run in runs)
    assert runs[0] == [each.nodeid for each in cases if each not in seeds.left_out(cases, 0)]
    assert {each for run in runs for each in run} == {each.nodeid for each in cases}
    assert seeds.left_out(cases[:2], 1) == []


def test_a_run_of_few_cases_takes_as_many_of_every_test():
    """With a largest number of cases, tests without a share are bounded, too, and a smaller share stays smaller."""
    plain = [_Case(f"tests/a/test_b.py::test_c[{number}]", share=None) for number in range(9)]
    few = [_Case(f"tests/a/test_b.py::test_d[{number}]") for number in range(9)]
    out = seeds.left_out([*plain, *few], 1, most=5)
    assert len([each for each in plain if each not in out]) == 5
    assert len([each for each in few if each not in out]) == 3


def test_what_is_prepared_is_prepared_once(tmp_path, monkeypatch):
    """A second process with the same need waits for the first one."""
    started = []

    class Started:
        def __init__(self, command, **_):
            started.append(command[-1])
            self.returncode = None

    monkeypatch.setattr(preparing.subprocess, "Popen", Started)
    preparing.start(tmp_path, ["broker", "apiserver"])
    preparing.start(tmp_path, ["broker"])
    preparing.await_end(tmp_path, ["broker", "apiserver"])
    assert started == ["broker", "apiserver"]


def test_tests_wait_for_a_preparation_only_while_something_is_missing(tmp_path, monkeypatch):
    """A run tells what is built, for how long, and for how many tests; with everything there, nothing is waited for."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("MILLPOND_KUBE_BIN", str(programs))
    log = tmp_path / "apiserver.log"
    log.write_text("Building etcd with go (once, into x)\netcd: 3 s\nBuilding kube-apiserver with go (once, into x)\n")
    os.utime(log, (time.time() - 95, time.time() - 95))
    with (tmp_path / "apiserver.prepared").open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        (told,) = preparing.progress(tmp_path, {"apiserver": 1240})
        assert re.fullmatch(r"1240 tests wait for apiserver: Building kube-apiserver with go, for \d+ s so far", told)
        for name in binaries.PROGRAMS:
            (programs / name).touch(mode=0o755)
        assert preparing.unfinished(tmp_path, {"apiserver"}) == set()
        (programs / name).unlink()
        assert preparing.unfinished(tmp_path, {"apiserver"}) == {"apiserver"}
    assert preparing.unfinished(tmp_path, {"apiserver"}) == set()


def test_a_failed_test_leaves_its_logs_and_its_seed(tmp_path, monkeypatch):
    """The evidence is what its own processes and the shared ones that it used wrote since it began, and the seed."""
    monkeypatch.setattr(evidence, "DIRECTORY", tmp_path / "failed")
    own, run = tmp_path / "own", tmp_path / "run"
    earlier = [own / "other" / "worker.log", own / "module" / "broker.log", tmp_path / "broker.log"]
    unused = [tmp_path / "etcd.log", run / "helm.log"]
    used = [own / "w0" / "worker.log", own / "w0" / "state.sst", run / "broker.log"]
    for file in (*earlier, *unused, *used):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before ")
    (run / "broker.shared-log").write_text(f"{tmp_path / 'broker.log'}\n{tmp_path / 'gone.log'}\n")
    evidence.follow(tmp_path / "etcd.log", "api_server")
    evidence.follow(own / "module" / "broker.log")
    evidence.begin(run)
    for file in (*earlier[1:], *unused, *used):
        with file.open("a") as log:
            log.write("meanwhile")
    os.utime(earlier[0], (0, 0))
    kept = evidence.collect("tests/a/test_b.py::test_c[x]", 7, {"broker", "tmp_path"}, own, run)
    found = {str(each.relative_to(kept)): each.read_text() for each in kept.rglob("*") if each.is_file()}
    assert "--seed 7" in found.pop("seed.txt")
    assert found == {
        "own/module/broker.log": "meanwhile",
        "own/w0/worker.log": "before meanwhile",
        "broker/broker.log": "meanwhile",
        "preparation/broker.log": "before meanwhile",
    }


def test_the_log_of_a_broker_that_left_nothing_is_evidence(tmp_path, monkeypatch):
    """A broker in a temporary directory is gone when its test has failed."""
    monkeypatch.setattr(evidence, "DIRECTORY", tmp_path / "failed")
    log = tmp_path / "millpond-broker-x" / "broker.log"
    log.parent.mkdir()
    log.write_text("said")
    evidence.begin(tmp_path)
    evidence.keep(log)
    shutil.rmtree(log.parent)
    kept = evidence.collect("tests/a.py::test_b", 7, (), tmp_path / "own", tmp_path)
    assert (kept / "own" / "millpond-broker-x" / "broker.log").read_text() == "said"
    evidence.begin(tmp_path)
    kept = evidence.collect("tests/a.py::test_b", 7, (), tmp_path / "own", tmp_path)
    assert not (kept / "own").exists()
