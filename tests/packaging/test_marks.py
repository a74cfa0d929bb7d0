"""Tests are marked by what they need, and a run of tests can be repeated."""

from __future__ import annotations

import pytest

from tests.support import preparing, seeds
from tests.support.needs import MARKERS, needs


def test_marks_follow_from_fixtures():
    """Fixtures of fixtures count, and what is asked for under two names is one need."""
    assert needs(["tmp_path", "create_topic", "broker"]) == ["broker"]
    assert needs(["api_server", "namespace", "processes"]) == ["apiserver", "process"]
    assert needs(["tmp_path", "monkeypatch"]) == []


def test_a_test_without_needs_gets_no_mark(request):
    """This one needs nothing."""
    assert not {each.name for each in request.node.iter_markers()} & MARKERS.keys()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_derives_its_own_seed(number, request):
    """The same run gives each test the same seed again, and two tests different ones."""
    name = request.node.nodeid
    assert seeds.derived(7, name) == seeds.derived(7, name)
    assert seeds.derived(7, name) != seeds.derived(8, name)
    assert seeds.derived(7, name) != seeds.derived(7, f"{name}x")


def test_what_is_prepared_is_prepared_once(tmp_path, monkeypatch):
    """The second process that needs it waits for the first one's."""
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
