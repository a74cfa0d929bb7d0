"""Loading the application, and the errors if it cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.cli.application import ApplicationError, load_topology
from millpond.errors import TopologyError
from millpond.runtime.loading import check_not_loading
from tests.cli.conftest import COUNT, Application, Millpond


def extend(name: str, text: str) -> None:
    with Path(f"{name}.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


@pytest.mark.parametrize(
    "attribute",
    [
        "topology = count()",
        "topology = count",
        "topology = lambda: count()",
        "topology = StreamsBuilder(); topology.stream('t', key=String, value=String).to('u')",
        "def topology(partitions=3): return count()",
        "class Holder:\n    topology = staticmethod(count)\ntopology = Holder.topology",
    ],
)
def test_topologies_builders_and_functions_are_accepted(application: Application, attribute: str) -> None:
    """Everything that gives a topology without arguments is an application."""
    name = application(COUNT)
    extend(name, attribute)
    assert load_topology(f"{name}:topology").subtopologies()


def test_attributes_of_attributes_are_found(application: Application) -> None:
    """`module:Class.attribute` names nested attributes."""
    name = application(COUNT)
    extend(name, "class Apps:\n    words = staticmethod(count)")
    assert load_topology(f"{name}:Apps.words").subtopologies()


@pytest.mark.parametrize(
    ("text", "target", "told"),
    [
        (COUNT, "{}", ["names no attribute", "'count'"]),
        (COUNT, "{}:", ["names no attribute", "'count'"]),
        (COUNT, ":count", ["names no module"]),
        (COUNT, "{}:cuont", ["has no 'cuont'", "did you mean '{}:count'?"]),
        (COUNT, "{}.py:count", ["is a file", "'{}:count'"]),
        (COUNT, "./{}.py", ["is a file", "'{}:NAME'"]),
        (COUNT, "nowhere_at_all:count", ["module 'nowhere_at_all' does not exist"]),
        (COUNT, "{}x:count", ["module '{}x' does not exist", "did you mean '{}'?"]),
        ("import not_installed_anywhere", "{}:x", ["needs 'not_installed_anywhere', which is not installed"]),
        ("x = 1 / 0", "{}:x", ["cannot be imported", "ZeroDivisionError", "{}.py, line 1"]),
        ("def x(:", "{}:x", ["cannot be imported", "SyntaxError", "line 1"]),
        ("x = 5", "{}:x", ["is a int", "should be a Topology"]),
        ("def x(): pass", "{}:x", ["NoneType", "return statement missing"]),
        ("def x(a, b=1): pass", "{}:x", ["requires the arguments a:"]),
        ("\ndef x():\n    raise KeyError('k')", "{}:x", ["failed: KeyError: 'k'", "{}.py, line 3"]),
    ],
)
def test_unusable_application_is_one_sentence(
    millpond: Millpond, application: Application, text: str, target: str, told: list[str]
) -> None:
    """Each kind of wrong application has its own message, without a traceback, and exit status 2."""
    name = application(text)
    ended = millpond("topology", target.format(name))
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err.startswith("millpond: ")
    assert ended.err.count("\n") == 1
    for part in told:
        assert part.format(name) in ended.err


def test_topology_errors_of_the_application_are_shown(millpond: Millpond, application: Application) -> None:
    """Errors of millpond about the topology are printed unchanged."""
    name = application("""
        from millpond.topology import Topology
        def build():
            topology = Topology()
            topology.add_source("a", "t")
            topology.add_source("a", "u")
            return topology
    """)
    with pytest.raises(TopologyError) as refused:
        load_topology(f"{name}:build")
    ended = millpond("topology", f"{name}:build")
    assert (ended.status, ended.err) == (1, f"millpond: {refused.value}\n")


@pytest.mark.parametrize(
    ("text", "target", "told"),
    [
        (
            "import sys\n\nsys.exit(3)",
            "{0}:x",
            "module '{0}' exits when it is imported ({0}.py, line 3): put that under",
        ),
        ("def x():\n    raise SystemExit", "{0}:x", "'{0}:x' exits ({0}.py, line 2), but should return the topology."),
        (
            "import millpond as mp\n\nmp.App('x').run()",
            "{0}:x",
            "module '{0}' starts a worker when it is imported ({0}.py, line 3): put that under "
            "`if __name__ == '__main__':`.",
        ),
        (
            "import millpond as mp\n\napp = mp.App('x')\napp.foreach('views', key=mp.String, value=mp.String)(print)\n"
            "app.worker(bootstrap_servers='127.0.0.1:1').start()",
            "{0}:app",
            "module '{0}' starts a worker when it is imported ({0}.py, line 5): put that under",
        ),
        (
            "import millpond as mp\n\ndef x():\n    mp.App('x').run()",
            "{0}:x",
            "'{0}:x' starts a worker ({0}.py, line 4), but should return the topology: the command starts the worker.",
        ),
    ],
)
def test_modules_that_exit_or_start_a_worker_are_refused(
    millpond: Millpond, application: Application, text: str, target: str, told: str
) -> None:
    """Every command that loads an application says what its module does, and where, and starts no worker."""
    name = application(text)
    for command in ("check", "topology", "run"):
        ended = millpond(command, target.format(name))
        assert ended.status in {1, 2}
        assert ended.out == ""
        assert told.format(name) in ended.err


@pytest.mark.filterwarnings("error")
def test_an_async_function_is_no_application(millpond: Millpond, application: Application) -> None:
    """Its coroutine is closed, so that Python has nothing to warn of."""
    ended = millpond("topology", f"{application('async def x(): return 1')}:x")
    assert (ended.status, ended.out) == (2, "")
    assert "is an async def, whose result nothing awaits: write a plain def" in ended.err


def test_workers_start_after_an_application_was_loaded(application: Application) -> None:
    """Only while a command loads an application, workers are refused."""
    name = application("import millpond as mp\n\nmp.App('x').run()")
    with pytest.raises(ApplicationError):
        load_topology(f"{name}:x")
    check_not_loading()
