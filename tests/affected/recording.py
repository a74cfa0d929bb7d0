"""The plugin of pytest that runs chosen tests, and writes down what each of them executes.

`python -m tests.affected` names it in `PYTEST_PLUGINS`, so that each pytest process imports it before conftest modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.affected.record import Choice, Run, file_of
from tests.affected.session import FOLDER_VARIABLE, ROOT, Given, keep
from tests.affected.tracing import Tracer

_FIRST = "gw0"
#: All tests import it.
_EVERYWHERE = "tests/conftest.py"
#: Code that reads Python files to run them, or to show them.
_IMPORTING = frozenset({"importlib._bootstrap_external", "_pytest.assertion.rewrite", "traceback", "warnings"})


class Chosen:
    """Runs only the tests that were chosen, and imports only their files."""

    def __init__(self, choice: Choice, run: Run) -> None:
        self._choice = choice
        self._run = run
        self._files = choice.files | {file_of(each) for each in choice.tests}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Do not import the files of other tests."""
        if self._choice.everything or not collection_path.name.startswith("test_"):
            return None
        path = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
        return True if path not in self._files else None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Choose after marks and shares have chosen."""
        result = yield
        for item in items:
            family = _family(item)
            of_file = self._run.present.setdefault(file_of(family), [])
            if family not in of_file:
                of_file.append(family)
        others = [item for item in items if not self._choice.has(_family(item))]
        if others:
            items[:] = [item for item in items if self._choice.has(_family(item))]
            config.hook.pytest_deselected(items=others)
        return result


class Recording:
    """Writes down what tests execute."""

    def __init__(self, tracer: Tracer, run: Run) -> None:
        self._tracer = tracer
        self._run = run
        self._file = ""
        sys.addaudithook(self._opened)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Note which file is imported."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        self._file = file_of(collector.nodeid)
        loaded = set(sys.modules)
        executed = self._run.imported[self._file]
        with self._tracer.context(executed, self._file):
            report = yield
        for name in sys.modules.keys() - loaded:  # these are imported once: for the others that import them, too
            path = self._tracer.path(getattr(sys.modules[name], "__file__", None) or "")
            if path:
                self._run.once[path] |= executed
        if report.outcome != "failed":
            self._run.present.setdefault(self._file, [])
        self._file = ""
        return report

    def pytest_collection_finish(self) -> None:
        """Trace tests in all processes."""
        self._tracer.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what a test executes."""
        family = _family(item)
        self._file = file_of(family)
        with self._tracer.context(self._run.executed[family], family):
            result = yield
        self._file = ""
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """A fixture of several tests belongs to all of them."""
        if fixturedef.scope == "function":
            return (yield)
        code = getattr(fixturedef.func, "__code__", None)
        home = self._tracer.path(code.co_filename) if code else None
        if fixturedef.scope in {"session", "package"} and home:
            wide, reader = self._run.once[home], home
        else:
            wide, reader = self._run.imported[self._file], self._file
        with self._tracer.context(wide, reader):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        """Note times and failures."""
        report = yield
        family = _family(item)
        self._run.seconds[family] += report.duration
        if report.when == "teardown":
            self._run.cases[family].add(item.nodeid.partition("[")[2].removesuffix("]"))
        if report.failed:
            self._run.failed.add(family)
        return report

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note that a test reads Python files."""
        if event != "open" or not self._file or not str(arguments[0]).endswith(".py"):
            return
        path = self._tracer.path(str(Path(os.fsdecode(arguments[0])).absolute()))
        reader = None
        frame = sys._getframe(1) if path else None
        while frame is not None:
            if frame.f_globals.get("__name__") in _IMPORTING:
                return
            if reader is None and frame.f_code.co_name == "<module>":  # it reads when it is imported, for everybody
                reader = self._tracer.path(frame.f_code.co_filename)
            frame = frame.f_back
        if path:
            self._run.read[reader or self._tracer.reader or self._file].add(path)


def _family(item: pytest.Item) -> str:
    """Return the node id of a test function, without its case."""
    return item.nodeid.partition("[")[0]


_folder = Path(os.environ[FOLDER_VARIABLE])
_given = Given.read(_folder)
_run = Run()
_tracer = Tracer(ROOT, _given.tree, _run.once[_EVERYWHERE])
if _given.record:  # from here on, since conftest modules are imported before pytest is configured
    _tracer.follow_caches(_run.once)
    if os.environ.get("PYTEST_XDIST_WORKER", _FIRST) == _FIRST:  # all processes import the same
        _tracer.start()


def pytest_configure(config: pytest.Config) -> None:
    """Choose and record in the processes that run tests, which are not the one that only starts others."""
    if config.option.numprocesses and not hasattr(config, "workerinput"):
        _tracer.stop()
        return
    for variable in (FOLDER_VARIABLE, "PYTEST_PLUGINS"):  # a test may run pytest, too
        os.environ.pop(variable, None)
    config.pluginmanager.register(Chosen(_given.choice, _run))
    if _given.record:
        config.pluginmanager.register(Recording(_tracer, _run))


def pytest_sessionfinish() -> None:
    """Tell the command what this process measured, before pytest-xdist tells that it has finished."""
    if FOLDER_VARIABLE not in os.environ:
        _tracer.stop()
        keep(_run, _folder)
